//! What waits to be sent on one connection: headers written into pooled pages, and data segments
//! sent from the memory they were read into.
//!
//! Invariants
//!  Q1  Bytes leave in the order in which they were put in.
//!  Q2  A range of a page that was handed out is not written again.

use bio::{Buf, PAGE_BYTES, Pool, Seg};

/// Bytes handed to one send: so that a slow peer's progress is seen.
pub(crate) const SEND_MAX: usize = 512 * 1024;

/// Segments handed to one send: what the kernel takes in one call.
const SEGS_MAX: usize = 1000;

/// The queue of one connection.
pub(crate) struct Outbox {
    pool: Pool,
    page: Option<Buf>,
    /// First byte of `page` not written yet.
    at: usize,
    /// First byte of `page` not handed out yet.
    run: usize,
    list: std::collections::VecDeque<Seg>,
    /// Bytes in `list` and in the run.
    bytes: usize,
    /// No page could be had: what is queued is incomplete and the connection must be closed.
    broken: bool,
}

impl Outbox {
    /// Empty; pages come from `pool`.
    pub fn new(pool: Pool) -> Outbox {
        Outbox {
            pool,
            page: None,
            at: 0,
            run: 0,
            list: std::collections::VecDeque::new(),
            bytes: 0,
            broken: false,
        }
    }

    /// Bytes that wait.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// True when something could not be stored.
    pub fn is_broken(&self) -> bool {
        self.broken
    }

    /// Appends a copy of `bytes`.
    pub fn bytes_of(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            if self.page.is_none() || self.at == PAGE_BYTES {
                self.seal();
                self.page = self.pool.get(PAGE_BYTES);
                (self.at, self.run) = (0, 0);
            }
            let room = PAGE_BYTES - self.at;
            let (now, later) = bytes.split_at(bytes.len().min(room));
            let place = self.page.as_ref().and_then(|p| p.seg(self.at, now.len()));
            let Some(place) = place else {
                self.broken = true;
                return;
            };
            place.copy_from(0, now);
            self.at += now.len();
            self.bytes += now.len();
            bytes = later;
        }
    }

    /// Appends a segment of somebody's memory.
    pub fn segment(&mut self, seg: Seg) {
        if !seg.is_empty() {
            self.seal();
            self.bytes += seg.len();
            self.list.push_back(seg);
        }
    }

    /// Puts the bytes written last into the list.
    fn seal(&mut self) {
        if self.run < self.at
            && let Some(seg) = self.page.as_ref().and_then(|p| p.seg(self.run, self.at - self.run))
        {
            self.list.push_back(seg);
            self.run = self.at;
        }
    }

    /// Moves up to [`SEND_MAX`] bytes, at least one segment, to `out`; answers the bytes.
    pub fn take(&mut self, out: &mut Vec<Seg>) -> usize {
        self.seal();
        let mut taken = 0;
        while out.len() < SEGS_MAX {
            match self.list.pop_front() {
                Some(seg) if taken == 0 || taken + seg.len() <= SEND_MAX => {
                    taken += seg.len();
                    out.push(seg);
                }
                Some(seg) => {
                    self.list.push_front(seg);
                    break;
                }
                None => break,
            }
        }
        self.bytes -= taken;
        taken
    }

    /// Gives the page back when nothing waits: an idle connection holds no memory here.
    pub fn rest(&mut self) {
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
    fn q1_bytes_leave_in_order_whatever_they_are_made_of() {
        let pool = Pool::new(PoolConfig::default());
        let mut out = Outbox::new(pool.clone());
        let mut model = Vec::new();
        let mut sent = Vec::new();
        let mut list = Vec::new();
        for i in 0..2000usize {
            let byte = (i % 251) as u8;
            if i % 3 == 0 {
                let seg = pool.get(64).unwrap().seg(0, 1 + i % 60).unwrap();
                seg.with_mut(|b| b.fill(byte));
                model.extend(vec![byte; seg.len()]);
                out.segment(seg);
            } else {
                let bytes = vec![byte; 1 + i % 97];
                model.extend(&bytes);
                out.bytes_of(&bytes);
            }
            if i % 50 == 0 {
                let n = out.take(&mut list);
                assert_eq!(n, list.iter().map(Seg::len).sum::<usize>());
                list.drain(..).for_each(|s| s.with(|b| sent.extend_from_slice(b)));
                out.rest();
            }
        }
        while out.take(&mut list) > 0 {
            list.drain(..).for_each(|s| s.with(|b| sent.extend_from_slice(b)));
        }
        assert_eq!(sent, model);
        assert_eq!(out.bytes(), 0);
        out.rest();
        assert_eq!(pool.usage().used_bytes, 0);
    }

    #[test]
    fn without_memory_it_says_so() {
        let mut out = Outbox::new(Pool::new(PoolConfig { limit_bytes: PAGE_BYTES }));
        out.bytes_of(&[0; PAGE_BYTES]);
        assert!(!out.is_broken());
        out.bytes_of(&[0]);
        assert!(out.is_broken());
    }
}
