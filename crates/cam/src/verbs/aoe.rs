//! Common part of `aoeconfig`, `aoemask` and `aoereserve`: the settings that an AoE target stores
//! beside its disk.

use std::fmt::Write;

use bio::Errno;
use geom::Error;
use schemars::JsonSchema;
use serde::Deserialize;
use wire::aoe::{Config, Mac, Masks, Reserve, command, error, mask};

use super::verb_jobs::DeviceOnCore;
use crate::sims::aoe::Aoe;

/// Ethernet addresses: 02:00:00:00:00:01
#[derive(Default, Deserialize, JsonSchema)]
#[serde(transparent)]
#[schemars(inline)]
pub(super) struct Addresses(Vec<String>);

impl Addresses {
    /// The addresses that were typed.
    pub(super) fn list(&self) -> Result<Vec<Mac>, Error> {
        let mut all = Vec::new();
        for word in &self.0 {
            let mac: Mac = word.parse().map_err(|_| {
                refuse(format!("`{word}` is not an Ethernet address, as in 02:00:00:00:00:01"))
            })?;
            if mac.is_group() {
                return Err(refuse(format!("{mac} is a group address, which never sends frames")));
            }
            if !all.contains(&mac) {
                all.push(mac);
            }
        }
        if all.len() > usize::from(u8::MAX) {
            return Err(refuse("too many addresses (a frame holds at most 255)"));
        }
        Ok(all)
    }
}

pub(super) fn refuse(what: impl Into<String>) -> Error {
    Error::inval(what)
}

pub(super) fn names(list: &[Mac]) -> Vec<String> {
    list.iter().map(Mac::to_string).collect()
}

/// A list for people; `none` is the text of an empty one.
pub(super) fn list_text(name: &str, list: &[Mac], none: &str) -> String {
    let mut text = String::new();
    for mac in list {
        let _ = writeln!(text, "{mac}");
    }
    if list.is_empty() {
        text = format!("{name}: {none}\n");
    }
    text
}

impl DeviceOnCore<'_> {
    fn bus(&self) -> Result<&Aoe, Error> {
        self.found.unit.sim().aoe().ok_or_else(|| {
            let what = format!("{}: not a disk of an AoE bus", self.name());
            Error::new(Errno::NotSup, what)
        })
    }

    /// Sends an order to the target; returns its answer, or its error.
    async fn send_command(&self, command: u8, body: Vec<u8>) -> Result<Result<Vec<u8>, u8>, Error> {
        let target = self.found.unit.path().target;
        self.bus()?.execute_command(target, command, body, self.core).await.map_err(|status| {
            let what = format!("{}: no answer: {}", self.name(), status.text());
            Error::new(Errno::TimedOut, what)
        })
    }

    /// This machine's own addresses there.
    pub(super) fn own(&self) -> Result<Vec<Mac>, Error> {
        Ok(self.bus()?.own(self.found.unit.path().target, self.core))
    }

    fn unreadable(&self) -> Error {
        Error::new(Errno::Io, format!("{}: the answer is malformed", self.name()))
    }

    /// The error of an answer.
    pub(super) fn wrong(&self, code: u8) -> Error {
        let why = match code {
            error::COMMAND => "the target does not know this command",
            error::ARGUMENT => "the target does not accept this argument",
            error::UNAVAILABLE => "the target cannot do this now, or cannot store the change",
            error::CONFIG_PRESENT => "the target already has a config string",
            error::RESERVED => "the target is reserved by other initiators",
            _ => "the target refused",
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

    pub(super) async fn string(&self, how: u8, text: &[u8]) -> Result<Vec<u8>, Error> {
        let body = [&Config::request(how, text).encode()[..], text].concat();
        let data =
            self.send_command(command::CONFIG, body).await?.map_err(|code| self.wrong(code))?;
        let read = Config::decode(&data).map(|config| config.string.to_vec());
        read.map_err(|_| self.unreadable())
    }

    pub(super) async fn masks(&self, how: u8, list: &[(u8, Mac)]) -> Result<Vec<Mac>, Error> {
        let data = self.send_command(command::MASKS, Masks::encode(how, 0, list)).await?;
        let data = data.map_err(|code| self.wrong(code))?;
        let masks = Masks::decode(&data).map_err(|_| self.unreadable())?;
        let why = match masks.error {
            0 => return Ok(masks.directives().map(|(_, mac)| mac).collect()),
            mask::DIRECTIVE => "the target does not know this directive",
            mask::FULL => "the list of the target is full",
            _ => "the target could not apply or store the change",
        };
        Err(Error::new(Errno::Io, format!("{}: the list is unchanged: {why}", self.name())))
    }

    pub(super) async fn holders(
        &self,
        how: u8,
        list: &[Mac],
    ) -> Result<Result<Vec<Mac>, u8>, Error> {
        let data = match self.send_command(command::RESERVE, Reserve::encode(how, list)).await? {
            Ok(data) => data,
            Err(code) => return Ok(Err(code)),
        };
        let read = Reserve::decode(&data).map_err(|_| self.unreadable())?;
        Ok(Ok(read.addresses().collect()))
    }
}
