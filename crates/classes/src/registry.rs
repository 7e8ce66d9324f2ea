//! registry: every class of this room, one line each, in the order in which they are loaded; and
//! what of any class stands on a media.

use std::sync::Arc;

use geom::Class;

use crate::label;
use crate::members::Waiting;
use crate::mirror::{self, MirrorClass};
use crate::probe::{Sectors, Step};
use crate::raid::{self, RaidClass};

/// The classes. The one loaded last tastes first: what a disk is a member of stands before what
/// seems to stand on it, and names before tables.
pub fn all() -> Vec<Arc<dyn Class>> {
    let waiting = Arc::<Waiting>::default();
    vec![
        Arc::new(crate::nop::Nop),
        Arc::new(crate::sched::SchedClass),
        Arc::new(crate::trim::TrimClass),
        Arc::new(crate::inspect::InspectClass),
        Arc::new(crate::part::PartClass),
        Arc::new(crate::label::LabelClass),
        Arc::new(crate::concat::ConcatClass::default()),
        Arc::new(crate::stripe::StripeClass::default()),
        Arc::new(MirrorClass::tuned(mirror::Tunables::default(), waiting.clone())),
        Arc::new(RaidClass::tuned(raid::Tunables::default(), waiting)),
        Arc::new(crate::multipath::MultipathClass::default()),
    ]
}

/// What stands on a media beside a partition table, in words: for a class that would write over
/// it.
pub(crate) fn signs(sectors: &Sectors) -> Step<Vec<String>> {
    let words = |(kind, found): (&label::Kind, Result<label::Found, _>)| {
        let found = found.ok()?;
        let names: Vec<&str> = found.providers().collect();
        Some(format!("{} ({})", kind.what, names.join(", ")))
    };
    match label::step_all(sectors) {
        Step::Read { offset, len } => Step::Read { offset, len },
        Step::No(why) => Step::No(why),
        Step::Done(all) => Step::Done(all.into_iter().filter_map(words).collect()),
    }
}
