//! Commands of CD and DVD units only (MMC-6). Their other commands are read as a disk's.

use super::{CdbError, Command};
use crate::bytes::{get16, get24, get32};

/// Which track READ TRACK INFORMATION means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrackAddress {
    /// The one that holds a block.
    Block(u32),
    /// By number; 0 is the lead-in, FFh the invisible track.
    Track(u32),
    /// The first of a session.
    Session(u32),
}

/// Which parts of a sector READ CD sends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MainChannel {
    /// The synchronization pattern.
    pub sync: bool,
    /// HEADER CODES, 0 to 3: none, header, sub-header, both.
    pub headers: u8,
    pub data: bool,
    /// EDC and ECC.
    pub ecc: bool,
    /// C2 ERROR INFORMATION, 0 to 3.
    pub errors: u8,
    /// DAP: audio may be played with errors.
    pub audio: bool,
}

/// None: not one of these.
pub(super) fn parse(b: &[u8; 16]) -> Result<Option<Command>, CdbError> {
    let alloc = u32::from(get16::<7, 16>(b));
    let msf = b[1] & 2 != 0;
    Ok(Some(match b[0] {
        0x42 => {
            let sub_q = b[2] & 0x40 != 0;
            Command::ReadSubChannel { msf, sub_q, format: b[3], track: b[6], alloc }
        }
        0x43 => Command::ReadToc { msf, format: b[2] & 0x0f, track: b[6], alloc },
        0x46 => Command::GetConfiguration { which: b[1] & 3, from: get16::<2, 16>(b), alloc },
        0x4a => Command::GetEventStatus { polled: b[1] & 1 != 0, classes: b[4], alloc },
        0x51 => Command::ReadDiscInformation { kind: b[1] & 7, alloc },
        0x52 => Command::ReadTrackInformation { open: b[1] & 4 != 0, track: track(b)?, alloc },
        0xad => Command::ReadDiscStructure {
            media: b[1] & 0x0f,
            address: get32::<2, 16>(b),
            layer: b[6],
            format: b[7],
            agid: b[10] >> 6,
            alloc: u32::from(get16::<8, 16>(b)),
        },
        0xbb => {
            let (read, write) = (get16::<2, 16>(b), get16::<4, 16>(b));
            Command::SetCdSpeed { rotation: b[1] & 3, read, write }
        }
        0xbd => Command::MechanismStatus { alloc: u32::from(get16::<8, 16>(b)) },
        0xbe => read_cd(b),
        _ => return Ok(None),
    }))
}

fn track(b: &[u8; 16]) -> Result<TrackAddress, CdbError> {
    let number = get32::<2, 16>(b);
    match b[1] & 3 {
        0 => Ok(TrackAddress::Block(number)),
        1 => Ok(TrackAddress::Track(number)),
        2 => Ok(TrackAddress::Session(number)),
        _ => Err(CdbError::field(1, Some(1))),
    }
}

/// RELADR is obsolete and ignored.
fn read_cd(b: &[u8; 16]) -> Command {
    let main = MainChannel {
        sync: b[9] & 0x80 != 0,
        headers: (b[9] >> 5) & 3,
        data: b[9] & 0x10 != 0,
        ecc: b[9] & 0x08 != 0,
        errors: (b[9] >> 1) & 3,
        audio: b[1] & 2 != 0,
    };
    let (lba, blocks) = (get32::<2, 16>(b), get24::<6, 16>(b));
    Command::ReadCd { lba, blocks, kind: (b[1] >> 2) & 7, main, sub_channel: b[10] & 7 }
}
