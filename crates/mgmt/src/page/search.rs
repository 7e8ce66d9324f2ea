//! Search of the page for identifiers that the graph does not show. They are serial numbers, NAA,
//! UUID and EUI-64 of units, paths and serial numbers of disks, portals and ISIDs of sessions.
//!
//! The text is a part of the identifier. Prefixes and hyphens that tools of hosts add are ignored:
//! `wwn-0x`, `naa.`, `eui.` and `uuid.`.

use crate::api::{DiskState, LunState, SessionState, SystemState};
use crate::object_id::{lun_id, session_id};
use std::collections::HashSet;

/// Prefixes of identifiers in the lists of hosts.
const PREFIXES: [&str; 6] = ["wwn-0x", "0x", "naa.", "eui.", "uuid.", "nguid."];

/// A text in lower case without prefix and hyphens.
fn plain(text: &str) -> String {
    let lower = text.to_lowercase();
    let rest = PREFIXES.iter().find_map(|prefix| lower.strip_prefix(prefix));
    rest.unwrap_or(&lower).replace('-', "")
}

fn any<'t>(mut identifiers: impl Iterator<Item = &'t str>, text: &str) -> bool {
    let wanted = plain(text);
    !wanted.is_empty() && identifiers.any(|identifier| plain(identifier).contains(&wanted))
}

/// Whether an identifier of a unit has the text.
pub(super) fn is_unit(lun: &LunState, text: &str) -> bool {
    let own = [lun.serial.as_str(), &lun.naa, &lun.uuid];
    any(own.into_iter().chain(lun.eui64.as_deref()), text)
}

/// Whether an identifier of a session has the text.
pub(super) fn is_session(session: &SessionState, text: &str) -> bool {
    any([session.portal.as_str(), &session.isid, &session.address].into_iter(), text)
}

fn is_disk(disk: &DiskState, text: &str) -> bool {
    any([disk.serial.as_str()].into_iter().chain(disk.path.as_deref()), text)
}

/// Identifiers of the nodes of the graph whose objects have the text in an identifier.
pub(super) fn nodes(state: &SystemState, text: &str) -> HashSet<String> {
    if text.is_empty() {
        return HashSet::new();
    }
    let disks = state.disks.iter().filter(|disk| is_disk(disk, text));
    let mut found: HashSet<String> = disks.map(|disk| format!("disk:{}", disk.name)).collect();
    for target in &state.targets {
        for group in &target.groups {
            let luns = group.luns.iter().filter(|lun| is_unit(lun, text));
            found.extend(luns.map(|lun| lun_id(&target.name, &group.name, lun.lun)));
        }
        let sessions = target.sessions.iter().filter(|session| is_session(session, text));
        found.extend(sessions.map(|session| session_id(target, session)));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{GroupState, TargetState};

    #[test]
    fn objects_are_found_by_every_identifier_that_hosts_show() {
        let lun = LunState {
            serial: "a1b2c3".to_owned(),
            naa: "naa.6589cfc000000aabb".to_owned(),
            uuid: "0f0e0d0c-0b0a-4908-8706-050403020100".to_owned(),
            eui64: Some("002538b571b0f9c1".to_owned()),
            ..LunState::default()
        };
        let session = SessionState {
            initiator: "iqn.h:one".to_owned(),
            address: "10.0.0.7:40000".to_owned(),
            portal: "10.0.9.1:3260".to_owned(),
            isid: "00023d000001".to_owned(),
            ..SessionState::default()
        };
        let disk = DiskState {
            name: "d0".to_owned(),
            path: Some("/srv/images/vm.img".to_owned()),
            serial: "S4EVNX0".to_owned(),
            ..DiskState::default()
        };
        let groups =
            vec![GroupState { name: "all".into(), luns: vec![lun], ..GroupState::default() }];
        let sessions = vec![session];
        let name = "iqn.a:t".to_owned();
        let target = TargetState { name, groups, sessions, ..TargetState::default() };
        let state =
            SystemState { disks: vec![disk], targets: vec![target], ..SystemState::default() };
        let (lun, session) = ("lun:iqn.a:t/all/0", "session:iqn.a:t/iqn.h:one/00023d000001");
        for (text, expected) in [
            ("A1B2", lun),
            ("wwn-0x6589cfc000000aab", lun),
            ("naa.6589", lun),
            ("0F0E0D0C0B0A", lun),
            ("uuid.0f0e0d0c-0b0a", lun),
            ("eui.002538b571", lun),
            ("10.0.9.1", session),
            ("10.0.0.7", session),
            ("00023d", session),
            ("s4evnx", "disk:d0"),
            ("images/vm", "disk:d0"),
        ] {
            assert_eq!(nodes(&state, text), HashSet::from([expected.to_owned()]), "{text}");
        }
        for text in ["", "-", "naa.", "zzz"] {
            assert!(nodes(&state, text).is_empty(), "{text}");
        }
    }
}
