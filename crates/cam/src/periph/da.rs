//! da: disks that speak SCSI; cd: discs, which are only read.

use bio::{Attr, Bio, Errno, Flags as BioFlags, Op, Pool, Segs};
use geom::Limits;
use wire::scsi::{UnmapDescriptor, UnmapList};

use super::{CommandSet, Disk, DiskCommand, RW_TIMEOUT_MS, shape};
use crate::ccb::{Command, Flags};
use crate::device::Queueing;
use crate::probe::ScsiFacts;

/// FUA of READ and WRITE.
const FUA: u8 = 0x08;
/// UNMAP of WRITE SAME.
const UNMAP: u8 = 0x08;
/// Openings of a disk that queues commands and reports no number.
const OPENINGS_MAX: u32 = 64;
/// Most descriptors of one UNMAP, where the disk takes more.
const DESCRIPTORS_MAX: u32 = 256;
/// PERIPHERAL DEVICE TYPE of disks.
const DISK: u8 = 0;
/// And of CD and DVD drives: `cd`.
const CDROM: u8 = 5;

/// How blocks are given back, in the order of preference.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Delete {
    None,
    Unmap,
    Same16,
    Same10,
}

struct Scsi {
    block_len: u32,
    delete: Delete,
    /// Ranges that one command takes back.
    ranges: u32,
    fua: bool,
    cache: bool,
    optical: bool,
}

/// The disk that these facts describe; none without a medium.
pub(super) fn disk(facts: &ScsiFacts, io_max_bytes: u32) -> Option<Disk> {
    let capacity = facts.capacity.filter(|_| matches!(facts.inquiry.kind, DISK | CDROM))?;
    let optical = facts.inquiry.kind == CDROM;
    let block_len = capacity.block_len;
    let delete = match &facts.limits {
        _ if optical => Delete::None,
        l if l.unmap => Delete::Unmap,
        l if l.unmap_same16 => Delete::Same16,
        l if l.unmap_same10 => Delete::Same10,
        _ => Delete::None,
    };
    let blocks = |n: u64, most: u64| if n == 0 { most } else { n.min(most) };
    let most = match delete {
        Delete::Same10 => blocks(facts.limits.write_same_max, 0xffff),
        Delete::Same16 => blocks(facts.limits.write_same_max, u64::from(u32::MAX)),
        _ => blocks(u64::from(facts.limits.unmap_blocks_max), u64::from(u32::MAX)),
    };
    let transfer = blocks(u64::from(facts.limits.transfer_max), 0xffff) * u64::from(block_len);
    let io_max = u64::from(io_max_bytes).min(transfer).max(u64::from(block_len));
    Some(Disk {
        prefix: if optical { "cd" } else { "da" },
        command_set: Box::new(Scsi {
            block_len,
            delete,
            ranges: match delete {
                Delete::Unmap => facts.limits.unmap_descriptors_max.clamp(1, DESCRIPTORS_MAX),
                _ => 1,
            },
            fua: facts.mode.fua,
            // One that reports none has one.
            cache: facts.mode.write_cache != Some(false) && !optical,
            optical,
        }),
        limits: Limits {
            media_bytes: capacity.blocks * u64::from(block_len),
            sector_bytes: block_len,
            io_max_bytes: u32::try_from(io_max).unwrap_or(io_max_bytes),
            delete_max_bytes: most * u64::from(block_len),
        },
        shape: match facts.inquiry.queues {
            true => shape(Queueing::Tagged, OPENINGS_MAX),
            false => shape(Queueing::Untagged, 1),
        },
        stripe_bytes: u64::from(block_len) << capacity.physical_exponent,
        read_only: facts.mode.write_protected || optical,
        attrs: attrs(facts, capacity.blocks, u64::from(block_len), delete),
    })
}

fn attrs(
    facts: &ScsiFacts,
    blocks: u64,
    block_len: u64,
    delete: Delete,
) -> Vec<(&'static str, Attr)> {
    let text = |t: &str| Attr::Text(t.to_string());
    let inquiry = &facts.inquiry;
    let zeros = delete != Delete::None && facts.limits.zeros;
    let mut attrs = vec![
        ("GEOM::ident", text(&facts.serial)),
        ("GEOM::descr", text(&format!("{} {}", inquiry.vendor, inquiry.product))),
        ("GEOM::lunid", text(&facts.names.id)),
        ("GEOM::lunname", text(&facts.names.name)),
        ("GEOM::rotation_rate", Attr::Int(u64::from(facts.rotation))),
        ("GEOM::candelete", Attr::Int(u64::from(delete != Delete::None))),
        ("GEOM::deletereadszero", Attr::Int(u64::from(zeros))),
    ];
    let granule = u64::from(facts.limits.unmap_granularity);
    // One that is larger than the disk would free nothing.
    if delete != Delete::None && (1..=blocks).contains(&granule) {
        let first = u64::from(facts.limits.unmap_alignment.unwrap_or(0)) % granule;
        attrs.push(("DISK::delete_granule", Attr::Int(granule * block_len)));
        attrs.push(("DISK::delete_offset", Attr::Int(first * block_len)));
    }
    attrs
}

impl Scsi {
    fn blocks(&self, bytes: u64) -> u64 {
        bytes / u64::from(self.block_len)
    }

    /// READ or WRITE, in ten bytes where they suffice.
    fn transfer(&self, ops: (u8, u8), lba: u64, blocks: u64, bits: u8) -> Result<Command, Errno> {
        Ok(match (u32::try_from(lba), u16::try_from(blocks)) {
            (Ok(lba), Ok(blocks)) => {
                let ([a, b, c, d], [e, f]) = (lba.to_be_bytes(), blocks.to_be_bytes());
                Command::scsi(&[ops.0, bits, a, b, c, d, 0, e, f, 0])
            }
            _ => {
                let blocks = u32::try_from(blocks).map_err(|_| Errno::Inval)?;
                let mut cdb = vec16(ops.1, bits);
                cdb[2..10].copy_from_slice(&lba.to_be_bytes());
                cdb[10..14].copy_from_slice(&blocks.to_be_bytes());
                Command::scsi(&cdb)
            }
        })
    }

    fn delete(&self, bio: &mut Bio, pool: &Pool) -> Result<DiskCommand, Errno> {
        let (lba, blocks) = (self.blocks(bio.offset), self.blocks(bio.length));
        let (command, list) = match self.delete {
            Delete::None => return Err(Errno::NotSup),
            Delete::Unmap => {
                let runs = bio.ranges().map(|run| {
                    let blocks = u32::try_from(self.blocks(run.end - run.start));
                    let blocks = blocks.map_err(|_| Errno::Inval)?;
                    Ok(UnmapDescriptor { lba: self.blocks(run.start), blocks })
                });
                let list = UnmapList::encode(&runs.collect::<Result<Vec<_>, Errno>>()?);
                let [high, low] = (list.len() as u16).to_be_bytes();
                (Command::scsi(&[0x42, 0, 0, 0, 0, 0, 0, high, low, 0]), list)
            }
            Delete::Same16 | Delete::Same10 => {
                let ops = if self.delete == Delete::Same16 { (0x93, 0x93) } else { (0x41, 0x93) };
                let command = match self.delete {
                    Delete::Same16 => {
                        let blocks = u32::try_from(blocks).map_err(|_| Errno::Inval)?;
                        let mut cdb = vec16(ops.1, UNMAP);
                        cdb[2..10].copy_from_slice(&lba.to_be_bytes());
                        cdb[10..14].copy_from_slice(&blocks.to_be_bytes());
                        Command::scsi(&cdb)
                    }
                    _ => self.transfer(ops, lba, blocks, UNMAP)?,
                };
                (command, vec![0; self.block_len as usize])
            }
        };
        let data = Segs::alloc(pool, list.len()).ok_or(Errno::NoMem)?;
        data.copy_from(0, &list);
        bio.data = data;
        Ok(DiskCommand { command, flags: Flags::OUT, length: list.len() as u32 })
    }
}

fn vec16(op: u8, bits: u8) -> [u8; 16] {
    let mut cdb = [0; 16];
    (cdb[0], cdb[1]) = (op, bits);
    cdb
}

impl CommandSet for Scsi {
    fn command(&self, bio: &mut Bio, pool: &Pool) -> Result<DiskCommand, Errno> {
        let (lba, blocks) = (self.blocks(bio.offset), self.blocks(bio.length));
        let fua = if self.fua && bio.flags.has(BioFlags::FUA) { FUA } else { 0 };
        let length = u32::try_from(bio.length).map_err(|_| Errno::Inval);
        match bio.op {
            Op::Read => {
                let command = self.transfer((0x28, 0x88), lba, blocks, 0)?;
                Ok(DiskCommand { command, flags: Flags::IN, length: length? })
            }
            Op::Write => {
                let command = self.transfer((0x2a, 0x8a), lba, blocks, fua)?;
                Ok(DiskCommand { command, flags: Flags::OUT, length: length? })
            }
            Op::Flush => self.flush().ok_or(Errno::NotSup),
            Op::Delete => self.delete(bio, pool),
            Op::GetAttr => Err(Errno::NoAttr),
            // The layers above write zeroes themselves.
            Op::WriteZeroes | Op::Map => Err(Errno::NotSup),
        }
    }

    fn delete_ranges(&self) -> u32 {
        self.ranges
    }

    fn flush(&self) -> Option<DiskCommand> {
        if self.optical {
            return None;
        }
        let command = Command::scsi(&[0x35, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        Some(DiskCommand { command, flags: Flags::NONE, length: 0 })
    }

    fn has_cache(&self) -> bool {
        self.cache
    }

    fn has_fua(&self) -> bool {
        self.fua
    }

    fn block_bytes(&self) -> Option<u64> {
        Some(u64::from(self.block_len))
    }

    fn timeout_ms(&self) -> u32 {
        RW_TIMEOUT_MS
    }
}

#[cfg(test)]
mod tests {
    use bio::PoolConfig;
    use wire::scsi::{Capacity, Inquiry, Limits as Page};

    use super::*;

    /// Facts of a device of a kind that takes blocks back in every way, has a cache, and receives
    /// FUA.
    fn eager(kind: u8) -> ScsiFacts {
        let limits =
            Page { unmap: true, unmap_same16: true, unmap_same10: true, ..Page::default() };
        ScsiFacts {
            inquiry: Inquiry { kind, ..Inquiry::default() },
            limits: Page { unmap_descriptors_max: 8, unmap_granularity: 2, ..limits },
            mode: wire::scsi::DiskMode { write_cache: Some(true), ..Default::default() },
            capacity: Some(Capacity { blocks: 64, block_len: 2048, ..Capacity::default() }),
            ..ScsiFacts::default()
        }
    }

    #[test]
    fn optical_discs_support_neither_deletes_nor_a_write_cache() {
        let pool = Pool::new(PoolConfig { limit_bytes: 1 << 20 });
        for (kind, is_disk) in [(DISK, true), (CDROM, false)] {
            let disk = disk(&eager(kind), 1 << 20).expect("it has a medium");
            let attr = |name| disk.attrs.iter().find(|(n, _)| *n == name).map(|(_, v)| v.clone());
            assert_eq!(attr("GEOM::candelete"), Some(Attr::Int(u64::from(is_disk))));
            assert_eq!(attr("DISK::delete_granule").is_some(), is_disk);
            let mut bio = bio::Slab::new().alloc();
            (bio.op, bio.length) = (Op::Delete, 4096);
            let command = disk.command_set.command(&mut bio, &pool).map(|_| ());
            assert_eq!(command, if is_disk { Ok(()) } else { Err(Errno::NotSup) });
            assert_eq!(disk.command_set.delete_ranges() > 1, is_disk);
            assert_eq!(disk.command_set.has_cache(), is_disk);
            assert_eq!((disk.command_set.flush().is_some(), !disk.read_only), (is_disk, is_disk));
        }
    }
}
