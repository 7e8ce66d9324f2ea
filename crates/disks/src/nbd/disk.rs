//! State of an NBD disk that all cores share.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bio::sync::Mutex;
use bio::{Errno, Status};
use geom::Notifier;
use tls::ClientKeys;
use wire::nbd::client::Terms;
use wire::nbd::codes::export_flag;

use super::child::Server;
use super::dial::{ConnectParams, OpenConnection};
use crate::params;
use crate::remote::Bounds;
use crate::watch::Watch;

/// Transmission flags that a server may not lose while the disk is in use.
const REQUIRED_FLAGS: u16 = export_flag::SEND_FLUSH
    | export_flag::SEND_FUA
    | export_flag::SEND_TRIM
    | export_flag::SEND_WRITE_ZEROES;

/// Counters for lists.
#[derive(Default)]
pub(crate) struct Counts {
    pub(crate) connections: AtomicU64,
    pub(crate) lost: AtomicU64,
    pub(crate) replayed: AtomicU64,
}

/// See the module.
pub(crate) struct Disk {
    /// Of this process's disks, for the connections of each core.
    pub(crate) number: u64,
    /// Parameters of its connections, with the keys of the first one.
    pub(crate) wanted: ConnectParams,
    /// Keys that were read last, for the next connection.
    pub(crate) keys: Mutex<Option<ClientKeys>>,
    /// The server, if it is our own.
    pub(crate) server: Option<Server>,
    /// Something was written that no FLUSH covers yet.
    dirty: AtomicBool,
    /// Ends of our own server that a FLUSH has failed for.
    reported_exits: AtomicU64,
    /// A FLUSH of the disk itself is under way (N6).
    own_flush: AtomicBool,
    /// A FLUSH of the disk itself has failed: the next one of a user reports that.
    owes_error: AtomicBool,
    /// Transmission flags at the start.
    pub(crate) flags: u16,
    pub(crate) sector: u32,
    pub(crate) read_only: bool,
    pub(crate) is_rotational: bool,
    /// BLOCK_STATUS is answered.
    pub(crate) maps: bool,
    size: AtomicU64,
    pub(crate) bounds: Bounds,
    /// Cores with a connection: the first ones.
    pub(crate) connection_cores: u32,
    pub(crate) cores: usize,
    pub(crate) notifier: Notifier,
    pub(crate) watch: Arc<Watch>,
    /// The reason why a core has no connection.
    pub(crate) troubles: Mutex<BTreeMap<u32, String>>,
    pub(crate) counts: Counts,
    /// The connection by which the disk was opened, for the first core that needs one.
    pub(crate) first: Mutex<Option<OpenConnection>>,
    pub(crate) is_closed: AtomicBool,
}

impl Disk {
    pub(crate) fn new(
        way: ServerPath,
        terms: &Terms,
        bounds: Bounds,
        shape: ExportShape,
        notifier: Notifier,
        watch: Arc<Watch>,
    ) -> Disk {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        Disk {
            number: NUMBER.fetch_add(1, Ordering::Relaxed),
            keys: Mutex::new(way.wanted.keys.clone()),
            wanted: way.wanted,
            server: way.server,
            dirty: AtomicBool::new(false),
            reported_exits: AtomicU64::new(0),
            own_flush: AtomicBool::new(false),
            owes_error: AtomicBool::new(false),
            flags: terms.flags,
            sector: shape.sector,
            read_only: shape.read_only,
            is_rotational: terms.has(export_flag::ROTATIONAL),
            maps: terms.allocation.is_some(),
            size: AtomicU64::new(terms.size),
            bounds,
            connection_cores: shape.connection_cores,
            cores: shape.cores,
            notifier,
            watch,
            troubles: Mutex::default(),
            counts: Counts::default(),
            first: Mutex::new(way.first),
            is_closed: AtomicBool::new(false),
        }
    }

    /// Parameters of the next connection.
    pub(crate) fn wanted_now(&self) -> ConnectParams {
        ConnectParams { keys: self.keys.lock().clone(), ..self.wanted.clone() }
    }

    pub(crate) fn has(&self, flag: u16) -> bool {
        self.flags & flag == flag
    }

    /// Bytes in whole sectors.
    pub(crate) fn size(&self) -> u64 {
        let sector = u64::from(self.sector.max(1));
        self.size.load(Ordering::Acquire).min(params::MEDIA_BYTES_MAX) / sector * sector
    }

    /// Looks at an export after a new connection: it must be the one that it was. A larger one is
    /// accepted, and the geoms above are notified.
    pub(crate) fn check_export(&self, terms: &Terms) -> Result<(), String> {
        let was = self.size.load(Ordering::Acquire);
        if terms.size < was {
            let now = terms.size;
            return Err(format!("a different export: its size changed from {was} to {now} bytes"));
        }
        if terms.has(export_flag::READ_ONLY) && !self.read_only {
            return Err("a different export: now read-only, but writable before".to_owned());
        }
        if self.flags & !terms.flags & REQUIRED_FLAGS != 0
            || (self.maps && terms.allocation.is_none())
        {
            let (was, now) = (self.flags, terms.flags);
            return Err(format!("a different export: its flags changed from {was:#x} to {now:#x}"));
        }
        if self.connection_cores > 1 && !terms.has(export_flag::CAN_MULTI_CONN) {
            return Err("a different export: its connections do not share a cache".to_owned());
        }
        let minimum = terms.blocks.map_or(1, |b| b.minimum);
        if minimum > self.sector {
            let sector = self.sector;
            return Err(format!(
                "a different export: its blocks changed from {sector} to {minimum} \
                                bytes"
            ));
        }
        self.grown(terms.size);
        Ok(())
    }

    /// The export has so many bytes. True: more than before.
    pub(crate) fn grown(&self, bytes: u64) -> bool {
        let was = self.size.fetch_max(bytes, Ordering::AcqRel);
        if bytes > was {
            self.watch.resized(self.size());
        }
        bytes > was
    }

    /// Ends of our own server that were not asked for: data that it had not stored may be lost
    /// then.
    pub(crate) fn unexpected_exits(&self) -> u64 {
        self.server.as_ref().map_or(0, Server::unexpected_exits)
    }

    /// Something is written.
    pub(crate) fn mark_dirty(&self) {
        if self.server.is_some() && !self.dirty.load(Ordering::Relaxed) {
            self.dirty.store(true, Ordering::Relaxed);
        }
    }

    /// Takes the data that a FLUSH is to cover. Returns the number of deaths, and whether our own
    /// server has ended after it acknowledged data that no FLUSH covers.
    fn take_dirty(&self) -> (u64, bool) {
        let deaths = self.unexpected_exits();
        let is_new = self.reported_exits.swap(deaths, Ordering::AcqRel) != deaths;
        let was_dirty = self.dirty.swap(false, Ordering::AcqRel);
        (deaths, is_new && was_dirty)
    }

    /// A FLUSH of a user begins: returns the number of deaths. It fails, once, when data was lost
    /// with our own server, or when a FLUSH of the disk itself has failed. It is not sent then.
    pub(crate) fn flush_begins(&self) -> Result<u64, Errno> {
        let (deaths, is_lost) = self.take_dirty();
        if self.owes_error.swap(false, Ordering::AcqRel) || is_lost {
            self.mark_dirty();
            return Err(Errno::Io);
        }
        Ok(deaths)
    }

    /// A FLUSH has ended well: it covers the data that one server acknowledged.
    pub(crate) fn flush_ends(&self, began: u64) -> Result<(), Errno> {
        let deaths = self.unexpected_exits();
        if deaths == began {
            return Ok(());
        }
        self.reported_exits.store(deaths, Ordering::Release);
        Err(Errno::Io)
    }

    /// Our own server has acknowledged data that no FLUSH covers, and can be asked for one.
    pub(crate) fn needs_flush(&self) -> bool {
        let is_reachable = || !self.troubles.lock().contains_key(&0);
        self.dirty.load(Ordering::Acquire) && self.has(export_flag::SEND_FLUSH) && is_reachable()
    }

    /// Claims the FLUSH of the disk itself. False: one is under way.
    pub(crate) fn claim_own_flush(&self) -> bool {
        !self.own_flush.swap(true, Ordering::AcqRel)
    }

    /// True while the FLUSH of the disk itself is under way, with a server that can answer it.
    pub(crate) fn is_flushing(&self) -> bool {
        self.own_flush.load(Ordering::Acquire) && !self.troubles.lock().contains_key(&0)
    }

    /// The FLUSH of the disk itself begins: returns the number of deaths.
    pub(crate) fn own_flush_begins(&self) -> u64 {
        let (deaths, is_lost) = self.take_dirty();
        if is_lost {
            self.owes_error.store(true, Ordering::Release);
        }
        deaths
    }

    /// The FLUSH of the disk itself has ended. A failure is for the next FLUSH of a user.
    pub(crate) fn own_flush_ends(&self, began: u64, status: Status) {
        match status {
            // The server has not answered it: its data is still to be covered.
            Err(Errno::Again | Errno::RemoteIo | Errno::TimedOut | Errno::NxIo) => {
                self.mark_dirty();
            }
            _ if status.is_err() || self.flush_ends(began).is_err() => {
                self.owes_error.store(true, Ordering::Release);
            }
            _ => {}
        }
        self.own_flush.store(false, Ordering::Release);
    }

    /// Whether something is wrong with the connection of a core; `None`: it is well.
    pub(crate) fn set_trouble(&self, core: u32, why: Option<String>) {
        let mut troubles = self.troubles.lock();
        match why {
            Some(why) => troubles.insert(core, why),
            None => troubles.remove(&core),
        };
    }
}

/// The way to a server.
pub(crate) struct ServerPath {
    pub(crate) wanted: ConnectParams,
    pub(crate) server: Option<Server>,
    pub(crate) first: Option<OpenConnection>,
}

/// Numbers of a disk that come from its parameters.
#[derive(Clone, Copy)]
pub(crate) struct ExportShape {
    pub(crate) sector: u32,
    pub(crate) read_only: bool,
    pub(crate) connection_cores: u32,
    pub(crate) cores: usize,
}
