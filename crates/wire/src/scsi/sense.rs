//! Sense data in fixed and descriptor format (SPC-4 section 4.5).

use super::codes::{Asc, Key, asc};
use crate::bytes::Reader;
use crate::error::WireError;

/// Most bytes that [`Sense::encode`] writes: a header and the information, command-specific and
/// sense-key-specific descriptors.
pub const SENSE_LEN_MAX: usize = 40;

const FIXED_LEN: usize = 18;

/// The field that an ILLEGAL REQUEST is about (SPC-4 section 4.5.2.4.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FieldPointer {
    /// In the CDB, not in the parameter list.
    pub in_cdb: bool,
    pub byte: u16,
    /// Most significant bit of the field, 0 to 7; None when the field begins with the byte.
    pub bit: Option<u8>,
}

/// Sense data of a command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sense {
    pub code: Asc,
    /// INFORMATION: the LBA of an error, the offset of a miscompare; None leaves it not valid.
    /// Fixed format holds 32 bits, a larger value is left out there.
    pub information: Option<u64>,
    /// The field at fault; None when there is none.
    pub field: Option<FieldPointer>,
    /// COMMAND-SPECIFIC INFORMATION of a copy that ended early: the segment that did not succeed,
    /// counted from 0 (SPC-4 5.17.7.4). Fixed format cannot leave it out: read from there, a COPY
    /// ABORTED always has one.
    pub segment: Option<u16>,
    /// Reports an earlier command (response code 71h or 73h).
    pub deferred: bool,
    /// Progress of the running operation, of 65536 (NOT READY and NO SENSE only).
    pub progress: Option<u16>,
}

impl From<Asc> for Sense {
    fn from(code: Asc) -> Sense {
        Sense { code, ..Sense::default() }
    }
}

impl Sense {
    /// A sense with nothing but its meaning.
    pub const fn new(code: Asc) -> Sense {
        Sense {
            code,
            information: None,
            field: None,
            segment: None,
            deferred: false,
            progress: None,
        }
    }

    /// INVALID FIELD IN CDB at a byte and, if known, its bit.
    pub const fn cdb_field(byte: u16, bit: Option<u8>) -> Sense {
        let field = Some(FieldPointer { in_cdb: true, byte, bit });
        Sense { field, ..Sense::new(asc::INVALID_FIELD_IN_CDB) }
    }

    /// INVALID FIELD IN PARAMETER LIST at a byte and, if known, its bit.
    pub const fn list_field(byte: u16, bit: Option<u8>) -> Sense {
        let field = Some(FieldPointer { in_cdb: false, byte, bit });
        Sense { field, ..Sense::new(asc::INVALID_FIELD_IN_LIST) }
    }

    /// COPY ABORTED in a segment (counted from 0), with a field of the parameter list.
    pub const fn copy_aborted(code: Asc, segment: u16, field: Option<u16>) -> Sense {
        let field = match field {
            Some(byte) => Some(FieldPointer { in_cdb: false, byte, bit: None }),
            None => None,
        };
        Sense { segment: Some(segment), field, ..Sense::new(code) }
    }

    /// The same with INFORMATION.
    pub const fn with_information(self, information: u64) -> Sense {
        Sense { information: Some(information), ..self }
    }

    /// Writes the sense data, in descriptor format when `descriptor` (the D_SENSE or DESC bit) is
    /// set; answers the bytes written.
    pub fn encode(&self, descriptor: bool, out: &mut [u8; SENSE_LEN_MAX]) -> usize {
        *out = [0; SENSE_LEN_MAX];
        let deferred = u8::from(self.deferred);
        let Asc { key, asc, ascq } = self.code;
        if !descriptor {
            out[0] = 0x70 | deferred;
            if let Some(info) = self.information.and_then(|info| u32::try_from(info).ok()) {
                out[0] |= 0x80;
                crate::bytes::put::<3, 4, SENSE_LEN_MAX>(out, info.to_be_bytes());
            }
            out[2] = key as u8;
            out[7] = (FIXED_LEN - 8) as u8;
            if let Some(segment) = self.segment {
                crate::bytes::put::<10, 2, SENSE_LEN_MAX>(out, segment.to_be_bytes());
            }
            (out[12], out[13]) = (asc, ascq);
            crate::bytes::put::<15, 3, SENSE_LEN_MAX>(out, self.key_specific());
            return FIXED_LEN;
        }
        (out[0], out[1], out[2], out[3]) = (0x72 | deferred, key as u8, asc, ascq);
        let mut len = 8;
        if let Some(info) = self.information {
            let bytes = info.to_be_bytes();
            let parts = [0x00, 0x0a, 0x80, 0].into_iter().chain(bytes);
            out.iter_mut().skip(len).zip(parts).for_each(|(to, from)| *to = from);
            len += 12;
        }
        if let Some(segment) = self.segment {
            let [high, low] = segment.to_be_bytes();
            let parts = [0x01, 0x0a, 0, 0, 0, 0, high, low, 0, 0, 0, 0];
            out.iter_mut().skip(len).zip(parts).for_each(|(to, from)| *to = from);
            len += 12;
        }
        if self.field.is_some() || self.progress.is_some() {
            let [x, y, z] = self.key_specific();
            let parts = [0x02, 0x06, 0, 0, x, y, z, 0];
            out.iter_mut().skip(len).zip(parts).for_each(|(to, from)| *to = from);
            len += 8;
        }
        // At most 32.
        out[7] = u8::try_from(len - 8).unwrap_or(0);
        len
    }

    /// The three bytes of sense-key-specific data.
    fn key_specific(&self) -> [u8; 3] {
        let Some(field) = self.field else {
            let Some(progress) = self.progress else { return [0; 3] };
            let [high, low] = progress.to_be_bytes();
            return [0x80, high, low];
        };
        let cdb = if field.in_cdb { 0x40 } else { 0 };
        let bit = field.bit.map_or(0, |bit| 0x08 | (bit & 7));
        let [high, low] = field.byte.to_be_bytes();
        [0x80 | cdb | bit, high, low]
    }

    /// Reads sense data of either format. Missing bytes after the code are no error: senders cut
    /// sense data; descriptors of other types are passed over.
    pub fn decode(bytes: &[u8]) -> Result<Sense, WireError> {
        let mut reader = Reader::new(bytes);
        let first = reader.u8("RESPONSE CODE")?;
        let deferred = first & 1 != 0;
        match first & 0x7f {
            0x70 | 0x71 => decode_fixed(bytes, first & 0x80 != 0, deferred),
            0x72 | 0x73 => decode_descriptors(bytes, deferred),
            _ => Err(WireError::bad("RESPONSE CODE", 0)),
        }
    }
}

fn key_of(byte: u8, at: u32) -> Result<Key, WireError> {
    Key::from_code(byte & 0x0f).ok_or(WireError::bad("SENSE KEY", at))
}

/// Keys whose sense-key-specific data is a field pointer.
fn points(key: Key) -> bool {
    matches!(key, Key::IllegalRequest | Key::CopyAborted)
}

fn field_of(bytes: &[u8]) -> Option<FieldPointer> {
    let [flags, high, low] = *bytes.first_chunk::<3>()?;
    (flags & 0x80 != 0).then_some(FieldPointer {
        in_cdb: flags & 0x40 != 0,
        byte: u16::from_be_bytes([high, low]),
        bit: (flags & 0x08 != 0).then_some(flags & 7),
    })
}

/// A progress indication, where keys have one.
fn progress_of(key: Key, bytes: &[u8]) -> Option<u16> {
    let [flags, high, low] = *bytes.first_chunk::<3>()?;
    let is_valid = flags & 0x80 != 0 && matches!(key, Key::NotReady | Key::NoSense);
    is_valid.then_some(u16::from_be_bytes([high, low]))
}

fn decode_fixed(bytes: &[u8], valid: bool, deferred: bool) -> Result<Sense, WireError> {
    let mut reader = Reader::new(bytes);
    reader.take(2, "SENSE KEY")?;
    let key = key_of(reader.u8("SENSE KEY")?, 2)?;
    let information = reader.u32("INFORMATION").ok().filter(|_| valid).map(u64::from);
    let asc = bytes.get(12).copied().unwrap_or(0);
    let ascq = bytes.get(13).copied().unwrap_or(0);
    let specific = bytes.get(15..).and_then(field_of);
    let field = specific.filter(|_| points(key));
    let copy = bytes.get(10..).and_then(|rest| rest.first_chunk::<2>());
    let segment = copy.filter(|_| key == Key::CopyAborted).map(|b| u16::from_be_bytes(*b));
    let progress = bytes.get(15..).and_then(|b| progress_of(key, b));
    Ok(Sense { code: Asc { key, asc, ascq }, information, field, segment, deferred, progress })
}

fn decode_descriptors(bytes: &[u8], deferred: bool) -> Result<Sense, WireError> {
    let mut reader = Reader::new(bytes);
    reader.take(1, "RESPONSE CODE")?;
    let key = key_of(reader.u8("SENSE KEY")?, 1)?;
    let (asc, ascq) = (reader.u8("ASC")?, reader.u8("ASCQ")?);
    let mut sense = Sense { deferred, ..Sense::new(Asc { key, asc, ascq }) };
    let Ok([_, _, _, len]) = reader.array::<4>("ADDITIONAL SENSE LENGTH") else {
        return Ok(sense);
    };
    let rest = reader.rest();
    let mut reader = Reader::new(rest.get(..usize::from(len)).unwrap_or(rest));
    while let Ok([kind, len]) = reader.array::<2>("descriptor") {
        let Ok(body) = reader.take(usize::from(len), "descriptor") else { break };
        match kind {
            0x00 if body.first().is_some_and(|flags| flags & 0x80 != 0) => {
                let info = body.get(2..).and_then(|rest| rest.first_chunk::<8>());
                sense.information = info.map(|info| u64::from_be_bytes(*info));
            }
            0x01 if key == Key::CopyAborted => {
                let info = body.get(4..).and_then(|rest| rest.first_chunk::<2>());
                sense.segment = info.map(|info| u16::from_be_bytes(*info));
            }
            0x02 if points(key) => {
                sense.field = body.get(2..).and_then(field_of);
            }
            0x02 => sense.progress = body.get(2..).and_then(|b| progress_of(key, b)),
            _ => {}
        }
    }
    Ok(sense)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fuzzing::Prng;

    #[test]
    fn fixed_format_sense_matches_known_bytes() {
        let mut out = [0xff; SENSE_LEN_MAX];
        let n = Sense::cdb_field(2, Some(7)).encode(false, &mut out);
        let want = [0x70, 0, 5, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0x24, 0, 0, 0xcf, 0, 2];
        assert_eq!(out[..n], want);
        let n = Sense::new(asc::MISCOMPARE).with_information(0x1234).encode(false, &mut out);
        let want = [0xf0, 0, 0xe, 0, 0, 0x12, 0x34, 10, 0, 0, 0, 0, 0x1d, 0, 0, 0, 0, 0];
        assert_eq!(out[..n], want);
    }

    #[test]
    fn descriptor_format_sense_matches_known_bytes() {
        let mut out = [0xff; SENSE_LEN_MAX];
        let sense = Sense::list_field(8, None).with_information(0x1_0000_0000);
        let n = sense.encode(true, &mut out);
        let want = [
            0x72, 5, 0x26, 0, 0, 0, 0, 20, 0, 10, 0x80, 0, 0, 0, 0, 1, 0, 0, 0, 0, 2, 6, 0, 0,
            0x80, 0, 8, 0,
        ];
        assert_eq!(out[..n], want);
        assert_eq!(Sense::decode(&out[..n]), Ok(sense));
        // Too large for fixed format: not valid there.
        let n = sense.encode(false, &mut out);
        assert_eq!(Sense::decode(&out[..n]), Ok(Sense { information: None, ..sense }));
    }

    #[test]
    fn copy_aborted_sense_matches_known_bytes() {
        let mut out = [0xff; SENSE_LEN_MAX];
        let sense = Sense::copy_aborted(asc::COPY_UNREACHABLE, 0x0102, Some(0x30));
        let n = sense.encode(false, &mut out);
        let want = [0x70, 0, 0xa, 0, 0, 0, 0, 10, 0, 0, 1, 2, 0x08, 0x04, 0, 0x80, 0, 0x30];
        assert_eq!(out[..n], want);
        let n = sense.encode(true, &mut out);
        let want = [
            0x72, 0xa, 0x08, 0x04, 0, 0, 0, 20, 1, 10, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 6, 0, 0,
            0x80, 0, 0x30, 0,
        ];
        assert_eq!(out[..n], want);
    }

    #[test]
    fn sense_decodes_as_encoded_and_truncation_never_panics() {
        let mut rng = Prng::new(5);
        for (code, _) in asc::ALL {
            for descriptor in [false, true] {
                let field = points(code.key).then_some(FieldPointer {
                    in_cdb: rng.below(2) == 0,
                    byte: rng.below(65536) as u16,
                    bit: (rng.below(2) == 0).then_some(rng.below(8) as u8),
                });
                let information = (rng.below(2) == 0).then_some(rng.next_u64() >> 32);
                let deferred = rng.below(2) == 0;
                let segment = (code.key == Key::CopyAborted).then(|| rng.below(65536) as u16);
                let progress = matches!(code.key, Key::NotReady | Key::NoSense)
                    .then_some(rng.below(65536) as u16);
                let sense = Sense { code: *code, information, field, segment, deferred, progress };
                let mut out = [0; SENSE_LEN_MAX];
                let n = sense.encode(descriptor, &mut out);
                assert_eq!(Sense::decode(&out[..n]), Ok(sense));
                for cut in 0..n {
                    let short = Sense::decode(&out[..cut]);
                    assert!(short.is_err() || short.unwrap().code.key == code.key);
                }
            }
        }
        assert!(Sense::decode(&[0x7f, 0, 0, 0]).is_err());
    }
}
