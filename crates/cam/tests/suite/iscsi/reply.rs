//! Answers of the target in place of the usual ones.

use super::peer::Conn;
use wire::iscsi::{BHS_LEN, Pdu, Reject, RejectReason, ScsiCommand, ScsiResponse};

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
    /// Answers a command in place of the usual way.
    pub(super) fn answer_oddly(&self, command: &ScsiCommand, odd: Odd) {
        match odd {
            Odd::Usual | Odd::Mute => {}
            Odd::Data(bytes) => self.answer(command, Ok(bytes)),
            Odd::Status(status, sense) => self.status(command, status, &sense),
            Odd::Failure(response) => {
                let (sn, task_tag) = (self.numbers(true), command.task_tag);
                let said = ScsiResponse { response, task_tag, sn, ..ScsiResponse::default() };
                self.say(&said, &[]);
            }
            Odd::Reject(reason) => {
                let mut refused = [0; BHS_LEN];
                command.encode(&mut refused);
                let (sn, data_len) = (self.numbers(true), BHS_LEN as u32);
                self.say(&Reject { reason, sn, data_len, ..Reject::default() }, &refused);
            }
            Odd::Drop => self.peer.cut(),
        }
    }
}

/// Looks at a command before it is carried out.
pub type Oddity = Box<dyn FnMut(&ScsiCommand) -> Odd>;

/// Sense data as they stand in a response, behind their length.
pub fn sense_of(key: u8, asc: u8, ascq: u8) -> Vec<u8> {
    [&[0, 18, 0x70, 0, key, 0, 0, 0, 0, 10, 0, 0, 0, 0, asc, ascq][..], &[0; 4]].concat()
}
