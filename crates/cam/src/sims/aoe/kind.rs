//! The kind `aoe` of `[[bus]]`.

use std::sync::Arc;

use geom::Error;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use super::Aoe;
use super::engine::Rules;
use crate::kind::{Open, SimKind};
use crate::sim::Sim;

const MS: u64 = 1_000_000;
const S: u64 = 1_000 * MS;

/// An AoE initiator.
pub struct AoeKind;

#[derive(Deserialize, JsonSchema)]
pub(super) struct Params {
    /// Network interfaces; a target that is heard on several is reached over all of them.
    #[schemars(length(min = 1, max = 16))]
    interfaces: Vec<String>,
    /// Targets that are looked at, `SHELF.SLOT`; absent: all that answer.
    #[serde(default)]
    targets: Vec<String>,
    /// Most frames that wait for answers of a target, those of all cores together; less when the
    /// target can hold less.
    #[serde(default = "window")]
    #[schemars(range(min = 1, max = 255))]
    window: u32,
    /// Seconds after which a command that no path answers fails, and the disk is gone. What stands
    /// on it goes on without it; the disk is taken in again when it answers.
    #[serde(default = "deadline")]
    #[schemars(range(min = 1, max = 25))]
    deadline_s: u64,
    /// Milliseconds after which a frame that was not answered is nowhere any more, neither on the
    /// network nor with the target: only then its sectors may be written anew.
    #[serde(default = "life")]
    #[schemars(range(min = 100, max = 20000))]
    frame_life_ms: u64,
    /// Most seconds between questions who is there: at first, and when an interface has come up, it
    /// is asked more often.
    #[serde(default = "ask")]
    #[schemars(range(min = 1, max = 3600))]
    ask_s: u64,
}

fn window() -> u32 {
    64
}

fn deadline() -> u64 {
    20
}

fn life() -> u64 {
    2_000
}

fn ask() -> u64 {
    60
}

fn refuse(bus: &str, what: impl std::fmt::Display) -> Error {
    Error::inval(format!("bus {bus}: {what}"))
}

impl Params {
    /// Of a bus.
    pub(super) fn read(bus: &str, params: &Value) -> Result<Params, Error> {
        Params::deserialize(params).map_err(|e| refuse(bus, e))
    }

    /// The rules of the protocol, and how often targets are asked for, ns.
    pub(super) fn terms(&self, bus: &str, cores: usize) -> Result<(Rules, u64), Error> {
        let target = |text: &String| {
            let what = format!("targets: `{text}` is not SHELF.SLOT of one target (565.1)");
            text.parse().map_err(|_| refuse(bus, what))
        };
        let rules = Rules {
            life_ns: self.frame_life_ms * MS,
            deadline_ns: self.deadline_s * S,
            window: self.window,
            shares: u32::try_from(cores).unwrap_or(1),
            targets: self.targets.iter().map(target).collect::<Result<_, _>>()?,
        };
        Ok((rules, self.ask_s * S))
    }
}

/// How long answers are waited for before a scan, ns.
const WAIT_NS: u64 = 300 * MS;

impl SimKind for AoeKind {
    fn name(&self) -> &'static str {
        "aoe"
    }

    fn doc(&self) -> &'static str {
        "Disks on the same Ethernet, by ATA over Ethernet."
    }

    fn schema(&self) -> Value {
        schemars::schema_for!(Params).to_value()
    }

    fn example(&self) -> &'static str {
        "[[bus]]\nname = \"aoe0\"\nkind = \"aoe\"\ninterfaces = [\"eth1\", \"eth2\"]\n\
         targets = [\"565.1\"]\n"
    }

    fn open(&self, request: &Open<'_>) -> Result<Arc<dyn Sim>, Error> {
        let name = request.name;
        let params = Params::read(name, request.params)?;
        let (rules, ask_ns) = params.terms(name, request.site.cores)?;
        let mut seen = std::collections::BTreeSet::new();
        if let Some(twice) = params.interfaces.iter().find(|name| !seen.insert(name.as_str())) {
            return Err(refuse(name, format!("interfaces: {twice} is there twice")));
        }
        let site = (request.site.switchboard.clone(), request.site.cores);
        Ok(Arc::new(Aoe::new(name, params.interfaces, rules, (WAIT_NS, ask_ns), site)))
    }
}
