//! console: what an operator can ask of a file server, typed as `ashlar fs VERB` or on its console.
//!
//! A verb is one entry of [`COMMANDS`]; its words are the same on both. An answer is a value with
//! the text that a person reads in `text` or `message`.
//!
//! What an operator of the first file servers types is understood, or answered with what takes its
//! place: `former`.

mod account;
mod ahead;
mod args;
mod care;
mod disks;
mod dumps;
mod former;
mod history;
mod lines;
mod paths;
pub(crate) mod people;
mod replace;
mod reports;
mod surgery;
#[cfg(test)]
mod tests;
mod trace;
mod tree;

use std::rc::Rc;

use bio::Errno;
use geom::{ArgKind, ArgSpec, Error, Local, VerbSpec};
use serde_json::Value;

use crate::fault::Fault;
use crate::service::Host;
use args::Args;

/// The verb before which a disk in the place of one that is gone is opened.
pub(crate) const REPLACE: &str = replace::REPLACE.spec.name;

#[cfg(any(test, feature = "fuzzing"))]
pub(crate) use lines::understand;
pub(crate) use lines::{serve, typed};
pub(crate) use paths::file;

type Done = Local<'static, Result<Value, Error>>;

/// A verb.
struct Command {
    spec: VerbSpec,
    run: fn(Rc<Host>, Args) -> Done,
}

/// Which file server.
const NAME: ArgSpec =
    ArgSpec { name: "name", short: None, kind: ArgKind::Name, doc: "The file server" };

/// What devices hold is looked at before the verb is called, and by its caller.
const YES_DESTROY: ArgSpec = ArgSpec {
    name: "yes_destroy",
    short: None,
    kind: ArgKind::Consent,
    doc: "Name of a device whose contents may be lost",
};

/// Every verb: one a line.
const COMMANDS: &[Command] = &[
    dumps::DUMP,
    dumps::DUMPS,
    dumps::DUMPCTL,
    dumps::COPYING,
    history::HISTORY,
    history::YESTERDAY,
    history::DIFF,
    care::CHECK,
    care::SYNC,
    care::GROW,
    care::HALT,
    care::START,
    care::REAM,
    care::RECOVER,
    replace::REPLACE,
    ahead::AHEAD,
    reports::STATS,
    reports::STATW,
    account::ACCT,
    reports::FSTAT,
    reports::PRINTCONF,
    reports::VERSION,
    people::WHO,
    people::FILES,
    people::HANGUP,
    trace::TRACE,
    people::USERS,
    people::NEWUSER,
    people::ALLOW,
    people::DISALLOW,
    people::DUALLOW,
    people::ATTACHES,
    tree::LS,
    tree::CAT,
    tree::CREATE,
    tree::REMOVE,
    surgery::CLRI,
    surgery::CLEAN,
    account::BLOCKCMP,
    disks::DISK,
    disks::UNDISK,
    lines::CONS,
    lines::HELP,
];

const fn specs() -> [VerbSpec; COMMANDS.len()] {
    let mut out = [COMMANDS[0].spec; COMMANDS.len()];
    let mut i = 0;
    while i < out.len() {
        out[i] = COMMANDS[i].spec;
        i += 1;
    }
    out
}

/// What the class can be asked.
pub(crate) const VERBS: &[VerbSpec] = &specs();

/// A verb, as the control thread hands it on; `number` is that of its answer.
pub(crate) async fn run(
    host: &Rc<Host>,
    number: u64,
    verb: &str,
    params: &Value,
) -> Result<Value, Error> {
    let Some(command) = COMMANDS.iter().find(|c| c.spec.name == verb) else {
        return Err(Error::new(Errno::NotSup, format!("no verb {verb}: `help` names them")));
    };
    let args = Args::new(number, params, &command.spec)?;
    let done = (command.run)(host.clone(), args).await;
    // Why it failed may be news: a server that was fenced hears of it so.
    done.inspect_err(|_| host.look()).map_err(|e| fenced(host, e))
}

/// What a server that another one has put out can do.
fn fenced(host: &Host, e: Error) -> Error {
    let refused = host.shared.status().facts.refused;
    if !refused.is_some_and(|why| e.what.ends_with(&why)) {
        return e;
    }
    let what = format!("{}; `ashlar fs halt {}` lets go of its devices", e.what, host.shared.name);
    Error::new(e.kind, what)
}

/// A fault of the volume for whoever typed.
pub(crate) fn error(fault: &Fault) -> Error {
    let kind = match fault {
        Fault::NotFound => Errno::NoEnt,
        Fault::Exists => Errno::Exist,
        Fault::NoSpace(_) => Errno::NoSpc,
        Fault::ReadOnly => Errno::RoFs,
        Fault::Io(e, _) => *e,
        Fault::Corrupt(_) | Fault::Strange(_) => Errno::Io,
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

/// The same with what it is about.
fn about(what: &str) -> impl Fn(Fault) -> Error + '_ {
    move |fault| {
        let e = error(&fault);
        Error::new(e.kind, format!("{what}: {}", e.what))
    }
}
