//! Interface of the daemon for the control path, which uses nothing else of the daemon.
//!
//! Invariants
//!  P1  Calls that change something (`carry_out`, `take_back`, `wait_ready`, `set_desired`,
//!      `expect_disks`, `adopt`, `verb`) come one at a time.
//!  P2  `state`, `figures`, `ping`, `stale`, `predict_serials`, `journal`, `slow_requests`,
//!      `check`, `check_disks`, `refused_media` and `clash` may come at any time, from any thread,
//!      also during P1.
//!  P3  When a changing call returns, the topology is idle again: what tasting finds because of
//!      it is there, or its deadline has passed.
//!  P4  A changing call that returns an error has changed nothing.
//!  P5  `take_back` makes no file: a disk that was removed returns with its data or not at all.

use crate::api::{Error, Event, ProgressLine, Result, SystemState, TraceQuery, TraceState};
use crate::config::{Config, DiskConfig, GeomConfig};
use crate::file_service::{FileService, NoFiles};
use crate::plan::{Action, DataLoss, Deferred, FileSection, PredictedSerials, Step};
use serde_json::Value;
use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

/// Takes note of how far a long call is; lines may be dropped when they are too many.
pub type Progress<'a> = dyn FnMut(ProgressLine) + Send + 'a;

/// Adds to a state the parts that the control side knows.
pub type AddParts = dyn Fn(&mut SystemState) + Send + Sync;

/// Report of a step that was carried out.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// Notes for the user: "takes effect at the next start". Usually none.
    pub notes: Vec<String>,
    /// Parts of it that did not have to be carried out and were not.
    pub deferred: Vec<Deferred>,
}

/// A section that uses files whose contents have changed since they were read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StaleFiles {
    /// Whose files.
    pub of: FileSection,
    /// Which files: "tls_certificate /etc/x.pem has changed".
    pub why: String,
    /// A CA certificate that clients were verified against is not among them any more.
    pub drops_client_ca: bool,
}

/// The daemon, as the control path sees it.
pub trait Plant: Send + Sync {
    /// Everything, now. An error when the daemon stops, or when too many requests wait.
    fn state(&self) -> Result<SystemState>;

    /// The parts of [`Plant::state`] that metrics and samples show, and those by which a scope is
    /// limited. Other fields of objects may be empty.
    fn figures(&self) -> Result<SystemState> {
        self.state()
    }

    /// Returns once the control thread has answered: it does not hang. Changes nothing.
    fn ping(&self) -> Result<()> {
        Ok(())
    }

    /// Would `step` succeed once `before` (the steps ahead of it) are done? Changes nothing. May
    /// answer yes where only the execution can show a problem.
    fn check(&self, step: &Step, before: &[Step]) -> Result<()>;

    /// The answers of [`Plant::check`] to those of these steps that make a disk with a path, by the
    /// places of the steps. They are found side by side: paths that hang take the time of one.
    /// Changes nothing.
    fn check_disks(&self, steps: &[Step]) -> HashMap<usize, Result<()>> {
        let _ = steps;
        HashMap::new()
    }

    /// Those of these steps that make a disk of a file or device that another disk has, or that a
    /// program has locked, each with why. `running`: the disks before the steps. Changes nothing.
    fn refused_media(&self, running: &[DiskConfig], steps: &[Step]) -> Vec<(usize, Error)> {
        let _ = (running, steps);
        Vec::new()
    }

    /// The first of these steps after which hosts would take two units for one disk, and why. One
    /// that may stay undone is not looked at. Changes nothing.
    fn clash(&self, steps: &[Step]) -> Option<(usize, Error)> {
        let _ = steps;
        None
    }

    /// Returns once the daemon takes changes. It may be doing work of its own, such as a geom whose
    /// disk has returned. A changing call (P1) that changes nothing.
    ///
    /// # Errors
    /// [`crate::api::Kind::Busy`]: that work has not ended within `limit`.
    fn wait_ready(&self, limit: Duration) -> Result<()> {
        let _ = limit;
        Ok(())
    }

    /// The configuration that the following steps shall reach; after failed steps, the one that was
    /// reached. Changes nothing by itself; a changing call (P1). `consent` names what may be
    /// destroyed.
    fn set_desired(&self, config: &Config, consent: &[String]);

    /// The disks that the steps to be carried out next make, in their order. A start may open some
    /// of them ahead of their steps, while an earlier disk does not answer; each is added by its
    /// own step. A changing call (P1).
    fn expect_disks(&self, disks: &[&DiskConfig]) {
        let _ = disks;
    }

    /// The data that an action would destroy on the providers that it writes to. `None` when
    /// nothing is lost, or when that is not known before the steps `before` it are done. `now`: the
    /// configuration after those steps.
    fn data_lost(&self, action: &Action, before: &[Step], now: &Config) -> Option<DataLoss> {
        let _ = (action, before, now);
        None
    }

    /// Serial numbers of units on these disks when they are made as configured and those called
    /// `gone` are not there any more, as far as that is known. Changes nothing.
    fn predict_serials(&self, disks: &[DiskConfig], gone: &BTreeSet<String>) -> PredictedSerials {
        let _ = (disks, gone);
        PredictedSerials::new()
    }

    /// Targets that use files with other contents than those on disk, for themselves or for their
    /// access groups. Changes nothing.
    fn stale(&self) -> Vec<StaleFiles> {
        Vec::new()
    }

    /// Does it, wholly or not at all.
    fn carry_out(&self, action: &Action, progress: &mut Progress<'_>) -> Result<Outcome>;

    /// Carries out the inverse of a step, because a later step of the plan has failed.
    fn take_back(&self, inverse: &Action, progress: &mut Progress<'_>) -> Result<Outcome> {
        self.carry_out(inverse, progress)
    }

    /// Geoms that verbs made belong to the configuration from now on, with these sections.
    fn adopt(&self, geoms: &[GeomConfig]) {
        let _ = geoms;
    }

    /// This could not be carried out and is wanted all the same. It is carried out as soon as that
    /// can be, unless a later [`Plant::set_desired`] does not have it any more.
    fn retry_later(&self, action: &Action) {
        let _ = action;
    }

    /// A verb of a class (`nop` `configure`): `params` as that class's schema has them.
    fn verb(
        &self,
        class: &str,
        verb: &str,
        params: &Value,
        progress: &mut Progress<'_>,
    ) -> Result<Value>;

    /// The files of its file servers; at any time, from any thread that may wait.
    fn files(&self) -> &dyn FileService {
        &NoFiles
    }

    /// Events with an id above `after`, oldest first, at most `limit` of them.
    fn journal(&self, after: u64, limit: usize) -> Vec<Event>;

    /// Slow requests for a client. They are recorded from the first request on, until no request
    /// has arrived for some seconds.
    fn slow_requests(&self, query: &TraceQuery) -> Result<TraceState>;

    /// Scrapes of the listener of metrics show the parts that `add` adds, too. Called at most once.
    fn complete_scrapes(&self, add: Box<AddParts>) {
        drop(add);
    }

    /// The startup configuration is carried out: initiators, which waited until now, may log in.
    /// Called once, before the first request.
    fn open(&self);

    /// Stops serving: no new logins, sessions closed, disks flushed. Called once, last.
    fn stop(&self);
}
