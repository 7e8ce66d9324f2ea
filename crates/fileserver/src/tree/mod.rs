//! tree: one B+tree a file system, copied on write.
//!
//! Invariants
//!  B1  A node is changed only after [`Blocks::cow`] gave it, and its new address is stored in its
//!      parent in the same operation. Blocks of a dump are never changed.
//!  B2  The lowest key of a node but the first of its parent is not below its key there, and all
//!      its keys are below the next one's.
//!  B3  No node but the root is empty.
//!
//! Full nodes are cut on the way down, so an insertion never returns upwards. Nodes that became
//! small are put together with a neighbour when that one is in memory: a deletion never loads a
//! block for tidiness.

mod key;
pub(crate) mod node;
#[cfg(test)]
mod tests;

pub use key::{KEY_BYTES, Key, Kind};
pub use node::{LEVELS_MAX, check, count, key, level, value};

use bio::Seg;

use crate::fault::{Addr, Fault, Stop};

/// Blocks by address, as an operation sees them.
pub trait Blocks {
    /// A node that is not to be changed.
    fn read_node(&mut self, at: Addr) -> Result<Seg, Stop>;

    /// A node to be changed: itself, or a copy at a new address when a dump holds it.
    fn cow(&mut self, at: Addr) -> Result<(Addr, Seg), Stop>;

    /// A new block; its contents are undefined.
    fn fresh(&mut self) -> Result<(Addr, Seg), Stop>;

    /// A node of which nothing in the tree knows any more.
    fn free(&mut self, at: Addr);

    /// A node, if it is in memory.
    fn resident(&mut self, at: Addr) -> Option<Seg>;

    /// A word that names the owner of the node.
    fn volume(&self) -> u64;
}

/// Longest value in blocks of `block` bytes.
pub const fn value_max(block: usize) -> usize {
    (block - 32) / 4 - node::SLOT
}

/// Address of the root; 0 for a tree without items.
pub type Root = Addr;

fn broken<T>(what: &str) -> Result<T, Stop> {
    Err(Stop::Fail(Fault::Corrupt(what.into())))
}

/// Looks at the value of a key.
pub fn get<T>(
    blocks: &mut impl Blocks,
    root: Root,
    key: &Key,
    f: impl FnOnce(&[u8]) -> T,
) -> Result<Option<T>, Stop> {
    let Some(leaf) = leaf_of(blocks, root, key)? else { return Ok(None) };
    Ok(leaf.with(|b| node::search(b, key).ok().map(|i| f(node::value(b, i)))))
}

fn leaf_of(blocks: &mut impl Blocks, root: Root, key: &Key) -> Result<Option<Seg>, Stop> {
    if root == 0 {
        return Ok(None);
    }
    let mut at = root;
    for _ in 0..LEVELS_MAX {
        let seg = blocks.read_node(at)?;
        let down = seg.with(|b| {
            (node::level(b) > 0 && node::count(b) > 0).then(|| node::child(b, node::branch(b, key)))
        });
        match down {
            Some(child) => at = child,
            None => return Ok(Some(seg)),
        }
    }
    broken("the tree contains a cycle")
}

/// Shows items from `from` on, in order, until `f` answers false.
pub fn scan(
    blocks: &mut impl Blocks,
    root: Root,
    from: Key,
    mut f: impl FnMut(&Key, &[u8]) -> bool,
) -> Result<(), Stop> {
    let mut from = Some(from);
    while let Some(start) = from {
        let Some((leaf, behind)) = leaf_and_next(blocks, root, &start)? else { return Ok(()) };
        let more = leaf.with(|b| {
            let first = node::search(b, &start).unwrap_or_else(|i| i);
            (first..node::count(b)).all(|i| f(&node::key(b, i), node::value(b, i)))
        });
        from = if more { behind } else { None };
    }
    Ok(())
}

/// The leaf in which a key is or would be, and the lowest key that the leaf behind it may hold.
fn leaf_and_next(
    blocks: &mut impl Blocks,
    root: Root,
    key: &Key,
) -> Result<Option<(Seg, Option<Key>)>, Stop> {
    if root == 0 {
        return Ok(None);
    }
    let (mut at, mut behind) = (root, None);
    for _ in 0..LEVELS_MAX {
        let seg = blocks.read_node(at)?;
        let down = seg.with(|b| {
            (node::level(b) > 0 && node::count(b) > 0).then(|| {
                let i = node::branch(b, key);
                (node::child(b, i), (i + 1 < node::count(b)).then(|| node::key(b, i + 1)))
            })
        });
        match down {
            Some((child, next)) => {
                at = child;
                behind = next.or(behind);
            }
            None => return Ok(Some((seg, behind))),
        }
    }
    broken("the tree contains a cycle")
}

/// The first item from `from` on that `wanted` allows to be one.
pub fn first(
    blocks: &mut impl Blocks,
    root: Root,
    from: Key,
) -> Result<Option<(Key, Vec<u8>)>, Stop> {
    let mut found = None;
    scan(blocks, root, from, |k, v| {
        found = Some((*k, v.to_vec()));
        false
    })?;
    Ok(found)
}

/// A node on the way down that is ours to change.
struct Owned {
    at: Addr,
    seg: Seg,
}

impl Owned {
    fn take(blocks: &mut impl Blocks, at: Addr) -> Result<Owned, Stop> {
        let (at, seg) = blocks.cow(at)?;
        seg.with_mut(|b| node::move_to(b, at));
        Ok(Owned { at, seg })
    }

    fn new(blocks: &mut impl Blocks, level: u8) -> Result<Owned, Stop> {
        let (at, seg) = blocks.fresh()?;
        let volume = blocks.volume();
        seg.with_mut(|b| node::format(b, level, at, volume));
        Ok(Owned { at, seg })
    }

    fn level(&self) -> u8 {
        self.seg.with(node::level)
    }

    /// Its child number `i`, ours to change, and entered with the new address (B1).
    fn child(&self, blocks: &mut impl Blocks, i: usize) -> Result<Owned, Stop> {
        let below = Owned::take(blocks, self.seg.with(|b| node::child(b, i)))?;
        if below.level() + 1 != self.level() {
            return broken("a node of the tree is on the wrong level");
        }
        self.seg.with_mut(|b| node::value_mut(b, i).copy_from_slice(&below.at.to_le_bytes()));
        Ok(below)
    }

    /// Space for one more after any change below?
    fn takes(&self, key: &Key, value: &[u8]) -> bool {
        self.seg.with(|b| match (node::level(b), node::search(b, key)) {
            (0, Ok(i)) => node::free_space(b) + node::value(b, i).len() >= value.len(),
            (0, Err(_)) => node::free_space(b) >= node::SLOT + value.len(),
            _ => node::free_space(b) >= node::SLOT + 8,
        })
    }
}

/// Puts an item in, or another value for its key.
pub fn insert(
    blocks: &mut impl Blocks,
    root: &mut Root,
    key: &Key,
    value: &[u8],
) -> Result<(), Stop> {
    if *root == 0 {
        *root = Owned::new(blocks, 0)?.at;
    }
    let mut current = Owned::take(blocks, *root)?;
    *root = current.at;
    if !current.takes(key, value) {
        let above = Owned::new(blocks, current.level().saturating_add(1))?;
        if usize::from(above.level()) >= LEVELS_MAX {
            return Err(Fault::NoSpace("the tree has no further level").into());
        }
        let lowest = Key { ino: 0, kind: 0, offset: 0 };
        above.seg.with_mut(|b| node::insert(b, 0, &lowest, &current.at.to_le_bytes()));
        *root = above.at;
        current = cut(blocks, &above, 0, current, key)?;
    }
    while current.level() > 0 {
        let i = current.seg.with(|b| node::branch(b, key));
        let mut below = current.child(blocks, i)?;
        if !below.takes(key, value) {
            below = cut(blocks, &current, i, below, key)?;
        }
        current = below;
    }
    let done = current.seg.with_mut(|b| match node::search(b, key) {
        Ok(i) => node::replace(b, i, value),
        Err(i) => node::insert(b, i, key, value),
    });
    if done { Ok(()) } else { broken("an item does not fit into a node") }
}

/// Cuts a full child in two; the half in which `key` belongs.
fn cut(
    blocks: &mut impl Blocks,
    above: &Owned,
    i: usize,
    full: Owned,
    key: &Key,
) -> Result<Owned, Stop> {
    let right = Owned::new(blocks, full.level())?;
    let lowest = full.seg.with_mut(|b| {
        let at = node::search(b, key).unwrap_or_else(|at| at);
        let from = node::cut(b, at);
        let lowest = if from < node::count(b) { node::key(b, from) } else { *key };
        right.seg.with_mut(|r| node::split_at(b, from, r));
        lowest
    });
    let entered = above.seg.with_mut(|b| node::insert(b, i + 1, &lowest, &right.at.to_le_bytes()));
    if !entered {
        return broken("a node above is full");
    }
    Ok(if *key < lowest { full } else { right })
}

/// Takes an item out; false when there was none.
pub fn remove(blocks: &mut impl Blocks, root: &mut Root, key: &Key) -> Result<bool, Stop> {
    if get(blocks, *root, key, |_| ())?.is_none() {
        return Ok(false);
    }
    let mut current = Owned::take(blocks, *root)?;
    *root = current.at;
    let mut way: Vec<(Owned, usize)> = Vec::new();
    while current.level() > 0 {
        let i = current.seg.with(|b| node::branch(b, key));
        let below = current.child(blocks, i)?;
        way.push((std::mem::replace(&mut current, below), i));
    }
    current.seg.with_mut(|b| {
        if let Ok(i) = node::search(b, key) {
            node::remove(b, i);
        }
    });
    let mut below = current;
    while let Some((above, i)) = way.pop() {
        tidy(blocks, &above, i, &below)?;
        below = above;
    }
    lower(blocks, root)?;
    Ok(true)
}

/// After a removal: an empty node is removed (B3), a small one is put together with a neighbour.
fn tidy(blocks: &mut impl Blocks, above: &Owned, i: usize, node: &Owned) -> Result<(), Stop> {
    let (n, used, capacity) =
        node.seg.with(|b| (node::count(b), node::used(b), node::capacity(b.len())));
    if n == 0 {
        blocks.free(node.at);
        above.seg.with_mut(|b| node::remove(b, i));
        return Ok(());
    }
    if used >= capacity / 4 {
        return Ok(());
    }
    let siblings = above.seg.with(node::count);
    for left in [i.checked_sub(1), Some(i)].into_iter().flatten() {
        if left + 1 >= siblings {
            continue;
        }
        let [a, b] = above.seg.with(|b| [node::child(b, left), node::child(b, left + 1)]);
        let both = (blocks.resident(a), blocks.resident(b));
        let (Some(low), Some(high)) = both else { continue };
        if low.with(node::used) + high.with(node::used) > capacity * 3 / 4 {
            continue;
        }
        let into = above.child(blocks, left)?;
        let lowest = above.seg.with(|b| node::key(b, left + 1));
        // Its first key may be below its lower bound; behind other keys it has to be the bound.
        let from = high.with(<[u8]>::to_vec);
        into.seg.with_mut(|b| {
            let n = node::count(b);
            node::append(b, &from);
            if node::level(b) > 0 {
                node::rekey(b, n, &lowest);
            }
        });
        blocks.free(b);
        above.seg.with_mut(|b| node::remove(b, left + 1));
        return Ok(());
    }
    Ok(())
}

/// A root with one child is none; one without items is no tree.
fn lower(blocks: &mut impl Blocks, root: &mut Root) -> Result<(), Stop> {
    for _ in 0..LEVELS_MAX {
        let seg = blocks.read_node(*root)?;
        let (level, n, child) = seg.with(|b| (node::level(b), node::count(b), node::child(b, 0)));
        let next = match (level, n) {
            (_, 0) => 0,
            (0, _) => return Ok(()),
            (_, 1) => child,
            _ => return Ok(()),
        };
        blocks.free(*root);
        *root = next;
        if next == 0 {
            return Ok(());
        }
    }
    Ok(())
}

/// A node, and on which level it should be; the root may be on any.
pub type Below = (Addr, Option<u8>);

/// The nodes below a node; blocks that items name are the caller's.
pub fn below(blocks: &mut impl Blocks, at: Addr, wanted: Option<u8>) -> Result<Vec<Below>, Stop> {
    let seg = blocks.read_node(at)?;
    let level = seg.with(node::level);
    // Else one that leads to itself many times is walked for ever.
    if wanted.is_some_and(|w| w != level) {
        return broken("a node of the tree is on the wrong level");
    }
    let Some(next) = level.checked_sub(1) else { return Ok(Vec::new()) };
    Ok(seg.with(|b| (0..node::count(b)).map(|i| (node::child(b, i), Some(next))).collect()))
}
