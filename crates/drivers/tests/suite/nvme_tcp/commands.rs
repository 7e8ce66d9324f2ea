//! Commands by a host that keeps the rules, one at a time.

use engine::{GroupSpec, LunSpec};
use wire::nvme::codes::{DISCOVERY_NQN, admin, cns, event, feature, io, log_page};
use wire::nvme::*;

use crate::common::plant::{EUI64, UUID};
use crate::nvme_tcp::host::{Host, SUBSYSTEM};
use crate::nvme_tcp::stage::{SECTORS, Stage, play};

fn extent(lba: u64, blocks: u32) -> [u32; 6] {
    Extent { lba, blocks, ..Extent::default() }.dwords()
}

async fn identify(host: &mut Host, what: u8, nsid: u32) -> Vec<u8> {
    let command = host.command(admin::IDENTIFY, nsid, [what.into(), 0, 0, 0, 0, 0]);
    host.ask(command, 4096).await.unwrap().good()
}

async fn page(host: &mut Host, id: u8, from: u32, len: u32) -> Vec<u8> {
    let first = u32::from(id) | (len / 4 - 1) << 16;
    let command = host.command(admin::GET_LOG_PAGE, 0, [first, 0, from, 0, 0, 0]);
    host.ask(command, len).await.unwrap().good()
}

#[test]
fn blocks_are_written_compared_and_read() {
    for digests in [(false, false), (true, true), (true, false), (false, true)] {
        play(move |stage| async move {
            let (_admin, mut queue) = stage.both(digests).await;
            let bytes: Vec<u8> = (0..64 * 512).map(|i| (i % 251) as u8).collect();
            let command = queue.command(io::WRITE, 1, extent(8, 64));
            queue.give(command, &bytes, 10_000).await.unwrap().good();
            let command = queue.command(io::WRITE, 1, extent(9, 1));
            queue.run_in_capsule(command, &[0xaa; 512]).await.unwrap().good();
            let command = queue.command(io::READ, 1, extent(8, 64));
            let back = queue.ask(command, 64 * 512).await.unwrap().good();
            assert!(back[..512] == bytes[..512] && back[1024..] == bytes[1024..]);
            assert_eq!(back[512..1024], [0xaa; 512]);
            for (byte, status) in [(0xaa, Status::SUCCESS), (0xab, Status::COMPARE_FAILURE)] {
                let command = queue.command(io::COMPARE, 1, extent(9, 1));
                queue.run_in_capsule(command, &[byte; 512]).await.unwrap().ends(status);
            }
            let zeroes = Extent { lba: 9, blocks: 2, fua: true, deallocate: true };
            for (opcode, dwords) in [
                (io::WRITE_ZEROES, zeroes.dwords()),
                (io::VERIFY, extent(0, 64)),
                (io::FLUSH, [0; 6]),
            ] {
                let command = queue.command(opcode, 1, dwords);
                queue.ask(command, 0).await.unwrap().good();
            }
            let command = queue.command(io::READ, 1, extent(9, 2));
            assert_eq!(queue.ask(command, 1024).await.unwrap().good(), [0; 1024]);
        });
    }
}

#[test]
fn invalid_commands_fail_with_their_status() {
    play(|stage| async move {
        let (_admin, mut queue) = stage.both((false, false)).await;
        let end = SECTORS;
        let most = drivers::nvme_tcp::TRANSFER_MAX / 512 + 8;
        for (opcode, nsid, dwords, len, status) in [
            (io::READ, 1, extent(end - 1, 2), 1024, Status::LBA_OUT_OF_RANGE),
            (io::READ, 1, extent(u64::MAX, 2), 1024, Status::LBA_OUT_OF_RANGE),
            (io::READ, 2, extent(0, 1), 512, Status::INVALID_NAMESPACE),
            (io::READ, 0, extent(0, 1), 512, Status::INVALID_NAMESPACE),
            (io::READ, u32::MAX, extent(0, 1), 512, Status::INVALID_NAMESPACE),
            (io::READ, 1, extent(0, 1), 1024, Status::SGL_LENGTH),
            (io::READ, 1, extent(0, most), most * 512, Status::INVALID_FIELD),
            (0x0d, 1, [0; 6], 0, Status::INVALID_OPCODE),
            (0x7f, 0, [0; 6], 0, Status::INVALID_FIELD),
        ] {
            let command = queue.command(opcode, nsid, dwords);
            queue.ask(command, len).await.unwrap().ends(status);
        }
        let command = Command { flags: 0x41, ..queue.command(io::COMPARE, 1, extent(0, 1)) };
        queue.run_in_capsule(command, &[0; 512]).await.unwrap().ends(Status::INVALID_FIELD);
    });
}

#[test]
fn ranges_of_dataset_management_are_checked() {
    play(|stage| async move {
        let (_admin, mut queue) = stage.both((false, false)).await;
        let list = |all: &[(u64, u32)]| {
            let bytes = all.iter().flat_map(|(lba, n)| Range { lba: *lba, blocks: *n }.encode());
            bytes.collect::<Vec<u8>>()
        };
        // As Linux sends it: space for all there could be.
        let mut good = list(&[(8, 8), (100, 4)]);
        good.resize(4096, 0xff);
        for (bytes, count, status) in [
            (good, 2, Status::SUCCESS),
            (list(&[(SECTORS - 1, 2)]), 1, Status::LBA_OUT_OF_RANGE),
            (list(&[(u64::MAX, 2)]), 1, Status::LBA_OUT_OF_RANGE),
            (list(&[(0, 1)]), 2, Status::SGL_LENGTH),
        ] {
            let dwords = [count - 1, 4, 0, 0, 0, 0];
            let command = queue.command(io::DATASET_MANAGEMENT, 1, dwords);
            queue.run_in_capsule(command, &bytes).await.unwrap().ends(status);
            let command = queue.command(io::DATASET_MANAGEMENT, 1, dwords);
            queue.give(command, &bytes, 4096).await.unwrap().ends(status);
        }
    });
}

#[test]
fn identify_reports_controller_and_namespaces() {
    play(|stage| async move {
        let mut admin = stage.admin((false, false), 0).await;
        let controller = identify(&mut admin, cns::CONTROLLER, 0).await;
        assert!(controller[768..].starts_with(SUBSYSTEM.as_bytes()));
        let list = identify(&mut admin, cns::ACTIVE_LIST, 0).await;
        assert_eq!(parse_active_list(&list), [1]);
        let namespace = Namespace::decode(&identify(&mut admin, cns::NAMESPACE, 1).await);
        assert_eq!((namespace.blocks, namespace.block_shift), (SECTORS, 9));
        assert!(identify(&mut admin, cns::NAMESPACE, 2).await.iter().all(|b| *b == 0));
        assert_eq!(namespace.eui64, Some(EUI64));
        let names = identify(&mut admin, cns::DESCRIPTORS, 1).await;
        assert_eq!(parse_descriptors(&names), Some(UUID));
        assert_eq!(names[25..37], [&[1, 8, 0, 0][..], &EUI64].concat());
        let command = admin.command(admin::IDENTIFY, 2, [cns::DESCRIPTORS.into(), 0, 0, 0, 0, 0]);
        admin.ask(command, 4096).await.unwrap().ends(Status::INVALID_NAMESPACE);
        for what in [cns::SET_CONTROLLER, cns::INDEPENDENT, cns::COMMAND_SETS] {
            identify(&mut admin, what, 1).await;
        }
        let effects = page(&mut admin, log_page::EFFECTS, 0, 4096).await;
        let part = page(&mut admin, log_page::EFFECTS, 1024, 64).await;
        assert_eq!(part, effects[1024..1088]);
        assert_eq!(page(&mut admin, log_page::HEALTH, 508, 64).await.len(), 64, "padded");
        let command = admin.command(admin::GET_LOG_PAGE, 0, [0x0c, 0, 0, 0, 0, 0]);
        admin.ask(command, 4).await.unwrap().ends(Status::INVALID_LOG_PAGE);
        let wish = [feature::QUEUES.into(), 7 | 500 << 16, 0, 0, 0, 0];
        let command = admin.command(admin::SET_FEATURES, 0, wish);
        assert_eq!(admin.ask(command, 0).await.unwrap().end.result, 7 | 63 << 16);
        let command = admin.command(admin::ABORT, 0, [5 | 9 << 16, 0, 0, 0, 0, 0]);
        admin.ask(command, 0).await.unwrap().ends(Status::INVALID_FIELD);
        let _queue = stage.queue(&admin, 1).await;
        let command = admin.command(admin::ABORT, 0, [1 | 9 << 16, 0, 0, 0, 0, 0]);
        assert_eq!(admin.ask(command, 0).await.unwrap().end.result, 1, "no such command");
    });
}

/// The group again, the disk at that LUN, for reading only or not.
fn grant(stage: &Stage, lun: u64, read_only: bool, initiators: &str) {
    let group = GroupSpec {
        name: "all".into(),
        initiators: vec![initiators.into()],
        luns: vec![LunSpec { lun, device: "slow".into(), read_only }],
        ..GroupSpec::default()
    };
    stage.registry.set_groups("nvme_tcp", SUBSYSTEM, &[group]).unwrap();
}

#[test]
fn awaited_namespace_is_not_ready_with_a_retry_delay() {
    play(|stage| async move {
        let (mut admin, mut queue) = stage.both((false, false)).await;
        let group = GroupSpec {
            name: "all".into(),
            initiators: vec!["*".into()],
            luns: vec![LunSpec { lun: 0, device: "slow".into(), read_only: false }],
            awaited: vec![(1, "away".into())],
            ..GroupSpec::default()
        };
        stage.registry.set_groups("nvme_tcp", SUBSYSTEM, &[group]).unwrap();
        let controller = identify(&mut admin, cns::CONTROLLER, 0).await;
        let delay = u16::from_le_bytes([controller[128], controller[129]]);
        assert!(delay > 0);
        let list = identify(&mut admin, cns::ACTIVE_LIST, 0).await;
        assert_eq!(parse_active_list(&list), [1, 2], "it stays in the list");
        let read = [0, 0, 0, 0, 0, 0];
        let command = queue.command(io::READ, 2, read);
        queue.ask(command, 512).await.unwrap().ends(Status::NOT_READY);
        // Data with other contents, or less, changes nothing.
        let wish = [feature::HOST_BEHAVIOR.into(), 0, 0, 0, 0, 0];
        for wrong in [&[2; 512][..], &[1; 511], &[]] {
            let command = admin.command(admin::SET_FEATURES, 0, wish);
            admin.run_in_capsule(command, wrong).await.unwrap().ends(Status::INVALID_FIELD);
        }
        let mut data = [0; 512];
        data[0] = 1;
        let command = admin.command(admin::SET_FEATURES, 0, wish);
        admin.run_in_capsule(command, &data).await.unwrap().good();
        let command = admin.command(admin::GET_FEATURES, 0, wish);
        assert_eq!(admin.ask(command, 512).await.unwrap().good()[0], 1);
        let command = queue.command(io::READ, 2, read);
        queue.ask(command, 512).await.unwrap().ends(Status::NOT_READY.delayed());
        let command = admin.command(admin::IDENTIFY, 2, [cns::NAMESPACE.into(), 0, 0, 0, 0, 0]);
        admin.ask(command, 4096).await.unwrap().ends(Status::NOT_READY.delayed());
        let command = queue.command(io::READ, 3, read);
        queue.ask(command, 512).await.unwrap().ends(Status::INVALID_NAMESPACE);
    });
}

#[test]
fn changes_are_reported_once_and_listed_until_read() {
    play(|stage| async move {
        let (mut admin, mut queue) = stage.both((false, false)).await;
        let wish = [feature::EVENTS.into(), event::NAMESPACE_BIT, 0, 0, 0, 0];
        let command = admin.command(admin::SET_FEATURES, 0, wish);
        admin.ask(command, 0).await.unwrap().good();
        let mut requests = Vec::new();
        for _ in 0..4 {
            let command = admin.command(admin::ASYNC_EVENT, 0, [0; 6]);
            requests.push(command.id);
            admin.send(&admin.capsule(&command, &[])).await.unwrap();
        }
        let command = admin.command(admin::ASYNC_EVENT, 0, [0; 6]);
        admin.ask(command, 0).await.unwrap().ends(Status::EVENTS_EXCEEDED);
        let command = admin.command(admin::ABORT, 0, [u32::from(requests[3]) << 16, 0, 0, 0, 0, 0]);
        admin.send(&admin.capsule(&command, &[])).await.unwrap();
        let end = admin.receive().await.unwrap().completion();
        assert_eq!((end.id, end.status), (requests[3], Status::ABORT_REQUESTED));
        assert_eq!(admin.answer(command.id).await.unwrap().end.result, 0);
        grant(&stage, 0, true, "*");
        let end = admin.receive().await.unwrap().completion();
        assert_eq!((end.id, end.result), (requests[0], event::NAMESPACE_CHANGED.into()));
        let namespace = Namespace::decode(&identify(&mut admin, cns::NAMESPACE, 1).await);
        assert!(namespace.read_only);
        let command = queue.command(io::WRITE, 1, extent(0, 1));
        queue.run_in_capsule(command, &[0; 512]).await.unwrap().ends(Status::WRITE_PROTECTED);
        grant(&stage, 3, false, "*");
        stage.seconds(3).await;
        let changed = page(&mut admin, log_page::CHANGED, 0, 4096).await;
        assert_eq!(parse_active_list(&changed), [1, 4], "and no second event before");
        let command = queue.command(io::READ, 1, extent(0, 1));
        queue.ask(command, 512).await.unwrap().ends(Status::INVALID_NAMESPACE);
        let command = queue.command(io::READ, 4, extent(0, 1));
        queue.ask(command, 512).await.unwrap().good();
        let list = identify(&mut admin, cns::ACTIVE_LIST, 0).await;
        assert_eq!(parse_active_list(&list), [4]);
    });
}

#[test]
fn discovery_lists_only_granted_subsystems() {
    play(|stage| async move {
        for (pattern, found) in [("*", 1), ("nqn.2026-11.test.ashlar:other", 0)] {
            grant(&stage, 0, false, pattern);
            let mut host = stage.dial().await;
            host.initialize((false, false)).await.unwrap();
            assert!(host.connect(DISCOVERY_NQN, 0, 0).await.unwrap().status.is_good());
            host.configure(Configuration(Configuration::ENABLED.0)).await.unwrap();
            let all = page(&mut host, log_page::DISCOVERY, 0, 4096).await;
            let (_, records) = parse_discovery(&all);
            let names = records.iter().filter(|r| r.name == SUBSYSTEM && !r.discovery).count();
            assert_eq!(names, found);
            assert_eq!(all[8], 1 + found as u8, "the discovery subsystem itself");
            let mut host = stage.dial().await;
            host.initialize((false, false)).await.unwrap();
            let end = host.connect(SUBSYSTEM, 0, 0).await.unwrap();
            // As a subsystem that does not exist: names cannot be guessed.
            let mut host = stage.dial().await;
            host.initialize((false, false)).await.unwrap();
            let other = host.connect("nqn.2026-11.test.ashlar:none", 0, 0).await.unwrap();
            let outcome = |end: &Completion| (end.status, end.result);
            assert_eq!(outcome(&end) == outcome(&other), found == 0, "{end:x?}");
        }
    });
}

#[test]
fn a_queue_belongs_to_its_association() {
    play(|stage| async move {
        let mut admin = stage.admin((false, false), 0).await;
        let _first = stage.queue(&admin, 1).await;
        let attempts: [(fn(&mut Host), u16, u64); 5] = [
            (|h| h.host_id = [8; 16], 2, 1 << 16),
            (|h| h.name.push('x'), 2, 512 | 1 << 16),
            (|h| h.controller ^= 0x100, 2, 16 | 1 << 16),
            (|_| (), 1, 42),
            (|_| (), 65, 42),
        ];
        for (change, number, result) in attempts {
            let mut host = stage.dial().await;
            host.initialize((false, false)).await.unwrap();
            host.controller = admin.controller;
            change(&mut host);
            let end = host.connect(SUBSYSTEM, number, 0).await.unwrap();
            assert_eq!((end.status, end.result), (Status::CONNECT_PARAMETER, result));
        }
        // A reset ends the queues, and until the next one there are none.
        let mut first = stage.queue(&admin, 3).await;
        admin.configure(Configuration::default()).await.unwrap();
        assert!(first.is_closed().await);
        let mut host = stage.dial().await;
        host.initialize((false, false)).await.unwrap();
        host.controller = admin.controller;
        let end = host.connect(SUBSYSTEM, 3, 0).await.unwrap();
        assert_eq!(end.status, Status::SEQUENCE);
    });
}
