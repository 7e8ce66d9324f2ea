//! FAT12, FAT16, FAT32: the boot sector, and where it contains "NO NAME" the root directory.
//!
//! ```text
//! 11 2 bytes a sector | 13 1 sectors a cluster | 14 2 reserved | 16 1 FATs | 17 2 root entries
//! FAT12/16: 22 2 sectors a FAT | 39 4 serial | 43 11 name | 54 "FAT"
//! FAT32:    36 4 sectors a FAT | 44 4 root cluster | 67 4 serial | 71 11 name | 82 "FAT"
//! directory entry, 32 bytes: 0 11 name | 11 1 attributes (08 volume name, 0f long name)
//! ```

use super::Volume;
use crate::probe::{ProbeStop, Reason, Sectors, byte, le16, le32, span};

/// The name of a volume without one.
const NO_NAME: &[u8] = b"NO NAME    ";
/// Bytes of the root directory that are searched; a name behind them is not found.
const ROOT_BYTES_MAX: u64 = 64 << 10;
/// Bytes of a directory entry.
const ENTRY: usize = 32;

pub(crate) fn probe(sectors: &Sectors) -> Result<Volume, ProbeStop> {
    const FIELD: &str = "FAT boot sector";
    let boot = super::magic(sectors, 0, 512, (510, &[0x55, 0xaa]), FIELD)?;
    let wide = span(boot, 82, 3) == b"FAT";
    if !wide && span(boot, 54, 3) != b"FAT" {
        return Err(ProbeStop::no(Reason::Signature, 54, FIELD));
    }
    let layout = Layout::read(boot, wide).ok_or(ProbeStop::no(Reason::Value, 11, FIELD))?;
    let (serial, label) = if wide { (67, 71) } else { (39, 43) };
    let mut label = span(boot, label, 11).to_vec();
    if label == NO_NAME || label.iter().all(|&byte| matches!(byte, 0 | b' ')) {
        label = layout.root_label(sectors)?;
    }
    let serial = le32(boot, serial);
    let id = (serial != 0).then(|| format!("{:04X}-{:04X}", serial >> 16, serial & 0xffff));
    Ok(Volume::of_media(sectors, &label, id))
}

/// Where the root directory is, in bytes.
struct Layout {
    root: u64,
    len: u64,
}

impl Layout {
    fn read(boot: &[u8], wide: bool) -> Option<Layout> {
        let sector = u64::from(le16(boot, 11));
        let cluster = u64::from(byte(boot, 13));
        let (reserved, fats) = (u64::from(le16(boot, 14)), u64::from(byte(boot, 16)));
        let sane = sector.is_power_of_two()
            && (128..=4096).contains(&sector)
            && cluster.is_power_of_two()
            && reserved > 0
            && (1..=4).contains(&fats);
        if !sane {
            return None;
        }
        let table = if wide { u64::from(le32(boot, 36)) } else { u64::from(le16(boot, 22)) };
        let data = reserved.checked_add(fats.checked_mul(table)?)?;
        let (skip, len) = if wide {
            let first = u64::from(le32(boot, 44)).checked_sub(2)?;
            (first.checked_mul(cluster)?, cluster.checked_mul(sector)?)
        } else {
            (0, u64::from(le16(boot, 17)) * ENTRY as u64)
        };
        let root = data.checked_add(skip)?.checked_mul(sector)?;
        Some(Layout { root, len: len.min(ROOT_BYTES_MAX) })
    }

    /// The name of the volume entry; empty when there is none, or it cannot be read.
    fn root_label(&self, sectors: &Sectors) -> Result<Vec<u8>, ProbeStop> {
        let len = usize::try_from(self.len).unwrap_or(0);
        let Some(root) = sectors.get(self.root, len)? else {
            return Ok(Vec::new());
        };
        for entry in root.chunks_exact(ENTRY) {
            let (first, attributes) = (byte(entry, 0), byte(entry, 11));
            if first == 0 {
                break;
            }
            if first != 0xe5 && attributes & 0x08 != 0 && attributes & 0x0f != 0x0f {
                return Ok(span(entry, 0, 11).to_vec());
            }
        }
        Ok(Vec::new())
    }
}
