//! Messages of a channel, read into and written from memory that is lent for the call.

use std::io::{IoSlice, IoSliceMut};
use std::os::fd::BorrowedFd;

use bio::Loan;

/// Ranges of one message behind its head; a longer list is cut, and the kernel refuses what is too
/// short for it.
pub(crate) const PARTS_MAX: usize = 320;

/// One message: its first bytes into `head`, the others into the loans.
pub(crate) fn read(
    fd: BorrowedFd<'_>,
    head: &mut [u8],
    rest: &[Loan],
) -> rustix::io::Result<usize> {
    let mut parts = Vec::with_capacity(rest.len().min(PARTS_MAX) + 1);
    parts.push(IoSliceMut::new(head));
    parts.extend(rest.iter().take(PARTS_MAX).map(|loan| {
        // SAFETY: the loan keeps its range valid and, being one for incoming bytes, untouched by
        // others for the length of this call; loans of one list do not overlap.
        IoSliceMut::new(unsafe { std::slice::from_raw_parts_mut(loan.as_ptr(), loan.len()) })
    }));
    rustix::io::readv(fd, &mut parts)
}

/// One message: its first bytes from `head`, the others from the loans.
pub(crate) fn write(fd: BorrowedFd<'_>, head: &[u8], rest: &[Loan]) -> rustix::io::Result<usize> {
    let mut parts = Vec::with_capacity(rest.len().min(PARTS_MAX) + 1);
    parts.push(IoSlice::new(head));
    parts.extend(rest.iter().take(PARTS_MAX).map(|loan| {
        // SAFETY: the loan keeps its range valid for the length of this call.
        IoSlice::new(unsafe { std::slice::from_raw_parts(loan.as_ptr(), loan.len()) })
    }));
    rustix::io::writev(fd, &parts)
}
