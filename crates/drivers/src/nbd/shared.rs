//! What all cores of the driver share: targets and listening Unix sockets.
//!
//! Locks are held for look-ups in handshakes, and while a core opens a Unix socket.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bio::sync::{Mutex, MutexGuard};
use engine::Registry;
use reactor::{Address, Parcel};

use super::file::SocketFile;
use super::params::Checked;
use crate::common::entrance::Strain;
use crate::common::targets::Targets;

/// A listening Unix socket between cores.
struct Door {
    /// The socket, for the next core; None after a core that could not open it.
    parcel: Option<Parcel>,
    /// Cores that listen.
    cores: usize,
}

/// What all cores share.
pub(crate) struct Shared {
    pub registry: Arc<Registry>,
    /// Connections of one core; a further one is reset.
    pub connections_max: usize,
    pub targets: Targets<Checked>,
    pub strain: Strain,
    connections: AtomicU64,
    doors: Mutex<BTreeMap<String, Door>>,
}

impl Shared {
    /// Without targets.
    pub fn new(registry: Arc<Registry>, connections_max: usize) -> Arc<Shared> {
        let (targets, strain, connections, doors) = Default::default();
        Arc::new(Shared { registry, connections_max, targets, strain, connections, doors })
    }

    fn doors(&self) -> MutexGuard<'_, BTreeMap<String, Door>> {
        self.doors.lock()
    }

    /// A number for a connection; never given twice.
    pub fn next_connection(&self) -> u64 {
        self.connections.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// A core listens at the path of a Unix socket: `open` gets the socket of the cores that do so
    /// already, and answers with one more for the next. One core at a time, for two that found
    /// none would both bind the path.
    pub fn enter_door<L>(
        &self,
        path: &str,
        open: impl FnOnce(Option<Parcel>) -> io::Result<(L, Parcel)>,
    ) -> io::Result<L> {
        let mut doors = self.doors();
        let (parcel, cores) = match doors.get_mut(path) {
            Some(door) => (door.parcel.take(), door.cores),
            None => (None, 0),
        };
        let (listener, parcel) = open(parcel)?;
        doors.insert(path.to_owned(), Door { parcel: Some(parcel), cores: cores + 1 });
        Ok(listener)
    }

    /// Gives the files of those sockets at which cores listen already their owner and mode.
    pub fn change_files(&self, listen: &[Address], file: &SocketFile) -> io::Result<()> {
        let doors = self.doors();
        let paths = listen.iter().filter_map(|at| at.unix());
        let mut open = paths.filter(|path| doors.contains_key(*path));
        open.try_for_each(|path| file.apply(Path::new(path)))
    }

    /// A core listens no more; the path goes with the last one.
    pub fn leave_door(&self, path: &str) {
        let mut doors = self.doors();
        let Some(door) = doors.get_mut(path) else { return };
        door.cores = door.cores.saturating_sub(1);
        if door.cores == 0 {
            doors.remove(path);
            // Gone already: somebody else has taken it away.
            let _ = std::fs::remove_file(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::thread;
    use std::time::Duration;

    use reactor::{Config, Reactor};

    use super::*;

    #[test]
    fn cores_that_open_a_path_at_once_share_it() {
        let scratch = rig::proc::Scratch::new("nbd-doors").unwrap();
        let path = scratch.path().join("s").to_str().unwrap().to_owned();
        let shared = Shared::new(Registry::new(), 1);
        let at_once = Barrier::new(3);
        let open = || {
            let reactor = Reactor::start(Config::default()).unwrap();
            at_once.wait();
            let mut first = false;
            let entered = shared.enter_door(&path, |parcel| {
                first = parcel.is_none();
                // Long enough for the others to come to the door.
                thread::sleep(Duration::from_millis(20));
                let listener = match parcel {
                    Some(parcel) => reactor.attach_unix(parcel)?,
                    None => reactor.listen_unix(&path)?,
                };
                let next = listener.share()?;
                Ok((listener, next))
            });
            drop(entered.unwrap());
            first
        };
        let firsts = thread::scope(|all| {
            let cores = [(); 3].map(|()| all.spawn(open));
            cores.map(|core| core.join().unwrap())
        });
        assert_eq!(firsts.iter().filter(|first| **first).count(), 1);
        for cores in [2, 1, 0] {
            shared.leave_door(&path);
            assert_eq!(std::path::Path::new(&path).exists(), cores > 0);
        }
    }
}
