//! Scan of the first sector: FAT, NTFS and exFAT share it with MBR, and with it the bytes 55 AA.

use super::scan::{Finding, FindingRole};
use super::signatures::Depth;
use crate::part::{Scheme, Table, is_fat};
use crate::probe::{ProbeStop, Sectors, byte, le16, le32, le64, span};

/// The content of a file system's boot sector.
pub(super) struct Boot {
    kind: &'static str,
    description: &'static str,
    class: &'static str,
    /// Where the type is written, and how long.
    text: (u64, u64),
    /// Byte offset of the second copy.
    second: Option<u64>,
}

/// The file system whose boot sector this is.
fn boot(block: &[u8]) -> Option<Boot> {
    let unit = u64::from(le16(block, 11));
    let power = |n: u64| n.is_power_of_two() && (512..=4096).contains(&n);
    if span(block, 3, 8) == b"NTFS    " && power(unit) {
        let second = le64(block, 0x28).checked_mul(unit);
        let (kind, what) = ("ntfs", "NTFS");
        return Some(Boot { kind, description: what, class: "label", text: (3, 8), second });
    }
    if span(block, 3, 8) == b"EXFAT   " {
        let second = 12_u64.checked_shl(u32::from(byte(block, 108)));
        let (kind, what) = ("exfat", "exFAT");
        return Some(Boot { kind, description: what, class: "linux", text: (3, 8), second });
    }
    let clusters = byte(block, 13).is_power_of_two();
    let sane = power(unit) && clusters && le16(block, 14) != 0 && matches!(byte(block, 16), 1..=4);
    if !sane {
        return None;
    }
    let (kind, class) = ("fat", "label");
    if span(block, 82, 8) == b"FAT32   " {
        let at = u64::from(le16(block, 50));
        let second = (1..0xffff).contains(&at).then(|| at * unit);
        return Some(Boot { kind, description: "FAT32", class, text: (82, 8), second });
    }
    let text = span(block, 54, 8);
    let text = match text.starts_with(b"FAT") {
        true => (54, 8),
        // Without a text the values decide.
        false if !is_fat(block) => return None,
        false if matches!(byte(block, 0), 0xeb | 0xe9) => (0, 1),
        false if span(block, 510, 2) == [0x55, 0xaa] => (510, 2),
        false => return None,
    };
    Some(Boot { kind, description: "FAT", class, text, second: None })
}

fn push(out: &mut Vec<Finding>, boot: &Boot, base: u64, block: &[u8], standing: FindingRole) {
    let mut add = |at: u64, len: u64, what: String| {
        let (offset, depth) = (base.saturating_add(at), Depth::Content);
        let (kind, class) = (boot.kind, boot.class);
        out.push(Finding::new((kind, class), what, (offset, len), standing, depth));
    };
    add(boot.text.0, boot.text.1, format!("{} boot sector", boot.description));
    if boot.text.0 != 0 && matches!(byte(block, 0), 0xeb | 0xe9) {
        add(0, 1, format!("{} boot sector: its jump", boot.description));
    }
    if boot.text.0 != 510 && span(block, 510, 2) == [0x55, 0xaa] {
        add(510, 2, format!("{} boot sector: its end", boot.description));
    }
}

/// Everything in the first sector.
pub(super) fn find(
    sectors: &Sectors,
    table: Option<&Table>,
    out: &mut Vec<Finding>,
) -> Result<(), ProbeStop> {
    let Some(block) = sectors.get(0, 512)? else { return Ok(()) };
    let mut found = Vec::new();
    if let Some(boot) = boot(block) {
        push(&mut found, &boot, 0, block, FindingRole::Main);
        let copy = boot.second.map(|at| sectors.get(at, 512).map(|b| (at, b))).transpose()?;
        if let Some((at, Some(copy))) = copy
            && copy.get(..90) == block.get(..90)
        {
            push(&mut found, &boot, at, copy, FindingRole::Backup);
        }
    }
    // Remains of a volume in the boot code of a partitioned disk do not hide the partitions.
    let ours = table.is_some_and(|t| t.scheme() == Scheme::Mbr);
    if ours || found.is_empty() {
        found.retain(|f| f.offset != 510);
        out.extend(record(block, ours));
    }
    out.append(&mut found);
    Ok(())
}

/// A boot record, with a table or without.
fn record(block: &[u8], ours: bool) -> Option<Finding> {
    if span(block, 510, 2) != [0x55, 0xaa] {
        return None;
    }
    let slots = || (0..4).map(|slot| span(block, 446 + slot * 16, 16));
    let used = slots().filter(|slot| slot.iter().any(|b| *b != 0)).count();
    let guard = slots().any(|slot| byte(slot, 4) == 0xee);
    let flags = slots().all(|slot| matches!(byte(slot, 0), 0 | 0x80));
    let (kind, class, what) = match (guard, ours, used) {
        (true, _, _) => ("pmbr", "part", "MBR that protects a GPT".to_owned()),
        (_, true, 1) => ("mbr", "part", "MBR with 1 entry".to_owned()),
        (_, true, _) => ("mbr", "part", format!("MBR with {used} entries")),
        _ if flags && (used > 0 || le32(block, 440) != 0) => {
            ("mbr", "linux", format!("MBR with {used} entries"))
        }
        _ => ("boot", "linux", "boot sector (55 AA)".to_owned()),
    };
    let standing = if kind == "pmbr" { FindingRole::Guard } else { FindingRole::Main };
    Some(Finding::new((kind, class), what, (510, 2), standing, Depth::Table))
}
