//! Listening Unix sockets that several cores share.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use bio::sync::Mutex;
use reactor::{Address, Parcel, Reactor, UnixListener};

/// A listening socket between cores.
struct Entry {
    /// The socket, for the next core; None after a core that could not open it.
    parcel: Option<Parcel>,
    /// Cores that listen.
    cores: usize,
}

/// By path. The lock is held while a core opens a socket: two cores that found none would both bind
/// the path.
#[derive(Default)]
pub struct UnixSockets(Mutex<BTreeMap<String, Entry>>);

impl UnixSockets {
    /// Opens the socket at `path` on one more core. The first core binds it, and `prepare` runs
    /// before clients can connect.
    pub fn open(
        &self,
        reactor: &Reactor,
        path: &str,
        prepare: impl FnOnce(&Path) -> io::Result<()>,
    ) -> io::Result<UnixListener> {
        let mut all = self.0.lock();
        let (parcel, cores) = match all.get_mut(path) {
            Some(entry) => (entry.parcel.take(), entry.cores),
            None => (None, 0),
        };
        let listener = match parcel {
            Some(parcel) => reactor.attach_unix(parcel)?,
            None => reactor.listen_unix_prepared(path, prepare)?,
        };
        let parcel = Some(listener.share()?);
        all.insert(path.to_owned(), Entry { parcel, cores: cores + 1 });
        Ok(listener)
    }

    /// Runs `change` for those paths that cores listen at.
    pub fn change_files(
        &self,
        listen: &[Address],
        change: impl Fn(&Path) -> io::Result<()>,
    ) -> io::Result<()> {
        let all = self.0.lock();
        let paths = listen.iter().filter_map(|at| at.unix());
        let mut open = paths.filter(|path| all.contains_key(*path));
        open.try_for_each(|path| change(Path::new(path)))
    }

    /// Closes the socket on a core; the last core removes the path.
    pub fn close(&self, path: &str) {
        let mut all = self.0.lock();
        let Some(entry) = all.get_mut(path) else { return };
        entry.cores = entry.cores.saturating_sub(1);
        if entry.cores == 0 {
            all.remove(path);
            // It may have been removed by another program.
            let _ = std::fs::remove_file(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread;
    use std::time::Duration;

    use reactor::Config;

    use super::*;

    #[test]
    fn cores_that_open_a_path_at_once_share_it() {
        let scratch = rig::proc::Scratch::new("unix-sockets").unwrap();
        let path = scratch.path().join("s").to_str().unwrap().to_owned();
        let (sockets, bound) = (UnixSockets::default(), AtomicUsize::new(0));
        let at_once = Barrier::new(3);
        let open = || {
            let reactor = Reactor::start(Config::default()).unwrap();
            at_once.wait();
            let opened = sockets.open(&reactor, &path, |_| {
                bound.fetch_add(1, Ordering::Relaxed);
                // Long enough for the other cores to wait for the lock.
                thread::sleep(Duration::from_millis(20));
                Ok(())
            });
            drop(opened.unwrap());
        };
        thread::scope(|all| {
            let cores = [(); 3].map(|()| all.spawn(open));
            cores.into_iter().for_each(|core| core.join().unwrap());
        });
        assert_eq!(bound.load(Ordering::Relaxed), 1);
        for cores in [2, 1, 0] {
            sockets.close(&path);
            assert_eq!(Path::new(&path).exists(), cores > 0);
        }
    }
}
