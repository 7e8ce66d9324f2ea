//! Entry points for fuzzing: arbitrary bytes as a disk. The parsers must never panic, loop or
//! request bytes outside the media, and their results must hold their own invariants.

use crate::inspect;
use crate::label;
use crate::members::frame::FrameError;
use crate::mirror;
use crate::multipath;
use crate::part::params::{Add, Amount, Resize};
use crate::part::{self, Kind, Scheme, Table, TableContext};
use crate::probe::{Sectors, Step, le32};
use crate::raid::{ddf, imsm};
use crate::span::{Span, SpanLabel};
use std::collections::BTreeSet;

/// Drive a probe over `data`; a range it requests outside the media is a failure.
fn drive<T>(data: &[u8], sector_size: u32, probe: impl FnMut(&Sectors) -> Step<T>) -> Option<T> {
    let len = u64::try_from(data.len()).ok()?;
    let mut sectors = Sectors::new(sector_size, len);
    let read = |offset: u64, len: usize| {
        let at = usize::try_from(offset).ok()?;
        let range = data.get(at..at.checked_add(len)?);
        assert!(range.is_some(), "a probe stays on the media");
        range.map(<[u8]>::to_vec)
    };
    sectors.drive(read, probe).ok()
}

/// Scan for all formats at once; all findings are inside the media, and in its order.
fn scan(data: &[u8]) {
    let len = u64::try_from(data.len()).unwrap_or(0);
    for sector_size in [512, 4096] {
        let step = |s: &Sectors| inspect::step(s, &TableContext::default());
        let Some(report) = drive(data, sector_size, step) else { continue };
        let sound = |f: &inspect::Finding| f.len > 0 && f.offset + f.len <= len;
        assert!(report.findings.iter().all(sound), "a finding lies on the media");
        assert!(report.findings.is_sorted_by_key(|f| f.offset), "findings are in order");
    }
}

/// Scan `data` for partition tables of every kind, and edit, recover and show the findings.
pub fn fuzz_part(data: &[u8]) {
    scan(data);
    if let Ok(text) = std::str::from_utf8(data)
        && let Ok(read) = part::Backup::read(text)
    {
        let media = part::Media::plain(1 << 20, 512);
        if let Ok(table) = read.table(media, part::RestoreOptions { labels: true, ids: true }, &[])
        {
            again(&table);
        }
    }
    let inside = |kind| TableContext {
        scheme: Some(Scheme::Mbr),
        kind: Some(Kind::Byte(kind)),
        depth: 1,
        ..TableContext::default()
    };
    let lenient = TableContext { check_integrity: false, ..TableContext::default() };
    for sector_size in [512, 4096] {
        for place in [TableContext::default(), lenient, inside(0x05), inside(0x83)] {
            if let Some(table) = drive(data, sector_size, |s| part::step(s, &place)) {
                exercise(&table, place.check_integrity);
            }
        }
    }
}

/// A backup is read as it was written, and its table is no other.
fn again(table: &Table) {
    let backup = table.backup();
    let read = part::Backup::read(&backup.text).expect("a backup is read");
    assert_eq!(read.backup.partitions.len(), table.entries().len());
    let take = part::RestoreOptions { labels: true, ids: false };
    if let Ok(made) = read.table(*table.media(), take, &[]) {
        assert_eq!(made.backup().partitions.len(), table.entries().len());
        assert_eq!(made.entries().first().map(|e| e.data), table.entries().first().map(|e| e.data));
    }
}

fn exercise(table: &Table, sound: bool) {
    let text = table.show("disk", part::Column::Label, true);
    assert!(text.starts_with("=>"), "a picture of the table");
    if sound {
        let mut end = None;
        let mut entries: Vec<_> = table.entries().iter().collect();
        entries.sort_by_key(|entry| entry.start);
        for entry in entries {
            assert!(end.is_none_or(|end| end < entry.start), "partitions do not overlap");
            assert!(entry.end <= table.last() && entry.start >= table.first());
            end = Some(entry.end);
        }
    }
    let _ = part::destroy_plan(table).is_empty();
    let Ok(whole) = table.recover() else { return };
    let _ = part::plan(Some(table), &whole).map(|plan| plan.steps().len());
    again(&whole);
    let kind = if table.scheme() == Scheme::Gpt { "efi" } else { "linux-data" };
    let add = Add { kind: kind.to_owned(), ..Add::default() };
    let added = whole.add(&add, [7; 16]);
    if let Ok((new, index)) = &added {
        let _ = part::plan(Some(&whole), new).map(|plan| plan.steps().len());
        let size = Some(Amount::Sectors(1));
        let _ = new.resize(&Resize { index: *index, size, align: None }, &BTreeSet::new());
        let _ = part::committed(new);
    }
    if let Some(entry) = whole.entries().first() {
        let _ = whole.delete(entry.index, &BTreeSet::new()).map(|new| new.rows().len());
    }
    let _ = whole.media_resized(table.media().sectors.saturating_add(1000)).is_ok();
}

/// Look for labels of every kind on `data`.
pub fn fuzz_label(data: &[u8]) {
    scan(data);
    for sector_size in [512, 4096] {
        for (_, found) in drive(data, sector_size, label::step_all).unwrap_or_default() {
            let Ok(found) = found else { continue };
            assert!(found.len <= u64::try_from(data.len()).unwrap_or(u64::MAX));
            for name in found.providers() {
                assert!(name.len() <= label::NAME_MAX && name.is_ascii() && !name.contains("/../"));
            }
        }
    }
}

/// Read records of members of every class that keeps one in a last sector. A decoded record is
/// unchanged after it is written and read again.
pub fn fuzz_members(data: &[u8]) {
    scan(data);
    fn span<S: Span>(data: &[u8]) {
        if let Ok(label) = S::decode(data) {
            assert!(label.number < label.count, "a slot that is there");
            assert_eq!(S::decode(&S::encode(&label)), Ok::<SpanLabel, FrameError>(label));
        }
    }
    span::<crate::stripe::Stripe>(data);
    span::<crate::concat::Concat>(data);
    mirror::fuzz(data);
    multipath::fuzz(data);
}

/// Scan `data` for metadata of RAID. Valid metadata can be encoded again, and an array is made from
/// it or refused.
pub fn fuzz_raid(data: &[u8]) {
    scan(data);
    for sector_size in [512, 4096] {
        if let Some(record) = drive(data, sector_size, imsm::step) {
            let again = record.encode().and_then(|bytes| imsm::Record::decode(&bytes));
            let volumes = again.map(|again| again.volumes);
            assert!(volumes.is_ok_and(|volumes| volumes == record.volumes), "it can be written");
            if let Ok(array) = record.array(sector_size) {
                let sound = array.check().is_ok();
                let next = imsm::update(&record, &array, sector_size);
                let read = next.and_then(|next| next.array(sector_size));
                let kept = read.is_ok_and(|read| read.volumes.len() == array.volumes.len());
                assert!(kept || !sound || read_only(&array), "a sound array can be written");
            }
        }
        fuzz_log(data);
        if let Some(left) = drive(data, sector_size, |s| imsm::torn(s, "")) {
            let whole = drive(data, sector_size, imsm::step);
            assert!(whole.is_none(), "what is whole is not torn: {left:?}");
        }
        if let Some(meta) = drive(data, sector_size, ddf::step) {
            let Ok(seen) = ddf::assemble(std::slice::from_ref(&meta), sector_size) else {
                continue;
            };
            let _ = seen.array.check().is_ok();
            let Some(Some(place)) = seen.places.first().copied() else { continue };
            let change = ddf::Change::default();
            let next = ddf::update(&meta, &seen.array, place, &change, sector_size);
            let sectors = u64::try_from(data.len()).unwrap_or(0) / u64::from(sector_size);
            let _ = next.and_then(|next| ddf::plan(&next, sectors, sector_size, false)).is_ok();
        }
    }
}

/// A log of partial parity: the valid entries can be written again, and lie in its area.
fn fuzz_log(data: &[u8]) {
    let signature = data.get(512..516).map_or(0, |four| le32(four, 0));
    let Ok(log) = imsm::ppl::Log::read(data, signature) else { return };
    let count = log.entries(data).filter(|(entry, parity)| entry.is_of(parity)).count();
    if let imsm::ppl::Log::Unit { header, .. } = &log {
        assert!(count <= header.entries.len() && log.entries(data).count() == header.entries.len());
        assert_eq!(imsm::ppl::Header::decode(&header.encode()).as_ref(), Ok(header));
    }
}

/// Whether decoded data may not fit when it is encoded again: a serial number with a mark, a
/// name that was no text, bad blocks beyond the log.
fn read_only(array: &crate::raid::Array) -> bool {
    let spare = |disk: &crate::raid::Disk| disk.state == crate::raid::DiskState::Spare;
    let odd = |text: &str| !text.is_ascii() || text.len() > 16;
    array.disks.iter().any(|disk| spare(disk) || odd(&disk.serial))
        || array.volumes.iter().any(|volume| odd(&volume.name))
}
