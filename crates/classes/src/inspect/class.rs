//! Class of the signature scan: no geoms of its own, only verbs.

use bio::Errno;
use geom::{ClassVerb, Edge, Error, GraphControl, NoClaim, NoParams, Typed};

use super::scan::{InspectReport, step};
use super::verbs;
use crate::members::{PlaceholderGeom, provider_access};
use crate::part::{self, TableContext};
use crate::probe::Sectors;
use crate::probe_io::drive;

pub(super) const NAME: &str = "inspect";

/// Finds and clears what other classes, and others' tools, would claim.
pub struct InspectClass;

impl Typed for InspectClass {
    const NAME: &'static str = NAME;
    const DOC: &'static str =
        "Finds every label, table and file system on a provider, and clears them.";
    const VERBS: &'static [ClassVerb<InspectClass>] = verbs::VERBS;
    const CREATABLE: bool = false;
    type Params = NoParams;
    type Claim = NoClaim;
    type Geom = PlaceholderGeom;
}

/// Looks at a provider.
pub(crate) fn report(control: &mut GraphControl, name: &str) -> Result<InspectReport, Error> {
    let place = place(control, name)?;
    provider_access::with_read_access(control, NAME, name, |control, edge| {
        scan(control, name, edge, place)
    })
}

/// The place of a provider among partition tables.
pub(super) fn place(control: &GraphControl, name: &str) -> Result<TableContext, Error> {
    let on = provider_access::find(control, name)?;
    let attr = |name: &str| control.topology.attr(on, name);
    let text = |name: &str| match attr(name) {
        Some(bio::Attr::Text(text)) => Some(text),
        _ => None,
    };
    let int = |name: &str| match attr(name) {
        Some(bio::Attr::Int(int)) => Some(int),
        _ => None,
    };
    // A leaf is not searched for a table, but signatures in it are reported all the same.
    Ok(part::place(text, int).unwrap_or_default())
}

pub(super) fn scan(
    control: &mut GraphControl,
    name: &str,
    edge: Edge,
    place: TableContext,
) -> Result<InspectReport, Error> {
    let on = provider_access::find(control, name)?;
    let (sector, media) = provider_access::sizes(control, on);
    let seen = control.run_on_core("looking at the media", move |core| {
        Box::pin(async move {
            let mut sectors = Sectors::new(sector, media);
            let read = async |offset, len| core.read(edge, offset, len).await;
            drive(&mut sectors, read, |s| step(s, &place)).await
        })
    })?;
    seen.map_err(|why| Error::new(Errno::Io, format!("{name}: {why}")))
}
