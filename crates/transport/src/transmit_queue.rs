//! Transmit queue of one connection: headers written into pooled pages, and data segments sent from
//! the memory that they were read into.
//!
//! Invariants
//!  Q1  Bytes leave in the order in which they were put in.
//!  Q2  A range of a page that was handed out is not written again.

use bio::{Buf, PAGE_BYTES, Pool, Seg};

/// Bytes handed to one send: the progress of a slow peer is seen after each.
pub const SEND_MAX: usize = 512 * 1024;

/// Segments per send, below the kernel's limit for one call (`IOV_MAX`, 1024).
const SEGS_MAX: usize = 1000;

/// The queue of one connection.
pub struct TransmitQueue {
    pool: Pool,
    page: Option<Buf>,
    /// First byte of `page` not written yet.
    at: usize,
    /// First byte of `page` not handed out yet.
    run: usize,
    list: Vec<Seg>,
    /// Bytes in `list` and in the run.
    bytes: usize,
    /// A page was not available: the queue is incomplete and the connection must be closed.
    broken: bool,
}

impl TransmitQueue {
    /// Empty; pages are from `pool`.
    pub fn new(pool: Pool) -> TransmitQueue {
        TransmitQueue { pool, page: None, at: 0, run: 0, list: Vec::new(), bytes: 0, broken: false }
    }

    /// Bytes that are queued.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// True when something could not be stored.
    pub fn is_broken(&self) -> bool {
        self.broken
    }

    /// Appends `N` bytes that `write` sets, all of them: in their place, unless they are cut by the
    /// end of a page.
    #[inline]
    pub fn put_with<const N: usize>(&mut self, write: impl FnOnce(&mut [u8; N])) {
        let Some(page) = self.page.as_ref().filter(|_| PAGE_BYTES - self.at >= N) else {
            let mut bytes = [0; N];
            write(&mut bytes);
            return self.put(&bytes);
        };
        page.with_mut(self.at, N, |place| {
            if let Some(place) = place.first_chunk_mut() {
                write(place);
            }
        });
        self.at += N;
        self.bytes += N;
    }

    /// Appends a copy of `bytes`.
    pub fn put(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            if self.page.is_none() || self.at == PAGE_BYTES {
                self.seal();
                self.page = self.pool.get(PAGE_BYTES);
                (self.at, self.run) = (0, 0);
            }
            let room = PAGE_BYTES - self.at;
            let (now, later) = bytes.split_at(bytes.len().min(room));
            let Some(page) = &self.page else {
                self.broken = true;
                return;
            };
            page.with_mut(self.at, now.len(), |place| place.copy_from_slice(now));
            self.at += now.len();
            self.bytes += now.len();
            bytes = later;
        }
    }

    /// Appends a segment without a copy.
    pub fn put_segment(&mut self, seg: Seg) {
        if !seg.is_empty() {
            self.seal();
            self.bytes += seg.len();
            self.list.push(seg);
        }
    }

    /// Puts the bytes written last into the list.
    fn seal(&mut self) {
        if self.run < self.at
            && let Some(seg) = self.page.as_ref().and_then(|p| p.seg(self.run, self.at - self.run))
        {
            self.list.push(seg);
            self.run = self.at;
        }
    }

    /// Moves up to `SEND_MAX` bytes, at least one segment, to `out`; returns the bytes.
    pub fn take(&mut self, out: &mut Vec<Seg>) -> usize {
        self.seal();
        if out.is_empty() && self.bytes <= SEND_MAX && self.list.len() <= SEGS_MAX {
            // Nearly every send takes all that is queued.
            std::mem::swap(&mut self.list, out);
            return std::mem::take(&mut self.bytes);
        }
        let (mut taken, mut count) = (0, 0);
        for seg in self.list.iter().take(SEGS_MAX.saturating_sub(out.len())) {
            if count > 0 && taken + seg.len() > SEND_MAX {
                break;
            }
            taken += seg.len();
            count += 1;
        }
        out.extend(self.list.drain(..count));
        self.bytes -= taken;
        taken
    }

    /// Frees the page when nothing is queued: an idle connection holds no memory here.
    pub fn release(&mut self) {
        if self.bytes == 0 {
            self.page = None;
            (self.at, self.run) = (0, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bio::PoolConfig;

    #[test]
    fn q1_bytes_and_segments_leave_in_order() {
        let pool = Pool::new(PoolConfig::default());
        let mut out = TransmitQueue::new(pool.clone());
        let mut model = Vec::new();
        let mut sent = Vec::new();
        let mut list = Vec::new();
        for i in 0..2000usize {
            let byte = (i % 251) as u8;
            if i % 3 == 0 {
                let seg = pool.get(64).unwrap().seg(0, 1 + i % 60).unwrap();
                seg.with_mut(|b| b.fill(byte));
                model.extend(vec![byte; seg.len()]);
                out.put_segment(seg);
            } else {
                let bytes = vec![byte; 1 + i % 97];
                model.extend(&bytes);
                out.put(&bytes);
            }
            if i % 50 == 0 {
                let n = out.take(&mut list);
                assert_eq!(n, list.iter().map(Seg::len).sum::<usize>());
                list.drain(..).for_each(|s| s.with(|b| sent.extend_from_slice(b)));
                out.release();
            }
        }
        while out.take(&mut list) > 0 {
            list.drain(..).for_each(|s| s.with(|b| sent.extend_from_slice(b)));
        }
        assert_eq!(sent, model);
        assert_eq!(out.bytes(), 0);
        out.release();
        assert_eq!(pool.usage().used_bytes, 0);
    }

    #[test]
    fn q1_queue_of_more_than_one_send_leaves_in_parts() {
        let pool = Pool::new(PoolConfig::default());
        let (mut out, mut list) = (TransmitQueue::new(pool.clone()), Vec::new());
        let part = pool.get(64 * 1024).unwrap().seg(0, 64 * 1024).unwrap();
        (0..=SEND_MAX / part.len()).for_each(|_| out.put_segment(part.clone()));
        assert_eq!(out.take(&mut list), SEND_MAX);
        assert_eq!(out.bytes(), part.len());
        list.clear();
        (0..SEGS_MAX).for_each(|_| out.put_segment(part.slice(0, 1).unwrap()));
        assert_eq!(out.take(&mut list), part.len() + SEGS_MAX - 1);
        assert_eq!((list.len(), out.bytes()), (SEGS_MAX, 1));
    }

    #[test]
    fn q2_bytes_that_were_taken_are_not_written_again() {
        let mut out = TransmitQueue::new(Pool::new(PoolConfig::default()));
        let (mut taken, mut sent) = (Vec::new(), Vec::new());
        out.put(b"first");
        assert_eq!(out.take(&mut taken), 5);
        out.put(&[9; PAGE_BYTES]);
        taken.iter().for_each(|seg| seg.with(|bytes| sent.extend_from_slice(bytes)));
        assert_eq!(sent, b"first");
    }

    #[test]
    fn q1_bytes_written_in_place_leave_in_order() {
        let pool = Pool::new(PoolConfig::default());
        let (mut out, mut model) = (TransmitQueue::new(pool.clone()), Vec::new());
        for byte in 0..=255u8 {
            out.put_with(|place: &mut [u8; 48]| place.fill(byte));
            out.put(&[byte]);
            model.extend([byte; 49]);
        }
        let (mut taken, mut sent) = (Vec::new(), Vec::new());
        assert_eq!((out.bytes(), out.take(&mut taken)), (model.len(), model.len()));
        taken.iter().for_each(|seg| seg.with(|bytes| sent.extend_from_slice(bytes)));
        assert_eq!(sent, model, "those at the end of a page too");
    }

    #[test]
    fn queue_is_broken_without_memory() {
        let mut out = TransmitQueue::new(Pool::new(PoolConfig { limit_bytes: PAGE_BYTES }));
        out.put(&[0; PAGE_BYTES]);
        assert!(!out.is_broken());
        out.put(&[0]);
        assert!(out.is_broken());
    }
}
