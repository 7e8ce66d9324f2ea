//! Reads PDUs from the receive buffer of a connection.

use bio::{PAGE_BYTES, Segs};
use transport::ReceiveBuffer;
use wire::iscsi::{BHS_LEN, Bhs, Crc32c, Frame, Framer, Need};

use super::close_reason::CloseReason;
/// See the module.
pub(crate) struct PduReader(pub ReceiveBuffer);

/// The additional headers of a PDU; empty for nearly all.
pub(crate) type Ahs = Vec<u8>;

impl PduReader {
    /// The next PDU's header, whole and verified; it is taken, what follows it is not.
    pub async fn header(&mut self, framer: &Framer) -> Result<(Frame, Bhs, Ahs), CloseReason> {
        let mut need = BHS_LEN;
        loop {
            self.0.fill(need).await?;
            let found = self.0.peek(PAGE_BYTES, |bytes| {
                let need = framer.header(bytes)?;
                let ahs = match need {
                    Need::Header(f) if f.ahs_len > 0 => {
                        bytes.get(BHS_LEN..BHS_LEN + f.ahs_len).unwrap_or(&[]).to_vec()
                    }
                    _ => Ahs::new(),
                };
                let bhs = bytes.first_chunk::<BHS_LEN>().copied().unwrap_or([0; BHS_LEN]);
                Ok((need, bhs, ahs))
            });
            match found.map_err(CloseReason::Framing)? {
                (Need::Header(frame), bhs, ahs) => {
                    self.0.consume(frame.header_len);
                    if frame.data_len == 0 {
                        self.0.expect_small();
                    }
                    return Ok((frame, bhs, ahs));
                }
                (Need::Bytes(n), ..) => need = n,
            }
        }
    }

    /// Takes the bytes after a header: those that fit are stored in `into`, others are dropped.
    /// False when a data digest does not agree.
    pub async fn data(&mut self, frame: &Frame, into: &Segs) -> Result<bool, CloseReason> {
        let keep = into.len().min(frame.data_len);
        let mut crc = (frame.digest_len > 0).then(Crc32c::new);
        self.0.read_into(into, 0, keep).await?;
        if let Some(crc) = &mut crc {
            let mut left = keep;
            for seg in into.iter() {
                let n = seg.len().min(left);
                seg.with(|b| crc.update(b.get(..n).unwrap_or(b)));
                left -= n;
            }
        }
        self.pass(frame.data_len - keep + frame.pad_len, crc.as_mut()).await?;
        let Some(crc) = crc else { return Ok(true) };
        Ok(crc.wire() == self.digest().await?)
    }

    async fn pass(&mut self, len: usize, mut crc: Option<&mut Crc32c>) -> Result<(), CloseReason> {
        let look = |b: &[u8]| {
            if let Some(crc) = &mut crc {
                crc.update(b);
            }
        };
        Ok(self.0.skip(u64::try_from(len).unwrap_or(u64::MAX), look).await?)
    }

    async fn digest(&mut self) -> Result<[u8; 4], CloseReason> {
        self.0.fill(4).await?;
        let digest = self.0.peek(4, |b| b.first_chunk::<4>().copied().unwrap_or_default());
        self.0.consume(4);
        Ok(digest)
    }

    /// Takes the bytes after a header into a vector; None when the data digest does not agree.
    /// The caller bounds `frame.data_len`.
    pub async fn text(&mut self, frame: &Frame) -> Result<Option<Vec<u8>>, CloseReason> {
        let mut out = Vec::with_capacity(frame.data_len);
        let mut crc = Crc32c::new();
        while out.len() < frame.data_len {
            self.0.fill(1).await?;
            let before = out.len();
            self.0.peek(frame.data_len - before, |b| {
                crc.update(b);
                out.extend_from_slice(b);
            });
            self.0.consume(out.len() - before);
        }
        self.pass(frame.pad_len, Some(&mut crc)).await?;
        if frame.digest_len == 0 {
            return Ok(Some(out));
        }
        Ok((crc.wire() == self.digest().await?).then_some(out))
    }

    /// Takes and drops the bytes after a header.
    pub async fn drop_data(&mut self, frame: &Frame) -> Result<(), CloseReason> {
        self.pass(frame.tail_len(), None).await
    }
}
