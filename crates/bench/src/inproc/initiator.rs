//! An initiator that is a task of the core that serves it.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;

use bio::Segs;
use engine::{
    CloseReason, Command, Engine, ItNexus, Login, Next, Response, TaskAttribute, TmOutcome,
    Transport,
};

use reactor::SeededRandom;

use crate::error::{Error, Kind};

const BYTES: u32 = 4096;
/// Blocks of a command, of 512 bytes.
const BLOCKS: u32 = BYTES / 512;

/// Responses of the engine.
#[derive(Default)]
struct CompletionCounter {
    free: RefCell<Vec<u32>>,
    ended: Cell<u64>,
    failed: Cell<u64>,
}

impl Transport for CompletionCounter {
    fn respond(&self, tag: u32, response: Response<'_>) {
        self.ended.set(self.ended.get() + 1);
        self.failed.set(self.failed.get() + u64::from(response.status != 0));
        self.free.borrow_mut().push(tag);
    }

    fn discard(&self, tag: u32) {
        self.free.borrow_mut().push(tag);
    }

    fn task_management_done(&self, _: u32, _: TmOutcome) {}

    fn close(&self, _: CloseReason) {}

    fn ended(&self) {}
}

/// A session with so many 4 KiB commands in flight.
pub(crate) struct Initiator {
    session: Rc<ItNexus>,
    completions: Rc<CompletionCounter>,
    lun: [u8; 8],
    write: bool,
    places: u64,
    random: SeededRandom,
    data: Segs,
    /// Space for the list of the next turn.
    spare: Vec<u32>,
}

impl Initiator {
    /// Logs in and receives the unit attention of the reset.
    pub fn login(
        engine: &Rc<Engine>,
        login: Login,
        lun: u8,
        (write, depth, places): (bool, u32, u64),
    ) -> Result<Initiator, Error> {
        let ear = Rc::new(CompletionCounter::default());
        let seed = u64::from(lun) + 1;
        let session = engine
            .login(login, ear.clone())
            .map_err(|refused| Error::new(Kind::System, refused.text))?;
        let mut lun_field = [0; 8];
        lun_field[1] = lun;
        let me = Initiator {
            session,
            completions: ear,
            lun: lun_field,
            write,
            places,
            random: SeededRandom::new(seed),
            data: Segs::new(),
            spare: Vec::new(),
        };
        me.send(0, &[0; 6], 0, 0);
        me.completions.ended.set(0);
        me.completions.failed.set(0);
        *me.completions.free.borrow_mut() = (1..=depth).collect();
        Ok(me)
    }

    fn send(&self, tag: u32, cdb: &[u8], expect_in: u32, expect_out: u32) -> Next {
        let attribute = TaskAttribute::Simple;
        let lun = self.lun;
        self.session.command(&Command { tag, lun, cdb, attribute, expect_in, expect_out })
    }

    /// Sends a command for each one that has ended. False when one was refused.
    pub fn turn(&mut self) -> bool {
        // Those that end at once are sent again in the next turn, so that a turn has an end.
        let mut free = self.completions.free.replace(std::mem::take(&mut self.spare));
        for tag in free.drain(..) {
            let lba = self.random.below(self.places) * u64::from(BLOCKS);
            let mut cdb = [0; 16];
            cdb[0] = if self.write { 0x8a } else { 0x88 };
            cdb[2..10].copy_from_slice(&lba.to_be_bytes());
            cdb[10..14].copy_from_slice(&BLOCKS.to_be_bytes());
            let (inward, outward) = if self.write { (0, BYTES) } else { (BYTES, 0) };
            if let Next::Data { wanted } = self.send(tag, &cdb, inward, outward) {
                let pool = self.session.engine().core().pool().clone();
                if !self.data.grow(&pool, wanted as usize) {
                    return false;
                }
                self.session.data(tag, &mut self.data);
            }
        }
        self.spare = free;
        self.completions.failed.get() == 0
    }

    /// Commands that have ended.
    pub fn ended(&self) -> u64 {
        self.completions.ended.get()
    }

    /// Logs out.
    pub fn close(&self) {
        self.session.close();
    }
}

/// The answer to the last command: status and bytes of data.
#[derive(Default)]
struct LastResponse(Cell<Option<(u8, usize)>>);

impl Transport for LastResponse {
    fn respond(&self, _: u32, response: Response<'_>) {
        self.0.set(Some((response.status, response.data.len())));
    }

    fn discard(&self, _: u32) {}

    fn task_management_done(&self, _: u32, _: TmOutcome) {}

    fn close(&self, _: CloseReason) {}

    fn ended(&self) {}
}

/// A session with one command at a time, of those that end at once.
pub(crate) struct Caller {
    session: Rc<ItNexus>,
    last_response: Rc<LastResponse>,
    tag: Cell<u32>,
}

impl Caller {
    /// Logs in to a target, named by driver and name.
    pub fn login(engine: &Rc<Engine>, to: (&str, &str), n: u32) -> Result<Caller, Error> {
        let target = engine.find_target(to.0, to.1);
        let target = target.ok_or(Error::new(Kind::System, "in process: no target"))?;
        let nowhere = SocketAddr::from(([127, 0, 0, 1], 0));
        let login = Login {
            target,
            initiator: format!("core{}-{n}", engine.core().id()),
            port_id: n.to_be_bytes().to_vec(),
            transport_id: Vec::new(),
            portal: nowhere.into(),
            from: nowhere.into(),
            reinstates: false,
            labels: Vec::new(),
        };
        let response = Rc::new(LastResponse::default());
        let session = engine.login(login, response.clone());
        let session = session.map_err(|refused| Error::new(Kind::System, refused.text))?;
        Ok(Caller { session, last_response: response, tag: Cell::new(0) })
    }

    /// Sends a command: status and bytes of data, or `None` when it has not ended yet.
    pub fn ask(&self, lun: u32, cdb: &[u8], expect_in: u32) -> Option<(u8, usize)> {
        let lun = wire::scsi::Lun::new(lun)?.encode();
        let tag = self.tag.get().wrapping_add(1);
        self.tag.set(tag);
        self.last_response.0.set(None);
        let attribute = TaskAttribute::Simple;
        self.session.command(&Command { tag, lun, cdb, attribute, expect_in, expect_out: 0 });
        self.last_response.0.take()
    }

    /// Logs out.
    pub fn close(&self) {
        self.session.close();
    }
}
