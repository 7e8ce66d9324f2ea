//! First connections to servers, each on a thread of its own: the control thread does not wait.
//!
//! ```text
//!   begin --> runs --> found: an event --taken by `open`, or 60 s--> forgotten
//!                  \-> failed -------------reported once-----------> forgotten
//! ```

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bio::Errno;
use bio::sync::{Condvar, Mutex};
use geom::Error;
use serde_json::Value;

use crate::arrivals::Arrivals;
use crate::params;

/// Longest time that a connection waits to be taken.
const KEPT: Duration = Duration::from_secs(60);

enum Probe<T> {
    Runs,
    Found(Box<T>),
    Failed(Error),
}

/// By the disk's parameters.
type ProbeTable<T> = BTreeMap<String, Probe<T>>;

/// The first connections of a kind of disk. `T` is a server that was reached.
pub(crate) struct Probes<T> {
    kind: &'static str,
    table: Mutex<ProbeTable<T>>,
    changed: Condvar,
}

/// A disk whose server is queried.
#[derive(Clone, Copy)]
pub(crate) struct Subject<'a> {
    pub(crate) name: &'a str,
    pub(crate) params: &'a Value,
}

/// Connects to the server of a disk, by its name and parameters. Blocks.
pub(crate) type Dial<T> = fn(&str, &Value) -> Result<T, Error>;

impl<T: Send + 'static> Probes<T> {
    pub(crate) const fn new(kind: &'static str) -> Probes<T> {
        Probes { kind, table: Mutex::new(BTreeMap::new()), changed: Condvar::new() }
    }

    /// Whether the server of a disk answered; otherwise probes it and posts its answer to
    /// `arrivals`.
    pub(crate) fn is_reachable(
        &'static self,
        disk: Subject<'_>,
        arrivals: &Arc<Arrivals>,
        dial: Dial<T>,
    ) -> bool {
        let key = disk.params.to_string();
        let mut table = self.table.lock();
        match table.get(&key) {
            Some(Probe::Found(_)) => return true,
            Some(Probe::Runs) => return false,
            Some(Probe::Failed(_)) | None => table.insert(key.clone(), Probe::Runs),
        };
        drop(table);
        self.begin(disk, key, arrivals.clone(), dial);
        false
    }

    /// Waits until the server of a disk has answered.
    ///
    /// # Errors
    /// Why it has not, at most after `most`. The search continues then.
    pub(crate) fn wait(
        &'static self,
        disk: Subject<'_>,
        most: Duration,
        dial: Dial<T>,
    ) -> Result<(), Error> {
        let key = disk.params.to_string();
        if !self.table.lock().contains_key(&key) {
            // The caller waits for its answer itself.
            self.is_reachable(disk, &Arc::default(), dial);
        }
        let runs = |table: &mut ProbeTable<T>| matches!(table.get(&key), Some(Probe::Runs));
        let mut table = self.changed.wait_timeout_while(self.table.lock(), most, runs);
        match table.get(&key) {
            // An entry that vanished was taken: the disk is there, or its server is queried again.
            Some(Probe::Found(_)) | None => Ok(()),
            Some(Probe::Failed(e)) => {
                let e = e.clone();
                table.remove(&key);
                Err(e)
            }
            Some(Probe::Runs) => {
                let why = "its server does not answer in time".to_owned();
                Err(params::refuse(self.kind, disk.name, Errno::Io, why))
            }
        }
    }

    /// The server that was found.
    pub(crate) fn take(&self, params: &Value) -> Option<T> {
        let key = params.to_string();
        let mut table = self.table.lock();
        match table.remove(&key) {
            Some(Probe::Found(reached)) => {
                self.changed.notify_all();
                Some(*reached)
            }
            Some(other) => {
                table.insert(key, other);
                None
            }
            None => None,
        }
    }

    fn begin(
        &'static self,
        disk: Subject<'_>,
        key: String,
        arrivals: Arc<Arrivals>,
        dial: Dial<T>,
    ) {
        let (name, params, own) = (disk.name.to_owned(), disk.params.clone(), key.clone());
        let probe = move || {
            let reached = dial(&name, &params);
            let is_found = reached.is_ok();
            let probe = match reached {
                Ok(reached) => Probe::Found(Box::new(reached)),
                Err(e) => Probe::Failed(e),
            };
            let mut table = self.table.lock();
            table.insert(own.clone(), probe);
            self.changed.notify_all();
            if is_found {
                arrivals.post(&name);
            }
            let is_kept =
                |table: &mut ProbeTable<T>| matches!(table.get(&own), Some(Probe::Found(_)));
            let mut table = self.changed.wait_timeout_while(table, KEPT, is_kept);
            if is_kept(&mut table) {
                table.remove(&own);
            }
        };
        let started = std::thread::Builder::new().name("disk probe".to_owned()).spawn(probe);
        if started.is_err() {
            // No thread can be had now: it is tried again.
            self.table.lock().remove(&key);
            self.changed.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A server that is found at once.
    fn found(_: &str, _: &Value) -> Result<u32, Error> {
        Ok(7)
    }

    #[test]
    fn answer_of_a_server_is_an_event_and_kept_until_it_is_taken() {
        static PROBES: Probes<u32> = Probes::new("test");
        let (params, inbox) = (json!({ "address": "a" }), Arc::new(geom::Inbox::default()));
        let arrivals = Arc::new(Arrivals::new(inbox.clone()));
        let disk = Subject { name: "d", params: &params };
        assert!(!PROBES.is_reachable(disk, &arrivals, found));
        inbox.sleep(Duration::from_secs(60));
        assert_eq!(arrivals.take(), ["d"]);
        assert_eq!(PROBES.wait(disk, Duration::ZERO, found), Ok(()));
        assert!(PROBES.is_reachable(disk, &arrivals, found));
        assert_eq!((PROBES.take(&params), PROBES.take(&params)), (Some(7), None));
        assert!(arrivals.take().is_empty(), "an answer is one event");
    }
}
