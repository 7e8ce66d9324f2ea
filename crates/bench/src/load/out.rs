//! PDUs of one send: headers one behind the other in pooled buffers, data by reference.

use bio::{Buf, Pool, Seg, Segs};
use wire::iscsi::{BHS_LEN, Bhs, Crc32c, Framer, crc32c};

use crate::error::{Error, Kind};

/// Bytes of a buffer for headers; a full one is followed by the next.
const HEADS_BYTES: usize = 16 * 1024;

/// PDUs on their way out.
pub(crate) struct Out {
    pool: Pool,
    segs: Vec<Seg>,
    heads: Option<Buf>,
    /// Where the bytes not yet in `segs` begin, and where the free ones do.
    from: usize,
    used: usize,
}

impl Out {
    pub fn new(pool: Pool) -> Out {
        Out { pool, segs: Vec::new(), heads: None, from: 0, used: 0 }
    }

    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Everything so far, to be sent; the vector's capacity is reused by the next call.
    pub fn take(&mut self) -> &mut Vec<Seg> {
        self.seal();
        self.heads = None;
        &mut self.segs
    }

    /// Bytes that are copied.
    pub fn bytes(&mut self, mut bytes: &[u8]) -> Result<(), Error> {
        while !bytes.is_empty() {
            if self.heads.as_ref().is_none_or(|b| b.capacity() == self.used) {
                self.seal();
                self.heads = Some(self.pool.get(HEADS_BYTES).ok_or_else(exhausted)?);
                (self.from, self.used) = (0, 0);
            }
            let Some(buf) = &self.heads else { return Err(exhausted()) };
            let (piece, rest) = bytes.split_at(bytes.len().min(buf.capacity() - self.used));
            if let Some(seg) = buf.seg(self.used, piece.len()) {
                seg.copy_from(0, piece);
            }
            self.used += piece.len();
            bytes = rest;
        }
        Ok(())
    }

    /// A header without data.
    pub fn header(&mut self, bhs: &Bhs, framer: &Framer) -> Result<(), Error> {
        self.bytes(bhs)?;
        if framer.header_digest {
            self.bytes(&crc32c(bhs).to_le_bytes())?;
        }
        Ok(())
    }

    /// A header with `len` bytes of `data` from `start`, padding and digests.
    pub fn pdu(
        &mut self,
        bhs: &Bhs,
        framer: &Framer,
        (data, start, len): (&Segs, usize, usize),
    ) -> Result<(), Error> {
        self.header(bhs, framer)?;
        if len == 0 {
            return Ok(());
        }
        self.seal();
        let mut piece = Segs::new();
        if !data.slice_into(start, len, &mut piece) {
            return Err(Error::new(
                Kind::Protocol,
                "the target requests data beyond the command's",
            ));
        }
        let mut crc = Crc32c::new();
        for seg in piece.iter() {
            if framer.data_digest {
                seg.with(|bytes| crc.update(bytes));
            }
            self.segs.push(seg.clone());
        }
        let pad = len.next_multiple_of(4) - len;
        self.bytes([0; BHS_LEN].get(..pad).unwrap_or(&[]))?;
        if framer.data_digest {
            crc.pad(u32::try_from(len).unwrap_or(0));
            self.bytes(&crc.wire())?;
        }
        Ok(())
    }

    fn seal(&mut self) {
        let seg = self.heads.as_ref().and_then(|b| b.seg(self.from, self.used - self.from));
        self.segs.extend(seg.filter(|s| !s.is_empty()));
        self.from = self.used;
    }
}

pub(crate) fn exhausted() -> Error {
    Error::new(Kind::System, "the load's own buffers are used up: fewer or smaller requests")
}
