//! Verbs of the class, as in glabel: a file each.

mod clear;
mod create;
mod destroy;
mod label;
mod refresh;
mod stop;

use geom::{ClassVerb, Edge, Error, GraphControl, JsonSchema, ProviderId};
use serde::Serialize;

use super::class::LabelClass;
use super::generic;
use super::geom::KIND_ATTR;
use crate::members::provider_access;

pub(super) const VERBS: &[ClassVerb<LabelClass>] = &[
    ClassVerb::of::<label::Label>(),
    ClassVerb::of::<clear::Clear>(),
    ClassVerb::of::<create::Create>(),
    ClassVerb::of::<destroy::Destroy>(),
    ClassVerb::of::<stop::Stop>(),
    ClassVerb::of::<refresh::Refresh>(),
];

/// The action done, and the provider.
#[derive(Serialize, JsonSchema)]
pub(super) struct LabelAnswer {
    /// Result in one sentence.
    message: String,
    /// Name of the provider.
    provider: String,
}

impl LabelAnswer {
    fn new(provider: &str, message: String) -> LabelAnswer {
        LabelAnswer { message, provider: provider.to_owned() }
    }
}

/// A provider that is no name for another.
fn find(control: &GraphControl, name: &str) -> Result<ProviderId, Error> {
    let on = provider_access::find(control, name)?;
    if control.topology.attr(on, KIND_ATTR).is_some() {
        let what = format!("{name} is itself a name for another provider; label that");
        return Err(Error::inval(what));
    }
    Ok(on)
}

enum LastSectorContent {
    Nothing,
    Label,
    Other,
}

fn last_sector_content(
    control: &mut GraphControl,
    name: &str,
    edge: Edge,
) -> Result<LastSectorContent, Error> {
    let (_, bytes) = provider_access::read_last_sector(control, name, edge)?;
    Ok(match (generic::is_label(&bytes), bytes.iter().all(|byte| *byte == 0)) {
        (true, _) => LastSectorContent::Label,
        (_, true) => LastSectorContent::Nothing,
        _ => LastSectorContent::Other,
    })
}
