//! The verb `start`: the files of a server opened again, and checks of all verbs that open them.

use bio::Errno;
use geom::{Deserialize, Error, JsonSchema, MessageAnswer, Verb};

use super::{Call, FileServer, Running};
use crate::service::{Host, Phase};

#[derive(Deserialize, JsonSchema)]
pub(super) struct Start {}

impl Verb<FileServer> for Start {
    const NAME: &'static str = "start";
    const DOC: &'static str = "Open a file server that is halted or failed to open";
    const EXAMPLE: &'static str = "fs start main";
    type Answer = MessageAnswer;

    fn run(self, Call { host, .. }: Call) -> Running<MessageAnswer> {
        Box::pin(async move {
            check_idle(&host)?;
            host.open(false).await;
            outcome(&host, "serving files")
        })
    }
}

/// It has no files open.
pub(super) fn check_idle(host: &Host) -> Result<(), Error> {
    match host.shared.status().phase {
        Phase::Refused(..) | Phase::Halted => Ok(()),
        Phase::Serving => {
            let what = format!("already serving: `ashlar fs halt {}` first", host.shared.name);
            Err(Error::new(Errno::Busy, what))
        }
        _ => Err(Error::new(Errno::Again, "busy starting or halting: see `ashlar fs status`")),
    }
}

pub(super) fn outcome(host: &Host, good: &str) -> Result<MessageAnswer, Error> {
    match host.shared.status().phase {
        Phase::Refused(why, next) => Err(Error::new(Errno::NxIo, format!("{why}; {next}"))),
        _ => Ok(MessageAnswer::new(good)),
    }
}
