//! Verbs of the class: a file each.

mod scan;
mod wipe;

use geom::ClassVerb;

use super::class::InspectClass;

pub(super) const VERBS: &[ClassVerb<InspectClass>] =
    &[ClassVerb::of::<scan::Scan>(), ClassVerb::of::<wipe::Wipe>()];
