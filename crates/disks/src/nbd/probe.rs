//! First connections to servers, each on a thread of its own: the control thread does not wait.
//!
//! ```text
//!   begin --> runs --> found --taken by `open`, or 60 s--> forgotten
//!                  \-> failed --reported once------------> forgotten
//! ```

use std::collections::BTreeMap;
use std::time::Duration;

use bio::Errno;
use bio::sync::{Condvar, Mutex};
use geom::Error;
use serde_json::Value;

use super::child::Server;
use super::dial::{ConnectParams, OpenConnection};
use super::{NbdParams, reach};
use crate::params;

/// Longest time that a connection waits to be taken.
const KEPT: Duration = Duration::from_secs(60);

/// A server that was reached.
pub(crate) struct Reached {
    pub(crate) wanted: ConnectParams,
    pub(crate) server: Option<Server>,
    pub(crate) first: OpenConnection,
}

enum Probe {
    Runs,
    Found(Box<Reached>),
    Failed(Error),
}

/// By the disk's parameters.
type Probes = BTreeMap<String, Probe>;

static PROBES: Mutex<Probes> = Mutex::new(BTreeMap::new());
/// Of `PROBES`: one has changed.
static CHANGED: Condvar = Condvar::new();

/// Whether the server of a disk answered; asks it otherwise.
pub(crate) fn is_reachable(name: &str, params: &Value) -> bool {
    let key = params.to_string();
    let mut probes = PROBES.lock();
    match probes.get(&key) {
        Some(Probe::Found(_)) => return true,
        Some(Probe::Runs) => return false,
        Some(Probe::Failed(_)) | None => probes.insert(key.clone(), Probe::Runs),
    };
    drop(probes);
    begin(name, params, key);
    false
}

/// Waits until the server of a disk has answered.
///
/// # Errors
/// Why it has not, at most after `most`. The search continues then.
pub(crate) fn wait(name: &str, params: &Value, most: Duration) -> Result<(), Error> {
    let key = params.to_string();
    if !PROBES.lock().contains_key(&key) {
        is_reachable(name, params);
    }
    let runs = |probes: &mut Probes| matches!(probes.get(&key), Some(Probe::Runs));
    let mut probes = CHANGED.wait_timeout_while(PROBES.lock(), most, runs);
    match probes.get(&key) {
        // An entry that vanished was taken: the disk is there, or its server is asked again.
        Some(Probe::Found(_)) | None => Ok(()),
        Some(Probe::Failed(e)) => {
            let e = e.clone();
            probes.remove(&key);
            Err(e)
        }
        Some(Probe::Runs) => Err(late(name)),
    }
}

fn late(name: &str) -> Error {
    params::refuse("nbd", name, Errno::Io, "its server does not answer in time".to_owned())
}

/// The server that was found.
pub(crate) fn take(params: &Value) -> Option<Reached> {
    let key = params.to_string();
    let mut probes = PROBES.lock();
    match probes.remove(&key) {
        Some(Probe::Found(reached)) => {
            CHANGED.notify_all();
            Some(*reached)
        }
        Some(other) => {
            probes.insert(key, other);
            None
        }
        None => None,
    }
}

fn begin(name: &str, params: &Value, key: String) {
    let (name, params, own) = (name.to_owned(), params.clone(), key.clone());
    let dial = move || {
        let read = params::read::<NbdParams>("nbd", &name, &params);
        let reached = read.and_then(|p| reach(&name, &p));
        let probe = match reached {
            Ok(reached) => Probe::Found(Box::new(reached)),
            Err(e) => Probe::Failed(e),
        };
        let mut probes = PROBES.lock();
        probes.insert(own.clone(), probe);
        CHANGED.notify_all();
        let is_kept = |probes: &mut Probes| matches!(probes.get(&own), Some(Probe::Found(_)));
        let mut probes = CHANGED.wait_timeout_while(probes, KEPT, is_kept);
        if is_kept(&mut probes) {
            probes.remove(&own);
        }
    };
    let started = std::thread::Builder::new().name("nbd probe".to_owned()).spawn(dial);
    if started.is_err() {
        // No thread can be had now: it is tried again.
        PROBES.lock().remove(&key);
        CHANGED.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use serde_json::json;

    use super::*;

    #[test]
    fn absent_server_differs_from_one_that_refuses() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let params = json!({ "address": listener.local_addr().unwrap().to_string() });
        let kind = || wait("d", &params, Duration::from_secs(60)).unwrap_err().kind;
        std::thread::scope(|scope| {
            scope.spawn(|| drop(listener.accept()));
            assert_eq!(kind(), Errno::Io, "it closes the connection");
        });
        drop(listener);
        assert_eq!(kind(), Errno::NxIo);
    }
}
