//! `aoeconfig`, `aoemask`, `aoereserve`: what an AoE target keeps beside its disk.

use std::fmt::Write;

use bio::Errno;
use geom::{ArgKind, ArgSpec, Error, VerbSpec};
use serde_json::{Value, json};
use wire::aoe::{
    Config, Mac, Masks, Reserve, STRING_MAX, command, directive, error, mask, reserve,
};

use super::orders::Talk;
use super::{DISK, verb};
use crate::sims::aoe::Aoe;

const fn flag(name: &'static str, doc: &'static str) -> ArgSpec {
    ArgSpec { name, short: None, kind: ArgKind::Flag, doc }
}

const ADDRESSES: ArgSpec = ArgSpec {
    name: "addresses",
    short: None,
    kind: ArgKind::Names(0),
    doc: "Ethernet addresses: 02:00:00:00:00:01",
};

const FORCE: ArgSpec = flag("force", "In spite of others, or of what it does to this machine");

pub(super) const AOECONFIG: VerbSpec = VerbSpec {
    detail: "A target keeps one text for whoever wants it, 1024 bytes at most. It is set where \
             there is none; of several machines that set it at once one succeeds, so it can say \
             whose a disk is. --force replaces it, --clear empties it.",
    ..verb(
        "aoeconfig",
        "Show or set an AoE target's config string",
        &[
            DISK,
            ArgSpec { name: "set", short: None, kind: ArgKind::Text, doc: "The new string" },
            flag("clear", "No string any more"),
            flag("force", "In place of the one that is there"),
        ],
        "aoeconfig ada0 --set host7",
    )
};

pub(super) const AOEMASK: VerbSpec = VerbSpec {
    detail: "A target with an empty list answers everybody, one with addresses in it nobody else: \
             to others it is not there. A list that would shut this machine out is refused without \
             --force. On a target of ours it stands beside the access groups, and lasts.",
    ..verb(
        "aoemask",
        "Show or edit the list of those that may reach an AoE target",
        &[
            DISK,
            ADDRESSES,
            flag("add", "Add these addresses"),
            flag("delete", "Take these addresses out"),
            FORCE,
        ],
        "aoemask ada0 02:00:00:00:00:01 02:00:00:00:00:02 --add",
    )
};

pub(super) const AOERESERVE: VerbSpec = VerbSpec {
    detail: "A target that is reserved refuses reads and writes of all who are not in its list; \
             they may ask who it is and who has it. --set takes it for the addresses given, or for \
             this machine's own at the interfaces of the bus; whoever is in the list may change \
             it, or --release it. --force does either whoever has it: what the others had under \
             way may still be written just before.",
    ..verb(
        "aoereserve",
        "Show, take or give back the reservation of an AoE target",
        &[
            DISK,
            ADDRESSES,
            flag("set", "Reserve it"),
            flag("release", "Give the reservation back"),
            flag("force", "Though others have it"),
        ],
        "aoereserve ada0 --set",
    )
};

fn refuse(what: impl Into<String>) -> Error {
    Error::inval(what)
}

fn addresses(params: &Value) -> Result<Vec<Mac>, Error> {
    let mut all = Vec::new();
    for word in params["addresses"].as_array().into_iter().flatten() {
        let word = word.as_str().unwrap_or_default();
        let mac: Mac = word.parse().map_err(|_| {
            refuse(format!("`{word}` is no Ethernet address: 02:00:00:00:00:01 is one"))
        })?;
        if mac.is_group() {
            return Err(refuse(format!("{mac} is a group's: no frame comes from there")));
        }
        if !all.contains(&mac) {
            all.push(mac);
        }
    }
    if all.len() > usize::from(u8::MAX) {
        return Err(refuse("255 addresses are all that a frame carries"));
    }
    Ok(all)
}

fn is(params: &Value, flag: &str) -> bool {
    params[flag].as_bool().unwrap_or(false)
}

fn names(list: &[Mac]) -> Vec<String> {
    list.iter().map(Mac::to_string).collect()
}

/// A list for people and for programs.
fn shown(name: &str, list: &[Mac], none: &str, key: &str) -> Value {
    let mut text = String::new();
    for mac in list {
        let _ = writeln!(text, "{mac}");
    }
    if list.is_empty() {
        text = format!("{name}: {none}\n");
    }
    json!({ "text": text, key: names(list) })
}

impl Talk<'_> {
    fn bus(&self) -> Result<&Aoe, Error> {
        self.found.unit.sim().aoe().ok_or_else(|| {
            let what = format!("{} is no disk of an AoE bus: it has no such thing", self.name());
            Error::new(Errno::NotSup, what)
        })
    }

    /// What the target answers, or its error.
    async fn ask(&self, command: u8, body: Vec<u8>) -> Result<Result<Vec<u8>, u8>, Error> {
        let target = self.found.unit.path().target;
        self.bus()?.order(target, command, body, self.core).await.map_err(|status| {
            let what = format!("{}: no answer: {}", self.name(), status.text());
            Error::new(Errno::TimedOut, what)
        })
    }

    /// This machine's own addresses there.
    fn own(&self) -> Result<Vec<Mac>, Error> {
        Ok(self.bus()?.own(self.found.unit.path().target, self.core))
    }

    fn unreadable(&self) -> Error {
        Error::new(Errno::Io, format!("{}: its answer makes no sense", self.name()))
    }

    /// The error of an answer.
    fn wrong(&self, code: u8) -> Error {
        let why = match code {
            error::COMMAND => "it does not know this command",
            error::ARGUMENT => "it takes no such argument",
            error::UNAVAILABLE => "it cannot do it now, or not keep it",
            error::CONFIG_PRESENT => "it has a string already",
            error::RESERVED => "others have it",
            _ => "it refused",
        };
        let kind = match code {
            error::COMMAND => Errno::NotSup,
            error::ARGUMENT => Errno::Inval,
            error::CONFIG_PRESENT => Errno::Exist,
            error::RESERVED => Errno::Busy,
            _ => Errno::Io,
        };
        Error::new(kind, format!("{}: {why} (AoE error {code})", self.name()))
    }

    async fn string(&self, how: u8, text: &[u8]) -> Result<Vec<u8>, Error> {
        let body = [&Config::ask(how, text).encode()[..], text].concat();
        let said = self.ask(command::CONFIG, body).await?.map_err(|code| self.wrong(code))?;
        let read = Config::decode(&said).map(|config| config.string.to_vec());
        read.map_err(|_| self.unreadable())
    }

    async fn masks(&self, how: u8, list: &[(u8, Mac)]) -> Result<Vec<Mac>, Error> {
        let said = self.ask(command::MASKS, Masks::encode(how, 0, list)).await?;
        let said = said.map_err(|code| self.wrong(code))?;
        let masks = Masks::decode(&said).map_err(|_| self.unreadable())?;
        let why = match masks.error {
            0 => return Ok(masks.directives().map(|(_, mac)| mac).collect()),
            mask::DIRECTIVE => "it does not know how",
            mask::FULL => "its list is full",
            _ => "it could not, or not keep it",
        };
        Err(Error::new(Errno::Io, format!("{}: the list is as it was: {why}", self.name())))
    }

    async fn holders(&self, how: u8, list: &[Mac]) -> Result<Result<Vec<Mac>, u8>, Error> {
        let said = match self.ask(command::RESERVE, Reserve::encode(how, list)).await? {
            Ok(said) => said,
            Err(code) => return Ok(Err(code)),
        };
        let read = Reserve::decode(&said).map_err(|_| self.unreadable())?;
        Ok(Ok(read.addresses().collect()))
    }

    pub(super) async fn config(&self, params: &Value) -> Result<Value, Error> {
        let on = self.name();
        let (set, force) = (params["set"].as_str(), is(params, "force"));
        let wanted = match (set, is(params, "clear")) {
            (Some(_), true) => return Err(refuse("set or clear, not both")),
            (Some(text), false) => Some(text.as_bytes()),
            (None, true) => Some(&[][..]),
            (None, false) if force => return Err(refuse("force what? --set or --clear")),
            (None, false) => None,
        };
        let string = match wanted {
            None => self.string(directive::READ, &[]).await?,
            Some(text) if text.len() > STRING_MAX => {
                let what = format!("{} bytes: a string has {STRING_MAX} at most", text.len());
                return Err(refuse(what));
            }
            // Nothing can be set where something is.
            Some(text) if force || text.is_empty() => self.string(directive::FORCE, text).await?,
            Some(text) => match self.string(directive::SET, text).await {
                Err(e) if e.kind == Errno::Exist => {
                    let now = self.string(directive::READ, &[]).await?;
                    let now = String::from_utf8_lossy(&now).into_owned();
                    let what = format!("{on} says `{now}` already; --force replaces it");
                    return Err(Error::new(Errno::Exist, what));
                }
                said => said?,
            },
        };
        let text = String::from_utf8_lossy(&string).into_owned();
        if wanted.is_some() {
            self.found.bus.has_mark(self.found.unit.path(), &text);
        }
        let hex: String = string.iter().map(|byte| format!("{byte:02x}")).collect();
        let line = match string.is_empty() {
            true => format!("{on}: no string\n"),
            false => format!("{text}\n"),
        };
        Ok(json!({ "text": line, "string": text, "bytes": hex }))
    }

    pub(super) async fn mask(&self, params: &Value) -> Result<Value, Error> {
        let on = self.name();
        let list = addresses(params)?;
        let how = match (is(params, "add"), is(params, "delete"), list.is_empty()) {
            (true, false, false) => Some(mask::ADD),
            (false, true, false) => Some(mask::DELETE),
            (false, false, true) => None,
            (true, true, _) => return Err(refuse("add or delete, not both")),
            (_, _, true) => return Err(refuse("which addresses?")),
            _ => return Err(refuse("addresses: --add or --delete?")),
        };
        let mut now = self.masks(mask::READ, &[]).await?;
        if let Some(how) = how {
            let after: Vec<Mac> = match how {
                mask::ADD => now.iter().chain(&list).copied().collect(),
                _ => now.iter().filter(|mac| !list.contains(mac)).copied().collect(),
            };
            let own = self.own()?;
            if !after.is_empty() && !own.iter().all(|mac| after.contains(mac)) {
                let force = is(params, "force");
                let what = format!(
                    "{on} would not answer this machine any more: its own addresses there are {}; \
                     add them, or --force",
                    names(&own).join(", ")
                );
                if !force {
                    return Err(Error::inval(what));
                }
            }
            let directives: Vec<(u8, Mac)> = list.iter().map(|mac| (how, *mac)).collect();
            now = self.masks(mask::EDIT, &directives).await?;
        }
        Ok(shown(on, &now, "everybody may reach it", "masks"))
    }

    pub(super) async fn reserve(&self, params: &Value) -> Result<Value, Error> {
        let on = self.name();
        let mut list = addresses(params)?;
        let force = is(params, "force");
        let changes = match (is(params, "set"), is(params, "release")) {
            (true, true) => return Err(refuse("set or release, not both")),
            (false, true) if !list.is_empty() => {
                return Err(refuse("what is released is nobody's: no addresses are wanted"));
            }
            (false, false) if force || !list.is_empty() => {
                return Err(refuse("--set or --release?"));
            }
            (set, release) => set || release,
        };
        if is(params, "set") && list.is_empty() {
            list = self.own()?;
        }
        let how = match (changes, force) {
            (false, _) => reserve::READ,
            (true, false) => reserve::SET,
            (true, true) => reserve::FORCE,
        };
        let now = match self.holders(how, &list).await? {
            Ok(now) => now,
            Err(error::RESERVED) => {
                let others = self.holders(reserve::READ, &[]).await?.unwrap_or_default();
                let what = format!(
                    "{on} is reserved for {}; --force takes it from them",
                    names(&others).join(", ")
                );
                return Err(Error::new(Errno::Busy, what));
            }
            Err(code) => return Err(self.wrong(code)),
        };
        Ok(shown(on, &now, "not reserved", "holders"))
    }
}
