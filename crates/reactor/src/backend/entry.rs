//! Submission queue entries of io_uring.
//!
//! Every pointer made here points into the slot (invariant U3 of `uring.rs`).

use io_uring::squeue::{Entry, Flags};
use io_uring::{opcode, types};

use crate::backend::MsgHeader;
use crate::ops::{IoVec, On, Op, Slot};

const MSG_DONTWAIT: u32 = 0x40;
const MSG_WAITALL: u32 = 0x100;
const MSG_NOSIGNAL: u32 = 0x4000;
const RWF_DSYNC: i32 = 0x2;
/// BLOCK_URING_CMD_DISCARD of <linux/blkdev.h> (Linux 6.12).
const BLOCK_DISCARD: u32 = 0x1200;
const POLL_FIRST: u16 = 1;
const POLLIN: u32 = 0x1;
const POLLOUT: u32 = 0x4;

/// Describes the slot's next call to the kernel.
pub(super) fn entry(slot: &mut Slot) -> Entry {
    let fd = types::Fd(slot.fd());
    let offset = slot.offset_now();
    let (vecs, count): (*mut IoVec, u32) = (slot.iov.as_mut_ptr(), slot.iov.len() as u32);
    let one = match slot.iov[..] {
        [one] => Some((one.base, one.len as u32)),
        _ => None,
    };
    match slot.op {
        Op::Nothing => opcode::Nop::new().build(),
        Op::Read { .. } => match one {
            Some((base, len)) => opcode::Read::new(fd, base, len).offset(offset).build(),
            None => opcode::Readv::new(fd, vecs.cast(), count).offset(offset).build(),
        },
        Op::Write { durable, .. } => {
            let flags = if durable { RWF_DSYNC } else { 0 };
            match one {
                Some((base, len)) => {
                    opcode::Write::new(fd, base, len).offset(offset).rw_flags(flags).build()
                }
                None => opcode::Writev::new(fd, vecs.cast(), count)
                    .offset(offset)
                    .rw_flags(flags)
                    .build(),
            }
        }
        Op::Sync => opcode::Fsync::new(fd).flags(types::FsyncFlags::DATASYNC).build(),
        Op::Allocate { mode, offset, len } => {
            opcode::Fallocate::new(fd, len).offset(offset).mode(mode as i32).build()
        }
        Op::Discard { offset, len } => {
            let mut words = [0; 16];
            words[..8].copy_from_slice(&len.to_ne_bytes());
            opcode::UringCmd16::new(fd, BLOCK_DISCARD).addr(Some(offset)).cmd(words).build()
        }
        // A thread makes that call: see `Uring::start`.
        Op::Map { .. } => opcode::Nop::new().build(),
        Op::Ready { out } => opcode::PollAdd::new(fd, if out { POLLOUT } else { POLLIN }).build(),
        Op::Recv { all } => recv(slot, fd, all, one),
        Op::Send { lazily } => {
            slot.header.iov = vecs;
            slot.header.iov_len = count as usize;
            let header: *const MsgHeader = &slot.header;
            let flags = MSG_WAITALL | MSG_NOSIGNAL;
            let send = |flags| opcode::SendMsg::new(fd, header.cast()).flags(flags).build();
            match lazily {
                true => send(flags | MSG_DONTWAIT).flags(Flags::SKIP_SUCCESS),
                false => send(flags),
            }
        }
    }
}

fn recv(slot: &mut Slot, fd: types::Fd, all: bool, one: Option<(*mut u8, u32)>) -> Entry {
    // After a read that emptied the socket the next one would only find it empty again.
    let first = match &slot.on {
        On::Socket(socket) if socket.is_drained() => POLL_FIRST,
        _ => 0,
    };
    let flags = if all { MSG_WAITALL } else { 0 };
    match one {
        Some((base, len)) => {
            opcode::Recv::new(fd, base, len).ioprio(first).flags(flags as i32).build()
        }
        None => {
            slot.header.iov = slot.iov.as_mut_ptr();
            slot.header.iov_len = slot.iov.len();
            let header: *mut MsgHeader = &mut slot.header;
            opcode::RecvMsg::new(fd, header.cast()).ioprio(first).flags(flags).build()
        }
    }
}
