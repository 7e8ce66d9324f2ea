//! Messages of a channel, read into and written from memory that is lent for the call.

use std::io::{IoSlice, IoSliceMut};
use std::os::fd::BorrowedFd;

use bio::{Direction, Loan};

/// Ranges of one message behind its head without memory of its own for their list.
const FEW: usize = 16;

/// Ranges of one message behind its header. A longer list is cut, and the kernel rejects a list
/// that is too short for the message.
const PARTS_MAX: usize = 320;

fn incoming(loan: &mut Loan) -> IoSliceMut<'_> {
    assert_eq!(loan.direction(), Direction::In, "bytes arrive where they were lent for it");
    // SAFETY: the loan keeps its range valid and, being one for incoming bytes, untouched by
    // others and lent to no one else while it lives (bio B3, B4). It is borrowed for this slice.
    IoSliceMut::new(unsafe { std::slice::from_raw_parts_mut(loan.as_ptr(), loan.len()) })
}

fn outgoing(loan: &Loan) -> IoSlice<'_> {
    // SAFETY: the loan keeps its range valid while it lives.
    IoSlice::new(unsafe { std::slice::from_raw_parts(loan.as_ptr(), loan.len()) })
}

/// One message: its first bytes into `head`, the others into the loans.
pub(crate) fn read(
    fd: BorrowedFd<'_>,
    head: &mut [u8],
    rest: &mut [Loan],
) -> rustix::io::Result<usize> {
    if rest.len() > FEW {
        let mut parts = Vec::with_capacity(rest.len().min(PARTS_MAX) + 1);
        parts.push(IoSliceMut::new(head));
        parts.extend(rest.iter_mut().take(PARTS_MAX).map(incoming));
        return rustix::io::readv(fd, &mut parts);
    }
    let mut head = Some(head);
    let mut rest = rest.iter_mut();
    let mut parts: [IoSliceMut<'_>; FEW + 1] = std::array::from_fn(|_| match head.take() {
        Some(head) => IoSliceMut::new(head),
        None => rest.next().map_or_else(|| IoSliceMut::new(&mut []), incoming),
    });
    rustix::io::readv(fd, &mut parts)
}

/// One message: its first bytes from `head`, the others from the loans.
pub(crate) fn write(fd: BorrowedFd<'_>, head: &[u8], rest: &[Loan]) -> rustix::io::Result<usize> {
    if rest.len() > FEW {
        let mut parts = Vec::with_capacity(rest.len().min(PARTS_MAX) + 1);
        parts.push(IoSlice::new(head));
        parts.extend(rest.iter().take(PARTS_MAX).map(outgoing));
        return rustix::io::writev(fd, &parts);
    }
    let mut rest = rest.iter();
    let parts: [IoSlice<'_>; FEW + 1] = std::array::from_fn(|i| match i {
        0 => IoSlice::new(head),
        _ => rest.next().map_or(IoSlice::new(&[]), outgoing),
    });
    rustix::io::writev(fd, &parts)
}
