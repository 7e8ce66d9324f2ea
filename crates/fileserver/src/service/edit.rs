//! Edits of the section of a file server that serves.
//!
//! Invariants
//!  E1  An edit that is refused leaves listeners, keys and settings as they were.
//!  E2  A setting that a verb has changed stays so until an edit changes its key.
//!  E3  Edits take effect one after the other. One whose caller has given up before its listeners
//!      change is dropped: nothing changes after an `apply` that has failed.

use std::rc::Rc;

use bio::Errno;
use geom::Error;

use super::host::Host;
use super::params::FsParams;
use super::shared::Edit;
use crate::console;

impl Host {
    /// Takes over the settings of an edited section, in its turn (E3). Clients stay connected.
    pub(super) async fn edit(self: &Rc<Self>, number: u64, edit: Edit) -> Result<(), Error> {
        loop {
            let seen = self.edit_ended.count();
            if !self.is_editing.replace(true) {
                break;
            }
            self.edit_ended.after(seen).await;
        }
        let done = self.edit_alone(number, edit).await;
        self.end_edit();
        done
    }

    /// The next edit may begin.
    pub(super) fn end_edit(&self) {
        self.is_editing.set(false);
        self.edit_ended.notify_all();
    }

    async fn edit_alone(self: &Rc<Self>, number: u64, edit: Edit) -> Result<(), Error> {
        let Edit { params, keys } = edit;
        self.files()?;
        console::users::add_everybody(self, params.everybody.as_deref()).await?;
        if !self.shared.is_awaited(number) {
            let what = format!("{}: the caller of the edit has given up", self.shared.name);
            return Err(Error::new(Errno::Canceled, what));
        }
        let (was, life) = (self.shared.params(), self.generation.get());
        let everybody = self.everybody.get();
        let keys = self.shared.replace_keys(keys);
        self.set_everybody(params.everybody.as_deref());
        let done = self.set_listeners_and_disks(&was, &params).await;
        let done = done.and_then(|()| self.check_life(life));
        if let Err(e) = done.and_then(|()| self.take_over(&was, &params)) {
            self.everybody.set(everybody);
            self.shared.replace_keys(keys);
            return Err(e);
        }
        self.shared.set_params(params);
        self.clock_changed.notify_all();
        self.update_status();
        Ok(())
    }

    async fn set_listeners_and_disks(
        self: &Rc<Self>,
        was: &FsParams,
        is: &FsParams,
    ) -> Result<(), Error> {
        self.listen(is).await?;
        let disks = self.set_disks(is.disks.clone()).await;
        if disks.is_err() {
            // The error of the disks is the one to report.
            let _ = self.listen(was).await;
        }
        disks
    }

    /// Applies the settings that cannot be refused (E2).
    fn take_over(self: &Rc<Self>, was: &FsParams, is: &FsParams) -> Result<(), Error> {
        let files = self.files()?;
        self.server.login_ns.set(is.login_ns());
        files.set_fastworm(is.fastworm);
        if is.ahead() != was.ahead() {
            files.set_read_ahead(is.ahead());
        }
        if is.memory() != was.memory() {
            self.resize_cache(files.clone(), is.memory());
        }
        if is.noattach != was.noattach {
            self.server.noattach.set(is.noattach);
        }
        if is.nonone != was.nonone {
            self.server.nonone.set(is.nonone);
        }
        if is.nodump != was.nodump {
            self.dumps_on.set(!is.nodump);
        }
        Ok(())
    }
}
