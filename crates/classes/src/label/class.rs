//! Class of labels: tasting, claiming, naming by hand.

use bio::Errno;
use geom::{
    ClassVerb, Create, Error, GeomId, Local, MADE_BY_VERB, ProviderId, TasteOutcome, Taster,
    Topology, Typed,
};
use schemars::JsonSchema;
use serde::Deserialize;

use super::geom::{KIND_ATTR, Label, LabelGeom};
use super::{Found, clean, gpt_names, step_all, verbs};
use crate::probe::Sectors;
use crate::probe_io::drive;

pub(super) const NAME: &str = "label";

/// Prefix of GEOM's own labels: the only ones that may contain a partition table.
pub(super) const OWN_PREFIX: &str = "label";

/// Class that names providers by the labels found on them.
pub struct LabelClass;

/// Name a provider without writing a label; the name lasts until the daemon ends.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct LabelParams {}

/// Everything that names a provider, with the reasons why others were rejected.
fn names_of(
    disk: &Taster,
    all: Vec<(&super::Kind, Result<Found, crate::probe::ProbeError>)>,
) -> Names {
    let mut names = Names::default();
    if disk.text("PART::scheme") == Some("GPT") {
        let (name, uuid) = (disk.text("PART::label"), disk.text("PART::uuid"));
        match gpt_names(name.unwrap_or(""), uuid.unwrap_or(""), disk.media_bytes) {
            Ok(found) => names.found.push(found),
            Err(why) => names.rejected.push(why.to_string()),
        }
    }
    for (kind, found) in all {
        match found {
            Ok(found) => names.found.push(found),
            Err(why) => names.rejected.push(format!("{}: {why}", kind.description)),
        }
    }
    names
}

#[derive(Default)]
struct Names {
    found: Vec<Found>,
    rejected: Vec<String>,
}

impl Names {
    fn into_outcome(self) -> TasteOutcome<Vec<Found>> {
        if self.found.is_empty() {
            return TasteOutcome::No(self.rejected.join("; "));
        }
        let words: Vec<String> = self
            .found
            .iter()
            .map(|found| {
                let names: Vec<&str> = found.providers().collect();
                format!("{}: {}", found.description, names.join(", "))
            })
            .collect();
        TasteOutcome::Yes(words.join("; "), self.found)
    }
}

impl Typed for LabelClass {
    const NAME: &'static str = NAME;
    const DOC: &'static str = "Names of providers from labels, file systems and GPT entries.";
    const VERBS: &'static [ClassVerb<LabelClass>] = verbs::VERBS;
    const TASTES: bool = true;
    const ONLY_SHOWS: bool = true;
    const MEMBER_LIMITS: (usize, usize) = (1, 1);
    type Params = LabelParams;
    type Claim = Vec<Found>;
    type Geom = LabelGeom;

    fn taste<'a>(&'a self, disk: &'a Taster) -> Local<'a, TasteOutcome<Vec<Found>>> {
        Box::pin(async move {
            if disk.text(KIND_ATTR).is_some() {
                return TasteOutcome::No(
                    "the provider is itself a name of another provider".into(),
                );
            }
            let mut sectors = Sectors::new(disk.sector_bytes, disk.media_bytes);
            let read = async |offset, len| disk.read(offset, len).await;
            match drive(&mut sectors, read, step_all).await {
                Ok(all) => names_of(disk, all).into_outcome(),
                Err(why) => TasteOutcome::No(why.to_string()),
            }
        })
    }

    fn claim(
        &self,
        topology: &mut Topology,
        on: ProviderId,
        _: &str,
        all: Vec<Found>,
    ) -> Result<(), Error> {
        let mut refused = Vec::new();
        for found in &all {
            for name in found.providers() {
                let nests = name.starts_with(OWN_PREFIX) && name.get(5..6) == Some("/");
                let label = Label { name, description: found.description, len: found.len, nests };
                if let Err(error) = LabelGeom::place(topology, on, found.description, &label) {
                    refused.push(error.message);
                }
            }
        }
        match refused.is_empty() {
            true => Ok(()),
            // What could be made was made; the first to have a name keeps it.
            false => Err(Error::new(Errno::Exist, refused.join("; "))),
        }
    }

    fn create(
        &self,
        topology: &mut Topology,
        request: &Create<'_, LabelParams>,
    ) -> Result<GeomId, Error> {
        let [on] = request.members else {
            return Err(Error::inval("label: exactly one provider is needed"));
        };
        let given = request.name.strip_prefix("label/").unwrap_or(request.name);
        let name = clean(OWN_PREFIX, given.as_bytes()).map_err(|_| {
            Error::inval(format!("{given:?} cannot be a name; use letters and digits"))
        })?;
        let len = topology.limits(*on).map_or(0, |limits| limits.media_bytes);
        let label = Label { name: &name, description: "named by hand", len, nests: true };
        LabelGeom::place(topology, *on, MADE_BY_VERB, &label)
    }

    fn disassemble(&self, topology: &mut Topology, geom: GeomId) {
        LabelGeom::abandon(topology, geom);
    }
}
