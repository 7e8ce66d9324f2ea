//! Checks of the files and addresses that sections name: on threads of their own, with a deadline,
//! because a file system or a resolver may hang.

use std::net::SocketAddr;

use bio::ReadAhead;
use fileserver::{FS_CLASS, FsClass};
use mgmt::api::Result;
use mgmt::config::GeomConfig;
use mgmt::plan::{Action, FileSection, Step};
use serde_json::Value;
use wire::portal::listeners_overlap;

use super::Daemon;
use super::opening::{may_hang, open_deadline};
use crate::buses;
use crate::catalog::check_geom;
use crate::control_loop::{check_disk, check_files};
use crate::exports;
use crate::mailbox::Query;
use crate::sandbox;
use crate::within::checked_within;

/// Why the section of an action could not be carried out, by its files. Blocks while one hangs.
fn check_named(action: &Action) -> Result<()> {
    match action {
        Action::CreateBus { bus } | Action::ModifyBus { to: bus, .. } => buses::check(bus),
        Action::CreateGeom { geom } => check_geom("create geom", geom),
        Action::ModifyGeom { to, .. } => check_geom("change geom", to),
        Action::ModifyDisk { to, .. } => check_disk("change disk", to),
        action => action.groups().try_for_each(exports::judge_group),
    }
}

/// Whether a step may close a listener that is no target's, so that its address is free after it.
pub(super) fn frees_address(step: &Step) -> bool {
    match &step.action {
        Action::RemoveGeom { geom: from } | Action::ModifyGeom { from, .. } => {
            from.class == FS_CLASS
        }
        Action::Daemon { from, to } => from.metrics_listen != to.metrics_listen,
        _ => false,
    }
}

impl Daemon {
    /// The files that a step uses, for the control thread, which reads none.
    pub(super) fn read_ahead(&self, action: &Action) -> Result<ReadAhead> {
        let config = match action {
            Action::Renew { .. } => Some(self.mailbox.query(Query::Config)?),
            _ => None,
        };
        self.files.read_ahead(action, config, open_deadline(self.registry.login_gate()))
    }

    /// The result of a check of the object `at`, if it ends in time.
    pub(super) fn check_in_time(
        &self,
        op: &str,
        at: &str,
        check: impl FnOnce() -> Result<()> + Send + 'static,
    ) -> Result<()> {
        checked_within(open_deadline(self.registry.login_gate()), (op, at), check)
    }

    /// Why the sandbox forbids an action, if the folders of its files answer in time.
    pub(super) fn check_sandbox(&self, action: &Action) -> Result<()> {
        if !sandbox::looks_at_paths(action) {
            return Ok(());
        }
        if let Action::CreateDisk { disk } = action
            && may_hang(disk)
        {
            // Calls that hang are counted for its file system.
            return self.check_disk(disk, |disk| {
                sandbox::check(&Action::CreateDisk { disk: disk.clone() })
            });
        }
        let own = action.clone();
        self.check_in_time("check the sandbox", &action.name(), move || sandbox::check(&own))
    }

    /// Why the section of an action could not be carried out, by its files.
    pub(super) fn check_section(&self, action: &Action) -> Result<()> {
        if !exports::has_sources(action) {
            return check_named(action);
        }
        let own = action.clone();
        self.check_in_time("read files", &action.name(), move || check_named(&own))
    }

    /// Why a file server could not listen at the addresses that an edit of its section adds, after
    /// the steps `before`: another process has one. The plan itself reports other parts of the
    /// daemon.
    pub(super) fn check_listeners(
        &self,
        from: &GeomConfig,
        to: &GeomConfig,
        before: &[Step],
    ) -> Result<()> {
        if to.class != FS_CLASS || before.iter().any(frees_address) {
            return Ok(());
        }
        let params = |geom: &GeomConfig| Value::Object(geom.params.clone());
        let mut added = FsClass::added_addresses(&params(from), &params(to));
        if added.is_empty() {
            return Ok(());
        }
        let held = self.mailbox.query(Query::Portals)?;
        let held: Vec<SocketAddr> = held.iter().filter_map(|at| at.parse().ok()).collect();
        added.retain(|at| !held.iter().any(|held| listeners_overlap(*held, *at)));
        let check = move || exports::check_addresses(&added);
        self.check_in_time("change geom", &to.name, check)
    }

    /// Why the files of a section could not be read again after the steps `before`.
    pub(super) fn check_renewed(&self, of: &FileSection, before: &[Step]) -> Result<()> {
        let mut config = self.mailbox.query(Query::Config)?;
        before.iter().for_each(|step| step.action.apply_to(&mut config));
        let own = of.clone();
        self.check_in_time("read files anew", of.name(), move || check_files(&own, &config))
    }
}
