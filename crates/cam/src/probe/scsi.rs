//! Probe of a SCSI logical unit.
//!
//! ```text
//!  Tur --(attentions: again)--> Inquiry --> FullInquiry --> ReportLuns --> VpdList --+
//!   |                             |         (longer than     (LUN 0,                 |
//!   absent: the end               no unit:   36 bytes)        SPC-3)                 |
//!                                 the end                                            |
//!  +---------------------------------------------------------------------------------+
//!  +-> Names 83 -> [TPGS] Groups -> Serial 80 --------------------------------------+
//!  +---------------------------------------------------------------------------------+
//!  +-> [disks] Limits B0 -> Rotation B1 -> Provisioning B2 --------------------------+
//!  +---------------------------------------------------------------------------------+
//!  +-> Mode (10: caching) --> Capacity (16 first from SPC-3 on, else 10) --> Done
//! ```
//! A page that is not listed is not requested. A failed optional question is skipped.

use wire::scsi::{
    AccessState, Capacity, DiskMode, INQUIRY_SHORT, Inquiry, Limits, Lun, UnitNames,
    parse_capacity10, parse_capacity16, parse_disk_mode, parse_inquiry, parse_luns,
    parse_target_port_groups, parse_toc, parse_vpd_limits, parse_vpd_names, parse_vpd_provisioning,
    parse_vpd_rotation, parse_vpd_serial, vpd_body,
};

use super::{
    ENDLESS, FailedResponse, PROBE_TRIES, ProbeCommand, Refusal, is_no_device, must_retry,
    received_data, usable,
};
use crate::ccb::{Command, Ended, Flags};

/// PERIPHERAL DEVICE TYPE of disks.
const DISK: u8 = 0x00;
/// And of CD and DVD drives.
const CDROM: u8 = 0x05;
/// VERSION of SPC-3.
const SPC_3: u8 = 0x05;
/// ALLOCATION LENGTH of pages and lists; pages that are longer are cut, a list of logical units is
/// requested again.
const ANSWER_LEN: u16 = 4096;
/// Bytes of the head of a list of logical units, and of each of them.
const LUNS_HEAD: u32 = 8;
const LUN_LEN: u32 = 8;
/// Most logical units of one target that are looked at, unless the bus sets another number: as many
/// as there are with flat addressing.
pub const LUNS_MAX: u32 = 16_384;

/// Facts of a logical unit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScsiFacts {
    /// Standard INQUIRY data.
    pub inquiry: Inquiry,
    /// Serial number; empty when it reports none.
    pub serial: String,
    /// Names of page 83h.
    pub names: UnitNames,
    /// How it can be accessed this way; None of units to which all ways are equal.
    pub access: Option<AccessState>,
    /// Limits of pages B0h and B2h.
    pub limits: Limits,
    /// 0: not reported; 1: not rotating; else revolutions per minute.
    pub rotation: u16,
    /// Write protection, FUA, write cache.
    pub mode: DiskMode,
    /// None without a medium, and of units that are not disks.
    pub capacity: Option<Capacity>,
    /// CD: tracks of the disc that is in.
    pub tracks: u8,
    /// The target's logical units, if this is the first one and they were reported.
    pub luns: Option<Vec<Lun>>,
    /// How many it has, where that is more than are looked at; else 0.
    pub luns_beyond: u32,
}

impl ScsiFacts {
    /// Whether it is the unit that reported `other`: names and serial number agree, and a disk has
    /// blocks of the same length. With another length all data would be at other offsets.
    pub fn is_same(&self, other: &ScsiFacts) -> bool {
        let block_len = |facts: &ScsiFacts| {
            facts.capacity.filter(|_| !facts.inquiry.removable).map(|c| c.block_len)
        };
        let reformatted = match (block_len(self), block_len(other)) {
            (Some(own), Some(other)) => own != other,
            _ => false,
        };
        self.has_names_of(other) && !reformatted
    }

    /// Names and serial number agree.
    pub fn has_names_of(&self, other: &ScsiFacts) -> bool {
        let own = (&self.inquiry.vendor, &self.inquiry.product, &self.serial, &self.names.id);
        let names = (&other.inquiry.vendor, &other.inquiry.product, &other.serial, &other.names.id);
        own == names
    }

    /// It reports what distinguishes it from other units: a serial number or a name of its own.
    pub fn is_named(&self) -> bool {
        !self.serial.is_empty() || !self.names.id.is_empty()
    }

    /// Ways to it may differ, and it reports in which group this one's port is.
    pub fn is_asymmetric(&self) -> bool {
        self.inquiry.asymmetric != 0 && self.names.port_group.is_some()
    }
}

/// REPORT TARGET PORT GROUPS (SPC-4 section 6.37).
pub(crate) fn access_query() -> ProbeCommand {
    let [high, low] = ANSWER_LEN.to_be_bytes();
    let command = Command::scsi(&[0xa3, 0x0a, 0, 0, 0, 0, 0, 0, high, low, 0, 0]);
    ProbeCommand { command, flags: Flags::IN | Flags::RAW, length: u32::from(ANSWER_LEN) }
}

/// The state of the group that the port of this way is in; none when it makes no sense.
pub(crate) fn access_answer(names: &UnitNames, data: &[u8]) -> Option<AccessState> {
    let (groups, _) = parse_target_port_groups(data, false).ok()?;
    groups.iter().find(|g| Some(g.group) == names.port_group).map(|g| g.state)
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ScsiProbeState {
    Tur,
    Inquiry,
    FullInquiry,
    ReportLuns,
    VpdList,
    Names,
    Groups,
    Serial,
    Limits,
    Rotation,
    Provisioning,
    Mode,
    Capacity16,
    Capacity10,
    Toc,
    Done,
}

/// See the module.
pub struct ScsiProbe {
    state: ScsiProbeState,
    tries: u8,
    first_lun: bool,
    pages: Vec<u8>,
    facts: ScsiFacts,
    /// Its earlier facts, if known.
    before: Option<ScsiFacts>,
    /// Only the questions that identify the unit.
    brief: bool,
    /// Most logical units that are looked at, and bytes of the request for their list.
    luns_max: u32,
    luns_len: u32,
    refusal: Option<Refusal>,
}

impl ScsiProbe {
    /// Probe of a unit; the target's first one lists the others. A disk with earlier facts
    /// (`before`) keeps its capacity if it reports none now, or an impossible one.
    pub fn new(first_lun: bool, before: Option<ScsiFacts>) -> ScsiProbe {
        ScsiProbe {
            state: ScsiProbeState::Tur,
            tries: 0,
            first_lun,
            pages: Vec::new(),
            facts: ScsiFacts::default(),
            before,
            brief: false,
            luns_max: LUNS_MAX,
            luns_len: ANSWER_LEN.into(),
            refusal: None,
        }
    }

    /// Looks at no more logical units of the target than that.
    pub fn with_luns_max(self, luns_max: u32) -> ScsiProbe {
        ScsiProbe { luns_max, ..self }
    }

    /// Probe of a unit with earlier facts (`before`): finds out only whether it is the same one. A
    /// missing answer is not taken for an answer.
    pub fn identity(before: ScsiFacts) -> ScsiProbe {
        ScsiProbe { brief: true, ..ScsiProbe::new(false, Some(before)) }
    }

    /// The first questions, which learn of changes so far, are answered.
    pub fn has_begun(&self) -> bool {
        self.state != ScsiProbeState::Tur
    }

    /// The next question; none when all were sent.
    pub fn next_command(&self) -> Option<ProbeCommand> {
        let [high, low] = ANSWER_LEN.to_be_bytes();
        let page = |code| (vec![0x12, 1, code, high, low, 0], u32::from(ANSWER_LEN));
        let full = self.facts.inquiry.whole.min(255);
        let (cdb, length) = match self.state {
            ScsiProbeState::Tur => (vec![0; 6], 0),
            ScsiProbeState::Inquiry => {
                (vec![0x12, 0, 0, 0, INQUIRY_SHORT as u8, 0], INQUIRY_SHORT as u32)
            }
            ScsiProbeState::FullInquiry => (vec![0x12, 0, 0, 0, full as u8, 0], full as u32),
            ScsiProbeState::ReportLuns => {
                let [a, b, c, d] = self.luns_len.to_be_bytes();
                (vec![0xa0, 0, 0, 0, 0, 0, a, b, c, d, 0, 0], self.luns_len)
            }
            ScsiProbeState::VpdList => page(0x00),
            ScsiProbeState::Names => page(0x83),
            ScsiProbeState::Groups => return Some(access_query()),
            ScsiProbeState::Serial => page(0x80),
            ScsiProbeState::Limits => page(0xb0),
            ScsiProbeState::Rotation => page(0xb1),
            ScsiProbeState::Provisioning => page(0xb2),
            ScsiProbeState::Mode => (vec![0x5a, 0, 0x08, 0, 0, 0, 0, 0, 192, 0], 192),
            ScsiProbeState::Capacity16 => {
                (vec![0x9e, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 32, 0, 0], 32)
            }
            ScsiProbeState::Capacity10 => (vec![0x25, 0, 0, 0, 0, 0, 0, 0, 0, 0], 8),
            ScsiProbeState::Toc => (vec![0x43, 0, 0, 0, 0, 0, 0, 0x03, 0x24, 0], 0x324),
            ScsiProbeState::Done => return None,
        };
        let direction = if length == 0 { Flags::NONE } else { Flags::IN };
        // A disk that is not ready is made ready, if possible, before its modes and capacity are
        // read.
        let helped = matches!(
            self.state,
            ScsiProbeState::Mode | ScsiProbeState::Capacity16 | ScsiProbeState::Capacity10
        );
        let flags = if helped { direction } else { direction | Flags::RAW };
        Some(ProbeCommand { command: Command::scsi(&cdb), flags, length })
    }

    /// Takes the answer to the question.
    pub fn handle_answer(&mut self, ended: &Ended, data: &[u8]) {
        if is_no_device(ended.outcome.status) {
            return self.refuse(Refusal::NoDevice);
        }
        if must_retry(ended) && self.tries < PROBE_TRIES {
            self.tries += 1;
            return;
        }
        self.tries = 0;
        let data = received_data(ended, data);
        let lists = self.state == ScsiProbeState::ReportLuns && ended.result.is_ok();
        if lists && self.needs_longer_list(data) {
            return;
        }
        match self.state {
            ScsiProbeState::Tur | ScsiProbeState::Done => {}
            ScsiProbeState::Inquiry if ended.result.is_err() => {
                let response = FailedResponse::of(&ended.outcome);
                return self.refuse(Refusal::Silent { question: "INQUIRY", response });
            }
            ScsiProbeState::Inquiry => match parse_inquiry(data) {
                Err(error) => {
                    return self.refuse(Refusal::Malformed { question: "INQUIRY", error });
                }
                Ok(inquiry) if inquiry.qualifier != 0 || inquiry.kind == 0x1f => {
                    // A target need not have a unit 0, but reports its units there all the same
                    // (SPC-4 section 6.33).
                    self.refuse(Refusal::NoUnit);
                    if self.first_lun {
                        self.state = ScsiProbeState::ReportLuns;
                    }
                    return;
                }
                Ok(inquiry) => self.facts.inquiry = inquiry,
            },
            ScsiProbeState::Capacity16 | ScsiProbeState::Capacity10 => {
                return self.handle_capacity(ended, data);
            }
            _ if self.brief && ended.result.is_err_and(|e| e != bio::Errno::Inval) => {
                let response = FailedResponse::of(&ended.outcome);
                return self.refuse(Refusal::Silent { question: "INQUIRY of a page", response });
            }
            _ if ended.result.is_err() => {}
            _ => self.handle_optional(data),
        }
        self.state = self.after(self.state);
    }

    /// An answer that is as well not given: one that makes no sense is as good as none.
    fn handle_optional(&mut self, data: &[u8]) {
        let facts = &mut self.facts;
        match self.state {
            ScsiProbeState::FullInquiry => {
                if let Ok(inquiry) = parse_inquiry(data) {
                    facts.inquiry = inquiry;
                }
            }
            ScsiProbeState::ReportLuns => {
                facts.luns = parse_luns(data).ok().map(|(mut luns, len)| {
                    let reported = len.saturating_sub(LUNS_HEAD) / LUN_LEN;
                    facts.luns_beyond = if reported > self.luns_max { reported } else { 0 };
                    luns.truncate(self.luns_max as usize);
                    luns.sort_unstable();
                    luns.dedup();
                    luns
                });
            }
            ScsiProbeState::VpdList => self.pages = vpd_body(0, data).unwrap_or_default().to_vec(),
            ScsiProbeState::Names => facts.names = parse_vpd_names(data).unwrap_or_default(),
            ScsiProbeState::Groups => facts.access = access_answer(&facts.names, data),
            ScsiProbeState::Serial => facts.serial = parse_vpd_serial(data).unwrap_or_default(),
            ScsiProbeState::Limits => {
                let mut limits = facts.limits;
                if parse_vpd_limits(data, &mut limits).is_ok() {
                    facts.limits = limits;
                }
            }
            ScsiProbeState::Rotation => facts.rotation = parse_vpd_rotation(data).unwrap_or(0),
            ScsiProbeState::Provisioning => {
                let mut limits = facts.limits;
                if parse_vpd_provisioning(data, &mut limits).is_ok() {
                    facts.limits = limits;
                }
            }
            ScsiProbeState::Toc => facts.tracks = parse_toc(data).map_or(0, |toc| toc.len() as u8),
            ScsiProbeState::Mode => facts.mode = parse_disk_mode(data).unwrap_or_default(),
            _ => {}
        }
    }

    /// The target has more logical units than fit its answer: the list is requested again, with
    /// space for all that are looked at.
    fn needs_longer_list(&mut self, data: &[u8]) -> bool {
        let most = LUNS_HEAD.saturating_add(LUN_LEN.saturating_mul(self.luns_max));
        let reported = parse_luns(data).map_or(0, |(_, len)| len.min(most));
        let more = reported > self.luns_len;
        self.luns_len = self.luns_len.max(reported);
        more
    }

    fn handle_capacity(&mut self, ended: &Ended, data: &[u8]) {
        let long = self.state == ScsiProbeState::Capacity16;
        let newer = self.facts.inquiry.version >= SPC_3;
        let (question, read) = match long {
            true => ("READ CAPACITY(16)", parse_capacity16(data)),
            false => ("READ CAPACITY(10)", parse_capacity10(data)),
        };
        self.state = ScsiProbeState::Done;
        match (ended.result, read) {
            // The other one may be known.
            (Err(bio::Errno::Inval), _) if long && newer => self.state = ScsiProbeState::Capacity10,
            // No medium, or never ready: a disk without a size.
            (Err(_), _) => self.facts.capacity = self.capacity_before(),
            // No number is left for how many that are.
            (Ok(_), Err(_)) if long && data.get(..8) == Some(&[0xff; 8]) => {
                let len = data.get(8..12).and_then(|len| len.try_into().ok());
                let block_len = len.map_or(0, u32::from_be_bytes);
                self.refuse_capacity(Refusal::Medium { blocks: u64::MAX, block_len, why: ENDLESS });
            }
            (Ok(_), Err(error)) => self.refuse_capacity(Refusal::Malformed { question, error }),
            (Ok(_), Ok(c)) if !long && !newer && c.blocks == 1 << 32 => {
                self.state = ScsiProbeState::Capacity16;
            }
            (Ok(_), Ok(capacity)) => match usable(capacity.blocks, capacity.block_len) {
                Ok(()) => {
                    self.facts.capacity = Some(capacity);
                    if self.facts.inquiry.kind == CDROM {
                        self.state = ScsiProbeState::Toc;
                    }
                }
                Err(why) => self.refuse_capacity(why),
            },
        }
    }

    /// The earlier capacity of the same disk, if its medium cannot be removed.
    fn capacity_before(&self) -> Option<Capacity> {
        let fixed = self.before.as_ref().filter(|_| !self.facts.inquiry.removable);
        fixed.filter(|before| self.facts.is_same(before)).and_then(|before| before.capacity)
    }

    /// A capacity that makes no sense.
    fn refuse_capacity(&mut self, why: Refusal) {
        match self.capacity_before() {
            Some(capacity) => self.facts.capacity = Some(capacity),
            None => self.refuse(why),
        }
    }

    fn refuse(&mut self, why: Refusal) {
        self.refusal = Some(why);
        self.state = ScsiProbeState::Done;
    }

    fn after(&self, state: ScsiProbeState) -> ScsiProbeState {
        let disk = self.facts.inquiry.kind == DISK;
        let optical = self.facts.inquiry.kind == CDROM;
        let newer = self.facts.inquiry.version >= SPC_3;
        let lists = self.first_lun && newer;
        let has = |page: u8| self.pages.contains(&page);
        let next = match state {
            _ if self.refusal.is_some() => ScsiProbeState::Done,
            ScsiProbeState::Tur => ScsiProbeState::Inquiry,
            ScsiProbeState::Inquiry if self.facts.inquiry.whole > INQUIRY_SHORT => {
                ScsiProbeState::FullInquiry
            }
            ScsiProbeState::Inquiry | ScsiProbeState::FullInquiry if lists => {
                ScsiProbeState::ReportLuns
            }
            ScsiProbeState::Inquiry | ScsiProbeState::FullInquiry | ScsiProbeState::ReportLuns => {
                ScsiProbeState::VpdList
            }
            ScsiProbeState::VpdList => ScsiProbeState::Names,
            ScsiProbeState::Names if self.facts.is_asymmetric() && !self.brief => {
                ScsiProbeState::Groups
            }
            ScsiProbeState::Names | ScsiProbeState::Groups => ScsiProbeState::Serial,
            ScsiProbeState::Serial if disk && self.brief && newer => ScsiProbeState::Capacity16,
            ScsiProbeState::Serial if disk && self.brief => ScsiProbeState::Capacity10,
            ScsiProbeState::Serial if disk => ScsiProbeState::Limits,
            ScsiProbeState::Serial if optical => ScsiProbeState::Capacity10,
            ScsiProbeState::Limits => ScsiProbeState::Rotation,
            ScsiProbeState::Rotation => ScsiProbeState::Provisioning,
            ScsiProbeState::Provisioning => ScsiProbeState::Mode,
            ScsiProbeState::Mode if newer => ScsiProbeState::Capacity16,
            ScsiProbeState::Mode => ScsiProbeState::Capacity10,
            ScsiProbeState::Serial
            | ScsiProbeState::Capacity16
            | ScsiProbeState::Capacity10
            | ScsiProbeState::Toc
            | ScsiProbeState::Done => ScsiProbeState::Done,
        };
        let page = match next {
            ScsiProbeState::Names => 0x83,
            ScsiProbeState::Serial => 0x80,
            ScsiProbeState::Limits => 0xb0,
            ScsiProbeState::Rotation => 0xb1,
            ScsiProbeState::Provisioning => 0xb2,
            _ => return next,
        };
        if has(page) { next } else { self.after(next) }
    }

    /// The target's logical units, as far as it reported them.
    pub fn luns(&self) -> Option<Vec<Lun>> {
        match self.refusal {
            Some(Refusal::NoDevice) => Some(Vec::new()),
            _ => self.facts.luns.clone(),
        }
    }

    /// Returns the result once no question is left.
    pub fn finish(self) -> Result<ScsiFacts, Refusal> {
        match self.refusal {
            Some(why) => Err(why),
            None => Ok(self.facts),
        }
    }
}
