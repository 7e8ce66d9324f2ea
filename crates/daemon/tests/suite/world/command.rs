//! Choice and form of the next command of an initiator.

use std::rc::Rc;

use testkit::iscsi::Conn;
use wire::iscsi::{ScsiCommand, TAG_NONE};
use wire::scsi::{Lun, UnmapDescriptor, UnmapList};

use crate::world::agent::{Agent, Function, Operation, Task};
use crate::world::counters::{Bid, COUNTERS, bytes_of};
use crate::world::model::{BlockRange, UNIT, stamps};
use crate::world::reserve;
use crate::world::shared::{Rights, Unit};
use crate::world::unit_attentions::{MODE_CHANGED, Source};

/// Most blocks of a unit in one command.
const BLOCKS_MAX: u64 = 96;

fn cdb_of(what: Operation, lba: u64, blocks: u32, expect_in: usize, out: usize) -> [u8; 16] {
    let mut cdb = [0; 16];
    let ten = lba.is_multiple_of(2);
    let op = |ten_op: u8, sixteen_op: u8| if ten { ten_op } else { sixteen_op };
    let mut range = |opcode: u8, flags: u8| {
        (cdb[0], cdb[1]) = (opcode, flags);
        if opcode < 0x80 {
            cdb[2..6].copy_from_slice(&(lba as u32).to_be_bytes());
            cdb[7..9].copy_from_slice(&(blocks as u16).to_be_bytes());
        } else {
            cdb[2..10].copy_from_slice(&lba.to_be_bytes());
            cdb[10..14].copy_from_slice(&blocks.to_be_bytes());
        }
    };
    match what {
        Operation::Read | Operation::Look => range(op(0x28, 0x88), 0),
        Operation::Count { fua } => {
            (cdb[0], cdb[1], cdb[13]) = (0x89, u8::from(fua) << 3, 1);
            cdb[2..10].copy_from_slice(&lba.to_be_bytes());
        }
        Operation::Write { fua } => range(op(0x2a, 0x8a), u8::from(fua) << 3),
        Operation::Zero => range(0x93, 0),
        Operation::Sync => range(op(0x35, 0x91), 0),
        Operation::Unmap => {
            cdb[0] = 0x42;
            cdb[7..9].copy_from_slice(&(out as u16).to_be_bytes());
        }
        Operation::Ready => {}
        Operation::Serial => cdb[..6].copy_from_slice(&[0x12, 1, 0x80, 0, expect_in as u8, 0]),
        Operation::Luns => {
            cdb[0] = 0xa0;
            cdb[6..10].copy_from_slice(&(expect_in as u32).to_be_bytes());
        }
        Operation::Capacity => {
            (cdb[0], cdb[1]) = (0x9e, 0x10);
            cdb[10..14].copy_from_slice(&(expect_in as u32).to_be_bytes());
        }
        Operation::Cache { .. } => cdb[..6].copy_from_slice(&[0x15, 0x10, 0, 0, out as u8, 0]),
        Operation::Rights(act) => return reserve::cdb(act, expect_in, out, ten),
    }
    cdb
}

/// MODE SELECT(6) parameters: the caching page with WCE as wanted.
fn caching_page(on: bool) -> Vec<u8> {
    let mut list = vec![0; 4 + 20];
    (list[4], list[5], list[6]) = (0x08, 0x12, u8::from(on) << 2);
    list
}

/// Both halves of COMPARE AND WRITE.
fn increment(bid: &Option<Bid>, id: u64, place: BlockRange) -> Vec<u8> {
    let expects = bid.as_ref().map_or((0, 0), |b| b.expects);
    let mut out = bytes_of(expects, place);
    out.extend(bytes_of((expects.0 + 1, id), place));
    out
}

impl Agent {
    /// A unit, more often one that this group sees.
    pub fn some_unit(&self) -> Option<Rc<Unit>> {
        let units = self.shared.units.borrow();
        let seen: Vec<&Rc<Unit>> = units
            .iter()
            .filter(|u| u.exported.get())
            .filter(|u| u.grant(self.group).now != Rights::None || self.chance(30))
            .collect();
        if seen.is_empty() {
            return None;
        }
        let at = self.below(seen.len() as u64) as usize;
        Some(seen[at].clone())
    }

    pub fn some_command(&self, conn: &Rc<Conn>) {
        if self.tasks.borrow().len() >= self.depth || !conn.may_send() {
            return;
        }
        let Some(unit) = self.some_unit() else { return };
        let reserving = self.shared.reserving.get();
        if reserving > 0 && self.below(1000) < reserving {
            return self.some_rights(conn, &unit);
        }
        let counting = self.shared.counting.get();
        if counting > 0 && self.below(1000) < counting {
            let fua = self.chance(300);
            return self.start(conn, &unit, Operation::Count { fua });
        }
        let what = match self.below(100) {
            0..38 => Operation::Read,
            38..76 => Operation::Write { fua: self.chance(200) },
            76..79 => Operation::Zero,
            79..82 => Operation::Unmap,
            82..91 if self.shared.forcing.get() => Operation::Ready,
            82..91 => Operation::Sync,
            91..94 => Operation::Ready,
            94..96 => Operation::Serial,
            96..97 => Operation::Luns,
            97..98 => Operation::Capacity,
            _ if self.chance(100) => Operation::Cache { on: self.chance(500) },
            _ => Operation::Ready,
        };
        self.start(conn, &unit, what);
    }

    /// A range inside of the unit: often the same few blocks.
    fn some_range(&self, unit: &Unit) -> BlockRange {
        let (unit_place, per) = (unit.place.get(), unit.per);
        // Behind the counters.
        let (first, count) = (unit_place.first + COUNTERS * per, unit_place.count - COUNTERS * per);
        let range = BlockRange { first, count, ..unit_place };
        let blocks = (range.count / per) as u64;
        let at = if self.chance(500) { self.below(blocks.min(40)) } else { self.below(blocks) };
        let most = if self.chance(150) { BLOCKS_MAX } else { 12 };
        let n = (1 + self.below(self.shared.bound_blocks(most, per))).min(blocks - at);
        BlockRange { first: range.first + at as usize * per, count: n as usize * per, ..range }
    }

    fn some_counter(&self, unit: &Unit, what: Operation) -> (Operation, BlockRange, Bid) {
        let first = unit.place.get().first + self.below(COUNTERS as u64) as usize * unit.per;
        let place = BlockRange { first, count: unit.per, ..unit.place.get() };
        let (bid, known) = self.shared.model.borrow_mut().counters.bid(place);
        (if known && self.chance(850) { what } else { Operation::Look }, place, bid)
    }

    pub fn start(&self, conn: &Rc<Conn>, unit: &Rc<Unit>, mut what: Operation) {
        let range = unit.place.get();
        let mut bid = None;
        let place = match what {
            Operation::Count { .. } => {
                let (does, place, at) = self.some_counter(unit, what);
                (what, bid) = (does, Some(at));
                place
            }
            Operation::Read | Operation::Write { .. } | Operation::Zero | Operation::Unmap => {
                self.some_range(unit)
            }
            _ => range,
        };
        let grant = unit.grant(self.group);
        let mut model = self.shared.model.borrow_mut();
        let issue = model.tick();
        let stamped = matches!(what, Operation::Write { .. } | Operation::Count { .. });
        let id = if stamped { model.new_id() } else { 0 };
        if let (Operation::Count { .. }, Some(bid)) = (what, &bid) {
            model.counters.begin(place, bid, id);
        }
        let granted = grant.may_be(Rights::Write);
        if what.writes() && granted {
            model.begin(place, id, issue);
        }
        drop(model);
        let lba = ((place.first - range.first) / unit.per) as u64;
        let blocks = (place.count / unit.per) as u32;
        let out = match what {
            Operation::Write { .. } => stamps(id, place),
            Operation::Zero => vec![0; unit.per * UNIT],
            Operation::Count { .. } => increment(&bid, id, place),
            Operation::Unmap => UnmapList::encode(&[UnmapDescriptor { lba, blocks }]),
            Operation::Cache { on } => caching_page(on),
            Operation::Rights(act) => self.list_of(act),
            _ => Vec::new(),
        };
        let expect_in = match what {
            Operation::Read | Operation::Look => place.count * UNIT,
            Operation::Serial => 64,
            Operation::Luns => 4096,
            Operation::Capacity => 32,
            Operation::Rights(act) => reserve::reply_len(act),
            _ => 0,
        };
        let unsettled = unit.mode_changes.get() > 0 || !unit.cache_off.get();
        let was_off = unit.cache_off.get() && unit.mode_changes.get() == 0;
        let epoch = match what {
            Operation::Cache { .. } => {
                let alone = unit.mode_changes.get() == 0;
                unit.mode_changes.set(unit.mode_changes.get() + 1);
                unit.mode_moved(false);
                let (lun, code, group) = (unit.lun, MODE_CHANGED, None);
                let source = Source { number: issue, lun, code, group, except: Some(self.index) };
                self.shared.source_begins(source);
                alone.then(|| unit.mode_epoch.get())
            }
            _ if unsettled => None,
            _ => Some(unit.mode_epoch.get()),
        };
        let (lba, blocks) = if what == Operation::Sync { (0, 0) } else { (lba, blocks) };
        let cdb = cdb_of(what, lba, blocks, expect_in, out.len());
        let tag = self.next_tag();
        let attribute = self.some_attribute();
        self.shared.log(|| {
            let (n, who) = (blocks, &self.name);
            format!(
                "{who}: {tag} {what:?} lun {} lba {lba}+{n} write {id} at {issue} {attribute:?}",
                unit.lun
            )
        });
        let task = Task {
            operation: what,
            lun: unit.lun,
            place,
            id,
            issue,
            at_ns: self.reactor.now(),
            granted,
            unsure: grant.next.is_some(),
            mode_epoch: epoch,
            was_off,
            attribute,
            after: self.writes_before(unit.lun, issue, attribute),
            bid,
            expect_in,
            got: Vec::new(),
            out,
            lost: self.is_resetting(unit.lun) || unit.book.borrow().aborts(),
            aborting: false,
        };
        self.submit(conn, tag, task, cdb);
        if let Operation::Rights(act) = what {
            self.rights_begin(unit, issue, act);
        }
    }

    /// A reset of the unit is in progress.
    fn is_resetting(&self, lun: usize) -> bool {
        let agents = self.shared.agents.borrow();
        agents.iter().any(|a| {
            let resets = |f: &Function| f.lun == lun && f.of == TAG_NONE;
            a.functions.borrow().values().any(resets)
                || a.orphan_functions.borrow().iter().any(resets)
        })
    }

    fn submit(&self, conn: &Rc<Conn>, tag: u32, task: Task, cdb: [u8; 16]) {
        let (p, len) = (conn.params, task.out.len());
        let unasked = (p.first_burst as usize).min(len);
        let piece = unasked.min(p.send_data_len_max as usize);
        let first = match p.immediate_data && self.chance(700) {
            true => piece,
            false => 0,
        };
        let solicited = p.initial_r2t || first == unasked || self.chance(300);
        let header = ScsiCommand {
            last: solicited,
            read: task.expect_in > 0,
            write: len > 0,
            attribute: task.attribute,
            lun: Lun::new(task.lun as u32).expect("small").encode(),
            task_tag: tag,
            transfer_len: task.expect_in.max(len) as u32,
            cmd_sn: conn.take_cmd_sn(),
            exp_stat_sn: conn.exp_stat_sn.get(),
            cdb,
            data_len: first as u32,
            ..ScsiCommand::default()
        };
        conn.send(&header, &task.out[..first]);
        self.tasks.borrow_mut().insert(tag, task);
        if !solicited {
            self.send_data(conn, tag, TAG_NONE, first, unasked);
        }
    }
}
