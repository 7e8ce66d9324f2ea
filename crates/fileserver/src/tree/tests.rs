//! The tree beside a sorted map of the standard library, with dumps taken at random.

use std::collections::{BTreeMap, HashMap};

use bio::{Pool, PoolConfig, Seg};
use reactor::SeededRandom;
use testkit::Seeds;

use super::*;

/// Blocks in memory, some of them held by dumps.
struct Heap {
    pool: Pool,
    block: usize,
    blocks: HashMap<Addr, Seg>,
    next: Addr,
    /// Addresses below are in a dump.
    frozen: Addr,
    freed: Vec<Addr>,
}

impl Heap {
    fn new(block: usize) -> Heap {
        let pool = Pool::new(PoolConfig { limit_bytes: 1 << 30 });
        Heap { pool, block, blocks: HashMap::new(), next: 1, frozen: 0, freed: Vec::new() }
    }
}

impl Blocks for Heap {
    fn read_node(&mut self, at: Addr) -> Result<Seg, Stop> {
        let seg = self.blocks.get(&at).expect("a block that was freed, or never was").clone();
        seg.with(|b| check(b, at, 7)).expect("a sound node");
        Ok(seg)
    }

    fn cow(&mut self, at: Addr) -> Result<(Addr, Seg), Stop> {
        let old = self.read_node(at)?;
        if at >= self.frozen {
            return Ok((at, old));
        }
        let (new, seg) = self.fresh()?;
        old.with(|b| seg.copy_from(0, b));
        Ok((new, seg))
    }

    fn fresh(&mut self) -> Result<(Addr, Seg), Stop> {
        let seg = self.pool.get(self.block).unwrap().seg(0, self.block).unwrap();
        let at = self.next;
        self.next += 1;
        self.blocks.insert(at, seg.clone());
        Ok((at, seg))
    }

    fn free(&mut self, at: Addr) {
        if at >= self.frozen {
            assert!(self.blocks.remove(&at).is_some(), "freed twice");
            self.freed.push(at);
        }
    }

    fn resident(&mut self, at: Addr) -> Option<Seg> {
        self.blocks.get(&at).cloned()
    }

    fn volume(&self) -> u64 {
        7
    }
}

fn all(heap: &mut Heap, root: Root) -> Vec<(Key, Vec<u8>)> {
    let mut out = Vec::new();
    let first = Key { ino: 0, kind: 0, offset: 0 };
    scan(heap, root, first, |k, v| {
        out.push((*k, v.to_vec()));
        true
    })
    .unwrap();
    out
}

fn some_key(r: &mut SeededRandom) -> Key {
    let kind = [Kind::Inode, Kind::Name, Kind::Entry, Kind::Run][r.below(4) as usize];
    Key::new(r.below(40), kind, r.below(60))
}

/// B1.
/// B2 of tree/mod.rs.
#[test]
fn tree_matches_a_sorted_map_and_dumps_do_not_change() {
    for seed in Seeds::of(60) {
        let mut r = SeededRandom::new(seed);
        let mut heap = Heap::new(4096);
        let (mut root, mut model) = (0, BTreeMap::new());
        let mut dumps: Vec<(Root, BTreeMap<Key, Vec<u8>>)> = Vec::new();
        let growing = 400 + r.below(600);
        for step in 0..3_000 {
            let k = some_key(&mut r);
            let grows = step % 1_000 < growing;
            if r.chance(if grows { 800 } else { 200 }) {
                let most = if r.chance(100) { value_max(4096) as u64 } else { 60 };
                let len = 1 + r.below(most);
                let v: Vec<u8> = (0..len).map(|_| r.next_u64() as u8).collect();
                insert(&mut heap, &mut root, &k, &v).unwrap();
                model.insert(k, v);
            } else {
                let had = remove(&mut heap, &mut root, &k).unwrap();
                assert_eq!(had, model.remove(&k).is_some(), "seed {seed}");
            }
            if r.chance(5) {
                heap.frozen = heap.next;
                dumps.push((root, model.clone()));
            }
            let k = some_key(&mut r);
            let found = get(&mut heap, root, &k, <[u8]>::to_vec).unwrap();
            assert_eq!(found.as_ref(), model.get(&k), "seed {seed}");
            let next = first(&mut heap, root, k).unwrap();
            let wanted = model.range(k..).next().map(|(k, v)| (*k, v.clone()));
            assert_eq!(next, wanted, "seed {seed}");
        }
        dumps.push((root, model));
        for (root, model) in dumps {
            assert_eq!(all(&mut heap, root), model.into_iter().collect::<Vec<_>>(), "seed {seed}");
        }
    }
}

/// B3 of tree/mod.rs.
#[test]
fn sequential_inserts_fill_nodes_and_an_empty_tree_uses_no_block() {
    for seed in Seeds::of(1) {
        let mut heap = Heap::new(4096);
        let mut root = 0;
        let keys: Vec<Key> = (0..20_000).map(|i| Key::new(1, Kind::Run, i)).collect();
        for k in &keys {
            insert(&mut heap, &mut root, k, &[0; 40]).unwrap();
        }
        let least = 20_000 * (40 + node::SLOT) / 4064;
        assert!(heap.blocks.len() <= least * 11 / 10, "{} nodes for {least}", heap.blocks.len());
        let mut r = SeededRandom::new(seed);
        let mut left = keys;
        while !left.is_empty() {
            let k = left.swap_remove(r.below(left.len() as u64) as usize);
            assert!(remove(&mut heap, &mut root, &k).unwrap());
        }
        assert_eq!((root, heap.blocks.len()), (0, 0));
    }
}

#[test]
fn small_neighbouring_nodes_are_merged() {
    let mut heap = Heap::new(4096);
    let mut root = 0;
    for i in 0..20_000 {
        insert(&mut heap, &mut root, &Key::new(1, Kind::Run, i), &[0; 40]).unwrap();
    }
    for i in (0..20_000).filter(|i| i % 50 != 0) {
        remove(&mut heap, &mut root, &Key::new(1, Kind::Run, i)).unwrap();
    }
    assert_eq!(all(&mut heap, root).len(), 400);
    assert!(heap.blocks.len() < 40, "{} nodes for 400 items", heap.blocks.len());
}

#[test]
fn corrupt_nodes_are_refused_or_read_within_their_bounds() {
    const ROUNDS: u64 = 1_000;
    let seeds = Seeds::of(20);
    let refused = seeds.each(|seed| {
        let mut r = SeededRandom::new(seed);
        let mut heap = Heap::new(4096);
        let mut root = 0;
        for _ in 0..60 {
            insert(&mut heap, &mut root, &some_key(&mut r), &[9; 20]).unwrap();
        }
        let (at, seg) = heap.blocks.iter().next().map(|(a, s)| (*a, s.clone())).unwrap();
        let good = seg.with(<[u8]>::to_vec);
        let mut refused = 0u64;
        for _ in 0..ROUNDS {
            let mut b = good.clone();
            for _ in 0..1 + r.below(3) {
                // Headers and slots mostly, where it hurts.
                let within = if r.chance(800) { 200 } else { 4096 };
                let at = r.below(within) as usize;
                b[at] = r.next_u64() as u8;
            }
            match check(&b, at, 7) {
                Err(_) => refused += 1,
                Ok(()) => {
                    for i in 0..count(&b) {
                        let _ = node::value(&b, i);
                    }
                    node::compact(&mut b);
                    let k = some_key(&mut r);
                    if let Err(i) = node::search(&b, &k) {
                        node::insert(&mut b, i, &k, &[1; 30]);
                    }
                }
            }
            let mut raw = b;
            for byte in raw.iter_mut() {
                *byte ^= r.next_u64() as u8;
            }
            assert!(check(&raw, at, 7).is_err());
        }
        refused
    });
    let refused: u64 = refused.iter().sum();
    let enough = refused > seeds.count() * ROUNDS / 4;
    assert!(enough || !seeds.are_enough(), "only {refused} refused");
}
