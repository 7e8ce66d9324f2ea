//! Checks of the files and addresses that sections name: on threads of their own, with a deadline,
//! because a file system or a resolver may hang.

use mgmt::api::Result;
use mgmt::plan::{Action, FileSection, Step};

use super::Daemon;
use super::opening::open_deadline;
use crate::buses;
use crate::catalog::check_geom;
use crate::control_loop::check_files;
use crate::exports;
use crate::mailbox::Query;
use crate::within::checked_within;

/// Why the section of an action could not be carried out, by its files. Blocks while one hangs.
fn check_named(action: &Action) -> Result<()> {
    match action {
        Action::CreateBus { bus } | Action::ModifyBus { to: bus, .. } => buses::check(bus),
        Action::CreateGeom { geom } => check_geom("create geom", geom),
        action => action.groups().try_for_each(exports::judge_group),
    }
}

impl Daemon {
    /// The result of a check of the object `at`, if it ends in time.
    pub(super) fn check_in_time(
        &self,
        op: &str,
        at: &str,
        check: impl FnOnce() -> Result<()> + Send + 'static,
    ) -> Result<()> {
        checked_within(open_deadline(self.registry.login_gate()), (op, at), check)
    }

    /// Why the section of an action could not be carried out, by its files.
    pub(super) fn check_section(&self, action: &Action) -> Result<()> {
        if !exports::has_sources(action) {
            return check_named(action);
        }
        let own = action.clone();
        self.check_in_time("read files", &action.name(), move || check_named(&own))
    }

    /// Why the files of a section could not be read again after the steps `before`.
    pub(super) fn check_renewed(&self, of: &FileSection, before: &[Step]) -> Result<()> {
        let mut config = self.mailbox.query(Query::Config)?;
        before.iter().for_each(|step| step.action.apply_to(&mut config));
        let own = of.clone();
        self.check_in_time("read files anew", of.name(), move || check_files(&own, &config))
    }
}
