//! An association: a host, the controller that it has, its queues on any cores.
//!
//! ```text
//!   admin Connect --> DISABLED --CC.EN--> ENABLED --CC.SHN--> SHUT
//!                        ^                   |  I/O queues connect
//!                        +----- CC.EN = 0 ---+  I/O queues end
//!   the admin queue ends (closed, keep alive expired): all queues end, the controller too
//! ```

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use bio::sync::{Mutex, MutexGuard};
use wire::nvme::Configuration;

use super::params::Checked;
use super::protocol::{NvmeTcpGlobal, NvmeTcpMessage};

/// Identity of a connected host, and the subsystem that it wants to use.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Host {
    /// HOSTNQN.
    pub name: String,
    /// HOSTID.
    pub id: [u8; 16],
    /// SUBNQN.
    pub subsystem: String,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct QueueLocation {
    pub core: u32,
    pub connection: u64,
}

/// See the module.
pub(crate) struct Controller {
    /// CNTLID.
    pub number: u16,
    pub host: Host,
    /// None: it answers discovery.
    pub target: Option<Arc<Checked>>,
    shared: Arc<NvmeTcpGlobal>,
    configuration: AtomicU32,
    /// ACRE: the host keeps to delays before it sends a command again.
    delays: AtomicBool,
    over: AtomicBool,
    queues: Mutex<BTreeMap<u16, QueueLocation>>,
    /// The units, by number, that the host takes the namespaces for.
    known_units: Mutex<BTreeMap<u32, u32>>,
}

/// A queue's place in its association; given back when dropped.
pub(crate) struct Claim {
    controller: Arc<Controller>,
    queue: u16,
}

impl Controller {
    /// With no queue.
    pub fn new(
        number: u16,
        host: Host,
        target: Option<Arc<Checked>>,
        shared: &Arc<NvmeTcpGlobal>,
    ) -> Arc<Controller> {
        Arc::new(Controller {
            number,
            host,
            target,
            shared: shared.clone(),
            configuration: AtomicU32::new(0),
            delays: AtomicBool::new(false),
            over: AtomicBool::new(false),
            queues: Mutex::default(),
            known_units: Mutex::default(),
        })
    }

    fn queues(&self) -> MutexGuard<'_, BTreeMap<u16, QueueLocation>> {
        self.queues.lock()
    }

    /// CC.
    pub fn configuration(&self) -> Configuration {
        Configuration(self.configuration.load(Ordering::Acquire))
    }

    /// Sets CC; a controller that is disabled has no I/O queues.
    pub fn configure(&self, new: Configuration) {
        let old = Configuration(self.configuration.swap(new.0, Ordering::AcqRel));
        if old.is_enabled() && !new.is_enabled() {
            self.set_delays(false);
            self.end_queues();
        }
    }

    /// Whether the host keeps to delays before it sends a command again.
    pub fn delays(&self) -> bool {
        self.delays.load(Ordering::Relaxed)
    }

    /// The host reports whether it does.
    pub fn set_delays(&self, delays: bool) {
        self.delays.store(delays, Ordering::Relaxed);
    }

    /// True once the admin queue has ended.
    pub fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    /// Takes a queue's number; None when the number is in use, or the association is over.
    pub fn claim(self: &Arc<Self>, queue: u16, seat: QueueLocation) -> Option<Claim> {
        let mut queues = self.queues();
        if self.is_over() || queues.contains_key(&queue) {
            return None;
        }
        queues.insert(queue, seat);
        Some(Claim { controller: self.clone(), queue })
    }

    pub fn queue_location(&self, queue: u16) -> Option<QueueLocation> {
        self.queues().get(&queue).copied()
    }

    fn known_units(&self) -> MutexGuard<'_, BTreeMap<u32, u32>> {
        self.known_units.lock()
    }

    pub fn record_known_unit(&self, namespace: u32, device: u32) {
        self.known_units().insert(namespace, device);
    }

    /// The unit that the host takes a namespace for; the one given when it has read none.
    pub fn known_unit(&self, namespace: u32, device: u32) -> u32 {
        *self.known_units().entry(namespace).or_insert(device)
    }

    fn end_queues(&self) {
        let all: Vec<QueueLocation> =
            self.queues().iter().filter(|(number, _)| **number > 0).map(|(_, s)| *s).collect();
        for seat in all {
            // A core that has stopped has no connections; others listen while they live.
            self.shared
                .mailboxes
                .send(seat.core, NvmeTcpMessage::End { connection: seat.connection });
        }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.controller.queues().remove(&self.queue);
        if self.queue == 0 {
            self.controller.over.store(true, Ordering::Release);
            self.controller.end_queues();
            self.controller.shared.own.forget_controller(self.controller.number);
        }
    }
}
