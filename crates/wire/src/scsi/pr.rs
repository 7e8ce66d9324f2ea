//! Persistent reservations: parameter lists of PERSISTENT RESERVE OUT, parameter data of PERSISTENT
//! RESERVE IN (SPC-4 6.15, 6.16).
//!
//! Invariants
//!  R1  A list is accepted whole or not at all. Every byte of an accepted list was checked, except
//!      reserved and obsolete fields, which are ignored as the standard requires.
//!  R2  TransportIDs in a list are compared in one form ([`TransportId`]), independent of their
//!      original form.

use super::codes::asc;
use super::sense::Sense;
use super::transport_id::TransportId;
use crate::bytes::{Reader, get_array, get16, get32};

/// Longest PERSISTENT RESERVE OUT list that is taken, bytes; a longer one is a PARAMETER LIST
/// LENGTH ERROR before any data moves. Two hundred and fifty of the longest TransportIDs fit.
pub const PR_OUT_LEN_MAX: u32 = 64 * 1024;

/// Length of a list without TransportIDs.
pub const PR_OUT_LEN: u32 = 24;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum PrType {
    /// Only the holder writes.
    WriteExclusive = 1,
    /// Only the holder reads and writes.
    ExclusiveAccess = 3,
    /// Only registrants write; one of them holds it.
    WriteExclusiveRegistrants = 5,
    /// Only registrants read and write; one of them holds it.
    ExclusiveAccessRegistrants = 6,
    /// Only registrants write; all of them hold it.
    WriteExclusiveAll = 7,
    /// Only registrants read and write; all of them hold it.
    ExclusiveAccessAll = 8,
}

impl PrType {
    /// Every type, by growing code.
    pub const ALL: [PrType; 6] = [
        PrType::WriteExclusive,
        PrType::ExclusiveAccess,
        PrType::WriteExclusiveRegistrants,
        PrType::ExclusiveAccessRegistrants,
        PrType::WriteExclusiveAll,
        PrType::ExclusiveAccessAll,
    ];

    /// The type of a TYPE field; None for obsolete and reserved codes.
    pub fn from_code(code: u8) -> Option<PrType> {
        PrType::ALL.into_iter().find(|t| *t as u8 == code)
    }

    /// The TYPE field.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// True if initiators without write access have no read access either.
    pub const fn excludes_reads(self) -> bool {
        matches!(
            self,
            PrType::ExclusiveAccess
                | PrType::ExclusiveAccessRegistrants
                | PrType::ExclusiveAccessAll
        )
    }

    pub const fn is_all_registrants(self) -> bool {
        matches!(self, PrType::WriteExclusiveAll | PrType::ExclusiveAccessAll)
    }

    /// Every registrant has access: "registrants only" and "all registrants".
    pub const fn admits_registrants(self) -> bool {
        !matches!(self, PrType::WriteExclusive | PrType::ExclusiveAccess)
    }

    pub const fn name(self) -> &'static str {
        match self {
            PrType::WriteExclusive => "write-exclusive",
            PrType::ExclusiveAccess => "exclusive-access",
            PrType::WriteExclusiveRegistrants => "write-exclusive-registrants-only",
            PrType::ExclusiveAccessRegistrants => "exclusive-access-registrants-only",
            PrType::WriteExclusiveAll => "write-exclusive-all-registrants",
            PrType::ExclusiveAccessAll => "exclusive-access-all-registrants",
        }
    }
}

/// Service action of PERSISTENT RESERVE OUT.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum PrOutAction {
    /// Register, change a key, unregister.
    Register = 0,
    /// Take the reservation.
    Reserve = 1,
    /// Give it back.
    Release = 2,
    /// Remove everything.
    Clear = 3,
    /// Remove others, take their reservation.
    Preempt = 4,
    /// The same, and abort their commands.
    PreemptAndAbort = 5,
    /// REGISTER with any previously registered key.
    RegisterAndIgnore = 6,
    /// Register another nexus and hand it the reservation.
    RegisterAndMove = 7,
}

impl PrOutAction {
    /// Every service action, by code.
    pub const ALL: [PrOutAction; 8] = [
        PrOutAction::Register,
        PrOutAction::Reserve,
        PrOutAction::Release,
        PrOutAction::Clear,
        PrOutAction::Preempt,
        PrOutAction::PreemptAndAbort,
        PrOutAction::RegisterAndIgnore,
        PrOutAction::RegisterAndMove,
    ];

    /// The action of a SERVICE ACTION field.
    pub fn from_code(code: u8) -> Option<PrOutAction> {
        PrOutAction::ALL.into_iter().find(|a| *a as u8 == code)
    }
}

/// Service action of PERSISTENT RESERVE IN.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum PrInAction {
    ReadKeys = 0,
    ReadReservation = 1,
    /// The supported features.
    ReportCapabilities = 2,
    /// Every registration, with the ports.
    ReadFullStatus = 3,
}

impl PrInAction {
    /// The action of a SERVICE ACTION field.
    pub fn from_code(code: u8) -> Option<PrInAction> {
        [
            PrInAction::ReadKeys,
            PrInAction::ReadReservation,
            PrInAction::ReportCapabilities,
            PrInAction::ReadFullStatus,
        ]
        .into_iter()
        .find(|a| *a as u8 == code)
    }
}

/// Where REGISTER AND MOVE moves to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrMove {
    /// UNREG: the mover's registration is removed.
    pub unregister: bool,
    /// Relative target port identifier of the destination.
    pub target: u16,
    /// Initiator port of the destination.
    pub port: TransportId,
}

/// A PERSISTENT RESERVE OUT parameter list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PrOutList {
    /// RESERVATION KEY: the sender's.
    pub key: u64,
    /// SERVICE ACTION RESERVATION KEY.
    pub action_key: u64,
    /// APTPL: survive a power loss.
    pub aptpl: bool,
    /// ALL_TG_PT: at all target ports.
    pub all_targets: bool,
    /// SPEC_I_PT was set.
    pub has_ports: bool,
    /// The TransportIDs of SPEC_I_PT, each once.
    pub ports: Vec<TransportId>,
    /// REGISTER AND MOVE only.
    pub to: Option<PrMove>,
}

impl PrOutList {
    /// Reads a list. PARAMETER LIST LENGTH ERROR when it has another length than its fields
    /// require. INVALID FIELD IN PARAMETER LIST, with a pointer, for SPEC_I_PT where it is not
    /// allowed and for TransportIDs that are none.
    pub fn parse(action: PrOutAction, data: &[u8]) -> Result<PrOutList, Sense> {
        let cut = Sense::new(asc::PARAMETER_LIST_LEN);
        let (head, rest) = data.split_first_chunk::<24>().ok_or(cut)?;
        let mut list = PrOutList {
            key: u64::from_be_bytes(get_array::<0, 8, 24>(head)),
            action_key: u64::from_be_bytes(get_array::<8, 8, 24>(head)),
            ..PrOutList::default()
        };
        if action == PrOutAction::RegisterAndMove {
            list.aptpl = head[17] & 1 != 0;
            list.to = Some(PrMove {
                unregister: head[17] & 2 != 0,
                target: get16::<18, 24>(head),
                port: one_port(get32::<20, 24>(head), rest)?,
            });
            return Ok(list);
        }
        list.has_ports = head[20] & 0x08 != 0;
        if !list.has_ports {
            return if rest.is_empty() { list.flagged(action, head[20]) } else { Err(cut) };
        }
        if action != PrOutAction::Register {
            return Err(Sense::list_field(20, Some(3)));
        }
        list.ports = ports_of(rest)?;
        list.flagged(action, head[20])
    }

    /// ALL_TG_PT and APTPL belong to registering; elsewhere they are ignored.
    fn flagged(self, action: PrOutAction, flags: u8) -> Result<PrOutList, Sense> {
        let here = matches!(action, PrOutAction::Register | PrOutAction::RegisterAndIgnore);
        let (all_targets, aptpl) = (here && flags & 4 != 0, here && flags & 1 != 0);
        Ok(PrOutList { all_targets, aptpl, ..self })
    }

    /// Writes a list, for initiators.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(24);
        out.extend(self.key.to_be_bytes());
        out.extend(self.action_key.to_be_bytes());
        if let Some(to) = &self.to {
            out.extend([0, u8::from(to.unregister) << 1 | u8::from(self.aptpl)]);
            out.extend(to.target.to_be_bytes());
            out.extend(len32(to.port.bytes().len()));
            out.extend(to.port.bytes());
            return out;
        }
        let flags =
            u8::from(self.has_ports) << 3 | u8::from(self.all_targets) << 2 | u8::from(self.aptpl);
        out.extend([0, 0, 0, 0, flags, 0, 0, 0]);
        if self.has_ports {
            out.extend(len32(self.ports.iter().map(|p| p.bytes().len()).sum()));
            self.ports.iter().for_each(|p| out.extend(p.bytes()));
        }
        out
    }
}

fn len32(len: usize) -> [u8; 4] {
    u32::try_from(len).unwrap_or(u32::MAX).to_be_bytes()
}

/// The TransportID of REGISTER AND MOVE: as long as its length field gives, with nothing behind it.
fn one_port(len: u32, rest: &[u8]) -> Result<TransportId, Sense> {
    if usize::try_from(len) != Ok(rest.len()) {
        return Err(Sense::new(asc::PARAMETER_LIST_LEN));
    }
    match TransportId::decode(rest) {
        Some((port, used)) if used == rest.len() => Ok(port),
        _ => Err(Sense::list_field(24, None)),
    }
}

/// The TransportIDs of SPEC_I_PT.
fn ports_of(rest: &[u8]) -> Result<Vec<TransportId>, Sense> {
    let cut = Sense::new(asc::PARAMETER_LIST_LEN);
    let (len, mut rest) = rest.split_first_chunk::<4>().ok_or(cut)?;
    if usize::try_from(u32::from_be_bytes(*len)) != Ok(rest.len()) {
        return Err(cut);
    }
    let mut ports: Vec<TransportId> = Vec::new();
    let mut at = 28usize;
    while !rest.is_empty() {
        let wrong = || Sense::list_field(u16::try_from(at).unwrap_or(u16::MAX), None);
        let (port, used) = TransportId::decode(rest).ok_or_else(wrong)?;
        rest = rest.get(used..).ok_or_else(wrong)?;
        at = at.saturating_add(used);
        ports.push(port);
    }
    ports.sort();
    ports.dedup();
    Ok(ports)
}

/// READ KEYS parameter data.
pub fn pr_keys(generation: u32, keys: impl Iterator<Item = u64>) -> Vec<u8> {
    let mut out = generation.to_be_bytes().to_vec();
    out.extend([0; 4]);
    keys.for_each(|key| out.extend(key.to_be_bytes()));
    with_len(out)
}

/// READ RESERVATION parameter data; the key is 0 for an all-registrants type.
pub fn pr_reservation(generation: u32, held: Option<(u64, PrType)>) -> Vec<u8> {
    let mut out = generation.to_be_bytes().to_vec();
    out.extend([0; 4]);
    if let Some((key, kind)) = held {
        out.extend(key.to_be_bytes());
        out.extend([0, 0, 0, 0, 0, kind.code(), 0, 0]);
    }
    with_len(out)
}

/// The ALLOW COMMANDS value: TEST UNIT READY passes every type, and MODE SENSE, READ BUFFER,
/// RECEIVE DIAGNOSTIC RESULTS, READ DEFECT DATA, REPORT SUPPORTED OPERATION CODES and the like pass
/// the Write Exclusive types (SPC-4 table 213, 011b).
const ALLOW_COMMANDS: u8 = 3;

/// REPORT CAPABILITIES parameter data: RESERVE and RELEASE are compatible (CRH), SPEC_I_PT and
/// ALL_TG_PT
/// work, all six types. `keeps` is whether APTPL works, `aptpl` whether it is active.
pub fn pr_capabilities(keeps: bool, aptpl: bool) -> Vec<u8> {
    let bits = 0x10 | 0x08 | 0x04 | u8::from(keeps);
    let valid = 0x80 | ALLOW_COMMANDS << 4 | u8::from(aptpl);
    vec![0, 8, bits, valid, 0xea, 0x01, 0, 0]
}

/// One registration, as READ FULL STATUS describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrStatus {
    pub key: u64,
    /// It holds the reservation, whose type this is.
    pub holds: Option<PrType>,
    /// Relative target port identifier.
    pub target: u16,
    /// Initiator port.
    pub port: TransportId,
}

/// READ FULL STATUS parameter data.
pub fn pr_full_status<'a>(generation: u32, all: impl Iterator<Item = &'a PrStatus>) -> Vec<u8> {
    let mut out = generation.to_be_bytes().to_vec();
    out.extend([0; 4]);
    for one in all {
        out.extend(one.key.to_be_bytes());
        out.extend([0; 4]);
        out.extend([u8::from(one.holds.is_some()), one.holds.map_or(0, PrType::code)]);
        out.extend([0; 4]);
        out.extend(one.target.to_be_bytes());
        out.extend(len32(one.port.bytes().len()));
        out.extend(one.port.bytes());
    }
    with_len(out)
}

/// Sets ADDITIONAL LENGTH, bytes 4 to 7, to the number of bytes after byte 7.
fn with_len(mut out: Vec<u8>) -> Vec<u8> {
    let len = len32(out.len().saturating_sub(8));
    out.iter_mut().skip(4).zip(len).for_each(|(to, from)| *to = from);
    out
}

/// Reads READ FULL STATUS parameter data, for initiators: PRgeneration and the complete
/// descriptors.
pub fn parse_pr_full_status(data: &[u8]) -> Option<(u32, Vec<PrStatus>)> {
    let mut reader = Reader::new(data);
    let generation = reader.u32("PRGENERATION").ok()?;
    let len = usize::try_from(reader.u32("ADDITIONAL LENGTH").ok()?).ok()?;
    let rest = reader.rest();
    let mut reader = Reader::new(rest.get(..len).unwrap_or(rest));
    let mut all = Vec::new();
    while let Ok(head) = reader.array::<24>("full status descriptor") {
        let len = usize::try_from(get32::<20, 24>(&head)).ok()?;
        let Ok(port) = reader.take(len, "TransportID") else { break };
        let kind = PrType::from_code(head[13] & 0x0f);
        all.push(PrStatus {
            key: u64::from_be_bytes(get_array::<0, 8, 24>(&head)),
            holds: if head[12] & 1 != 0 { kind } else { None },
            target: get16::<18, 24>(&head),
            port: TransportId::decode(port)?.0,
        });
    }
    Some((generation, all))
}

/// Reads READ KEYS parameter data, for initiators: PRgeneration and the whole keys.
pub fn parse_pr_keys(data: &[u8]) -> Option<(u32, Vec<u64>)> {
    let (head, rest) = data.split_first_chunk::<8>()?;
    let len = usize::try_from(get32::<4, 8>(head)).ok()?;
    let (keys, _) = rest.get(..len).unwrap_or(rest).as_chunks::<8>();
    Some((get32::<0, 8>(head), keys.iter().map(|k| u64::from_be_bytes(*k)).collect()))
}

/// Reads READ RESERVATION parameter data, for initiators: PRgeneration, key and type.
pub fn parse_pr_reservation(data: &[u8]) -> Option<(u32, Option<(u64, PrType)>)> {
    let (head, rest) = data.split_first_chunk::<8>()?;
    let generation = get32::<0, 8>(head);
    if get32::<4, 8>(head) == 0 {
        return Some((generation, None));
    }
    let held = rest.first_chunk::<16>()?;
    let key = u64::from_be_bytes(get_array::<0, 8, 16>(held));
    Some((generation, Some((key, PrType::from_code(held[13] & 0x0f)?))))
}

#[cfg(test)]
#[path = "pr_tests.rs"]
mod tests;
