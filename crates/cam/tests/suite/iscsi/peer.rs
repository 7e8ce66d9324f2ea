//! An iSCSI target for tests that uses all freedom of the protocol. Its disk is slow, and a session
//! that lost its connection continues its commands until a login with the same ISID ends it. It
//! also violates the protocol: duplicate answers, wrong tags and false lengths.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;

pub use super::reply::{Odd, Oddity, sense_of};
use bio::Seg;
use geom::Core;
use reactor::{SeededRandom, Stream};
use testkit::clock::MS;
use wire::iscsi::*;
use wire::scsi::{Capacity, Identity, inquiry_data, read_capacity16};

pub const SECTOR: usize = 512;
/// Sense codes.
const NO_SUCH_COMMAND: u8 = 0x20;
const OUT_OF_RANGE: u8 = 0x21;

/// Injected faults and negotiated parameters.
#[derive(Clone, Copy, Default)]
pub struct Ways {
    /// Longest time of a command, ns.
    pub slow_ns: u64,
    /// Of a thousand, answers that are sent twice.
    pub twice: u32,
    /// Answers with an unused tag before the right one, per thousand.
    pub wrong: u32,
    /// Of a thousand, answers that speak of other lengths.
    pub wrong_lengths: u32,
    /// Of a thousand, answers before which one of another command is sent that was not carried out
    /// yet, with a number that was there before.
    pub early: u32,
    /// Of a thousand, commands that are never answered.
    pub mute: u32,
    pub digests: bool,
    pub initial_r2t: bool,
    pub immediate: bool,
    pub burst: u32,
    pub segment: u32,
    pub window: u32,
}

/// Bytes in place of a PDU.
pub struct Raw {
    pub bytes: Vec<u8>,
    /// Its tag is made that of the request, its StatSN the next one.
    pub fits: bool,
    /// Its length is made that of what follows.
    pub frames: bool,
}

/// One session; its commands in flight end with it.
struct PeerSession {
    alive: Cell<bool>,
    /// Commands that arrived and were not carried out, and those of them that are to be given up.
    open: RefCell<BTreeMap<u32, bool>>,
}

/// See the module.
pub struct Peer {
    pub bytes: RefCell<Vec<u8>>,
    pub ways: RefCell<Ways>,
    /// Nothing is read or answered.
    pub deaf: Cell<bool>,
    /// All logins are refused.
    pub shut: Cell<bool>,
    /// The number of sectors that it reports.
    pub reported_sectors: Cell<Option<u64>>,
    /// Who logs in there is sent to the other place.
    pub moved: Cell<Option<(SocketAddr, SocketAddr)>>,
    /// Logins are answered with SERVICE UNAVAILABLE.
    pub busy: Cell<bool>,
    /// How many PDUs from now on have a wrong header digest, and a wrong data digest.
    pub spoils: [Cell<u32>; 2],
    /// Logins that were sent elsewhere.
    pub sent_on: Cell<u64>,
    /// PDUs that are sent before the next requests are processed.
    pub raw: RefCell<Vec<Raw>>,
    pub odd: RefCell<Option<Oddity>>,
    /// A READ or WRITE of this sector ends its connection; how often that was.
    pub falls_over: Cell<Option<u8>>,
    pub fell_over: Cell<u64>,
    /// Forged PDUs are sent in its name, so received data need not make sense.
    pub doubts: Cell<bool>,
    /// WRITEs that were carried out after their connection had failed.
    pub orphans: Cell<u64>,
    pub reinstated: Cell<u64>,
    /// Time between two looks for something to send, ns.
    pub idle_ns: Cell<u64>,
    auth: Auth,
    core: Rc<Core>,
    random: RefCell<SeededRandom>,
    sessions: RefCell<BTreeMap<[u8; 6], Rc<PeerSession>>>,
    life: Cell<u64>,
    streams: RefCell<Vec<Stream>>,
}

pub struct Conn {
    pub peer: Rc<Peer>,
    stream: Stream,
    pub out: RefCell<Vec<u8>>,
    open: Cell<bool>,
    life: u64,
    stat_sn: Cell<u32>,
    exp_cmd_sn: Cell<u32>,
    /// The last MaxCmdSN that was sent to the initiator.
    sent_max_cmd_sn: Cell<u32>,
    params: Cell<SessionParams>,
    nexus: RefCell<Option<Rc<PeerSession>>>,
    /// WRITEs whose data arrive.
    writes: RefCell<BTreeMap<u32, Write>>,
}

struct Write {
    command: ScsiCommand,
    data: Vec<u8>,
    received: u32,
    /// Up to there it was requested.
    requested: u32,
    r2t_sn: u32,
}

impl Peer {
    pub fn start(
        core: &Rc<Core>,
        at: &[SocketAddr],
        sectors: usize,
        seed: u64,
        (ways, auth): (Ways, Auth),
    ) -> Rc<Peer> {
        let peer = Rc::new(Peer {
            bytes: RefCell::new(vec![0; sectors * SECTOR]),
            ways: RefCell::new(ways),
            deaf: Cell::default(),
            shut: Cell::default(),
            reported_sectors: Cell::default(),
            moved: Cell::default(),
            busy: Cell::default(),
            spoils: Default::default(),
            sent_on: Cell::default(),
            raw: RefCell::default(),
            odd: RefCell::default(),
            falls_over: Cell::default(),
            fell_over: Cell::default(),
            doubts: Cell::default(),
            orphans: Cell::default(),
            reinstated: Cell::default(),
            idle_ns: Cell::new(20_000),
            auth,
            core: core.clone(),
            random: RefCell::new(SeededRandom::new(seed)),
            sessions: RefCell::default(),
            life: Cell::default(),
            streams: RefCell::default(),
        });
        for at in at {
            let listener = core.reactor().listen(*at).unwrap();
            let peer = peer.clone();
            core.reactor().spawn("peer", async move {
                while let Ok((stream, _)) = listener.accept().await {
                    if peer.shut.get() {
                        continue;
                    }
                    peer.streams.borrow_mut().push(stream.clone());
                    let peer2 = peer.clone();
                    peer.core.reactor().spawn("peer conn", peer2.serve(stream));
                }
            });
        }
        peer
    }

    /// All connections fail; sessions continue without.
    pub fn cut(&self) {
        for stream in self.streams.take() {
            stream.reset();
            stream.close();
        }
    }

    /// The process is killed: all that is under way is lost.
    pub fn kill(&self) {
        self.sessions.borrow().values().for_each(|nexus| nexus.alive.set(false));
        self.sessions.borrow_mut().clear();
        self.life.set(self.life.get() + 1);
        self.cut();
    }

    /// No received command is still to be carried out.
    pub fn is_idle(&self) -> bool {
        self.sessions.borrow().values().all(|nexus| nexus.open.borrow().is_empty())
    }

    fn chance(&self, of: impl Fn(&Ways) -> u32) -> bool {
        let rate = of(&self.ways.borrow());
        self.random.borrow_mut().chance(rate)
    }

    fn below(&self, n: u64) -> u64 {
        self.random.borrow_mut().below(n.max(1))
    }

    async fn serve(self: Rc<Peer>, stream: Stream) {
        let conn = Rc::new(Conn {
            peer: self.clone(),
            stream: stream.clone(),
            out: RefCell::default(),
            open: Cell::new(true),
            life: self.life.get(),
            stat_sn: Cell::new(1),
            exp_cmd_sn: Cell::new(1),
            sent_max_cmd_sn: Cell::new(0),
            params: Cell::new(SessionParams::default()),
            nexus: RefCell::default(),
            writes: RefCell::default(),
        });
        let writer = self.core.reactor().spawn("peer writer", conn.clone().write());
        conn.read().await;
        conn.open.set(false);
        writer.abort();
        stream.close();
    }
}

fn memory(core: &Core, bytes: usize) -> Seg {
    core.pool().get(bytes).and_then(|buf| buf.seg(0, bytes)).unwrap()
}

impl Conn {
    async fn write(self: Rc<Conn>) {
        let core = self.peer.core.clone();
        loop {
            let deaf = self.peer.deaf.get();
            let bytes = if deaf { Vec::new() } else { self.out.take() };
            let idle = bytes.is_empty();
            for chunk in bytes.chunks(64 << 10) {
                let seg = memory(&core, chunk.len());
                seg.copy_from(0, chunk);
                if self.stream.send(&mut vec![seg]).await.is_err() {
                    return;
                }
            }
            core.reactor().sleep(if idle { self.peer.idle_ns.get() } else { 20_000 }).await;
        }
    }

    async fn read(self: &Rc<Conn>) {
        let core = self.peer.core.clone();
        let (mut have, mut login, mut framer) = (Vec::new(), Some(self.login()), PRE_LOGIN);
        let into = memory(&core, 64 << 10);
        loop {
            while self.peer.deaf.get() {
                core.reactor().sleep(10 * MS).await;
            }
            let n = match self.stream.recv(&into).await {
                Ok(n) if n > 0 => n,
                _ => return,
            };
            into.with(|bytes| have.extend_from_slice(&bytes[..n]));
            while let Ok(Need::Header(frame)) = framer.header(&have) {
                if have.len() < frame.total_len() {
                    break;
                }
                if self.life != self.peer.life.get() {
                    return;
                }
                let pdu: Vec<u8> = have.drain(..frame.total_len()).collect();
                let bhs: Bhs = *pdu.first_chunk().unwrap();
                let data = framer.data(&frame, &pdu[frame.header_len..]).expect("good digest");
                match &mut login {
                    Some(state) => match self.enter(state, &bhs, data) {
                        Some(true) => {
                            login = None;
                            framer = self.framer();
                        }
                        Some(false) => {}
                        None => {
                            core.reactor().sleep(5 * MS).await;
                            return;
                        }
                    },
                    None => {
                        if self.request(&bhs, data).is_none() {
                            core.reactor().sleep(MS).await;
                            return;
                        }
                    }
                }
            }
        }
    }

    fn framer(&self) -> Framer {
        Framer { data_len_max: 1 << 20, ..Framer::of(&self.params.get()) }
    }

    fn login(&self) -> Login {
        let ways = *self.peer.ways.borrow();
        let digest = if ways.digests { DigestPolicy::Allow } else { DigestPolicy::Off };
        let params = SessionParams {
            initial_r2t: ways.initial_r2t,
            immediate_data: ways.immediate,
            max_burst: ways.burst,
            first_burst: ways.burst.min(1024),
            recv_data_len_max: ways.segment,
            // A login may follow at once: worlds are short.
            time2wait_s: 0,
            ..SessionParams::default()
        };
        let offer =
            Offer { header_digest: digest, data_digest: digest, params, ..Offer::default() };
        let mut challenge = Challenge { id: 7, bytes: [0; CHALLENGE_LEN] };
        challenge.bytes.iter_mut().for_each(|b| *b = self.peer.below(256) as u8);
        Login::new(LoginConfig {
            offer,
            algorithms: Algorithms::default(),
            challenge,
            stat_sn: 1,
            command_window: ways.window,
        })
    }

    fn enter(&self, login: &mut Login, bhs: &Bhs, data: &[u8]) -> Option<bool> {
        let mut step = login.request(bhs, data);
        let elsewhere =
            self.peer.moved.get().filter(|(from, _)| self.stream.local_addr().ok() == Some(*from));
        if let (Step::NeedTarget(_), Some((_, to))) = (&step, elsewhere) {
            self.peer.sent_on.set(self.peer.sent_on.get() + 1);
            let address = format!("{to},1");
            step = login.decide(Access::Redirect { address, permanent: false });
        }
        if let (Step::NeedTarget(_), true) = (&step, self.peer.busy.get()) {
            step = login.decide(Access::Deny(LoginStatus::ServiceUnavailable));
        }
        if let Step::NeedTarget(_) = step {
            step = login.decide(Access::Allow(Grant {
                auth: self.peer.auth.clone(),
                tsih: 1 + self.peer.below(1000) as u16,
                portal_group: 1,
                alias: None,
            }));
        }
        match step {
            Step::Reply(reply) => self.out.borrow_mut().extend(reply.to_bytes()),
            Step::FullFeature(done) => {
                self.stat_sn.set(done.stat_sn);
                self.exp_cmd_sn.set(done.exp_cmd_sn);
                let window = self.peer.ways.borrow().window;
                self.sent_max_cmd_sn.set(done.exp_cmd_sn.wrapping_add(window).wrapping_sub(1));
                self.params.set(done.params);
                let nexus =
                    Rc::new(PeerSession { alive: Cell::new(true), open: RefCell::default() });
                let isid = done.query.isid;
                let old = self.peer.sessions.borrow_mut().insert(isid, nexus.clone());
                if let Some(old) = old {
                    old.alive.set(false);
                    self.peer.reinstated.set(self.peer.reinstated.get() + 1);
                }
                *self.nexus.borrow_mut() = Some(nexus);
                self.out.borrow_mut().extend(done.reply.to_bytes());
                return Some(true);
            }
            Step::Refuse { reply, .. } => {
                self.out.borrow_mut().extend(reply.to_bytes());
                return None;
            }
            _ => return None,
        }
        Some(false)
    }

    pub fn numbers(&self, counts: bool) -> Numbers {
        let stat_sn = self.stat_sn.get();
        if counts {
            self.stat_sn.set(stat_sn.wrapping_add(1));
        }
        let exp_cmd_sn = self.exp_cmd_sn.get();
        let window = self.peer.ways.borrow().window;
        // A window that becomes smaller is used up first.
        let sent = self.sent_max_cmd_sn.get();
        let most = exp_cmd_sn.wrapping_add(window).wrapping_sub(1);
        let max_cmd_sn = if most.wrapping_sub(sent).cast_signed() > 0 { most } else { sent };
        self.sent_max_cmd_sn.set(max_cmd_sn);
        Numbers { stat_sn, exp_cmd_sn, max_cmd_sn }
    }

    pub fn send_pdu(&self, pdu: &impl Pdu, data: &[u8]) {
        let params = self.params.get();
        let mut bhs = [0; BHS_LEN];
        pdu.encode(&mut bhs);
        let mut out = self.out.borrow_mut();
        let times = if self.peer.chance(|w| w.twice) { 2 } else { 1 };
        // Only the end of a command is sent twice: of data the second is a fault.
        let times = if opcode_of(&bhs) == opcode::SCSI_RESPONSE { times } else { 1 };
        for _ in 0..times {
            out.extend_from_slice(&bhs);
            if params.header_digest {
                out.extend((crc32c(&bhs) ^ self.spoils(0)).to_le_bytes());
            }
            let padded = [data, &vec![0; data.len().next_multiple_of(4) - data.len()]].concat();
            out.extend_from_slice(&padded);
            if params.data_digest && !data.is_empty() {
                out.extend((crc32c(&padded) ^ self.spoils(1)).to_le_bytes());
            }
        }
    }

    /// `None`: the connection ends.
    fn request(self: &Rc<Conn>, bhs: &Bhs, data: &[u8]) -> Option<()> {
        let raw = std::mem::take(&mut *self.peer.raw.borrow_mut());
        raw.into_iter().for_each(|raw| self.send_raw(raw, bhs));
        match opcode_of(bhs) {
            opcode::SCSI_COMMAND => {
                let command = ScsiCommand::decode(bhs).expect("a good command");
                assert_eq!(command.cmd_sn, self.exp_cmd_sn.get(), "CmdSN in order");
                let over = command.cmd_sn.wrapping_sub(self.sent_max_cmd_sn.get()).cast_signed();
                assert!(over <= 0, "{over} commands beyond the window");
                self.exp_cmd_sn.set(command.cmd_sn.wrapping_add(1));
                self.command(command, data);
            }
            opcode::DATA_OUT => {
                self.data_out(&DataOut::decode(bhs).expect("good data"), data)?;
            }
            opcode::NOP_OUT => {
                let ping = NopOut::decode(bhs).expect("a good ping");
                if ping.task_tag != TAG_NONE {
                    let sn = self.numbers(true);
                    let pong = NopIn {
                        task_tag: ping.task_tag,
                        target_tag: TAG_NONE,
                        sn,
                        ..NopIn::default()
                    };
                    self.send_pdu(&pong, &[]);
                }
            }
            opcode::TASK_REQUEST => self.task(&TaskRequest::decode(bhs).expect("a good function")),
            opcode::LOGOUT_REQUEST => {
                let logout = LogoutRequest::decode(bhs).expect("a good logout");
                let sn = self.numbers(true);
                let answer =
                    LogoutResponse { task_tag: logout.task_tag, sn, ..LogoutResponse::default() };
                self.send_pdu(&answer, &[]);
                if let Some(own) = self.nexus.borrow().as_ref() {
                    own.alive.set(false);
                    self.peer.sessions.borrow_mut().retain(|_, known| !Rc::ptr_eq(known, own));
                }
                return None;
            }
            other => panic!("opcode {other:02x}"),
        }
        Some(())
    }

    fn task(&self, request: &TaskRequest) {
        let nexus = self.nexus.borrow().clone().unwrap();
        let mut open = nexus.open.borrow_mut();
        let answer = match request.function {
            task_function::ABORT_TASK => match open.get_mut(&request.referenced_tag) {
                Some(gone) => {
                    *gone = true;
                    TaskAnswer::Complete
                }
                None => TaskAnswer::NoTask,
            },
            _ => {
                open.values_mut().for_each(|gone| *gone = true);
                TaskAnswer::Complete
            }
        };
        let sn = self.numbers(true);
        self.send_pdu(&TaskResponse { answer, task_tag: request.task_tag, sn }, &[]);
    }

    fn command(self: &Rc<Conn>, command: ScsiCommand, data: &[u8]) {
        let moves = matches!(command.cdb[0], 0x28 | 0x2a);
        if moves && self.peer.falls_over.get() == Some(command.cdb[5]) {
            self.peer.fell_over.set(self.peer.fell_over.get() + 1);
            return self.peer.cut();
        }
        let nexus = self.nexus.borrow().clone().unwrap();
        nexus.open.borrow_mut().insert(command.task_tag, false);
        if !command.write {
            return self.later(command, Vec::new());
        }
        let params = self.params.get();
        assert!(params.immediate_data || data.is_empty(), "no immediate data were agreed on");
        assert!(command.last || !params.initial_r2t, "no unsolicited data were agreed on");
        assert!(data.len() as u32 <= params.first_burst);
        let first = command.transfer_len.min(params.first_burst);
        let first_burst = if command.last { data.len() as u32 } else { first };
        let write = Write {
            command,
            data: data.to_vec(),
            received: data.len() as u32,
            requested: first_burst,
            r2t_sn: 0,
        };
        self.writes.borrow_mut().insert(command.task_tag, write);
        self.go_on(command.task_tag);
    }

    fn data_out(self: &Rc<Conn>, head: &DataOut, data: &[u8]) -> Option<()> {
        let mut writes = self.writes.borrow_mut();
        let Some(write) = writes.get_mut(&head.task_tag) else { return Some(()) };
        let end = write.received + head.data_len;
        let fits = head.offset == write.received && end <= write.requested;
        if self.peer.doubts.get() && (!fits || head.last != (end == write.requested)) {
            return None;
        }
        assert_eq!(head.offset, write.received, "data in order");
        write.received += head.data_len;
        assert!(write.received <= write.requested, "no more than was asked for");
        assert_eq!(head.last, write.received == write.requested, "the last PDU of a burst says so");
        write.data.extend_from_slice(data);
        drop(writes);
        self.go_on(head.task_tag);
        Some(())
    }

    fn go_on(self: &Rc<Conn>, tag: u32) {
        let mut writes = self.writes.borrow_mut();
        let Some(write) = writes.get_mut(&tag) else { return };
        if write.received < write.requested {
            return;
        }
        if write.received == write.command.transfer_len {
            let write = writes.remove(&tag).unwrap();
            drop(writes);
            return self.later(write.command, write.data);
        }
        let (offset, left) = (write.received, write.command.transfer_len - write.received);
        let desired_len = left.min(self.params.get().max_burst);
        write.requested = offset + desired_len;
        let r2t_sn = write.r2t_sn;
        write.r2t_sn += 1;
        drop(writes);
        let sn = self.numbers(false);
        let target_tag = tag ^ 0x5555;
        let r2t = R2t { lun: [0; 8], task_tag: tag, target_tag, sn, r2t_sn, offset, desired_len };
        self.send_pdu(&r2t, &[]);
    }

    /// Carries a command out when it is due, connected or not, while the session lives.
    fn later(self: &Rc<Conn>, command: ScsiCommand, data: Vec<u8>) {
        let conn = self.clone();
        let nexus = self.nexus.borrow().clone().unwrap();
        let most = self.peer.ways.borrow().slow_ns;
        let wait = self.peer.below(most);
        self.peer.core.reactor().spawn("peer command", async move {
            conn.peer.core.reactor().sleep(wait).await;
            let gone = nexus.open.borrow_mut().remove(&command.task_tag);
            if !nexus.alive.get() || gone != Some(false) {
                return;
            }
            conn.carry_out(&command, &data);
        });
    }

    fn carry_out(&self, command: &ScsiCommand, data: &[u8]) {
        let peer = &self.peer;
        let cdb = &command.cdb;
        let odd = peer.odd.borrow_mut().as_mut().map_or(Odd::Usual, |odd| odd(command));
        match odd {
            Odd::Usual => {}
            _ if !self.open.get() => return,
            odd => return self.answer_oddly(command, odd),
        }
        let lba = match cdb[0] {
            0x28 | 0x2a => u32::from_be_bytes([cdb[2], cdb[3], cdb[4], cdb[5]]) as usize,
            _ => u32::from_be_bytes([cdb[6], cdb[7], cdb[8], cdb[9]]) as usize,
        };
        let identity = || Identity {
            vendor: "peer".into(),
            product: "disk for tests".into(),
            ..Identity::default()
        };
        let sectors = peer.bytes.borrow().len() / SECTOR;
        let answer = match cdb[0] {
            0x00 | 0x35 | 0x91 => Some(Vec::new()),
            0x12 if cdb[1] & 1 == 0 => Some(inquiry_data(&identity())),
            0x12 if cdb[2] == 0 => Some(vec![0, 0, 0, 2, 0, 0x80]),
            0x12 if cdb[2] == 0x80 => Some(b"\0\x80\0\x05PEER1".to_vec()),
            0xa0 => Some(vec![0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
            0x9e => {
                let blocks = peer.reported_sectors.get().unwrap_or(sectors as u64);
                let capacity = Capacity { blocks, block_len: 512, ..Capacity::default() };
                Some(read_capacity16(&capacity).to_vec())
            }
            0x28 | 0x88 | 0x2a | 0x8a
                if lba * SECTOR + command.transfer_len as usize > sectors * SECTOR =>
            {
                return self.answer(command, Err(OUT_OF_RANGE));
            }
            0x28 | 0x88 => {
                let from = lba * SECTOR;
                Some(peer.bytes.borrow()[from..from + command.transfer_len as usize].to_vec())
            }
            0x2a | 0x8a => {
                let from = lba * SECTOR;
                assert_eq!(data.len(), command.transfer_len as usize);
                peer.bytes.borrow_mut()[from..from + data.len()].copy_from_slice(data);
                if !self.open.get() {
                    peer.orphans.set(peer.orphans.get() + 1);
                }
                Some(Vec::new())
            }
            _ => None,
        };
        if !self.open.get() || peer.chance(|w| w.mute) {
            return;
        }
        if peer.chance(|w| w.wrong) {
            let task_tag = command.task_tag ^ 0x40_0000;
            let sn = self.numbers(true);
            self.send_pdu(&ScsiResponse { task_tag, sn, ..ScsiResponse::default() }, &[]);
        }
        if peer.chance(|w| w.early) {
            self.answer_early();
        }
        self.answer(command, answer.ok_or(NO_SUCH_COMMAND));
    }

    /// Reports a command as done that was not carried out, by a number that was there before.
    fn answer_early(&self) {
        let nexus = self.nexus.borrow().clone().unwrap();
        let other = nexus.open.borrow().keys().next().copied();
        let Some(task_tag) = other else { return };
        let sn = self.numbers(false);
        let sn = Numbers { stat_sn: sn.stat_sn.wrapping_sub(1), ..sn };
        self.send_pdu(&ScsiResponse { task_tag, sn, ..ScsiResponse::default() }, &[]);
    }

    fn refuse(&self, command: &ScsiCommand, code: u8) {
        self.status(command, 2, &sense_of(5, code, 0));
    }

    pub fn status(&self, command: &ScsiCommand, status: u8, sense: &[u8]) {
        let task_tag = command.task_tag;
        let (sn, data_len) = (self.numbers(true), sense.len() as u32);
        let response = ScsiResponse { status, task_tag, sn, data_len, ..ScsiResponse::default() };
        self.send_pdu(&response, sense);
    }

    pub fn answer(&self, command: &ScsiCommand, answer: Result<Vec<u8>, u8>) {
        let (task_tag, length) = (command.task_tag, command.transfer_len);
        let mut bytes = match answer {
            Ok(bytes) => bytes,
            Err(code) => return self.refuse(command, code),
        };
        bytes.truncate(length as usize);
        let moved = if command.write { length } else { bytes.len() as u32 };
        let mut residual = Residual::of(moved.into(), length);
        let lies = self.peer.chance(|w| w.wrong_lengths);
        if lies && command.read && !bytes.is_empty() {
            bytes.truncate(bytes.len() / 2);
        } else if lies {
            residual = Residual::Underflow(length / 2);
        }
        let most = self.peer.ways.borrow().segment as usize;
        let mut data_sn = 0;
        let count = bytes.chunks(most).count();
        let with_status = self.peer.below(2) == 0;
        for (n, chunk) in bytes.chunks(most).enumerate() {
            let last = n + 1 == count;
            let status = (last && with_status).then_some((0, residual));
            let head = DataIn {
                last,
                acknowledge: false,
                status,
                lun: [0; 8],
                task_tag,
                target_tag: TAG_NONE,
                sn: self.numbers(status.is_some()),
                data_sn,
                offset: (n * most) as u32,
                data_len: chunk.len() as u32,
            };
            self.send_pdu(&head, chunk);
            data_sn += 1;
        }
        if count == 0 || !with_status {
            let sn = self.numbers(true);
            let exp_data_sn = data_sn;
            self.send_pdu(
                &ScsiResponse { task_tag, sn, residual, exp_data_sn, ..ScsiResponse::default() },
                &[],
            );
        }
    }
}
