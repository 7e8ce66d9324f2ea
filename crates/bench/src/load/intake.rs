//! Bytes of a connection become PDUs, in pieces as they arrive: data is never stored here.

use wire::iscsi::{BHS_LEN, Bhs, Crc32c, Framer, Need};

use crate::error::{Error, Kind};

/// Space for a header: BHS and digest. Targets send no additional headers (`ahs_len_max` is 0).
const HEAD_MAX: usize = BHS_LEN + 4;

/// Receiver of the pieces of a PDU: one header, any number of pieces of data, one end.
pub(crate) trait Taker {
    /// A header; its digest agrees.
    fn header(&mut self, bhs: &Bhs) -> Result<(), Error>;
    fn data(&mut self, bytes: &[u8]) -> Result<(), Error>;
    /// The PDU is over; its data digest agrees. How the next PDU is framed, when that changes.
    fn end(&mut self) -> Result<Option<Framer>, Error>;
}

/// The parser.
///
/// ```text
///   Head --(header whole)--> Data --> Pad --> Digest --(end)--> Head
/// ```
pub(crate) struct Intake {
    framer: Framer,
    head: [u8; HEAD_MAX],
    have: usize,
    state: ParseState,
    crc: Crc32c,
    digest: [u8; 4],
}

enum ParseState {
    /// Bytes of the header needed in all.
    Head(usize),
    /// Bytes of data, padding and digest still to be received.
    Tail { data: usize, pad: usize, digest: usize, signed: bool },
}

impl Intake {
    pub fn new(framer: Framer) -> Intake {
        Intake {
            framer,
            head: [0; HEAD_MAX],
            have: 0,
            state: ParseState::Head(BHS_LEN),
            crc: Crc32c::new(),
            digest: [0; 4],
        }
    }

    /// Takes bytes as they were received.
    pub fn push_bytes(&mut self, mut bytes: &[u8], taker: &mut impl Taker) -> Result<(), Error> {
        while !bytes.is_empty() {
            bytes = match self.state {
                ParseState::Head(need) => self.head(need, bytes, taker)?,
                ParseState::Tail { data, .. } if data > 0 => self.data(data, bytes, taker)?,
                ParseState::Tail { .. } => self.trailer(bytes),
            };
            if matches!(self.state, ParseState::Tail { data: 0, pad: 0, digest: 0, .. }) {
                self.over(taker)?;
            }
        }
        Ok(())
    }

    fn head<'a>(
        &mut self,
        need: usize,
        bytes: &'a [u8],
        taker: &mut impl Taker,
    ) -> Result<&'a [u8], Error> {
        let (piece, rest) = bytes.split_at(bytes.len().min(need.saturating_sub(self.have)));
        let end = self.have + piece.len();
        let place = self.head.get_mut(self.have..end);
        place.ok_or(Error::new(Kind::Protocol, "a header is too long"))?.copy_from_slice(piece);
        self.have = end;
        if self.have < need {
            return Ok(rest);
        }
        match self.framer.header(self.head.get(..self.have).unwrap_or(&[]))? {
            Need::Bytes(more) => self.state = ParseState::Head(more),
            Need::Header(frame) => {
                let signed = frame.digest_len > 0;
                self.state = ParseState::Tail {
                    data: frame.data_len,
                    pad: frame.pad_len,
                    digest: frame.digest_len,
                    signed,
                };
                self.crc = Crc32c::new();
                self.have = 0;
                let bhs = self.head.first_chunk::<BHS_LEN>();
                taker.header(bhs.unwrap_or(&[0; BHS_LEN]))?;
            }
        }
        Ok(rest)
    }

    fn data<'a>(
        &mut self,
        left: usize,
        bytes: &'a [u8],
        taker: &mut impl Taker,
    ) -> Result<&'a [u8], Error> {
        let (piece, rest) = bytes.split_at(bytes.len().min(left));
        if let ParseState::Tail { data, signed, .. } = &mut self.state {
            *data -= piece.len();
            if *signed {
                self.crc.update(piece);
            }
        }
        taker.data(piece)?;
        Ok(rest)
    }

    fn trailer<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let ParseState::Tail { pad, digest, .. } = &mut self.state else { return bytes };
        let (padding, rest) = bytes.split_at(bytes.len().min(*pad));
        *pad -= padding.len();
        self.crc.update(if *digest > 0 { padding } else { &[] });
        let (sum, rest) = rest.split_at(if *pad > 0 { 0 } else { rest.len().min(*digest) });
        for byte in sum {
            self.digest.rotate_left(1);
            self.digest[3] = *byte;
            *digest -= 1;
        }
        rest
    }

    fn over(&mut self, taker: &mut impl Taker) -> Result<(), Error> {
        if matches!(self.state, ParseState::Tail { signed: true, .. }) {
            self.framer.check_data(self.crc, self.digest)?;
        }
        self.state = ParseState::Head(BHS_LEN);
        if let Some(framer) = taker.end()? {
            self.framer = framer;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::iscsi::{Pdu, TAG_NONE, crc32c};

    #[derive(Default, PartialEq, Debug, Clone)]
    struct Seen(Vec<(Vec<u8>, Vec<u8>)>, usize);

    impl Taker for Seen {
        fn header(&mut self, bhs: &Bhs) -> Result<(), Error> {
            self.0.push((bhs.to_vec(), Vec::new()));
            Ok(())
        }

        fn data(&mut self, bytes: &[u8]) -> Result<(), Error> {
            self.0.last_mut().expect("a header came first").1.extend_from_slice(bytes);
            Ok(())
        }

        fn end(&mut self) -> Result<Option<Framer>, Error> {
            self.1 += 1;
            Ok(None)
        }
    }

    fn framer(digests: bool) -> Framer {
        Framer {
            header_digest: digests,
            data_digest: digests,
            data_len_max: 1 << 16,
            ahs_len_max: 0,
        }
    }

    fn stream(digests: bool) -> (Vec<u8>, Seen) {
        let (mut bytes, mut seen) = (Vec::new(), Seen::default());
        for len in [0u32, 1, 2, 3, 4, 48, 301] {
            let nop =
                wire::iscsi::NopIn { task_tag: TAG_NONE, data_len: len, ..Default::default() };
            let mut bhs = [0; BHS_LEN];
            nop.encode(&mut bhs);
            let data: Vec<u8> = (0..len).map(|n| (n * 7) as u8).collect();
            bytes.extend_from_slice(&bhs);
            if digests {
                bytes.extend_from_slice(&crc32c(&bhs).to_le_bytes());
            }
            let mut padded = data.clone();
            padded.resize(data.len().next_multiple_of(4), 0);
            bytes.extend_from_slice(&padded);
            if digests && len > 0 {
                bytes.extend_from_slice(&crc32c(&padded).to_le_bytes());
            }
            seen.0.push((bhs.to_vec(), data));
            seen.1 += 1;
        }
        (bytes, seen)
    }

    #[test]
    fn segmentation_of_the_stream_does_not_change_the_pdus() {
        for digests in [false, true] {
            let (bytes, wanted) = stream(digests);
            for step in (1..60).chain([bytes.len()]) {
                let mut seen = Seen::default();
                let mut intake = Intake::new(framer(digests));
                for piece in bytes.chunks(step) {
                    intake.push_bytes(piece, &mut seen).unwrap();
                }
                assert_eq!(seen, wanted, "step {step}");
            }
        }
    }

    #[test]
    fn digests_detect_every_changed_byte() {
        let (bytes, _) = stream(true);
        for at in 0..bytes.len() {
            let mut bad = bytes.clone();
            bad[at] ^= 0x10;
            let mut seen = Seen::default();
            assert!(Intake::new(framer(true)).push_bytes(&bad, &mut seen).is_err(), "byte {at}");
        }
    }
}
