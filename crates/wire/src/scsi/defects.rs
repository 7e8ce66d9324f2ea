//! READ DEFECT DATA, as initiators read it (SBC-3 5.12, 6.2).

use crate::bytes::Reader;
use crate::error::{Kind, WireError};

/// Most defects that are read; a device that lists more is believed so far.
pub const DEFECTS_MAX: usize = 65_536;

/// ADDRESS DESCRIPTOR FORMAT.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum DefectFormat {
    /// 000b: blocks, 32 bits.
    Block = 0,
    /// 011b: blocks, 64 bits.
    LongBlock = 3,
    /// 100b: cylinder, head, bytes from index.
    BytesFromIndex = 4,
    /// 101b: cylinder, head, sector.
    PhysicalSector = 5,
}

impl DefectFormat {
    /// By its code.
    pub const fn from_code(code: u8) -> Option<DefectFormat> {
        Some(match code {
            0 => DefectFormat::Block,
            3 => DefectFormat::LongBlock,
            4 => DefectFormat::BytesFromIndex,
            5 => DefectFormat::PhysicalSector,
            _ => return None,
        })
    }

    const fn len(self) -> usize {
        if matches!(self, DefectFormat::Block) { 4 } else { 8 }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Defect {
    Block(u64),
    /// Cylinder, head, and bytes from index or sector; all ones: the whole track.
    Place(u32, u8, u32),
}

/// The defect data that a device returned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Defects {
    /// It may differ from the requested one.
    pub format: DefectFormat,
    /// PLISTV: those of the factory are in it.
    pub primary: bool,
    /// GLISTV: the list contains grown defects.
    pub grown: bool,
    /// Number of defects that the device reports.
    pub count: usize,
    /// Received descriptors.
    pub list: Vec<Defect>,
}

impl Defects {
    /// Reads the answer to READ DEFECT DATA(12), or (10).
    pub fn decode(twelve: bool, data: &[u8]) -> Result<Defects, WireError> {
        let mut reader = Reader::new(data);
        let [_, flags] = reader.array("DEFECT LIST FORMAT")?;
        let format = DefectFormat::from_code(flags & 7);
        let format = format.ok_or(WireError::new(Kind::Unsupported, "DEFECT LIST FORMAT", 1))?;
        let bytes = match twelve {
            true => {
                reader.take(2, "GENERATION CODE")?;
                reader.u32("DEFECT LIST LENGTH")? as usize
            }
            false => usize::from(reader.u16("DEFECT LIST LENGTH")?),
        };
        if !bytes.is_multiple_of(format.len()) {
            return Err(WireError::bad("DEFECT LIST LENGTH", 2));
        }
        let mut list = Vec::new();
        while reader.rest().len() >= format.len() && list.len() < bytes / format.len() {
            if list.len() >= DEFECTS_MAX {
                break;
            }
            list.push(match format {
                DefectFormat::Block => Defect::Block(u64::from(reader.u32("defect")?)),
                DefectFormat::LongBlock => Defect::Block(reader.u64("defect")?),
                _ => {
                    let [a, b, c, head] = reader.array("defect")?;
                    let cylinder = u32::from_be_bytes([0, a, b, c]);
                    Defect::Place(cylinder, head, reader.u32("defect")?)
                }
            });
        }
        let (primary, grown) = (flags & 0x10 != 0, flags & 0x08 != 0);
        Ok(Defects { format, primary, grown, count: bytes / format.len(), list })
    }

    /// The answer of a device that has these.
    pub fn encode(&self, twelve: bool) -> Vec<u8> {
        let flags = u8::from(self.primary) << 4 | u8::from(self.grown) << 3 | self.format as u8;
        let bytes = self.count * self.format.len();
        let mut out = match twelve {
            true => {
                let [a, b, c, d] = u32::try_from(bytes).unwrap_or(u32::MAX).to_be_bytes();
                vec![0, flags, 0, 0, a, b, c, d]
            }
            false => {
                let [a, b] = u16::try_from(bytes).unwrap_or(u16::MAX).to_be_bytes();
                vec![0, flags, a, b]
            }
        };
        for one in &self.list {
            match (*one, self.format) {
                (Defect::Block(lba), DefectFormat::Block) => {
                    out.extend(u32::try_from(lba).unwrap_or(u32::MAX).to_be_bytes());
                }
                (Defect::Block(lba), _) => out.extend(lba.to_be_bytes()),
                (Defect::Place(cylinder, head, at), _) => {
                    let [_, a, b, c] = cylinder.to_be_bytes();
                    out.extend([a, b, c, head]);
                    out.extend(at.to_be_bytes());
                }
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defect_lists_match_known_bytes() {
        let data = [0, 0x1d, 0, 16, 0, 1, 2, 3, 0, 0, 0, 9, 0, 0, 4, 1, 0xff, 0xff, 0xff, 0xff];
        let decoded = Defects::decode(false, &data).unwrap();
        assert_eq!(decoded.list, [Defect::Place(258, 3, 9), Defect::Place(4, 1, u32::MAX)]);
        assert!(decoded.primary && decoded.grown && decoded.count == 2);
        assert_eq!(decoded.encode(false), data);
        let data = [0, 0x0b, 0, 0, 0, 0, 0, 16, 0, 0, 0, 1, 0, 0, 0, 2];
        let decoded = Defects::decode(true, &data).unwrap();
        assert_eq!(
            (decoded.count, decoded.list.as_slice()),
            (2, &[Defect::Block(0x1_0000_0002)][..])
        );
        assert_eq!(Defects::decode(false, &[0, 2, 0, 0]).unwrap_err().field, "DEFECT LIST FORMAT");
        assert_eq!(Defects::decode(false, &[0, 0, 0, 5]).unwrap_err().field, "DEFECT LIST LENGTH");
        assert_eq!(Defects::decode(true, &[0, 0, 0]).unwrap_err().field, "GENERATION CODE");
    }
}
