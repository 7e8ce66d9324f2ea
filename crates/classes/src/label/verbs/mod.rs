//! Verbs of the class, as in glabel: a file each.

mod clear;
mod create;
mod destroy;
mod label;
mod refresh;

use geom::{ClassVerb, Control, Edge, Error, ProviderId};
use serde::Serialize;

use super::class::LabelClass;
use super::generic;
use super::geom::KIND_ATTR;
use crate::members::provider_access;

/// The verbs of the class.
pub(super) const VERBS: &[ClassVerb<LabelClass>] = &[
    ClassVerb::of::<label::Label>(),
    ClassVerb::of::<clear::Clear>(),
    ClassVerb::of::<create::Create>(),
    ClassVerb::of::<destroy::Destroy>(),
    ClassVerb::of::<destroy::Stop>(),
    ClassVerb::of::<refresh::Refresh>(),
];

/// The action done, and the provider.
#[derive(Serialize)]
pub(super) struct Done {
    message: String,
    provider: String,
}

impl Done {
    fn new(provider: &str, message: String) -> Done {
        Done { message, provider: provider.to_owned() }
    }
}

/// A provider that is no name for another.
fn find(control: &Control, name: &str) -> Result<ProviderId, Error> {
    let on = provider_access::find(control, name)?;
    if control.topology.attr(on, KIND_ATTR).is_some() {
        let what = format!("{name} is itself a name for another provider; label that");
        return Err(Error::inval(what));
    }
    Ok(on)
}

/// Content of the last sector.
enum Last {
    Nothing,
    Label,
    Other,
}

fn last(control: &mut Control, name: &str, edge: Edge) -> Result<Last, Error> {
    let (_, bytes) = provider_access::last(control, name, edge)?;
    Ok(match (generic::is_label(&bytes), bytes.iter().all(|byte| *byte == 0)) {
        (true, _) => Last::Label,
        (_, true) => Last::Nothing,
        _ => Last::Other,
    })
}
