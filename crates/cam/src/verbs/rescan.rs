//! `rescan`: scans for new and lost devices.

use std::collections::BTreeSet;

use bio::Errno;
use geom::{At, Deferred, Deserialize, Error, GraphControl, JsonSchema, Verb};
use serde::Serialize;

use super::scan::{ScanScope, bus_scope};
use super::trouble_texts;
use crate::address::{ANY, Path};
use crate::class::CamClass;

/// Scan buses for added and removed devices
///
/// `status` reports an AoE target that was found and does not answer. A rescan ends the report if
/// the target has no disk any more and `targets` of the bus does not name it.
#[derive(Deserialize, JsonSchema)]
pub(super) struct Rescan {
    /// BUS, BUS:TARGET:LUN, or all [default: all]
    buses: Vec<String>,
}

/// The result of a scan.
#[derive(Serialize, JsonSchema)]
pub(super) struct RescanAnswer {
    /// Result in sentences.
    message: String,
    /// Names of the new disks.
    found: Vec<String>,
    /// Targets that have not answered yet.
    silent: Vec<String>,
    /// Reasons why a bus cannot reach a device, a sentence each.
    troubles: Vec<String>,
}

impl Verb<CamClass> for Rescan {
    const NAME: &'static str = "rescan";
    const POSITIONAL: &'static [&'static str] = &["buses"];
    const EXAMPLE: &'static str = "rescan 0";
    type Answer = Deferred<RescanAnswer>;

    fn run(self, (class, control): At<'_, CamClass>) -> Result<Self::Answer, Error> {
        let mut wanted = Vec::new();
        for word in self.buses.iter().filter(|word| word.as_str() != "all") {
            let meant = Path::typed(word);
            let bus = meant.and_then(|m| class.buses().into_iter().find(|b| b.number() == m.bus));
            let (Some(meant), Some(bus)) = (meant, bus) else {
                let what = format!("there is no bus {word}; `ashlar cam devlist -b` lists them");
                return Err(Error::new(Errno::NoEnt, what));
            };
            wanted.push((bus, meant));
        }
        if wanted.is_empty() {
            wanted = class.buses().into_iter().map(bus_scope).collect();
        }
        class.scan(control, (Self::NAME, ""), wanted, rescanned)
    }
}

fn rescanned(
    class: &CamClass,
    control: &mut GraphControl,
    looks: &[ScanScope],
    before: &BTreeSet<String>,
) -> Result<RescanAnswer, Error> {
    let found = class.commit_scans(control, looks, before)?;
    let (mut silent, mut troubles) = (Vec::new(), Vec::new());
    let mut lines = Vec::new();
    for (bus, at) in looks {
        let number = bus.number();
        let devices = bus.devices();
        let has_device = |at: u64| {
            devices.iter().any(|(unit, _, disk)| unit.path().target == at && !disk.is_empty())
        };
        let lost = bus.sim().dismiss_lost(*at, &has_device);
        let line = |place: String| {
            format!("scbus{number}: {place} does not answer and is not reported until it does")
        };
        lines.extend(lost.into_iter().map(line));
        troubles.extend(trouble_texts(bus));
        let mut not_yet = bus.silent();
        not_yet.retain(|target| Path::target(number, *target).meets(*at));
        if bus.is_removed() {
            lines.push(format!("bus {number} was detached meanwhile"));
        } else if not_yet.is_empty() {
            lines.push(format!("Re-scan of {} was successful", path_text(*at)));
        }
        let places = not_yet.into_iter().map(|target| format!("scbus{number} target {target}"));
        silent.extend(places);
    }
    if looks.is_empty() {
        lines.push("there is no bus".to_owned());
    }
    if !found.is_empty() {
        lines.push(format!("found {}", found.join(", ")));
    }
    if !silent.is_empty() {
        let places = silent.join(", ");
        lines.push(format!(
            "no answer yet from {places}; the scan continues, and new disks are added"
        ));
    }
    lines.extend(troubles.iter().cloned());
    Ok(RescanAnswer { message: lines.join("\n"), found, silent, troubles })
}

/// A place in camcontrol's words: `bus 0`, `0:3:0`.
fn path_text(at: Path) -> String {
    match (at.target, at.lun) {
        (ANY, _) => format!("bus {}", at.bus),
        (target, ANY) => format!("{}:{target}", at.bus),
        (target, lun) => format!("{}:{target}:{lun}", at.bus),
    }
}
