//! Clients of the simulated file server: their operations on the files, and the model of the files.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use bio::Pool;
use fileserver::Fault;
use fileserver::files::{Change, Kind, New, Served};
use fileserver::volume::View;
use reactor::SeededRandom;

use super::model::{self, History, has_below, is_dir, walk};
use super::server::lend;

/// What sets clients of one kind of storage apart: its blocks are larger, its devices smaller.
pub struct Habits {
    /// Names in a directory.
    pub names: u64,
    /// Most bytes of a write, and of one in ten.
    pub longest: (u64, u64),
    /// Parts in which memory is lent.
    pub part: usize,
}

/// The model, and chance.
pub struct Beside {
    pub habits: Habits,
    pub history: RefCell<History>,
    /// States that a power cut may not take away: the last of so many, or a later one.
    pub synced: Cell<usize>,
    /// How often something was synced.
    pub syncs: Cell<u64>,
    random: RefCell<SeededRandom>,
}

impl Beside {
    pub fn new(habits: Habits, random: SeededRandom) -> Beside {
        Beside {
            habits,
            history: RefCell::default(),
            synced: Cell::new(0),
            syncs: Cell::new(0),
            random: RefCell::new(random),
        }
    }

    pub fn below(&self, n: u64) -> u64 {
        self.random.borrow_mut().below(n)
    }

    pub fn chance(&self, per_mille: u32) -> bool {
        self.random.borrow_mut().chance(per_mille)
    }

    /// The first `states` states are durable.
    pub fn is_synced(&self, states: usize) {
        self.synced.set(self.synced.get().max(states));
    }

    /// Checks that the state after a start is not older than the last sync; returns the number of
    /// lost changes.
    pub fn found(&self, found: &model::Tree) -> u64 {
        let history = self.history.borrow();
        let last = history.len();
        let least = self.synced.get().saturating_sub(1);
        let Some(at) = history.find(least..last, found) else {
            let earlier = history.find(0..least, found);
            let differ = model::differ(history.now(), found);
            panic!("what is found is none of states {least}..{last}, but {earlier:?}: {differ:?}");
        };
        drop(history);
        self.continue_from(found);
        (last - 1 - at) as u64
    }

    /// The files are these. Dumps that were not looked at keep their states' numbers: nothing is
    /// taken away, the state is only the last one again.
    pub fn continue_from(&self, found: &model::Tree) {
        let mut history = self.history.borrow_mut();
        history.become_as(found);
        self.synced.set(history.len());
    }

    fn name(&self) -> String {
        format!("n{}", self.below(self.habits.names))
    }

    /// A path to a directory that exists in the model, or the root's.
    fn directory(&self) -> String {
        self.history.borrow().directory(|n| self.below(n + 2))
    }

    fn bytes(&self, len: usize) -> Vec<u8> {
        let first = self.below(251) as u8;
        let period: Vec<u8> = (0..=u8::MAX).flat_map(|i| [first.wrapping_add(i) | 1; 7]).collect();
        let mut bytes = period.repeat(len.div_ceil(period.len()));
        bytes.truncate(len);
        bytes
    }

    /// One operation of a client. The model changes in the same poll in which the operation ends.
    pub async fn operation(&self, fs: &Served, pool: &Pool) -> Result<(), Fault> {
        let dir = self.directory();
        let leaf = self.name();
        match self.below(100) {
            0..15 => self.create(fs, &dir, &leaf).await,
            15..55 => self.write(fs, pool, &format!("{dir}/{leaf}")).await,
            55..70 => self.remove(fs, &dir, &leaf).await,
            70..80 => self.rename(fs, &dir, &leaf).await,
            80..92 => self.read(fs, &dir, &leaf).await,
            _ => {
                let at = self.history.borrow().len();
                fs.sync().await?;
                self.is_synced(at);
                self.syncs.set(self.syncs.get() + 1);
                Ok(())
            }
        }
    }

    async fn create(&self, fs: &Served, dir: &str, leaf: &str) -> Result<(), Fault> {
        let path = format!("{dir}/{leaf}");
        let kind = if self.chance(350) { Kind::Dir } else { Kind::File };
        let new = New { kind, mode: 0o644, uid: 7, gid: 8, ..New::default() };
        let done = fs
            .run(|f| {
                let at = walk(f, View::Live, dir)?;
                f.create(at, leaf.as_bytes(), &new)
            })
            .await;
        let mut history = self.history.borrow_mut();
        let there = history.now().contains_key(&path);
        match done {
            Ok(_) => {
                assert!(!there, "{path} was made twice");
                history.put(&path, Some((kind == Kind::File).then(Rc::default)));
            }
            Err(Fault::Exists) => assert!(there, "{path} exists"),
            Err(Fault::NotFound | Fault::NotDir) => assert!(!is_dir(history.now(), dir)),
            Err(fault) => return Err(fault),
        }
        Ok(())
    }

    async fn remove(&self, fs: &Served, dir: &str, leaf: &str) -> Result<(), Fault> {
        let path = format!("{dir}/{leaf}");
        let done = fs
            .run(|f| {
                let at = walk(f, View::Live, dir)?;
                f.remove(at, leaf.as_bytes(), 3)
            })
            .await;
        let mut history = self.history.borrow_mut();
        let there = history.now().contains_key(&path);
        match done {
            Ok(_) => {
                assert!(there && !has_below(history.now(), &path), "{path} was removed");
                history.put(&path, None);
            }
            Err(Fault::NotFound) => assert!(!there, "{path} is not found"),
            Err(Fault::NotEmpty) => assert!(has_below(history.now(), &path)),
            Err(Fault::NotDir) => assert!(!is_dir(history.now(), dir)),
            Err(fault) => return Err(fault),
        }
        Ok(())
    }

    async fn read(&self, fs: &Served, dir: &str, leaf: &str) -> Result<(), Fault> {
        let path = format!("{dir}/{leaf}");
        let done = fs
            .run(|f| {
                let at = walk(f, View::Live, dir)?;
                let Some(ino) = f.lookup(View::Live, at, leaf.as_bytes())? else {
                    return Ok(None);
                };
                if f.inode(View::Live, ino)?.kind == Kind::Dir {
                    return Ok(None);
                }
                model::read_all(f, View::Live, ino).map(Some)
            })
            .await;
        let history = self.history.borrow();
        match done {
            Ok(found) => {
                let wanted = history.now().get(&path).cloned().flatten();
                let same = found.as_ref() == wanted.as_deref();
                assert!(same, "{path}: {:?} for {:?}", found.map(|b| b.len()), wanted);
            }
            Err(Fault::NotFound) => {}
            Err(Fault::NotDir) => assert!(!is_dir(history.now(), dir)),
            Err(fault) => return Err(fault),
        }
        Ok(())
    }

    async fn write(&self, fs: &Served, pool: &Pool, path: &str) -> Result<(), Fault> {
        let size = self.history.borrow().now().get(path).cloned().flatten().map_or(0, |c| c.len());
        let offset = self.below(size as u64 * 5 / 4 + 2) as usize;
        let (usual, rare) = self.habits.longest;
        let longest = if self.chance(100) { rare } else { usual };
        let len = self.below(longest) as usize + 1;
        let cut = self.chance(200);
        let data = self.bytes(len);
        let lent = lend(pool, &data, self.habits.part);
        let done = fs
            .run(|f| {
                let ino = walk(f, View::Live, path)?;
                if cut {
                    let change = Change { size: Some(offset as u64), by: 1, ..Change::default() };
                    return f.set(ino, &change).map(|()| 0);
                }
                f.write(ino, offset as u64, &lent, 1)
            })
            .await;
        let mut history = self.history.borrow_mut();
        let had = history.now().get(path).cloned().flatten();
        match (done, had) {
            (Ok(_), Some(had)) => {
                let mut next = (*had).clone();
                if cut {
                    next.resize(offset, 0);
                } else {
                    next.resize(next.len().max(offset + len), 0);
                    next[offset..offset + len].copy_from_slice(&data);
                }
                history.put(path, Some(Some(Rc::new(next))));
            }
            (Err(Fault::NotFound | Fault::IsDir), None) => {}
            (Err(Fault::NotDir), None) => {
                let dir = path.rsplit_once('/').map_or("", |(dir, _)| dir);
                assert!(!is_dir(history.now(), dir));
            }
            // A directory is cut to nothing without any effect.
            (Ok(0), None) if cut => {}
            (Err(fault), _) => return Err(fault),
            (done, had) => panic!("{path}: {done:?} for {had:?}"),
        }
        Ok(())
    }

    async fn rename(&self, fs: &Served, dir: &str, leaf: &str) -> Result<(), Fault> {
        let (to, new) = (self.directory(), self.name());
        let replace = self.chance(500);
        let (from_path, to_path) = (format!("{dir}/{leaf}"), format!("{to}/{new}"));
        let done = fs
            .run(|f| {
                let (a, b) = (walk(f, View::Live, dir)?, walk(f, View::Live, &to)?);
                f.rename(a, leaf.as_bytes(), b, new.as_bytes(), replace, 2)
            })
            .await;
        let mut history = self.history.borrow_mut();
        match done {
            Ok(()) if from_path == to_path => {}
            Ok(()) => history.rename(&from_path, &to_path),
            Err(Fault::NotFound) => {}
            Err(Fault::Exists) => assert!(!replace && history.now().contains_key(&to_path)),
            Err(Fault::NotEmpty) => assert!(has_below(history.now(), &to_path)),
            Err(Fault::IsDir | Fault::NotDir) => {
                let both = is_dir(history.now(), dir) && is_dir(history.now(), &to);
                assert!(replace || !both);
            }
            Err(Fault::Invalid(_)) => assert!(to.starts_with(&from_path)),
            Err(fault) => return Err(fault),
        }
        Ok(())
    }
}
