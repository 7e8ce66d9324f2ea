//! The thread that attaches and detaches.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use drivers::local::{By, GrantedLun, LocalParams};
use mgmt::api::AttachedState;

use super::fuse::{self, LoopDevice};
use super::host::{Device, wait};
use super::nbd::{self, Nbd, NbdTimeouts};
use super::openers::Openers;
use super::reclaim_guard::ReclaimGuard;
use super::{AttachTable, Job, JobResult, LunKey, MissingLun, WorkerState};

/// Interval of the checks for changes: sizes, ended sessions, groups.
const CHECK_INTERVAL: Duration = Duration::from_millis(500);

/// How often something that failed is tried again.
const RETRY_PAUSE: Duration = Duration::from_secs(3);

/// Longest wait for processes that only probe a device, as the device manager does when the device
/// is closed.
const PROBE_WAIT_MAX: Duration = Duration::from_secs(1);

/// The kernel interface by which a LUN is a block device.
enum AttachedDevice {
    Nbd(Nbd),
    Loop(LoopDevice),
}

/// A LUN that is a block device.
pub struct Attached {
    grant: GrantedLun,
    kind: AttachedDevice,
    /// The size that was last passed to the device, bytes.
    bytes: u64,
    /// A note for people about it.
    why: String,
}

impl Attached {
    fn device(&self) -> &Device {
        match &self.kind {
            AttachedDevice::Nbd(nbd) => &nbd.device,
            AttachedDevice::Loop(file) => &file.device,
        }
    }

    /// For lists.
    pub fn state(&self, key: &LunKey, openers: &Openers) -> AttachedState {
        let (by, file) = match &self.kind {
            AttachedDevice::Nbd(_) => ("nbd", String::new()),
            AttachedDevice::Loop(file) => ("fuse", file.file()),
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
        match &self.kind {
            AttachedDevice::Nbd(nbd) => nbd.is_gone(),
            AttachedDevice::Loop(file) => file.is_over(),
        }
    }

    fn update_size(&self) -> Result<(), String> {
        match &self.kind {
            AttachedDevice::Nbd(nbd) => nbd.update_size(&self.grant),
            AttachedDevice::Loop(file) => file.update_size(),
        }
    }

    fn end(&self, force: bool, used: bool) -> Result<(), String> {
        match &self.kind {
            AttachedDevice::Nbd(nbd) => nbd.end(used),
            AttachedDevice::Loop(file) => file.end(force, used),
        }
    }
}

/// How one is detached.
#[derive(Clone, Copy, PartialEq, Eq)]
enum DetachMode {
    /// Unless it is in use; a process that has it open for a moment is waited for.
    Requested,
    /// Unless it is in use at this moment.
    IfIdle,
    /// Even if it is in use: the machine's cached data is written first.
    Force,
}

/// The thread's own.
pub struct Worker {
    shared: Arc<WorkerState>,
    tried: BTreeMap<LunKey, Instant>,
    cleaned: bool,
    guard: ReclaimGuard,
    /// The daemon ends: nothing more is attached.
    is_stopping: bool,
}

fn finish_job(place: &JobResult, how: Result<(), String>) {
    *place.lock() = Some(how);
}

impl Worker {
    /// Nothing attached.
    pub fn new(shared: Arc<WorkerState>) -> Worker {
        Worker {
            shared,
            tried: BTreeMap::new(),
            cleaned: false,
            guard: ReclaimGuard::default(),
            is_stopping: false,
        }
    }

    /// Works until the daemon ends; then detaches everything.
    pub fn run(&mut self) {
        loop {
            let (jobs, ends) = self.sleep();
            for (job, place) in jobs {
                let how = self.job(job);
                finish_job(&place, how);
                self.shared.inbox.wake();
            }
            if ends {
                self.hand_over();
                self.detach_all(|_| true);
                return;
            }
            if !self.is_stopping {
                self.check_all();
            }
            self.update_guard();
        }
    }

    /// Waits for jobs, and no longer than until the next look. Without local targets there is
    /// nothing to look at.
    fn sleep(&mut self) -> (Vec<(Job, JobResult)>, bool) {
        let idle = self.shared.local.targets().is_empty();
        let limit = if idle { Duration::MAX } else { CHECK_INTERVAL };
        let shared = self.shared.clone();
        let table = shared.table();
        let nothing = |t: &mut AttachTable| t.jobs.is_empty() && !t.is_stopping && !t.must_check;
        let bell = &shared.wakeup;
        let mut table = match limit {
            Duration::MAX => bell.wait_while(table, nothing),
            _ => bell.wait_timeout_while(table, limit, nothing),
        };
        if std::mem::take(&mut table.must_check) {
            let waiting: Vec<LunKey> = table.missing.keys().cloned().collect();
            self.tried.retain(|key, _| !waiting.contains(key));
        }
        (std::mem::take(&mut table.jobs), table.is_stopping)
    }

    fn job(&mut self, job: Job) -> Result<(), String> {
        match job {
            Job::Attach(key, by) => {
                self.remove_remains();
                let mut table = self.shared.table();
                table.paused.remove(&key);
                if let Some(there) = table.attached.get(&key) {
                    return match (by, &there.kind) {
                        (By::Nbd, AttachedDevice::Loop(_)) | (By::Fuse, AttachedDevice::Nbd(_)) => {
                            Err(format!(
                                "already attached as {}; detach that first",
                                there.device().path()
                            ))
                        }
                        _ => Ok(()),
                    };
                }
                drop(table);
                self.attach(&key, by)?;
                self.shared.table().requested.insert(key, by);
                Ok(())
            }
            Job::ShutDown => {
                self.hand_over();
                Ok(())
            }
            Job::Detach(key, force) => {
                self.detach(&key, if force { DetachMode::Force } else { DetachMode::Requested })?;
                let mut table = self.shared.table();
                table.requested.remove(&key);
                table.missing.remove(&key);
                table.paused.insert(key);
                Ok(())
            }
            Job::DropTarget(target) => {
                self.detach_all(|k| k.target == target);
                let mut table = self.shared.table();
                table.requested.retain(|k, _| k.target != target);
                table.missing.retain(|k, _| k.target != target);
                table.paused.retain(|k| k.target != target);
                Ok(())
            }
        }
    }

    /// Detaches by force.
    fn detach_all(&mut self, which: impl Fn(&LunKey) -> bool) {
        let keys: Vec<LunKey> = self.shared.table().attached.keys().cloned().collect();
        for key in keys.into_iter().filter(which) {
            if let Err(e) = self.detach(&key, DetachMode::Force) {
                (self.shared.log)(&key.target, format!("LUN {}: {e}", key.lun), true);
            }
        }
    }

    /// Removes the remains of an earlier daemon, once. Remains in use become LUNs to be attached.
    fn remove_remains(&mut self) {
        if std::mem::replace(&mut self.cleaned, true) {
            return;
        }
        for line in fuse::clean_up() {
            (self.shared.log)("local", line, false);
        }
        let targets = self.shared.local.targets();
        let wanted = self.wanted();
        let (used, lines) =
            nbd::clean_up(|k| targets.contains_key(&k.target), |k| wanted.contains_key(k));
        for line in lines {
            (self.shared.log)("local", line, false);
        }
        let mut table = self.shared.table();
        for key in used.into_iter().filter(|k| !wanted.contains_key(k)) {
            table.requested.insert(key, By::Nbd);
        }
    }

    /// The daemon ends: network block devices in use are left for the next one.
    fn hand_over(&mut self) {
        self.is_stopping = true;
        let is_nbd = |(k, a): (&LunKey, &Attached)| match &a.kind {
            AttachedDevice::Nbd(_) => Some(k.clone()),
            AttachedDevice::Loop(_) => None,
        };
        let keys: Vec<LunKey> = self.shared.table().attached.iter().filter_map(is_nbd).collect();
        let mut openers = None;
        for key in keys {
            let Some(attached) = self.shared.table().attached.remove(&key) else { continue };
            let AttachedDevice::Nbd(nbd) = &attached.kind else { continue };
            let users = nbd.device.users(openers.get_or_insert_with(Openers::scan));
            if users.is_empty() || nbd.is_gone() {
                self.shared.table().attached.insert(key, attached);
                continue;
            }
            nbd.device.sync();
            nbd.release(&self.shared.local);
            let (path, users) = (nbd.device.path(), users.join(", "));
            let line = format!("LUN {}: {path} waits for the next daemon: {users}", key.lun);
            (self.shared.log)(&key.target, line, false);
        }
    }

    /// Keeps the machine from waiting for itself while something is attached.
    fn update_guard(&mut self) {
        if self.shared.table().attached.is_empty() {
            return self.guard.release();
        }
        for line in self.guard.hold() {
            (self.shared.log)("local", line, true);
        }
    }

    /// The LUNs to be attached, and the method of each.
    fn wanted(&self) -> BTreeMap<LunKey, By> {
        let targets = self.shared.local.targets();
        let table = self.shared.table();
        let one = |(t, p): (&String, &LocalParams)| {
            let (target, by) = (t.clone(), p.by);
            let key = move |l: &u64| (LunKey { target: target.clone(), lun: *l }, by);
            p.attach.iter().map(key).collect::<Vec<(LunKey, By)>>()
        };
        let configured = targets.iter().flat_map(one).filter(|(k, _)| !table.paused.contains(k));
        configured.chain(table.requested.iter().map(|(k, by)| (k.clone(), *by))).collect()
    }

    fn check_all(&mut self) {
        if !self.shared.local.targets().is_empty() {
            self.remove_remains();
        }
        let wanted = self.wanted();
        let there: Vec<LunKey> = self.shared.table().attached.keys().cloned().collect();
        for key in &there {
            self.check_attached(key, wanted.contains_key(key));
        }
        self.shared.table().missing.retain(|k, _| wanted.contains_key(k));
        for (key, by) in wanted {
            let due = self.tried.get(&key).is_none_or(|at| at.elapsed() >= RETRY_PAUSE);
            if !due || self.shared.table().attached.contains_key(&key) {
                continue;
            }
            self.tried.insert(key.clone(), Instant::now());
            if let Err(e) = self.attach(&key, by) {
                self.failed(&key, e);
            }
        }
    }

    /// Something wanted cannot be had. It is reported when it persists: a target is added before
    /// its groups, and a disk may appear after them.
    fn failed(&self, key: &LunKey, why: String) {
        let mut table = self.shared.table();
        let since = table.missing.get(key).map_or_else(Instant::now, |w| w.since);
        let last_report = table.missing.get(key).and_then(|w| w.last_report.clone());
        let says = since.elapsed() >= RETRY_PAUSE && last_report.as_ref() != Some(&why);
        let last_report = if says { Some(why.clone()) } else { last_report };
        table.missing.insert(key.clone(), MissingLun { why: why.clone(), since, last_report });
        drop(table);
        if says {
            (self.shared.log)(&key.target, format!("LUN {}: {why}", key.lun), true);
        }
    }

    /// A network block device whose sockets have ended gets others.
    fn reopen_sockets(&self, key: &LunKey) {
        let mut table = self.shared.table();
        let broken = |a: &Attached| matches!(&a.kind, AttachedDevice::Nbd(nbd) if nbd.is_broken());
        if !table.attached.get(key).is_some_and(broken) {
            return;
        }
        let Some(mut attached) = table.attached.remove(key) else { return };
        drop(table);
        let Attached { grant, kind: means, why, .. } = &mut attached;
        if let AttachedDevice::Nbd(nbd) = means {
            match nbd.reopen_sockets(&self.shared.local, grant) {
                Ok(0) => {}
                Ok(count) => {
                    why.clear();
                    let line = format!("LUN {}: {count} sockets opened anew", key.lun);
                    (self.shared.log)(&key.target, line, false);
                }
                Err(e) => *why = e,
            }
        }
        self.shared.table().attached.insert(key.clone(), attached);
    }

    /// Looks at one that is attached.
    fn check_attached(&mut self, key: &LunKey, wanted: bool) {
        let mut table = self.shared.table();
        let Some(attached) = table.attached.get_mut(key) else { return };
        let found = self.shared.local.find(&key.target, key.lun);
        let is_same = |now: &GrantedLun| {
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
            (self.shared.log)(&key.target, format!("LUN {}: its session ended", key.lun), true);
            // The next look attaches it again, if it may.
            self.tried.remove(key);
        }
        if over || !wanted || !granted {
            let done = self.detach(key, if over { DetachMode::Force } else { DetachMode::IfIdle });
            let why = match &done {
                Err(e) => format!("to be detached, but {e}"),
                Ok(()) => return,
            };
            if let Some(attached) = self.shared.table().attached.get_mut(key) {
                attached.why = why;
            }
            return;
        }
        self.reopen_sockets(key);
        if changed {
            let table = self.shared.table();
            let Some(attached) = table.attached.get(key) else { return };
            let (done, path) = (attached.update_size(), attached.device().path());
            drop(table);
            let line = match &done {
                Ok(()) => format!("LUN {}: {bytes} bytes now", key.lun),
                Err(e) => format!("LUN {}: {path} keeps its old size: {e}", key.lun),
            };
            (self.shared.log)(&key.target, line, done.is_err());
        }
    }

    fn attach(&mut self, key: &LunKey, by: By) -> Result<(), String> {
        let local = &self.shared.local;
        let grant = local.find(&key.target, key.lun).map_err(|e| e.message)?;
        let params = local.targets().get(&key.target).cloned().unwrap_or_default();
        let by = if by == By::Auto { params.by } else { by };
        let means = match (by, Nbd::check_support(&grant)) {
            (By::Auto | By::Nbd, Ok(netlink)) => {
                let waits = NbdTimeouts { reconnect: params.reconnect, resend: params.resend };
                AttachedDevice::Nbd(Nbd::make(local, key, &grant, waits, netlink)?)
            }
            (By::Nbd, Err(e)) => return Err(e),
            (By::Auto | By::Fuse, _) => AttachedDevice::Loop(LoopDevice::make(local, key, &grant)?),
        };
        let bytes = grant.bytes();
        let attached = Attached { grant, kind: means, bytes, why: String::new() };
        let (path, how) =
            (attached.device().path(), if attached.grant.read_only { "ro" } else { "rw" });
        let unit = attached.grant.entry.device.name();
        let line = format!("LUN {} ({unit}) is {path}, {how}", key.lun);
        (self.shared.log)(&key.target, line, false);
        let mut table = self.shared.table();
        table.missing.remove(key);
        table.attached.insert(key.clone(), attached);
        Ok(())
    }

    fn detach(&mut self, key: &LunKey, how: DetachMode) -> Result<(), String> {
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

    fn end(&self, key: &LunKey, attached: &Attached, how: DetachMode) -> Result<(), String> {
        let (device, force) = (attached.device(), how == DetachMode::Force);
        let mut users = device.users(&Openers::scan());
        if how == DetachMode::Requested && device.claims().is_empty() {
            wait(PROBE_WAIT_MAX, || {
                users = device.users(&Openers::scan());
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
            let (path, users) = (device.path(), users.join(", "));
            let line = format!("LUN {}: {path} is removed while in use by {users}", key.lun);
            (self.shared.log)(&key.target, line, true);
        }
        Ok(())
    }
}
