//! CEC, the console over Ethernet of the first file servers: one message a frame.

use crate::aoe::Mac;
use crate::bytes::Reader;
use crate::error::WireError;

/// The type of its frames.
pub const CEC_ETHERTYPE: u16 = 0xbcbc;
/// Bytes before the data, the Ethernet header included.
pub const CEC_HEAD_LEN: usize = 18;
pub const CEC_DATA_MAX: usize = 255;

/// The type of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CecKind {
    /// A client requests a connection.
    InitA,
    /// The console has accepted it.
    InitB,
    /// The client confirms the connection.
    InitC,
    /// Typed characters, or output to display.
    Data,
    /// Acknowledges the data of that number.
    Ack,
    /// Requests a console list.
    Discover,
    /// The answer of a console: its shelf (-1: none) and its name.
    Offer,
    /// The connection is closed.
    Reset,
}

const KINDS: [CecKind; 8] = [
    CecKind::InitA,
    CecKind::InitB,
    CecKind::InitC,
    CecKind::Data,
    CecKind::Ack,
    CecKind::Discover,
    CecKind::Offer,
    CecKind::Reset,
];

/// A message with its Ethernet header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CecFrame<'a> {
    /// The receiver.
    pub to: Mac,
    /// The sender.
    pub from: Mac,
    /// The type of the message.
    pub kind: CecKind,
    /// The connection's number, chosen by the client.
    pub conn: u8,
    /// The data's number.
    pub seq: u8,
    /// At most [`CEC_DATA_MAX`] bytes.
    pub data: &'a [u8],
}

impl<'a> CecFrame<'a> {
    /// Reads a frame; padding is left out.
    pub fn decode(frame: &'a [u8]) -> Result<CecFrame<'a>, WireError> {
        let mut reader = Reader::new(frame);
        let mut mac = |field| {
            let mut out = [0; 6];
            out.copy_from_slice(reader.take(6, field)?);
            Ok(Mac(out))
        };
        let (to, from) = (mac("dst")?, mac("src")?);
        if reader.u16("type")? != CEC_ETHERTYPE {
            return Err(WireError::bad("type", 12));
        }
        let kind = usize::from(reader.u8("message")?);
        let kind = *KINDS.get(kind).ok_or(WireError::bad("message", 14))?;
        let (conn, seq) = (reader.u8("conn")?, reader.u8("seq")?);
        let len = usize::from(reader.u8("len")?);
        let data = reader.take(len, "data")?;
        Ok(CecFrame { to, from, kind, conn, seq, data })
    }

    /// The frame without padding. Data beyond [`CEC_DATA_MAX`] bytes is left out.
    pub fn encode(&self) -> Vec<u8> {
        let data = self.data.get(..CEC_DATA_MAX).unwrap_or(self.data);
        let mut out = Vec::with_capacity(CEC_HEAD_LEN + data.len());
        out.extend_from_slice(&self.to.0);
        out.extend_from_slice(&self.from.0);
        out.extend_from_slice(&CEC_ETHERTYPE.to_be_bytes());
        out.extend_from_slice(&[self.kind as u8, self.conn, self.seq, data.len() as u8]);
        out.extend_from_slice(data);
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_match_the_layout_of_the_first_consoles() {
        let offer = CecFrame {
            to: Mac([2, 0, 0, 0, 0, 1]),
            from: Mac([2, 0, 0, 0, 0, 2]),
            kind: CecKind::Offer,
            conn: 7,
            seq: 3,
            data: b"-1 main",
        };
        let bytes = offer.encode();
        let head = [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0xbc, 0xbc, 6, 7, 3, 7];
        assert_eq!(bytes, [&head[..], b"-1 main"].concat());
        let filled = [&bytes[..], &[0; 40]].concat();
        assert_eq!(CecFrame::decode(&filled), Ok(offer));
        assert!(CecFrame::decode(&bytes[..24]).is_err());
        for (at, byte) in [(12, 0), (14, 8), (17, 200)] {
            let mut wrong = bytes.clone();
            wrong[at] = byte;
            assert!(CecFrame::decode(&wrong).is_err(), "{at}");
        }
    }
}
