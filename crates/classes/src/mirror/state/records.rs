//! The content of members' records, and the sizes that follow from them (M3, M9 of `state`).

use super::{Mirror, Role};
use crate::mirror::age::NewestState;
use crate::mirror::bitmap::{Image, Shape};
use crate::mirror::metadata::{Metadata, disk_flags, mirror_flags};

impl Mirror {
    /// Takes the parameters of a record over (M1).
    pub(in crate::mirror) fn adopt_record(&mut self, record: &Metadata) {
        self.all = record.all;
        self.genid = record.genid;
        self.syncid = record.syncid;
        self.lineage = record.lineage.clone();
        self.slice = record.slice;
        self.balance = record.balance;
        self.media_bytes = record.media_bytes;
        self.sector_bytes = record.sector_bytes;
        self.flags = record.flags;
        self.bitmap = record.bitmap.map(Image::clear);
    }

    /// Why a provider with sectors of so many bytes cannot be a member, if it cannot.
    pub(in crate::mirror) fn other_sectors(&self, sector_bytes: u32) -> Option<String> {
        let fits = sector_bytes > 0 && self.sector_bytes.is_multiple_of(sector_bytes);
        (!fits).then(|| {
            format!(
                "its sectors have {sector_bytes} bytes, but those of the mirror have {}: it cannot \
                 write a single one",
                self.sector_bytes
            )
        })
    }

    /// Bytes that are the same on all members, and are read from any.
    pub(in crate::mirror) fn held_bytes(&self) -> u64 {
        self.media_bytes.max(self.offered_bytes)
    }

    /// Whether a provider of so many bytes can be a member.
    pub(in crate::mirror) fn fits(&self, provider_bytes: u64) -> bool {
        let metadata = if self.manual { 0 } else { u64::from(self.sector_bytes) };
        let bitmap = self.shape().map_or(0, |s| u64::from(s.bytes));
        provider_bytes >= self.held_bytes().saturating_add(metadata).saturating_add(bitmap)
    }

    /// The shape of the bitmaps, if there are any.
    pub(in crate::mirror) fn shape(&self) -> Option<Shape> {
        self.bitmap.as_ref().map(|image| image.shape)
    }

    /// M9: the bits of all that had everything.
    pub(super) fn gather_bits(&mut self, newest: &NewestState) {
        let Some(mut image) = self.bitmap.take() else { return };
        let marked = self.members().filter(|(_, m)| newest.is_marked(m));
        marked.for_each(|(_, m)| image.join(&m.bits));
        self.bitmap = Some(image);
    }

    /// Clears the bits if their regions are equal on all complete members and no member is rebuilt
    /// by them (bitmap B2). True when they were cleared.
    pub(in crate::mirror) fn clear_bits(&mut self) -> bool {
        let kept = self.members().any(|(_, m)| m.partial);
        match &mut self.bitmap {
            Some(image) if !kept => {
                *image = Image::clear(image.shape);
                true
            }
            _ => false,
        }
    }

    /// Changes the content of the records for the beginning of writes.
    pub(in crate::mirror) fn begin_writes(&mut self) {
        if std::mem::take(&mut self.bump) {
            self.syncid = self.syncid.wrapping_add(1);
            self.fork();
        }
        if self.lineage.line == 0 {
            let all = self.members().map(|(_, m)| m.record.disk).collect::<Vec<_>>();
            self.lineage.fork(all.into_iter(), (self.genid, self.syncid));
        }
        self.lineage.events += 1;
        self.dirty = true;
        self.begun += 1;
    }

    /// Nothing is written any more.
    pub(in crate::mirror) fn end_writes(&mut self) {
        self.dirty = false;
        self.lineage.events += 1;
    }

    /// The mirror has so many bytes from now on. Its syncid grows: a member whose record was not
    /// written before the power cut, or that is away, is rebuilt.
    pub(in crate::mirror) fn size_to(&mut self, bytes: u64) {
        if self.media_bytes != bytes {
            self.offered_bytes = self.media_bytes.max(self.offered_bytes);
            self.media_bytes = bytes;
            self.bump_syncid();
            self.begun += 1;
        }
    }

    /// The size for which all members have space, bytes: whole sectors.
    pub(in crate::mirror) fn most(&self) -> u64 {
        let sector = u64::from(self.sector_bytes);
        let metadata = if self.manual { 0 } else { sector };
        let smallest = self.members().map(|(_, m)| m.provider_bytes).min().unwrap_or(0);
        let bitmap = self.shape().map_or(0, |s| u64::from(s.bytes));
        let most = smallest.saturating_sub(metadata).saturating_sub(bitmap);
        most - most % sector.max(1)
    }

    /// The record to be written to a member now. STALE members keep theirs.
    pub(in crate::mirror) fn record(&self, slot: usize) -> Option<Metadata> {
        let member = self.member(slot)?;
        let old = &member.record;
        let mut flags = old.disk_flags & (disk_flags::FORCE_SYNC | disk_flags::CANDELETE);
        match member.role {
            Role::Active if self.dirty && self.flags & mirror_flags::NOFAILSYNC == 0 => {
                flags |= disk_flags::DIRTY;
            }
            Role::Active => {}
            Role::Synchronizing => {
                flags |= disk_flags::SYNCHRONIZING;
                if member.partial && self.bitmap.is_some() {
                    flags |= disk_flags::BITMAP_SYNC;
                }
                if self.dirty {
                    flags |= disk_flags::DIRTY;
                }
            }
            Role::Stale | Role::Arrived => return None,
        }
        Some(Metadata {
            all: self.all,
            genid: self.genid,
            syncid: self.syncid,
            slice: self.slice,
            balance: self.balance,
            media_bytes: self.media_bytes,
            sector_bytes: self.sector_bytes,
            flags: self.flags,
            disk_flags: flags,
            provider_bytes: member.provider_bytes,
            bitmap: self.shape(),
            lineage: self.lineage.clone(),
            ..old.clone()
        })
    }
}
