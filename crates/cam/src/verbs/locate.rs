//! `locate`: the light that shows where a disk is.

use bio::Errno;
use geom::{At, Deferred, Error, JsonSchema, Verb};
use serde::{Deserialize, Serialize};

use super::verb_jobs::DeviceOnCore;
use super::{Device, NamedDevice};
use crate::class::CamClass;
use crate::periph::ses;

/// Switch the locate light of a disk or enclosure slot
///
/// NAME is a disk whose enclosure reports its SAS address, or an enclosure, with the slot number
/// from `ashlar cam enclosure`. The light stays on until it is switched off. Check the light before
/// you pull a disk: only the light confirms that the name belongs to the bay.
#[derive(Deserialize, JsonSchema)]
pub(super) struct Locate {
    name: Device,
    /// State of the light
    #[serde(default)]
    #[schemars(extend("x-short" = "s"))]
    state: LightState,
    /// Slot number; NAME is the enclosure
    #[schemars(extend("x-short" = "e"))]
    element: Option<usize>,
}

#[derive(Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
enum LightState {
    #[default]
    On,
    Off,
}

/// The light of a slot.
#[derive(Serialize, JsonSchema)]
pub(super) struct LocateAnswer {
    /// Result in one sentence.
    message: String,
    /// Name of the enclosure.
    enclosure: String,
    /// Number of the element.
    element: usize,
    /// State of the light.
    on: bool,
}

impl Verb<CamClass> for Locate {
    const NAME: &'static str = "locate";
    const EXAMPLE: &'static str = "locate da0 -s on";
    type Answer = Deferred<LocateAnswer>;

    fn run(self, (class, control): At<'_, CamClass>) -> Result<Self::Answer, Error> {
        let (on, element) = (self.name.0, self.element);
        let (found, lit) = (class.disk(&on)?, self.state == LightState::On);
        if found.facts.role() == Some("ses") {
            return class.run_on_core(control, (Self::NAME, &on), move |core| {
                Box::pin(async move {
                    let shelf = DeviceOnCore { found: &found, core };
                    let element = shelf.slot(element).await?;
                    shelf.light(shelf.name(), element, lit).await
                })
            });
        }
        let known = class.by_address(&found);
        let own = |(_, periphs): &&(String, Vec<String>)| periphs.contains(&found.name);
        let sas = known.iter().find(|(_, device)| own(device)).map(|(sas, _)| *sas);
        let shelves = class.enclosures(found.unit.path().bus)?;
        class.run_on_core(control, (Self::NAME, &on), move |core| {
            Box::pin(async move {
                let shelves = shelves.iter().map(|found| DeviceOnCore { found, core });
                let (shelf, element) = slot_of(&found.name, sas, shelves).await?;
                shelf.light(&found.name, element, lit).await
            })
        })
    }
}

impl CamClass {
    /// The enclosures of a bus.
    fn enclosures(&self, number: u64) -> Result<Vec<NamedDevice>, Error> {
        let mut all = Vec::new();
        for bus in self.buses().into_iter().filter(|bus| bus.number() == number) {
            for (unit, facts, _) in bus.devices() {
                if facts.role() == Some("ses") {
                    let names = bus.periphs(unit.path());
                    all.push(self.disk(names.last().map_or("", String::as_str))?);
                }
            }
        }
        Ok(all)
    }
}

/// The enclosure and the element that hold a disk.
async fn slot_of<'a>(
    name: &str,
    sas: Option<u64>,
    shelves: impl Iterator<Item = DeviceOnCore<'a>>,
) -> Result<(DeviceOnCore<'a>, usize), Error> {
    let mut why = Vec::new();
    for shelf in shelves {
        match shelf.read().await {
            Ok(read) => match sas.and_then(|sas| read.element_of(sas)) {
                Some(element) => return Ok((shelf, element)),
                None => why.push(format!("{} does not list the disk", shelf.name())),
            },
            Err(e) => why.push(e.message),
        }
    }
    if why.is_empty() {
        why.push("there is no enclosure on its bus".into());
    }
    let what = format!(
        "the slot of {name} is unknown: {}; if you know the slot, name the enclosure: `ashlar cam \
         locate ses0 -e 3`",
        why.join(", ")
    );
    Err(Error::new(Errno::NotSup, what))
}

impl DeviceOnCore<'_> {
    /// The slot of an enclosure that was named by its number.
    async fn slot(&self, wanted: Option<usize>) -> Result<usize, Error> {
        let slots = self.read().await?.slots();
        wanted.filter(|n| slots.contains(n)).ok_or_else(|| {
            let all: Vec<String> = slots.iter().map(usize::to_string).collect();
            let all = all.join(", ");
            let what = format!("which slot of {}? -e NUMBER, one of {all}", self.name());
            Error::inval(what)
        })
    }

    /// Switches a slot's light, for whom `on` names.
    async fn light(&self, on: &str, element: usize, lit: bool) -> Result<LocateAnswer, Error> {
        let (found, shelf) = (self.found, self.name());
        let done = ses::locate(&found.unit, &found.facts, self.core, (element, lit)).await;
        done.map_err(|e| Error::new(e.kind, format!("{shelf}: {}", e.message)))?;
        let state = if lit { "on" } else { "off" };
        let message = format!("{on}: the light of element {element} of {shelf} is {state}");
        Ok(LocateAnswer { message, enclosure: shelf.to_owned(), element, on: lit })
    }
}
