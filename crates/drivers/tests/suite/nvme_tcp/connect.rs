//! Answers to Connect.

use engine::{GroupSpec, LunSpec};
use serde_json::json;
use wire::nvme::codes::{admin, fabrics};
use wire::nvme::{Connect, ConnectData, Sgl, Status};

use crate::nvme_tcp::host::{ReceivedPdu, SUBSYSTEM};
use crate::nvme_tcp::stage::{Stage, play, play_with};

/// S1 of nvme_tcp/controllers.rs.
#[test]
fn controller_identifiers_are_of_the_range_and_belong_to_one_controller() {
    let params = json!({ "controller_id_min": 40, "controller_id_max": 41 });
    play_with(params, |stage| async move {
        let first = stage.admin((false, false), 0).await;
        let second = stage.admin((false, false), 0).await;
        let mut numbers = [first.controller, second.controller];
        numbers.sort_unstable();
        assert_eq!(numbers, [40, 41]);
        let mut third = stage.dial().await;
        third.initialize((false, false)).await.unwrap();
        let end = third.connect(SUBSYSTEM, 0, 0).await.unwrap();
        // Connect Controller Busy, without DNR: the host may try again.
        assert_eq!((end.status, end.status.0, end.result), (Status::CONNECT_BUSY, 0x181, 0));
        // The number of a controller that has ended is free.
        first.close();
        stage.seconds(1).await;
        let end = third.connect(SUBSYSTEM, 0, 0).await.unwrap();
        assert!(end.status.is_good(), "{end:x?}");
        assert_eq!(third.controller, first.controller);
    });
}

#[test]
fn hosts_of_one_name_are_listed_with_their_host_identifiers() {
    play(|stage| async move {
        let mut hosts = Vec::new();
        for id in [[0x11; 16], [0x22; 16]] {
            let mut host = stage.dial().await;
            host.host_id = id;
            host.initialize((false, false)).await.unwrap();
            assert!(host.connect(SUBSYSTEM, 0, 0).await.unwrap().status.is_good());
            hosts.push(host);
        }
        let sessions = stage.registry.sessions();
        let ids = sessions.iter().flat_map(|s| &s.labels).filter(|(key, _)| *key == "host-id");
        let ids: Vec<&str> = ids.map(|(_, id)| id.as_str()).collect();
        let wanted =
            ["11111111-1111-1111-1111-111111111111", "22222222-2222-2222-2222-222222222222"];
        assert_eq!(ids, wanted, "neither ends the other");
        drop(hosts);
    });
}

/// The PDU that answers a Connect on a new connection.
async fn connected(
    stage: &Stage,
    subsystem: &str,
    queue: u16,
    digests: (bool, bool),
) -> ReceivedPdu {
    let mut host = stage.dial().await;
    host.initialize(digests).await.unwrap();
    let connect = Connect { queue, size: 31, ..Connect::default() };
    let data = ConnectData {
        host_id: host.host_id,
        // Of an I/O queue: of a controller that does not exist.
        controller: if queue == 0 { host.controller } else { 5 },
        subsystem: subsystem.into(),
        host: host.name.clone(),
    };
    let data = data.encode();
    let mut command = host.command(admin::FABRICS, fabrics::CONNECT.into(), connect.dwords());
    command.sgl = Sgl { address: 0, len: data.len() as u32, kind: Sgl::IN_CAPSULE };
    host.send(&host.capsule(&command, &data)).await.unwrap();
    host.receive().await.unwrap()
}

#[test]
fn a_hidden_subsystem_answers_byte_for_byte_like_one_that_does_not_exist() {
    play(|stage| async move {
        let group = GroupSpec {
            name: "all".into(),
            initiators: vec!["nqn.2026-11.test.ashlar:another-host".into()],
            luns: vec![LunSpec { lun: 0, device: "slow".into(), read_only: false }],
            ..GroupSpec::default()
        };
        stage.registry.set_groups("nvme_tcp", SUBSYSTEM, &[group]).unwrap();
        for (queue, digests) in [(0, (false, false)), (1, (false, false)), (0, (true, true))] {
            let hidden = connected(&stage, SUBSYSTEM, queue, digests).await;
            let none = connected(&stage, "nqn.2026-11.test.ashlar:none", queue, digests).await;
            assert_eq!((&hidden.header, &hidden.data), (&none.header, &none.data));
            let end = hidden.completion();
            assert_eq!((end.status, end.status.0), (Status::CONNECT_PARAMETER, 0x182));
            let at = u64::from(ConnectData::SUBSYSTEM_AT) | 1 << 16;
            assert_eq!(end.result, at, "the name of the subsystem");
        }
        // The administrator learns which it was.
        let denied = stage.registry.denied();
        let is_noted = |subsystem: &str, why: &str| {
            denied.iter().any(|d| d.target == subsystem && d.text.contains(why))
        };
        assert!(is_noted(SUBSYSTEM, "no access group"), "{denied:?}");
        assert!(is_noted("nqn.2026-11.test.ashlar:none", "no subsystem"), "{denied:?}");
    });
}

#[test]
fn ended_session_closes_its_queue_and_its_host_may_connect_again() {
    play(|stage| async move {
        let (_admin, mut queue) = stage.both((false, false)).await;
        let newest = stage.registry.sessions().last().map(|session| session.number);
        assert!(stage.registry.kick(newest.expect("a session of the queue")));
        assert!(queue.is_closed().await);
        // Each of these panics if it is refused.
        let _again = stage.both((false, false)).await;
    });
}
