//! ATA commands, one by one.

use wire::aoe::{Ata, Config, Header, Mac, command, error as aoe};
use wire::ata::command as op;
use wire::ata::{Identify, error, status, trim_blocks};

use crate::aoe::stage::{
    SLOT, Stage, ata, calm, decode_answer, discovery_query, error as error_of, header, long, mac,
    params, target_mac,
};

fn stage(mtu: u32) -> (Stage, reactor::Link) {
    let stage = Stage::new(1, &[calm()], mtu, params());
    let link = stage.plug(0, 1);
    (stage, link)
}

fn short(command: u8, lba: u64, sectors: u8) -> Ata {
    Ata { extended: false, registers: lba | 0xE000_0000, ..long(command, lba, sectors) }
}

/// Status and error register of the only answer.
fn ended(frames: &[Vec<u8>]) -> (u8, u8) {
    assert_eq!(frames.len(), 1);
    let (header, ata, _) = decode_answer(&frames[0]);
    assert_eq!(header.error, None);
    (ata.command, ata.feature)
}

const GOOD: (u8, u8) = (status::READY, 0);
const FAILED: u8 = status::READY | status::ERROR;

#[test]
fn config_query_is_answered_by_the_present_slot() {
    for (mtu, sectors) in [(1500, 2), (9000, 17)] {
        let (stage, link) = stage(mtu);
        let came = stage.ask(&link, &[discovery_query(1)]);
        assert_eq!(came.len(), 1);
        let (header, body) = Header::decode(&came[0]).unwrap();
        assert_eq!((header.to, header.from), (mac(0, 1), target_mac(0)));
        assert_eq!((header.address, header.tag, header.response), (SLOT, 7, true));
        let answer = Config::decode(body).unwrap();
        assert_eq!((answer.buffers, answer.sectors, answer.version), (16, sectors, 1));
        stage.end();
    }
}

#[test]
fn written_data_is_read_back_by_28_and_48_bit_commands() {
    let (stage, link) = stage(9000);
    let data: Vec<u8> = (0..17 * 512u32).map(|i| (i / 100) as u8).collect();
    let write = Ata { write: true, ..long(op::WRITE_EXT, 10, 17) };
    assert_eq!(ended(&stage.ask(&link, &[ata(1, 1, write, &data)])), GOOD);
    let came = stage.ask(&link, &[ata(1, 2, long(op::READ_EXT, 10, 17), &[])]);
    let (header, registers, read) = decode_answer(&came[0]);
    assert_eq!((header.tag, registers.command, registers.lba()), (2, status::READY, 10));
    assert!(read == data);
    let more = Ata { write: true, ..short(op::WRITE, 27, 1) };
    assert_eq!(ended(&stage.ask(&link, &[ata(1, 3, more, &[9; 512])])), GOOD);
    let came = stage.ask(&link, &[ata(1, 4, short(op::READ, 26, 2), &[])]);
    assert!(decode_answer(&came[0]).2 == [&data[16 * 512..], &[9; 512]].concat());
    for verify in [short(op::VERIFY, 0, 255), long(op::VERIFY_EXT, 0, 255)] {
        let came = stage.ask(&link, &[ata(1, 5, verify, &[])]);
        assert_eq!((ended(&came), came[0].len()), (GOOD, 60), "nothing is sent");
    }
    for flush in [op::FLUSH, op::FLUSH_EXT, op::CHECK_POWER_MODE] {
        assert_eq!(ended(&stage.ask(&link, &[ata(1, 6, long(flush, 0, 0), &[])])), GOOD);
    }
    stage.end();
}

#[test]
fn identify_reports_size_flush_and_trim() {
    let (stage, link) = stage(1500);
    let came = stage.ask(&link, &[ata(1, 1, long(op::IDENTIFY, 0, 1), &[])]);
    let answer = Identify::decode(&decode_answer(&came[0]).2).unwrap();
    assert_eq!((answer.sectors, answer.sector_bytes, answer.extended), (512, 512, true));
    assert!(
        answer.flush && answer.flush_ext && answer.write_cache.is_none() && answer.wwn >> 60 == 5
    );
    let trim = answer.trim.unwrap();
    assert_eq!((trim.blocks_max, trim.zeroes), (1, true));
    stage.allow(&[("mac:*", &[(0, true)])]);
    let came = stage.ask(&link, &[ata(1, 1, long(op::IDENTIFY, 0, 1), &[])]);
    assert_eq!(Identify::decode(&decode_answer(&came[0]).2).unwrap().trim, None, "read only");
    stage.end();
}

#[test]
fn trim_frees_all_ranges_or_none() {
    let (stage, link) = stage(9000);
    let write = Ata { write: true, ..long(op::WRITE_EXT, 0, 16) };
    stage.ask(&link, &[ata(1, 1, write, &[7; 16 * 512])]);
    let trim = Ata { write: true, feature: 1, ..long(op::DATA_SET_MANAGEMENT, 0, 1) };
    let (list, covered) = trim_blocks(&[(1, 2), (8, 1)], 1);
    assert_eq!(covered, 3);
    assert_eq!(ended(&stage.ask(&link, &[ata(1, 2, trim, &list)])), GOOD);
    let zeroes: Vec<usize> =
        (0..16).filter(|at| stage.disk.bytes(at * 512, 512) == [0; 512]).collect();
    assert_eq!(zeroes, [1, 2, 8]);
    let (beyond, _) = trim_blocks(&[(3, 1), (511, 2)], 1);
    let end = (FAILED, error::NOT_FOUND);
    assert_eq!(ended(&stage.ask(&link, &[ata(1, 3, trim, &beyond)])), end);
    assert_eq!(stage.disk.bytes(3 * 512, 512), [7; 512], "all or none");
    let none = Ata { feature: 0, ..trim };
    let aborted = (FAILED, error::ABORT);
    assert_eq!(ended(&stage.ask(&link, &[ata(1, 4, none, &list)])), aborted);
    let two = Ata { sectors: 2, ..trim };
    assert_eq!(
        ended(&stage.ask(&link, &[ata(1, 5, two, &[list.clone(), list].concat())])),
        aborted
    );
    assert_eq!(error_of(&stage.ask(&link, &[ata(1, 6, trim, &[0; 100])])), aoe::ARGUMENT);
    stage.end();
}

#[test]
fn invalid_commands_are_refused_with_the_reason() {
    let (stage, link) = stage(1500);
    let write = |lba, n| Ata { write: true, ..long(op::WRITE_EXT, lba, n) };
    for (what, data, status) in [
        (long(op::READ_EXT, 511, 2), 0, (FAILED, error::NOT_FOUND)),
        (long(op::READ_EXT, (1 << 48) - 1, 1), 0, (FAILED, error::NOT_FOUND)),
        (write(512, 1), 512, (FAILED, error::NOT_FOUND)),
        (long(op::SMART, 0, 1), 0, (FAILED, error::ABORT)),
        (long(0xFF, 0, 1), 0, (FAILED, error::ABORT)),
    ] {
        assert_eq!(
            ended(&stage.ask(&link, &[ata(1, 1, what, &vec![0; data])])),
            status,
            "{what:?}"
        );
    }
    for (what, data) in [
        (long(op::READ_EXT, 0, 3), 0),
        (long(op::READ_EXT, 0, 0), 0),
        (write(0, 2), 1023),
        (write(0, 3), 1024),
        (write(0, 1), 10),
    ] {
        let came = stage.ask(&link, &[ata(1, 1, what, &vec![0; data])]);
        assert_eq!(error_of(&came), aoe::ARGUMENT, "{what:?}");
    }
    let mut bare = header(1, SLOT, command::ATA, 9).encode().to_vec();
    let end = (FAILED, error::ABORT);
    assert_eq!(ended(&stage.ask(&link, &[bare.clone()])), end, "filled up with zeroes");
    bare[14] = 0x20;
    assert_eq!(error_of(&stage.ask(&link, &[bare.clone()])), aoe::VERSION);
    bare[14] = 0x18;
    assert_eq!(stage.ask(&link, &[bare]).len(), 0, "an answer");
    let vendor = header(1, SLOT, command::VENDOR, 9).encode().to_vec();
    assert_eq!(error_of(&stage.ask(&link, &[vendor])), aoe::COMMAND);
    let mut all = ata(1, 1, long(op::READ_EXT, 0, 1), &[]);
    all[16..19].fill(0xFF);
    assert_eq!(error_of(&stage.ask(&link, &[all])), aoe::ARGUMENT, "nobody means all disks");
    assert!(stage.disk.bytes(0, 2048).iter().all(|b| *b == 0), "nothing was written");
    stage.end();
}

#[test]
fn frames_with_bad_sources_or_other_addresses_are_ignored() {
    let (stage, link) = stage(1500);
    let good = header(1, SLOT, command::CONFIG, 1);
    for bad in [
        Header { from: Mac([3; 6]), ..good },
        Header { from: Mac([0xFF; 6]), ..good },
        Header { from: target_mac(0), ..good },
        Header { from: Mac([2, 9, 9, 9, 9, 9]), ..good },
        Header { to: Mac([3, 0, 0, 0, 0, 0]), ..good },
        Header { address: wire::aoe::Address { shelf: 566, slot: 0 }, ..good },
        Header { address: wire::aoe::Address { shelf: 565, slot: 1 }, ..good },
    ] {
        let frame = [&bad.encode()[..], &[0; 8]].concat();
        assert_eq!(stage.ask(&link, &[frame]).len(), 0, "{bad:?}");
    }
    assert_eq!(stage.ask(&link, &[[&good.encode()[..], &[0; 8]].concat()]).len(), 1);
    stage.end();
}

/// A2 of aoe/mod.rs, C1 of aoe/replay_guard.rs, C2 of aoe/replay_guard.rs,
/// C3 of aoe/replay_guard.rs.
#[test]
fn exposing_15_duplicate_write_is_applied_once() {
    let (stage, link) = stage(1500);
    let write = |tag, byte| {
        let what = Ata { write: true, ..long(op::WRITE_EXT, 5, 1) };
        ata(1, tag, what, &[byte; 512])
    };
    assert_eq!(ended(&stage.ask(&link, &[write(1, 1)])), GOOD);
    assert_eq!(ended(&stage.ask(&link, &[write(2, 2)])), GOOD);
    assert_eq!(ended(&stage.ask(&link, &[write(1, 1)])), GOOD, "acknowledged again");
    assert_eq!(stage.disk.bytes(5 * 512, 512), [2; 512], "and not written again");
    let came = stage.ask(&link, &[write(3, 3), write(3, 3), write(4, 4)]);
    let tags: Vec<u32> = came.iter().map(|f| decode_answer(f).0.tag).collect();
    assert_eq!(tags, [3, 4], "one answer, and in their order");
    assert_eq!(stage.disk.bytes(5 * 512, 512), [4; 512]);
    let many: Vec<Vec<u8>> = (10..26).map(|n| write(n, n as u8)).collect();
    assert_eq!(stage.ask(&link, &many).len(), 16);
    assert_eq!(stage.disk.bytes(5 * 512, 512), [25; 512], "the last one");
    // Who begins anew may begin with the same tags.
    stage.ask(&link, &[ata(1, 9, long(op::IDENTIFY, 0, 1), &[])]);
    assert_eq!(ended(&stage.ask(&link, &[write(1, 1)])), GOOD);
    assert_eq!(stage.disk.bytes(5 * 512, 512), [1; 512]);
    stage.end();
}

#[test]
fn requests_beyond_the_buffer_count_are_dropped() {
    let (stage, link) = stage(1500);
    let reads: Vec<Vec<u8>> =
        (0..40).map(|tag| ata(1, tag, long(op::READ_EXT, 0, 1), &[])).collect();
    let came = stage.ask(&link, &reads);
    assert!((16..40).contains(&came.len()), "{}", came.len());
    stage.end();
}
