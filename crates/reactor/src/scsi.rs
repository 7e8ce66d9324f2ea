//! SCSI nodes of this machine: commands by Linux' generic driver, `/dev/sgN`, version 3.
//!
//! ```text
//!   send --> with the kernel --> ended: `ready` wakes --> receive
//! ```
//! A command ends when the kernel ends it, its own timeout and recovery behind it: it cannot be
//! taken back.

use std::cell::RefCell;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::rc::Rc;

use bio::{Direction, Segs};
use rustix::fs::{Mode, OFlags};

use crate::backend::sg::{self, Parcels};
use crate::net::Pending;
use crate::ops::Op;
use crate::reactor::Reactor;
use crate::socket::Socket;

/// Longest CDB, bytes.
pub const CDB_MAX: usize = 16;
/// Longest sense data, bytes.
pub const SENSE_MAX: usize = 96;
/// Commands that the kernel takes at a time through one node (SG_MAX_QUEUE).
pub const SCSI_NODE_COMMANDS_MAX: u32 = 16;

/// A command.
#[derive(Clone, Copy, Debug)]
pub struct ScsiRequest<'a> {
    /// A name of the caller's own, for the answer.
    pub tag: u64,
    /// The command descriptor block.
    pub cdb: &'a [u8],
    /// Destination of the data.
    pub direction: Option<Direction>,
    /// After so long the kernel takes it back from the device, ms.
    pub timeout_ms: u32,
}

/// A command's end.
pub struct ScsiAnswer {
    /// Its name.
    pub tag: u64,
    /// SCSI status, of meaning when the others are zero or report sense data.
    pub status: u8,
    /// DID_* of the kernel's mid-layer: how the way there was.
    pub host_status: u16,
    /// DRIVER_* likewise.
    pub driver_status: u16,
    pub moved: u32,
    pub sense: [u8; SENSE_MAX],
    /// Bytes of them.
    pub sense_len: u8,
    /// The memory that was handed over.
    pub data: Segs,
}

/// Takes a device's block device for ourselves, for as long as the answer lives.
///
/// # Errors
/// `ResourceBusy`: this machine or another process uses the device. Others of open(2).
pub fn take_block_device(device: &Path) -> io::Result<OwnedFd> {
    let how = OFlags::RDONLY | OFlags::EXCL | OFlags::NONBLOCK | OFlags::CLOEXEC;
    Ok(rustix::fs::open(device, how, Mode::empty())?)
}

/// An open node for calls that may wait for a device: it belongs to no reactor.
pub struct BlockingScsiNode(OwnedFd);

impl BlockingScsiNode {
    /// Opens a node, without waiting for the device.
    ///
    /// # Errors
    /// Those of open(2).
    pub fn open(node: &Path) -> io::Result<BlockingScsiNode> {
        let how = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
        Ok(BlockingScsiNode(rustix::fs::open(node, how, Mode::empty())?))
    }

    /// Bytes that one command may move.
    ///
    /// # Errors
    /// It is no node of the generic driver.
    pub fn most_bytes(&self) -> io::Result<u32> {
        sg::most_bytes(self.0.as_fd())
    }

    /// Resets the device. Blocks until that is done.
    ///
    /// # Errors
    /// The kernel's, when its driver cannot.
    pub fn reset(&self) -> io::Result<()> {
        sg::reset(self.0.as_fd())
    }
}

/// A node of this reactor. It is closed with the last clone; results of commands in flight are then
/// discarded.
#[derive(Clone)]
pub struct ScsiNode {
    reactor: Reactor,
    // Before the memory that its commands name.
    socket: Rc<Socket>,
    parcels: Rc<RefCell<Parcels>>,
}

impl Reactor {
    /// Commands through a node that was opened.
    ///
    /// # Errors
    /// Those of fcntl(2).
    pub fn scsi(&self, node: BlockingScsiNode) -> io::Result<ScsiNode> {
        let socket = Socket::channel(node.0)?;
        Ok(ScsiNode { reactor: self.clone(), socket, parcels: Rc::default() })
    }
}

impl ScsiNode {
    /// Begins a command; all of `data` is moved, and returns with the answer.
    ///
    /// # Errors
    /// The kernel's, with the data: EDOM when it has [`SCSI_NODE_COMMANDS_MAX`], ENODEV when the
    /// device was removed.
    pub fn send(&self, request: &ScsiRequest<'_>, data: Segs) -> Result<(), (io::Error, Segs)> {
        match self.socket.fd() {
            Some(fd) => self.parcels.borrow_mut().send(fd, request, data),
            None => Err((io::ErrorKind::Unsupported.into(), data)),
        }
    }

    /// The next command that has ended; `None`: none has.
    ///
    /// # Errors
    /// ENODEV: the device was removed, and no answer arrives any more.
    pub fn receive(&self) -> io::Result<Option<ScsiAnswer>> {
        let fd = self.socket.fd().ok_or(io::ErrorKind::Unsupported)?;
        self.parcels.borrow_mut().receive(fd)
    }

    /// Waits until a command may have ended, or the device was removed.
    ///
    /// # Errors
    /// None that a device could cause.
    pub async fn ready(&self) -> io::Result<()> {
        let op = Op::Ready { out: false };
        let pending: Pending = self.reactor.begin_pending(op, &self.socket, |_| ())?;
        pending.await.map(drop)
    }
}
