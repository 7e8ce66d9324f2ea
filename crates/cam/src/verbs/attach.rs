//! `attach`: a bus with its disks.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::sync::Arc;

use bio::Errno;
use geom::{At, Deferred, Deserialize, Error, GraphControl, JsonSchema, Verb};
use serde::Serialize;
use serde_json::Value;

use super::scan::{ScanScope, bus_scope};
use super::trouble_texts;
use crate::bus::{Bounds, Bus, Names};
use crate::class::CamClass;

/// Attach a bus with its disks
///
/// For the control path, which reads the parameters from a section or from the words of its own
/// verb of this name.
#[derive(Deserialize, JsonSchema)]
pub(super) struct Attach {
    /// Name of the bus, such as mps0
    name: String,
    /// Parameters of the kind
    #[serde(default)]
    #[schemars(extend("x-hidden" = true))]
    params: Value,
    #[serde(default)]
    #[schemars(extend("x-hidden" = true))]
    kind: String,
    #[serde(default)]
    #[schemars(extend("x-hidden" = true))]
    names: BTreeMap<String, String>,
    #[serde(default)]
    #[schemars(with = "Value", extend("x-hidden" = true))]
    bounds: Bounds,
}

/// The attached bus.
#[derive(Serialize, JsonSchema)]
pub struct AttachAnswer {
    /// Result in one sentence.
    message: String,
    /// Number of the bus.
    bus: u64,
    /// Names of the disks that were found.
    found: Vec<String>,
}

impl Verb<CamClass> for Attach {
    const NAME: &'static str = "attach";
    const POSITIONAL: &'static [&'static str] = &["name"];
    const EXAMPLE: &'static str = "attach mps0";
    type Answer = Deferred<AttachAnswer>;

    fn run(self, (class, control): At<'_, CamClass>) -> Result<Self::Answer, Error> {
        let name = self.name.as_str();
        if name.is_empty() || class.bus(name).is_some() {
            let what = format!("a bus {name} exists already; give it another name");
            return Err(Error::new(Errno::Exist, what));
        }
        let notifier = control.topology.notifier();
        let sim = class.driver(name, &self.kind, &self.params, notifier.clone())?;
        class.verb_jobs.reserve_slot()?;
        let bus = class.add_bus(sim, Names { by_name: self.names }, notifier);
        bus.set_bounds(self.bounds);
        class.scan(control, (Self::NAME, name), vec![bus_scope(bus)], attached)
    }
}

/// Removes a bus that could not be attached as a whole; users of disks that it found meanwhile are
/// notified of their loss.
fn give_up(class: &CamClass, control: &mut GraphControl, bus: &Arc<Bus>) {
    if control.call(|t| class.take_out(t, bus)).is_err() {
        bus.report_loss();
        class.remove_bus(bus);
    }
}

fn attached(
    class: &CamClass,
    control: &mut GraphControl,
    looks: &[ScanScope],
    before: &BTreeSet<String>,
) -> Result<AttachAnswer, Error> {
    let Some((bus, _)) = looks.iter().find(|(bus, _)| !bus.is_removed()) else {
        return Err(Error::new(
            Errno::Canceled,
            "the bus was detached before its attach completed",
        ));
    };
    let found = match class.commit_scans(control, looks, before) {
        Ok(found) => found,
        Err(why) => {
            give_up(class, control, bus);
            return Err(why);
        }
    };
    let mut message = match found.as_slice() {
        [] => format!(
            "scbus{}: no disks yet; new disks are taken in, and `ashlar cam rescan {}` looks \
             again",
            bus.number(),
            bus.number()
        ),
        found => format!("scbus{}: {}", bus.number(), found.join(", ")),
    };
    for why in trouble_texts(bus) {
        let _ = write!(message, "; {why}");
    }
    Ok(AttachAnswer { message, bus: bus.number(), found })
}
