//! The thread that attaches and detaches.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use control::api::AttachedState;
use drivers::local::{By, Grant, LocalParams};

use super::fuse::{self, Loop};
use super::host::{Device, wait};
use super::nbd::{self, Nbd, Waits};
use super::openers::Openers;
use super::reclaim_guard::Guard;
use super::{Job, Key, Place, Shared, Table, Waiting};

/// Interval of the checks for changes: sizes, ended sessions, groups.
const LOOK: Duration = Duration::from_millis(500);

/// How often something that failed is tried again.
const RETRY: Duration = Duration::from_secs(3);

/// Longest wait for processes that only probe a device, as the device manager does when the device
/// is closed.
const GLANCE: Duration = Duration::from_secs(1);

/// The kernel interface by which a LUN is a block device.
enum Means {
    Nbd(Nbd),
    Loop(Loop),
}

/// A LUN that is a block device.
pub struct Attached {
    grant: Grant,
    means: Means,
    /// The size that was last passed to the device, bytes.
    bytes: u64,
    /// A note for people about it.
    why: String,
}

impl Attached {
    fn device(&self) -> &Device {
        match &self.means {
            Means::Nbd(nbd) => &nbd.device,
            Means::Loop(file) => &file.device,
        }
    }

    /// For lists.
    pub fn state(&self, key: &Key, openers: &Openers) -> AttachedState {
        let (by, file) = match &self.means {
            Means::Nbd(_) => ("nbd", String::new()),
            Means::Loop(file) => ("fuse", file.file()),
        };
        AttachedState {
            target: key.target.clone(),
            lun: key.lun,
            unit: self.grant.entry.device.name(),
            device: self.device().path(),
            by: by.to_owned(),
            file,
            size_bytes: self.bytes,
            block_bytes: self.grant.entry.device.block_bytes(),
            read_only: self.grant.read_only,
            users: self.device().users(openers),
            why: self.why.clone(),
        }
    }

    /// Its server has ended, and it cannot be repaired.
    fn is_over(&self) -> bool {
        match &self.means {
            Means::Nbd(nbd) => nbd.is_gone(),
            Means::Loop(file) => file.is_over(),
        }
    }

    fn see_size(&self) -> Result<(), String> {
        match &self.means {
            Means::Nbd(nbd) => nbd.see_size(&self.grant),
            Means::Loop(file) => file.see_size(),
        }
    }

    fn end(&self, force: bool, used: bool) -> Result<(), String> {
        match &self.means {
            Means::Nbd(nbd) => nbd.end(used),
            Means::Loop(file) => file.end(force, used),
        }
    }
}

/// How one is detached.
#[derive(Clone, Copy, PartialEq, Eq)]
enum How {
    /// Unless it is in use; a process that has it open for a moment is waited for.
    Asked,
    /// Unless it is in use at this moment.
    Looking,
    /// Even if it is in use: the machine's cached data is written first.
    Force,
}

/// The thread's own.
pub struct Worker {
    shared: Arc<Shared>,
    tried: BTreeMap<Key, Instant>,
    cleaned: bool,
    guard: Guard,
    /// The daemon ends: nothing more is attached.
    left: bool,
}

fn end(place: &Place, how: Result<(), String>) {
    *place.lock() = Some(how);
}

impl Worker {
    /// Nothing attached.
    pub fn new(shared: Arc<Shared>) -> Worker {
        Worker {
            shared,
            tried: BTreeMap::new(),
            cleaned: false,
            guard: Guard::default(),
            left: false,
        }
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
                self.leave();
                self.all(|_| true);
                return;
            }
            if !self.left {
                self.look();
            }
            self.watch_out();
        }
    }

    /// Waits for jobs, and no longer than until the next look. Without local targets there is
    /// nothing to look at.
    fn sleep(&mut self) -> (Vec<(Job, Place)>, bool) {
        let idle = self.shared.local.targets().is_empty();
        let limit = if idle { Duration::MAX } else { LOOK };
        let shared = self.shared.clone();
        let table = shared.table();
        let nothing = |t: &mut Table| t.jobs.is_empty() && !t.ends && !t.look;
        let bell = &shared.bell;
        let mut table = match limit {
            Duration::MAX => bell.wait_while(table, nothing),
            _ => bell.wait_timeout_while(table, limit, nothing),
        };
        if std::mem::take(&mut table.look) {
            let waiting: Vec<Key> = table.waiting.keys().cloned().collect();
            self.tried.retain(|key, _| !waiting.contains(key));
        }
        (std::mem::take(&mut table.jobs), table.ends)
    }

    fn job(&mut self, job: Job) -> Result<(), String> {
        match job {
            Job::Attach(key, by) => {
                self.clean();
                let mut table = self.shared.table();
                table.paused.remove(&key);
                if let Some(there) = table.attached.get(&key) {
                    return match (by, &there.means) {
                        (By::Nbd, Means::Loop(_)) | (By::Fuse, Means::Nbd(_)) => {
                            Err(format!("it is {} already: detach it", there.device().path()))
                        }
                        _ => Ok(()),
                    };
                }
                drop(table);
                self.attach(&key, by)?;
                self.shared.table().asked.insert(key, by);
                Ok(())
            }
            Job::Leave => {
                self.leave();
                Ok(())
            }
            Job::Detach(key, force) => {
                self.detach(&key, if force { How::Force } else { How::Asked })?;
                let mut table = self.shared.table();
                table.asked.remove(&key);
                table.waiting.remove(&key);
                table.paused.insert(key);
                Ok(())
            }
            Job::Drop(target) => {
                self.all(|k| k.target == target);
                let mut table = self.shared.table();
                table.asked.retain(|k, _| k.target != target);
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
            if let Err(e) = self.detach(&key, How::Force) {
                (self.shared.tell)(&key.target, format!("LUN {}: {e}", key.lun), true);
            }
        }
    }

    /// Removes the remains of an earlier daemon, once. Remains in use become LUNs to be attached.
    fn clean(&mut self) {
        if std::mem::replace(&mut self.cleaned, true) {
            return;
        }
        for line in fuse::clean_up() {
            (self.shared.tell)("local", line, false);
        }
        let targets = self.shared.local.targets();
        let wanted = self.wanted();
        let (used, lines) =
            nbd::clean_up(|k| targets.contains_key(&k.target), |k| wanted.contains_key(k));
        for line in lines {
            (self.shared.tell)("local", line, false);
        }
        let mut table = self.shared.table();
        for key in used.into_iter().filter(|k| !wanted.contains_key(k)) {
            table.asked.insert(key, By::Nbd);
        }
    }

    /// The daemon ends: network block devices in use are left for the next one.
    fn leave(&mut self) {
        self.left = true;
        let is_nbd = |(k, a): (&Key, &Attached)| match &a.means {
            Means::Nbd(_) => Some(k.clone()),
            Means::Loop(_) => None,
        };
        let keys: Vec<Key> = self.shared.table().attached.iter().filter_map(is_nbd).collect();
        let mut openers = None;
        for key in keys {
            let Some(attached) = self.shared.table().attached.remove(&key) else { continue };
            let Means::Nbd(nbd) = &attached.means else { continue };
            let users = nbd.device.users(openers.get_or_insert_with(Openers::now));
            if users.is_empty() || nbd.is_gone() {
                self.shared.table().attached.insert(key, attached);
                continue;
            }
            nbd.device.sync();
            nbd.leave(&self.shared.local);
            let (path, users) = (nbd.device.path(), users.join(", "));
            let line = format!("LUN {}: {path} waits for the next daemon: {users}", key.lun);
            (self.shared.tell)(&key.target, line, false);
        }
    }

    /// Keeps the machine from waiting for itself while something is attached.
    fn watch_out(&mut self) {
        if self.shared.table().attached.is_empty() {
            return self.guard.release();
        }
        for line in self.guard.hold() {
            (self.shared.tell)("local", line, true);
        }
    }

    /// The LUNs to be attached, and the method of each.
    fn wanted(&self) -> BTreeMap<Key, By> {
        let targets = self.shared.local.targets();
        let table = self.shared.table();
        let one = |(t, p): (&String, &LocalParams)| {
            let (target, by) = (t.clone(), p.by);
            let key = move |l: &u64| (Key { target: target.clone(), lun: *l }, by);
            p.attach.iter().map(key).collect::<Vec<(Key, By)>>()
        };
        let configured = targets.iter().flat_map(one).filter(|(k, _)| !table.paused.contains(k));
        configured.chain(table.asked.iter().map(|(k, by)| (k.clone(), *by))).collect()
    }

    fn look(&mut self) {
        if !self.shared.local.targets().is_empty() {
            self.clean();
        }
        let wanted = self.wanted();
        let there: Vec<Key> = self.shared.table().attached.keys().cloned().collect();
        for key in &there {
            self.look_at(key, wanted.contains_key(key));
        }
        self.shared.table().waiting.retain(|k, _| wanted.contains_key(k));
        for (key, by) in wanted {
            let due = self.tried.get(&key).is_none_or(|at| at.elapsed() >= RETRY);
            if !due || self.shared.table().attached.contains_key(&key) {
                continue;
            }
            self.tried.insert(key.clone(), Instant::now());
            if let Err(e) = self.attach(&key, by) {
                self.failed(&key, e);
            }
        }
    }

    /// Something wanted cannot be had. It is said when it stays so: a target comes before its
    /// groups, and a disk may come after them.
    fn failed(&self, key: &Key, why: String) {
        let mut table = self.shared.table();
        let since = table.waiting.get(key).map_or_else(Instant::now, |w| w.since);
        let said = table.waiting.get(key).and_then(|w| w.said.clone());
        let says = since.elapsed() >= RETRY && said.as_ref() != Some(&why);
        let said = if says { Some(why.clone()) } else { said };
        table.waiting.insert(key.clone(), Waiting { why: why.clone(), since, said });
        drop(table);
        if says {
            (self.shared.tell)(&key.target, format!("LUN {}: {why}", key.lun), true);
        }
    }

    /// A network block device whose sockets have ended gets others.
    fn mend(&self, key: &Key) {
        let mut table = self.shared.table();
        let broken = |a: &Attached| matches!(&a.means, Means::Nbd(nbd) if nbd.is_broken());
        if !table.attached.get(key).is_some_and(broken) {
            return;
        }
        let Some(mut attached) = table.attached.remove(key) else { return };
        drop(table);
        let Attached { grant, means, why, .. } = &mut attached;
        if let Means::Nbd(nbd) = means {
            match nbd.mend(&self.shared.local, grant) {
                Ok(0) => {}
                Ok(count) => {
                    why.clear();
                    let line = format!("LUN {}: {count} sockets opened anew", key.lun);
                    (self.shared.tell)(&key.target, line, false);
                }
                Err(e) => *why = e,
            }
        }
        self.shared.table().attached.insert(key.clone(), attached);
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
        // Another unit, or another right: the kernel's parameters are no longer valid.
        let granted = found.is_ok_and(|now| is_same(&now));
        let over = attached.is_over();
        let bytes = attached.grant.bytes();
        let changed = bytes != attached.bytes;
        attached.bytes = bytes;
        drop(table);
        if over {
            (self.shared.tell)(&key.target, format!("LUN {}: its session ended", key.lun), true);
            // The next look attaches it again, if it may.
            self.tried.remove(key);
        }
        if over || !wanted || !granted {
            let done = self.detach(key, if over { How::Force } else { How::Looking });
            let why = match &done {
                Err(e) => format!("it shall go, but {e}"),
                Ok(()) => return,
            };
            if let Some(attached) = self.shared.table().attached.get_mut(key) {
                attached.why = why;
            }
            return;
        }
        self.mend(key);
        if changed {
            let table = self.shared.table();
            let Some(attached) = table.attached.get(key) else { return };
            let (told, path) = (attached.see_size(), attached.device().path());
            drop(table);
            let line = match &told {
                Ok(()) => format!("LUN {}: {bytes} bytes now", key.lun),
                Err(e) => format!("LUN {}: {path} keeps its old size: {e}", key.lun),
            };
            (self.shared.tell)(&key.target, line, told.is_err());
        }
    }

    fn attach(&mut self, key: &Key, by: By) -> Result<(), String> {
        let local = &self.shared.local;
        let grant = local.find(&key.target, key.lun).map_err(|e| e.what)?;
        let params = local.targets().get(&key.target).cloned().unwrap_or_default();
        let by = if by == By::Auto { params.by } else { by };
        let means = match (by, Nbd::fits(&grant)) {
            (By::Auto | By::Nbd, Ok(netlink)) => {
                let waits = Waits { reconnect: params.reconnect, resend: params.resend };
                Means::Nbd(Nbd::make(local, key, &grant, waits, netlink)?)
            }
            (By::Nbd, Err(e)) => return Err(e),
            (By::Auto | By::Fuse, _) => Means::Loop(Loop::make(local, key, &grant)?),
        };
        let bytes = grant.bytes();
        let attached = Attached { grant, means, bytes, why: String::new() };
        let (path, how) =
            (attached.device().path(), if attached.grant.read_only { "ro" } else { "rw" });
        let unit = attached.grant.entry.device.name();
        let line = format!("LUN {} ({unit}) is {path}, {how}", key.lun);
        (self.shared.tell)(&key.target, line, false);
        let mut table = self.shared.table();
        table.waiting.remove(key);
        table.attached.insert(key.clone(), attached);
        Ok(())
    }

    /// Detaches one.
    fn detach(&mut self, key: &Key, how: How) -> Result<(), String> {
        let mut table = self.shared.table();
        let Some(attached) = table.attached.remove(key) else {
            return Err(format!("{key} is not attached"));
        };
        drop(table);
        let done = self.end(key, &attached, how);
        if done.is_err() {
            self.shared.table().attached.insert(key.clone(), attached);
        }
        done
    }

    fn end(&self, key: &Key, attached: &Attached, how: How) -> Result<(), String> {
        let (device, force) = (attached.device(), how == How::Force);
        let mut users = device.users(&Openers::now());
        if how == How::Asked && device.claims().is_empty() {
            wait(GLANCE, || {
                users = device.users(&Openers::now());
                users.is_empty()
            });
        }
        if !users.is_empty() && !force {
            return Err(format!("{} is in use: {}", device.path(), users.join(", ")));
        }
        if !users.is_empty() && !attached.is_over() {
            device.sync();
        }
        attached.end(force, !users.is_empty())?;
        if !users.is_empty() {
            let line =
                format!("LUN {}: {} goes under {}", key.lun, device.path(), users.join(", "));
            (self.shared.tell)(&key.target, line, true);
        }
        Ok(())
    }
}
