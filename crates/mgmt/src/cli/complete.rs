//! Names for completion scripts: `ashlar complete WORD...` prints those that may follow the words.
//!
//! The scripts of `ashlar completions` run it at each TAB. It is in no help, waits for the daemon
//! at most [`ANSWER_MAX`], or [`REMOTE_ANSWER_MAX`], and prints nothing instead of an error.
//!
//! Invariants
//!  N1  No printed name has a character that a shell interprets: peers and media choose names, and
//!      the scripts expand the output.
//!  N2  A confirmation (`--yes-destroy`) is never completed: the operator types it.

use super::connect;
use crate::api::{GeomState, SystemState};
use crate::verbs;
use clap::{Arg, ArgAction, Command};
use serde_json::Value;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::time::Duration;

/// The first word of the command.
pub(super) const WORD: &str = "complete";

/// How long a TAB may wait for the daemon.
const ANSWER_MAX: Duration = Duration::from_millis(200);

/// The same for the daemon of another machine: TLS takes several round trips.
const REMOTE_ANSWER_MAX: Duration = Duration::from_secs(1);

/// Arguments that take any provider.
const PROVIDERS: &[&str] =
    &["disk", "disks", "lun", "member", "members", "provider", "providers", "unit"];

/// The argument that follows typed words.
struct Cursor<'c> {
    /// Names of its command, below the root: `["mirror", "status"]`.
    path: Vec<&'c str>,
    arg: &'c Arg,
    /// Options among the words with their values, by name.
    options: Vec<(&'c str, String)>,
}

impl<'c> Cursor<'c> {
    /// `None` if a command follows, or no argument may follow.
    fn after(root: &'c Command, words: &[String]) -> Option<Cursor<'c>> {
        let (mut command, mut path, mut options) = (root, Vec::new(), Vec::new());
        let mut places = 0;
        // An option whose value is the next word.
        let mut open: Option<&'c Arg> = None;
        for word in words {
            if let Some(arg) = open.take() {
                options.push((arg.get_id().as_str(), word.clone()));
            } else if let Some((name, value)) = word.strip_prefix('-').and_then(with_value) {
                let named = option(root, command, name);
                options.extend(named.map(|arg| (arg.get_id().as_str(), value.to_owned())));
            } else if let Some(name) = word.strip_prefix('-') {
                let named = option(root, command, name);
                open = named.filter(|arg| arg.get_action().takes_values());
            } else if let Some(inner) = command.find_subcommand(word).filter(|_| places == 0) {
                path.push(inner.get_name());
                command = inner;
            } else {
                places += 1;
            }
        }
        let arg = match open {
            Some(arg) => arg,
            None => positional(command, places)?,
        };
        Some(Cursor { path, arg, options })
    }
}

/// The name, with its second `-`, and the value of an option in one word: `--socket=PATH`.
fn with_value(word: &str) -> Option<(&str, &str)> {
    word.split_once('=').filter(|(name, _)| name.starts_with('-'))
}

/// The option of a typed word without its first `-`: `-target` or `t`.
fn option<'c>(root: &'c Command, command: &'c Command, name: &str) -> Option<&'c Arg> {
    let mut all = command.get_arguments().chain(root.get_arguments());
    match name.strip_prefix('-') {
        Some(long) => all.find(|arg| arg.get_long() == Some(long)),
        // Of letters in one word only the last may have a value.
        None => name.chars().next_back().and_then(|c| all.find(|arg| arg.get_short() == Some(c))),
    }
}

/// The argument at this place of a command; a list takes all places from its own.
fn positional(command: &Command, place: usize) -> Option<&Arg> {
    let is_list = |arg: &&Arg| matches!(arg.get_action(), ArgAction::Append);
    let at_place = command.get_positionals().nth(place);
    at_place.or_else(|| command.get_positionals().last().filter(is_list))
}

/// Names that the argument at the cursor may have.
fn names(state: &SystemState, cursor: &Cursor<'_>) -> BTreeSet<String> {
    let class = cursor.path.first().copied().unwrap_or_default();
    let is_of = |geom: &&GeomState, of: &str| of.is_empty() || geom.class == of;
    let geoms = |of: &str| -> Vec<String> {
        let found = state.geoms.iter().filter(|geom| is_of(geom, of));
        found.map(|geom| geom.name.clone()).collect()
    };
    let providers = |of: &str| -> Vec<String> {
        let found = state.geoms.iter().filter(|geom| is_of(geom, of));
        found.flat_map(|geom| &geom.providers).map(|provider| provider.name.clone()).collect()
    };
    let of_graph = |of: &str| geoms(of).into_iter().chain(providers(of));
    let targets = || state.targets.iter().map(|target| target.name.clone());
    let initiators = || state.sessions().map(|(_, session)| session.initiator.clone());
    let buses = || state.buses.iter().map(|bus| bus.name.clone());
    match (cursor.arg.get_id().as_str(), class) {
        (arg, _) if PROVIDERS.contains(&arg) => providers("").into_iter().collect(),
        ("geom", "trace") => geoms("").into_iter().collect(),
        ("lun", "trace") => providers("").into_iter().collect(),
        ("geom" | "geoms", _) => geoms(class).into_iter().collect(),
        ("target", _) => targets().collect(),
        ("buses", _) => buses().collect(),
        ("initiator", "access") => initiators().collect(),
        ("group", "alua") => state.port_groups.iter().map(|group| group.name.clone()).collect(),
        ("id", "sessions") => state.sessions().map(|(_, s)| s.id.to_string()).collect(),
        ("name", "detach") => state.attached.iter().map(|lun| lun.unit.clone()).collect(),
        ("object", "rates") => geoms("").into_iter().chain(initiators()).collect(),
        ("name", "graph" | "list") | ("down" | "up", "tree") => {
            of_graph("").chain(targets()).chain(initiators()).collect()
        }
        ("name", "cam") => {
            let disks = state.bus_disks().map(|(_, device)| device.name.clone());
            disks.chain(buses()).collect()
        }
        ("name" | "names", _) => of_graph(class).collect(),
        _ => BTreeSet::new(),
    }
}

/// Whether no shell interprets a character of the name (N1).
fn is_plain(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._:/@+,-".contains(c);
    !name.is_empty() && !name.starts_with('-') && name.chars().all(plain)
}

/// The output of the command: one name on each line.
pub(super) fn answer(root: &Command, words: &[OsString]) -> String {
    let words: Vec<String> = words.iter().map(|w| w.to_string_lossy().into_owned()).collect();
    let Some(cursor) = Cursor::after(root, &words) else { return String::new() };
    // The daemon is chosen as for a command that has these options.
    let option = |name: &str| {
        let typed = cursor.options.iter().rev().find(|(of, _)| *of == name);
        typed.map(|(_, value)| value.clone())
    };
    let Some(entry) = verbs::find("list") else { return String::new() };
    let Ok(client) = connect::client(&option, entry, &Value::Null) else { return String::new() };
    let limit = if client.is_remote() { REMOTE_ANSWER_MAX } else { ANSWER_MAX };
    let state = client.with_deadline(limit).state().unwrap_or_default();
    let all = names(&state, &cursor).into_iter().filter(|name| is_plain(name));
    all.map(|name| name + "\n").collect()
}
