//! Mode pages that were saved (MODE SELECT with SP): one record a unit in the state store.
//!
//! ```text
//!   version 2 | 4 bytes mode bits ([`ModeBits::bits`]) | 4 bytes: which of them were served then
//!             | thresholds: enabled, kind, 4 bytes count, each
//! ```
//! A bit that was not served when the record was written keeps its default. Version 1 is the same
//! without thresholds: they keep their defaults.

use std::sync::atomic::Ordering;

use bio::Errno;
use geom::Error;
use wire::scsi::{Sense, Status, Threshold, ThresholdKind, asc};

use crate::job::Job;
use crate::state_store::{RecordKind, StateStore};
use crate::status::Ending;
use crate::unit::space::{Space, Thresholds};
use crate::unit::{Device, ModeBits};

const VERSION: u8 = 2;

/// Before there were thresholds.
const VERSION_1: u8 = 1;

const THRESHOLD_LEN: usize = 6;

/// Bits that a record of this version contains.
const RECORDED_BITS: ModeBits = ModeBits::WCE
    .with(ModeBits::D_SENSE, true)
    .with(ModeBits::SWP, true)
    .with(ModeBits::TAS, true)
    .with(ModeBits::TST_EACH, true)
    .with(ModeBits::QERR, true)
    .with(ModeBits::QERR_OWN, true)
    .with(ModeBits::QAM, true)
    .with(ModeBits::TMF_ONLY, true)
    .with(ModeBits::DPICZ, true)
    .with(ModeBits::LBPERE, true)
    .with(ModeBits::SITUA, true);

fn encode(bits: ModeBits, thresholds: &Thresholds) -> Vec<u8> {
    let mut out = vec![VERSION];
    out.extend(bits.bits().to_be_bytes());
    out.extend(RECORDED_BITS.bits().to_be_bytes());
    for one in thresholds {
        let kind = ThresholdKind::ALL.iter().position(|kind| *kind == one.kind).unwrap_or(0);
        out.extend([u8::from(one.enabled), u8::try_from(kind).unwrap_or(0)]);
        out.extend(one.count.to_be_bytes());
    }
    out
}

/// None: not a record of this version.
fn decode(bytes: &[u8], default: ModeBits, first: Thresholds) -> Option<(ModeBits, Thresholds)> {
    let ([version, a, b, c, d, e, f, g, h], rest) = bytes.split_first_chunk::<9>()?;
    let [a, b, c, d, e, f, g, h] = [a, b, c, d, e, f, g, h].map(|byte| *byte);
    let thresholds = match (*version, rest.len()) {
        (VERSION_1, 0) => first,
        (VERSION, _) => thresholds_of(rest)?,
        _ => return None,
    };
    let (bits, known) = (u32::from_be_bytes([a, b, c, d]), u32::from_be_bytes([e, f, g, h]));
    let known = known & RECORDED_BITS.bits();
    Some((ModeBits::from_bits(bits & known | default.bits() & !known), thresholds))
}

fn thresholds_of(bytes: &[u8]) -> Option<Thresholds> {
    let mut out = Thresholds::default();
    let (each, rest) = bytes.as_chunks::<THRESHOLD_LEN>();
    if each.len() != out.len() || !rest.is_empty() {
        return None;
    }
    for (place, one) in out.iter_mut().zip(each) {
        let [enabled @ 0..=1, kind, a, b, c, d] = one else { return None };
        let kind = *ThresholdKind::ALL.get(usize::from(*kind))?;
        let count = u32::from_be_bytes([*a, *b, *c, *d]);
        *place = Threshold { enabled: *enabled == 1, kind, count };
    }
    Some(out)
}

/// Takes the saved values over. A record that cannot be read keeps the unit from being exported: it
/// may have set write protection.
pub(crate) fn load(device: &Device, store: &dyn StateStore) -> Result<(), Error> {
    let serial = &device.spec().serial;
    let Some(bytes) = store.load(serial, RecordKind::ModePages)? else { return Ok(()) };
    let first = device.space().map(Space::first).unwrap_or_default();
    let read = decode(&bytes, device.default_mode(), first);
    let (bits, thresholds) = read.ok_or_else(|| {
        Error::inval(format!("saved mode pages of {serial} are of another version"))
    })?;
    device.restore_mode(bits);
    if let Some(space) = device.space() {
        space.save(thresholds);
        space.reset();
    }
    Ok(())
}

/// Held while one MODE SELECT changes a unit; the next one ends BUSY.
pub(crate) struct ModeSelectGuard<'a>(&'a Device);

impl ModeSelectGuard<'_> {
    /// The turn, if no other MODE SELECT has it.
    pub fn acquire(device: &Device) -> Result<ModeSelectGuard<'_>, Ending> {
        match device.selecting.swap(true, Ordering::AcqRel) {
            true => Err(Ending::Status(Status::Busy)),
            false => Ok(ModeSelectGuard(device)),
        }
    }
}

impl Drop for ModeSelectGuard<'_> {
    fn drop(&mut self) {
        self.0.selecting.store(false, Ordering::Release);
    }
}

/// Stores values that will hold after a reset and after a restart. Durable when it ends well; else
/// nothing has changed.
pub(crate) async fn save(job: &Job, bits: ModeBits, thresholds: Thresholds) -> Result<(), Ending> {
    match job.save(RecordKind::ModePages, encode(bits, &thresholds)).await {
        Ok(()) => {
            job.device.set_saved_mode(bits);
            if let Some(space) = job.device.space() {
                space.save(thresholds);
            }
            Ok(())
        }
        Err(Errno::NotSup) => Err(Ending::Check(Sense::new(asc::SAVING_UNSUPPORTED))),
        Err(_) => Err(Ending::check(asc::INTERNAL_FAILURE)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_round_trip_and_truncated_ones_are_rejected() {
        let one = |enabled, kind, count| Threshold { enabled, kind, count };
        let thresholds = [
            one(true, ThresholdKind::Percent, 20),
            one(false, ThresholdKind::Used, u32::MAX),
            one(true, ThresholdKind::Available, 7),
        ];
        let read = |bytes: &[u8], default| decode(bytes, default, Thresholds::default());
        for bits in 0..1 << 12 {
            let bits = ModeBits::from_bits(bits);
            let written = encode(bits, &thresholds);
            assert_eq!(read(&written, ModeBits::NONE), Some((bits, thresholds)));
        }
        let mut old = encode(ModeBits::SWP, &thresholds);
        // Written when WCE was not served, and when there were no thresholds.
        old[8] &= !1;
        old[0] = VERSION_1;
        old.truncate(9);
        let want = ModeBits::SWP.with(ModeBits::WCE, true);
        assert_eq!(read(&old, ModeBits::WCE), Some((want, Thresholds::default())));
        let whole = encode(ModeBits::SWP, &thresholds);
        for len in 0..whole.len() {
            assert_eq!(read(&whole[..len], ModeBits::NONE), None);
        }
        for (at, value) in [(0, 3), (9, 2), (10, 3)] {
            let mut wrong = whole.clone();
            wrong[at] = value;
            assert_eq!(read(&wrong, ModeBits::NONE), None, "{at}");
        }
    }
}
