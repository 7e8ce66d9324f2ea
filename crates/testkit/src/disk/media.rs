//! Contents of a disk in memory.

use bio::{Attr, Bio, Errno, Flags, MAPPED, Op, Status};

/// Power takes or leaves a sector as a whole.
const SECTOR: usize = 512;

/// Bytes as readers see them, and as a power cut leaves them.
#[derive(Clone, Debug, Default)]
pub struct Media {
    /// As they read.
    pub bytes: Vec<u8>,
    /// Data that was flushed, or written with FUA; None: a power cut loses nothing.
    durable: Option<Vec<u8>>,
}

impl Media {
    /// So many zeroes, which no power cut takes.
    pub fn zeroed(bytes: usize) -> Media {
        Media { bytes: vec![0; bytes], durable: None }
    }

    /// So many zeroes, with a write cache.
    pub fn cached(bytes: usize) -> Media {
        Media { bytes: vec![0; bytes], durable: Some(vec![0; bytes]) }
    }

    /// Carries out a request; the whole medium is mapped.
    ///
    /// # Errors
    ///
    /// `NoAttr` for every attribute.
    pub fn carry_out(&mut self, bio: &mut Bio) -> Status {
        let range = bio.offset as usize..(bio.offset + bio.length) as usize;
        match bio.op {
            Op::Read => {
                bio.data.copy_from(0, &self.bytes[range.clone()]);
            }
            Op::Write => {
                bio.data.copy_to(0, &mut self.bytes[range.clone()]);
            }
            Op::Delete => {
                bio.ranges().for_each(|r| self.bytes[r.start as usize..r.end as usize].fill(0));
            }
            Op::WriteZeroes => self.bytes[range.clone()].fill(0),
            Op::Flush => {}
            Op::GetAttr => return Err(Errno::NoAttr),
            Op::Map => {
                bio.completed = bio.length;
                bio.value = Some(Attr::Int(MAPPED));
            }
        }
        let Some(durable) = &mut self.durable else { return Ok(()) };
        match bio.op {
            Op::Flush => durable.copy_from_slice(&self.bytes),
            Op::Write | Op::WriteZeroes if bio.flags.has(Flags::FUA) => {
                durable[range.clone()].copy_from_slice(&self.bytes[range]);
            }
            _ => {}
        }
        Ok(())
    }

    /// Cuts the power and restores it: `keeps` decides for each sector that was not flushed whether
    /// it was written.
    pub fn cut(&mut self, keeps: &mut dyn FnMut() -> bool) {
        let Some(durable) = &mut self.durable else { return };
        let sectors = durable.chunks_mut(SECTOR);
        for (now, safe) in self.bytes.chunks_mut(SECTOR).zip(sectors) {
            match now == safe || keeps() {
                true => safe.copy_from_slice(now),
                false => now.copy_from_slice(safe),
            }
        }
    }
}
