//! VERIFY with tuples in the data (SBC-4 5.36): the checks of the tuples, the comparison with those
//! of the medium, and the report of a difference. A model that has the tables of the standard as
//! letters predicts the answer to each command.

use reactor::SeededRandom;
use testkit::Seeds;

use crate::tuples::*;
use crate::world::*;

const BLOCKS: u64 = 1000;

/// Commands of one type and seed.
const ROUNDS: usize = 600;

/// By VRPROTECT: the fields of the tuples in the data that are checked, where they are known, and
/// the fields that are compared; g is the guard, a the application tag, r the reference tag.
const TABLES: [(u8, &str, &str); 5] =
    [(1, "gar", "gar"), (2, "ar", "ar"), (3, "", "gar"), (4, "g", "gar"), (5, "gar", "ga")];

/// Place of a field in a tuple.
const FIELDS: [(char, std::ops::Range<usize>); 3] = [('g', 0..2), ('a', 2..4), ('r', 4..8)];

type Sense = ((u8, u8, u8), u64);

#[derive(Clone)]
struct Block {
    data: [u8; 512],
    tuple: [u8; 8],
}

impl Block {
    fn good(data: u8, app: u16, reference: u32) -> Block {
        let data = [data; 512];
        Block { data, tuple: tuple(&data, app, reference).try_into().unwrap() }
    }

    fn is_escape(&self, kind: u8) -> bool {
        self.tuple[2..4] == [0xFF; 2] && (kind != 3 || self.tuple[4..] == [0xFF; 4])
    }
}

fn wire(blocks: &[Block]) -> Vec<u8> {
    blocks.iter().flat_map(|b| [&b.data[..], &b.tuple].concat()).collect()
}

/// VERIFY(16), or (32) where only that moves tuples.
fn verify_cdb(kind: u8, lba: u64, n: u32, field: u8, check: u8, mask: u16) -> Vec<u8> {
    if kind == 2 {
        let mut cdb = cdb32(0x0A, lba, n, field, (7000, 0x1234, mask));
        cdb[10] |= check << 1;
        return cdb.to_vec();
    }
    let mut cdb = with_protect(cdb16(0x8F, lba, n), field);
    cdb[1] |= check << 1;
    cdb.to_vec()
}

/// Puts blocks on the medium with any tuples.
fn put(w: &World, h: &Host, kind: u8, lba: u64, blocks: &[Block]) {
    let n = blocks.len() as u32;
    let cdb = match kind {
        2 => cdb32(0x0B, lba, n, 3, (0, 0, 0)).to_vec(),
        _ => with_protect(write16(lba, n), 3).to_vec(),
    };
    w.run(h, 0, &cdb, 0, &wire(blocks)).good();
}

/// The first error in the tuples that were sent.
fn checked(kind: u8, what: &str, lba: u64, sent: &[Block], mask: u16) -> Option<Sense> {
    for (i, block) in sent.iter().enumerate() {
        let first = if kind == 2 { 7000 } else { lba as u32 };
        let good = Block::good(0, 0x1234, first + i as u32).tuple;
        let app = u16::from_be_bytes([block.tuple[2], block.tuple[3]]);
        let bad = [
            (what.contains('g') && block.tuple[..2] != crc(&block.data).to_be_bytes(), GUARD),
            (what.contains('a') && kind == 2 && (app ^ 0x1234) & mask != 0, APP),
            (what.contains('r') && kind != 3 && block.tuple[4..] != good[4..], REFERENCE),
        ];
        if let Some((_, sense)) = bad.iter().find(|(bad, _)| *bad) {
            return Some((*sense, lba + i as u64));
        }
    }
    None
}

/// The first difference between the medium and the sent data.
fn compared(kind: u8, what: &str, medium: &[Block], sent: &[Block], mask: u16) -> Option<Sense> {
    for (i, (ours, theirs)) in medium.iter().zip(sent).enumerate() {
        let at = i as u64 * 520;
        if let Some(byte) = (0..512).find(|i| ours.data[*i] != theirs.data[*i]) {
            return Some(((0xE, 0x1D, 0), at + byte as u64));
        }
        if ours.is_escape(kind) || theirs.is_escape(kind) {
            continue;
        }
        for (code, (letter, place)) in (1..).zip(FIELDS) {
            let mut differs = false;
            for (byte, mask) in place.clone().zip(mask.to_be_bytes().repeat(2)) {
                let mask = if letter == 'a' { mask } else { 0xFF };
                differs |= (ours.tuple[byte] ^ theirs.tuple[byte]) & mask != 0;
            }
            if what.contains(letter) && differs {
                return Some(((0xE, 0x10, code), at + 512 + place.start as u64));
            }
        }
    }
    None
}

/// Good blocks with random errors.
fn some(random: &mut SeededRandom, n: usize, reference: u32) -> Vec<Block> {
    let mut out: Vec<Block> =
        (0..n).map(|i| Block::good(random.below(2) as u8, 0x1234, reference + i as u32)).collect();
    for block in &mut out {
        if random.chance(80) {
            block.data[random.below(512) as usize] ^= 1;
        }
        if random.chance(80) {
            let (_, place) = &FIELDS[random.below(3) as usize];
            block.tuple[place.start + random.below(place.len() as u64) as usize] ^= 1;
        }
        if random.chance(40) {
            block.tuple[2..].fill(0xFF);
        }
    }
    out
}

/// What one block is repeated as.
fn repeated(block: &Block, kind: u8, n: usize) -> Vec<Block> {
    let first = u32::from_be_bytes(block.tuple[4..].try_into().unwrap());
    let mut out = vec![block.clone(); n];
    for (block, i) in out.iter_mut().zip(0u32..).filter(|_| kind != 3) {
        block.tuple[4..].copy_from_slice(&first.wrapping_add(i).to_be_bytes());
    }
    out
}

#[test]
fn verify_compares_tuples_as_the_standard_tables_specify() {
    for seed in Seeds::of(1) {
        for kind in [1, 2, 3] {
            let w = World::protected(seed, BLOCKS, kind);
            let h = w.calm(0, "i1", &[0]);
            let mut random = SeededRandom::new(seed);
            let mut endings = std::collections::BTreeMap::<_, usize>::new();
            for _ in 0..ROUNDS {
                let (lba, n) = (random.below(100), 1 + random.below(4) as usize);
                let reference = if kind == 2 { 7000 } else { lba as u32 };
                let (field, checks, compares) = TABLES[random.below(5) as usize];
                let check = [1u8, 3][random.below(2) as usize];
                let mask = [0xFFFF, 0xFF00][random.below(2) as usize];
                let mut sent = some(&mut random, if check == 3 { 1 } else { n }, reference);
                let whole = if check == 3 { repeated(&sent[0], kind, n) } else { sent.clone() };
                // Mostly the medium equals the sent data.
                let medium = match random.chance(600) {
                    true => whole.clone(),
                    false => some(&mut random, n, reference),
                };
                put(&w, &h, kind, lba, &medium);
                if random.chance(200) {
                    sent[0].tuple[3] ^= 1;
                }
                let whole = if check == 3 { repeated(&sent[0], kind, n) } else { sent.clone() };
                let mask_known = if kind == 2 { mask } else { 0xFFFF };
                let want = checked(kind, checks, lba, &sent, mask)
                    .or_else(|| compared(kind, compares, &medium, &whole, mask_known));
                let cdb = verify_cdb(kind, lba, n as u32, field, check, mask);
                let answer = w.run(&h, 0, &cdb, 0, &wire(&sent));
                let got = (answer.status != 0)
                    .then(|| (answer.asc(), answer.sense().information.unwrap_or(u64::MAX)));
                assert_eq!(got, want, "type {kind} VRPROTECT {field} BYTCHK {check} of {n}");
                *endings.entry(got.map(|(asc, _)| asc)).or_default() += 1;
            }
            // Good, three checks (of the tag only of type 2; of type 3 no reference), a difference
            // of the data and three of tuples.
            assert_eq!(endings.len(), [7, 8, 6][usize::from(kind) - 1], "{endings:?}");
            w.check_empty();
        }
    }
}

/// More than is read at a time; the difference is far behind.
#[test]
fn long_verify_commands_compare_up_to_the_last_block() {
    let w = World::protected(1, BLOCKS, 1);
    let h = w.calm(0, "i1", &[0]);
    let mut blocks: Vec<Block> = (0..900).map(|i| Block::good(7, 0x1234, 20 + i)).collect();
    for half in blocks.chunks(450).zip([20, 470]) {
        put(&w, &h, 1, half.1, half.0);
    }
    let run = |check: u8, sent: &[Block]| {
        w.run(&h, 0, &verify_cdb(1, 20, 900, 1, check, 0), 0, &wire(sent))
    };
    run(1, &blocks).good();
    run(3, &blocks[..1]).good();
    blocks[880].tuple[3] ^= 1;
    put(&w, &h, 1, 900, &blocks[880..881]);
    for sent in [&run(3, &blocks[..1]), &run(1, &repeated(&blocks[0], 1, 900))] {
        assert_eq!((sent.asc(), sent.sense().information), ((0xE, 0x10, 2), Some(880 * 520 + 514)));
    }
    run(1, &blocks).good();
    w.check_empty();
}

/// Without tuples on the wire those of the medium are checked; with them they are only compared.
#[test]
fn compared_tuples_are_not_checked_on_the_medium() {
    let w = World::protected(1, BLOCKS, 1);
    let h = w.calm(0, "i1", &[0]);
    let mut bad = Block::good(1, 0x1234, 50);
    bad.tuple[0] ^= 1;
    put(&w, &h, 1, 50, &[bad.clone()]);
    for (field, check, data) in [(0, 0, vec![]), (1, 0, vec![]), (0, 1, vec![1; 512])] {
        let cdb = verify_cdb(1, 50, 1, field, check, 0);
        assert_eq!(w.run(&h, 0, &cdb, 0, &data).asc(), GUARD, "{field} {check}");
    }
    for check in [1, 3] {
        let cdb = verify_cdb(1, 50, 1, 3, check, 0);
        w.run(&h, 0, &cdb, 0, &wire(&[bad.clone()])).good();
    }
    // The tuples of unwritten blocks restrict the comparison to the data.
    let cdb = verify_cdb(1, 200, 2, 1, 3, 0);
    w.run(&h, 0, &cdb, 0, &wire(&[Block::good(0, 0x1234, 200)])).good();
    let other = w.run(&h, 0, &cdb, 0, &wire(&[Block::good(9, 0x1234, 200)]));
    assert_eq!((other.asc(), other.sense().information), ((0xE, 0x1D, 0), Some(0)));
    // A block without its tuple is too little.
    assert_ne!(w.run(&h, 0, &cdb, 0, &[0; 512]).status, 0);
    // WRITE AND VERIFY compares the written data with the received data.
    let mut cdb = with_protect(cdb16(0x8E, 60, 2), 1);
    cdb[1] |= 2;
    let sent = [Block::good(3, 0x77, 60), Block::good(4, 0x77, 61)];
    w.run(&h, 0, &cdb, 0, &wire(&sent)).good();
    let read = w.run(&h, 0, &with_protect(read16(60, 2), 1), 1040, &[]).good().data;
    assert_eq!(read, wire(&sent));
    w.check_empty();
}
