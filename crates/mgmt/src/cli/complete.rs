//! Names for completion scripts: `ashlar complete WORD...` prints those that may follow the words.
//!
//! The scripts of `ashlar completions` run it at each TAB. It is in no help, waits for the daemon
//! at most [`ANSWER_MAX`], and prints nothing instead of an error.
//!
//! Invariants
//!  N1  No printed name has a character that a shell interprets: peers and media choose names, and
//!      the scripts expand the output.
//!  N2  A confirmation (`--yes-destroy`) is never completed: the operator types it.

use super::socket_path;
use crate::api::{GeomState, SystemState};
use crate::client::Client;
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

/// Arguments that take any provider.
const PROVIDERS: &[&str] =
    &["disk", "disks", "lun", "member", "members", "provider", "providers", "unit"];

/// The argument that follows typed words.
struct Cursor<'c> {
    /// Names of its command, below the root: `["mirror", "status"]`.
    path: Vec<&'c str>,
    arg: &'c Arg,
    /// The value of `--socket` among the words.
    socket: Option<String>,
}

impl<'c> Cursor<'c> {
    /// `None` if a command follows, or no argument may follow.
    fn after(root: &'c Command, words: &[String]) -> Option<Cursor<'c>> {
        let (mut command, mut path, mut socket) = (root, Vec::new(), None);
        let mut places = 0;
        // An option whose value is the next word.
        let mut open: Option<&'c Arg> = None;
        for word in words {
            if let Some(arg) = open.take() {
                if arg.get_id() == "socket" {
                    socket = Some(word.clone());
                }
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
        Some(Cursor { path, arg, socket })
    }
}

/// The option of a typed word without its first `-`: `-target` or `t`. `None` if the word has the
/// value, too.
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
    // Without a flag the configuration names the socket, as for other commands.
    let Some(entry) = verbs::find("list") else { return String::new() };
    let socket = socket_path(cursor.socket.as_ref(), entry, &Value::Null);
    let state = Client::new(&socket).with_deadline(ANSWER_MAX).state().unwrap_or_default();
    let all = names(&state, &cursor).into_iter().filter(|name| is_plain(name));
    all.map(|name| name + "\n").collect()
}
