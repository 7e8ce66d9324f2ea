//! Export of an NBD server: the properties that it must keep, and the data that a FLUSH has to
//! cover when the server is our own. All cores share it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bio::{Errno, Status};
use wire::nbd::client::Terms;
use wire::nbd::codes::export_flag;

use super::child::Server;

/// Transmission flags that a server may not lose while the disk is in use.
const REQUIRED_FLAGS: u16 = export_flag::SEND_FLUSH
    | export_flag::SEND_FUA
    | export_flag::SEND_TRIM
    | export_flag::SEND_WRITE_ZEROES;

/// See the module.
pub(crate) struct Export {
    pub(crate) name: String,
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
    flags: u16,
    sector: u32,
    read_only: bool,
    /// BLOCK_STATUS is answered.
    pub(crate) maps: bool,
    /// The disk has, or had, more than one connection.
    is_shared: AtomicBool,
    /// The server's connections share a cache, as the last one reports (CAN_MULTI_CONN).
    shares_cache: AtomicBool,
}

impl Export {
    pub(crate) fn new(
        name: String,
        server: Option<Server>,
        terms: &Terms,
        sector: u32,
        read_only: bool,
        is_shared: bool,
    ) -> Export {
        Export {
            name,
            server,
            dirty: AtomicBool::new(false),
            reported_exits: AtomicU64::new(0),
            own_flush: AtomicBool::new(false),
            owes_error: AtomicBool::new(false),
            flags: terms.flags,
            sector,
            read_only,
            maps: terms.allocation.is_some(),
            is_shared: AtomicBool::new(is_shared),
            shares_cache: AtomicBool::new(terms.has(export_flag::CAN_MULTI_CONN)),
        }
    }

    /// The disk may have more than one connection from now on, also after an edit that leaves it
    /// one: a connection that is closing may have acknowledged writes that no FLUSH covers (N3).
    pub(super) fn set_shared(&self) {
        self.is_shared.store(true, Ordering::Release);
    }

    /// Whether the disk may have more than one connection.
    pub(super) fn shares_cache(&self) -> bool {
        self.shares_cache.load(Ordering::Acquire)
    }

    pub(crate) fn has(&self, flag: u16) -> bool {
        self.flags & flag == flag
    }

    /// Compares the export of a new connection with that of the disk, apart from its size.
    pub(super) fn check_export(&self, terms: &Terms) -> Result<(), String> {
        if terms.has(export_flag::READ_ONLY) && !self.read_only {
            return Err("a different export: now read-only, but writable before".to_owned());
        }
        if self.flags & !terms.flags & REQUIRED_FLAGS != 0
            || (self.maps && terms.allocation.is_none())
        {
            let (was, now) = (self.flags, terms.flags);
            return Err(format!("a different export: its flags changed from {was:#x} to {now:#x}"));
        }
        let shares_cache = terms.has(export_flag::CAN_MULTI_CONN);
        if self.is_shared.load(Ordering::Acquire) && !shares_cache {
            return Err("a different export: its connections do not share a cache".to_owned());
        }
        let minimum = terms.blocks.map_or(1, |b| b.minimum);
        if minimum > self.sector {
            let sector = self.sector;
            return Err(format!(
                "a different export: its blocks changed from {sector} to {minimum} bytes"
            ));
        }
        self.shares_cache.store(shares_cache, Ordering::Release);
        Ok(())
    }

    /// Unrequested ends of our own server: data that it had not stored may be lost then.
    fn unexpected_exits(&self) -> u64 {
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

    /// Our own server has acknowledged data that no FLUSH covers, and knows FLUSH.
    pub(crate) fn needs_flush(&self) -> bool {
        self.dirty.load(Ordering::Acquire) && self.has(export_flag::SEND_FLUSH)
    }

    /// Claims the FLUSH of the disk itself. False: one is under way.
    pub(crate) fn claim_own_flush(&self) -> bool {
        !self.own_flush.swap(true, Ordering::AcqRel)
    }

    /// True while the FLUSH of the disk itself is under way.
    pub(crate) fn is_flushing(&self) -> bool {
        self.own_flush.load(Ordering::Acquire)
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
    pub(super) fn own_flush_ends(&self, began: u64, status: Status) {
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
}

#[cfg(test)]
mod tests {
    use wire::nbd::Form;

    use super::*;

    fn terms(flags: u16) -> Terms {
        Terms { size: 1 << 20, flags, form: Form::Simple, allocation: None, blocks: None }
    }

    /// N3 of layer.rs.
    #[test]
    fn server_without_a_shared_cache_is_refused_after_several_connections() {
        let (shared, alone) = (terms(export_flag::CAN_MULTI_CONN), terms(0));
        let export = Export::new("e".into(), None, &shared, 512, false, false);
        for (terms, shares_cache) in [(&alone, false), (&shared, true)] {
            assert_eq!(export.check_export(terms), Ok(()));
            assert_eq!(export.shares_cache(), shares_cache);
        }
        export.set_shared();
        let refused = export.check_export(&alone).expect_err("another one may be closing");
        assert!(refused.contains("do not share a cache"), "{refused}");
        assert!(export.shares_cache() && export.check_export(&shared).is_ok());
    }
}
