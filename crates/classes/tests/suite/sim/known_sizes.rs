//! The ends of disks that a daemon has recorded: the record outlives worlds, as disks do.

use std::sync::{Arc, Mutex, PoisonError};

use geom::{FormerSizes, Remark, SizeKeeper};

use super::life::Life;

/// See the module. A power cut finds all that was saved.
#[derive(Clone, Default)]
pub struct Kept(Arc<Mutex<Vec<FormerSizes>>>);

impl SizeKeeper for Kept {
    fn save(&mut self, ends: &[FormerSizes]) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = ends.to_vec();
    }
}

impl Life {
    /// A world after another one of the same daemon: before anything is plugged in.
    pub fn go_on_from(&mut self, kept: &Kept) {
        let all = kept.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        self.control.topology.set_size_keeper(all, Box::new(kept.clone()));
        self.kept = kept.clone();
    }
}

/// Whether a label was found where its disk had ended, and is at the end now.
pub fn was_carried(remark: &Remark<'_>) -> bool {
    remark.text.ends_with("the label was moved to the end")
}
