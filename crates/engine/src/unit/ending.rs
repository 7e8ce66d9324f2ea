//! Ending of a command whose request failed within a range of the unit.

use bio::{Errno, Op};
use wire::scsi::asc;

use crate::status::{Ending, ending_of};
use crate::unit::Device;

/// [`ending_of`] for a range of `len` bytes from block `lba`: with the LBA when it is known (the
/// medium failed at byte `bad` of the range) or only one block can be meant, and as a range error
/// when the medium has shrunk since the command was accepted.
pub(crate) fn ending_at(
    error: Errno,
    op: Op,
    (lba, len): (u64, u64),
    bad: Option<u64>,
    device: &Device,
) -> Ending {
    let ending = ending_of(error, op);
    if error != Errno::Io || !op.has_range() {
        return ending;
    }
    let unit = u64::from(device.block_bytes());
    if lba.saturating_add(len / unit) > device.blocks() {
        return Ending::check(asc::LBA_OUT_OF_RANGE);
    }
    match (ending, bad.filter(|bad| *bad < len)) {
        (Ending::Check(sense), Some(bad)) => {
            Ending::Check(sense.with_information(lba.saturating_add(bad / unit)))
        }
        (Ending::Check(sense), None) if len == unit => Ending::Check(sense.with_information(lba)),
        (ending, _) => ending,
    }
}
