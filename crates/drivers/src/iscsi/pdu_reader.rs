//! Reads PDUs from the receive buffer of a connection.

use bio::{PAGE_BYTES, Segs};
use transport::ReceiveBuffer;
use wire::iscsi::{BHS_LEN, Bhs, Crc32c, Frame, Framer, Need};

use super::close_reason::CloseReason;

/// See the module.
pub(crate) struct PduReader {
    rx: ReceiveBuffer,
    /// The header that [`PduReader::header`] has taken last.
    pub bhs: Bhs,
    /// Its additional headers; empty for nearly all.
    pub ahs: Vec<u8>,
}

impl PduReader {
    pub fn new(rx: ReceiveBuffer) -> PduReader {
        PduReader { rx, bhs: [0; BHS_LEN], ahs: Vec::new() }
    }

    /// Waits for the next PDU's header, whole and verified; it is taken, what follows it is not.
    pub async fn header(&mut self, framer: &Framer) -> Result<Frame, CloseReason> {
        let mut need = BHS_LEN;
        loop {
            self.rx.fill(need).await?;
            match self.take_header(framer)? {
                Need::Header(frame) => return Ok(frame),
                Need::Bytes(n) => need = n,
            }
        }
    }

    /// Takes the next PDU's header if all of it has arrived; otherwise answers how many bytes of
    /// the PDU are needed.
    pub fn take_header(&mut self, framer: &Framer) -> Result<Need, CloseReason> {
        let (bhs, ahs) = (&mut self.bhs, &mut self.ahs);
        let found = self.rx.peek(PAGE_BYTES, |bytes| {
            let need = framer.header(bytes)?;
            if let (Need::Header(frame), Some(first)) = (need, bytes.first_chunk::<BHS_LEN>()) {
                *bhs = *first;
                ahs.clear();
                let more = bytes.get(BHS_LEN..BHS_LEN + frame.ahs_len);
                ahs.extend_from_slice(more.unwrap_or(&[]));
            }
            Ok(need)
        });
        let need = found.map_err(CloseReason::Framing)?;
        if let Need::Header(frame) = need {
            self.rx.consume(frame.header_len);
            if frame.data_len == 0 {
                self.rx.expect_small();
            }
        }
        Ok(need)
    }

    /// Takes the bytes after a header: those that fit are stored in `into`, others are dropped.
    /// False when a data digest does not agree.
    pub async fn data(&mut self, frame: &Frame, into: &Segs) -> Result<bool, CloseReason> {
        let keep = into.len().min(frame.data_len);
        let mut crc = (frame.digest_len > 0).then(Crc32c::new);
        self.rx.read_into(into, 0, keep).await?;
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
        Ok(self.rx.skip(u64::try_from(len).unwrap_or(u64::MAX), look).await?)
    }

    async fn digest(&mut self) -> Result<[u8; 4], CloseReason> {
        self.rx.fill(4).await?;
        let digest = self.rx.peek(4, |b| b.first_chunk::<4>().copied().unwrap_or_default());
        self.rx.consume(4);
        Ok(digest)
    }

    /// Takes the bytes after a header into a vector; None when the data digest does not agree.
    /// The caller bounds `frame.data_len`.
    pub async fn text(&mut self, frame: &Frame) -> Result<Option<Vec<u8>>, CloseReason> {
        let mut out = Vec::with_capacity(frame.data_len);
        let mut crc = Crc32c::new();
        while out.len() < frame.data_len {
            self.rx.fill(1).await?;
            let before = out.len();
            self.rx.peek(frame.data_len - before, |b| {
                crc.update(b);
                out.extend_from_slice(b);
            });
            self.rx.consume(out.len() - before);
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
