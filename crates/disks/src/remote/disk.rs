//! State of a remote disk that all cores share.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use bio::sync::Mutex;
use bio::{Bio, Errno, Flags, Segs};
use geom::{Core, Notifier};

use super::dial::{self, DialParams, OpenConnection, ServerTls};
use super::protocol::{Job, Protocol, RequestOwner, Transfer};
use super::{Bounds, Outcome, client, cross_core};
use crate::params;
use crate::watch::Watch;

/// Counters for lists.
#[derive(Default)]
pub(crate) struct Counts {
    pub(crate) connections: AtomicU64,
    pub(crate) lost: AtomicU64,
    pub(crate) replayed: AtomicU64,
}

pub(crate) struct ServerPath<T> {
    pub(crate) to: DialParams,
    /// The connection by which the disk was opened.
    pub(crate) first: Option<OpenConnection<T>>,
}

/// Numbers of a disk.
#[derive(Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) bytes: u64,
    pub(crate) sector: u32,
    /// Cores with a connection: the first ones.
    pub(crate) connection_cores: u32,
    pub(crate) cores: usize,
    pub(crate) bounds: Bounds,
}

/// See the module.
pub(crate) struct Remote<P: Protocol> {
    /// Of this process's disks, for the connections of each core.
    pub(crate) number: u64,
    pub(crate) protocol: P,
    /// Parameters of its connections, with the TLS of the first one.
    pub(crate) to: DialParams,
    /// TLS of the next connection.
    pub(crate) tls: Mutex<ServerTls>,
    pub(crate) sector: u32,
    size: AtomicU64,
    bounds: Mutex<Bounds>,
    connection_cores: AtomicU32,
    pub(crate) cores: usize,
    pub(crate) notifier: Notifier,
    pub(crate) watch: Arc<Watch>,
    /// The reason why a core has no connection.
    pub(crate) troubles: Mutex<BTreeMap<u32, String>>,
    pub(crate) counts: Counts,
    /// The connection by which the disk was opened, for the first core that needs one.
    pub(crate) first: Mutex<Option<OpenConnection<P::Terms>>>,
    pub(crate) is_closed: AtomicBool,
}

impl<P: Protocol> Remote<P> {
    pub(crate) fn new(
        protocol: P,
        path: ServerPath<P::Terms>,
        shape: Shape,
        notifier: Notifier,
        watch: Arc<Watch>,
    ) -> Arc<Remote<P>> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        Arc::new(Remote {
            number: NUMBER.fetch_add(1, Ordering::Relaxed),
            protocol,
            tls: Mutex::new(path.to.tls.clone()),
            to: path.to,
            sector: shape.sector,
            size: AtomicU64::new(shape.bytes),
            bounds: Mutex::new(shape.bounds),
            connection_cores: AtomicU32::new(shape.connection_cores),
            cores: shape.cores,
            notifier,
            watch,
            troubles: Mutex::default(),
            counts: Counts::default(),
            first: Mutex::new(path.first),
            is_closed: AtomicBool::new(false),
        })
    }

    /// Parameters of the next connection.
    pub(crate) fn dial_params(&self) -> DialParams {
        DialParams { tls: self.tls.lock().clone(), ..self.to.clone() }
    }

    pub(crate) fn bounds(&self) -> Bounds {
        *self.bounds.lock()
    }

    /// Sets the bounds of requests. Those under way keep only the end of their time.
    pub(crate) fn set_bounds(&self, bounds: Bounds) {
        *self.bounds.lock() = bounds;
        self.call_cores(client::update_bounds::<P>);
    }

    /// Number of cores with a connection: the first ones.
    pub(crate) fn connection_cores(&self) -> u32 {
        self.connection_cores.load(Ordering::Acquire)
    }

    /// Sets the number of cores with a connection. A further core connects at its next request. A
    /// core that has none any more closes its connection when the requests there have ended.
    pub(crate) fn set_connection_cores(&self, count: u32) {
        let count = count.max(1);
        if self.connection_cores.swap(count, Ordering::AcqRel) > count {
            self.call_cores(client::close_surplus::<P>);
        }
    }

    /// Calls a function with the number of the disk on each core.
    fn call_cores(&self, call: fn(u64, &Rc<Core>)) {
        let number = self.number;
        for core in 0..self.cores {
            self.notifier.call(core, Box::new(move |core: &Rc<Core>| call(number, core)));
        }
    }

    /// Bytes in whole sectors.
    pub(crate) fn size(&self) -> u64 {
        let sector = u64::from(self.sector.max(1));
        self.size.load(Ordering::Acquire).min(params::MEDIA_BYTES_MAX) / sector * sector
    }

    /// Looks at the medium after a new connection: it must be the one that it was. A larger one is
    /// accepted, and the geoms above are notified.
    pub(crate) fn check_medium(&self, terms: &P::Terms) -> Result<(), String> {
        let (was, now) = (self.size.load(Ordering::Acquire), P::bytes(terms));
        if now < was {
            return Err(format!("a different medium: its size changed from {was} to {now} bytes"));
        }
        self.protocol.check(terms)?;
        self.grown(now);
        Ok(())
    }

    /// The medium has so many bytes. True: more than before.
    fn grown(&self, bytes: u64) -> bool {
        let was = self.size.fetch_max(bytes, Ordering::AcqRel);
        if bytes > was {
            self.watch.resized(self.size());
        }
        bytes > was
    }

    /// Queries the size at the server over a connection of its own, for protocols that do not
    /// report a new size. A server that takes no further connection reports it at the next. Blocks.
    pub(crate) fn update_size(&self) -> u64 {
        let to = self.dial_params();
        let handshake = self.protocol.handshake(to.tls.keys.is_some());
        if let Ok(asked) = dial::connect_and_handshake(&to, handshake)
            && self.grown(P::bytes(&asked.terms))
        {
            self.call_cores(client::reconnect::<P>);
        }
        self.size()
    }

    /// Whether something is wrong with the connection of a core; `None`: it is well.
    pub(crate) fn set_trouble(&self, core: u32, why: Option<String>) {
        let mut troubles = self.troubles.lock();
        match why {
            Some(why) => troubles.insert(core, why),
            None => troubles.remove(&core),
        };
    }

    /// Whether the first core has a connection, or none was needed yet.
    pub(crate) fn is_connected(&self) -> bool {
        !self.troubles.lock().contains_key(&0)
    }

    /// Sends a request of a Bio, which waits. Answers the number for [`Remote::take`].
    ///
    /// # Errors
    /// `Again`, `NxIo`: it may not wait for a connection; `NoMem`: there are too many.
    pub(crate) fn send(
        self: &Arc<Self>,
        bio: &Bio,
        command: P::Command,
        core: &Core,
    ) -> Result<u64, Errno> {
        let mut data = Segs::new();
        if P::transfer(&command) != Transfer::None {
            bio.data.iter().for_each(|seg| data.push(seg.clone()));
        }
        if core.id() >= self.connection_cores() {
            return Ok(cross_core::begin(self, bio, command, &data, core));
        }
        let client = client::of(self, core).ok_or(Errno::NxIo)?;
        let job = Job::new(RequestOwner::Bio(bio.ticket()), command, data);
        client.begin(job, bio.flags.has(Flags::FAIL_FAST), core.now())
    }

    /// Takes the result of a request that has ended.
    pub(crate) fn take(self: &Arc<Self>, number: u64, bio: &Bio, core: &Core) -> Option<Outcome> {
        match cross_core::is_forwarded(number) {
            true => cross_core::take(number, bio),
            false => client::of(self, core)?.take(number),
        }
    }

    /// Sends a request of the disk itself on a core with a connection. It does not wait for a
    /// connection, and ends by [`Protocol::own_request_ended`].
    pub(crate) fn send_own(self: &Arc<Self>, command: P::Command, number: u64, core: &Rc<Core>) {
        let send = || {
            let client = client::of(self, core).ok_or(Errno::NxIo)?;
            let job = Job::new(RequestOwner::Disk { number }, command, Segs::new());
            client.begin(job, true, core.now())
        };
        if send().is_err() {
            self.protocol.own_request_ended(number, Err(Errno::Again));
        }
    }

    /// The disk is not used any more: its connections end in order.
    pub(crate) fn close(&self) {
        if self.is_closed.swap(true, Ordering::AcqRel) {
            return;
        }
        drop(self.first.lock().take());
        self.call_cores(client::close::<P>);
    }
}
