//! Output of lists for a mirror and its members.

use geom::{ConsumerId, CopyMeter, Measure, Progress, Topology};

use super::MirrorGeom;
use crate::members::MismatchKind;
use crate::mirror::flag_words;
use crate::mirror::metadata::disk_flags;
use crate::mirror::state::{Member, Role};

impl MirrorGeom {
    /// Of the mirror.
    pub(super) fn lines(&self, t: &Topology) -> Vec<(&'static str, String)> {
        let m = &self.mirror;
        let state = match &self.fault {
            Some(fault) => format!("BROKEN ({fault})"),
            None => m.state().to_owned(),
        };
        let mut out = vec![
            ("State", state),
            ("Components", m.all.to_string()),
            ("Balance", m.balance.as_str().to_owned()),
            ("Slice", m.slice.to_string()),
            ("Flags", flag_words(m.flags)),
            ("GenID", m.genid.to_string()),
            ("SyncID", m.syncid.to_string()),
            ("ID", m.id.to_string()),
            ("Type", if m.manual { "MANUAL" } else { "AUTOMATIC" }.to_owned()),
        ];
        if let Some(image) = &m.bitmap {
            let (region, count) = (image.shape.region(), image.count());
            let all = m.media_bytes.div_ceil(region);
            let line = format!("{} of {all} regions of {region} bytes", count.min(all));
            out.push(("Bitmap", line));
        }
        let report = self.shared.verified();
        if report.round > 0 {
            out.push(("Verify", report.line()));
        }
        if let Some(line) = self.shared.growth().line() {
            out.push(("Resize", line));
        }
        for place in &report.mismatches {
            let (from, to) = (place.range.start, place.range.end);
            let what =
                if place.kind == MismatchKind::Unreadable { "cannot be read" } else { "differs" };
            let below = self.consumers.get(&place.slot).and_then(|c| t.below(*c));
            let name = below.map_or("a removed member", |p| t.provider_name(p));
            out.push(("Difference", format!("{name}, bytes {from} to {to}: {what}")));
        }
        out.extend(self.refused.lines());
        out
    }

    /// How far a member's rebuild is: bytes, and in words.
    pub(super) fn copied(&self, slot: usize, member: &Member) -> (u64, String) {
        let total = self.mirror.media_bytes.max(1);
        let copied = member.record.sync_offset.max(self.shared.copied(slot));
        let percent = u128::from(copied.min(total)) * 100 / u128::from(total);
        let how = match member.partial {
            true => "where bitmaps are set".to_owned(),
            false => format!("{percent}%"),
        };
        (copied, how)
    }

    /// Rebuilds of members. One by bitmaps counts the bytes of the regions that it copies, which
    /// are known when it begins.
    pub(super) fn rebuilds(&self, t: &Topology) -> Vec<Measure> {
        let all = self.mirror.members().filter(|(_, m)| m.role == Role::Synchronizing);
        let sources: Vec<String> =
            self.mirror.in_role(Role::Active).iter().filter_map(|s| self.below(t, *s)).collect();
        let rebuild = |(slot, member): (usize, &Member)| {
            let meter = self.shared.meter(slot);
            let size_bytes = meter.as_ref().map(CopyMeter::size);
            let done_bytes = match (member.partial, &meter) {
                (true, None) => return None,
                (true, Some(meter)) => meter.done(),
                (false, _) => self.copied(slot, member).0,
            };
            let size_bytes = size_bytes.unwrap_or(self.mirror.media_bytes);
            Some(Measure::Rebuild(Progress {
                part: self.below(t, slot)?,
                sources: sources.clone(),
                done_bytes: done_bytes.min(size_bytes),
                size_bytes,
                is_paused: self.shared.throttle.is_paused(),
                limit: self.shared.throttle.rate(),
                switch: None,
                span: meter.map(|meter| meter.span()).unwrap_or_default(),
            }))
        };
        all.filter_map(rebuild).collect()
    }

    /// The name of the provider of a slot.
    fn below(&self, t: &Topology, slot: usize) -> Option<String> {
        let below = t.below(*self.consumers.get(&slot)?)?;
        Some(t.provider_name(below).to_owned())
    }

    /// Of a member.
    pub(super) fn member_lines(&self, consumer: ConsumerId) -> Vec<(&'static str, String)> {
        let slot = self.slot_of(consumer);
        let found = slot.and_then(|slot| Some((slot, self.mirror.member(slot)?)));
        let Some((slot, member)) = found else { return Vec::new() };
        let record = &member.record;
        let mut flags = Vec::new();
        if self.mirror.dirty {
            flags.push("DIRTY");
        }
        let mut out = vec![
            ("State", member.role.as_str().to_owned()),
            ("Priority", record.priority.to_string()),
        ];
        if member.role == Role::Synchronizing {
            flags.push("SYNCHRONIZING");
            let (copied, how) = self.copied(slot, member);
            out.push(("BytesSynced", copied.to_string()));
            out.push(("Synchronized", how));
        }
        if record.has(disk_flags::FORCE_SYNC) {
            flags.push("FORCE_SYNC");
        }
        let words = if flags.is_empty() { "NONE".to_owned() } else { flags.join(", ") };
        out.push(("Flags", words));
        out.push(("GenID", self.mirror.genid.to_string()));
        out.push(("SyncID", self.mirror.syncid.to_string()));
        out.push(("ID", record.disk.to_string()));
        out
    }
}
