//! Mode pages that were saved (MODE SELECT with SP): one record a unit in the vault.
//!
//! ```text
//!   version 1 | 4 bytes mode bits ([`ModeBits::bits`]) | 4 bytes: which of them were served then
//! ```
//! A bit that was not served when the record was written keeps its default.

use std::sync::atomic::Ordering;

use bio::Errno;
use geom::Error;
use wire::scsi::{Sense, Status, asc};

use crate::device::{Device, ModeBits};
use crate::handlers::Job;
use crate::status::Ending;
use crate::vault::{Kind, Vault};

const VERSION: u8 = 1;

/// Bits that a record of this version tells.
const TOLD: ModeBits = ModeBits::WCE
    .with(ModeBits::D_SENSE, true)
    .with(ModeBits::SWP, true)
    .with(ModeBits::TAS, true)
    .with(ModeBits::TST_EACH, true)
    .with(ModeBits::QERR, true)
    .with(ModeBits::QERR_OWN, true)
    .with(ModeBits::QAM, true)
    .with(ModeBits::TMF_ONLY, true)
    .with(ModeBits::DPICZ, true);

fn encode(bits: ModeBits) -> Vec<u8> {
    let mut out = vec![VERSION];
    out.extend(bits.bits().to_be_bytes());
    out.extend(TOLD.bits().to_be_bytes());
    out
}

/// None: not a record of this version.
fn decode(bytes: &[u8], default: ModeBits) -> Option<ModeBits> {
    let [VERSION, a, b, c, d, e, f, g, h] = *bytes else { return None };
    let (bits, told) = (u32::from_be_bytes([a, b, c, d]), u32::from_be_bytes([e, f, g, h]));
    let told = told & TOLD.bits();
    Some(ModeBits::from_bits(bits & told | default.bits() & !told))
}

/// Takes the saved values over. A record that cannot be read keeps the unit from being exported:
/// it may have said that nobody may write.
pub(super) fn load(device: &Device, vault: &dyn Vault) -> Result<(), Error> {
    let serial = &device.spec().serial;
    let Some(bytes) = vault.load(serial, Kind::ModePages)? else { return Ok(()) };
    let bits = decode(&bytes, device.default_mode()).ok_or_else(|| {
        Error::new(Errno::Inval, format!("saved mode pages of {serial} are of another version"))
    })?;
    device.restore_mode(bits);
    Ok(())
}

/// Held while one MODE SELECT changes a unit; the next one is told BUSY.
pub(crate) struct Turn<'a>(&'a Device);

impl Turn<'_> {
    /// The turn, if no other MODE SELECT has it.
    pub fn take(device: &Device) -> Result<Turn<'_>, Ending> {
        match device.selecting.swap(true, Ordering::AcqRel) {
            true => Err(Ending::Status(Status::Busy)),
            false => Ok(Turn(device)),
        }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.selecting.store(false, Ordering::Release);
    }
}

/// Stores values that will hold after a reset and after a restart. Durable when it ends well; else
/// nothing has changed.
pub(crate) async fn save(job: &Job, bits: ModeBits) -> Result<(), Ending> {
    match job.save(Kind::ModePages, encode(bits)).await {
        Ok(()) => {
            job.device.set_saved_mode(bits);
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
    fn records_read_as_they_were_written() {
        for bits in 0..1024 {
            let bits = ModeBits::from_bits(bits);
            assert_eq!(decode(&encode(bits), ModeBits::NONE), Some(bits));
        }
        let mut old = encode(ModeBits::SWP);
        // Written when WCE was not served.
        old[8] &= !1;
        let read = decode(&old, ModeBits::WCE).unwrap();
        assert_eq!(read, ModeBits::SWP.with(ModeBits::WCE, true));
        for wrong in [&[][..], &[1], &[2, 0, 0, 0, 0, 0, 0, 0, 0]] {
            assert_eq!(decode(wrong, ModeBits::NONE), None);
        }
    }
}
