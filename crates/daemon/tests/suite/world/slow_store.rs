//! The state store of the simulated daemon: one for a whole seed, over all restarts. Saves take
//! their time, some fail, and those under way when the daemon dies may be stored or not.
//!
//! Invariants
//!  V1  A save that was acknowledged is found by the next load (or a later one is).
//!  V2  A save that failed changed nothing.
//!  V3  After a crash a save that was under way is stored wholly or not at all.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};

use bio::Errno;
use engine::state_store::{RecordKind, SaveCompletion, StateStore};
use geom::Error;
use reactor::{Reactor, SeededRandom};

use crate::world::sim::MS;
use crate::world::stack::Outside;

type Key = (String, RecordKind);

#[derive(Default)]
struct Inner {
    records: BTreeMap<Key, Vec<u8>>,
    under_way: VecDeque<(Key, Vec<u8>, SaveCompletion)>,
    failures: u64,
}

/// Records by serial number and kind.
#[derive(Default)]
pub struct SlowStore(Mutex<Inner>);

impl SlowStore {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().expect("one thread")
    }

    /// Carries saves out, on a reactor of its own.
    pub fn start(self: &Arc<Self>, outside: &Outside, seed: u64) {
        let reactor = Reactor::simulated(&outside.world, "store");
        outside.reactors.borrow_mut().push(reactor.clone());
        let (me, own) = (self.clone(), reactor.clone());
        let mut random = SeededRandom::new(seed);
        let slow_ms = [1, 5, 40][random.below(3) as usize];
        let failing = [0, 0, 100][random.below(3) as usize];
        drop(reactor.spawn("store", async move {
            loop {
                own.sleep((1 + random.below(slow_ms)) * MS).await;
                me.complete_next(random.chance(failing));
            }
        }));
    }

    fn complete_next(&self, fails: bool) {
        let mut inner = self.inner();
        let Some((key, bytes, done)) = inner.under_way.pop_front() else { return };
        let end = match fails {
            true => Err(Errno::Io),
            false => Ok(()),
        };
        match end {
            Ok(()) => drop(inner.records.insert(key, bytes)),
            Err(_) => inner.failures += 1,
        }
        drop(inner);
        done.complete(end);
    }

    /// The daemon is dead: saves in flight are stored, up to some save, or lost (V3).
    pub fn crash(&self, random: &mut SeededRandom) {
        let under_way = std::mem::take(&mut self.inner().under_way);
        let stored = random.below(under_way.len() as u64 + 1) as usize;
        for (key, bytes, _) in under_way.into_iter().take(stored) {
            self.inner().records.insert(key, bytes);
        }
    }

    /// Some save failed: errors are no mistakes.
    pub fn has_failed(&self) -> bool {
        self.inner().failures > 0
    }
}

impl StateStore for SlowStore {
    fn save(&self, serial: &str, kind: RecordKind, bytes: Vec<u8>, done: SaveCompletion) {
        let key = (serial.to_string(), kind);
        // The control thread waits for the numbers of ports, so no time passes meanwhile.
        if kind == RecordKind::Ports {
            self.inner().records.insert(key, bytes);
            return done.complete(Ok(()));
        }
        self.inner().under_way.push_back((key, bytes, done));
    }

    fn load(&self, serial: &str, kind: RecordKind) -> Result<Option<Vec<u8>>, Error> {
        Ok(self.inner().records.get(&(serial.to_string(), kind)).cloned())
    }
}
