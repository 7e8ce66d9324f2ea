//! Verbs that wait for a full trim, while the queue is removed, inserted, changed and ended, its
//! users leave, the disk below gets another size or name or is lost. Such a wait always ends, even
//! while users continue to delete.

use std::cell::Cell;
use std::rc::Rc;

use bio::{Bio, Errno, Op};
use geom::{Access, ConsumerId, Core, Edge};
use reactor::SeededRandom;
use serde_json::{Value, json};
use testkit::Seeds;

use super::MS;
use super::late::{Deletes, LateDisk, SECTOR};
use crate::sim::life::Life;

const SECTORS: u64 = 512;
const GRANULE: u64 = 4096;
const SEEDS: u64 = 40;
/// After so much time without a change a wait has ended: a minute for each command that a device
/// answers late, in a hundredth of the time, and three tries.
const LIMIT_NS: u64 = 6 * 3_600_000 * MS;

#[derive(Default, Debug)]
struct Totals {
    ended: u64,
    gone: u64,
    changes: u64,
}

async fn user(core: Rc<Core>, edge: Edge, seed: u64, stop: Rc<Cell<bool>>, running: Rc<Cell<u32>>) {
    let mut random = SeededRandom::new(seed);
    while !stop.get() {
        let first = random.below(SECTORS);
        let count = 1 + random.below((SECTORS - first).min(64));
        let (at, len) = (first * SECTOR, count * SECTOR);
        // How it ends is the user's own affair: the disk may be missing.
        if random.below(3) == 0 {
            let _ = core.write(edge, at, &vec![7; len as usize]).await;
        } else {
            let ask = |b: &mut Bio| (b.op, b.offset, b.length) = (Op::Delete, at, len);
            let _ = core.io(edge, ask).await;
        }
        core.reactor().sleep(1 + random.below(50) * MS).await;
    }
    running.set(running.get() - 1);
}

/// One scene: a queue `q` over a disk whose name changes.
struct Scene {
    life: Life,
    disk: LateDisk,
    name: String,
    users: Vec<ConsumerId>,
    stop: Rc<Cell<bool>>,
    running: Rc<Cell<u32>>,
}

impl Scene {
    fn new(seed: u64, random: &mut SeededRandom) -> Scene {
        let all = [
            Deletes::AnyHow,
            Deletes::Take(random.below(3_000) * MS),
            Deletes::Fail,
            Deletes::NoAnswer,
            Deletes::Unknown,
        ];
        let disk = LateDisk::of_ranges(
            SECTORS * SECTOR,
            seed,
            all[random.below(all.len() as u64) as usize],
            [1, 4][(seed % 2) as usize],
        );
        let mut life = Life::with(random.next_u64(), 2, classes::all());
        disk.attach(&mut life.control.topology, "d0", GRANULE);
        life.settle();
        let (stop, running) = (Rc::new(Cell::new(false)), Rc::new(Cell::new(0)));
        let name = "d0".to_owned();
        Scene { life, disk, name, users: Vec::new(), stop, running }
    }

    fn make(&mut self, random: &mut SeededRandom) {
        let params = json!({
            "as": "q",
            "share": 1 + random.below(100),
            "short": random.below(3) * 4096,
            "batch": 1 + random.below(8),
            "quiet_ms": random.below(2_000),
            "expire_ms": 200 + random.below(5_000),
        });
        // Refused while the disk is open, or missing.
        let _ = self.life.verb("trim", "create", &self.name.clone(), params);
    }

    fn use_it(&mut self, random: &mut SeededRandom) {
        let Some((consumer, edge)) = self.life.open("q", Access::WRITE) else { return };
        self.users.push(consumer);
        let core = self.life.cores[random.below(2) as usize].clone();
        let (stop, running) = (self.stop.clone(), self.running.clone());
        running.set(running.get() + 1);
        let one = user(core.clone(), edge, random.next_u64(), stop, running);
        core.reactor().spawn("user", one);
    }

    /// Users finish their requests, and close.
    fn leave(&mut self) {
        self.stop.set(true);
        let running = self.running.clone();
        assert!(self.life.until(100_000, move |_| running.get() == 0), "users end");
        self.stop.set(false);
        for consumer in std::mem::take(&mut self.users) {
            self.life.close(consumer);
        }
    }

    fn change(&mut self, random: &mut SeededRandom) {
        let mut verb = |verb: &str, with: Value| drop(self.life.verb("trim", verb, "q", with));
        match random.below(16) {
            0 => verb("destroy", json!({})),
            1 => verb("now", json!({ "end": true })),
            2 => verb("now", json!({})),
            3 | 4 => verb("configure", json!({ "share": 1 + random.below(100) })),
            5 => verb("configure", json!({ "quiet_ms": random.below(60_000) })),
            6 => self.leave(),
            7 | 8 => self.use_it(random),
            9 | 10 => {
                let to = format!("d{}", random.below(100));
                let from = self.name.clone();
                let renamed = self.life.control.call(|t| t.rename("test", &from, &to));
                if renamed.is_ok() {
                    self.name = to;
                }
            }
            11 => {
                let all = [Deletes::AnyHow, Deletes::Fail, Deletes::NoAnswer, Deletes::Take(MS)];
                self.disk.lock().deletes = all[random.below(4) as usize];
            }
            12 if random.below(6) == 0 => {
                let name = self.name.clone();
                self.life.pull_path(&name);
            }
            13 => self.make(random),
            14 => {
                let bytes = (1 + random.below(SECTORS / 8)) * 8 * SECTOR;
                let name = self.name.clone();
                self.life.resized(&name, bytes);
            }
            _ => {}
        }
    }
}

fn run_seed(seed: u64, tally: &mut Totals) {
    let mut random = SeededRandom::new(seed);
    let mut scene = Scene::new(seed, &mut random);
    scene.make(&mut random);
    scene.use_it(&mut random);
    for _ in 0..4 {
        let most = 1 + random.below(20_000) * MS;
        scene.life.pass(most);
        let mut params = json!({ "wait": true });
        let mut changes = random.below(30);
        let mut until = None;
        loop {
            let answer = match scene.life.verb("trim", "now", "q", params.clone()) {
                Ok(answer) => answer,
                Err(e) => {
                    // It was taken out, or removed with its disk.
                    assert!(matches!(e.kind, Errno::NoEnt | Errno::NxIo), "seed {seed}: {e}");
                    tally.gone += 1;
                    break;
                }
            };
            let Some(unfinished) = answer.get("unfinished") else {
                tally.ended += 1;
                break;
            };
            params = unfinished["again"].clone();
            params.as_object_mut().expect("params").remove("name");
            if changes > 0 {
                changes -= 1;
                tally.changes += 1;
                scene.change(&mut random);
                continue;
            }
            // Nothing changes any more. Users of half of the scenes continue deleting.
            if until.is_none() && seed.is_multiple_of(2) {
                scene.leave();
            }
            let now = scene.life.control.now_ns();
            let until = *until.get_or_insert(now + LIMIT_NS);
            assert!(now < until, "seed {seed}: it does not end: {answer}");
        }
        scene.make(&mut random);
        scene.use_it(&mut random);
    }
    scene.leave();
}

#[test]
fn a_wait_for_a_full_trim_always_ends() {
    let (mut tally, seeds) = (Totals::default(), Seeds::of(SEEDS));
    seeds.each(|seed| run_seed(seed, &mut tally));
    eprintln!("{tally:?}");
    let all = tally.ended > 0 && tally.gone > 0 && tally.changes > 0;
    assert!(all || !seeds.are_enough(), "{tally:?}");
}

/// The last range is beyond the new end: nothing is left to be sent.
#[test]
fn a_wait_ends_when_the_medium_becomes_smaller() {
    let slow = json!({ "quiet_ms": 60_000, "share": 1 });
    let mut s = super::Scene::new(Deletes::Take(100 * MS), slow);
    s.delete(0, 4096);
    s.delete(512 << 10, 8192);
    let first = s.life.verb("trim", "now", "d0.trim", json!({ "wait": true })).expect("now");
    let mut again = first["unfinished"]["again"].clone();
    again.as_object_mut().expect("params").remove("name");
    s.life.resized("d0", 256 << 10);
    s.life.pass(60_000 * MS);
    let last = s.life.verb("trim", "now", "d0.trim", again).expect("again");
    assert!(last.get("unfinished").is_none(), "{last}");
}
