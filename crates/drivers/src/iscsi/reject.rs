//! Reject: a PDU that cannot be acted on is returned to its sender.

use wire::iscsi::{BHS_LEN, Bhs, Reject, RejectReason};

use super::close_reason::CloseReason;
use super::session::IscsiSession;

/// Rejects of one session; a further one ends it, as the peer does not speak iSCSI.
const REJECTS_MAX: u32 = 256;

impl IscsiSession {
    /// Sends a header back.
    pub fn reject(&self, reason: RejectReason, bhs: &Bhs) -> Result<(), CloseReason> {
        let pdu = Reject {
            reason,
            sn: self.numbers(true),
            data_sn: 0,
            data_len: u32::try_from(BHS_LEN).unwrap_or(0),
        };
        self.send(&pdu, bhs);
        self.rejects.set(self.rejects.get().saturating_add(1));
        if self.rejects.get() > REJECTS_MAX { Err(CloseReason::TooManyRejects) } else { Ok(()) }
    }
}
