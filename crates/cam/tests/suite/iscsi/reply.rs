//! Answers of the target in place of the usual ones.

use super::peer::{Conn, Raw};
use wire::iscsi::{BHS_LEN, Bhs, Pdu, Reject, RejectReason, ScsiCommand, ScsiResponse};

/// An answer in place of the usual one.
pub enum Odd {
    Usual,
    Data(Vec<u8>),
    /// A status, and sense data.
    Status(u8, Vec<u8>),
    /// Carried out or not, it is never answered.
    Mute,
    /// A SCSI Response with this Response code: the target failed.
    Failure(u8),
    /// It is rejected.
    Reject(RejectReason),
    /// It ends the connection.
    Drop,
}

impl Conn {
    /// The error of a digest, of a header or of data.
    pub(super) fn spoils(&self, which: usize) -> u32 {
        let left = &self.peer.spoils[which];
        let spoils = left.get() > 0;
        left.set(left.get().saturating_sub(1));
        u32::from(spoils)
    }

    pub(super) fn send_raw(&self, raw: Raw, request: &Bhs) {
        let mut bytes = raw.bytes;
        if raw.frames {
            bytes.resize(bytes.len().max(BHS_LEN), 0);
            let len = (bytes.len() - BHS_LEN) as u32;
            bytes[4..8].copy_from_slice(&len.to_be_bytes());
            bytes.resize(bytes.len().next_multiple_of(4), 0);
        }
        if raw.fits && bytes.len() >= BHS_LEN {
            bytes[16..20].copy_from_slice(&request[16..20]);
            bytes[24..28].copy_from_slice(&self.numbers(true).stat_sn.to_be_bytes());
        }
        self.out.borrow_mut().extend(bytes);
    }

    /// Answers a command in place of the usual way.
    pub(super) fn answer_oddly(&self, command: &ScsiCommand, odd: Odd) {
        match odd {
            Odd::Usual | Odd::Mute => {}
            Odd::Data(bytes) => self.answer(command, Ok(bytes)),
            Odd::Status(status, sense) => self.status(command, status, &sense),
            Odd::Failure(response) => {
                let (sn, task_tag) = (self.numbers(true), command.task_tag);
                let scsi_response =
                    ScsiResponse { response, task_tag, sn, ..ScsiResponse::default() };
                self.send_pdu(&scsi_response, &[]);
            }
            Odd::Reject(reason) => {
                let mut refused = [0; BHS_LEN];
                command.encode(&mut refused);
                let (sn, data_len) = (self.numbers(true), BHS_LEN as u32);
                self.send_pdu(&Reject { reason, sn, data_len, ..Reject::default() }, &refused);
            }
            Odd::Drop => self.peer.cut(),
        }
    }
}

/// Looks at a command before it is carried out.
pub type Oddity = Box<dyn FnMut(&ScsiCommand) -> Odd>;

/// Sense data in the format of a response, after their length.
pub fn sense_of(key: u8, asc: u8, ascq: u8) -> Vec<u8> {
    [&[0, 18, 0x70, 0, key, 0, 0, 0, 0, 10, 0, 0, 0, 0, asc, ascq][..], &[0; 4]].concat()
}
