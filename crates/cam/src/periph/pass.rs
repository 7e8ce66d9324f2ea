//! Pass-through driver: commands that a user typed, to a device, beside its disk.
//!
//! Invariants
//!  N1  A command passes the device's queue like any other: it takes an opening, waits while
//!      the queue is frozen, and is alone where the device wants it so (D8).
//!  N2  It ends as the device answers: nothing is retried, cured or frozen for it. A sender that
//!      wants recovery requests it (PASS_ERR_RECOVER) and gets the same recovery as a disk.
//!  N3  Data are no longer than the SIM carries; a buffer is the sender's own.

use std::rc::Rc;
use std::sync::Arc;

use bio::{Errno, Segs};
use geom::{Core, Error};

use crate::ccb::{CamStatus, Ccb, Command, Ended, Flags, Outcome, Owner, Priority, Refused};
use crate::unit::Unit;

/// How long a command may take unless its sender sets another time, ms.
pub const PASS_TIMEOUT_MS: u32 = 5_000;
/// Longest time that may be requested, ms: a disk that formats itself takes most of a day.
pub const PASS_TIMEOUT_MAX_MS: u32 = 24 * 3_600_000;
/// Retries where recovery is requested.
const RECOVER_RETRIES: u8 = 4;

/// Data of a command.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Data {
    /// None.
    None,
    /// The device sends so many bytes.
    In(u32),
    /// The device receives these bytes.
    Out(Vec<u8>),
}

/// One command.
#[derive(Clone, Debug)]
pub struct Request {
    /// The command.
    pub command: Command,
    /// Its data.
    pub data: Data,
    /// How long it may take, ms.
    pub timeout_ms: u32,
    /// N2
    pub recover: bool,
}

impl Request {
    /// A command with the usual timeout.
    pub fn new(command: Command, data: Data) -> Request {
        Request { command, data, timeout_ms: PASS_TIMEOUT_MS, recover: false }
    }

    /// As [`Request::new`], with recovery's help.
    pub fn with_recovery(command: Command, data: Data) -> Request {
        Request { recover: true, ..Request::new(command, data) }
    }

    fn length(&self) -> usize {
        match &self.data {
            Data::None => 0,
            Data::In(len) => *len as usize,
            Data::Out(bytes) => bytes.len(),
        }
    }

    /// N2, N3
    fn ccb(&self, unit: &Unit) -> Result<Ccb, Error> {
        let most = unit.sim().facts().io_max_bytes;
        let length = u32::try_from(self.length()).ok().filter(|n| *n <= most).ok_or_else(|| {
            let what = format!("{} bytes of data: this bus carries up to {most}", self.length());
            Error::inval(what)
        })?;
        if !(1..=PASS_TIMEOUT_MAX_MS).contains(&self.timeout_ms) {
            let what = format!(
                "timeout={}: from 1 to {PASS_TIMEOUT_MAX_MS} milliseconds",
                self.timeout_ms
            );
            return Err(Error::inval(what));
        }
        let direction = match self.data {
            Data::None => Flags::NONE,
            Data::In(_) => Flags::IN,
            Data::Out(_) => Flags::OUT,
        };
        let raw = if self.recover { Flags::NONE } else { Flags::RAW };
        Ok(Ccb {
            command: self.command,
            flags: direction | raw | Flags::NO_FREEZE,
            priority: Priority::Normal,
            timeout_ms: self.timeout_ms,
            retries: if self.recover { RECOVER_RETRIES } else { 0 },
            end_ns: u64::MAX,
            length,
            owner: Owner::Task(0),
        })
    }
}

/// How a command ended, and the received bytes.
#[derive(Clone, Debug)]
pub struct PassResult {
    /// How.
    pub ended: Ended,
    /// Data from the device: no more than it reports as moved.
    pub data: Vec<u8>,
}

impl PassResult {
    /// The data of a command that ended well; else the device's error text, behind the name
    /// `asked`.
    pub fn good(self, subject: &str) -> Result<Vec<u8>, Error> {
        match self.ended.result {
            Ok(_) => Ok(self.data),
            Err(e) => Err(Error::new(e, format!("{subject}: {}", explain(&self.ended)))),
        }
    }
}

/// Why a command did not end well, as camcontrol prints it.
pub fn explain(ended: &Ended) -> String {
    explain_outcome(&ended.outcome)
}

/// The same for an outcome of a device.
pub(crate) fn explain_outcome(outcome: &Outcome) -> String {
    match outcome.status {
        CamStatus::ScsiError if !outcome.sense.bytes().is_empty() => {
            match wire::scsi::Sense::decode(outcome.sense.bytes()) {
                Ok(sense) => sense.code.to_string(),
                Err(e) => format!("sense data that cannot be read: {e}"),
            }
        }
        CamStatus::ScsiError => status_text(outcome.scsi_status),
        CamStatus::AtaError => {
            format!("ATA status {:02x}, error {:02x}", outcome.ata.0, outcome.ata.1)
        }
        status => refusal(outcome.refused).unwrap_or_else(|| status.text().to_owned()),
    }
}

/// A SCSI status without sense data, for people (SAM-5 5.3.1).
pub(crate) fn status_text(status: u8) -> String {
    let name = match status {
        0x02 => "CHECK CONDITION without sense data",
        0x04 => "CONDITION MET",
        0x08 => "BUSY",
        0x18 => "RESERVATION CONFLICT",
        0x28 => "TASK SET FULL",
        0x30 => "ACA ACTIVE",
        0x40 => "TASK ABORTED",
        _ => return format!("SCSI status {status:02x}"),
    };
    format!("{name} (SCSI status {status:02x})")
}

/// How the target refused a command (RFC 7143 11.4.3 and 11.17.1).
fn refusal(refused: Refused) -> Option<String> {
    let reason = match refused {
        Refused::No => return None,
        Refused::Response(1) => return Some("target failure (iSCSI response 01)".into()),
        Refused::Response(code) => {
            return Some(format!(
                "the target did not complete the command (iSCSI response \
                                 {code:02x})"
            ));
        }
        Refused::Reject(reason) => reason,
    };
    let name = match reason {
        0x02 => "data digest error",
        0x04 => "protocol error",
        0x05 => "command not supported",
        0x06 => "too many immediate commands",
        0x07 => "task in progress",
        0x09 => "invalid PDU field",
        0x0a => "long operation",
        0x0c => "waiting for logout",
        _ => "another reason",
    };
    Some(format!("rejected by the target: {name} (iSCSI reason {reason:02x})"))
}

/// Carries a command out.
pub async fn send(
    unit: &Arc<Unit>,
    core: &Rc<Core>,
    request: &Request,
) -> Result<PassResult, Error> {
    let ccb = request.ccb(unit)?;
    let data = match request.length() {
        0 => Segs::new(),
        len => Segs::alloc(core.pool(), len)
            .ok_or(Error::new(Errno::NoMem, "no memory for the command's data; try again"))?,
    };
    // The buffer is shared memory of the pool: its former contents must not leak.
    data.fill(0, data.len(), 0);
    if let Data::Out(bytes) = &request.data {
        data.copy_from(0, bytes);
    }
    let ended = unit.execute(core, ccb, &data).await;
    let mut came = match request.data {
        Data::In(_) => data.to_vec(),
        _ => Vec::new(),
    };
    came.truncate(ended.outcome.moved as usize);
    Ok(PassResult { ended, data: came })
}
