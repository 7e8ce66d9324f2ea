//! Linux' generic SCSI driver: `struct sg_io_hdr`, written to begin a command and read for its end.
//!
//! Invariants
//!  P1  The kernel moves data, CDB and sense data only inside `write` and `read` of ours. Without
//!      SG_FLAG_DIRECT_IO and SG_FLAG_MMAP_IO it copies through memory of its own.
//!  P2  Memory that a header names lives from `send` until `receive` has handed the command back,
//!      or until the descriptor is closed. Any `read` may move the data of any command.

use std::io;
use std::mem;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;

use bio::{Direction, Loan, Segs};

use super::link::check;
use crate::ops::{IOVECS_MAX, IoVec};
use crate::scsi::{CDB_MAX, SENSE_MAX, ScsiAnswer, ScsiRequest};

/// `sg_io_hdr` of <scsi/sg.h>, version 3 of the interface (64-bit Linux).
#[repr(C)]
#[derive(Clone, Copy)]
struct Header {
    interface: i32,
    direction: i32,
    cdb_len: u8,
    sense_max: u8,
    iovecs: u16,
    length: u32,
    data: *mut u8,
    cdb: *mut u8,
    sense: *mut u8,
    timeout_ms: u32,
    flags: u32,
    tag: i32,
    user: *mut u8,
    status: u8,
    masked_status: u8,
    message_status: u8,
    sense_len: u8,
    host_status: u16,
    driver_status: u16,
    residual: i32,
    duration_ms: u32,
    info: u32,
}

impl Header {
    fn empty() -> Header {
        Header {
            interface: i32::from(b'S'),
            direction: -1,
            cdb_len: 0,
            sense_max: 0,
            iovecs: 0,
            length: 0,
            data: ptr::null_mut(),
            cdb: ptr::null_mut(),
            sense: ptr::null_mut(),
            timeout_ms: 0,
            flags: 0,
            tag: 0,
            user: ptr::null_mut(),
            status: 0,
            masked_status: 0,
            message_status: 0,
            sense_len: 0,
            host_status: 0,
            driver_status: 0,
            residual: 0,
            duration_ms: 0,
            info: 0,
        }
    }
}

/// SG_DXFER_TO_DEV, SG_DXFER_FROM_DEV.
const TO_DEVICE: i32 = -2;
const FROM_DEVICE: i32 = -3;

/// BLKSECTGET: the largest command, which the generic driver answers in bytes.
const BLKSECTGET: libc::c_ulong = 0x1267;
/// SG_SCSI_RESET, of the device and nothing more (SG_SCSI_RESET_NO_ESCALATE).
const SG_SCSI_RESET: libc::c_ulong = 0x2284;
const RESET_DEVICE: libc::c_int = 0x101;

/// The memory that a header refers to (P2).
struct Parcel {
    cdb: [u8; CDB_MAX],
    sense: [u8; SENSE_MAX],
    iov: Vec<IoVec>,
    loans: Vec<Loan>,
    data: Segs,
}

/// Commands that the kernel has, by tag.
#[derive(Default)]
pub(crate) struct Parcels {
    places: Vec<Option<Box<Parcel>>>,
    free: Vec<usize>,
    /// The names of commands, as their senders chose them.
    names: Vec<u64>,
}

impl Parcels {
    /// Begins a command. Its data return with the error.
    pub(crate) fn send(
        &mut self,
        fd: BorrowedFd<'_>,
        request: &ScsiRequest<'_>,
        data: Segs,
    ) -> Result<(), (io::Error, Segs)> {
        let refuse = |kind: io::ErrorKind, data| Err((io::Error::from(kind), data));
        let (Ok(length), true) = (u32::try_from(data.len()), request.cdb.len() <= CDB_MAX) else {
            return refuse(io::ErrorKind::InvalidInput, data);
        };
        if data.iter().count() > IOVECS_MAX {
            return refuse(io::ErrorKind::InvalidInput, data);
        }
        let at = self.free.pop().unwrap_or_else(|| {
            self.places.push(None);
            self.names.push(0);
            self.places.len() - 1
        });
        let mut parcel = Box::new(Parcel {
            cdb: [0; CDB_MAX],
            sense: [0; SENSE_MAX],
            iov: Vec::new(),
            loans: Vec::new(),
            data,
        });
        parcel.cdb.iter_mut().zip(request.cdb).for_each(|(to, from)| *to = *from);
        let (direction, lent) = match request.direction {
            Some(Direction::In) => (FROM_DEVICE, Direction::In),
            Some(Direction::Out) => (TO_DEVICE, Direction::Out),
            None => (-1, Direction::Out),
        };
        if request.direction.is_some() {
            parcel.loans = parcel.data.iter().map(|seg| seg.lend(lent)).collect();
            let vec = |l: &Loan| IoVec { base: l.as_ptr(), len: l.len() };
            parcel.iov = parcel.loans.iter().map(vec).collect();
        }
        let header = Header {
            direction,
            cdb_len: request.cdb.len() as u8,
            sense_max: SENSE_MAX as u8,
            iovecs: parcel.iov.len() as u16,
            length: if request.direction.is_some() { length } else { 0 },
            data: parcel.iov.as_mut_ptr().cast(),
            cdb: parcel.cdb.as_mut_ptr(),
            sense: parcel.sense.as_mut_ptr(),
            timeout_ms: request.timeout_ms,
            tag: at as i32,
            ..Header::empty()
        };
        let bytes = mem::size_of::<Header>();
        // SAFETY: the header is ours for the call; its pointers refer to the parcel, which does not
        // move until the result was received (P2).
        let sent = unsafe { libc::write(fd.as_raw_fd(), ptr::from_ref(&header).cast(), bytes) };
        if sent < 0 {
            let error = io::Error::last_os_error();
            self.free.push(at);
            parcel.loans.clear();
            return Err((error, parcel.data));
        }
        self.places[at] = Some(parcel);
        self.names[at] = request.tag;
        Ok(())
    }

    /// The next command that has ended; `None`: none has.
    pub(crate) fn receive(&mut self, fd: BorrowedFd<'_>) -> io::Result<Option<ScsiAnswer>> {
        let mut header = Header::empty();
        let bytes = mem::size_of::<Header>();
        // SAFETY: the header is ours for the call. Data and sense data of any command that the
        // kernel may hand back lie in its parcel (P2).
        let got = unsafe { libc::read(fd.as_raw_fd(), ptr::from_mut(&mut header).cast(), bytes) };
        if got < 0 {
            let error = io::Error::last_os_error();
            return match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(None),
                _ => Err(error),
            };
        }
        let at = usize::try_from(header.tag).unwrap_or(usize::MAX);
        let parcel = self.places.get_mut(at).and_then(Option::take);
        let Some(mut parcel) = parcel else {
            let what = format!("the kernel answers command {at}, which it does not have");
            return Err(io::Error::new(io::ErrorKind::InvalidData, what));
        };
        self.free.push(at);
        parcel.loans.clear();
        let length = if header.direction == -1 { 0 } else { header.length };
        let residual = u32::try_from(header.residual).unwrap_or(0).min(length);
        Ok(Some(ScsiAnswer {
            tag: self.names[at],
            status: header.status,
            host_status: header.host_status,
            driver_status: header.driver_status,
            moved: length - residual,
            sense: parcel.sense,
            sense_len: header.sense_len.min(SENSE_MAX as u8),
            data: mem::take(&mut parcel.data),
        }))
    }
}

/// Bytes that one command may move.
pub(crate) fn most_bytes(fd: BorrowedFd<'_>) -> io::Result<u32> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: this request writes one int, which is ours.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), BLKSECTGET as _, ptr::from_mut(&mut bytes)) })?;
    Ok(u32::try_from(bytes).unwrap_or(0))
}

/// Resets the device; waits until that is done.
pub(crate) fn reset(fd: BorrowedFd<'_>) -> io::Result<()> {
    let mut what = RESET_DEVICE;
    // SAFETY: this request reads one int, which is ours.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), SG_SCSI_RESET as _, ptr::from_mut(&mut what)) })?;
    Ok(())
}
