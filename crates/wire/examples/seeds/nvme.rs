//! Good messages of NVMe over TCP.

use wire::nvme::codes::{admin, fabrics, feature, io, pdu, pdu_flag, property};
use wire::nvme::*;

type Seeds = Vec<(&'static str, Vec<u8>)>;

fn capsule(command: Command, data: &[u8]) -> Vec<u8> {
    let len = u32::try_from(data.len()).expect("short");
    [&[0][..], &command_capsule(&command, 0, len), data].concat()
}

fn of(opcode: u8, nsid: u32, dwords: [u32; 6]) -> Command {
    Command { opcode, flags: 0x40, id: 7, nsid, dwords, ..Command::default() }
}

/// PDUs, each behind a byte of what was agreed on.
pub fn pdus() -> Seeds {
    let begin = Initialize { header_digest: true, data_digest: true, ..Initialize::default() };
    let connect = Connect { size: 31, keep_alive_ms: 5000, ..Connect::default() };
    let set = Property { at: property::CONFIGURATION, value: 0x46_0001, ..Property::default() };
    let extent = Extent { lba: 8, blocks: 8, fua: true, deallocate: false };
    let kind = pdu::HOST_DATA;
    let common = Common { kind, flags: pdu_flag::LAST, header_len: 24, data_at: 24, len: 32 };
    let data = Data { command: 7, tag: 1, at: 0, len: 8 };
    let word = Terminate { controller: false, reason: 1, at: 9, header: vec![4; 72] };
    let end = Completion { id: 7, status: Status::LBA_OUT_OF_RANGE, ..Completion::default() };
    vec![
        ("begin", [&[0][..], &begin.encode()].concat()),
        ("connect", capsule(of(admin::FABRICS, fabrics::CONNECT.into(), connect.dwords()), &[])),
        ("enable", capsule(of(admin::FABRICS, fabrics::PROPERTY_SET.into(), set.dwords()), &[])),
        ("write", capsule(of(io::WRITE, 1, extent.dwords()), &[9; 512])),
        ("zeroes", capsule(of(io::WRITE_ZEROES, 1, extent.dwords()), &[])),
        (
            "features",
            capsule(of(admin::SET_FEATURES, 0, [feature::QUEUES.into(), 3, 0, 0, 0, 0]), &[]),
        ),
        ("data", [&[0][..], &data.encode(&common), &[5; 8]].concat()),
        ("ready", [&[4][..], &r2t(&data, 0)].concat()),
        ("end", [&[4][..], &response_capsule(&end, 0)].concat()),
        ("last_word", [&[0][..], &word.encode()].concat()),
    ]
}

/// Data of commands and of answers, each behind a byte of limits.
pub fn data() -> Seeds {
    let connect = ConnectData {
        host_id: [3; 16],
        controller: DYNAMIC_CONTROLLER,
        subsystem: "nqn.2026-11.test:disks".into(),
        host: "nqn.2026-11.test:host".into(),
    };
    let ranges = [Range { lba: 8, blocks: 16 }, Range { lba: 1 << 30, blocks: 1 << 25 }];
    let one = Subsystem {
        name: "nqn.2026-11.test:disks".into(),
        address: "192.0.2.1".into(),
        port: 4420,
        ..Subsystem::default()
    };
    let limits = NvmLimits { ranges: 255, range_blocks: 1 << 20, ..NvmLimits::default() };
    vec![
        ("connect", [&[0][..], &connect.encode()].concat()),
        (
            "ranges",
            [&[255][..], &ranges.iter().flat_map(Range::encode).collect::<Vec<_>>()].concat(),
        ),
        ("discovery", [&[0][..], &discovery(1, &[one])].concat()),
        ("names", [&[0][..], &descriptors(uuid_of([5; 16]), None)[..64]].concat()),
        ("limits", [&[0][..], &limits.encode()[..64]].concat()),
    ]
}
