//! A host: an initiator port with a session at a target of our own, whose LUN 0 is a disk of a bus;
//! and the words of `status` and `cam devlist -v`.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;

use bio::Segs;
use cam::LastError;
use serde_json::json;
use target::lun::{OpenSpec, open_device};
use target::{
    CloseReason, Command, Engine, GroupSpec, Login, LunSpec, Next, Registry, Response, Session,
    TaskAttribute, TmOutcome, Transport,
};
use wire::scsi::{Key, Sense};

use super::{MS, S};
use crate::iscsi::peer::SECTOR;
use crate::world::World;

const TARGET: &str = "iqn.2026-11.test.ashlar:own";
const NAME: &str = "iqn.2026-11.test.ashlar:host";
const UNIT_READY: [u8; 6] = [0; 6];

/// The answer to a command.
#[derive(Clone, Debug)]
pub struct Answer {
    pub tag: u32,
    status: u8,
    sense: Vec<u8>,
    pub data: Vec<u8>,
}

impl Answer {
    /// The status; of CHECK CONDITION key, code and qualifier, and the INFORMATION field.
    pub fn words(&self) -> String {
        match self.status {
            0x00 => "GOOD".into(),
            0x02 => self.sense_words(),
            0x08 => "BUSY".into(),
            0x18 => "RESERVATION CONFLICT".into(),
            other => format!("{other:02x}"),
        }
    }

    fn sense(&self) -> Sense {
        Sense::decode(&self.sense).expect("sense data of a target of our own")
    }

    fn sense_words(&self) -> String {
        let Sense { code, information, .. } = self.sense();
        let at = information.map(|block| format!(" at {block}")).unwrap_or_default();
        format!("{:02x}/{:02x}/{:02x}{at}", code.key as u8, code.asc, code.ascq)
    }

    fn is_attention(&self) -> bool {
        self.status == 2 && self.sense().code.key == Key::UnitAttention
    }
}

#[derive(Default)]
struct Port(RefCell<Vec<Answer>>);

impl Transport for Port {
    fn respond(&self, tag: u32, response: Response<'_>) {
        let (status, sense, data) = (response.status, response.sense.to_vec(), response.data);
        self.0.borrow_mut().push(Answer { tag, status, sense, data: data.to_vec() });
    }

    fn discard(&self, tag: u32) {
        panic!("command {tag} is discarded");
    }

    fn task_management_done(&self, _: u32, _: TmOutcome) {}

    fn close(&self, reason: CloseReason) {
        panic!("the session is closed: {reason:?}");
    }

    fn ended(&self) {}
}

/// See the module.
pub struct Host {
    session: Rc<Session>,
    port: Rc<Port>,
    tags: Cell<u32>,
    _engine: Rc<Engine>,
}

impl Host {
    /// Exports a provider, and logs in to it as a host does: it learns of the new session, and the
    /// unit is ready.
    pub fn login(w: &mut World, provider: &str) -> Host {
        let registry = Registry::new();
        let engine = Engine::new(w.core.clone(), registry.clone());
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
        let port = Rc::new(Port::default());
        let at = SocketAddr::from(([10, 9, 0, 1], 3260));
        let login = Login {
            target: engine.find_target("iscsi", TARGET).unwrap(),
            initiator: NAME.into(),
            port_id: vec![1],
            transport_id: Vec::new(),
            portal: at.into(),
            from: at.into(),
            reinstates: false,
            labels: Vec::new(),
        };
        let session = engine.login(login, port.clone()).unwrap();
        let host = Host { session, port, tags: Cell::new(1), _engine: engine };
        assert_eq!(host.once(w, &UNIT_READY, 0, &[]).words(), "06/29/00");
        assert_eq!(host.once(w, &UNIT_READY, 0, &[]).words(), "GOOD");
        host
    }

    /// Sends a command; its tag.
    pub fn send(&self, w: &World, cdb: &[u8], expect_in: u32, data: &[u8]) -> u32 {
        let tag = self.tags.replace(self.tags.get() + 1);
        let command = Command {
            tag,
            lun: [0; 8],
            cdb,
            attribute: TaskAttribute::Simple,
            expect_in,
            expect_out: data.len() as u32,
        };
        if let Next::Data { wanted } = self.session.command(&command) {
            let wanted = wanted as usize;
            let mut segs = Segs::alloc(w.core.pool(), wanted).unwrap();
            segs.copy_from(0, &data[..wanted]);
            self.session.data(tag, &mut segs);
        }
        tag
    }

    /// WRITE(10) of one block.
    pub fn send_write(&self, w: &World, sector: u64, byte: u8) -> u32 {
        self.send(w, &cdb10(0x2a, sector), 0, &[byte; SECTOR])
    }

    /// READ(10) of one block.
    pub fn send_read(&self, w: &World, sector: u64) -> u32 {
        self.send(w, &cdb10(0x28, sector), SECTOR as u32, &[])
    }

    /// The answers that came since the last call.
    pub fn ended(&self) -> Vec<Answer> {
        std::mem::take(&mut self.port.0.borrow_mut())
    }

    fn once(&self, w: &mut World, cdb: &[u8], expect_in: u32, data: &[u8]) -> Answer {
        let tag = self.send(w, cdb, expect_in, data);
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
    fn run(&self, w: &mut World, cdb: &[u8], expect_in: u32, data: &[u8]) -> (Answer, Vec<String>) {
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

    /// Writes one block, whatever unit attentions say.
    pub fn write(&self, w: &mut World, sector: u64, byte: u8) -> Answer {
        self.run(w, &cdb10(0x2a, sector), 0, &[byte; SECTOR]).0
    }

    /// Reads one block, whatever unit attentions say.
    pub fn read(&self, w: &mut World, sector: u64) -> Answer {
        self.run(w, &cdb10(0x28, sector), SECTOR as u32, &[]).0
    }

    /// Reads blocks, whatever unit attentions say.
    pub fn read_blocks(&self, w: &mut World, sector: u64, count: u8) -> Answer {
        let mut cdb = cdb10(0x28, sector);
        cdb[8] = count;
        self.run(w, &cdb, u32::from(count) * SECTOR as u32, &[]).0
    }

    /// Unit attentions that are pending, and what the unit is then.
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

/// What `status` says of buses and their disks now: troubles, and the last error of each disk. The
/// text of `cam devlist -v` has the same words.
pub fn status(w: &mut World) -> Vec<String> {
    let now = w.control.now_ns();
    let mut out = Vec::new();
    for bus in w.cam.buses() {
        out.extend(bus.troubles().into_iter().map(|trouble| trouble.why));
        for (unit, _, name) in bus.devices() {
            let last = LastError::of(&unit, now).map(|error| format!("{name}: {}", error.what));
            out.extend(last);
        }
    }
    let listed = w.verb("devlist", "", &json!({ "verbose": true })).unwrap();
    let text = listed["text"].as_str().unwrap();
    for words in &out {
        let (_, what) = words.split_once(": ").unwrap_or(("", words));
        assert!(text.contains(what), "{words}: {text}");
    }
    out
}
