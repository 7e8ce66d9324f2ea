//! LUN maps: the units that the members of one access group see.
//!
//! A map is a value that shares its parts with the maps it was made from. It is a tree of nodes
//! with 64 places each, as high as the largest number needs.
//!
//! ```text
//!   map --> node (LUN bits 6..11) --> leaf (bits 0..5) --> entry: device, read-only
//!             64 places                64 places
//! ```
//!
//! Invariants
//!  T1  A node that two maps share is never changed: a change copies the way down to it.
//!  T2  A node without children does not exist. So equal parts of two maps made from one another
//!      are the same node, and [`LunMap::compare`] passes over them.
//!  T3  `len` counts the entries.
//!  T4  A number that is awaited has no entry: its unit is configured and not there yet.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use wire::scsi::Addressing;

use crate::unit::Device;
use crate::unit::counters::NexusCounts;
use crate::unit::lun_usage::LunUsage;

/// Largest LUN, the maximum of extended flat addressing in one level. A larger one is refused.
pub const LUN_MAX: u64 = wire::scsi::LUN_MAX as u64;

/// Bits of a number that one level looks at.
const BITS: u32 = 6;
/// Places of a node.
const PLACES: usize = 1 << BITS;

#[derive(Clone)]
pub struct LunEntry {
    /// Number under which initiators see the unit.
    pub lun: u64,
    /// The unit.
    pub device: Arc<Device>,
    /// Writes are refused.
    pub read_only: bool,
    /// Counters, once a session has used it.
    usage: OnceLock<Arc<LunUsage>>,
}

impl LunEntry {
    /// An entry that no session has used.
    pub(crate) fn new(lun: u64, device: Arc<Device>, read_only: bool) -> LunEntry {
        LunEntry { lun, device, read_only, usage: OnceLock::new() }
    }

    /// Counters of its commands, made when they are first requested.
    pub(crate) fn usage(&self) -> &Arc<LunUsage> {
        self.usage.get_or_init(Arc::default)
    }

    /// The commands of all sessions since the LUN was mapped to the unit; `None`: no session has
    /// used it.
    pub fn counts(&self) -> Option<NexusCounts> {
        self.usage.get().map(|usage| usage.counts(self.lun))
    }

    /// Continues the counters of the earlier entry of its number, if that grants the same unit.
    pub(crate) fn succeed(&mut self, former: Option<&Arc<LunEntry>>) {
        if let Some(former) = former.filter(|e| Arc::ptr_eq(&e.device, &self.device)) {
            self.usage = OnceLock::from(former.usage().clone());
        }
    }

    /// True when sessions that used this entry are counted by the other one too.
    fn is_counted_by(&self, other: &LunEntry) -> bool {
        let is_same = |usage| other.usage.get().is_some_and(|own| Arc::ptr_eq(own, usage));
        self.usage.get().is_none_or(is_same)
    }

    /// True when both grant the same unit under the same rule.
    pub fn same(&self, other: &LunEntry) -> bool {
        Arc::ptr_eq(&self.device, &other.device) && self.read_only == other.read_only
    }
}

#[derive(Clone)]
enum Node {
    Inner(Box<[Option<Arc<Node>>; PLACES]>),
    Leaf(Box<[Option<Arc<LunEntry>>; PLACES]>),
}

impl Node {
    fn new(level: u32) -> Node {
        match level {
            0 => Node::Leaf(Box::new([const { None }; PLACES])),
            _ => Node::Inner(Box::new([const { None }; PLACES])),
        }
    }

    fn is_empty(&self) -> bool {
        match self {
            Node::Inner(places) => places.iter().all(Option::is_none),
            Node::Leaf(places) => places.iter().all(Option::is_none),
        }
    }
}

/// Units that the members of one group see, by LUN.
#[derive(Clone, Default)]
pub struct LunMap {
    root: Option<Arc<Node>>,
    /// Levels of inner nodes above the leaves.
    height: u32,
    len: usize,
    addressing: Addressing,
    read_only_reserves: bool,
    cold_resets_target: bool,
    /// T4
    awaited: Arc<BTreeMap<u64, String>>,
}

/// Place of a number in a node of a level.
#[inline]
fn place(lun: u64, level: u32) -> usize {
    (lun >> (BITS * level)) as usize % PLACES
}

/// Inner levels that a number needs; numbers are at most [`LUN_MAX`].
fn height_of(lun: u64) -> u32 {
    let bits = u64::BITS - lun.leading_zeros();
    bits.saturating_sub(1) / BITS
}

impl LunMap {
    /// Nothing, to be written by a method of addressing.
    pub fn new(addressing: Addressing) -> LunMap {
        LunMap { addressing, ..LunMap::default() }
    }

    /// How REPORT LUNS writes the numbers.
    pub fn addressing(&self) -> Addressing {
        self.addressing
    }

    /// The same entries, written by another method.
    pub fn with_addressing(&self, addressing: Addressing) -> LunMap {
        LunMap { addressing, ..self.clone() }
    }

    /// Whether initiators that may not write a unit may reserve it and change its mode pages.
    pub fn read_only_reserves(&self) -> bool {
        self.read_only_reserves
    }

    /// See [`LunMap::read_only_reserves`].
    pub fn let_read_only_reserve(&mut self, may: bool) {
        self.read_only_reserves = may;
    }

    pub fn cold_resets_target(&self) -> bool {
        self.cold_resets_target
    }

    /// See [`LunMap::cold_resets_target`].
    pub fn let_cold_reset_target(&mut self, may: bool) {
        self.cold_resets_target = may;
    }

    /// Whether a number's unit is configured and not there yet: commands for it may be sent again.
    pub fn awaits(&self, lun: u64) -> bool {
        self.awaited.contains_key(&lun)
    }

    /// Numbers whose units are not there yet, with the names of these, by growing number.
    pub fn awaited(&self) -> impl Iterator<Item = (u64, &str)> {
        self.awaited.iter().map(|(lun, name)| (*lun, name.as_str()))
    }

    /// These numbers are awaited, and no others; those that have an entry are not (T4).
    pub fn set_awaited(&mut self, luns: &[(u64, String)]) {
        let mut awaited: BTreeMap<u64, String> = luns.iter().cloned().collect();
        awaited.retain(|lun, _| *lun <= LUN_MAX && self.get(*lun).is_none());
        if awaited != *self.awaited {
            self.awaited = Arc::new(awaited);
        }
    }

    /// Reserves a number for a unit that is not there yet; answers its earlier entry.
    pub fn set_waiting(&mut self, lun: u64, unit: &str) -> Option<Arc<LunEntry>> {
        let was = self.set(lun, None);
        if lun <= LUN_MAX {
            Arc::make_mut(&mut self.awaited).insert(lun, unit.to_string());
        }
        was
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True without entries.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    #[inline]
    pub fn get(&self, lun: u64) -> Option<&Arc<LunEntry>> {
        if lun >> (BITS * (self.height + 1)) != 0 {
            return None;
        }
        let mut node = self.root.as_deref()?;
        let mut level = self.height;
        loop {
            match node {
                Node::Leaf(places) => return places.get(place(lun, 0))?.as_ref(),
                Node::Inner(places) => node = places.get(place(lun, level))?.as_deref()?,
            }
            level = level.saturating_sub(1);
        }
    }

    /// Sets or removes the entry of a number; answers its earlier entry. Costs a few nodes, however
    /// large the map is (T1). A number above [`LUN_MAX`] changes nothing.
    pub fn set(&mut self, lun: u64, to: Option<Arc<LunEntry>>) -> Option<Arc<LunEntry>> {
        if self.awaits(lun) {
            Arc::make_mut(&mut self.awaited).remove(&lun);
        }
        if lun > LUN_MAX || (to.is_none() && self.get(lun).is_none()) {
            return None;
        }
        while self.height < height_of(lun) {
            self.height += 1;
            if let Some(old) = self.root.take() {
                let mut root = Node::new(self.height);
                if let Node::Inner(places) = &mut root
                    && let Some(first) = places.first_mut()
                {
                    *first = Some(old);
                }
                self.root = Some(Arc::new(root));
            }
        }
        let comes = to.is_some();
        let was = put(&mut self.root, self.height, lun, to);
        self.len = self.len + usize::from(comes) - usize::from(was.is_some());
        was
    }

    /// Entries by growing number.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<LunEntry>> {
        let mut stack: Vec<(&Node, usize)> = Vec::with_capacity(4);
        stack.extend(self.root.as_deref().map(|n| (n, 0)));
        std::iter::from_fn(move || {
            loop {
                let (node, at) = stack.pop()?;
                if at >= PLACES {
                    continue;
                }
                stack.push((node, at + 1));
                match node {
                    Node::Leaf(places) => {
                        if let Some(entry) = places.get(at).and_then(Option::as_ref) {
                            return Some(entry);
                        }
                    }
                    Node::Inner(places) => {
                        stack.extend(places.get(at).and_then(Option::as_deref).map(|n| (n, 0)));
                    }
                }
            }
        })
    }

    /// Reports each number whose entries in `self` and `new` differ, in ascending order, with both
    /// entries; also if only their counters differ. Parts that both share cost nothing (T2).
    pub fn compare(&self, new: &LunMap, tell: &mut DiffVisitor<'_>) {
        compare(self.place(new.height), new.place(self.height), tell);
    }

    /// The root, and its level once it is `height` levels high at least.
    fn place(&self, height: u32) -> TreeCursor<'_> {
        TreeCursor {
            node: self.root.as_ref(),
            level: self.height,
            as_level: self.height.max(height),
        }
    }
}

/// Receives the differences of two maps: old entry, new entry; never both `None`.
pub type DiffVisitor<'a> = dyn FnMut(Option<&Arc<LunEntry>>, Option<&Arc<LunEntry>>) + 'a;

/// One of two trees being compared. A tree that is lower than the other is looked at as if it had
/// more levels, with everything in their first places.
#[derive(Clone, Copy)]
struct TreeCursor<'a> {
    node: Option<&'a Arc<Node>>,
    level: u32,
    as_level: u32,
}

impl<'a> TreeCursor<'a> {
    fn child(self, at: usize) -> TreeCursor<'a> {
        let as_level = self.as_level.saturating_sub(1);
        if self.as_level > self.level {
            return TreeCursor { node: self.node.filter(|_| at == 0), as_level, ..self };
        }
        let node = match self.node.map(|n| &**n) {
            Some(Node::Inner(places)) => places.get(at).and_then(Option::as_ref),
            _ => None,
        };
        TreeCursor { node, level: as_level, as_level }
    }

    fn entry(self, at: usize) -> Option<&'a Arc<LunEntry>> {
        match self.node.map(|n| &**n) {
            Some(Node::Leaf(places)) => places.get(at).and_then(Option::as_ref),
            _ => None,
        }
    }
}

fn compare(a: TreeCursor<'_>, b: TreeCursor<'_>, tell: &mut DiffVisitor<'_>) {
    let same = match (a.node, b.node) {
        (None, None) => true,
        (Some(x), Some(y)) => Arc::ptr_eq(x, y),
        _ => false,
    };
    if same {
        return;
    }
    for at in 0..PLACES {
        if a.as_level > 0 {
            compare(a.child(at), b.child(at), tell);
            continue;
        }
        match (a.entry(at), b.entry(at)) {
            (None, None) => {}
            (Some(x), Some(y)) if Arc::ptr_eq(x, y) || x.same(y) && x.is_counted_by(y) => {}
            (x, y) => tell(x, y),
        }
    }
}

fn put(
    slot: &mut Option<Arc<Node>>,
    level: u32,
    lun: u64,
    to: Option<Arc<LunEntry>>,
) -> Option<Arc<LunEntry>> {
    let gone = to.is_none();
    let node = slot.get_or_insert_with(|| Arc::new(Node::new(level)));
    let node = Arc::make_mut(node);
    let was = match node {
        Node::Leaf(places) => {
            let entry = places.get_mut(place(lun, 0))?;
            std::mem::replace(entry, to)
        }
        Node::Inner(places) => {
            let child = places.get_mut(place(lun, level))?;
            put(child, level.saturating_sub(1), lun, to)
        }
    };
    if gone && node.is_empty() {
        *slot = None;
    }
    was
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use geom::Edge;
    use testkit::Seeds;
    use wire::fuzzing::Prng;

    use super::*;
    use crate::registry::Registry;
    use crate::unit::spec::DeviceSpec;

    fn devices(n: usize) -> Vec<Arc<Device>> {
        let r = Registry::new();
        let make = |i| {
            let name = format!("d{i}");
            r.add_device("disk", DeviceSpec::new(&name, &name, Edge(0), 1 << 20, 512)).unwrap()
        };
        (0..n).map(make).collect()
    }

    fn entry(lun: u64, device: &Arc<Device>) -> Arc<LunEntry> {
        Arc::new(LunEntry::new(lun, device.clone(), false))
    }

    /// Numbers near the places where something changes.
    fn number(dice: &mut Prng) -> u64 {
        let base = [0, 63, 64, 4095, 4096, 16383, 16384, 262_143, 262_144, LUN_MAX - 3];
        (base[dice.below(base.len())] + dice.below(4) as u64).min(LUN_MAX)
    }

    /// U2 of unit/lun_usage.rs.
    #[test]
    fn entry_continues_the_counters_of_its_unit_alone() {
        let devices = devices(2);
        let (old, mut same) = (entry(0, &devices[0]), LunEntry::new(0, devices[0].clone(), true));
        assert!(old.counts().is_none(), "no session has used it");
        same.succeed(Some(&old));
        assert!(Arc::ptr_eq(old.usage(), same.usage()) && old.is_counted_by(&same));
        let mut other = LunEntry::new(0, devices[1].clone(), false);
        other.succeed(Some(&old));
        assert!(other.counts().is_none() && !old.is_counted_by(&other));
    }

    /// R1 of registry/mod.rs.
    /// T3.
    #[test]
    fn maps_agree_with_a_sorted_list_and_old_versions_stay_unchanged() {
        let devices = devices(3);
        for seed in Seeds::of(1000) {
            let mut dice = Prng::new(seed);
            let (mut map, mut model) = (LunMap::default(), BTreeMap::new());
            let mut kept: Vec<(LunMap, BTreeMap<u64, u32>)> = Vec::new();
            for _ in 0..400 {
                let lun = number(&mut dice);
                let device = &devices[dice.below(3)];
                let to = (dice.below(3) > 0).then(|| entry(lun, device));
                let was = map.set(lun, to.clone()).map(|e| e.device.number());
                let before = match to {
                    Some(e) => model.insert(lun, e.device.number()),
                    None => model.remove(&lun),
                };
                assert_eq!(was, before, "seed {seed}");
                if dice.below(20) == 0 {
                    kept.push((map.clone(), model.clone()));
                }
            }
            kept.push((map, model));
            for (map, model) in &kept {
                check(map, model, seed);
            }
            for _ in 0..60 {
                let (a, b) = (dice.below(kept.len()), dice.below(kept.len()));
                differ(&kept[a], &kept[b], seed);
            }
        }
    }

    fn check(map: &LunMap, model: &BTreeMap<u64, u32>, seed: u64) {
        let all: Vec<(u64, u32)> = map.iter().map(|e| (e.lun, e.device.number())).collect();
        let want: Vec<(u64, u32)> = model.iter().map(|(l, d)| (*l, *d)).collect();
        assert_eq!((map.len(), all), (model.len(), want), "seed {seed}");
        let mut dice = Prng::new(seed + 1);
        for _ in 0..50 {
            let lun = number(&mut dice);
            let got = map.get(lun).map(|e| e.device.number());
            assert_eq!(got, model.get(&lun).copied(), "seed {seed}, LUN {lun}");
        }
    }

    type Kept = (LunMap, BTreeMap<u64, u32>);

    fn differ((a, model_a): &Kept, (b, model_b): &Kept, seed: u64) {
        let mut seen = Vec::new();
        a.compare(b, &mut |x, y| {
            let lun = x.or(y).map_or(0, |e| e.lun);
            seen.push((lun, x.map(|e| e.device.number()), y.map(|e| e.device.number())));
        });
        let mut want = Vec::new();
        let mut luns: Vec<u64> = model_a.keys().chain(model_b.keys()).copied().collect();
        luns.sort_unstable();
        luns.dedup();
        for lun in luns {
            let (x, y) = (model_a.get(&lun).copied(), model_b.get(&lun).copied());
            if x != y {
                want.push((lun, x, y));
            }
        }
        assert_eq!(seen, want, "seed {seed}");
    }

    #[test]
    fn t1_one_change_in_a_large_map_copies_and_compares_few_nodes() {
        let devices = devices(1);
        let mut map = LunMap::default();
        for lun in 0..16_384 {
            map.set(lun, Some(entry(lun, &devices[0])));
        }
        let mut less = map.clone();
        less.set(9_999, None);
        let mut shared = 0;
        let (Some(Node::Inner(a)), Some(Node::Inner(b))) =
            (map.root.as_deref(), less.root.as_deref())
        else {
            panic!("16,384 entries need inner nodes");
        };
        for (x, y) in a.iter().zip(b.iter()) {
            shared += usize::from(matches!((x, y), (Some(x), Some(y)) if Arc::ptr_eq(x, y)));
        }
        let used = a.iter().flatten().count();
        assert_eq!(shared, used - 1);
        let mut seen = Vec::new();
        map.compare(&less, &mut |x, y| seen.push((x.map(|e| e.lun), y.is_some())));
        assert_eq!(seen, [(Some(9_999), false)]);
        assert_eq!((map.len(), less.len()), (16_384, 16_383));
        assert!(less.set(LUN_MAX + 1, Some(entry(0, &devices[0]))).is_none());
        assert_eq!(less.len(), 16_383);
    }

    #[test]
    fn t2_an_empty_map_has_no_nodes() {
        let devices = devices(1);
        let mut map = LunMap::default();
        for lun in [5, LUN_MAX] {
            map.set(lun, Some(entry(lun, &devices[0])));
        }
        for lun in [LUN_MAX, 5] {
            map.set(lun, None);
        }
        assert!(map.root.is_none() && map.is_empty() && map.iter().next().is_none());
        assert!(map.get(5).is_none());
    }
}
