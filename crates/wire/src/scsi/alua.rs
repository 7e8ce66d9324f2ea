//! Asymmetric logical unit access (SPC-4 section 5.15): REPORT TARGET PORT GROUPS and SET TARGET
//! PORT GROUPS.
//!
//! ```text
//! report:  RETURN DATA LENGTH (4) [ 10h, transition seconds, 0, 0 ]  then, a group:
//!          PREF 000b STATE | supported | GROUP (2) | 0 | STATUS CODE | 0 | ports | { 0 0 PORT }*
//! set:     0 0 0 0, then a group:  0000b STATE | 0 | GROUP (2)
//! ```

use super::codes::asc;
use super::sense::Sense;
use crate::bytes::Reader;
use crate::error::WireError;

/// Ports of one group that the report can hold; more are left out.
pub const GROUP_PORTS_MAX: usize = 255;

/// T_SUP, O_SUP, U_SUP, S_SUP, AN_SUP, AO_SUP: all six states of [`AccessState`].
const SUPPORTED: u8 = 0xcf;
/// Header of both lists, bytes.
const HEADER_LEN: usize = 4;
/// FORMAT TYPE of the extended header.
const EXTENDED: u8 = 0x10;

/// How a logical unit can be accessed through the ports of a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum AccessState {
    /// Everything works, and here it works best.
    #[default]
    Optimized = 0x0,
    /// Everything works; another group is better.
    NonOptimized = 0x1,
    /// Ready to take over; the medium is not accessed.
    Standby = 0x2,
    /// Only few commands are served, mainly those that identify the unit and its ports.
    Unavailable = 0x3,
    /// As unavailable, and an initiator cannot change it.
    Offline = 0xe,
    /// On the way to another state.
    Transitioning = 0xf,
}

impl AccessState {
    pub const ALL: [AccessState; 6] = [
        AccessState::Optimized,
        AccessState::NonOptimized,
        AccessState::Standby,
        AccessState::Unavailable,
        AccessState::Offline,
        AccessState::Transitioning,
    ];

    /// The state of a code; `None` for one that is not served.
    pub fn from_code(code: u8) -> Option<AccessState> {
        AccessState::ALL.into_iter().find(|s| *s as u8 == code)
    }

    pub const fn code(self) -> u8 {
        self as u8
    }

    /// The word in configurations and lists.
    pub const fn name(self) -> &'static str {
        match self {
            AccessState::Optimized => "optimized",
            AccessState::NonOptimized => "non-optimized",
            AccessState::Standby => "standby",
            AccessState::Unavailable => "unavailable",
            AccessState::Offline => "offline",
            AccessState::Transitioning => "transitioning",
        }
    }

    /// True when the medium can be accessed.
    pub const fn is_active(self) -> bool {
        matches!(self, AccessState::Optimized | AccessState::NonOptimized)
    }
}

/// The cause of a group's state (STATUS CODE).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum StateCause {
    /// No change to report.
    #[default]
    None = 0,
    /// SET TARGET PORT GROUPS.
    Explicit = 1,
    /// The target itself, or its operator.
    Implicit = 2,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PortGroup {
    pub group: u16,
    pub state: AccessState,
    /// PREF: the preferred group.
    pub preferred: bool,
    pub cause: StateCause,
    /// Relative target port identifiers; at most [`GROUP_PORTS_MAX`] are sent.
    pub ports: Vec<u16>,
}

/// REPORT TARGET PORT GROUPS data, not truncated. `transition_s` requests the extended header and
/// is its IMPLICIT TRANSITION TIME, seconds.
pub fn report_target_port_groups(groups: &[PortGroup], transition_s: Option<u8>) -> Vec<u8> {
    let mut out = vec![0; HEADER_LEN];
    if let Some(seconds) = transition_s {
        out.extend([EXTENDED, seconds, 0, 0]);
    }
    for group in groups {
        let ports = group.ports.get(..GROUP_PORTS_MAX).unwrap_or(&group.ports);
        let count = u8::try_from(ports.len()).unwrap_or(u8::MAX);
        let state = group.state.code() | if group.preferred { 0x80 } else { 0 };
        let [high, low] = group.group.to_be_bytes();
        out.extend([state, SUPPORTED, high, low, 0, group.cause as u8, 0, count]);
        for port in ports {
            let [high, low] = port.to_be_bytes();
            out.extend([0, 0, high, low]);
        }
    }
    let len = u32::try_from(out.len() - HEADER_LEN).unwrap_or(u32::MAX);
    if let Some(head) = out.first_chunk_mut::<HEADER_LEN>() {
        *head = len.to_be_bytes();
    }
    out
}

/// Reads REPORT TARGET PORT GROUPS data of either format; `extended` states which was requested.
/// Answers the groups and the transition time, seconds.
///
/// # Errors
/// The data ends in the middle of something, or holds a state that is not served.
pub fn parse_target_port_groups(
    data: &[u8],
    extended: bool,
) -> Result<(Vec<PortGroup>, u8), WireError> {
    const WHAT: &str = "REPORT TARGET PORT GROUPS";
    let mut reader = Reader::new(data);
    let len = usize::try_from(reader.u32(WHAT)?).unwrap_or(usize::MAX);
    let mut reader = Reader::new(reader.take(len, WHAT)?);
    let mut seconds = 0;
    if extended {
        let [_, time, _, _] = reader.u32(WHAT)?.to_be_bytes();
        seconds = time;
    }
    let mut groups = Vec::new();
    while !reader.rest().is_empty() {
        let [state, _, high, low] = reader.u32(WHAT)?.to_be_bytes();
        let [_, cause, _, count] = reader.u32(WHAT)?.to_be_bytes();
        let Some(access) = AccessState::from_code(state & 0x0f) else {
            return Err(WireError::bad("ASYMMETRIC ACCESS STATE", reader.at()));
        };
        let mut group = PortGroup {
            group: u16::from_be_bytes([high, low]),
            state: access,
            preferred: state & 0x80 != 0,
            cause: match cause {
                1 => StateCause::Explicit,
                2 => StateCause::Implicit,
                _ => StateCause::None,
            },
            ports: Vec::new(),
        };
        for _ in 0..count {
            let [_, _, high, low] = reader.u32(WHAT)?.to_be_bytes();
            group.ports.push(u16::from_be_bytes([high, low]));
        }
        groups.push(group);
    }
    Ok((groups, seconds))
}

/// One line of a SET TARGET PORT GROUPS list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SetGroup {
    /// TARGET PORT GROUP.
    pub group: u16,
    /// The state that it shall have: never offline or transitioning.
    pub state: AccessState,
    /// Where the line begins in the list, bytes; for sense data.
    pub at: u16,
}

/// Reads a SET TARGET PORT GROUPS list; an empty one requests nothing.
///
/// # Errors
/// PARAMETER LIST LENGTH ERROR when it ends in the middle of a descriptor. INVALID FIELD IN
/// PARAMETER LIST for a state that cannot be set and for a group that occurs twice.
pub fn parse_set_target_port_groups(list: &[u8]) -> Result<Vec<SetGroup>, Sense> {
    if list.is_empty() {
        return Ok(Vec::new());
    }
    let short = || Sense::new(asc::PARAMETER_LIST_LEN);
    let body = list.get(HEADER_LEN..).ok_or_else(short)?;
    let (lines, rest) = body.as_chunks::<4>();
    if !rest.is_empty() {
        return Err(short());
    }
    let mut out: Vec<SetGroup> = Vec::with_capacity(lines.len());
    for (i, [state, _, high, low]) in lines.iter().enumerate() {
        let at = u16::try_from(HEADER_LEN + i * 4).unwrap_or(u16::MAX);
        let wanted = AccessState::from_code(state & 0x0f)
            .filter(|s| !matches!(s, AccessState::Offline | AccessState::Transitioning));
        let Some(state) = wanted else {
            return Err(Sense::list_field(at, Some(3)));
        };
        let group = u16::from_be_bytes([*high, *low]);
        if out.iter().any(|g| g.group == group) {
            return Err(Sense::list_field(at.saturating_add(2), None));
        }
        out.push(SetGroup { group, state, at });
    }
    Ok(out)
}

pub fn set_target_port_groups(groups: &[(u16, AccessState)]) -> Vec<u8> {
    let mut out = vec![0; HEADER_LEN];
    for (group, state) in groups {
        let [high, low] = group.to_be_bytes();
        out.extend([state.code(), 0, high, low]);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(id: u16, state: AccessState, ports: &[u16]) -> PortGroup {
        PortGroup { group: id, state, ports: ports.to_vec(), ..PortGroup::default() }
    }

    #[test]
    fn target_port_group_report_matches_known_bytes() {
        let mut first = group(1, AccessState::Optimized, &[1, 2]);
        (first.preferred, first.cause) = (true, StateCause::Explicit);
        let groups = [first, group(0x0102, AccessState::Transitioning, &[])];
        let plain = report_target_port_groups(&groups, None);
        let want = [
            &[0, 0, 0, 24, 0x80, 0xcf, 0, 1, 0, 1, 0, 2, 0, 0, 0, 1, 0, 0, 0, 2][..],
            &[0x0f, 0xcf, 1, 2, 0, 0, 0, 0],
        ]
        .concat();
        assert_eq!(plain, want);
        assert_eq!(parse_target_port_groups(&plain, false), Ok((groups.to_vec(), 0)));
        let long = report_target_port_groups(&groups, Some(9));
        assert_eq!(long[..8], [0, 0, 0, 28, 0x10, 9, 0, 0]);
        assert_eq!(parse_target_port_groups(&long, true), Ok((groups.to_vec(), 9)));
        for cut in 0..plain.len() {
            assert!(parse_target_port_groups(&plain[..cut], false).is_err(), "{cut}");
        }
    }

    #[test]
    fn ports_beyond_a_one_byte_count_are_left_out() {
        let many: Vec<u16> = (1..=300).collect();
        let data = report_target_port_groups(&[group(1, AccessState::Standby, &many)], None);
        let (back, _) = parse_target_port_groups(&data, false).unwrap();
        assert_eq!(back[0].ports, many[..GROUP_PORTS_MAX]);
    }

    #[test]
    fn set_target_port_groups_list_is_parsed_whole_or_refused() {
        let lines = [(1, AccessState::Standby), (2, AccessState::NonOptimized)];
        let list = set_target_port_groups(&lines);
        let read = parse_set_target_port_groups(&list).unwrap();
        let back: Vec<_> = read.iter().map(|g| (g.group, g.state, g.at)).collect();
        assert_eq!(back, [(1, AccessState::Standby, 4), (2, AccessState::NonOptimized, 8)]);
        assert_eq!(parse_set_target_port_groups(&[]), Ok(vec![]));
        assert_eq!(parse_set_target_port_groups(&[0; 4]), Ok(vec![]));
        for cut in [1, 3, 5, 7, 9, 11] {
            let sense = parse_set_target_port_groups(&list[..cut]).unwrap_err();
            assert_eq!(sense.code, asc::PARAMETER_LIST_LEN, "{cut}");
        }
        for code in 0..16 {
            let sensible = [0, 1, 2, 3].contains(&code);
            let read = parse_set_target_port_groups(&[0, 0, 0, 0, code, 0, 0, 1]);
            assert_eq!(read.is_ok(), sensible, "{code}");
        }
        let twice = set_target_port_groups(&[lines[0], lines[0]]);
        assert!(parse_set_target_port_groups(&twice).is_err());
    }
}
