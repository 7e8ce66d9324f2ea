//! Initiators that break the rules: each is answered or closed, without effect on other sessions.
//!
//! The numbers are those of the list of malformed input in the requirements of a hardened target.

use wire::iscsi::{
    DataOut, LoginRequest, LogoutRequest, NopOut, Pdu, RejectReason, Response, ScsiCommand, Snack,
    TAG_NONE, TaskAnswer, TextRequest, task_function,
};

use crate::iscsi::server::{Server, Shape};
use testkit::Seeds;
use testkit::iscsi::initiator::{Client, LoginOptions, rw10, sense};

/// A witness: a session that must not notice what another one does.
pub struct Witness(Client, u8);

impl Witness {
    pub fn new(server: &Server) -> Witness {
        let how = LoginOptions {
            initiator: "iqn.2026-11.test.ashlar:witness".into(),
            ..LoginOptions::default()
        };
        let mut client = Client::login(server.portal, &how);
        client.ready(0);
        let mut witness = Witness(client, 0);
        witness.check("the beginning");
        witness
    }

    pub fn ready(&mut self) {
        self.0.ready(0);
    }

    pub fn check(&mut self, after: &str) {
        self.1 = self.1.wrapping_add(1);
        let sent = vec![self.1; 9 * 512];
        assert_eq!(self.0.write(60_000, &sent, 4096).status, 0, "after {after}");
        assert_eq!(self.0.read(0, 60_000, 9), sent, "after {after}");
    }
}

/// What must become of a connection that did something.
#[derive(Clone, Copy, Debug, PartialEq)]
enum ExpectedResult {
    Rejected(RejectReason),
    /// Its connection is closed.
    Closed,
    /// Nothing happens.
    Ignored,
    /// The command ends with this sense key and code.
    Sense(u8, u8, u8),
}

use ExpectedResult::*;

struct Case {
    name: &'static str,
    expected: ExpectedResult,
    options: fn() -> LoginOptions,
    act: fn(&mut Client),
}

fn plain() -> LoginOptions {
    LoginOptions::default()
}

fn with_digests() -> LoginOptions {
    LoginOptions::default().digests(true, true)
}

fn eager() -> LoginOptions {
    let mut how = LoginOptions::default();
    how.offer.params.initial_r2t = false;
    how
}

/// A header made of a good one, with bytes changed.
pub fn twisted(c: &mut Client, pdu: &impl Pdu, data: &[u8], changes: &[(usize, u8)]) {
    let mut bytes = c.bytes(pdu, &[], data);
    for (at, byte) in changes {
        bytes[*at] = *byte;
    }
    c.try_raw(&bytes);
}

fn read_command(c: &mut Client) -> ScsiCommand {
    c.command(0, &rw10(0x28, 0, 1), 512, 0)
}

/// Writes 8 blocks as requested by R2T, with the first Data-Out made by `first`.
fn write_with(c: &mut Client, first: fn(&mut Client, u32, u32)) {
    let (tag, target_tag) = c.open_write(100, 4096);
    first(c, tag, target_tag);
}

#[rustfmt::skip]
const CASES: &[Case] = &[
    // 2: additional headers
    Case { name: "2 AHS in a text request", expected: Closed, options: plain, act: |c| {
        let pdu = TextRequest { immediate: true, last: true, task_tag: 7, target_tag: TAG_NONE,
            ..Default::default() };
        twisted(c, &pdu, &[], &[(4, 0xff)]);
        let _ = c.stream.shutdown(std::net::Shutdown::Write);
    } },
    Case { name: "2 AHS length 0", expected: Rejected(RejectReason::InvalidField), options: plain,
        act: |c| ahs(c, &[0, 0, 1, 0]) },
    Case { name: "2 AHS of unknown type", expected: Rejected(RejectReason::InvalidField),
        options: plain,
        act: |c| ahs(c, &[0, 1, 9, 0]) },
    Case { name: "2 AHS that ends outside", expected: Rejected(RejectReason::InvalidField),
        options: plain, act: |c| ahs(c, &[0, 200, 1, 0]) },
    // 3: data segments
    Case { name: "3 data of 16 MB", expected: Closed, options: plain, act: |c| {
        twisted(c, &NopOut { immediate: true, task_tag: 7, target_tag: TAG_NONE,
            ..Default::default() }, &[], &[(5, 0xff), (6, 0xff), (7, 0xff)]);
    } },
    Case { name: "3 data longer than declared", expected: Closed, options: plain, act: |c| {
        let len = c.params.send_data_len_max + 4;
        let pdu = NopOut { immediate: true, task_tag: 7, target_tag: TAG_NONE, data_len: len,
            ..Default::default() };
        let bytes = c.bytes(&pdu, &[], &vec![0; len as usize]);
        c.try_raw(&bytes);
    } },
    // 4: opcodes
    Case { name: "4 unknown opcode", expected: Rejected(RejectReason::Unsupported), options: plain,
        act: |c| twisted(c, &NopOut::default(), &[], &[(0, 0x0e)]) },
    Case { name: "4 unknown opcode 1b", expected: Rejected(RejectReason::Unsupported),
        options: plain,
        act: |c| twisted(c, &NopOut::default(), &[], &[(0, 0x1b)]) },
    Case { name: "4 a target's opcode", expected: Rejected(RejectReason::Unsupported),
        options: plain,
        act: |c| twisted(c, &NopOut::default(), &[], &[(0, 0x25)]) },
    Case { name: "4 immediate bit on Data-Out", expected: Ignored, options: plain, act: |c| {
        twisted(c, &DataOut { last: true, task_tag: 9, target_tag: 9, ..Default::default() }, &[],
            &[(0, 0x45)]);
    } },
    Case { name: "4 unknown opcode with much AHS", expected: Rejected(RejectReason::Unsupported),
        options: plain, act: |c| {
            let mut bytes = c.bytes(&NopOut::default(), &[], &[]);
            (bytes[0], bytes[4]) = (0x1a, 255);
            bytes.extend(vec![0xee; 1020]);
            c.raw(&bytes);
        } },
    // 6: digests
    Case { name: "6 header digest wrong", expected: Closed, options: with_digests, act: |c| {
        let pdu = read_command(c);
        twisted(c, &pdu, &[], &[(48, 0x55), (49, 0x55)]);
    } },
    Case { name: "6 no digests sent", expected: Closed, options: with_digests, act: |c| {
        let pdu = read_command(c);
        let mut bhs = [0; 48];
        pdu.encode(&mut bhs);
        c.try_raw(&bhs);
        c.try_raw(&bhs);
    } },
    Case { name: "6 data digest of a ping", expected: Rejected(RejectReason::DataDigest),
        options: with_digests, act: |c| {
            let pdu = NopOut { immediate: true, task_tag: 7, target_tag: TAG_NONE, data_len: 8,
                ..Default::default() };
            twisted(c, &pdu, b"12345678", &[(52, 0)]);
        } },
    // 9: login again
    Case { name: "9 login after login", expected: Rejected(RejectReason::Protocol), options: plain,
        act: |c| c.send(&LoginRequest { task_tag: 3, ..Default::default() }, &[]) },
    // 17: tags
    Case { name: "17 reserved tag", expected: Rejected(RejectReason::InvalidField), options: plain,
        act: |c| {
            let mut pdu = read_command(c);
            pdu.task_tag = TAG_NONE;
            c.send(&pdu, &[]);
        } },
    // 18 to 21: commands
    // Units without protection type 2 have no command of variable length, true or not.
    Case { name: "18 variable length CDB that lies", expected: Sense(5, 0x20, 0), options: plain,
        act: |c| {
            c.start(0, &[0x7f, 0, 0, 0, 0, 0, 0, 0xf8, 0, 9], 512, 0);
        } },
    Case { name: "19 LUN of many levels", expected: Sense(5, 0x25, 0), options: plain, act: |c| {
        let mut pdu = read_command(c);
        pdu.lun = [0, 0, 0, 1, 0, 2, 0, 3];
        c.send(&pdu, &[]);
    } },
    Case { name: "21 LBA and length beyond everything", expected: Sense(5, 0x21, 0), options: plain,
        act: |c| {
            let mut cdb = [0xff; 16];
            (cdb[0], cdb[1], cdb[14], cdb[15]) = (0x88, 0, 0, 0);
            cdb[10..14].copy_from_slice(&1u32.to_be_bytes());
            c.start(0, &cdb, 512, 0);
        } },
    // 27: data
    Case { name: "27 Data-Out without a command", expected: Ignored, options: plain,
        act: |c| c.data_out(0x4444, 5, 0, 0, &[0; 512], true) },
    Case { name: "27 unsolicited Data-Out without a command", expected: Ignored, options: plain,
        act: |c| c.data_out(0x4444, TAG_NONE, 0, 0, &[0; 512], true) },
    Case { name: "27 wrong target transfer tag", expected: Rejected(RejectReason::Protocol),
        options: plain, act: |c| {
            write_with(c, |c, tag, ttt| c.data_out(tag, ttt ^ 0x55, 0, 0, &[0; 4096], true));
        } },
    Case { name: "27 wrong offset", expected: Sense(0xb, 0x4b, 0), options: plain, act: |c| {
        write_with(c, |c, tag, ttt| c.data_out(tag, ttt, 0, 512, &[0; 512], true));
    } },
    Case { name: "27 wrong DataSN", expected: Sense(0xb, 0x4b, 0), options: plain, act: |c| {
        write_with(c, |c, tag, ttt| {
            c.data_out(tag, ttt, 0, 0, &[0; 2048], false);
            c.data_out(tag, ttt, 2, 2048, &[0; 2048], true);
        });
    } },
    Case { name: "27 overlapping", expected: Sense(0xb, 0x4b, 0), options: plain, act: |c| {
        write_with(c, |c, tag, ttt| {
            c.data_out(tag, ttt, 0, 0, &[0; 2048], false);
            c.data_out(tag, ttt, 1, 1024, &[0; 3072], true);
        });
    } },
    Case { name: "27 beyond the R2T", expected: Sense(0xb, 0x4b, 0), options: plain, act: |c| {
        write_with(c, |c, tag, ttt| c.data_out(tag, ttt, 0, 0, &[0; 8192], true));
    } },
    Case { name: "27 F before the end", expected: Sense(0xb, 0x4b, 0), options: plain, act: |c| {
        write_with(c, |c, tag, ttt| c.data_out(tag, ttt, 0, 0, &[0; 2048], true));
    } },
    Case { name: "27 no F at the end", expected: Sense(0xb, 0x4b, 0), options: plain, act: |c| {
        write_with(c, |c, tag, ttt| c.data_out(tag, ttt, 0, 0, &[0; 4096], false));
    } },
    Case { name: "27 more after F", expected: Ignored, options: plain, act: |c| {
        write_with(c, |c, tag, ttt| {
            c.data_out(tag, ttt, 0, 0, &[0; 4096], true);
            c.data_out(tag, ttt, 1, 4096, &[0; 512], true);
            assert_eq!(c.answer(tag).1.status, 0);
        });
    } },
    Case { name: "27 Data-Out for a read", expected: Ignored, options: plain, act: |c| {
        let tag = c.start(0, &rw10(0x28, 0, 1), 512, 0);
        c.data_out(tag, TAG_NONE, 0, 0, &[0; 512], true);
        assert_eq!(c.answer(tag).1.status, 0);
    } },
    Case { name: "digest of a Data-Out", expected: Sense(0xb, 0x47, 5),
        options: with_digests, act: |c| {
        write_with(c, |c, tag, ttt| {
            let pdu = DataOut { last: true, task_tag: tag, target_tag: ttt, data_len: 4096,
                ..Default::default() };
            twisted(c, &pdu, &[0; 4096], &[(100, 0x77)]);
            assert_eq!(c.rejected().0, RejectReason::DataDigest);
        });
    } },
    Case { name: "digest of immediate data", expected: Sense(0xb, 0x47, 5), options: with_digests,
        act: |c| {
            let mut pdu = c.command(0, &rw10(0x2a, 100, 1), 0, 512);
            pdu.data_len = 512;
            twisted(c, &pdu, &[0; 512], &[(100, 0x77)]);
            assert_eq!(c.rejected().0, RejectReason::DataDigest);
        } },
    // 28: unsolicited data
    Case { name: "28 more than FirstBurstLength at once", expected: Sense(0xb, 0x0c, 0x0c),
        options: eager, act: |c| {
            let len = c.params.first_burst + 512;
            let mut pdu = c.command(0, &rw10(0x2a, 100, (len / 512) as u16), 0, len);
            pdu.data_len = len;
            c.send(&pdu, &vec![0; len as usize]);
        } },
    Case { name: "28 more than FirstBurstLength in pieces", expected: Sense(0xb, 0x0c, 0x0c),
        options: eager, act: |c| {
            let len = c.params.first_burst + 4096;
            let mut pdu = c.command(0, &rw10(0x2a, 100, (len / 512) as u16), 0, len);
            pdu.last = false;
            c.send(&pdu, &[]);
            let half = (len / 2) as usize;
            c.data_out(pdu.task_tag, TAG_NONE, 0, 0, &vec![0; half], false);
            c.data_out(pdu.task_tag, TAG_NONE, 1, half, &vec![0; half], true);
        } },
    Case { name: "28 less than announced", expected: Sense(0xb, 0x0c, 0x0d),
        options: eager, act: |c| {
        let mut pdu = c.command(0, &rw10(0x2a, 100, 16), 0, 8192);
        pdu.last = false;
        c.send(&pdu, &[]);
        c.data_out(pdu.task_tag, TAG_NONE, 0, 0, &[0; 512], true);
    } },
    Case { name: "28 unsolicited although it was not agreed", expected: Sense(0xb, 0x0c, 0x0c),
        options: plain, act: |c| {
            let mut pdu = c.command(0, &rw10(0x2a, 100, 16), 0, 8192);
            pdu.last = false;
            c.send(&pdu, &[]);
            c.data_out(pdu.task_tag, TAG_NONE, 0, 0, &[0; 8192], true);
        } },
    Case { name: "immediate data although it was not agreed", expected: Sense(0xb, 0x0c, 0x0c),
        options: || { let mut h = plain(); h.offer.params.immediate_data = false; h }, act: |c| {
            let mut pdu = c.command(0, &rw10(0x2a, 100, 1), 0, 512);
            pdu.data_len = 512;
            c.send(&pdu, &[0; 512]);
        } },
    // 29, 30
    Case { name: "29 immediate data without W", expected: Rejected(RejectReason::InvalidField),
        options: plain, act: |c| {
            let mut pdu = read_command(c);
            pdu.data_len = 512;
            c.send(&pdu, &[0; 512]);
        } },
    Case { name: "35 SNACK", expected: Rejected(RejectReason::Snack), options: plain, act: |c| {
        c.send(&Snack { task_tag: 5, ..Default::default() }, &[]);
    } },
    Case { name: "36 a long ping", expected: Rejected(RejectReason::Protocol),
        options: plain, act: |c| {
        let pdu = NopOut { immediate: true, task_tag: 7, target_tag: TAG_NONE, data_len: 100_000,
            ..Default::default() };
        c.send(&pdu, &vec![1; 100_000]);
    } },
    Case { name: "text with a tag that was not given", expected: Rejected(RejectReason::Protocol),
        options: plain, act: |c| {
            let pdu = TextRequest { immediate: true, last: true, task_tag: 7, target_tag: 3,
                ..Default::default() };
            c.send(&pdu, &[]);
        } },
    Case { name: "8 text without a NUL", expected: Rejected(RejectReason::Protocol), options: plain,
        act: |c| {
            let pdu = TextRequest { immediate: true, last: true, task_tag: 7,
                target_tag: TAG_NONE, data_len: 4, ..Default::default() };
            c.send(&pdu, b"abcd");
        } },
    Case { name: "numbers before the window", expected: Ignored, options: plain, act: |c| {
        let mut pdu = read_command(c);
        pdu.cmd_sn = pdu.cmd_sn.wrapping_sub(9);
        c.cmd_sn = c.cmd_sn.wrapping_sub(1);
        c.send(&pdu, &[]);
    } },
    Case { name: "numbers after the window", expected: Ignored, options: plain, act: |c| {
        let mut pdu = read_command(c);
        pdu.cmd_sn = c.max_cmd_sn.wrapping_add(1);
        c.cmd_sn = c.cmd_sn.wrapping_sub(1);
        c.send(&pdu, &[]);
    } },
    Case { name: "logout of another connection", expected: Ignored, options: plain, act: |c| {
        let pdu = LogoutRequest { immediate: true, reason: wire::iscsi::LogoutReason::Connection,
            task_tag: 8, cid: 99, cmd_sn: c.cmd_sn, ..Default::default() };
        c.send(&pdu, &[]);
        assert!(matches!(c.expect().0, Response::Logout(p)
            if p.answer == wire::iscsi::LogoutAnswer::NoConnection));
    } },
    Case { name: "a function that does not exist", expected: Ignored, options: plain, act: |c| {
        assert_eq!(c.function(77, 0, 0), TaskAnswer::Unsupported);
        assert_eq!(c.function(task_function::TASK_REASSIGN, 1, 0), TaskAnswer::ReassignUnsupported);
        assert_eq!(c.function(task_function::ABORT_TASK, 0x999, 0), TaskAnswer::NoTask);
    } },
];

fn ahs(c: &mut Client, segment: &[u8]) {
    let mut pdu = read_command(c);
    pdu.ahs_len = segment.len() as u16;
    let bytes = c.bytes(&pdu, segment, &[]);
    c.raw(&bytes);
}

#[test]
fn protocol_violations_are_answered_without_effect_on_others() {
    let params = serde_json::json!({ "initial_r2t": false });
    let spec = drivers::TargetSpec { params, ..Default::default() };
    let server = Server::start(Shape { spec, ..Shape::default() });
    let mut witness = Witness::new(&server);
    for case in CASES {
        let mut c = Client::login(server.portal, &(case.options)());
        c.ready(0);
        eprintln!("{}", case.name);
        (case.act)(&mut c);
        match case.expected {
            Rejected(reason) => {
                let (got, header) = c.rejected();
                assert_eq!(got, reason, "{}", case.name);
                assert!(header.len() >= 48, "{}: the header comes back", case.name);
            }
            Closed => c.closed(),
            Sense(key, asc, ascq) => {
                let (end, data) = loop {
                    match c.expect() {
                        (Response::Scsi(end), data) => break (end, data),
                        (Response::R2t(_), _) => {}
                        other => panic!("{}: {other:?}", case.name),
                    }
                };
                assert_eq!(end.status, 2, "{}", case.name);
                assert_eq!(sense(&data), (key, asc, ascq), "{}", case.name);
            }
            Ignored => {}
        }
        if case.expected != Closed {
            assert_eq!(c.ping(b"alive"), b"alive", "{}", case.name);
            assert_eq!(c.read(0, 0, 1).len(), 512, "{}: numbers go on", case.name);
            c.cut();
        }
        witness.check(case.name);
    }
}

#[test]
fn connections_cut_inside_a_pdu_affect_no_other_session() {
    let server = Server::start(Shape::default());
    let mut witness = Witness::new(&server);
    for at in 0..=52 + 512 + 4 {
        if at > 60 && at % 37 != 0 {
            continue;
        }
        let mut c = Client::login(server.portal, &LoginOptions::default().digests(true, true));
        c.ready(0);
        let mut pdu = c.command(0, &rw10(0x2a, 100, 1), 0, 512);
        pdu.data_len = 512;
        let bytes = c.bytes(&pdu, &[], &[7; 512]);
        c.raw(&bytes[..at.min(bytes.len())]);
        if at % 2 == 0 {
            c.cut();
        }
    }
    witness.check("connections cut inside PDUs");
}

#[test]
fn floods_of_garbage_affect_no_other_session() {
    let server = Server::start(Shape::default());
    let mut witness = Witness::new(&server);
    for seed in Seeds::of(2) {
        let mut random = reactor::SeededRandom::new(seed);
        for round in 0..30 {
            let garbage: Vec<u8> = (0..20_000).map(|_| random.next_u64() as u8).collect();
            if round % 2 == 0 {
                let mut stream = testkit::iscsi::initiator::connect(server.portal);
                let _ = std::io::Write::write_all(&mut stream, &garbage);
                continue;
            }
            let how = LoginOptions::default().isid(round as u8);
            let mut c = Client::login(server.portal, &how);
            c.try_raw(&garbage);
            c.cut();
        }
    }
    witness.check("garbage before and after login");
    // A flood of well-framed nonsense is rejected for a while, then closed.
    let mut c = Client::login(server.portal, &LoginOptions::default());
    for _ in 0..400 {
        twisted(&mut c, &NopOut::default(), &[], &[(0, 0x0f)]);
    }
    c.closed();
    witness.check("four hundred unknown opcodes");
}
