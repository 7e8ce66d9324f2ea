//! Parameter data of CD and DVD units (MMC-6), as needed to serve an image of a data disc.
//!
//! The disc has one session with one data track. All builders return the whole data, which
//! [`super::truncate`] cuts.

use crate::bytes::Reader;
use crate::error::WireError;

/// Bytes of a block of a data disc.
pub const CD_BLOCK: u32 = 2048;

/// Blocks that a CD can hold: 80 minutes. A larger image is a DVD.
pub const CD_BLOCKS_MAX: u64 = 80 * 60 * 75;

/// Profiles (MMC-6 table 92).
const PROFILE_CD_ROM: u16 = 0x0008;
const PROFILE_DVD_ROM: u16 = 0x0010;

/// The medium in the drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disc {
    /// No medium.
    None,
    /// A data disc of so many blocks.
    Data(u64),
}

impl Disc {
    /// Too large for a CD.
    pub fn is_dvd(self) -> bool {
        self.profile() == PROFILE_DVD_ROM
    }

    /// Its profile; 0 without a disc.
    fn profile(self) -> u16 {
        match self {
            Disc::None => 0,
            Disc::Data(blocks) if blocks <= CD_BLOCKS_MAX => PROFILE_CD_ROM,
            Disc::Data(_) => PROFILE_DVD_ROM,
        }
    }
}

/// Address of a track or the lead-out: an LBA, or minute, second and frame, which begin two seconds
/// before the first block and end where their fields do.
fn address(lba: u64, msf: bool) -> [u8; 4] {
    if !msf {
        return u32::try_from(lba).unwrap_or(u32::MAX).to_be_bytes();
    }
    let frames = lba.saturating_add(150).min(255 * 60 * 75 + 59 * 75 + 74);
    let part = |n: u64| u8::try_from(n).unwrap_or(u8::MAX);
    [0, part(frames / 4500), part(frames / 75 % 60), part(frames % 75)]
}

fn with_length16(mut body: Vec<u8>) -> Vec<u8> {
    let len = u16::try_from(body.len()).unwrap_or(u16::MAX).to_be_bytes();
    body.splice(0..0, len);
    body
}

/// READ TOC/PMA/ATIP of a disc of `blocks` blocks (MMC-6 6.25): formats 0 (tracks from `first` on),
/// 1 (sessions) and 2 (raw). None: a format or track that is not there.
pub fn read_toc(blocks: u64, format: u8, first: u8, msf: bool) -> Option<Vec<u8>> {
    let track = |number: u8, lba: u64| {
        let [a, b, c, d] = address(lba, msf);
        [0, 0x14, number, 0, a, b, c, d]
    };
    let mut out = vec![1, 1];
    match format {
        0 if first <= 1 => {
            out.extend(track(1, 0));
            out.extend(track(0xaa, blocks));
        }
        0 if first == 0xaa => out.extend(track(0xaa, blocks)),
        1 => out.extend(track(1, 0)),
        2 => {
            // First track, last track, lead-out, and the track itself; always in MSF.
            let [_, m, s, f] = address(blocks, true);
            for (point, at) in [(0xa0, [1, 0, 0]), (0xa1, [1, 0, 0]), (0xa2, [m, s, f])] {
                out.extend([1, 0x14, 0, point, 0, 0, 0, 0]);
                out.extend(at);
            }
            out.extend([1, 0x14, 0, 1, 0, 0, 0, 0, 0, 2, 0]);
        }
        _ => return None,
    }
    Some(with_length16(out))
}

/// Reads the answer to READ TOC, format 0: number and first block of each track; the lead-out is
/// none.
pub fn parse_toc(data: &[u8]) -> Result<Vec<(u8, u32)>, WireError> {
    let mut reader = Reader::new(data);
    let len = usize::from(reader.u16("TOC DATA LENGTH")?);
    let mut body = Reader::new(reader.take(len.min(reader.rest().len()), "TOC")?);
    body.take(2, "FIRST TRACK NUMBER")?;
    let mut tracks = Vec::new();
    while !body.rest().is_empty() {
        let [_, _, number, _] = body.array("TRACK NUMBER")?;
        let at = body.u32("TRACK START ADDRESS")?;
        if (1..=99).contains(&number) && tracks.len() < 99 {
            tracks.push((number, at));
        }
    }
    Ok(tracks)
}

/// Which features GET CONFIGURATION lists (RT).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FeatureFilter {
    /// 0: all.
    All,
    /// 1: those that are current.
    Current,
    /// 2: the requested one.
    Single,
}

/// GET CONFIGURATION (MMC-6 6.6): the features from number `from` on.
pub fn get_configuration(disc: Disc, filter: FeatureFilter, from: u16) -> Vec<u8> {
    let profile = disc.profile();
    let there = u8::from(profile != 0);
    let cd = u8::from(profile == PROFILE_CD_ROM);
    let dvd = u8::from(profile == PROFILE_DVD_ROM);
    let [d0, d1] = PROFILE_DVD_ROM.to_be_bytes();
    let [c0, c1] = PROFILE_CD_ROM.to_be_bytes();
    // Number, whether current, version and persistence, data.
    let features: [(u16, u8, u8, Vec<u8>); 8] = [
        (0x0000, 1, 0x03, vec![d0, d1, dvd, 0, c0, c1, cd, 0]),
        // Core: SCSI family; device busy events.
        (0x0001, 1, 0x0b, vec![0, 0, 0, 1, 1, 0, 0, 0]),
        // Morphing: operational change events are not used.
        (0x0002, 1, 0x07, vec![0x02, 0, 0, 0]),
        // Removable medium: tray, ejects, loads, locks.
        (0x0003, 1, 0x0b, vec![0x39, 0, 0, 0]),
        // Random readable: 2,048-byte blocks, sixteen to a unit of reading.
        (0x0010, there, 0x00, vec![0, 0, 8, 0, 0, 16, 0, 0]),
        // Multi-read.
        (0x001d, cd, 0x00, vec![]),
        // CD read.
        (0x001e, cd, 0x08, vec![0, 0, 0, 0]),
        // DVD read.
        (0x001f, dvd, 0x00, vec![]),
    ];
    let [p0, p1] = profile.to_be_bytes();
    let mut out = vec![0, 0, 0, 0, 0, 0, p0, p1];
    for (number, current, version, data) in features {
        let wanted = match filter {
            FeatureFilter::All => number >= from,
            FeatureFilter::Current => number >= from && current != 0,
            FeatureFilter::Single => number == from,
        };
        if wanted {
            out.extend(number.to_be_bytes());
            out.extend([version & 0x3e | current, u8::try_from(data.len()).unwrap_or(0)]);
            out.extend(data);
        }
    }
    let len = u32::try_from(out.len() - 4).unwrap_or(u32::MAX);
    if let Some(head) = out.first_chunk_mut::<4>() {
        *head = len.to_be_bytes();
    }
    out
}

/// A media event, as GET EVENT STATUS NOTIFICATION reports it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum MediaEvent {
    /// No event.
    #[default]
    None = 0,
    EjectRequest = 1,
    /// A medium was inserted.
    New = 2,
    /// The medium was removed.
    Removal = 3,
}

/// GET EVENT STATUS NOTIFICATION, polled (MMC-6 6.7): only the media class is served. `classes` is
/// the mask of the CDB.
pub fn get_event_status(classes: u8, event: MediaEvent, present: bool, open: bool) -> Vec<u8> {
    const MEDIA: u8 = 4;
    if classes & (1 << MEDIA) == 0 {
        // The device has none of the requested classes.
        return vec![0, 0, 0x80, 1 << MEDIA];
    }
    let status = u8::from(open) | if present { 2 } else { 0 };
    with_length16(vec![MEDIA, 1 << MEDIA, event as u8, status, 0, 0])
}

/// READ DISC INFORMATION, the standard form (MMC-6 6.21): a complete disc of one session.
pub fn read_disc_information() -> Vec<u8> {
    // Not erasable, last session complete, disc finalized; first track, sessions, first and last
    // track of the last session; no identification.
    let mut out = vec![0x0e, 1, 1, 1, 1, 0x20, 0, 0, 0, 0];
    // Neither lead-in nor lead-out to be written any more.
    out.resize(14, 0);
    out.extend([0xff; 8]);
    out.resize(32, 0);
    with_length16(out)
}

/// READ TRACK INFORMATION of the one track (MMC-6 6.26).
pub fn read_track_information(blocks: u64) -> Vec<u8> {
    let size = u32::try_from(blocks).unwrap_or(u32::MAX).to_be_bytes();
    // Track and session; data, recorded without interruption; mode 1, nothing to be written.
    let mut out = vec![1, 1, 0, 0x04, 0x01, 0];
    out.extend([0; 16]);
    out.extend(size);
    out.resize(46, 0);
    with_length16(out)
}

/// MECHANISM STATUS (MMC-6 6.10): no changer.
pub fn mechanism_status(open: bool) -> Vec<u8> {
    vec![0, if open { 0x10 } else { 0 }, 0, 0, 0, 0, 0, 0]
}

/// READ DISC STRUCTURE format 00h of a DVD-ROM (MMC-6 6.22.3.2.1): the physical format.
pub fn dvd_physical_format(blocks: u64) -> Vec<u8> {
    let first = 0x03_0000u32;
    let last = u32::try_from(blocks).unwrap_or(0xff_ffff).saturating_add(first - 1).min(0xff_ffff);
    let mut out = vec![0, 0, 0x01, 0x0f, 0x01, 0x00];
    out.extend(first.to_be_bytes());
    out.extend(last.to_be_bytes());
    out.resize(2 + 2048, 0);
    with_length16(out)
}

/// Mode page 2Ah, CD capabilities and mechanical status (MMC-3 5.5.10), header included.
pub fn capabilities_page(locked: bool) -> Vec<u8> {
    let mut out = vec![0x2a, 0x14];
    // Reads CD-R, CD-RW, DVD-ROM; writes nothing; multi-session and mode 2 forms.
    out.extend([0x0b, 0x00, 0x70, 0x00]);
    // Tray that locks, ejects and loads; whether it is locked now.
    out.extend([0x29 | if locked { 0x02 } else { 0 }, 0x00]);
    // Speeds in KB/s (obsolete, but read by old systems) and buffer size.
    out.extend([0x21, 0x13, 0, 0, 0x01, 0x00, 0x21, 0x13, 0, 0]);
    out.resize(22, 0);
    out
}

/// The contents of the first volume descriptor of an ISO 9660 image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IsoVolume {
    /// Volume identifier, without trailing spaces.
    pub label: String,
    /// Blocks of 2,048 bytes that the file system has.
    pub blocks: u32,
}

/// Block that holds the first volume descriptor.
pub const ISO_DESCRIPTOR_BLOCK: u64 = 16;

/// Reads the primary volume descriptor (ECMA-119 8.4), the 2,048 bytes of block 16. None when it is
/// not one.
pub fn parse_iso_volume(data: &[u8]) -> Option<IsoVolume> {
    let head = data.first_chunk::<7>()?;
    if head != b"\x01CD001\x01" {
        return None;
    }
    let label = data.get(40..72)?.iter().map(|b| match b {
        0x20..=0x7e => char::from(*b),
        _ => ' ',
    });
    let label = label.collect::<String>().trim_end().to_owned();
    // The field is stored in both byte orders; they must agree.
    let blocks = u32::from_le_bytes(*data.get(80..)?.first_chunk()?);
    let other = u32::from_be_bytes(*data.get(84..)?.first_chunk()?);
    (blocks == other).then_some(IsoVolume { label, blocks })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn length_is_right(data: &[u8]) -> bool {
        usize::from(u16::from_be_bytes([data[0], data[1]])) == data.len() - 2
    }

    #[test]
    fn read_toc_matches_known_bytes() {
        let toc = read_toc(1000, 0, 0, false).unwrap();
        assert_eq!(toc[..12], [0, 18, 1, 1, 0, 0x14, 1, 0, 0, 0, 0, 0]);
        assert_eq!(toc[12..], [0, 0x14, 0xaa, 0, 0, 0, 3, 0xe8]);
        let toc = read_toc(75 * 60, 0, 0xaa, true).unwrap();
        assert_eq!(toc, [0, 10, 1, 1, 0, 0x14, 0xaa, 0, 0, 1, 2, 0]);
        assert_eq!(read_toc(1000, 1, 0, true).unwrap()[8..], [0, 0, 2, 0]);
        let raw = read_toc(1000, 2, 0, false).unwrap();
        assert_eq!(raw.len(), 4 + 4 * 11);
        assert!(length_is_right(&raw));
        assert_eq!((read_toc(1, 0, 2, false), read_toc(1, 5, 0, false)), (None, None));
        assert!(read_toc(u64::MAX, 0, 0, true).is_some());
    }

    #[test]
    fn configuration_features_are_ordered_and_complete() {
        let all = get_configuration(Disc::Data(1000), FeatureFilter::All, 0);
        assert_eq!(all[6..8], [0, 8]);
        assert_eq!(u32::from_be_bytes(*all.first_chunk().unwrap()) as usize, all.len() - 4);
        let mut at = 8;
        let mut last = None;
        while at < all.len() {
            let number = u16::from_be_bytes([all[at], all[at + 1]]);
            assert!(last.is_none_or(|l| l < number));
            last = Some(number);
            at += 4 + usize::from(all[at + 3]);
        }
        assert_eq!((at, last), (all.len(), Some(0x1f)));
        let none = get_configuration(Disc::None, FeatureFilter::Current, 4);
        assert_eq!(none, [0, 0, 0, 4, 0, 0, 0, 0]);
        let dvd = get_configuration(Disc::Data(2_000_000), FeatureFilter::Single, 0x1f);
        assert_eq!(dvd, [0, 0, 0, 8, 0, 0, 0, 16, 0, 0x1f, 1, 0]);
    }

    #[test]
    fn event_status_and_disc_information_match_known_bytes() {
        assert_eq!(get_event_status(0x02, MediaEvent::New, true, false), [0, 0, 0x80, 0x10]);
        let event = get_event_status(0x10, MediaEvent::New, true, false);
        assert_eq!(event, [0, 6, 4, 0x10, 2, 2, 0, 0]);
        assert_eq!(get_event_status(0x12, MediaEvent::Removal, false, true)[4..6], [3, 1]);
        assert_eq!(mechanism_status(true)[1], 0x10);
        let info = read_disc_information();
        assert!(length_is_right(&info) && info.len() == 34);
        let track = read_track_information(0x1234);
        assert!(length_is_right(&track) && track[24..28] == [0, 0, 0x12, 0x34]);
        assert_eq!(dvd_physical_format(1)[..2], [8, 2]);
        let page = capabilities_page(true);
        assert_eq!((page.len(), page[6]), (usize::from(page[1]) + 2, 0x2b));
    }

    #[test]
    fn iso_volume_descriptor_is_parsed() {
        let mut data = vec![0; 2048];
        data[..7].copy_from_slice(b"\x01CD001\x01");
        data[40..72].copy_from_slice(b"A DISC                          ");
        data[80..88].copy_from_slice(&[5, 1, 0, 0, 0, 0, 1, 5]);
        let want = IsoVolume { label: "A DISC".into(), blocks: 0x105 };
        assert_eq!(parse_iso_volume(&data), Some(want));
        data[84] = 1;
        assert_eq!(parse_iso_volume(&data), None);
        for cut in [0, 6, 7, 71, 87] {
            assert_eq!(parse_iso_volume(&data[..cut]), None);
        }
    }
}

#[cfg(test)]
mod toc_tests {
    use super::*;

    #[test]
    fn toc_tracks_are_parsed_without_the_lead_out() {
        assert_eq!(parse_toc(&read_toc(512, 0, 0, false).unwrap()), Ok(vec![(1, 0)]));
        let two = [0, 26, 1, 2, 0, 0x14, 1, 0, 0, 0, 0, 0, 0, 0x10, 2, 0, 0, 0, 1, 4, 0, 0x14];
        assert_eq!(parse_toc(&two).unwrap_err().field, "TRACK NUMBER");
        let whole = [&two[..], &[0xaa, 0, 0, 0, 2, 0]].concat();
        assert_eq!(parse_toc(&whole), Ok(vec![(1, 0), (2, 260)]));
    }
}
