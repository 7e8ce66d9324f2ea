//! Commands that every handler answers in the same way (SPC-4).

use wire::scsi::{Lun, LunSelect, SENSE_LEN_MAX, Sense, asc, report_luns as list};

use super::Ask;

/// REPORT LUNS: the initiator's own view. There are no well-known units.
pub(super) fn report_luns(ask: &mut Ask<'_>, select: LunSelect) {
    let wanted = select != LunSelect::WellKnown;
    let entries = ask.luns.entries().iter().filter(|_| wanted);
    let numbers = entries.filter_map(|e| Lun::new(u32::try_from(e.lun).ok()?));
    ask.reply.extend(list(numbers));
}

/// REQUEST SENSE: the oldest unit attention as data, and it is told then; or nothing to tell.
pub(super) fn request_sense(ask: &mut Ask<'_>, descriptor: bool) {
    let attention = ask.nexus.and_then(|n| n.take());
    ask.told = attention;
    let mut bytes = [0; SENSE_LEN_MAX];
    let len = Sense::new(attention.unwrap_or(asc::NONE)).encode(descriptor, &mut bytes);
    ask.reply.extend(bytes.iter().take(len));
}
