//! registry: every class of this crate, one line each, in the order in which they are loaded.

use std::sync::Arc;

use geom::{Class, filter_class};

use crate::concat::ConcatClass;
use crate::members::Waiting;
use crate::members::relocate::DecodeLabel;
use crate::members::verbs::LastSectorClass;
use crate::mirror::{self, MirrorClass};
use crate::multipath::MultipathClass;
use crate::raid::{self, RaidClass};
use crate::stripe::StripeClass;

/// The classes. The last one loaded tastes first: membership of a disk precedes its apparent
/// content, and names precede tables.
const CLASSES: &[ListedClass] = &[
    ListedClass::of(|_| filter_class::<crate::nop::Nop>()),
    ListedClass::of(|_| filter_class::<crate::limit::Limit>()),
    ListedClass::of(|_| Arc::new(crate::sched::SchedClass)),
    ListedClass::of(|_| Arc::new(crate::trim::TrimClass)),
    ListedClass::of(|_| Arc::new(crate::inspect::InspectClass)),
    ListedClass::of(|_| Arc::new(crate::part::PartClass)),
    ListedClass::of(|_| Arc::new(crate::label::LabelClass)),
    ListedClass::labelled::<ConcatClass>(|_| Arc::new(ConcatClass::default())),
    ListedClass::labelled::<StripeClass>(|_| Arc::new(StripeClass::default())),
    ListedClass::labelled::<MirrorClass>(|with| Arc::new(with.mirror())),
    ListedClass::of(|with| Arc::new(with.raid())),
    ListedClass::labelled::<MultipathClass>(|_| Arc::new(MultipathClass::default())),
];

/// Values that some classes are made with.
struct Settings {
    /// Arrays take only its clock.
    mirrors: mirror::Tunables,
    waiting: Arc<Waiting>,
}

impl Settings {
    fn mirror(&self) -> MirrorClass {
        MirrorClass::tuned(self.mirrors, self.waiting.clone())
    }

    fn raid(&self) -> RaidClass {
        let wall_s = self.mirrors.wall_s;
        let tunables = raid::Tunables { wall_s, ..raid::Tunables::default() };
        RaidClass::tuned(tunables, self.waiting.clone())
    }
}

struct ListedClass {
    make: fn(&Settings) -> Arc<dyn Class>,
    /// Name and label decoder of a class whose labels record the size of their provider.
    label: Option<(&'static str, DecodeLabel)>,
}

impl ListedClass {
    const fn of(make: fn(&Settings) -> Arc<dyn Class>) -> ListedClass {
        ListedClass { make, label: None }
    }

    const fn labelled<C: LastSectorClass>(make: fn(&Settings) -> Arc<dyn Class>) -> ListedClass {
        let decode: DecodeLabel = C::placed;
        ListedClass { make, label: Some((C::CLASS, decode)) }
    }
}

/// The label decoder of a class whose labels record the size of their provider.
pub(crate) fn label_of(class: &str) -> Option<DecodeLabel> {
    let mut labels = CLASSES.iter().filter_map(|listed| listed.label);
    labels.find(|(name, _)| *name == class).map(|(_, decode)| decode)
}

/// The size of the disk for which a record of Intel's was written that is elsewhere now.
pub(crate) fn old_disk_size(record: &[u8], offset: u64) -> Option<u64> {
    raid::imsm::old_disk_size(record, offset)
}

pub fn all() -> Vec<Arc<dyn Class>> {
    all_at(|| 0)
}

/// The same with a clock that people read: seconds since 1970.
pub fn all_at(wall_s: fn() -> u64) -> Vec<Arc<dyn Class>> {
    all_with(mirror::Tunables { wall_s, ..mirror::Tunables::default() })
}

/// The same with the times and sizes of mirrors.
pub fn all_with(mirrors: mirror::Tunables) -> Vec<Arc<dyn Class>> {
    let settings = Settings { mirrors, waiting: Arc::default() };
    CLASSES.iter().map(|listed| (listed.make)(&settings)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn label_decoder_is_found_by_the_name_of_its_class() {
        let with_labels: Vec<&str> = all()
            .iter()
            .map(|class| class.name())
            .filter(|name| label_of(name).is_some())
            .collect();
        assert_eq!(with_labels, ["concat", "stripe", "mirror", "multipath"]);
        assert_eq!(CLASSES.iter().filter(|listed| listed.label.is_some()).count(), 4);
    }
}
