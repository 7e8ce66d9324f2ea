//! A host: an iSCSI initiator with a session at a target driver of our own, whose LUN 0 is a disk
//! of a bus. Also the words of `status` and `cam devlist -v`.
//!
//! Answers are taken from the bytes of PDUs at the offsets that RFC 7143 and SPC-4 give, not by the
//! codecs with which the target made them.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use bio::{Pool, PoolConfig};
use cam::LastError;
use drivers::iscsi::Iscsi;
use drivers::{Driver, TargetSpec};
use engine::lun::{OpenSpec, open_device};
use engine::{Engine, GroupSpec, LunSpec, Registry};
use geom::{Severity, Trouble};
use reactor::Reactor;
use serde_json::json;
use testkit::iscsi::{Conn, LoginOptions, login};
use wire::iscsi::{Bhs, DataOut, NopOut, R2t, Response, ScsiCommand, SessionParams, TAG_NONE};

use super::{MS, S};
use crate::iscsi::peer::SECTOR;
use crate::world::World;

const TARGET: &str = "iqn.2026-11.test.ashlar:own";
const NAME: &str = "iqn.2026-11.test.ashlar:host";
const UNIT_READY: [u8; 6] = [0; 6];
/// First byte of PDUs.
const SCSI_RESPONSE: u8 = 0x21;
const DATA_IN: u8 = 0x25;

fn portal() -> SocketAddr {
    SocketAddr::from(([10, 9, 0, 1], 3260))
}

/// The answer to a command: the PDU with its status.
#[derive(Clone, Debug)]
pub struct CommandAnswer {
    pub tag: u32,
    /// Its header and its data segment.
    bhs: Bhs,
    segment: Vec<u8>,
    /// Data of the received Data-In PDUs.
    pub data: Vec<u8>,
}

impl CommandAnswer {
    /// The status; of CHECK CONDITION key, code and qualifier, and the INFORMATION field.
    pub fn words(&self) -> String {
        match self.bhs[3] {
            0x00 => "GOOD".into(),
            0x02 => self.sense_words(),
            0x08 => "BUSY".into(),
            0x18 => "RESERVATION CONFLICT".into(),
            other => format!("{other:02x}"),
        }
    }

    /// What holds for the PDU of any answer.
    fn check(&self, expect_in: u32) {
        let bhs = &self.bhs;
        let four = |at: usize| u32::from_be_bytes(bhs[at..at + 4].try_into().unwrap());
        let (opcode, flags, status) = (bhs[0], bhs[1], bhs[3]);
        assert_eq!(four(4) as usize & 0xff_ffff, self.segment.len(), "DataSegmentLength");
        assert_eq!(four(16), self.tag);
        assert_eq!(flags & 0x84, 0x80, "final, and no overflow");
        let (underflow, residual) = (flags & 2 != 0, four(44));
        assert_eq!(underflow, residual > 0, "a residual only with its flag");
        if expect_in > 0 {
            assert_eq!(self.data.len() + residual as usize, expect_in as usize);
        }
        if opcode == DATA_IN {
            return assert_eq!((flags & 1, status), (1, 0), "S, and GOOD");
        }
        assert_eq!((opcode, bhs[2]), (SCSI_RESPONSE, 0), "completed at the target");
        assert_eq!(self.segment.is_empty(), status != 2, "sense data with CHECK CONDITION only");
        if status == 2 {
            let len = u16::from_be_bytes([self.segment[0], self.segment[1]]);
            assert_eq!(usize::from(len) + 2, self.segment.len(), "SenseLength");
            assert_eq!(len, 18);
        }
    }

    /// Of fixed format, whose other fields are 0.
    fn sense_words(&self) -> String {
        let sense = &self.segment[2..];
        let valid = sense[0] & 0x80 != 0;
        let block = u32::from_be_bytes(sense[3..7].try_into().unwrap());
        assert_eq!((sense[0] & 0x7f, sense[7], valid || block == 0), (0x70, 10, true));
        let rest = [&sense[1..2], &sense[8..12], &sense[14..18]].concat();
        assert!(sense[2] < 0x10 && rest.iter().all(|byte| *byte == 0), "{sense:02x?}");
        let at = if valid { format!(" at {block}") } else { String::new() };
        format!("{:02x}/{:02x}/{:02x}{at}", sense[2], sense[12], sense[13])
    }

    fn is_attention(&self) -> bool {
        self.bhs[3] == 2 && self.segment[4] == 6
    }
}

/// A command in flight, with the data that it writes and reads.
struct Task {
    out: Vec<u8>,
    read: Vec<u8>,
    expect_in: u32,
}

/// What its session holds.
struct Port {
    conn: Rc<Conn>,
    tasks: RefCell<BTreeMap<u32, Task>>,
    answers: RefCell<Vec<CommandAnswer>>,
}

impl Port {
    fn on_pdu(&self, bhs: &Bhs, response: &Response, data: Vec<u8>) {
        match response {
            Response::R2t(r2t) => self.burst(r2t),
            Response::NopIn(ping) if ping.target_tag != TAG_NONE => {
                let pong = NopOut {
                    immediate: true,
                    task_tag: TAG_NONE,
                    target_tag: ping.target_tag,
                    cmd_sn: self.conn.cmd_sn.get(),
                    exp_stat_sn: self.conn.exp_stat_sn.get(),
                    ..NopOut::default()
                };
                self.conn.send(&pong, &[]);
            }
            Response::DataIn(part) => {
                let mut tasks = self.tasks.borrow_mut();
                let read = &mut tasks.get_mut(&part.task_tag).unwrap().read;
                assert_eq!(part.offset as usize, read.len());
                read.extend(&data);
                if part.status.is_some() {
                    self.end(&mut tasks, part.task_tag, (*bhs, data));
                }
            }
            Response::Scsi(end) => {
                self.end(&mut self.tasks.borrow_mut(), end.task_tag, (*bhs, data))
            }
            other => panic!("{other:?}"),
        }
    }

    fn end(&self, tasks: &mut BTreeMap<u32, Task>, tag: u32, (bhs, segment): (Bhs, Vec<u8>)) {
        let Task { read: data, expect_in, .. } = tasks.remove(&tag).expect("a command ends once");
        let answer = CommandAnswer { tag, bhs, segment, data };
        answer.check(expect_in);
        self.answers.borrow_mut().push(answer);
    }

    fn burst(&self, r2t: &R2t) {
        let tasks = self.tasks.borrow();
        let (at, len) = (r2t.offset as usize, r2t.desired_len as usize);
        let data = &tasks[&r2t.task_tag].out[at..at + len];
        let pdu = DataOut {
            last: true,
            lun: r2t.lun,
            task_tag: r2t.task_tag,
            target_tag: r2t.target_tag,
            exp_stat_sn: self.conn.exp_stat_sn.get(),
            offset: r2t.offset,
            data_len: r2t.desired_len,
            ..DataOut::default()
        };
        self.conn.send(&pdu, data);
    }
}

/// See the module.
pub struct Host {
    port: Rc<Port>,
    tags: Cell<u32>,
    reactor: Reactor,
    _engine: Rc<Engine>,
}

impl Drop for Host {
    fn drop(&mut self) {
        // Tasks of the session and of the driver hold the core, which holds them.
        self.reactor.shutdown();
    }
}

/// A target with a provider at LUN 0, and its portal.
fn export(w: &mut World, provider: &str) -> Rc<Engine> {
    let registry = Registry::new();
    let engine = Engine::new(w.core.clone(), registry.clone());
    let driver = Arc::new(Iscsi::new(registry.clone()));
    let listen = vec![portal().into()];
    driver.set_target(TargetSpec { name: TARGET.into(), listen, ..TargetSpec::default() }).unwrap();
    registry.set_target("iscsi", TARGET).unwrap();
    open_device(&mut w.control, &registry, provider, &OpenSpec::default()).unwrap();
    let luns = vec![LunSpec { lun: 0, device: provider.into(), read_only: false }];
    let all = GroupSpec {
        name: "all".into(),
        initiators: vec!["*".into()],
        luns,
        ..GroupSpec::default()
    };
    registry.set_groups("iscsi", TARGET, &[all]).unwrap();
    driver.clone().install(&engine);
    let opening = driver.open_portal(engine.clone(), portal().into());
    drop(w.core.reactor().spawn("portal", async move { drop(opening.await.unwrap()) }));
    engine
}

async fn log_in(reactor: Reactor) -> Rc<Conn> {
    let how = LoginOptions {
        initiator: NAME.into(),
        target: TARGET.into(),
        isid: 1,
        chap: None,
        header_digest: false,
        data_digest: false,
        params: SessionParams::default(),
    };
    let stream = reactor.connect(portal()).await.unwrap();
    let pool = Pool::new(PoolConfig { limit_bytes: 4 << 20 });
    login(&reactor, &pool, stream, &how).await.unwrap()
}

impl Host {
    /// Exports a provider, and logs in to it as a host does: it learns of the new session, and the
    /// unit is ready.
    pub fn login(w: &mut World, provider: &str) -> Host {
        let engine = export(w, provider);
        w.turn(MS);
        let reactor = w.core.reactor().clone();
        let place: Rc<RefCell<Option<Rc<Conn>>>> = Rc::default();
        let (out, logging) = (place.clone(), log_in(reactor.clone()));
        drop(reactor.spawn("login", async move { *out.borrow_mut() = Some(logging.await) }));
        while place.borrow().is_none() {
            w.turn(MS);
        }
        let conn = place.take().unwrap();
        let port = Rc::new(Port {
            conn: conn.clone(),
            tasks: RefCell::default(),
            answers: RefCell::default(),
        });
        let own = port.clone();
        let hear = move |bhs: &Bhs, response: Response, data| own.on_pdu(bhs, &response, data);
        drop(reactor.spawn("read", conn.clone().read(reactor.clone(), hear)));
        drop(reactor.spawn("write", conn.write()));
        let host = Host { port, tags: Cell::new(1), reactor, _engine: engine };
        assert_eq!(host.once(w, &UNIT_READY, 0, &[]).words(), "06/29/00");
        assert_eq!(host.once(w, &UNIT_READY, 0, &[]).words(), "GOOD");
        host
    }

    /// Sends a command, its data as the target requests them; its tag.
    pub fn send(&self, cdb: &[u8], expect_in: u32, data: &[u8]) -> u32 {
        let tag = self.tags.replace(self.tags.get() + 1);
        let conn = &self.port.conn;
        assert!(conn.may_send() && !conn.dead.get());
        let mut padded = [0; 16];
        padded[..cdb.len()].copy_from_slice(cdb);
        let out = data.len() as u32;
        let now = if conn.params.immediate_data { out.min(conn.params.first_burst) } else { 0 };
        let header = ScsiCommand {
            last: true,
            read: expect_in > 0,
            write: out > 0,
            task_tag: tag,
            transfer_len: expect_in.max(out),
            cmd_sn: conn.take_cmd_sn(),
            exp_stat_sn: conn.exp_stat_sn.get(),
            cdb: padded,
            data_len: now,
            ..ScsiCommand::default()
        };
        let task = Task { out: data.to_vec(), read: Vec::new(), expect_in };
        self.port.tasks.borrow_mut().insert(tag, task);
        conn.send(&header, &data[..now as usize]);
        tag
    }

    /// WRITE(10) of one block.
    pub fn send_write(&self, sector: u64, byte: u8) -> u32 {
        self.send(&cdb10(0x2a, sector), 0, &[byte; SECTOR])
    }

    /// READ(10) of one block.
    pub fn send_read(&self, sector: u64) -> u32 {
        self.send(&cdb10(0x28, sector), SECTOR as u32, &[])
    }

    /// The answers that arrived since the last call.
    pub fn ended(&self) -> Vec<CommandAnswer> {
        assert!(!self.port.conn.dead.get(), "the target has closed the session");
        std::mem::take(&mut self.port.answers.borrow_mut())
    }

    fn once(&self, w: &mut World, cdb: &[u8], expect_in: u32, data: &[u8]) -> CommandAnswer {
        let tag = self.send(cdb, expect_in, data);
        let end = w.now() + 200 * S;
        loop {
            if let Some(answer) = self.ended().pop() {
                assert_eq!(answer.tag, tag);
                return answer;
            }
            assert!(w.now() < end, "a command is not answered");
            w.turn(10 * MS);
        }
    }

    /// Sends a command again after unit attentions, which are noted.
    fn run(
        &self,
        w: &mut World,
        cdb: &[u8],
        expect_in: u32,
        data: &[u8],
    ) -> (CommandAnswer, Vec<String>) {
        let mut attentions = Vec::new();
        loop {
            let answer = self.once(w, cdb, expect_in, data);
            if !answer.is_attention() {
                return (answer, attentions);
            }
            attentions.push(answer.words());
            assert!(attentions.len() < 9, "{attentions:?}");
        }
    }

    /// Writes one block, past unit attentions.
    pub fn write(&self, w: &mut World, sector: u64, byte: u8) -> CommandAnswer {
        self.run(w, &cdb10(0x2a, sector), 0, &[byte; SECTOR]).0
    }

    /// Reads one block, past unit attentions.
    pub fn read(&self, w: &mut World, sector: u64) -> CommandAnswer {
        self.run(w, &cdb10(0x28, sector), SECTOR as u32, &[]).0
    }

    /// Reads blocks, past unit attentions.
    pub fn read_blocks(&self, w: &mut World, sector: u64, count: u8) -> CommandAnswer {
        let mut cdb = cdb10(0x28, sector);
        cdb[8] = count;
        self.run(w, &cdb, u32::from(count) * SECTOR as u32, &[]).0
    }

    /// Writes blocks, past unit attentions.
    pub fn write_blocks(&self, w: &mut World, sector: u64, count: u8, byte: u8) -> CommandAnswer {
        let mut cdb = cdb10(0x2a, sector);
        cdb[8] = count;
        self.run(w, &cdb, 0, &vec![byte; usize::from(count) * SECTOR]).0
    }

    /// Pending unit attentions, and the state of the unit after them.
    pub fn look(&self, w: &mut World) -> (Vec<String>, String) {
        let (answer, attentions) = self.run(w, &UNIT_READY, 0, &[]);
        (attentions, answer.words())
    }
}

/// READ(10) and WRITE(10) of one block.
fn cdb10(opcode: u8, sector: u64) -> [u8; 10] {
    let [.., a, b, c, d] = sector.to_be_bytes();
    [opcode, 0, a, b, c, d, 0, 0, 1, 0]
}

/// The text of `status` about buses and their disks now.
#[derive(PartialEq, Eq, Debug)]
pub struct Status {
    /// Its word: of the worst trouble.
    pub severity: &'static str,
    /// Troubles, and the last error of each disk.
    pub troubles: Vec<String>,
}

impl Status {
    /// Nothing is wrong, and these errors were the last ones.
    pub fn ok(last: &[String]) -> Status {
        Status { severity: "OK", troubles: last.to_vec() }
    }
}

/// The text of `status`. The text of `cam devlist -v` has the same words.
pub fn status(w: &mut World) -> Status {
    let now = w.control.now_ns();
    let (mut worst, mut says) = (Severity::Good, Vec::new());
    for bus in w.cam.buses() {
        for Trouble { severity: grade, why, action } in bus.troubles() {
            assert!(!action.is_empty(), "what to do is said: {why}");
            worst = worst.max(grade);
            says.push(why);
        }
        for (unit, _, name) in bus.devices() {
            let last =
                LastError::of(&unit, now).map(|error| format!("{name}: {}", error.description));
            says.extend(last);
        }
    }
    let listed = w.verb("devlist", "", &json!({ "verbose": true })).unwrap();
    let text = listed["text"].as_str().unwrap();
    for words in &says {
        let (_, what) = words.split_once(": ").unwrap_or(("", words));
        assert!(text.contains(what), "{words}: {text}");
    }
    Status { severity: word_of(worst), troubles: says }
}

/// The word of a trouble.
pub fn word_of(grade: Severity) -> &'static str {
    match grade {
        Severity::Good => "OK",
        Severity::Degraded => "DEGRADED",
        Severity::Failed => "FAILED",
    }
}
