//! SCSI commands that we send (SBC-4), for protocols whose requests become SCSI commands.

/// A CDB of 16 bytes.
pub type Cdb = [u8; 16];

const FUA: u8 = 1 << 3;

/// Opcode, the byte behind it, LBA and blocks of a command of 16 bytes.
pub(crate) fn cdb(opcode: u8, flags: u8, lba: u64, blocks: u32) -> Cdb {
    let [a, b, c, d, e, f, g, h] = lba.to_be_bytes();
    let [w, x, y, z] = blocks.to_be_bytes();
    [opcode, flags, a, b, c, d, e, f, g, h, w, x, y, z, 0, 0]
}

/// READ(16).
pub fn read(lba: u64, blocks: u32, fua: bool) -> Cdb {
    cdb(0x88, if fua { FUA } else { 0 }, lba, blocks)
}

/// WRITE(16).
pub fn write(lba: u64, blocks: u32, fua: bool) -> Cdb {
    cdb(0x8a, if fua { FUA } else { 0 }, lba, blocks)
}

/// VERIFY(16): of the medium, or with `compare` against data that is sent (BYTCHK 1).
pub fn verify(lba: u64, blocks: u32, compare: bool) -> Cdb {
    cdb(0x8f, if compare { 1 << 1 } else { 0 }, lba, blocks)
}

/// COMPARE AND WRITE: twice as many blocks are sent, to compare and to write.
pub fn compare_write(lba: u64, blocks: u8, fua: bool) -> Cdb {
    let mut cdb = cdb(0x89, if fua { FUA } else { 0 }, lba, 0);
    cdb[13] = blocks;
    cdb
}

/// SYNCHRONIZE CACHE(16) of the whole unit.
pub fn flush() -> Cdb {
    cdb(0x91, 0, 0, 0)
}

/// PRE-FETCH(16) with IMMED: the status does not wait for the transfer.
pub fn pre_fetch(lba: u64, blocks: u32) -> Cdb {
    cdb(0x90, 1 << 1, lba, blocks)
}

/// WRITE SAME(16) of zeroes without data (NDOB); `unmap` deallocates the blocks.
pub fn write_zeroes(lba: u64, blocks: u32, unmap: bool) -> Cdb {
    cdb(0x93, 1 | if unmap { 1 << 3 } else { 0 }, lba, blocks)
}

pub fn unmap(len: u16) -> Cdb {
    let mut cdb = [0; 16];
    let [high, low] = len.to_be_bytes();
    (cdb[0], cdb[7], cdb[8]) = (0x42, high, low);
    cdb
}

/// How an UNMAP parameter list of so many descriptors begins.
pub fn unmap_head(descriptors: u16) -> [u8; 8] {
    let bytes = descriptors.saturating_mul(16);
    let ([a, b], [c, d]) = (bytes.saturating_add(6).to_be_bytes(), bytes.to_be_bytes());
    [a, b, c, d, 0, 0, 0, 0]
}

/// A run of blocks in an UNMAP parameter list.
pub fn unmap_descriptor(lba: u64, blocks: u32) -> [u8; 16] {
    let mut out = [0; 16];
    let bytes = lba.to_be_bytes().into_iter().chain(blocks.to_be_bytes());
    out.iter_mut().zip(bytes).for_each(|(to, from)| *to = from);
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scsi::{Command, Extent, UnmapList};

    #[test]
    fn built_commands_are_parsed_as_intended() {
        let extent = |fua| Extent { lba: 1 << 40, blocks: 7, fua, ..Extent::default() };
        assert_eq!(Command::parse(&compare_write(1 << 40, 7, true)), {
            Ok(Command::CompareWrite(extent(true)))
        });
        for (compare, check) in [(false, 0), (true, 1)] {
            let want = Command::Verify { extent: extent(false), check };
            assert_eq!(Command::parse(&verify(1 << 40, 7, compare)), Ok(want));
        }
        let list = [&unmap_head(2)[..], &unmap_descriptor(5, 6), &unmap_descriptor(9, 1)].concat();
        let cdb = unmap(u16::try_from(list.len()).unwrap());
        assert!(matches!(Command::parse(&cdb), Ok(Command::Unmap { anchor: false, len: 40 })));
        let runs = UnmapList::parse(&list).unwrap().iter().map(|run| (run.lba, run.blocks));
        assert_eq!(runs.collect::<Vec<_>>(), [(5, 6), (9, 1)]);
    }
}
