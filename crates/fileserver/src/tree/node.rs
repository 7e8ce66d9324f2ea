//! A node of the tree: one block, slots in front, values behind.
//!
//! ```text
//!   | head 32 | slot 21 | slot | ...  ->      free      <- ... | value | value |
//!   head: magic 4 · level 1 · pad 1 · count 2 · heap 4 · dead 4 · address 8 · volume 8
//!   slot: key 17 · offset 2 · length 2            numbers little-endian, keys big-endian
//! ```
//!
//! Level 0 holds items, others the addresses of the nodes below with the lowest key that each may
//! hold (that of the first counts as lowest of all). A node read from a disk is checked once by
//! [`check`]; after that no field of it leads outside.

use super::key::{KEY_BYTES, Key};
use crate::fault::Addr;

const MAGIC: [u8; 4] = *b"ASHN";
const HEAD: usize = 32;
/// Bytes of a slot.
pub const SLOT: usize = KEY_BYTES + 4;
/// Levels of a tree, more than any volume can fill.
pub const LEVELS_MAX: usize = 12;

fn get16(b: &[u8], at: usize) -> usize {
    b.get(at..at + 2).map_or(0, |s| usize::from(u16::from_le_bytes([s[0], s[1]])))
}

fn get32(b: &[u8], at: usize) -> usize {
    b.get(at..at + 4).map_or(0, |s| u32::from_le_bytes([s[0], s[1], s[2], s[3]]) as usize)
}

pub(super) fn get64(b: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    if let Some(s) = b.get(at..at + 8) {
        word.copy_from_slice(s);
    }
    u64::from_le_bytes(word)
}

fn put(b: &mut [u8], at: usize, bytes: &[u8]) {
    if let Some(to) = b.get_mut(at..at + bytes.len()) {
        to.copy_from_slice(bytes);
    }
}

/// Makes an empty node.
pub fn format(b: &mut [u8], level: u8, addr: Addr, volume: u64) {
    b.fill(0);
    put(b, 0, &MAGIC);
    put(b, 4, &[level]);
    let heap = b.len() as u32;
    put(b, 8, &heap.to_le_bytes());
    put(b, 16, &addr.to_le_bytes());
    put(b, 24, &volume.to_le_bytes());
}

/// Writes the address of a node that was copied to another place.
pub fn move_to(b: &mut [u8], addr: Addr) {
    put(b, 16, &addr.to_le_bytes());
}

/// Level; 0 holds items.
pub fn level(b: &[u8]) -> u8 {
    b.get(4).copied().unwrap_or(0)
}

/// Slots.
pub fn count(b: &[u8]) -> usize {
    get16(b, 6)
}

fn heap(b: &[u8]) -> usize {
    get32(b, 8)
}

fn dead(b: &[u8]) -> usize {
    get32(b, 12)
}

fn slot_at(i: usize) -> usize {
    HEAD + i * SLOT
}

/// Key of a slot.
pub fn key(b: &[u8], i: usize) -> Key {
    let mut k = [0; KEY_BYTES];
    if let Some(s) = b.get(slot_at(i)..slot_at(i) + KEY_BYTES) {
        k.copy_from_slice(s);
    }
    Key::decode(&k)
}

fn place(b: &[u8], i: usize) -> (usize, usize) {
    let at = slot_at(i) + KEY_BYTES;
    (get16(b, at), get16(b, at + 2))
}

/// Value of a slot.
pub fn value(b: &[u8], i: usize) -> &[u8] {
    let (at, len) = place(b, i);
    b.get(at..at + len).unwrap_or(&[])
}

/// Value of a slot, to be changed at its length.
pub fn value_mut(b: &mut [u8], i: usize) -> &mut [u8] {
    let (at, len) = place(b, i);
    b.get_mut(at..at + len).unwrap_or(&mut [])
}

/// Address that an inner slot leads to.
pub fn child(b: &[u8], i: usize) -> Addr {
    get64(value(b, i), 0)
}

/// The place of a key, or the place where it would be.
pub fn search(b: &[u8], wanted: &Key) -> Result<usize, usize> {
    let raw = wanted.encode();
    let (mut low, mut high) = (0, count(b));
    while low < high {
        let mid = (low + high) / 2;
        match b.get(slot_at(mid)..slot_at(mid) + KEY_BYTES).map(|k| k.cmp(&raw[..])) {
            Some(std::cmp::Ordering::Less) => low = mid + 1,
            Some(std::cmp::Ordering::Equal) => return Ok(mid),
            _ => high = mid,
        }
    }
    Err(low)
}

/// The slot of an inner node whose subtree holds a key.
pub fn branch(b: &[u8], wanted: &Key) -> usize {
    match search(b, wanted) {
        Ok(i) => i,
        Err(i) => i.saturating_sub(1),
    }
}

/// Bytes that a further item may take, slot included, after [`compact`].
pub fn free_space(b: &[u8]) -> usize {
    heap(b).saturating_sub(slot_at(count(b))) + dead(b)
}

/// Bytes in use by slots and values.
pub fn used(b: &[u8]) -> usize {
    b.len().saturating_sub(HEAD + free_space(b))
}

/// Bytes for items in a block of `len`.
pub fn capacity(len: usize) -> usize {
    len.saturating_sub(HEAD)
}

/// Puts an item in at slot `i`; false when there is no space.
pub fn insert(b: &mut [u8], i: usize, k: &Key, v: &[u8]) -> bool {
    if free_space(b) < SLOT + v.len() || i > count(b) {
        return false;
    }
    if heap(b).saturating_sub(slot_at(count(b))) < SLOT + v.len() {
        compact(b);
    }
    let n = count(b);
    let at = heap(b) - v.len();
    put(b, at, v);
    b.copy_within(slot_at(i)..slot_at(n), slot_at(i + 1));
    put(b, slot_at(i), &k.encode());
    put(b, slot_at(i) + KEY_BYTES, &(at as u16).to_le_bytes());
    put(b, slot_at(i) + KEY_BYTES + 2, &(v.len() as u16).to_le_bytes());
    put(b, 6, &((n + 1) as u16).to_le_bytes());
    put(b, 8, &(at as u32).to_le_bytes());
    true
}

/// Takes a slot out.
pub fn remove(b: &mut [u8], i: usize) {
    let n = count(b);
    if i >= n {
        return;
    }
    let lost = place(b, i).1;
    b.copy_within(slot_at(i + 1)..slot_at(n), slot_at(i));
    put(b, 6, &((n - 1) as u16).to_le_bytes());
    let gone = (dead(b) + lost) as u32;
    put(b, 12, &gone.to_le_bytes());
}

/// Another value for a slot; false without space (the item is removed then, and is to be put into a
/// node with space).
pub fn replace(b: &mut [u8], i: usize, v: &[u8]) -> bool {
    let to = value_mut(b, i);
    if to.len() == v.len() {
        to.copy_from_slice(v);
        return true;
    }
    let k = key(b, i);
    remove(b, i);
    insert(b, i, &k, v)
}

/// Changes the key of a slot.
pub fn rekey(b: &mut [u8], i: usize, k: &Key) {
    put(b, slot_at(i), &k.encode());
}

/// Moves values together, so that all free bytes are in one piece.
pub fn compact(b: &mut [u8]) {
    let old = b.to_vec();
    let mut at = b.len();
    for i in 0..count(&old) {
        let v = value(&old, i);
        at -= v.len();
        put(b, at, v);
        put(b, slot_at(i) + KEY_BYTES, &(at as u16).to_le_bytes());
    }
    put(b, 8, &(at as u32).to_le_bytes());
    put(b, 12, &[0; 4]);
}

/// Moves the slots from `from` on to the empty node `right`.
pub fn split_at(b: &mut [u8], from: usize, right: &mut [u8]) {
    for i in from..count(b) {
        insert(right, i - from, &key(b, i), value(b, i));
    }
    for i in (from..count(b)).rev() {
        remove(b, i);
    }
    compact(b);
}

/// Appends all slots of `right`; the caller has seen that they fit.
pub fn append(b: &mut [u8], right: &[u8]) {
    for i in 0..count(right) {
        insert(b, count(b), &key(right, i), value(right, i));
    }
}

/// Slot at which a full node is cut before an insertion at `at`: in the middle of its bytes, or
/// behind the last when keys are inserted in order.
pub fn cut(b: &[u8], at: usize) -> usize {
    let n = count(b);
    if at == n && n > 1 {
        return n - 1;
    }
    let (mut bytes, half) = (0, used(b) / 2);
    for i in 0..n {
        bytes += SLOT + place(b, i).1;
        if bytes >= half {
            return (i + 1).clamp(1, n.saturating_sub(1).max(1));
        }
    }
    n / 2
}

/// Checks a node read from a disk: its own address and volume, and that no slot leads outside.
pub fn check(b: &[u8], addr: Addr, volume: u64) -> Result<(), String> {
    if b.get(..4) != Some(&MAGIC[..]) {
        return Err("the block is not a node of the tree".into());
    }
    if get64(b, 16) != addr {
        return Err(format!("the block contains the node of address {}", get64(b, 16)));
    }
    if get64(b, 24) != volume {
        return Err("the block contains a node of another volume".into());
    }
    if usize::from(level(b)) >= LEVELS_MAX {
        return Err(format!("level {} of a tree", level(b)));
    }
    let n = count(b);
    if slot_at(n) > heap(b) || heap(b) > b.len() {
        return Err("slots and values overlap".into());
    }
    let mut bytes = 0;
    for i in 0..n {
        let (at, len) = place(b, i);
        if at < heap(b) || at + len > b.len() {
            return Err(format!("slot {i} leads outside"));
        }
        if level(b) > 0 && len != 8 {
            return Err(format!("slot {i} of an inner node has {len} bytes"));
        }
        if i > 0 && key(b, i - 1) >= key(b, i) {
            return Err(format!("keys of slots {} and {i} are out of order", i - 1));
        }
        bytes += len;
    }
    if bytes + dead(b) != b.len() - heap(b) {
        return Err("bytes of values do not add up".into());
    }
    Ok(())
}
