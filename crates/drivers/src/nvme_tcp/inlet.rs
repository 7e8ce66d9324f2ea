//! PDUs out of what has arrived on one connection.

use bio::{Seg, Segs};
use reactor::Stream;
use wire::iscsi::Crc32c;
use wire::nvme::{COMMON_LEN, Fault, Frame};

use super::connection::Connection;
use super::ending::Ending;
use crate::common::cause::Cause;
use crate::common::inbox::{Inbox, Source};

/// Where bytes come from.
pub(crate) struct Line(pub Stream);

impl Source for Line {
    type Error = Ending;

    async fn receive(&mut self, room: &Seg) -> Result<usize, Ending> {
        self.0.recv(room).await.map_err(|e| Cause::lost(&e).into())
    }

    fn plain(&self) -> Option<&Stream> {
        Some(&self.0)
    }
}

/// Receives for one connection.
pub(crate) type Inlet = Inbox<Line>;

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
    /// The next PDU's header, whole and verified. A bad one is told to the host.
    pub async fn head(&self, inlet: &mut Inlet) -> Result<Head, Ending> {
        inlet.fill(1).await?;
        let framer = self.framer.get();
        // What has begun is to end.
        let core = &self.here.core;
        self.pace.awaited(core, HEADER_MAX, inlet.fill(COMMON_LEN)).await?;
        let common = inlet.with(COMMON_LEN, |b| b.first_chunk().copied().unwrap_or_default());
        let frame = framer.frame(&common).map_err(|fault| self.terminate(fault, &common))?;
        self.pace.awaited(core, HEADER_MAX, inlet.fill(frame.header_len)).await?;
        let mut bytes = [0; HEADER_MAX];
        let checked = inlet.with(frame.header_len, |b| {
            bytes.iter_mut().zip(b).for_each(|(to, from)| *to = *from);
            framer.check(&frame, b)
        });
        inlet.take(frame.header_len);
        let head = Head { frame, bytes };
        checked.map_err(|fault| self.terminate(fault, head.bytes()))?;
        if frame.data_len == 0 {
            inlet.expect_small();
        }
        Ok(head)
    }

    /// A PDU that may not be what it is.
    pub fn fault(&self, head: &Head, fault: Fault) -> Ending {
        self.terminate(fault, head.bytes())
    }

    /// Takes the data of a PDU to its place, which is as long; false when its digest does not
    /// agree.
    pub async fn data(
        &self,
        inlet: &mut Inlet,
        frame: &Frame,
        into: &Segs,
    ) -> Result<bool, Ending> {
        let reads = async {
            inlet.skip(frame.pad_len as u64, |_| {}).await?;
            inlet.read_into(into, 0, frame.data_len).await?;
            if frame.digest_len == 0 {
                return Ok(true);
            }
            let mut crc = Crc32c::new();
            into.iter().for_each(|seg| seg.with(|b| crc.update(b)));
            Ok(crc.wire() == digest(inlet).await?)
        };
        self.pace.awaited(&self.here.core, frame.data_len, reads).await
    }

    /// Takes the data of a PDU into a vector; None when its digest does not agree. The caller
    /// bounds its length.
    pub async fn text(&self, inlet: &mut Inlet, frame: &Frame) -> Result<Option<Vec<u8>>, Ending> {
        let reads = async {
            let mut out = Vec::with_capacity(frame.data_len);
            inlet.skip(frame.pad_len as u64, |_| {}).await?;
            inlet.skip(frame.data_len as u64, |b| out.extend_from_slice(b)).await?;
            if frame.digest_len == 0 {
                return Ok(Some(out));
            }
            let agrees = wire::iscsi::crc32c(&out).to_le_bytes() == digest(inlet).await?;
            Ok(agrees.then_some(out))
        };
        self.pace.awaited(&self.here.core, frame.data_len, reads).await
    }

    /// Takes and drops the data of a PDU.
    pub async fn drop_data(&self, inlet: &mut Inlet, frame: &Frame) -> Result<(), Ending> {
        let len = (frame.pad_len + frame.data_len + frame.digest_len) as u64;
        self.pace.awaited(&self.here.core, frame.data_len, inlet.skip(len, |_| {})).await
    }
}

async fn digest(inlet: &mut Inlet) -> Result<[u8; 4], Ending> {
    inlet.fill(4).await?;
    let digest = inlet.with(4, |b| b.first_chunk::<4>().copied().unwrap_or_default());
    inlet.take(4);
    Ok(digest)
}
