//! TARGET COLD RESET beside another initiator, with and without the permission of the group.

use engine::{GroupSpec, LunSpec};
use testkit::iscsi::initiator::{Client, LoginOptions};
use wire::iscsi::{TaskAnswer, task_function};
use wire::scsi::Sense;

use crate::iscsi::server::{IQN, Server, Shape};

/// Its LUN 0 is the only one.
const ADMIN: &str = "iqn.2026-11.test.ashlar:admin";
/// Has LUN 1 of its own, and LUN 0 together with the other.
const OTHER: &str = "iqn.2026-11.test.ashlar:other";

/// Status without sense.
const GOOD: (u8, Option<(u8, u8, u8)>) = (0, None);

/// Both groups; the permission is that of the first.
fn grant(server: &Server, cold_resets_target: bool) {
    let lun = |lun, device: &str| LunSpec { lun, device: device.into(), read_only: false };
    let group = |name: &str, initiator: &str, luns| GroupSpec {
        name: name.into(),
        initiators: vec![initiator.into()],
        luns,
        ..GroupSpec::default()
    };
    let admins = group("admins", ADMIN, vec![lun(0, "memory")]);
    let others = group("others", OTHER, vec![lun(0, "memory"), lun(1, "null")]);
    let groups = [GroupSpec { cold_resets_target, ..admins }, others];
    server.registry.set_groups("iscsi", IQN, &groups).unwrap();
}

fn server(cold_resets_target: bool) -> Server {
    let server = Server::start(Shape::default());
    grant(&server, cold_resets_target);
    server
}

fn login(server: &Server, initiator: &str, isid: u8, luns: &[u8]) -> Client {
    let how = LoginOptions { initiator: initiator.into(), ..LoginOptions::default() };
    let mut client = Client::login(server.portal, &how.isid(isid));
    luns.iter().for_each(|lun| client.ready(*lun));
    client
}

/// The status of TEST UNIT READY, with its sense key and code.
fn test(client: &mut Client, lun: u8) -> (u8, Option<(u8, u8, u8)>) {
    client.lun = lun;
    let ended = client.scsi(&[0; 6], 0, &[]).unwrap();
    let code = Sense::decode(&ended.sense).ok().map(|sense| sense.code);
    (ended.status, code.map(|code| (code.key as u8, code.asc, code.ascq)))
}

#[test]
fn cold_reset_without_permission_reaches_only_units_of_its_initiator() {
    let server = server(false);
    let mut other = login(&server, OTHER, 1, &[0, 1]);
    let mut admin = login(&server, ADMIN, 2, &[0]);
    let mut second = login(&server, ADMIN, 3, &[0]);
    let answer = admin.function(task_function::TARGET_COLD_RESET, 0, 0);
    assert_eq!(answer, TaskAnswer::Complete);
    admin.closed();
    second.closed();
    assert_eq!(test(&mut other, 1), GOOD, "no condition at a unit of its own");
    assert_eq!(test(&mut other, 0), (2, Some((6, 0x29, 0))), "the unit that both see was reset");
    assert_eq!(test(&mut other, 0), GOOD);
}

#[test]
fn permitted_cold_reset_ends_every_session_of_the_target() {
    let server = server(true);
    let mut other = login(&server, OTHER, 1, &[0, 1]);
    let mut admin = login(&server, ADMIN, 2, &[0]);
    // The others have no such permission.
    let mut third = login(&server, OTHER, 4, &[0, 1]);
    let answer = third.function(task_function::TARGET_COLD_RESET, 0, 0);
    assert_eq!(answer, TaskAnswer::Complete);
    third.closed();
    other.closed();
    admin.ready(0);
    let mut other = login(&server, OTHER, 1, &[0, 1]);
    let answer = admin.function(task_function::TARGET_COLD_RESET, 0, 0);
    assert_eq!(answer, TaskAnswer::Complete, "answered before the session ends");
    admin.closed();
    other.closed();
    // Both may return at once.
    login(&server, ADMIN, 2, &[0]);
    login(&server, OTHER, 1, &[0, 1]);
}

#[test]
fn permission_is_granted_and_withdrawn_while_sessions_continue() {
    let server = server(false);
    let mut other = login(&server, OTHER, 1, &[0, 1]);
    let mut admin = login(&server, ADMIN, 2, &[0]);
    for may in [true, false, true] {
        grant(&server, may);
        assert_eq!(test(&mut admin, 0), GOOD, "no condition");
        assert_eq!(test(&mut other, 0), GOOD, "no condition");
        assert_eq!(test(&mut other, 1), GOOD, "no condition");
    }
    let answer = admin.function(task_function::TARGET_COLD_RESET, 0, 0);
    assert_eq!(answer, TaskAnswer::Complete);
    other.closed();
    admin.closed();
}
