//! Users that read and write the top provider.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use bio::{Errno, Flags, Op};
use geom::{Core, Edge};
use reactor::SeededRandom;

use super::disk::SECTOR;
use super::model::{Model, sector};
use super::rich::LESS;

const MOST: u64 = 12;

/// Shared by the users and the test.
pub struct Crowd {
    pub model: Rc<RefCell<Model>>,
    pub running: Cell<u32>,
    pub fault: RefCell<Option<String>>,
    pub ended: Cell<u64>,
    pub failed: Cell<u64>,
    /// Deleted sectors read as zeroes.
    pub deletes: Cell<bool>,
}

impl Crowd {
    /// A crowd without users.
    pub fn new(model: Rc<RefCell<Model>>, deletes: bool) -> Rc<Crowd> {
        Rc::new(Crowd {
            model,
            running: Cell::new(0),
            fault: RefCell::default(),
            ended: Cell::new(0),
            failed: Cell::new(0),
            deletes: Cell::new(deletes),
        })
    }

    pub fn start(self: &Rc<Self>, core: &Rc<Core>, edge: Edge, seed: u64, ops: u64) {
        self.running.set(self.running.get() + 1);
        let (crowd, own) = (self.clone(), core.clone());
        core.reactor().spawn("user", async move {
            let mut random = SeededRandom::new(seed);
            for _ in 0..ops {
                crowd.act(&own, edge, &mut random).await;
                crowd.ended.set(crowd.ended.get() + 1);
                match random.below(6) {
                    0 => own.reactor().sleep(random.below(3_000_000)).await,
                    1 => own.reactor().yield_now().await,
                    _ => {}
                }
            }
            crowd.running.set(crowd.running.get() - 1);
        });
    }

    /// A user that only reads, mostly the last sectors.
    pub fn start_reading(self: &Rc<Self>, core: &Rc<Core>, edge: Edge, seed: u64) {
        self.running.set(self.running.get() + 1);
        let (crowd, own) = (self.clone(), core.clone());
        core.reactor().spawn("reader", async move {
            let mut random = SeededRandom::new(seed);
            for _ in 0..2 + random.below(20) {
                let sectors = crowd.model.borrow().sectors();
                let count = 1 + random.below(MOST.min(sectors));
                let last = if random.chance(700) { count } else { sectors };
                let first = sectors - count - random.below(last.min(sectors - count) + 1);
                // The mirror becomes smaller: it may end within the range of the read, or before
                // it.
                let least = u64::from(first + LESS < sectors);
                crowd.read_up_to(&own, edge, (first, count), least).await;
                crowd.ended.set(crowd.ended.get() + 1);
                own.reactor().sleep(random.below(400_000)).await;
            }
            crowd.running.set(crowd.running.get() - 1);
        });
    }

    fn complain(&self, what: String) {
        self.fault.borrow_mut().get_or_insert(what);
    }

    async fn act(&self, core: &Rc<Core>, edge: Edge, random: &mut SeededRandom) {
        let sectors = self.model.borrow().sectors();
        let count = 1 + random.below(MOST);
        // Half of it in one corner, so that users meet.
        let within = if random.chance(500) { sectors } else { sectors.min(24) };
        let first = random.below(within - count.min(within - 1));
        let count = count.min(sectors - first);
        match random.below(100) {
            0..50 => self.write(core, edge, first, count, Op::Write, random.chance(100)).await,
            53..55 if self.deletes.get() => self.delete(core, edge, first, count).await,
            50..53 if self.deletes.get() => {
                self.write(core, edge, first, count, Op::Delete, false).await
            }
            50..60 => self.write(core, edge, first, count, Op::WriteZeroes, false).await,
            60..90 => self.read(core, edge, first, count).await,
            _ => self.flush(core, edge).await,
        }
    }

    pub async fn write(
        &self,
        core: &Rc<Core>,
        edge: Edge,
        first: u64,
        count: u64,
        op: Op,
        durable: bool,
    ) {
        let begun = self.model.borrow_mut().write(first, count, op != Op::Write);
        let Some(mark) = begun else { return };
        let mut data = bio::Segs::new();
        if op == Op::Write {
            data = core.buffers((count * SECTOR) as usize).await.expect("memory");
            for number in first..first + count {
                let at = ((number - first) * SECTOR) as usize;
                data.copy_from(at, &sector(number, mark.version));
            }
        }
        let done = core
            .io(edge, |bio| {
                bio.op = op;
                bio.flags = if durable { Flags::FUA } else { Flags::NONE };
                bio.offset = first * SECTOR;
                bio.length = count * SECTOR;
                bio.data = data;
            })
            .await;
        self.note(done.status);
        self.model.borrow_mut().wrote(&mark, done.status.is_ok(), durable);
    }

    /// A DELETE of several ranges, with sectors between them that may not be deleted.
    async fn delete(&self, core: &Rc<Core>, edge: Edge, first: u64, count: u64) {
        let sectors = self.model.borrow().sectors();
        let (mut at, mut marks, mut ranges) = (first, Vec::new(), Vec::new());
        for nth in 0..count {
            // One to three sectors, with as many or more between them; the last lie far away.
            let (len, gap) =
                (1 + (first + nth) % 3, 1 + (first + 3 * nth) % if nth % 4 == 3 { 97 } else { 4 });
            if at + len > sectors {
                break;
            }
            if let Some(mark) = self.model.borrow_mut().write(at, len, true) {
                marks.push(mark);
                ranges.push(at * SECTOR..(at + len) * SECTOR);
            }
            at += len + gap;
        }
        if marks.is_empty() {
            return;
        }
        let done = core.io(edge, |bio| assert!(bio.delete_ranges(&ranges), "in order")).await;
        self.note(done.status);
        let mut model = self.model.borrow_mut();
        marks.iter().for_each(|mark| model.wrote(mark, done.status.is_ok(), false));
    }

    fn note(&self, status: Result<(), Errno>) {
        if status.is_err() {
            self.failed.set(self.failed.get() + 1);
        }
    }

    pub async fn read(&self, core: &Rc<Core>, edge: Edge, first: u64, count: u64) {
        self.read_up_to(core, edge, (first, count), count).await;
    }

    /// Reads sectors, of which so many must be there.
    async fn read_up_to(
        &self,
        core: &Rc<Core>,
        edge: Edge,
        (first, count): (u64, u64),
        least: u64,
    ) {
        let mark = self.model.borrow_mut().look(first, count);
        let read = core.read(edge, first * SECTOR, (count * SECTOR) as usize).await;
        self.note(read.as_ref().map(|_| ()).map_err(|e| *e));
        match read {
            Ok(bytes) if (bytes.len() as u64) < least * SECTOR => {
                self.complain(format!("a short read: {} of {count} sectors", bytes.len()));
            }
            // It was made smaller meanwhile: nothing is promised of the data beyond the end.
            Ok(_) if first + count > self.model.borrow().sectors() => {}
            Ok(bytes) => {
                if let Err(what) = self.model.borrow_mut().read(&mark, &bytes) {
                    self.complain(what);
                }
            }
            Err(_) => {}
        }
        self.model.borrow_mut().looked();
    }

    pub async fn flush(&self, core: &Rc<Core>, edge: Edge) {
        let sectors = self.model.borrow().sectors();
        let mark = self.model.borrow().mark(0, sectors);
        let done = core.flush(edge).await;
        self.note(done);
        if done.is_ok() {
            self.model.borrow_mut().flushed(&mark);
        }
    }
}
