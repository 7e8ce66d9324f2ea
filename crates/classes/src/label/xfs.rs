//! XFS: the superblock in sector 0, big-endian ("XFSB" +0, block size +4, UUID +32, name +108).

use super::Volume;
use crate::probe::{ProbeStop, Reason, Sectors, array, span};

pub(crate) fn probe(sectors: &Sectors) -> Result<Volume, ProbeStop> {
    let block = super::magic(sectors, 0, 512, (0, b"XFSB"), "XFS superblock")?;
    let size = array(block, 4).map_or(0, u32::from_be_bytes);
    if !size.is_power_of_two() || !(512..=65_536).contains(&size) {
        return Err(ProbeStop::no(Reason::Value, 4, "block size of XFS"));
    }
    Ok(Volume::of_media(sectors, span(block, 108, 12), super::uuid(span(block, 32, 16))))
}
