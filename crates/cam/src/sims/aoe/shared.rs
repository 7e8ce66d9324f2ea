//! State that the cores of one bus share.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use bio::sync::Mutex;
use wire::aoe::{Address, Mac};

use super::engine::{Counts, TARGETS_MAX, UnusablePath};
use super::pool::TargetCredits;
use super::ranges::Ranges;

/// A target by its last answers.
#[derive(Clone, Default)]
pub(super) struct KnownTarget {
    /// Frames that it can hold, and most sectors of one.
    pub buffers: u16,
    pub sectors: u8,
    /// Interfaces on which frames of it were received, with its address there.
    pub paths: Vec<(usize, Mac)>,
    pub ranges: Arc<Ranges>,
    pub credits: Arc<TargetCredits>,
    /// When it answered last, ns.
    pub last_answer_ns: Arc<AtomicU64>,
    /// Its last reported config string, and when it was reported, ns.
    pub mark: Option<(Vec<u8>, u64)>,
}

/// See the module.
#[derive(Default)]
pub(super) struct KnownTargets {
    known: Mutex<BTreeMap<Address, KnownTarget>>,
    counts: Mutex<BTreeMap<usize, Counts>>,
    /// By core: each finds out by itself.
    unusable_paths: Mutex<BTreeMap<usize, Vec<UnusablePath>>>,
    /// Configured targets that have never answered, after enough queries.
    absent: Mutex<BTreeSet<Address>>,
    /// Cores that still have commands of targets which are not used any more (E7 of the engine).
    leaving: AtomicUsize,
}

impl KnownTargets {
    /// So many cores have to end their commands of unused targets.
    pub(super) fn begin_leaving(&self, cores: usize) {
        self.leaving.fetch_add(cores, Ordering::AcqRel);
    }

    /// A core has ended its commands of unused targets; true: it is the last one.
    pub(super) fn end_leaving(&self) -> bool {
        self.leaving.fetch_sub(1, Ordering::AcqRel) == 1
    }

    /// Whether a core may have commands of targets that are not used any more.
    pub(super) fn is_leaving(&self) -> bool {
        self.leaving.load(Ordering::Acquire) > 0
    }

    /// Targets that were found.
    pub(super) fn targets(&self) -> Vec<Address> {
        self.known.lock().keys().copied().collect()
    }

    /// State of a known target.
    pub(super) fn known(&self, address: Address) -> Option<KnownTarget> {
        self.known.lock().get(&address).cloned()
    }

    /// Records a target that sent a frame; `None` when there are too many.
    pub(super) fn record_target(
        &self,
        address: Address,
        path: (usize, Mac),
        (buffers, sectors): (u16, u8),
    ) -> Option<KnownTarget> {
        let mut known = self.known.lock();
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

    /// A target has reported its config string.
    pub(super) fn is_marked(&self, address: Address, string: &[u8], now: u64) {
        if let Some(target) = self.known.lock().get_mut(&address) {
            target.mark = Some((string.to_vec(), now));
        }
    }

    /// The config string of a target, if it was reported since `from`.
    pub(super) fn mark(&self, address: Address, from: u64) -> Option<Vec<u8>> {
        let known = self.known.lock();
        let (string, at) = known.get(&address)?.mark.as_ref()?;
        (*at >= from).then(|| string.clone())
    }

    /// Stores the counters of a core.
    pub(super) fn count(&self, core: usize, counts: Counts) {
        self.counts.lock().insert(core, counts);
    }

    /// Of all cores.
    pub(super) fn counts(&self) -> Counts {
        let mut sum = Counts::default();
        self.counts.lock().values().for_each(|counts| sum.add(counts));
        sum
    }

    /// Stores the places that a core cannot reach now; returns whether they changed.
    pub(super) fn set_unusable_paths(&self, core: usize, ill: Vec<UnusablePath>) -> bool {
        let mut all = self.unusable_paths.lock();
        let before = all.get(&core).map_or(&[][..], Vec::as_slice);
        let is_news = before != ill;
        all.insert(core, ill);
        is_news
    }

    /// Records which of the configured targets have never answered; returns whether that changed.
    pub(super) fn set_absent(&self, configured: &[Address]) -> bool {
        let now: BTreeSet<Address> = {
            let known = self.known.lock();
            configured.iter().filter(|at| !known.contains_key(at)).copied().collect()
        };
        let mut absent = self.absent.lock();
        let is_news = *absent != now;
        *absent = now;
        is_news
    }

    /// Configured targets that have never answered.
    pub(super) fn absent(&self) -> BTreeSet<Address> {
        self.absent.lock().clone()
    }

    /// Places that some core cannot reach, in order.
    pub(super) fn unusable_paths(&self) -> BTreeSet<UnusablePath> {
        self.unusable_paths.lock().values().flatten().cloned().collect()
    }
}
