//! Received frames.

use std::sync::atomic::Ordering;

use wire::aoe::{Ata, BROADCAST, Config, Header, SECTOR, command};
use wire::ata::{self, Identify};

use super::super::inflight::Frame;
use super::super::path::Path;
use super::op::failure;
use super::{Engine, ONE, Target, Wire};
use crate::ccb::Outcome;

impl Engine {
    /// A frame arrived on an interface.
    pub(in crate::sims::aoe) fn receive(
        &mut self,
        link: usize,
        frame: &[u8],
        wire: &dyn Wire,
        now: u64,
    ) {
        let Ok((header, body)) = Header::decode(frame) else {
            self.counts.malformed += 1;
            return;
        };
        // Requests of others, and answers to others.
        if !header.response || header.to != wire.mac(link) && header.to != BROADCAST {
            return;
        }
        match header.command {
            command::CONFIG => {
                self.command_answered(&header, body);
                self.target_announced(link, &header, body, now);
            }
            command::ATA => self.answered(&header, body, now),
            _ if self.command_answered(&header, body) => {}
            _ => self.counts.unasked += 1,
        }
    }

    /// A target announces itself.
    pub(super) fn target_announced(&mut self, link: usize, header: &Header, body: &[u8], now: u64) {
        let Ok(config) = Config::decode(body) else {
            self.counts.malformed += 1;
            return;
        };
        let (address, mac) = (header.address, header.from);
        let is_used = self.rules.uses(address);
        if header.error.is_some() || !is_used || mac.is_group() || !address.is_single() {
            return;
        }
        let limits = (config.buffers, config.sectors);
        let Some(known) = self.shared.record_target(address, (link, mac), limits) else { return };
        self.shared.is_marked(address, config.string, now);
        let Some(at) = self.target(address) else { return };
        if header.tag == 0 {
            // E6: it started, and this was no answer.
            self.mark_doubtful(at);
        }
        let good = |t: &Target| t.paths.iter().any(Path::is_good);
        let was_good = self.targets.get(at).is_some_and(good);
        self.update_target(at, &known);
        let paths = self.targets.get_mut(at).map(|t| t.paths.iter_mut());
        let own = |p: &&mut Path| p.link == link && p.mac == mac;
        paths.into_iter().flatten().filter(own).for_each(Path::mark_up);
        if let Some(t) = self.targets.get_mut(at).filter(|t| good(t)) {
            let lost = std::mem::take(&mut t.lost);
            self.found |= !was_good || lost;
        }
        self.set_due(now);
    }

    pub(super) fn answered(&mut self, header: &Header, body: &[u8], now: u64) {
        let frame = self.inflight.get(header.tag).copied().filter(|frame| frame.command.is_none());
        let Some(frame) = frame else {
            self.counts.unasked += 1;
            return;
        };
        let Some(t) = self.targets.get_mut(frame.target) else { return };
        // E3
        let from = |p: &Path| p.mac == header.from && (p.is_same || frame.is_identity_query);
        if header.address != t.address || !t.paths.iter().any(from) {
            self.counts.foreign += 1;
            return;
        }
        let ata = match header.error {
            Some(_) => Ok((Ata::default(), &[][..])),
            None => Ata::decode(body),
        };
        let Ok((ata, data)) = ata else {
            self.counts.malformed += 1;
            return;
        };
        let op = frame.op.and_then(|op| self.ops.get(op));
        let reads = frame.op.is_none() && frame.is_identity_query || op.is_some_and(|op| !op.write);
        let wants = if reads { frame.sectors as usize * SECTOR } else { 0 };
        let failed = header.error.is_some() || ata.command & ata::status::FAILED != 0;
        if !failed && data.len() < wants {
            // The answer is too short: as good as lost.
            self.counts.malformed += 1;
            return;
        }
        t.silent = 0;
        t.last_answer_ns.fetch_max(now, Ordering::Relaxed);
        if let Some(path) = t.paths.get_mut(frame.path) {
            path.answered(frame.sectors, now.saturating_sub(frame.sent_ns), self.rules.life_ns);
        }
        self.inflight.take(header.tag);
        self.free_hold(&frame);
        let Some(at) = frame.op else {
            match frame.is_identity_query {
                true if frame.sectors > 0 && !failed => self.identity_received(&frame, data),
                true => self.counts.failed += 1,
                false => self.counts.late += 1,
            }
            return;
        };
        self.release_credit(frame.target, frame.path);
        if failed {
            self.counts.failed += 1;
            // It may have shrunk.
            if ata.feature & ata::error::NOT_FOUND != 0 && !self.unsure.contains(&frame.target) {
                self.unsure.push(frame.target);
            }
            return self.end(at, failure(header.error, &ata));
        }
        self.grow_window(frame.target);
        let Some(op) = self.ops.get_mut(at) else { return };
        if wants > 0 {
            let data = data.get(..wants).unwrap_or(data);
            op.data.copy_from(frame.first as usize * SECTOR, data);
        }
        op.left = op.left.saturating_sub(frame.sectors.max(1));
        if op.left == 0 {
            let moved = u32::try_from(op.data.len()).unwrap_or(u32::MAX);
            self.end(at, Outcome::good(moved));
        }
    }

    /// An answer arrived in time: slow start to the threshold, then one frame more a round trip.
    pub(super) fn grow_window(&mut self, target: usize) {
        let Some(t) = self.targets.get_mut(target) else { return };
        let more = if t.window < t.threshold { ONE } else { (ONE * ONE / t.window.max(1)).max(1) };
        t.window = (t.window + more).min(t.buffers * ONE);
    }

    /// A path reports which disk is behind it.
    pub(super) fn identity_received(&mut self, frame: &Frame, data: &[u8]) {
        let Some(t) = self.targets.get_mut(frame.target) else { return };
        let Some(print) = fingerprint(data) else {
            self.counts.malformed += 1;
            return;
        };
        let was_good = t.paths.iter().any(Path::is_good);
        let same = *t.fingerprint.get_or_insert(print) == print;
        if let (true, Some(size)) = (same, size(data)) {
            // CAM's size of the disk is old: the disk grew or shrank.
            let resized = t.size.replace(size).is_some_and(|before| before != size);
            self.resized.extend(resized.then_some(t.address));
        }
        if let Some(path) = t.paths.get_mut(frame.path) {
            path.is_same = same;
            path.was_same |= same;
        }
        self.counts.strangers += u64::from(!same);
        self.found |= same && !was_good;
        if !same && was_good && !t.paths.iter().any(Path::is_good) {
            // E6: no path leads to the disk any more, and CAM checks which disk is there.
            t.doubtful = true;
            self.doubted.push(t.address);
        }
    }
}

/// Number of sectors in IDENTIFY data.
fn size(identify: &[u8]) -> Option<u64> {
    Identify::decode(identify).ok().map(|identify| identify.sectors)
}

/// Fingerprint that distinguishes disks.
pub(super) type Fingerprint = [u8; 60];

/// Serial number and model of IDENTIFY data: words 10 to 19 and 27 to 46 (ACS-3 section 7.12.7).
pub(super) fn fingerprint(identify: &[u8]) -> Option<Fingerprint> {
    let mut print = [0; 60];
    let (serial, model) = print.split_at_mut(20);
    serial.copy_from_slice(identify.get(20..40)?);
    model.copy_from_slice(identify.get(54..94)?);
    Some(print)
}
