//! The thread that attaches and detaches.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use control::api::AttachedState;
use drivers::local::{Grant, Life, request_max};

use super::host::{self, LoopDevice};
use super::{Job, Key, Place, Shared, Table};

/// How often it looks for what has changed: sizes, sessions that ended, groups.
const LOOK: Duration = Duration::from_millis(500);

/// How often something that failed is tried again.
const RETRY: Duration = Duration::from_secs(3);

/// Longest wait for a core to take a file system, or to let go of one.
const CORE_LIMIT: Duration = Duration::from_secs(5);

/// A LUN that is a block device.
pub struct Attached {
    grant: Grant,
    folder: PathBuf,
    file: PathBuf,
    device: LoopDevice,
    life: Arc<Life>,
    /// The size that the device was last told, bytes.
    bytes: u64,
    /// What is to be known about it.
    why: String,
}

impl Attached {
    /// For lists.
    pub fn state(&self, key: &Key) -> AttachedState {
        AttachedState {
            target: key.target.clone(),
            lun: key.lun,
            unit: self.grant.entry.device.spec().name.clone(),
            device: self.device.path(),
            file: self.file.display().to_string(),
            size_bytes: self.bytes,
            block_bytes: self.grant.entry.device.block_bytes(),
            read_only: self.grant.read_only,
            users: self.device.users(),
            why: self.why.clone(),
        }
    }
}

/// The thread's own.
pub struct Worker {
    shared: Arc<Shared>,
    tried: BTreeMap<Key, Instant>,
    cleaned: bool,
}

fn end(place: &Place, how: Result<(), String>) {
    *place.lock().unwrap_or_else(PoisonError::into_inner) = Some(how);
}

impl Worker {
    /// Nothing attached.
    pub fn new(shared: Arc<Shared>) -> Worker {
        Worker { shared, tried: BTreeMap::new(), cleaned: false }
    }

    /// Works until the daemon ends; then detaches everything.
    pub fn run(&mut self) {
        loop {
            let (jobs, ends) = self.sleep();
            for (job, place) in jobs {
                let how = self.job(job);
                end(&place, how);
                self.shared.inbox.nudge();
            }
            if ends {
                self.all(|_| true);
                return;
            }
            self.look();
        }
    }

    /// Waits for jobs, and no longer than until the next look. Without local targets there is
    /// nothing to look at.
    fn sleep(&self) -> (Vec<(Job, Place)>, bool) {
        let idle = self.shared.local.targets().is_empty();
        let limit = if idle { Duration::MAX } else { LOOK };
        let table = self.shared.table();
        let nothing = |t: &mut Table| t.jobs.is_empty() && !t.ends && !t.look;
        let bell = &self.shared.bell;
        let mut table = match limit {
            Duration::MAX => {
                bell.wait_while(table, nothing).unwrap_or_else(PoisonError::into_inner)
            }
            _ => {
                let waited = bell.wait_timeout_while(table, limit, nothing);
                waited.unwrap_or_else(PoisonError::into_inner).0
            }
        };
        table.look = false;
        (std::mem::take(&mut table.jobs), table.ends)
    }

    fn job(&mut self, job: Job) -> Result<(), String> {
        match job {
            Job::Attach(key) => {
                self.clean();
                self.shared.table().paused.remove(&key);
                if self.shared.table().attached.contains_key(&key) {
                    return Ok(());
                }
                self.attach(&key)?;
                self.shared.table().asked.insert(key);
                Ok(())
            }
            Job::Detach(key) => {
                self.detach(&key, false)?;
                let mut table = self.shared.table();
                table.asked.remove(&key);
                table.waiting.remove(&key);
                table.paused.insert(key);
                Ok(())
            }
            Job::Drop(target) => {
                self.all(|k| k.target == target);
                let mut table = self.shared.table();
                table.asked.retain(|k| k.target != target);
                table.waiting.retain(|k, _| k.target != target);
                table.paused.retain(|k| k.target != target);
                Ok(())
            }
        }
    }

    /// Detaches by force.
    fn all(&mut self, which: impl Fn(&Key) -> bool) {
        let keys: Vec<Key> = self.shared.table().attached.keys().cloned().collect();
        for key in keys.into_iter().filter(which) {
            if let Err(e) = self.detach(&key, true) {
                (self.shared.tell)(&key.target, format!("LUN {}: {e}", key.lun), true);
            }
        }
    }

    /// Takes away what a daemon before this one left, once.
    fn clean(&mut self) {
        if !std::mem::replace(&mut self.cleaned, true) {
            for line in host::clean_up() {
                (self.shared.tell)("local", line, false);
            }
        }
    }

    fn wanted(&self) -> BTreeSet<Key> {
        let targets = self.shared.local.targets();
        let table = self.shared.table();
        let one = |(t, p): (&String, &drivers::local::LocalParams)| {
            let target = t.clone();
            let keys = p.attach.iter().map(move |l| Key { target: target.clone(), lun: *l });
            keys.collect::<Vec<Key>>()
        };
        let configured = targets.iter().flat_map(one).filter(|k| !table.paused.contains(k));
        configured.chain(table.asked.iter().cloned()).collect()
    }

    fn look(&mut self) {
        if !self.shared.local.targets().is_empty() {
            self.clean();
        }
        let wanted = self.wanted();
        let there: Vec<Key> = self.shared.table().attached.keys().cloned().collect();
        for key in &there {
            self.look_at(key, wanted.contains(key));
        }
        self.shared.table().waiting.retain(|k, _| wanted.contains(k));
        for key in wanted {
            let due = self.tried.get(&key).is_none_or(|at| at.elapsed() >= RETRY);
            if !due || self.shared.table().attached.contains_key(&key) {
                continue;
            }
            self.tried.insert(key.clone(), Instant::now());
            if let Err(e) = self.attach(&key) {
                let was = self.shared.table().waiting.insert(key.clone(), e.clone());
                if was.as_ref() != Some(&e) {
                    (self.shared.tell)(&key.target, format!("LUN {}: {e}", key.lun), true);
                }
            }
        }
    }

    /// Looks at one that is attached.
    fn look_at(&mut self, key: &Key, wanted: bool) {
        let mut table = self.shared.table();
        let Some(attached) = table.attached.get_mut(key) else { return };
        let found = self.shared.local.find(&key.target, key.lun);
        let is_same = |now: &Grant| {
            let then = &attached.grant;
            Arc::ptr_eq(&now.entry.device, &then.entry.device) && now.read_only == then.read_only
        };
        // Another unit, or another right: what the kernel was told holds no longer.
        let granted = found.is_ok_and(|now| is_same(&now));
        let over = attached.life.is_over();
        let (bytes, device, file) =
            (attached.grant.bytes(), attached.device.clone(), attached.file.clone());
        let grown = bytes != attached.bytes;
        attached.bytes = bytes;
        drop(table);
        if over {
            (self.shared.tell)(&key.target, format!("LUN {}: its session ended", key.lun), true);
            // The next look attaches it again, if it may.
            self.tried.remove(key);
        }
        if over || !wanted || !granted {
            let done = self.detach(key, over);
            let why = match &done {
                Err(e) => format!("it shall go, but {e}"),
                Ok(()) => return,
            };
            if let Some(attached) = self.shared.table().attached.get_mut(key) {
                attached.why = why;
            }
            return;
        }
        if grown {
            // Older kernels look at what they know of the file: so it is asked for first.
            let seen = std::fs::metadata(&file).map(drop).map_err(|e| e.to_string());
            let told = seen.and_then(|()| device.see_size());
            let line = match &told {
                Ok(()) => format!("LUN {}: {bytes} bytes now", key.lun),
                Err(e) => format!("LUN {}: {} keeps its old size: {e}", key.lun, device.path()),
            };
            (self.shared.tell)(&key.target, line, told.is_err());
        }
    }

    fn attach(&mut self, key: &Key) -> Result<(), String> {
        let grant = self.shared.local.find(&key.target, key.lun).map_err(|e| e.what)?;
        let folder = PathBuf::from(host::FOLDER).join(format!("{}.{}", key.target, key.lun));
        let channel = host::open_fuse()?;
        host::mount_at(&folder, &channel, request_max(&grant.entry.device))?;
        let made = self.serve(channel, &grant, folder.clone());
        match made {
            Ok(attached) => {
                let (path, how) =
                    (attached.device.path(), if grant.read_only { "ro" } else { "rw" });
                let unit = grant.entry.device.spec().name.clone();
                let line = format!("LUN {} ({unit}) is {path}, {how}", key.lun);
                (self.shared.tell)(&key.target, line, false);
                let mut table = self.shared.table();
                table.waiting.remove(key);
                table.attached.insert(key.clone(), attached);
                Ok(())
            }
            Err(e) => {
                host::unmount_at(&folder, true)?;
                Err(e)
            }
        }
    }

    /// Has a core serve the mount, and makes the loop device.
    fn serve(
        &self,
        channel: std::os::fd::OwnedFd,
        grant: &Grant,
        folder: PathBuf,
    ) -> Result<Attached, String> {
        let life = Arc::<Life>::default();
        let (done, came) = sync_channel(1);
        self.shared.local.serve(channel, grant.clone(), life.clone(), done);
        let answer = came.recv_timeout(CORE_LIMIT);
        answer.map_err(|_| "its core does not answer".to_owned())?.map_err(|e| e.what)?;
        let unit = &grant.entry.device;
        let file = folder.join(unit.spec().name.replace('/', "-"));
        let bytes = grant.bytes();
        let device = LoopDevice::make(&file, unit.block_bytes(), grant.read_only)?;
        Ok(Attached { grant: grant.clone(), folder, file, device, life, bytes, why: String::new() })
    }

    /// Detaches one; `force` though somebody uses it: what the machine holds is written first.
    fn detach(&mut self, key: &Key, force: bool) -> Result<(), String> {
        let table = self.shared.table();
        let Some(attached) = table.attached.get(key) else {
            return Err(format!("{key} is not attached"));
        };
        let (device, folder) = (attached.device.clone(), attached.folder.clone());
        let life = attached.life.clone();
        drop(table);
        let users = device.users();
        if !users.is_empty() && !force {
            return Err(format!("{} is in use: {}", device.path(), users.join(", ")));
        }
        if !users.is_empty() && !life.is_over() {
            device.sync();
        }
        let cleared = device.clear();
        if !force {
            cleared?;
        }
        host::unmount_at(&folder, force)?;
        if users.is_empty() {
            host::wait(CORE_LIMIT, || life.is_over());
        } else {
            let line =
                format!("LUN {}: {} goes under {}", key.lun, device.path(), users.join(", "));
            (self.shared.tell)(&key.target, line, true);
        }
        self.shared.table().attached.remove(key);
        Ok(())
    }
}
