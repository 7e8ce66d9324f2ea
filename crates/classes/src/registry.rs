//! registry: every class of this crate, one line each, in the order in which they are loaded.

use std::sync::Arc;

use geom::{Class, filter_class};

use crate::members::{Waiting, relocate};
use crate::mirror::{self, MirrorClass};
use crate::raid::{self, RaidClass};

/// The label decoder of a class whose labels record the size of their provider.
pub(crate) fn label_of(class: &str) -> Option<relocate::DecodeLabel> {
    match class {
        "mirror" => Some(crate::mirror::placed),
        "multipath" => Some(crate::multipath::placed),
        "stripe" => Some(crate::stripe::placed),
        "concat" => Some(crate::concat::placed),
        _ => None,
    }
}

/// The size of the disk for which a record of Intel's was written that is elsewhere now.
pub(crate) fn old_disk_size(record: &[u8], offset: u64) -> Option<u64> {
    raid::imsm::old_disk_size(record, offset)
}

/// The classes. The last one loaded tastes first: membership of a disk comes before its apparent
/// content, and names before tables.
pub fn all() -> Vec<Arc<dyn Class>> {
    all_at(|| 0)
}

/// The same with a clock that people read: seconds since 1970.
pub fn all_at(wall_s: fn() -> u64) -> Vec<Arc<dyn Class>> {
    all_with(mirror::Tunables { wall_s, ..mirror::Tunables::default() })
}

/// The same with the times and sizes of mirrors.
pub fn all_with(mirrors: mirror::Tunables) -> Vec<Arc<dyn Class>> {
    let waiting = Arc::<Waiting>::default();
    vec![
        filter_class::<crate::nop::Nop>(),
        filter_class::<crate::limit::Limit>(),
        Arc::new(crate::sched::SchedClass),
        Arc::new(crate::trim::TrimClass),
        Arc::new(crate::inspect::InspectClass),
        Arc::new(crate::part::PartClass),
        Arc::new(crate::label::LabelClass),
        Arc::new(crate::concat::ConcatClass::default()),
        Arc::new(crate::stripe::StripeClass::default()),
        Arc::new(MirrorClass::tuned(mirrors, waiting.clone())),
        Arc::new(RaidClass::tuned(raid::Tunables::default(), waiting)),
        Arc::new(crate::multipath::MultipathClass::default()),
    ]
}
