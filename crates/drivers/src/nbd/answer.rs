//! Replies.

use bio::Segs;
use wire::nbd::codes::{ALLOCATION_ID, DONE, chunk_kind, command_flag as flag, kind};
use wire::nbd::{Error, Form, HEAD_MAX, Head, Request, chunk, command};

use super::close_reason::CloseReason;
use super::session::NbdSession;
use super::unaligned;
use crate::seg_cursor::SegCursor;

/// Shortest run of zeroes, in bytes, that is reported as a hole; shorter runs are sent.
const HOLE_UNIT: usize = 4096;

/// The first byte is zero and each byte equals the next one. A comparison of memory, which is fast
/// at every level of optimisation and ends at the first difference.
fn is_zero(bytes: &[u8]) -> bool {
    match bytes.split_first() {
        Some((first, rest)) => *first == 0 && bytes.starts_with(rest),
        None => true,
    }
}

fn text_of(error: Error) -> &'static str {
    match error {
        Error::Perm => "not allowed: read only, write protected or reserved by another initiator",
        Error::Io => "the medium failed",
        Error::NoMem => "no buffers in time",
        Error::Inval => "not a request for this export: range, alignment, flags or length",
        Error::NoSpc => "beyond the end, or no space left",
        Error::Overflow => "too long for one piece",
        Error::NotSup => "not without writing zeroes",
        Error::Shutdown => "the export is being taken away",
    }
}

impl NbdSession {
    fn head(&self, head: &Head) {
        let mut bytes = [0; HEAD_MAX];
        let len = head.encode(self.form(), &mut bytes);
        self.conn().io.tx.borrow_mut().put(bytes.get(..len).unwrap_or(&[]));
    }

    fn chunk(&self, request: &Request, kind: u16, done: bool, len: u64) {
        let flags = if done { DONE } else { 0 };
        let (cookie, offset) = (request.cookie, request.offset);
        self.head(&Head::Chunk { flags, kind, cookie, offset, len });
    }

    /// The end of a reply; `begun` when data of it is out.
    pub(super) fn reply(&self, request: &Request, error: Option<Error>, begun: bool) {
        let form = self.form();
        match error {
            // The last chunk of its data was marked so.
            None if begun => {}
            Some(_) if begun && form == Form::Simple => {
                self.conn().io.close(CloseReason::HalfAnswered)
            }
            Some(error) if form != Form::Simple => {
                let mut body = Vec::new();
                chunk::error(error, text_of(error), &mut body);
                self.chunk(request, chunk_kind::ERROR, true, body.len() as u64);
                self.conn().io.tx.borrow_mut().put(&body);
            }
            None if form == Form::Extended
                || (form == Form::Structured && request.kind == kind::READ) =>
            {
                self.chunk(request, chunk_kind::NONE, true, 0);
            }
            _ => {
                let error = error.map_or(0, Error::code);
                self.head(&Head::Simple { error, cookie: request.cookie });
            }
        }
    }

    /// Queues the data of a READ; false when the request has ended by it.
    pub(super) fn send_data(&self, tag: u32, data: &Segs) -> bool {
        let found = self.with(tag, |p| {
            let begun = std::mem::replace(&mut p.begun, true);
            (p.request, p.at, p.current_bytes, p.remaining == 0, begun)
        });
        let Some((request, at, now, last, begun)) = found else { return false };
        if data.len() as u64 != now {
            // A unit that became smaller under way.
            self.with(tag, |p| p.begun = begun);
            self.finish_request(tag, Some(Error::Io));
            return false;
        }
        let cut = unaligned::cut(self, &request, at, data);
        let (at, data) = cut.as_ref().map_or((at, data), |(at, data)| (*at, data));
        self.send_pieces(&request, at, last, data, begun);
        if let Some((_, data)) = cut {
            self.conn().core.segs.put(data);
        }
        true
    }

    fn send_pieces(&self, request: &Request, at: u64, last: bool, data: &Segs, begun: bool) {
        if self.form() == Form::Simple {
            if !begun {
                self.head(&Head::Simple { error: 0, cookie: request.cookie });
            }
            let mut out = self.conn().io.tx.borrow_mut();
            data.iter().for_each(|seg| out.put_segment(seg.clone()));
            return;
        }
        let mut runs = self.frontend.runs.take();
        runs.clear();
        match request.has(flag::DF) {
            true => runs.push((false, data.len() as u64)),
            false => find_runs(data, &mut runs),
        }
        self.send_runs(request, at, last, data, &runs);
        self.frontend.runs.replace(runs);
    }

    fn send_runs(&self, r: &Request, at: u64, last: bool, data: &Segs, runs: &[(bool, u64)]) {
        let mut segs = SegCursor::new(data.as_slice());
        let mut offset = at;
        for (i, (zero, len)) in runs.iter().enumerate() {
            let done = last && i + 1 == runs.len();
            let bytes = usize::try_from(*len).unwrap_or(0);
            match (zero, u32::try_from(*len)) {
                (true, Ok(short)) => {
                    let body = chunk::hole(offset, short);
                    self.chunk(r, chunk_kind::OFFSET_HOLE, done, body.len() as u64);
                    self.conn().io.tx.borrow_mut().put(&body);
                    segs.take(bytes, |_| {});
                }
                _ => {
                    let all = len.saturating_add(chunk::OFFSET_LEN as u64);
                    self.chunk(r, chunk_kind::OFFSET_DATA, done, all);
                    let mut out = self.conn().io.tx.borrow_mut();
                    out.put(&offset.to_be_bytes());
                    segs.take(bytes, |seg| out.put_segment(seg));
                }
            }
            offset = offset.saturating_add(*len);
        }
    }

    /// Queues the answer to GET LBA STATUS, or reports that everything may be data.
    pub(super) fn send_status(&self, tag: u32, data: &Segs) {
        let Some((request, at, now)) = self.with(tag, |p| (p.request, p.at, p.current_bytes))
        else {
            return;
        };
        let device = self.device();
        let zeroes = device.provisioning().reads_zero;
        let unit = device.block_bytes();
        let mut extents = command::extents(&data.to_vec(), unit, at, now, zeroes);
        if extents.is_empty() {
            extents.push(chunk::Extent { len: now, flags: 0 });
        }
        if request.has(flag::REQ_ONE) {
            extents.truncate(1);
        }
        let mut body = Vec::new();
        let kind = if self.form() == Form::Extended {
            chunk::block_status_ext(ALLOCATION_ID, &extents, &mut body);
            chunk_kind::BLOCK_STATUS_EXT
        } else {
            chunk::block_status(ALLOCATION_ID, &extents, &mut body);
            chunk_kind::BLOCK_STATUS
        };
        self.chunk(&request, kind, true, body.len() as u64);
        self.conn().io.tx.borrow_mut().put(&body);
        self.with(tag, |p| p.begun = true);
        self.finish_request(tag, None);
    }
}

/// Runs of zeroes and of data, by units of [`HOLE_UNIT`] within each segment.
fn find_runs(data: &Segs, runs: &mut Vec<(bool, u64)>) {
    let mut add = |zero: bool, len: usize| {
        let len = len as u64;
        match runs.last_mut().filter(|last| last.0 == zero) {
            Some(last) => last.1 += len,
            None => runs.push((zero, len)),
        }
    };
    for seg in data.iter() {
        seg.with(|bytes| {
            for unit in bytes.chunks(HOLE_UNIT) {
                add(unit.len() == HOLE_UNIT && is_zero(unit), unit.len());
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bio::{Pool, PoolConfig};

    #[test]
    fn runs_cover_everything_and_zeroes_are_holes() {
        let pool = Pool::new(PoolConfig::default());
        let data = Segs::alloc(&pool, 5 * HOLE_UNIT + 512).unwrap();
        data.fill(0, data.len(), 0);
        data.fill(HOLE_UNIT * 2 + 5, 1, 9);
        let mut runs = Vec::new();
        find_runs(&data, &mut runs);
        let unit = HOLE_UNIT as u64;
        let all = [(true, 2 * unit), (false, unit), (true, 2 * unit), (false, 512)];
        assert_eq!(runs, all);
        assert!(is_zero(&[]) && is_zero(&[0; 1000]));
        for at in 0..300 {
            let mut bytes = [0; 300];
            bytes[at] = 1;
            assert!(!is_zero(&bytes), "{at}");
        }
    }
}
