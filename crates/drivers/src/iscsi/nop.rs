//! Pings in both directions.

use wire::iscsi::{NopIn, NopOut, TAG_NONE};

use super::close_reason::CloseReason;
use super::protocol::note_ping;
use super::session::IscsiSession;

/// Longest ping data that is echoed, bytes; a longer ping is rejected.
pub(crate) const PING_MAX: usize = 64 * 1024;

impl IscsiSession {
    /// A NOP-Out. A ping is answered with as much of its data as the initiator takes in one PDU. An
    /// answer to a ping of ours, or an acknowledgement, needs none.
    pub fn nop_out(&self, pdu: &NopOut, data: &[u8]) -> Result<(), CloseReason> {
        if pdu.task_tag == TAG_NONE {
            return Ok(());
        }
        let max = usize::try_from(self.params.get().send_data_len_max).unwrap_or(usize::MAX);
        let echo = data.get(..max).unwrap_or(data);
        let answer = NopIn {
            lun: pdu.lun,
            task_tag: pdu.task_tag,
            target_tag: TAG_NONE,
            sn: self.numbers(true),
            data_len: u32::try_from(echo.len()).unwrap_or(0),
        };
        self.send(&answer, echo);
        Ok(())
    }

    /// Pings the initiator. Any PDU of it counts as an answer.
    pub fn ping(&self) {
        let ping = NopIn {
            lun: [0; 8],
            task_tag: TAG_NONE,
            target_tag: self.next_transfer_tag(),
            sn: self.numbers(false),
            data_len: 0,
        };
        self.send(&ping, &[]);
        note_ping(&self.conn);
    }
}
