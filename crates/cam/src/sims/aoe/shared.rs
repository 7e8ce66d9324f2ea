//! What the cores of one bus know together.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use wire::aoe::{Address, Mac};

use super::engine::{Counts, Ill, TARGETS_MAX};
use super::pool::Pool;
use super::ranges::Ranges;

/// A target as it said it is.
#[derive(Clone, Default)]
pub(super) struct Known {
    /// Frames that it can hold, and most sectors of one.
    pub buffers: u16,
    pub sectors: u8,
    /// Interfaces on which it was heard, with its address there.
    pub paths: Vec<(usize, Mac)>,
    pub ranges: Arc<Ranges>,
    pub pool: Arc<Pool>,
    /// When it answered last, ns.
    pub heard: Arc<AtomicU64>,
    /// Its config string as it was told last, and when, ns.
    pub mark: Option<(Vec<u8>, u64)>,
}

/// See the module.
#[derive(Default)]
pub(super) struct Shared {
    known: Mutex<BTreeMap<Address, Known>>,
    counts: Mutex<BTreeMap<usize, Counts>>,
    /// By core: each finds out by itself.
    ill: Mutex<BTreeMap<usize, Vec<Ill>>>,
}

fn lock<T>(state: &Mutex<T>) -> MutexGuard<'_, T> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    /// Targets that were found.
    pub(super) fn targets(&self) -> Vec<Address> {
        lock(&self.known).keys().copied().collect()
    }

    /// What is known of a target.
    pub(super) fn known(&self, address: Address) -> Option<Known> {
        lock(&self.known).get(&address).cloned()
    }

    /// A target was heard; `None` when there are too many.
    pub(super) fn note(
        &self,
        address: Address,
        path: (usize, Mac),
        (buffers, sectors): (u16, u8),
    ) -> Option<Known> {
        let mut known = lock(&self.known);
        if known.len() >= TARGETS_MAX && !known.contains_key(&address) {
            return None;
        }
        let target = known.entry(address).or_default();
        (target.buffers, target.sectors) = (buffers, sectors);
        if !target.paths.contains(&path) && target.paths.len() < super::engine::PATHS_MAX {
            target.paths.push(path);
        }
        Some(target.clone())
    }

    /// A target has told its config string.
    pub(super) fn is_marked(&self, address: Address, string: &[u8], now: u64) {
        if let Some(target) = lock(&self.known).get_mut(&address) {
            target.mark = Some((string.to_vec(), now));
        }
    }

    /// The config string of a target, if it was told since `from`.
    pub(super) fn mark(&self, address: Address, from: u64) -> Option<Vec<u8>> {
        let known = lock(&self.known);
        let (string, at) = known.get(&address)?.mark.as_ref()?;
        (*at >= from).then(|| string.clone())
    }

    /// What a core has counted by now.
    pub(super) fn count(&self, core: usize, counts: Counts) {
        lock(&self.counts).insert(core, counts);
    }

    /// Of all cores.
    pub(super) fn counts(&self) -> Counts {
        let mut sum = Counts::default();
        lock(&self.counts).values().for_each(|counts| sum.add(counts));
        sum
    }

    /// What a core cannot reach by now; whether that is news.
    pub(super) fn see(&self, core: usize, ill: Vec<Ill>) -> bool {
        let mut all = lock(&self.ill);
        let before = all.get(&core).map_or(&[][..], Vec::as_slice);
        let is_news = before != ill;
        all.insert(core, ill);
        is_news
    }

    /// What some core cannot reach, in order.
    pub(super) fn ill(&self) -> BTreeSet<Ill> {
        lock(&self.ill).values().flatten().cloned().collect()
    }
}
