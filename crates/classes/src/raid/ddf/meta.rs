//! Metadata of one disk: reading, and encoding as bytes.

use super::header::{self, Copy, Header, order_of};
use super::records::{self as r, BadBlocks, Config, DiskData, DiskEntry, Spare, VolumeEntry};
use crate::probe::{ProbeError, ProbeStop, Reason, Sectors, Step};
use crate::raid::Fault;

/// The metadata of a disk with DDF.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Meta {
    /// The header of the copy in force.
    pub header: Header,
    pub source: Copy,
    /// The controller's section as it is, with a right checksum.
    pub controller: Vec<u8>,
    pub disks: Vec<DiskEntry>,
    pub volumes: Vec<VolumeEntry>,
    /// The volumes that this disk has a part of.
    pub configs: Vec<Config>,
    /// Records of vendors among the configurations, as they are.
    pub vendor: Vec<Vec<u8>>,
    /// What this disk serves as a spare.
    pub spare: Option<Spare>,
    pub data: DiskData,
    pub bad: Vec<BadBlocks>,
    /// The bad-block section as it is; empty when there is none.
    pub(super) bad_section: Vec<u8>,
}

/// Look for DDF: the anchor, both copies, and the sections of the one in force.
pub fn step(sectors: &Sectors) -> Step<Meta> {
    probe(sectors).into()
}

fn refuse<T>(found: Result<T, Fault>, at: u64) -> Result<T, ProbeStop> {
    found.map_err(|fault| ProbeStop::No(fault.to_probe_error(at)))
}

fn probe(sectors: &Sectors) -> Result<Meta, ProbeStop> {
    let size = sectors.sector_size() as usize;
    let (unit, count) = (u64::from(sectors.sector_size()), sectors.media_sectors());
    if size < 512 || !size.is_power_of_two() || count < 2 {
        return Err(ProbeStop::no(Reason::Media, 0, "DDF"));
    }
    let at = (count - 1) * unit;
    let sector = sectors.need(at, size, "DDF anchor")?;
    let anchor = refuse(Header::decode(sector, Copy::Anchor), at)?;
    let mut found: Vec<(Header, Copy, u64)> = Vec::new();
    let mut worst: Option<ProbeError> = None;
    for copy in [Copy::Primary, Copy::Secondary] {
        let Some(place) = anchor.place(copy) else { continue };
        match header_at(sectors, &anchor, copy, place, count - 1) {
            Ok((header, at)) => found.push((header, copy, at)),
            Err(ProbeStop::No(why)) => worst = worst.or(Some(why)),
            Err(read) => return Err(read),
        }
    }
    // D2; the sort is stable, so that the primary is first among equals.
    found.sort_by_key(|(header, ..)| (header.open, u32::MAX - header.sequence));
    for (header, copy, at) in found {
        match copy_at(sectors, header, copy, at) {
            Err(ProbeStop::No(why)) => worst = worst.or(Some(why)),
            done => return done,
        }
    }
    let none = ProbeError::new(Reason::Value, at, "DDF anchor that names no header");
    Err(ProbeStop::No(worst.unwrap_or(none)))
}

/// The header that the anchor places at sector `place`, and its byte offset.
fn header_at(
    sectors: &Sectors,
    anchor: &Header,
    copy: Copy,
    place: u64,
    end: u64,
) -> Result<(Header, u64), ProbeStop> {
    let unit = u64::from(sectors.sector_size());
    let at = place.saturating_mul(unit);
    if place >= end {
        return Err(ProbeStop::no(Reason::Beyond, at, "DDF header"));
    }
    let sector = sectors.need(at, sectors.sector_size() as usize, "DDF header")?;
    if order_of(sector).is_some_and(|order| order.little != anchor.order.little) {
        return Err(ProbeStop::no(Reason::Value, at, "DDF header's byte order"));
    }
    let header = refuse(Header::decode(sector, copy), at)?;
    let fields = |h: &Header| (h.guid, h.primary, h.secondary, h.revision, h.order);
    match fields(&header) == fields(anchor) {
        true => Ok((header, at)),
        false => {
            Err(ProbeStop::no(Reason::Contradiction, at, "DDF header, which is not the anchor's,"))
        }
    }
}

fn copy_at(sectors: &Sectors, header: Header, copy: Copy, at: u64) -> Result<Meta, ProbeStop> {
    let bytes = |which: usize, field| section_at(sectors, &header, at, which, field);
    let order = header.order;
    let (place, raw) = bytes(header::CONTROLLER, "DDF controller section")?;
    let controller = r::section(order, raw, r::CONTROLLER, "DDF controller section");
    let controller = refuse(controller, place)?.bytes;
    let (place, raw) = bytes(header::DISKS, "DDF disk section")?;
    let block = refuse(r::section(order, raw, r::DISKS, "DDF disk section"), place)?;
    let disks = refuse(r::disks(&block, &header.limits), place)?;
    let (place, raw) = bytes(header::VOLUMES, "DDF volume section")?;
    let block = refuse(r::section(order, raw, r::VOLUMES, "DDF volume section"), place)?;
    let volumes = refuse(r::volumes(&block, &header.limits), place)?;
    let (place, raw) = bytes(header::DATA, "DDF disk data")?;
    let block = refuse(r::section(order, raw, r::DATA, "DDF disk data"), place)?;
    let data = DiskData::decode(&block);
    let mut meta = Meta {
        source: copy,
        controller,
        disks,
        volumes,
        configs: Vec::new(),
        vendor: Vec::new(),
        spare: None,
        data,
        bad: Vec::new(),
        bad_section: Vec::new(),
        header: header.clone(),
    };
    let (place, raw) = bytes(header::CONFIGS, "DDF configuration section")?;
    let record = usize::from(header.limits.record_sectors) * sectors.sector_size() as usize;
    for raw in raw.chunks_exact(record) {
        refuse(meta.record(raw), place)?;
    }
    if header.section(header::BAD).length > 0 {
        let (place, raw) = bytes(header::BAD, "DDF bad-block log")?;
        let block = refuse(r::section(order, raw, r::BAD, "DDF bad-block log"), place)?;
        meta.bad = refuse(r::bad_blocks(&block), place)?;
        meta.bad_section = block.bytes;
    }
    if !meta.disks.iter().any(|disk| disk.reference == meta.data.reference) {
        return Err(ProbeStop::no(
            Reason::Contradiction,
            at,
            "DDF disk data, which no disk entry matches,",
        ));
    }
    Ok(meta)
}

/// A section's place and bytes.
fn section_at<'a>(
    sectors: &'a Sectors,
    header: &Header,
    at: u64,
    which: usize,
    field: &'static str,
) -> Result<(u64, &'a [u8]), ProbeStop> {
    let section = header.section(which);
    let unit = u64::from(sectors.sector_size());
    let place = at.saturating_add(u64::from(section.offset).saturating_mul(unit));
    let len = section.length as usize * sectors.sector_size() as usize;
    Ok((place, sectors.need(place, len, field)?))
}

impl Meta {
    /// Take in one record of the configuration section.
    fn record(&mut self, raw: &[u8]) -> Result<(), Fault> {
        const FIELD: &str = "DDF configuration record";
        let order = self.header.order;
        let block = super::codec::Block::new(order, raw);
        match block.u32(0) {
            r::CONFIG => {
                let block = r::section(order, raw, r::CONFIG, FIELD)?;
                let config = Config::decode(&block, &self.header.limits)?;
                let same =
                    |old: &Config| old.guid == config.guid && old.secondary.1 == config.secondary.1;
                if self.configs.iter().any(same) {
                    return Err(Fault::new(Reason::Integrity, FIELD, "is there twice"));
                }
                self.configs.push(config);
            }
            r::SPARE if self.spare.is_some() => {
                return Err(Fault::new(Reason::Integrity, "DDF spare record", "is there twice"));
            }
            r::SPARE => {
                let block = r::section(order, raw, r::SPARE, "DDF spare record")?;
                self.spare = Some(Spare::decode(&block)?);
            }
            r::VENDOR => self.vendor.push(raw.to_vec()),
            _ => {}
        }
        Ok(())
    }

    /// The sections, each with its place: sectors from the header.
    ///
    /// # Errors
    /// More of something than the header has space for.
    pub(super) fn sections(&self, sector_size: u32) -> Result<Vec<(u32, Vec<u8>)>, Fault> {
        let (header, limits, order) = (&self.header, &self.header.limits, self.header.order);
        let size = sector_size as usize;
        let len = |which: usize| header.section(which).length as usize * size;
        let records = self.configs.len() + self.vendor.len() + usize::from(self.spare.is_some());
        let record = usize::from(limits.record_sectors) * size;
        let fields = [
            ("DDF disks", self.disks.len(), usize::from(limits.disks)),
            ("DDF disks", self.disks.len(), (len(header::DISKS) / 64).saturating_sub(1)),
            ("DDF volumes", self.volumes.len(), usize::from(limits.volumes)),
            ("DDF volumes", self.volumes.len(), (len(header::VOLUMES) / 64).saturating_sub(1)),
            ("DDF configurations", self.configs.len(), usize::from(limits.partitions)),
            ("DDF configurations", records, len(header::CONFIGS).checked_div(record).unwrap_or(0)),
        ];
        for (field, count, max) in fields {
            if count > max {
                return Err(Fault::value(field, format!("are {count}; there is space for {max}")));
            }
        }
        let mut configs = Vec::with_capacity(len(header::CONFIGS));
        for config in &self.configs {
            if config.elements.len() > usize::from(limits.elements) {
                let what = format!("are {}; at most {}", config.elements.len(), limits.elements);
                return Err(Fault::value("members", what));
            }
            configs.extend(config.encode(order, record, limits));
        }
        configs.extend(self.vendor.iter().flatten());
        if let Some(spare) = &self.spare {
            configs.extend(spare.encode(order, record));
        }
        configs.resize(len(header::CONFIGS), 0xff);
        let place = |which: usize| header.section(which).offset;
        let mut all = vec![
            (place(header::CONTROLLER), self.controller.clone()),
            (
                place(header::DISKS),
                r::put_disks(order, len(header::DISKS), limits.disks, &self.disks),
            ),
            (
                place(header::VOLUMES),
                r::put_volumes(order, len(header::VOLUMES), limits.volumes, &self.volumes),
            ),
            (place(header::CONFIGS), configs),
            (place(header::DATA), self.data.encode(order, len(header::DATA))),
        ];
        if !self.bad_section.is_empty() {
            all.push((place(header::BAD), self.bad_section.clone()));
        }
        Ok(all)
    }
}
