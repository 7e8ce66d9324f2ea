//! The kind `aoe` of `[[bus]]`.

use std::sync::Arc;

use geom::Error;
use reactor::clock::{MS, S};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use super::Aoe;
use super::engine::Rules;
use crate::kind::{Open, SimKind};
use crate::sim::Sim;

/// An AoE initiator.
pub struct AoeKind;

#[derive(Deserialize, JsonSchema)]
pub(super) struct AoeParams {
    /// Network interfaces. A target that answers on several interfaces is reached over all of them.
    #[schemars(length(min = 1, max = 16))]
    interfaces: Vec<String>,
    /// Targets to use, as `SHELF.SLOT`; absent: all targets that answer.
    #[serde(default)]
    targets: Vec<String>,
    /// Maximum number of unanswered frames per target, over all cores; lower if the target buffers
    /// fewer.
    #[serde(default = "window")]
    #[schemars(range(min = 1, max = 255))]
    window: u32,
    /// Seconds without an answer on any path after which a command fails and the disk is lost.
    /// Layers above it, such as a mirror, continue without it; the disk is used again when it
    /// answers.
    #[serde(default = "deadline")]
    #[schemars(range(min = 1, max = 25))]
    deadline_s: u64,
    /// Milliseconds after which an unanswered frame no longer exists, neither in the network nor in
    /// the target. Its sectors may be written again only after this time.
    #[serde(default = "life")]
    #[schemars(range(min = 100, max = 20000))]
    frame_life_ms: u64,
    /// Maximum seconds between discovery queries for targets. Queries are sent more often at first,
    /// and after an interface is up again.
    #[serde(default = "discovery")]
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

fn discovery() -> u64 {
    60
}

fn refuse(bus: &str, what: impl std::fmt::Display) -> Error {
    Error::inval(format!("bus {bus}: {what}"))
}

impl AoeParams {
    fn read(bus: &str, params: &Value) -> Result<AoeParams, Error> {
        AoeParams::deserialize(params).map_err(|e| refuse(bus, e))
    }

    /// The interfaces that the bus uses.
    pub(super) fn interfaces(&self) -> &[String] {
        &self.interfaces
    }

    /// The rules of the protocol, and how often targets are queried, ns.
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

/// The parameters of a bus, if they can be used.
pub(super) fn checked(bus: &str, params: &Value) -> Result<AoeParams, Error> {
    let params = AoeParams::read(bus, params)?;
    params.terms(bus, 1)?;
    let mut seen = std::collections::BTreeSet::new();
    if let Some(twice) = params.interfaces.iter().find(|name| !seen.insert(name.as_str())) {
        return Err(refuse(bus, format!("interfaces: {twice} is listed twice")));
    }
    Ok(params)
}

impl SimKind for AoeKind {
    fn name(&self) -> &'static str {
        "aoe"
    }

    fn doc(&self) -> &'static str {
        "Disks on the same Ethernet, by ATA over Ethernet."
    }

    fn schema(&self) -> Value {
        geom::schema_of::<AoeParams>()
    }

    fn live_keys(&self) -> &'static [&'static str] {
        &["interfaces", "targets", "window", "deadline_s", "frame_life_ms", "ask_s"]
    }

    fn example(&self) -> &'static str {
        "[[bus]]\nname = \"aoe0\"\nkind = \"aoe\"\ninterfaces = [\"eth1\", \"eth2\"]\n\
         targets = [\"565.1\"]\n"
    }

    fn check(&self, name: &str, params: &Value) -> Result<(), Error> {
        checked(name, params).map(drop)
    }

    fn open(&self, request: &Open<'_>) -> Result<Arc<dyn Sim>, Error> {
        let name = request.name;
        let params = checked(name, request.params)?;
        let (rules, discovery_ns) = params.terms(name, request.site.cores)?;
        let site = (request.site.notifier.clone(), request.site.cores);
        Ok(Arc::new(Aoe::new(name, params.interfaces, rules, (WAIT_NS, discovery_ns), site)))
    }
}
