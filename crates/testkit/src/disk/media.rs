//! What a disk holds.

use bio::{Bio, Errno, Flags, Op, Status};

/// Power takes or leaves a sector as a whole.
const SECTOR: usize = 512;

/// Bytes as readers see them, and as a power cut leaves them.
#[derive(Clone, Debug, Default)]
pub struct Media {
    /// As they read.
    pub bytes: Vec<u8>,
    /// What was flushed, or written with FUA.
    pub durable: Vec<u8>,
}

impl Media {
    /// So many zeroes, all of them durable.
    pub fn zeroed(bytes: usize) -> Media {
        Media { bytes: vec![0; bytes], durable: vec![0; bytes] }
    }

    /// Does what a request asks for. Map and GetAttr are not known.
    ///
    /// # Errors
    ///
    /// `Inval` for a range past the end, `NotSup` for what is not known.
    pub fn carry_out(&mut self, bio: &Bio) -> Status {
        let (at, end) = (bio.offset as usize, (bio.offset + bio.length) as usize);
        if end > self.bytes.len() {
            return Err(Errno::Inval);
        }
        match bio.op {
            Op::Read => {
                bio.data.copy_from(0, &self.bytes[at..end]);
            }
            Op::Write => {
                bio.data.copy_to(0, &mut self.bytes[at..end]);
            }
            Op::Delete => {
                bio.ranges().for_each(|r| self.bytes[r.start as usize..r.end as usize].fill(0));
            }
            Op::WriteZeroes => self.bytes[at..end].fill(0),
            Op::Flush => self.durable.copy_from_slice(&self.bytes),
            Op::GetAttr => return Err(Errno::NoAttr),
            Op::Map => return Err(Errno::NotSup),
        }
        if bio.flags.has(Flags::FUA) && bio.op.needs_write() && bio.op != Op::Flush {
            self.durable[at..end].copy_from_slice(&self.bytes[at..end]);
        }
        Ok(())
    }

    /// The power goes and comes: `keeps` says of each sector that was not flushed whether it was
    /// written.
    pub fn cut(&mut self, keeps: &mut dyn FnMut() -> bool) {
        let sectors = self.durable.chunks_mut(SECTOR);
        for (now, safe) in self.bytes.chunks_mut(SECTOR).zip(sectors) {
            match now == safe || keeps() {
                true => safe.copy_from_slice(now),
                false => now.copy_from_slice(safe),
            }
        }
    }
}
