//! Turns of the commands that change the daemon. One has its turn at a time, and a command that
//! waits too long for its own is refused with the progress of the other.

use crate::api::{Error, Kind, ProgressLine, Result};
use crate::plant::Plant;
use bio::sync::{Condvar, Mutex};
use std::time::{Duration, Instant};

/// The command that has its turn.
struct Holder {
    /// Its name.
    what: &'static str,
    since: Instant,
    /// The progress that it reported last; empty: none.
    progress: String,
}

/// The turns of a daemon.
#[derive(Default)]
pub struct Turns {
    holder: Mutex<Option<Holder>>,
    /// A turn is over.
    freed: Condvar,
}

/// The turn of a command, until it is dropped.
pub struct Turn<'t>(&'t Turns);

impl Turns {
    /// Waits for the turn of a command.
    pub fn take(&self, what: &'static str) -> Turn<'_> {
        let is_taken = |holder: &mut Option<Holder>| holder.is_some();
        let mut holder = self.freed.wait_while(self.holder.lock(), is_taken);
        *holder = Some(Holder::new(what));
        Turn(self)
    }

    /// The same, for so long at most.
    ///
    /// # Errors
    /// [`Kind::Busy`]: another command still has its turn.
    pub fn take_within(&self, what: &'static str, limit: Duration) -> Result<Turn<'_>> {
        let is_taken = |holder: &mut Option<Holder>| holder.is_some();
        let mut holder = self.freed.wait_timeout_while(self.holder.lock(), limit, is_taken);
        if let Some(other) = &*holder {
            return Err(other.refusal(what, limit));
        }
        *holder = Some(Holder::new(what));
        Ok(Turn(self))
    }

    /// The same, and waits as long until the daemon has ended work of its own.
    ///
    /// # Errors
    /// As [`Turns::take_within`], and [`Kind::Busy`] when that work has not ended.
    pub fn take_ready(
        &self,
        plant: &dyn Plant,
        what: &'static str,
        limit: Duration,
    ) -> Result<Turn<'_>> {
        let turn = self.take_within(what, limit)?;
        plant.wait_ready(limit)?;
        Ok(turn)
    }
}

impl Turn<'_> {
    /// Records the progress of the command, for those that wait.
    pub fn report(&self, line: &ProgressLine) {
        if let Some(holder) = &mut *self.0.holder.lock() {
            holder.progress.clone_from(&line.what);
        }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        *self.0.holder.lock() = None;
        self.0.freed.notify_one();
    }
}

impl Holder {
    fn new(what: &'static str) -> Holder {
        Holder { what, since: Instant::now(), progress: String::new() }
    }

    /// The refusal of a command that has waited for this one.
    fn refusal(&self, what: &str, limit: Duration) -> Error {
        let (other, seconds) = (self.what, self.since.elapsed().as_secs());
        let progress = match self.progress.as_str() {
            "" => String::new(),
            progress => format!(", and its last progress is: {progress}"),
        };
        let why = format!(
            "busy: the running {other} began {seconds} s ago{progress} (waited {} s, the limit)",
            limit.as_secs()
        );
        let next = "`ashlar status` lists disks that do not answer; repeat the command later.";
        Error::new(Kind::Busy, what, why).at("daemon").next(next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::FakePlant;

    /// C4 of service/mod.rs.
    #[test]
    fn command_is_refused_while_the_daemon_does_work_of_its_own() {
        let (turns, plant) = (Turns::default(), FakePlant::new());
        let busy = Error::new(Kind::Busy, "change", "busy: the daemon does `create geom m`");
        plant.set_busy(busy.clone());
        let refused = turns.take_ready(&plant, "undo", Duration::ZERO).err();
        assert_eq!(refused, Some(busy));
        assert!(turns.take_within("undo", Duration::ZERO).is_ok(), "its turn is over");
    }

    /// C4 of service/mod.rs.
    /// P1 of plant.rs.
    #[test]
    fn waiting_command_is_refused_with_the_progress_of_the_running_one() {
        let turns = Turns::default();
        let turn = turns.take("apply");
        let refused = |what| turns.take_within(what, Duration::ZERO).err().expect("taken");
        let text = refused("undo").to_string();
        assert!(text.contains("daemon: busy: the running apply began"), "{text}");
        let what = "disk slow is being opened (for 3 s, at most 15 s)".to_owned();
        turn.report(&ProgressLine { what: what.clone(), ..ProgressLine::default() });
        let error = refused("undo");
        assert!(error.kind == Kind::Busy && error.source.contains(&what), "{error}");
        assert!(error.source.contains("(waited 0 s, the limit)"), "{error}");
        drop(turn);
        assert!(turns.take_within("undo", Duration::ZERO).is_ok());
    }
}
