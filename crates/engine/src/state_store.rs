//! State of logical units that survives a restart of the daemon.
//!
//! A [`StateStore`] is given by the daemon ([`crate::Registry::set_state_store`]); without one
//! nothing is kept, and commands that promise durability end with an error.
//!
//! Invariants
//!  W1  A save ends once, with success only when the bytes are on stable storage. A later load
//!      returns these bytes or those of a later save.
//!  W2  A save that fails leaves what an earlier one stored.
//!  W3  A dropped ticket counts as a failed save, so no waiter waits for ever.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use bio::Errno;
use bio::sync::{Mutex, MutexGuard};
use geom::Error;

/// Most bytes of one record; a longer one is refused.
pub const RECORD_MAX: usize = 16 << 20;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum RecordKind {
    /// Persistent reservations with APTPL.
    Reservations,
    ModePages,
    /// Running operation on the whole medium (FORMAT UNIT, SANITIZE).
    Medium,
    /// Identifying information that initiators gave the unit.
    Identifying,
    /// Relative identifiers of target ports; of no unit.
    Ports,
    /// Manual changes by the operator; belongs to no unit.
    Overrides,
    /// Where a unit keeps its protection information.
    Protection,
    /// Config strings and mask lists of an AoE target; of no unit.
    Aoe,
    /// Which disks have the names that the configuration calls; of no unit.
    Names,
    /// Previous end of each provider that is identified by data at its end; belongs to no unit.
    LastSizes,
    /// Which unit initiators know behind each of their LUNs; of no unit.
    KnownUnits,
    /// File systems that were served; of no unit.
    ServedFileSystems,
    /// Our own name as an initiator; of no unit.
    Initiator,
    /// Identities of disks, by where they are; of no unit.
    DiskIdentities,
    /// How geoms are put together that no record on a disk describes; of no unit.
    GeomLayouts,
}

impl RecordKind {
    pub const ALL: [RecordKind; 15] = [
        RecordKind::Reservations,
        RecordKind::ModePages,
        RecordKind::Medium,
        RecordKind::Identifying,
        RecordKind::Ports,
        RecordKind::Overrides,
        RecordKind::Protection,
        RecordKind::Aoe,
        RecordKind::Names,
        RecordKind::LastSizes,
        RecordKind::KnownUnits,
        RecordKind::ServedFileSystems,
        RecordKind::Initiator,
        RecordKind::DiskIdentities,
        RecordKind::GeomLayouts,
    ];

    /// Name in file names and messages.
    pub const fn name(self) -> &'static str {
        match self {
            RecordKind::Reservations => "reservations",
            RecordKind::ModePages => "mode-pages",
            RecordKind::Medium => "medium",
            RecordKind::Identifying => "identifying",
            RecordKind::Ports => "ports",
            RecordKind::Overrides => "by-hand",
            RecordKind::Protection => "protection",
            RecordKind::Aoe => "aoe",
            RecordKind::Names => "names",
            RecordKind::LastSizes => "ends",
            RecordKind::KnownUnits => "known",
            RecordKind::ServedFileSystems => "made",
            RecordKind::Initiator => "initiator",
            RecordKind::DiskIdentities => "identities",
            RecordKind::GeomLayouts => "wholes",
        }
    }
}

/// Stable storage for small records, by the serial number of a unit.
pub trait StateStore: Send + Sync {
    /// Begins to store `bytes` in place of the earlier record; `done` receives the result, on any
    /// thread. Called on a core: it must not wait. Saves of one record end in the order in which
    /// they began.
    fn save(&self, serial: &str, kind: RecordKind, bytes: Vec<u8>, done: SaveCompletion);

    /// False when nothing is ever kept: promises of durability are refused then.
    fn is_persistent(&self) -> bool {
        true
    }

    /// Records were there when it was opened: an earlier run of the daemon, or an earlier version,
    /// has used it.
    fn was_used(&self) -> bool {
        false
    }

    /// Last stored record, or `None`. Called on the control thread: it may wait.
    fn load(&self, serial: &str, kind: RecordKind) -> Result<Option<Vec<u8>>, Error>;
}

#[derive(Default)]
struct SaveState {
    result: Option<Result<(), Errno>>,
    waker: Option<Waker>,
}

fn lock_state(shared: &Mutex<SaveState>) -> MutexGuard<'_, SaveState> {
    shared.lock()
}

/// The promise to report how a save ended (W1, W3).
pub struct SaveCompletion(Option<Arc<Mutex<SaveState>>>);

impl SaveCompletion {
    /// The save has ended.
    pub fn complete(mut self, end: Result<(), Errno>) {
        self.set_result(end);
    }

    fn set_result(&mut self, end: Result<(), Errno>) {
        let Some(shared) = self.0.take() else { return };
        let waker = {
            let mut shared = lock_state(&shared);
            shared.result = Some(end);
            shared.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl Drop for SaveCompletion {
    fn drop(&mut self) {
        self.set_result(Err(Errno::Io));
    }
}

/// The end of a save, to wait for on a core.
pub struct SaveFuture(Arc<Mutex<SaveState>>);

struct ThreadWaker(std::thread::Thread);

impl Wake for ThreadWaker {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

impl SaveFuture {
    /// Waits on a thread that may wait: the control thread's.
    pub fn wait(mut self) -> Result<(), Errno> {
        let waker = Waker::from(Arc::new(ThreadWaker(std::thread::current())));
        let mut cx = Context::from_waker(&waker);
        loop {
            if let Poll::Ready(end) = Pin::new(&mut self).poll(&mut cx) {
                return end;
            }
            std::thread::park();
        }
    }
}

impl Future for SaveFuture {
    type Output = Result<(), Errno>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut shared = lock_state(&self.0);
        match shared.result {
            Some(end) => Poll::Ready(end),
            None => {
                shared.waker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}

/// A ticket and the future that waits for it.
pub fn save_channel() -> (SaveCompletion, SaveFuture) {
    let shared = Arc::new(Mutex::new(SaveState::default()));
    (SaveCompletion(Some(shared.clone())), SaveFuture(shared))
}

/// Keeps nothing and reports that.
pub(crate) struct NullStore;

impl StateStore for NullStore {
    fn save(&self, _: &str, _: RecordKind, _: Vec<u8>, done: SaveCompletion) {
        done.complete(Err(Errno::NotSup));
    }

    fn load(&self, _: &str, _: RecordKind) -> Result<Option<Vec<u8>>, Error> {
        Ok(None)
    }

    fn is_persistent(&self) -> bool {
        false
    }
}

type Key = (String, RecordKind);

#[derive(Default)]
struct MemoryState {
    records: BTreeMap<Key, Vec<u8>>,
    fail: Option<Errno>,
    hold: bool,
    held: Vec<(Key, Vec<u8>, SaveCompletion)>,
}

/// A state store for tests: it lasts as long as the value, and fails and delays on request.
#[derive(Default)]
pub struct MemoryStore(Mutex<MemoryState>);

impl MemoryStore {
    /// Empty.
    pub fn new() -> Arc<MemoryStore> {
        Arc::default()
    }

    fn state(&self) -> MutexGuard<'_, MemoryState> {
        self.0.lock()
    }

    /// From now on saves and loads end with this error; `None` ends that.
    pub fn fail(&self, error: Option<Errno>) {
        self.state().fail = error;
    }

    /// Saves that begin while `on` wait until it is taken back.
    pub fn hold(&self, on: bool) {
        let held = {
            let mut state = self.state();
            state.hold = on;
            if on { Vec::new() } else { std::mem::take(&mut state.held) }
        };
        for ((serial, kind), bytes, done) in held {
            self.save(&serial, kind, bytes, done);
        }
    }

    /// Stored record.
    pub fn record(&self, serial: &str, kind: RecordKind) -> Option<Vec<u8>> {
        self.state().records.get(&(serial.to_string(), kind)).cloned()
    }

    /// Stores bytes as if they had been saved.
    pub fn put(&self, serial: &str, kind: RecordKind, bytes: Vec<u8>) {
        self.state().records.insert((serial.to_string(), kind), bytes);
    }
}

impl StateStore for MemoryStore {
    fn save(&self, serial: &str, kind: RecordKind, bytes: Vec<u8>, done: SaveCompletion) {
        let key = (serial.to_string(), kind);
        let mut state = self.state();
        if state.hold {
            state.held.push((key, bytes, done));
            return;
        }
        let end = match state.fail {
            Some(error) => Err(error),
            None if bytes.len() > RECORD_MAX => Err(Errno::Inval),
            None => {
                state.records.insert(key, bytes);
                Ok(())
            }
        };
        drop(state);
        done.complete(end);
    }

    fn load(&self, serial: &str, kind: RecordKind) -> Result<Option<Vec<u8>>, Error> {
        let fail = self.state().fail;
        match fail {
            Some(error) => Err(Error::new(error, format!("{} of {serial}", kind.name()))),
            None => Ok(self.record(serial, kind)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn poll(saved: &mut SaveFuture) -> Poll<Result<(), Errno>> {
        Pin::new(saved).poll(&mut Context::from_waker(Waker::noop()))
    }

    /// W1.
    #[test]
    fn w2_a_failed_save_keeps_the_previous_record() {
        let store = MemoryStore::new();
        let save = |bytes: &[u8]| {
            let (ticket, saved) = save_channel();
            store.save("s", RecordKind::Reservations, bytes.to_vec(), ticket);
            saved
        };
        assert_eq!(poll(&mut save(b"one")), Poll::Ready(Ok(())));
        store.fail(Some(Errno::NoSpc));
        assert_eq!(poll(&mut save(b"two")), Poll::Ready(Err(Errno::NoSpc)));
        store.fail(None);
        assert_eq!(store.load("s", RecordKind::Reservations).unwrap().unwrap(), b"one");
        assert_eq!(store.load("s", RecordKind::ModePages).unwrap(), None);
        store.hold(true);
        let mut late = save(b"three");
        assert_eq!(poll(&mut late), Poll::Pending);
        assert_eq!(store.record("s", RecordKind::Reservations).unwrap(), b"one");
        store.hold(false);
        assert_eq!(poll(&mut late), Poll::Ready(Ok(())));
        assert_eq!(store.record("s", RecordKind::Reservations).unwrap(), b"three");
    }

    #[test]
    fn w3_a_dropped_ticket_is_a_failure() {
        let (ticket, mut saved) = save_channel();
        drop(ticket);
        assert_eq!(poll(&mut saved), Poll::Ready(Err(Errno::Io)));
    }
}
