//! State of logical units that survives a restart of the daemon.
//!
//! A [`Vault`] is given by the daemon ([`crate::Registry::set_vault`]); without one nothing is
//! kept, and commands that promise durability say so with an error.
//!
//! Invariants
//!  W1  A save ends once, with success only when the bytes are on stable storage: a later load
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

/// Kinds of records.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Kind {
    /// Persistent reservations with APTPL.
    Reservations,
    /// Saved mode pages.
    ModePages,
    /// Running operation on the whole medium (FORMAT UNIT, SANITIZE).
    Medium,
    /// Identifying information that initiators gave the unit.
    Identifying,
    /// Relative identifiers of target ports; of no unit.
    Ports,
    /// Manual changes by the operator; belongs to no unit.
    ByHand,
    /// Where a unit keeps its protection information.
    Protection,
    /// Config strings and mask lists of an AoE target; of no unit.
    Aoe,
    /// Which disks have the names that the configuration calls; of no unit.
    Names,
    /// Previous end of each provider that is identified by data at its end; belongs to no unit.
    Ends,
    /// Which unit initiators know behind each of their LUNs; of no unit.
    Known,
    /// File systems that were served; of no unit.
    Made,
    /// Our own name as an initiator; of no unit.
    Initiator,
    /// Identities of disks, by where they are; of no unit.
    Identities,
    /// How geoms are put together that no record on a disk describes; of no unit.
    Wholes,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Kind; 15] = [
        Kind::Reservations,
        Kind::ModePages,
        Kind::Medium,
        Kind::Identifying,
        Kind::Ports,
        Kind::ByHand,
        Kind::Protection,
        Kind::Aoe,
        Kind::Names,
        Kind::Ends,
        Kind::Known,
        Kind::Made,
        Kind::Initiator,
        Kind::Identities,
        Kind::Wholes,
    ];

    /// Name in file names and messages.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::Reservations => "reservations",
            Kind::ModePages => "mode-pages",
            Kind::Medium => "medium",
            Kind::Identifying => "identifying",
            Kind::Ports => "ports",
            Kind::ByHand => "by-hand",
            Kind::Protection => "protection",
            Kind::Aoe => "aoe",
            Kind::Names => "names",
            Kind::Ends => "ends",
            Kind::Known => "known",
            Kind::Made => "made",
            Kind::Initiator => "initiator",
            Kind::Identities => "identities",
            Kind::Wholes => "wholes",
        }
    }
}

/// Stable storage for small records, by the serial number of a unit.
pub trait Vault: Send + Sync {
    /// Begins to store `bytes` in place of the earlier record; `done` receives the result, on any
    /// thread. Called on a core: it must not wait. Saves of one record end in the order in which
    /// they began.
    fn save(&self, serial: &str, kind: Kind, bytes: Vec<u8>, done: Ticket);

    /// False when nothing is ever kept: promises of durability are refused then.
    fn keeps(&self) -> bool {
        true
    }

    /// Records were there when it was opened: an earlier run of the daemon, or an earlier version,
    /// has used it.
    fn was_used(&self) -> bool {
        false
    }

    /// Last stored record, or `None`. Called on the control thread: it may wait.
    fn load(&self, serial: &str, kind: Kind) -> Result<Option<Vec<u8>>, Error>;
}

#[derive(Default)]
struct Shared {
    end: Option<Result<(), Errno>>,
    waker: Option<Waker>,
}

fn locked(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    shared.lock()
}

/// The promise to say how a save ended (W1, W3).
pub struct Ticket(Option<Arc<Mutex<Shared>>>);

impl Ticket {
    /// The save has ended.
    pub fn end(mut self, end: Result<(), Errno>) {
        self.tell(end);
    }

    fn tell(&mut self, end: Result<(), Errno>) {
        let Some(shared) = self.0.take() else { return };
        let waker = {
            let mut shared = locked(&shared);
            shared.end = Some(end);
            shared.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.tell(Err(Errno::Io));
    }
}

/// The end of a save, to wait for on a core.
pub struct Saved(Arc<Mutex<Shared>>);

struct Thread(std::thread::Thread);

impl Wake for Thread {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

impl Saved {
    /// Waits on a thread that may wait: the control thread's.
    pub fn wait(mut self) -> Result<(), Errno> {
        let waker = Waker::from(Arc::new(Thread(std::thread::current())));
        let mut cx = Context::from_waker(&waker);
        loop {
            if let Poll::Ready(end) = Pin::new(&mut self).poll(&mut cx) {
                return end;
            }
            std::thread::park();
        }
    }
}

impl Future for Saved {
    type Output = Result<(), Errno>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut shared = locked(&self.0);
        match shared.end {
            Some(end) => Poll::Ready(end),
            None => {
                shared.waker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}

/// A ticket and the future that waits for it.
pub fn ticket() -> (Ticket, Saved) {
    let shared = Arc::new(Mutex::new(Shared::default()));
    (Ticket(Some(shared.clone())), Saved(shared))
}

/// Keeps nothing and says so.
pub(crate) struct NoVault;

impl Vault for NoVault {
    fn save(&self, _: &str, _: Kind, _: Vec<u8>, done: Ticket) {
        done.end(Err(Errno::NotSup));
    }

    fn load(&self, _: &str, _: Kind) -> Result<Option<Vec<u8>>, Error> {
        Ok(None)
    }

    fn keeps(&self) -> bool {
        false
    }
}

type Key = (String, Kind);

#[derive(Default)]
struct Memory {
    records: BTreeMap<Key, Vec<u8>>,
    fail: Option<Errno>,
    hold: bool,
    held: Vec<(Key, Vec<u8>, Ticket)>,
}

/// A vault for tests: it lasts as long as the value, and fails and delays on request.
#[derive(Default)]
pub struct MemoryVault(Mutex<Memory>);

impl MemoryVault {
    /// Empty.
    pub fn new() -> Arc<MemoryVault> {
        Arc::default()
    }

    fn state(&self) -> MutexGuard<'_, Memory> {
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
    pub fn record(&self, serial: &str, kind: Kind) -> Option<Vec<u8>> {
        self.state().records.get(&(serial.to_string(), kind)).cloned()
    }

    /// Stores bytes as if they had been saved.
    pub fn put(&self, serial: &str, kind: Kind, bytes: Vec<u8>) {
        self.state().records.insert((serial.to_string(), kind), bytes);
    }
}

impl Vault for MemoryVault {
    fn save(&self, serial: &str, kind: Kind, bytes: Vec<u8>, done: Ticket) {
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
        done.end(end);
    }

    fn load(&self, serial: &str, kind: Kind) -> Result<Option<Vec<u8>>, Error> {
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

    fn poll(saved: &mut Saved) -> Poll<Result<(), Errno>> {
        Pin::new(saved).poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn w2_a_failed_save_keeps_the_previous_record() {
        let vault = MemoryVault::new();
        let save = |bytes: &[u8]| {
            let (ticket, saved) = ticket();
            vault.save("s", Kind::Reservations, bytes.to_vec(), ticket);
            saved
        };
        assert_eq!(poll(&mut save(b"one")), Poll::Ready(Ok(())));
        vault.fail(Some(Errno::NoSpc));
        assert_eq!(poll(&mut save(b"two")), Poll::Ready(Err(Errno::NoSpc)));
        vault.fail(None);
        assert_eq!(vault.load("s", Kind::Reservations).unwrap().unwrap(), b"one");
        assert_eq!(vault.load("s", Kind::ModePages).unwrap(), None);
        vault.hold(true);
        let mut late = save(b"three");
        assert_eq!(poll(&mut late), Poll::Pending);
        assert_eq!(vault.record("s", Kind::Reservations).unwrap(), b"one");
        vault.hold(false);
        assert_eq!(poll(&mut late), Poll::Ready(Ok(())));
        assert_eq!(vault.record("s", Kind::Reservations).unwrap(), b"three");
    }

    #[test]
    fn w3_a_dropped_ticket_is_a_failure() {
        let (ticket, mut saved) = ticket();
        drop(ticket);
        assert_eq!(poll(&mut saved), Poll::Ready(Err(Errno::Io)));
    }
}
