//! Disks of kind `nbd`: servers that others wrote, and a simulated one.

mod other_servers;
mod remote;
mod sim;

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use bio::Op;
use geom::{Core, Edge};
use reactor::SeededRandom;

use crate::world::{World, range};

pub const MIB: u64 = 1 << 20;

#[derive(Default)]
pub struct Progress {
    users: u64,
    pub rounds: Cell<u64>,
    pub ended: Cell<u64>,
    pub stop: Cell<bool>,
    pub failed: RefCell<Vec<String>>,
}

/// Users of a load.
#[derive(Clone, Copy)]
pub struct Shape {
    pub users: u64,
    /// Bytes of each one's part.
    pub part: u64,
    /// Requests of each one.
    pub rounds: u64,
}

/// A user of its own part of the disk that compares read data with the data that it wrote.
async fn user(
    core: Rc<Core>,
    edge: Edge,
    part: std::ops::Range<u64>,
    rounds: u64,
    p: Rc<Progress>,
) {
    let mut random = SeededRandom::new(core.reactor().random());
    let mut left = rounds;
    let sectors = (part.end - part.start) / 512;
    let mut model = vec![0u8; (sectors * 512) as usize];
    let mut is_known = false;
    while !p.stop.get() && left > 0 {
        left -= 1;
        let at = if is_known { random.below(sectors) } else { 0 };
        let most = if is_known { 256.min(sectors - at) } else { sectors };
        let count = if is_known { 1 + random.below(most) } else { sectors };
        let (from, len) = ((at * 512) as usize, (count * 512) as usize);
        let op = if is_known { random.below(10) } else { 0 };
        let data = core.buffers(if op < 8 { len } else { 0 }).await.unwrap();
        if op < 4 {
            let byte = random.below(255) as u8 + 1;
            let bytes: Vec<u8> = (0..len).map(|i| byte ^ (i / 512) as u8).collect();
            data.copy_from(0, &bytes);
            model[from..from + len].copy_from_slice(&bytes);
        }
        let which = [Op::Write, Op::Read, Op::WriteZeroes, Op::Flush][match op {
            0..4 => 0,
            4..8 => 1,
            8 => 2,
            _ => 3,
        }];
        if which == Op::WriteZeroes {
            model[from..from + len].fill(0);
        }
        let (offset, length) = match which {
            Op::Flush => (0, 0),
            _ => (part.start + from as u64, len as u64),
        };
        let done = core.io(edge, |bio| range(bio, which, offset, length, data)).await;
        if done.status.is_err() {
            p.failed.borrow_mut().push(format!("{which:?} at {offset}: {:?}", done.status));
            break;
        }
        if which == Op::Read && done.data.to_vec() != model[from..from + len] {
            p.failed.borrow_mut().push(format!("wrong data at {offset}, {length} bytes"));
            break;
        }
        is_known = true;
        p.rounds.set(p.rounds.get() + 1);
    }
    p.ended.set(p.ended.get() + 1);
}

/// Users at work, on the cores in turn.
pub fn load(w: &mut World, edge: Edge, shape: Shape) -> Rc<Progress> {
    let p = Rc::new(Progress { users: shape.users, ..Progress::default() });
    for (n, core) in (0..shape.users).zip(w.cores.iter().cycle()) {
        let part = n * shape.part..(n + 1) * shape.part;
        let user = user(core.clone(), edge, part, shape.rounds, p.clone());
        drop(core.reactor().spawn("user", user));
    }
    p
}

/// So many requests more end well.
pub fn wait_for_progress(w: &mut World, p: &Progress, rounds: u64) {
    let end = p.rounds.get() + rounds;
    w.until("the load goes on", |_| p.rounds.get() >= end || !p.failed.borrow().is_empty());
    assert_eq!(*p.failed.borrow(), Vec::<String>::new());
}

pub fn ends(w: &mut World, p: &Progress) {
    p.stop.set(true);
    w.until("the end of the load", |_| p.ended.get() == p.users);
    assert_eq!(*p.failed.borrow(), Vec::<String>::new());
}
