//! Verbs of the class `disk`: a file each, here or, for simulated disks, in `model/verbs`.

mod resize;

use geom::ClassVerb;

use crate::class::DiskClass;
use crate::model::verbs as model;

pub use resize::check_resize;

pub(crate) const VERBS: &[ClassVerb<DiskClass>] = &[
    ClassVerb::of::<resize::Resize>(),
    ClassVerb::of::<model::Fail>(),
    ClassVerb::of::<model::Delay>(),
    ClassVerb::of::<model::Lie>(),
    ClassVerb::of::<model::Hang>(),
    ClassVerb::of::<model::Release>(),
    ClassVerb::of::<model::PowerCut>(),
    ClassVerb::of::<model::Heal>(),
];
