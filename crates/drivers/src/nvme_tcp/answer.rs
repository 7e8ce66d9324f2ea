//! Completions, and data for the host.

use bio::{Seg, Segs};
use wire::iscsi::Crc32c;
use wire::nvme::codes::{pdu as kind, pdu_flag as flag};
use wire::nvme::{Common, Completion, Data, response_capsule};

use super::protocol::Connection;

impl Connection {
    fn header_flag(&self) -> u8 {
        if self.own.framer.get().header_digest { flag::HEADER_DIGEST } else { 0 }
    }

    /// Queues a header, and its digest where there is one.
    fn header(&self, bytes: &[u8]) {
        let mut out = self.io.tx.borrow_mut();
        out.put(bytes);
        if self.own.framer.get().header_digest {
            out.put(&wire::iscsi::crc32c(bytes).to_le_bytes());
        }
    }

    /// Queues the end of a command.
    pub fn complete(&self, end: &Completion) {
        self.header(&response_capsule(end, self.header_flag()));
    }

    /// Queues an R2T.
    pub fn send_r2t(&self, wish: &Data) {
        self.header(&wire::nvme::r2t(wish, self.header_flag()));
    }

    /// Queues all data of a command, `success` when no completion follows.
    pub fn send_segs(&self, command: u16, data: &Segs, success: bool) {
        let mut crc = Crc32c::new();
        let digests = self.own.framer.get().data_digest;
        self.data_head(command, data.len(), success);
        for seg in data.iter() {
            if digests {
                seg.with(|b| crc.update(b));
            }
            self.io.tx.borrow_mut().put_segment(Seg::clone(seg));
        }
        self.data_tail(crc);
    }

    /// The same, of bytes in one piece.
    pub fn send_bytes(&self, command: u16, data: &[u8], success: bool) {
        let mut crc = Crc32c::new();
        crc.update(data);
        self.data_head(command, data.len(), success);
        self.io.tx.borrow_mut().put(data);
        self.data_tail(crc);
    }

    fn data_head(&self, command: u16, len: usize, success: bool) {
        let framer = self.own.framer.get();
        let head = Data::LEN + if framer.header_digest { 4 } else { 0 };
        let unit = (usize::from(self.own.alignment.get()) + 1) * 4;
        let at = head.next_multiple_of(unit);
        let (tail, bit) = if framer.data_digest { (4, flag::DATA_DIGEST) } else { (0, 0) };
        let flags = flag::LAST | if success { flag::SUCCESS } else { 0 } | bit | self.header_flag();
        let common = Common {
            kind: kind::CONTROLLER_DATA,
            flags,
            header_len: 24,
            // At most 128.
            data_at: u8::try_from(at).unwrap_or(u8::MAX),
            len: u32::try_from(at + len + tail).unwrap_or(u32::MAX),
        };
        let len = u32::try_from(len).unwrap_or(u32::MAX);
        self.header(&Data { command, tag: 0, at: 0, len }.encode(&common));
        self.io.tx.borrow_mut().put([0; 128].get(..at - head).unwrap_or(&[]));
    }

    fn data_tail(&self, crc: Crc32c) {
        if self.own.framer.get().data_digest {
            self.io.tx.borrow_mut().put(&crc.wire());
        }
    }
}
