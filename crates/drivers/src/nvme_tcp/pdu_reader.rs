//! Reads PDUs from the receive buffer of a connection.

use bio::Segs;
use transport::ReceiveBuffer;
use wire::iscsi::Crc32c;
use wire::nvme::{COMMON_LEN, Fault, Frame};

use super::close_reason::CloseReason;
use super::protocol::Connection;

/// Longest header with its digest, bytes.
const HEADER_MAX: usize = 132;

/// A PDU's header; its data has not been taken.
pub(crate) struct Head {
    pub frame: Frame,
    bytes: [u8; HEADER_MAX],
}

impl Head {
    /// The header without its digest, zeroes behind it.
    pub fn bytes(&self) -> &[u8] {
        let len = usize::from(self.frame.common.header_len);
        self.bytes.get(..len).unwrap_or(&self.bytes)
    }

    /// The first bytes of the header.
    pub fn first<const N: usize>(&self) -> [u8; N] {
        self.bytes().first_chunk::<N>().copied().unwrap_or([0; N])
    }
}

impl Connection {
    /// The next PDU's header, whole and verified. A bad header is reported to the host.
    pub async fn head(&self, rx: &mut ReceiveBuffer) -> Result<Head, CloseReason> {
        rx.fill(1).await?;
        let framer = self.own.framer.get();
        // The rest of a PDU is under a deadline.
        self.within(HEADER_MAX, rx.fill(COMMON_LEN)).await?;
        let common = rx.peek(COMMON_LEN, |b| b.first_chunk().copied().unwrap_or_default());
        let frame = framer.frame(&common).map_err(|fault| self.terminate(fault, &common))?;
        self.within(HEADER_MAX, rx.fill(frame.header_len)).await?;
        let mut bytes = [0; HEADER_MAX];
        let checked = rx.peek(frame.header_len, |b| {
            bytes.iter_mut().zip(b).for_each(|(to, from)| *to = *from);
            framer.check(&frame, b)
        });
        rx.consume(frame.header_len);
        let head = Head { frame, bytes };
        checked.map_err(|fault| self.terminate(fault, head.bytes()))?;
        if frame.data_len == 0 {
            rx.expect_small();
        }
        Ok(head)
    }

    /// Ends the connection because of a fault in a PDU.
    pub fn fault(&self, head: &Head, fault: Fault) -> CloseReason {
        self.terminate(fault, head.bytes())
    }

    /// Takes the data of a PDU to its place, which is as long; false when its digest does not
    /// agree.
    pub async fn data(
        &self,
        rx: &mut ReceiveBuffer,
        frame: &Frame,
        into: &Segs,
    ) -> Result<bool, CloseReason> {
        let reads = async {
            rx.skip(frame.pad_len as u64, |_| {}).await?;
            rx.read_into(into, 0, frame.data_len).await?;
            if frame.digest_len == 0 {
                return Ok(true);
            }
            let mut crc = Crc32c::new();
            into.iter().for_each(|seg| seg.with(|b| crc.update(b)));
            Ok(crc.wire() == digest(rx).await?)
        };
        self.within(frame.data_len, reads).await
    }

    /// Takes the data of a PDU into a vector; None when its digest does not agree. The caller
    /// bounds its length.
    pub async fn text(
        &self,
        rx: &mut ReceiveBuffer,
        frame: &Frame,
    ) -> Result<Option<Vec<u8>>, CloseReason> {
        let reads = async {
            let mut out = Vec::with_capacity(frame.data_len);
            rx.skip(frame.pad_len as u64, |_| {}).await?;
            rx.skip(frame.data_len as u64, |b| out.extend_from_slice(b)).await?;
            if frame.digest_len == 0 {
                return Ok(Some(out));
            }
            let agrees = wire::iscsi::crc32c(&out).to_le_bytes() == digest(rx).await?;
            Ok(agrees.then_some(out))
        };
        self.within(frame.data_len, reads).await
    }

    pub async fn drop_data(
        &self,
        rx: &mut ReceiveBuffer,
        frame: &Frame,
    ) -> Result<(), CloseReason> {
        let len = (frame.pad_len + frame.data_len + frame.digest_len) as u64;
        Ok(self.within(frame.data_len, rx.skip(len, |_| {})).await?)
    }
}

async fn digest(rx: &mut ReceiveBuffer) -> Result<[u8; 4], CloseReason> {
    rx.fill(4).await?;
    let digest = rx.peek(4, |b| b.first_chunk::<4>().copied().unwrap_or_default());
    rx.consume(4);
    Ok(digest)
}
