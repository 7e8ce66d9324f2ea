//! Encoder of a record: the version and the attributes are those that its contents need.

use super::codec::FieldWriter;
use super::record::{
    BAD_BLOCKS, BAD_BLOCKS_MAX, DiskRecord, RECORD_BYTES_MAX, Record, SIGNATURE, VOLUMES_MAX,
    VolumeRecord, attribute, checksum,
};
use super::written;
use crate::raid::Fault;

impl Record {
    /// The record as bytes, with checksum, and with the version and attributes that its content
    /// needs.
    ///
    /// # Errors
    /// More disks, volumes, slots or bytes than the format has space for.
    pub fn encode(&self) -> Result<Vec<u8>, Fault> {
        let disks = u8::try_from(self.disks.len());
        let volumes = u8::try_from(self.volumes.len());
        let (Ok(disks), Ok(volumes)) = (disks, volumes) else {
            return Err(Fault::value("Intel total disks", "is more than 255"));
        };
        if self.volumes.len() > VOLUMES_MAX || self.bad.len() > BAD_BLOCKS_MAX {
            return Err(Fault::value("Intel total volumes", "is more than 2"));
        }
        let bad = if self.bad.is_empty() { 0 } else { 8 + 8 * self.bad.len() };
        let attributes = self.needed();
        let mut out = FieldWriter::default();
        out.bytes(SIGNATURE).bytes(self.needed_version(attributes)).zeros(2);
        out.u32(0).u32(0).u32(self.family).u32(self.generation).u32(self.error_log);
        out.u32(attributes).u8(disks).u8(volumes).u8(self.error_position).u8(0);
        out.u32(self.cache).u32(self.original).u32(self.cycles);
        out.u32(u32::try_from(bad).unwrap_or(0)).u16(self.created).u16(0).u64(self.time);
        out.bytes(&written::encode(self.written_s, self.generation));
        for disk in &self.disks {
            let (low, high) = halves(disk.sectors);
            out.bytes(&disk.serial).u32(low).u32(disk.id).u32(disk.flags).u32(disk.owner);
            out.u32(high).bytes(&disk.rest);
        }
        for volume in &self.volumes {
            put_volume(&mut out, volume)?;
        }
        if bad != 0 {
            out.u32(BAD_BLOCKS).u32(u32::try_from(self.bad.len()).unwrap_or(0));
        }
        for entry in &self.bad {
            let count = u8::try_from(entry.count.saturating_sub(1)).unwrap_or(u8::MAX);
            let place = entry.first.to_le_bytes();
            out.u8(count).u8(entry.disk).bytes(place.get(..6).unwrap_or(&[]));
        }
        let mut bytes = out.done();
        if bytes.len() > RECORD_BYTES_MAX {
            let what = format!("would be {}; 65536 is the most", bytes.len());
            return Err(Fault::value("Intel record size", what));
        }
        let size = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        crate::probe::put(&mut bytes, 36, &size.to_le_bytes());
        let sum = checksum(&bytes);
        crate::probe::put(&mut bytes, 32, &sum.to_le_bytes());
        Ok(bytes)
    }

    /// Attributes that the contents need, with those that were there and are independent of them.
    fn needed(&self) -> u32 {
        use attribute as a;
        let mut all = self.attributes & a::PM | a::CHECKSUM;
        for volume in &self.volumes {
            let (map, members) = (&volume.map, volume.map.slots.len());
            all |= match (map.level, usize::from(map.domains)) {
                (0, _) => a::RAID0,
                (5, _) => a::RAID5,
                (_, copies) if copies == members => a::RAID1,
                _ if members.is_multiple_of(2) && members > 4 => a::RAID10 | a::RAID10_WIDE,
                _ if members.is_multiple_of(2) => a::RAID10,
                _ => a::RAID1E,
            };
            if volume.sectors > u64::from(u32::MAX) {
                all |= a::LARGE_VOLUME;
            }
            if map.strip >= 512 {
                all |= a::LARGE_STRIP;
            }
        }
        let large = |disk: &DiskRecord| disk.sectors > u64::from(u32::MAX);
        if self.disks.iter().any(large) {
            all |= a::LARGE_DISK;
        }
        if self.bad.is_empty() { all } else { all | a::BAD_BLOCKS }
    }

    /// The lowest version whose readers know all that is used (docs/reference/geom.md 2.14).
    fn needed_version(&self, attributes: u32) -> &'static [u8; 6] {
        use attribute as a;
        const NEW: u32 =
            a::LARGE_DISK | a::LARGE_VOLUME | a::LARGE_STRIP | a::RAID10_WIDE | a::BAD_BLOCKS;
        let widest = self.volumes.iter().map(|volume| volume.map.slots.len()).max().unwrap_or(0);
        let parity = self.volumes.iter().any(|volume| volume.map.level == 5);
        let mirror = self.volumes.iter().any(|volume| volume.map.level != 0);
        match widest {
            _ if attributes & NEW != 0 || widest > 6 => b"1.3.00",
            5.. => b"1.2.04",
            _ if parity => b"1.2.02",
            3.. => b"1.2.01",
            _ if self.volumes.len() > 1 => b"1.2.00",
            _ if mirror => b"1.1.00",
            _ => b"1.0.00",
        }
    }
}

fn halves(value: u64) -> (u32, u32) {
    let low = u32::try_from(value & u64::from(u32::MAX)).unwrap_or(0);
    (low, u32::try_from(value >> 32).unwrap_or(0))
}

fn put_volume(out: &mut FieldWriter, volume: &VolumeRecord) -> Result<(), Fault> {
    if volume.migration.is_some() != volume.from.is_some() {
        return Err(Fault::value("Intel migration state", "and the second map disagree"));
    }
    let (low, high) = halves(volume.unit);
    out.bytes(&volume.name).u64(volume.sectors).u32(volume.status).bytes(&volume.policy);
    out.u16(volume.number).bytes(&volume.rest).bytes(&volume.more).u32(low).u32(volume.checkpoint);
    out.u8(u8::from(volume.migration.is_some())).u8(volume.migration.unwrap_or(0));
    out.u8(volume.dirty).u8(volume.fs_state).u16(volume.verify_errors).u16(volume.bad_blocks);
    out.u32(high).bytes(&volume.tail);
    for map in [Some(&volume.map), volume.from.as_ref()].into_iter().flatten() {
        let Ok(members) = u8::try_from(map.slots.len()) else {
            return Err(Fault::value("Intel map disks", "is more than 255"));
        };
        let words = [map.first, map.sectors, map.stripes].map(halves);
        for (low, _) in words {
            out.u32(low);
        }
        out.u16(map.strip).u8(map.status).u8(map.level).u8(members).u8(map.domains);
        out.u8(map.failed).u8(map.ddf);
        for (_, high) in words {
            out.u32(high);
        }
        out.bytes(&map.rest);
        for (index, rebuild) in &map.slots {
            out.u32(index & 0x00ff_ffff | if *rebuild { 0x0100_0000 } else { 0 });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use testkit::formats::FieldTable;

    use super::*;

    #[test]
    fn fields_are_where_the_page_of_formats_has_them() {
        let record = Record {
            family: 0x1122_3344,
            generation: 7,
            original: 0x5566_7788,
            created: 3,
            time: 1_700_000_000,
            written_s: 1_800_000_000,
            disks: vec![DiskRecord::default()],
            ..Record::default()
        };
        let bytes = record.encode().unwrap();
        let sum = checksum(&bytes).to_le_bytes();
        let values: [(&str, &[u8]); 17] = [
            ("signature", b"Intel Raid ISM Cfg Sig. "),
            ("version", b"1.0.00"),
            ("checksum", &sum),
            ("size", &264u32.to_le_bytes()),
            ("family", &0x1122_3344u32.to_le_bytes()),
            ("generation", &7u32.to_le_bytes()),
            ("attributes", &0x8000_0000u32.to_le_bytes()),
            ("disks", &[1]),
            ("volumes", &[0]),
            ("first family", &0x5566_7788u32.to_le_bytes()),
            ("log size", &[0]),
            ("volumes made", &3u16.to_le_bytes()),
            ("creation time", &1_700_000_000u64.to_le_bytes()),
            ("mark", b"ASHL"),
            ("written generation", &7u32.to_le_bytes()),
            ("written time", &1_800_000_000u64.to_le_bytes()),
            ("filler", &[]),
        ];
        let page = FieldTable::of("## Intel IMSM", "offset", 0);
        page.assert_holds(&bytes, &values);
        let unknown = Record { written_s: 0, ..record }.encode().unwrap();
        let none: [(&str, &[u8]); 3] =
            [("mark", &[]), ("written generation", &[]), ("written time", &[])];
        page.assert_holds(&unknown, &none);
    }
}
