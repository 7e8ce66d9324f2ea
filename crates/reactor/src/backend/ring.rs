//! Received frames, in memory that the kernel shares with us (PACKET_MMAP, TPACKET_V2).
//!
//! ```text
//!   place: the kernel's --a frame came--> ours --taken--> the kernel's
//! ```
//! The kernel fills places in their order, so one that is not filled yet ends a look. Version 3
//! packs frames closer and hands over many at once, or after a while. A lone frame would wait for
//! that, and a request is a lone frame at depth 1.
//!
//! Invariants
//!  G1  A place is read only while it is ours, and given back after the last look at it.
//!  G2  Nothing outside a place is read, regardless of the content of its header.

use std::io;
use std::mem;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;
use std::slice;
use std::sync::atomic::{AtomicU32, Ordering};

use libc::tpacket_req as Shape;
use libc::tpacket2_hdr as Head;

use super::link::check;

/// Memory of a ring, bytes; the places are as many as it holds.
const RING_BYTES: usize = 8 << 20;
/// Most places: further ones would seldom be in use.
const PLACES_MAX: usize = 4096;
/// Longest frames: a place is as long as the longest, so longer ones would leave few places.
const FRAME_MAX: usize = 16 << 10;
/// Size of the blocks that hold the places and that the kernel allocates whole, bytes.
const BLOCK_BYTES: usize = 64 << 10;

/// Bytes before a frame in its place, at most. They are the head, the sender's address, and a gap
/// that aligns the data behind the Ethernet header (`tpacket_rcv`).
const BEFORE: usize = mem::size_of::<Head>() + mem::size_of::<libc::sockaddr_ll>() + 16 + 16;

/// Frames that a socket receives.
pub(crate) struct Ring {
    memory: *mut u8,
    bytes: usize,
    place_bytes: usize,
    in_block: usize,
    places: usize,
    next: usize,
}

fn set<T>(fd: BorrowedFd<'_>, name: libc::c_int, value: &T) -> io::Result<usize> {
    let len = mem::size_of::<T>() as libc::socklen_t;
    let value = ptr::from_ref(value).cast();
    // SAFETY: the value is ours and has the given length, for the call.
    check(unsafe { libc::setsockopt(fd.as_raw_fd(), libc::SOL_PACKET, name, value, len) })
}

impl Ring {
    /// For frames of up to `frame_max` bytes, of a socket without a ring. Frames that the socket
    /// already held are lost. `Unsupported`: the frames are too long for a ring.
    pub(crate) fn open(fd: BorrowedFd<'_>, frame_max: usize) -> io::Result<Ring> {
        if frame_max > FRAME_MAX {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let place_bytes = (BEFORE + frame_max).next_multiple_of(16);
        let in_block = BLOCK_BYTES / place_bytes;
        let blocks = (PLACES_MAX / in_block).clamp(1, RING_BYTES / BLOCK_BYTES);
        let places = blocks * in_block;
        set(fd, libc::PACKET_VERSION, &(libc::tpacket_versions::TPACKET_V2 as libc::c_int))?;
        let shape = Shape {
            tp_block_size: BLOCK_BYTES as u32,
            tp_block_nr: blocks as u32,
            tp_frame_size: place_bytes as u32,
            tp_frame_nr: places as u32,
        };
        set(fd, libc::PACKET_RX_RING, &shape)?;
        let (bytes, shared) = (blocks * BLOCK_BYTES, libc::MAP_SHARED);
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at a place that the kernel chooses.
        let memory =
            unsafe { libc::mmap(ptr::null_mut(), bytes, rights, shared, fd.as_raw_fd(), 0) };
        if memory == libc::MAP_FAILED {
            let error = io::Error::last_os_error();
            Ring::leave(fd);
            return Err(error);
        }
        let memory = memory.cast();
        Ok(Ring { memory, bytes, place_bytes, in_block, places, next: 0 })
    }

    /// The socket has no ring any more; the ring was dropped before.
    pub(crate) fn leave(fd: BorrowedFd<'_>) {
        let none = Shape { tp_block_size: 0, tp_block_nr: 0, tp_frame_size: 0, tp_frame_nr: 0 };
        // Of a socket without a ring the kernel takes nothing away.
        let _ = set(fd, libc::PACKET_RX_RING, &none);
    }

    fn place(&self) -> *mut u8 {
        let (block, at) = (self.next / self.in_block, self.next % self.in_block);
        // SAFETY: `next` is below `places`, and places fill blocks, and blocks the mapping.
        unsafe { self.memory.add(block * BLOCK_BYTES + at * self.place_bytes) }
    }

    /// Takes up to `most` received frames; a frame that is too long is None. How many.
    pub(crate) fn receive(&mut self, most: usize, take: &mut dyn FnMut(Option<&[u8]>)) -> usize {
        let mut got = 0;
        while got < most {
            let place = self.place();
            let head: *mut Head = place.cast();
            // SAFETY: the head is in the place, which begins at a multiple of 16. The kernel
            // writes this word too, and each side looks at it as one.
            let status = unsafe { AtomicU32::from_ptr(ptr::addr_of_mut!((*head).tp_status)) };
            if status.load(Ordering::Acquire) & libc::TP_STATUS_USER == 0 {
                break;
            }
            // SAFETY: the place is ours now, and the kernel has written its head (G1).
            let (len, kept, mac) = unsafe { ((*head).tp_len, (*head).tp_snaplen, (*head).tp_mac) };
            let (at, kept) = (usize::from(mac), kept as usize);
            let fits = at + kept <= self.place_bytes && kept == len as usize;
            // SAFETY: it is inside the place (G2), which the kernel does not write while it is ours
            // (G1).
            let frame = fits.then(|| unsafe { slice::from_raw_parts(place.add(at), kept) });
            take(frame);
            status.store(libc::TP_STATUS_KERNEL, Ordering::Release);
            self.next = (self.next + 1) % self.places;
            got += 1;
        }
        got
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and no frame in it is lent outside of `receive`.
        unsafe { libc::munmap(self.memory.cast(), self.bytes) };
    }
}
