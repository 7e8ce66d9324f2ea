//! Tests of the engine against a target's login, PDU by PDU.

use bio::{Pool, PoolConfig, Segs};
use testkit::clock::S;
use wire::iscsi::{
    Access, Algorithms, AsyncEvent, AsyncMessage, Auth, BHS_LEN, Bhs, CHALLENGE_LEN, Challenge,
    ChapUser, ClientError, DataIn, DigestPolicy, Grant, Login, LoginConfig, LoginStatus,
    LogoutRequest, Need, NopIn, NopOut, Numbers, Offer, PRE_LOGIN, Pdu, R2t, Residual, ScsiCommand,
    ScsiResponse, SessionParams, Step, TAG_NONE, TaskRequest, opcode, opcode_of,
};

use super::{Chap, Engine, Fault, Rules, SharedTerms, Task, Terms, Wire};
use crate::ccb::CamStatus;

#[derive(Default)]
struct TestWire(Vec<u8>);

impl Wire for TestWire {
    fn free_bytes(&self) -> usize {
        1 << 20
    }

    fn send(&mut self, head: &[u8], data: Option<(&Segs, usize, usize)>, tail: &[u8]) {
        self.0.extend_from_slice(head);
        if let Some((segs, from, len)) = data {
            super::for_each_slice(segs, from, len, &mut |bytes| self.0.extend_from_slice(bytes));
        }
        self.0.extend_from_slice(tail);
    }
}

impl TestWire {
    /// Sent PDUs.
    fn take(&mut self) -> Vec<(Bhs, Vec<u8>)> {
        let mut out = Vec::new();
        while let Need::Header(frame) = PRE_LOGIN.header(&self.0).unwrap() {
            let pdu: Vec<u8> = self.0.drain(..frame.total_len()).collect();
            let data = pdu[frame.header_len..frame.header_len + frame.data_len].to_vec();
            out.push((*pdu.first_chunk().unwrap(), data));
        }
        out
    }
}

struct Stage {
    engine: Engine,
    line: TestWire,
    pool: Pool,
    stat_sn: u32,
    /// Portal group that answers.
    group: u16,
    /// The last login failed.
    refused: bool,
}

fn bytes_of(pdu: &impl Pdu) -> Bhs {
    let mut bhs = [0; BHS_LEN];
    pdu.encode(&mut bhs);
    bhs
}

fn challenge() -> Challenge {
    Challenge { id: 1, bytes: [3; CHALLENGE_LEN] }
}

impl Stage {
    fn new() -> Stage {
        let rules = Rules {
            initiator: "iqn.2026-11.test:us".into(),
            target: "iqn.2026-11.test:them".into(),
            isid: [0x80, 1, 2, 3, 4, 5],
            terms: SharedTerms::new(Terms {
                chap: None,
                header_digest: DigestPolicy::Prefer,
                data_digest: DigestPolicy::Prefer,
                deadline_ns: 8 * S,
            }),
            luns_max: 1,
        };
        let pool = Pool::new(PoolConfig::default());
        Stage {
            engine: Engine::new(rules, 0),
            line: TestWire::default(),
            pool,
            stat_sn: 0,
            group: 1,
            refused: false,
        }
    }

    /// Up to the last answer; that too where `whole` is set. Answers the ISID.
    fn login(&mut self, whole: bool, now: u64) -> [u8; 6] {
        self.engine.connected(challenge(), &mut self.line, now).unwrap();
        let digest = DigestPolicy::Off;
        let params =
            SessionParams { max_burst: 4096, first_burst: 1024, ..SessionParams::default() };
        let offer =
            Offer { header_digest: digest, data_digest: digest, params, ..Offer::default() };
        let mut login = Login::new(LoginConfig {
            offer,
            algorithms: Default::default(),
            challenge: challenge(),
            stat_sn: 10,
            command_window: 4,
        });
        loop {
            let (bhs, data) = self.line.take().pop().unwrap();
            let mut step = login.request(&bhs, &data);
            if let Step::NeedTarget(_) = step {
                let (auth, alias, portal_group) = (Auth::None, None, self.group);
                step = login.decide(Access::Allow(Grant { auth, tsih: 1, portal_group, alias }));
            }
            match step {
                Step::Reply(reply) => self.receive(&reply.to_bytes(), now).unwrap(),
                Step::FullFeature(done) => {
                    self.stat_sn = done.stat_sn;
                    if whole {
                        self.refused = self.receive(&done.reply.to_bytes(), now).is_err();
                    }
                    return done.query.isid;
                }
                other => panic!("{other:?}"),
            }
        }
    }

    fn receive(&mut self, bytes: &[u8], now: u64) -> Result<(), Fault> {
        let taken = self.engine.receive(bytes, &mut self.line, now)?;
        assert_eq!(taken, bytes.len());
        Ok(())
    }

    fn numbers(&mut self) -> Numbers {
        self.stat_sn += 1;
        Numbers { stat_sn: self.stat_sn - 1, exp_cmd_sn: 1, max_cmd_sn: 4 }
    }

    fn write(&mut self, len: usize) -> u32 {
        let data = Segs::alloc(&self.pool, len).unwrap();
        let task = Task { write: true, length: len as u32, ..Task::default() };
        self.engine.begin(&task, &data).unwrap()
    }

    fn read(&mut self, data: &Segs) -> u32 {
        let task = Task { read: true, length: data.len() as u32, ..Task::default() };
        self.engine.begin(&task, data).unwrap()
    }

    fn ended(&mut self) -> Vec<(u32, CamStatus)> {
        let engine = &mut self.engine;
        std::iter::from_fn(|| engine.take_ended().map(|(tag, o)| (tag, o.status))).collect()
    }

    fn pump(&mut self, now: u64) -> Result<(), Fault> {
        self.engine.pump(&mut self.line, now)
    }
}

/// A running bus takes them over.
#[test]
fn changed_terms_apply_from_the_next_login_and_the_deadline_at_once() {
    let mut s = Stage::new();
    let terms = s.engine.rules.terms.clone();
    let says = |s: &mut Stage, wanted: &str| {
        s.engine.connected(challenge(), &mut s.line, S).unwrap();
        let text = String::from_utf8(s.line.take().pop().unwrap().1).unwrap();
        s.engine.dropped(S);
        assert!(text.contains(wanted), "{text:?}");
    };
    says(&mut s, "\0HeaderDigest=CRC32C,None\0DataDigest=CRC32C,None\0");
    assert_eq!(s.engine.connect_deadline_ns(), 2 * S);
    let (header_digest, data_digest) = (DigestPolicy::Require, DigestPolicy::Off);
    terms.set(Terms { chap: None, header_digest, data_digest, deadline_ns: 8 * S });
    says(&mut s, "\0HeaderDigest=CRC32C\0InitialR2T=No\0");
    let user = ChapUser { name: "us".into(), secret: b"twelve letters".to_vec() };
    let algorithms = Algorithms { md5: true, sha1: true, sha256: true, sha3: true };
    let chap = Some(Chap { user, mutual: None, algorithms });
    terms.set(Terms { chap, deadline_ns: 4 * S, ..Terms::default() });
    assert_eq!(s.engine.connect_deadline_ns(), S);
    says(&mut s, "AuthMethod=CHAP");
}

/// I2
#[test]
fn stranded_commands_end_when_the_session_is_reinstated() {
    let mut s = Stage::new();
    let isid = s.login(true, 0);
    let (sent, aborted) = (s.write(512), s.write(512));
    s.pump(S).unwrap();
    let waits = s.write(512);
    let task = Task { allowed_in_doubt: true, ..Task::default() };
    let question = s.engine.begin(&task, &Segs::new()).unwrap();
    s.engine.dropped(S);
    s.engine.abort(aborted);
    assert_eq!(s.ended(), [], "what they did is not known");
    assert_eq!(s.login(false, 2 * S), isid);
    s.pump(2 * S).unwrap();
    assert_eq!(s.ended(), [], "the old session may live still");
    s.engine.dropped(2 * S);
    s.login(true, 3 * S);
    s.line.take();
    s.pump(3 * S).unwrap();
    let ended = [(sent, CamStatus::BusReset), (aborted, CamStatus::Aborted)];
    // I8: another disk may be there.
    assert_eq!(s.ended(), [&ended[..], &[(waits, CamStatus::Requeue)]].concat());
    let out = s.line.take();
    let command = ScsiCommand::decode(&out.last().unwrap().0).unwrap();
    assert_eq!((out.len(), command.task_tag, command.cmd_sn), (1, question, 1));
}

/// I2
#[test]
fn a_login_to_another_portal_group_ends_no_stranded_command() {
    let mut s = Stage::new();
    s.login(true, 0);
    let sent = s.write(512);
    s.pump(S).unwrap();
    s.engine.dropped(S);
    s.group = 2;
    s.login(true, 2 * S);
    assert!(s.refused, "the session of group 1 may live");
    s.engine.dropped(2 * S);
    assert_eq!(s.ended(), []);
    s.pump(9 * S).unwrap();
    assert_eq!(s.ended(), [(sent, CamStatus::NoHba)], "nobody waits longer than the deadline");
    s.login(true, 10 * S);
    assert!(!s.refused && s.engine.is_up(), "nothing is stranded");
}

#[test]
fn reconnection_waits_for_the_time_that_the_target_requires() {
    let mut s = Stage::new();
    s.login(true, 0);
    s.engine.dropped(S);
    // The default of a target that names no time is two seconds.
    assert_eq!(s.engine.try_ns(), 3 * S);
    s.engine.dropped(3 * S);
    assert!(s.engine.try_ns() < 4 * S, "there was no session");
}

#[test]
fn redirections_are_followed_to_addresses_but_not_to_host_names() {
    let moved = |status, address: &str| {
        Fault::Login(ClientError::Refused(status, Some(address.to_owned()))).moved()
    };
    let (for_now, for_good) =
        (LoginStatus::TargetMovedTemporarily, LoginStatus::TargetMovedPermanently);
    assert_eq!(moved(for_now, "10.0.0.2:3261,1"), "10.0.0.2:3261".parse().ok());
    assert_eq!(moved(for_good, "[fd00::1]"), "[fd00::1]:3260".parse().ok());
    assert_eq!(moved(for_good, "san.example.org"), None);
    assert_eq!(moved(LoginStatus::NotFound, "10.0.0.2:3261"), None);
}

/// I1
#[test]
fn each_scsi_response_is_counted_once() {
    let mut s = Stage::new();
    s.login(true, 0);
    let tag = s.write(512);
    s.pump(S).unwrap();
    let sn = s.numbers();
    let answer = bytes_of(&ScsiResponse { task_tag: tag, sn, ..ScsiResponse::default() });
    s.receive(&answer, S).unwrap();
    s.receive(&answer, S).unwrap();
    assert_eq!(s.ended(), [(tag, CamStatus::Complete)]);
    // The place has another tenant by now, and the answer another number.
    let next = s.write(512);
    s.pump(S).unwrap();
    // A repeated number is ignored, whichever task the answer names.
    let again = bytes_of(&ScsiResponse { task_tag: next, sn, ..ScsiResponse::default() });
    s.receive(&again, S).unwrap();
    assert_eq!(s.ended(), []);
    let sn = s.numbers();
    let late = bytes_of(&ScsiResponse { task_tag: tag, sn, ..ScsiResponse::default() });
    s.receive(&late, S).unwrap();
    assert_eq!(s.ended(), []);
    assert_eq!(s.engine.counts().stray, 3);
    let skipped = Numbers { stat_sn: s.stat_sn + 1, ..s.numbers() };
    let gap = bytes_of(&ScsiResponse { task_tag: next, sn: skipped, ..ScsiResponse::default() });
    assert!(s.receive(&gap, S).is_err(), "one got lost");
}

/// I6
#[test]
fn buffers_of_aborted_tasks_are_not_accessed() {
    let mut s = Stage::new();
    s.login(true, 0);
    let data = Segs::alloc(&s.pool, 512).unwrap();
    data.copy_from(0, &[1; 512]);
    let (read, write) = (s.read(&data), s.write(4096));
    s.pump(S).unwrap();
    s.engine.abort(read);
    s.engine.abort(write);
    s.pump(S).unwrap();
    s.line.take();
    // The abort reached the target too late.
    let sn = s.numbers();
    let head = DataIn {
        last: true,
        acknowledge: false,
        status: Some((0, Residual::None)),
        lun: [0; 8],
        task_tag: read,
        target_tag: TAG_NONE,
        sn,
        data_sn: 0,
        offset: 0,
        data_len: 512,
    };
    s.receive(&[&bytes_of(&head)[..], &[9; 512]].concat(), S).unwrap();
    assert_eq!(s.ended(), [(read, CamStatus::Aborted)]);
    assert_eq!(data.to_vec(), [1; 512]);
    let sn = Numbers { stat_sn: s.stat_sn, exp_cmd_sn: 3, max_cmd_sn: 6 };
    let (task_tag, target_tag) = (write, 9);
    let r2t =
        R2t { lun: [0; 8], task_tag, target_tag, sn, r2t_sn: 0, offset: 1024, desired_len: 3072 };
    s.receive(&bytes_of(&r2t), S).unwrap();
    s.pump(S).unwrap();
    assert!(s.line.take().iter().all(|(bhs, _)| opcode_of(bhs) != opcode::DATA_OUT));
}

/// I3
#[test]
fn data_sent_stays_within_the_command_window_and_the_r2t() {
    let mut s = Stage::new();
    s.login(true, 0);
    let tags: Vec<u32> = (0..6).map(|_| s.write(4096)).collect();
    s.pump(S).unwrap();
    let out = s.line.take();
    assert_eq!(out.len(), 4, "the window has four");
    assert!(out.iter().all(|(_, data)| data.len() == 1024), "the first burst");
    let r2t = |sn, offset, desired_len, r2t_sn| {
        let (task_tag, target_tag) = (tags[0], 9);
        bytes_of(&R2t { lun: [0; 8], task_tag, target_tag, sn, r2t_sn, offset, desired_len })
    };
    let sn = Numbers { stat_sn: s.stat_sn, exp_cmd_sn: 5, max_cmd_sn: 4 };
    s.receive(&r2t(sn, 1024, 3072, 0), S).unwrap();
    s.pump(S).unwrap();
    let sent: usize = s.line.take().iter().map(|(_, data)| data.len()).sum();
    assert_eq!(sent, 3072);
    for bad in [r2t(sn, 1024, 512, 1), r2t(sn, 4096, 1, 1), r2t(sn, 0, 4096, 0)] {
        assert!(s.receive(&bad, S).is_err());
    }
}

/// I5
#[test]
fn a_silent_target_is_pinged_then_disconnected_then_lost() {
    let mut s = Stage::new();
    s.login(true, 0);
    let tag = s.write(512);
    s.pump(S).unwrap();
    s.line.take();
    s.pump(2 * S).unwrap();
    let ping = s.line.take();
    assert_eq!(opcode_of(&ping[0].0), opcode::NOP_OUT);
    assert!(s.pump(3 * S).is_ok() && s.pump(4 * S).is_err());
    s.engine.dropped(4 * S);
    s.pump(7 * S).unwrap();
    assert_eq!(s.ended(), []);
    s.pump(8 * S).unwrap();
    assert_eq!(s.ended(), [(tag, CamStatus::NoHba)], "counted from the last sign of life");
    let data = Segs::alloc(&s.pool, 512).unwrap();
    assert!(s.engine.begin(&Task::default(), &data).is_err());
    assert!(s.engine.take_found());
}

#[test]
fn pings_and_logout_requests_of_the_target_are_answered() {
    let mut s = Stage::new();
    s.login(true, 0);
    let sn = Numbers { stat_sn: s.stat_sn, exp_cmd_sn: 1, max_cmd_sn: 4 };
    let ping = NopIn { task_tag: TAG_NONE, target_tag: 77, sn, lun: [0; 8], data_len: 0 };
    s.receive(&bytes_of(&ping), S).unwrap();
    s.pump(S).unwrap();
    let pong = NopOut::decode(&s.line.take()[0].0).unwrap();
    assert_eq!((pong.target_tag, pong.task_tag), (77, TAG_NONE));
    let tag = s.write(512);
    s.pump(S).unwrap();
    s.engine.abort(tag);
    s.pump(S).unwrap();
    let abort = TaskRequest::decode(&s.line.take()[1].0).unwrap();
    assert_eq!((abort.referenced_tag, abort.ref_cmd_sn), (tag, 1));
    assert_eq!(s.ended(), [], "the target has not said that it is over");
    let sn = s.numbers();
    let event = AsyncEvent::LogoutRequested;
    let leave = AsyncMessage { event, sn, parameters: [0, 0, 4], ..AsyncMessage::default() };
    s.receive(&bytes_of(&leave), S).unwrap();
    s.pump(S).unwrap();
    assert!(s.line.take().is_empty(), "what is under way has half of the time");
    s.pump(3 * S).unwrap();
    let out = s.line.take();
    assert!(out.iter().any(|(bhs, _)| LogoutRequest::decode(bhs).is_ok()), "{out:?}");
    assert!(s.pump(4 * S).is_err(), "nobody answers");
}

/// I7
#[test]
fn a_command_in_flight_at_the_end_of_two_sessions_is_sent_alone() {
    let mut s = Stage::new();
    s.login(true, 0);
    let data = Segs::alloc(&s.pool, 512).unwrap();
    let send = |s: &mut Stage, serial| {
        let task = Task { read: true, length: 512, serial, ..Task::default() };
        s.engine.begin(&task, &data).unwrap()
    };
    let out = |s: &mut Stage, now| {
        s.pump(now).unwrap();
        let out = s.line.take();
        out.iter().map(|(bhs, _)| ScsiCommand::decode(bhs).unwrap().task_tag).collect::<Vec<_>>()
    };
    for round in 0..2 {
        let tags = [send(&mut s, 1), send(&mut s, 2)];
        assert_eq!(out(&mut s, round * S), tags, "beside one another");
        s.engine.dropped(round * S);
        assert_eq!(s.engine.poison_command(), None);
        s.login(true, round * S + 1);
        let mut ended = s.ended();
        ended.sort_by_key(|(tag, _)| tags.iter().position(|t| t == tag));
        assert_eq!(ended, tags.map(|tag| (tag, CamStatus::BusReset)));
        s.line.take();
    }
    // Another one is none, and waits for them all the same: nothing is beside them.
    let tags = [send(&mut s, 1), send(&mut s, 2), send(&mut s, 3)];
    assert_eq!(out(&mut s, 3 * S), tags[..1]);
    s.engine.dropped(3 * S);
    assert!(s.engine.poison_command().is_some_and(|words| words.starts_with("3 sessions")));
    s.login(true, 3 * S + 1);
    let back = [CamStatus::NexusLost, CamStatus::Requeue, CamStatus::Requeue];
    let mut ended = s.ended();
    ended.sort_by_key(|(tag, _)| tags.iter().position(|t| t == tag));
    assert_eq!(ended, [0, 1, 2].map(|n| (tags[n], back[n])), "the first one is to blame");
    s.line.take();
    let tags = [send(&mut s, 1), send(&mut s, 2), send(&mut s, 3)];
    s.engine.abort(tags[0]);
    assert_eq!(s.ended(), [(tags[0], CamStatus::Aborted)]);
    assert_eq!(out(&mut s, 4 * S), tags[1..2], "it has not been sent, and is one of them still");
    s.engine.abort(tags[1]);
    s.engine.dropped(4 * S);
    s.login(true, 4 * S + 1);
    let ended = s.ended();
    assert!(ended.contains(&(tags[1], CamStatus::Aborted)));
    assert!(ended.contains(&(tags[2], CamStatus::Requeue)));
    s.line.take();
    // The rest are none: beside one another again.
    let more = [send(&mut s, 3), send(&mut s, 4)];
    assert_eq!(out(&mut s, 5 * S), more);
    assert_eq!((s.engine.counts().poisoned_sessions, s.engine.suspect_count), (2, 0));
}
