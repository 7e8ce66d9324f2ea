//! console: the verbs of a file server, typed as `ashlar fs VERB` or on its console.
//!
//! A verb is a struct of its parameters, a [`Verb`], and one entry of [`VERBS`]; its words are the
//! same on both. An answer has the text that a person reads in `text` or `message`.
//!
//! Commands of the first file servers are understood, or answered with their replacements:
//! `compat`.

mod acct;
mod ahead;
mod allow;
mod attaches;
mod blockcmp;
mod cat;
mod check;
mod clean;
mod clri;
mod compat;
mod cons;
mod copying;
mod create;
mod diff;
mod differences;
mod disallow;
mod disk;
mod duallow;
mod dump;
mod dumpctl;
mod dumps;
mod files;
mod fstat;
mod grow;
mod halt;
mod hangup;
mod help;
mod history;
mod list_users;
mod ls;
mod newuser;
mod parser;
mod paths;
mod printconf;
mod ream;
mod recover;
mod remove;
mod replace;
mod start;
mod stats;
mod statw;
mod sync;
#[cfg(test)]
mod tests;
mod trace;
mod undisk;
pub(crate) mod users;
mod verb;
mod version;
mod who;
mod yesterday;

use std::rc::Rc;

use bio::Errno;
use geom::{Error, ListedVerb, Verb, VerbSpec};
use serde_json::Value;

use crate::fault::Fault;
use crate::service::{FS_CLASS, Host};
use verb::{Call, FileServer, Running, Switch, Switched, Text, answers, param_error};

/// The verb before which a disk in the place of a lost one is opened.
pub(crate) const REPLACE: &str = replace::Replace::NAME;

/// The verb that switches copies of dumps off and on.
pub(crate) const COPYING: &str = copying::Copying::NAME;

#[cfg(any(test, feature = "fuzzing"))]
pub(crate) use parser::parse_line;
pub(crate) use parser::{run_line_or_error, serve};
pub(crate) use paths::{Found, find_file, piece};

/// Every verb: one a line.
const VERBS: &[ListedVerb<FileServer>] = &[
    ListedVerb::of::<dump::Dump>(),
    ListedVerb::of::<dumps::Dumps>(),
    ListedVerb::of::<dumpctl::Dumpctl>(),
    ListedVerb::of::<copying::Copying>(),
    ListedVerb::of::<history::History>(),
    ListedVerb::of::<yesterday::Yesterday>(),
    ListedVerb::of::<diff::Diff>(),
    ListedVerb::of::<check::Check>(),
    ListedVerb::of::<sync::Sync>(),
    ListedVerb::of::<grow::Grow>(),
    ListedVerb::of::<halt::Halt>(),
    ListedVerb::of::<start::Start>(),
    ListedVerb::of::<ream::Ream>(),
    ListedVerb::of::<recover::Recover>(),
    ListedVerb::of::<replace::Replace>(),
    ListedVerb::of::<ahead::Ahead>(),
    ListedVerb::of::<stats::Stats>(),
    ListedVerb::of::<statw::Statw>(),
    ListedVerb::of::<acct::Acct>(),
    ListedVerb::of::<fstat::Fstat>(),
    ListedVerb::of::<printconf::Printconf>(),
    ListedVerb::of::<version::Version>(),
    ListedVerb::of::<who::Who>(),
    ListedVerb::of::<files::Files>(),
    ListedVerb::of::<hangup::Hangup>(),
    ListedVerb::of::<trace::Trace>(),
    ListedVerb::of::<list_users::ListUsers>(),
    ListedVerb::of::<newuser::Newuser>(),
    ListedVerb::of::<allow::Allow>(),
    ListedVerb::of::<disallow::Disallow>(),
    ListedVerb::of::<duallow::Duallow>(),
    ListedVerb::of::<attaches::Attaches>(),
    ListedVerb::of::<ls::Ls>(),
    ListedVerb::of::<cat::Cat>(),
    ListedVerb::of::<create::Create>(),
    ListedVerb::of::<remove::Remove>(),
    ListedVerb::of::<clri::Clri>(),
    ListedVerb::of::<clean::Clean>(),
    ListedVerb::of::<blockcmp::Blockcmp>(),
    ListedVerb::of::<disk::Disk>(),
    ListedVerb::of::<undisk::Undisk>(),
    ListedVerb::of::<cons::Cons>(),
    ListedVerb::of::<help::Help>(),
];

/// The descriptions of the verbs.
pub(crate) fn specs() -> &'static [VerbSpec] {
    geom::specs(VERBS)
}

/// A verb, as the control thread hands it on; `number` is that of its answer.
pub(crate) async fn run(
    host: &Rc<Host>,
    number: u64,
    verb: &str,
    params: &Value,
) -> Result<Value, Error> {
    let Some(listed) = VERBS.iter().find(|listed| listed.name == verb) else {
        return Err(Error::new(Errno::NotSup, format!("no verb {verb}: `help` names them")));
    };
    let call = Call { host: host.clone(), number };
    let done = (listed.run)(call, &format!("{FS_CLASS} {verb}"), params).await;
    // The failure may be news, for example that the server was fenced.
    done.inspect_err(|_| host.update_status()).map_err(|e| fenced(host, e))
}

/// Adds the command that is still possible to an error of a fenced server.
fn fenced(host: &Host, e: Error) -> Error {
    let refused = host.shared.status().facts.refused;
    if !refused.is_some_and(|why| e.message.ends_with(&why)) {
        return e;
    }
    let what = format!("{}; `ashlar fs halt {}` closes its devices", e.message, host.shared.name);
    Error::new(e.kind, what)
}

/// An error for the operator from a fault of the volume.
pub(crate) fn error(fault: &Fault) -> Error {
    let kind = match fault {
        Fault::NotFound => Errno::NoEnt,
        Fault::Exists => Errno::Exist,
        Fault::NoSpace(_) => Errno::NoSpc,
        Fault::ReadOnly => Errno::RoFs,
        Fault::Io(e, _) => *e,
        Fault::Corrupt(_) | Fault::Foreign(_) => Errno::Io,
        Fault::Fenced(_) => Errno::Busy,
        Fault::Closed => Errno::NxIo,
        Fault::Refused(_) => Errno::Busy,
        Fault::NotEmpty | Fault::Unfinished(_) | Fault::Unsettled(_) => Errno::Busy,
        Fault::NotDir
        | Fault::IsDir
        | Fault::TooBig
        | Fault::BadName(_)
        | Fault::NameTooLong
        | Fault::Invalid(_) => Errno::Inval,
    };
    Error::new(kind, fault.to_string())
}

/// The same with the object that it is about.
fn about(what: &str) -> impl Fn(Fault) -> Error + '_ {
    move |fault| {
        let e = error(&fault);
        Error::new(e.kind, format!("{what}: {}", e.message))
    }
}
