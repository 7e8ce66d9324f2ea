//! The scan: signatures at their places, and leftovers near both ends.

use std::fmt;

use super::signatures::{Depth, INTEL, MagicLocation, SIGNATURES, Signature};
use super::{backups, boot, varied};
use crate::label;
use crate::members::{frame, relocate};
use crate::part::{self, Table, TableContext};
use crate::probe::{ProbeStop, Reason, Sectors, Step, array, le32, le64, span};
use crate::registry::{self, label_of};

/// Bytes at each end that are searched, 512 at a time, for metadata outside its regular place.
/// Examples are labels of media of another size and tables of disks with other sector sizes.
const SWEEP: u64 = 1 << 20;

/// Bytes of one read of it. A range that cannot be read is reported and left out.
const CHUNK: u64 = 64 << 10;

/// Signatures of that search: kind, words, class, magic.
const LEFTOVERS: &[(&str, &str, &str, &[u8])] = &[
    ("gpt", "GPT header", "part", b"EFI PART"),
    ("label", "GEOM label", "label", b"GEOM::LABEL\0"),
    ("mirror", "member of a mirror", "mirror", b"GEOM::MIRROR\0"),
    ("stripe", "member of a stripe", "stripe", b"GEOM::STRIPE\0"),
    ("concat", "member of a concatenation", "concat", b"GEOM::CONCAT\0"),
    ("multipath", "path of a multipath device", "multipath", b"GEOM::MULTIPATH\0"),
    ("geom", "record of a class of GEOM", "geom", b"GEOM::"),
    ("imsm", "Intel RAID", "raid", INTEL),
];

/// The known metadata in a sector at the end of media of `bytes` bytes, except that of this class.
/// A label whose recorded provider size differs from the current size is ignored.
pub(crate) fn leftover(sector: &[u8], class: &str, bytes: u64) -> Option<&'static str> {
    let strays = |of: &str| {
        let placed = label_of(of).and_then(|read| read(sector).ok());
        placed.is_some_and(|p| !frame::is_of_size(p.provider_bytes, bytes))
    };
    let known = |(_, what, of, magic): &(_, &'static str, &str, &[u8])| {
        (*of != class && sector.starts_with(magic) && !strays(of)).then_some(*what)
    };
    LEFTOVERS.iter().filter(|(kind, ..)| *kind != "geom").find_map(known)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum FindingRole {
    /// Protects another: the MBR of a GPT.
    Guard,
    /// Left behind: outside the regular places on media of this size.
    Stale,
    /// A further copy, where the format keeps one.
    Backup,
    /// Where it is looked for first.
    Main,
}

impl fmt::Display for FindingRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            FindingRole::Guard => "guard",
            FindingRole::Stale => "stale",
            FindingRole::Backup => "backup",
            FindingRole::Main => "main",
        })
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    pub offset: u64,
    /// Its length in bytes; this range is cleared.
    pub len: u64,
    /// Short word, for `--only`.
    pub kind: &'static str,
    /// The class that would claim it; see [`Signature::class`].
    pub class: &'static str,
    /// In words.
    pub description: String,
    /// Why it would be claimed or not, as far as the media shows.
    pub reason: String,
    /// Whether it is the first, a copy, or left behind.
    pub role: FindingRole,
    /// The partition in whose range it is.
    pub inside: Option<u32>,
    /// The layer that shows it, of which this is a member: its own tools look after it.
    pub shown_on: Option<String>,
    pub(super) depth: Depth,
}

impl Finding {
    pub(super) fn new(
        (kind, class): (&'static str, &'static str),
        what: impl Into<String>,
        (offset, len): (u64, u64),
        standing: FindingRole,
        depth: Depth,
    ) -> Finding {
        let (what, why, inside, shown_on) = (what.into(), String::new(), None, None);
        Finding {
            offset,
            len,
            kind,
            class,
            description: what,
            reason: why,
            role: standing,
            inside,
            shown_on,
            depth,
        }
    }

    /// The place in the order of clearing (I3).
    pub(super) fn rank(&self) -> (Depth, FindingRole, u64) {
        (self.depth, self.role, self.offset)
    }

    /// Whether clearing everything clears this: copies and leftovers inside a partition are
    /// that partition's.
    pub fn is_outermost(&self) -> bool {
        self.inside.is_none() || self.role == FindingRole::Main
    }
}

/// Everything found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct InspectReport {
    /// By offset.
    pub findings: Vec<Finding>,
    /// Byte ranges (offset, length) near the ends that could not be read whole.
    pub unread: Vec<(u64, u64)>,
}

/// Look at everything. `place` is the place of the media among partition tables.
pub fn step(sectors: &Sectors, place: &TableContext) -> Step<InspectReport> {
    scan(sectors, place).into()
}

fn scan(sectors: &Sectors, place: &TableContext) -> Result<InspectReport, ProbeStop> {
    let mut report = InspectReport::default();
    let mut leftovers = Vec::new();
    sweep(sectors, &mut leftovers, &mut report.unread)?;
    let layer = layer(sectors)?;
    let outer = layer.as_ref().map_or(sectors, |(_, front)| front);
    let (table, table_why) = match part::step(outer, place) {
        Step::Read { offset, len } => return Err(ProbeStop::Read { offset, len }),
        Step::Done(table) => {
            let on = layer.as_ref().map(|(name, _)| name.as_str());
            let why = part::describe(&table, on.unwrap_or("it"));
            (Some(table), on.map_or(why.clone(), |on| format!("on {on}: {why}")))
        }
        Step::No(why) => (None, why.to_string()),
    };
    let found = &mut report.findings;
    boot::find(sectors, table.as_ref(), found)?;
    for sign in SIGNATURES {
        found.extend(signature(sectors, sign)?);
    }
    varied::find(sectors, found)?;
    gpt(outer, found)?;
    backups::find(sectors, found)?;
    for left in leftovers {
        let over =
            |f: &Finding| f.offset < left.offset + left.len && left.offset < f.offset + f.len;
        if !found.iter().any(over) {
            found.push(left);
        }
    }
    found.sort_by_key(|f| (f.offset, f.len));
    found.dedup_by_key(|f| (f.offset, f.len));
    let mut kinds = Vec::new();
    for kind in label::KINDS {
        match label::step(kind, sectors) {
            Step::Read { offset, len } => return Err(ProbeStop::Read { offset, len }),
            Step::Done(f) => {
                let names: Vec<&str> = f.providers().collect();
                kinds.push((kind.prefix, format!("shown as {}", names.join(" and "))));
            }
            Step::No(why) if why.reason == Reason::Signature => {}
            Step::No(why) => kinds.push((kind.prefix, format!("not shown: {why}"))),
        }
    }
    for finding in found.iter_mut() {
        finding.inside = inside(table.as_ref(), finding);
        let on = layer.as_ref().filter(|_| finding.class == "part");
        finding.shown_on = on.map(|(name, _)| name.clone());
        finding.reason = match finding.class {
            "part" => table_why.clone(),
            "label" => {
                let text = kinds.iter().find(|(prefix, _)| *prefix == prefix_of(finding.kind));
                text.map_or_else(|| "not shown".into(), |(_, text)| text.clone())
            }
            "linux" => "no class here claims it; Linux and its tools do".into(),
            "geom" => "a class of FreeBSD's GEOM that is not here would claim it".into(),
            "firmware" => "firmware and Linux's dmraid would claim it".into(),
            "other" => "no class here claims it; other systems do".into(),
            _ => record(sectors, finding)?,
        };
        if let (FindingRole::Stale, Some(was)) = (finding.role, old_media_size(sectors, finding)?) {
            let class = finding.class;
            finding.reason = format!(
                "label of a provider that had {was} bytes and has grown; next: `ashlar {class} \
                 relocate PROVIDER --was {was}` moves the label to the end"
            );
        } else if let Some(unit) = other_sectors(sectors, finding)? {
            let current = sectors.sector_size();
            finding.reason = format!(
                "written with sectors of {unit} bytes, and this disk is read with {current}; next: \
                 set `sector_size = {unit}` of the disk (kind `file`) in ashlar.toml"
            );
        } else if finding.role == FindingRole::Stale {
            finding.reason = "ignored at this position on media of this size; a partition or a \
                              disk that ends or begins there would show it"
                .into();
        }
    }
    Ok(report)
}

/// The layer whose record is in the last sector and that shows the media up to there, and the
/// sectors that it shows. Tables belong to it and end where it ends.
fn layer(sectors: &Sectors) -> Result<Option<(String, Sectors)>, ProbeStop> {
    for sign in SIGNATURES.iter().filter(|s| ["mirror", "multipath", "label"].contains(&s.kind)) {
        let Some(found) = signature(sectors, sign)? else { continue };
        let Some(bytes) = sectors.get(found.offset, 64)? else { continue };
        let name = String::from_utf8_lossy(label::until_nul(span(bytes, 20, 16))).into_owned();
        let name = format!("{}/{}", sign.class, name.escape_debug());
        return Ok(Some((name, sectors.without_last(1))));
    }
    Ok(None)
}

fn prefix_of(kind: &str) -> &str {
    match kind {
        "ext" => "ext2fs",
        "fat" => "msdosfs",
        "swap" => "swaplinux",
        same => same,
    }
}

/// The frame of a member's record: its version and its name.
fn record(sectors: &Sectors, finding: &Finding) -> Result<String, ProbeStop> {
    if finding.class == "raid" {
        return Ok("the array's records on all its disks decide".into());
    }
    let Some(bytes) = sectors.get(finding.offset, 64)? else { return Ok(String::new()) };
    let name = label::until_nul(span(bytes, 20, 16));
    let name = String::from_utf8_lossy(name);
    let version = le32(bytes, 16);
    Ok(format!("version {version}, of {}/{}", finding.class, name.escape_debug()))
}

/// The size for which a label was written that is no longer in the last sector.
fn old_media_size(sectors: &Sectors, finding: &Finding) -> Result<Option<u64>, ProbeStop> {
    let unit = sectors.sector_size();
    let Some(read) = label_of(finding.class) else {
        if finding.kind != "imsm" {
            return Ok(None);
        }
        let bytes = sectors.get(finding.offset, unit as usize)?;
        return Ok(bytes.and_then(|bytes| registry::old_disk_size(bytes, finding.offset)));
    };
    let bytes = sectors.get(finding.offset, unit as usize)?;
    let placed = bytes.and_then(|bytes| read(bytes).ok());
    let behind = placed.filter(|p| relocate::is_at_old_end(p, unit, finding.offset));
    Ok(behind.map(|p| p.provider_bytes))
}

/// The size of sectors, other than these, with which a GPT header is at its own place.
fn other_sectors(sectors: &Sectors, finding: &Finding) -> Result<Option<u32>, ProbeStop> {
    if (finding.kind, finding.role) != ("gpt", FindingRole::Stale) {
        return Ok(None);
    }
    let Some(header) = sectors.get(finding.offset, 512)? else { return Ok(None) };
    let own = le64(header, 24);
    let fits = |unit: &u32| {
        let is_at_unit = own.checked_mul((*unit).into()) == Some(finding.offset);
        *unit != sectors.sector_size() && is_at_unit && part::is_header(header)
    };
    Ok([512, 4096].into_iter().find(fits))
}

fn inside(table: Option<&Table>, finding: &Finding) -> Option<u32> {
    let table = table?;
    if finding.class == "part" && finding.role != FindingRole::Stale {
        return None;
    }
    let unit = u64::from(table.media().sector_size).max(1);
    let sector = finding.offset / unit;
    let mut all = table.entries().iter();
    all.find(|e| (e.start..=e.end).contains(&sector)).map(|e| e.index)
}

/// Where the record of a member of a larger whole is: an array, a stripe, a volume group.
pub(crate) fn membership(sectors: &Sectors) -> Result<Option<u64>, ProbeStop> {
    for sign in SIGNATURES.iter().filter(|s| matches!(s.depth, Depth::Member | Depth::Container)) {
        if let Some(found) = signature(sectors, sign)? {
            return Ok(Some(found.offset));
        }
    }
    Ok(None)
}

fn signature(sectors: &Sectors, sign: &Signature) -> Result<Option<Finding>, ProbeStop> {
    let unit = u64::from(sectors.sector_size());
    let Some(at) = sign.at.offset(sectors.media_len(), unit) else { return Ok(None) };
    if sectors.get(at, sign.magic.len())? != Some(sign.magic) {
        return Ok(None);
    }
    if let Some(check) = sign.check
        && !check(sectors, at)?
    {
        return Ok(None);
    }
    // A record of ours is cleared whole: its class would take a sector with remains for data of
    // another.
    let ours = sign.at == MagicLocation::Last(0, 0)
        && sign.class != "geom"
        && sign.magic.starts_with(b"GEOM");
    let magic = u64::try_from(sign.magic.len()).unwrap_or(0);
    let len = if ours { unit } else { magic };
    let standing = if sign.copy { FindingRole::Backup } else { FindingRole::Main };
    let of = (sign.kind, sign.class);
    Ok(Some(Finding::new(of, sign.description, (at, len), standing, sign.depth)))
}

/// Both headers of a GPT: in sector 1, at the place that this one names, in the last sector.
fn gpt(sectors: &Sectors, out: &mut Vec<Finding>) -> Result<(), ProbeStop> {
    let unit = u64::from(sectors.sector_size());
    let end = sectors.media_sectors().saturating_sub(1);
    let head = sectors.get(unit, 512)?;
    let head = head.filter(|h| h.starts_with(b"EFI PART"));
    let other = head.map_or(end, |h| le64(h, 32));
    let places = [
        (1, "GPT header", FindingRole::Main),
        (other, "GPT header, second copy", FindingRole::Backup),
        (end, "GPT header, second copy", FindingRole::Backup),
    ];
    for (sector, what, standing) in places {
        let Some(at) = sector.checked_mul(unit).filter(|at| *at > 0) else { continue };
        if sectors.get(at, 8)?.and_then(|b| array(b, 0)) == Some(*b"EFI PART") {
            let what = match (standing, sector == end) {
                (FindingRole::Backup, false) => format!("{what}, not in the last sector"),
                _ => what.to_owned(),
            };
            out.push(Finding::new(("gpt", "part"), what, (at, 8), standing, Depth::Table));
        }
    }
    Ok(())
}

/// Looks through both ends.
fn sweep(
    sectors: &Sectors,
    out: &mut Vec<Finding>,
    unread: &mut Vec<(u64, u64)>,
) -> Result<(), ProbeStop> {
    let unit = u64::from(sectors.sector_size()).max(1);
    let len = sectors.media_len();
    let tail = len.saturating_sub(SWEEP).max(SWEEP.min(len)) / unit * unit;
    for (from, to) in [(0, SWEEP.min(len)), (tail, len)] {
        let mut at = from;
        while at < to {
            let size = CHUNK.max(unit).min(to - at);
            let bytes = sectors.get(at, usize::try_from(size).unwrap_or(0))?;
            match bytes {
                Some(bytes) => chunk(bytes, at, out),
                None => unread.push((at, size)),
            }
            at = at.saturating_add(size);
        }
    }
    Ok(())
}

fn chunk(bytes: &[u8], base: u64, out: &mut Vec<Finding>) {
    for (block, at) in bytes.chunks(512).zip((base..).step_by(512)) {
        let found = LEFTOVERS.iter().find(|(.., magic)| block.starts_with(magic));
        if let Some((kind, what, class, magic)) = found {
            let len = u64::try_from(magic.len()).unwrap_or(0);
            let depth = match *kind {
                "gpt" => Depth::Table,
                "label" => Depth::Name,
                _ => Depth::Member,
            };
            out.push(Finding::new((kind, class), *what, (at, len), FindingRole::Stale, depth));
        }
    }
}
