//! `devlist`: the devices of all buses.

use geom::{Deserialize, Error, GraphControl, JsonSchema, Trouble, Verb};
use serde_json::{Value, json};

use super::trouble_texts;
use crate::bus::LastError;
use crate::class::CamClass;

/// List the devices of all buses
#[derive(Deserialize, JsonSchema)]
pub(super) struct Devlist {
    /// Also show the buses and last errors
    #[schemars(extend("x-short" = "v"))]
    verbose: bool,
    /// Show only the buses
    #[schemars(extend("x-short" = "b"))]
    buses: bool,
}

impl Verb<CamClass> for Devlist {
    const NAME: &'static str = "devlist";
    const EXAMPLE: &'static str = "devlist -v";
    type Answer = Value;

    fn run(self, class: &CamClass, control: &mut GraphControl) -> Result<Value, Error> {
        let (buses, now) = (class.buses(), control.now_ns());
        let text: String = buses
            .iter()
            .map(|bus| {
                let name = bus.sim().facts().name;
                let line = |Trouble { why, action, .. }| format!("{name}: {why}. {action}\n");
                let lines: String = bus.troubles().into_iter().map(line).collect();
                match self.buses {
                    true => format!("scbus{} on {name} bus 0\n{lines}", bus.number()),
                    false => bus.devlist(self.verbose, now) + &lines,
                }
            })
            .collect();
        let buses: Vec<Value> = buses
            .iter()
            .map(|bus| {
                let devices: Vec<Value> = bus
                    .devices()
                    .into_iter()
                    .map(|(unit, facts, name)| {
                        let path = unit.path();
                        json!({
                            "target": path.target, "lun": path.lun, "periph": name,
                            "periphs": bus.periphs(path),
                            "device": facts.label(), "lost": unit.inspect(|d| d.is_lost()),
                            "physpath": unit.physpath(),
                            "last_error": LastError::of(&unit, now).map(|e| json!({
                                "what": e.description, "age_ns": e.age_ns, "count": e.count,
                            })),
                        })
                    })
                    .collect();
                let counts: serde_json::Map<String, Value> = bus
                    .sim()
                    .counts()
                    .into_iter()
                    .map(|(name, count)| (name.to_owned(), count.into()))
                    .collect();
                json!({
                    "bus": bus.number(), "sim": bus.sim().facts().name, "devices": devices,
                    "counts": counts, "troubles": trouble_texts(bus),
                })
            })
            .collect();
        Ok(json!({ "text": text, "buses": buses }))
    }
}
