//! console: the verbs of a file server, typed as `ashlar fs VERB` or on its console.
//!
//! A verb is a struct of its parameters, an [`FsVerb`], and one entry of [`COMMANDS`]; its words
//! are the same on both. An answer has the text that a person reads in `text` or `message`.
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
use std::sync::OnceLock;

use bio::Errno;
use geom::{Error, VerbSpec};
use serde_json::Value;

use crate::fault::Fault;
use crate::service::Host;
use verb::{Command, FsVerb, Switch, Switched, Text, answers};

/// The verb before which a disk in the place of one that is gone is opened.
pub(crate) const REPLACE: &str = replace::Replace::NAME;

/// The verb that switches copies of dumps off and on.
pub(crate) const COPYING: &str = copying::Copying::NAME;

#[cfg(any(test, feature = "fuzzing"))]
pub(crate) use parser::parse_line;
pub(crate) use parser::{run_line_or_error, serve};
pub(crate) use paths::{Found, find_file, piece};

/// Every verb: one a line.
const COMMANDS: &[Command] = &[
    Command::of::<dump::Dump>(),
    Command::of::<dumps::Dumps>(),
    Command::of::<dumpctl::Dumpctl>(),
    Command::of::<copying::Copying>(),
    Command::of::<history::History>(),
    Command::of::<yesterday::Yesterday>(),
    Command::of::<diff::Diff>(),
    Command::of::<check::Check>(),
    Command::of::<sync::Sync>(),
    Command::of::<grow::Grow>(),
    Command::of::<halt::Halt>(),
    Command::of::<start::Start>(),
    Command::of::<ream::Ream>(),
    Command::of::<recover::Recover>(),
    Command::of::<replace::Replace>(),
    Command::of::<ahead::Ahead>(),
    Command::of::<stats::Stats>(),
    Command::of::<statw::Statw>(),
    Command::of::<acct::Acct>(),
    Command::of::<fstat::Fstat>(),
    Command::of::<printconf::Printconf>(),
    Command::of::<version::Version>(),
    Command::of::<who::Who>(),
    Command::of::<files::Files>(),
    Command::of::<hangup::Hangup>(),
    Command::of::<trace::Trace>(),
    Command::of::<list_users::ListUsers>(),
    Command::of::<newuser::Newuser>(),
    Command::of::<allow::Allow>(),
    Command::of::<disallow::Disallow>(),
    Command::of::<duallow::Duallow>(),
    Command::of::<attaches::Attaches>(),
    Command::of::<ls::Ls>(),
    Command::of::<cat::Cat>(),
    Command::of::<create::Create>(),
    Command::of::<remove::Remove>(),
    Command::of::<clri::Clri>(),
    Command::of::<clean::Clean>(),
    Command::of::<blockcmp::Blockcmp>(),
    Command::of::<disk::Disk>(),
    Command::of::<undisk::Undisk>(),
    Command::of::<cons::Cons>(),
    Command::of::<help::Help>(),
];

/// The verbs of the class; made once.
pub(crate) fn specs() -> &'static [VerbSpec] {
    static SPECS: OnceLock<Vec<VerbSpec>> = OnceLock::new();
    SPECS.get_or_init(|| COMMANDS.iter().map(|command| (command.spec)()).collect())
}

/// A verb and its specification for the command line.
fn find(verb: &str) -> Option<(&'static Command, &'static VerbSpec)> {
    COMMANDS.iter().zip(specs()).find(|(_, spec)| spec.name == verb)
}

/// A verb, as the control thread hands it on; `number` is that of its answer.
pub(crate) async fn run(
    host: &Rc<Host>,
    number: u64,
    verb: &str,
    params: &Value,
) -> Result<Value, Error> {
    let Some((command, _)) = find(verb) else {
        return Err(Error::new(Errno::NotSup, format!("no verb {verb}: `help` names them")));
    };
    let done = (command.run)(host.clone(), number, params).await;
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
