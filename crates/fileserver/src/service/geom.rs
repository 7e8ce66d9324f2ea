//! The geom of a file server: its open devices, and the delivery of its events.

use std::sync::Arc;

use bio::{Attr, Errno};
use geom::{
    Access, ConsumerId, Create, Deletes, Error, Geom, GeomId, MADE_BY_VERB, Measure, NewProvider,
    Notice, ProviderId, ServedClient, Settings, Severity, Topology, Transient, Trouble, Unanswered,
    deadline, message_of,
};

use super::class::{FS_CLASS, Site};
use super::clock;
use super::disks::{FileDisk, FileLayer};
use super::file_disks;
use super::host::{self, Opened};
use super::leaves::{device_of, leaves, provider};
use super::listen;
use super::measures::measures;
use super::params::FsParams;
use super::shared::{HostShared, Message, Phase, Status};
use crate::medium::ProviderPath;
use crate::volume::{ReadAhead, Remedy, percent};

/// How long a change waits for a file server to open; it continues opening after that, ns.
const OPENING_NS: u64 = 10_000_000_000;
/// How long one is given to make everything durable, ns.
const HALTING_NS: u64 = 25_000_000_000;

/// A cache device is nearly full when less than this part of it takes changes still.
const NEARLY_FULL: u64 = 10;

struct OpenDevice {
    consumer: ConsumerId,
    opened: Opened,
    lost: bool,
}

type Disk = (FileDisk, ProviderId);

/// See the module.
pub struct FsGeom {
    pub(super) shared: Arc<HostShared>,
    below: Vec<OpenDevice>,
    disks: Vec<Disk>,
    /// The phase that was reported last.
    reported_phase: Phase,
    /// It is removed when it has halted.
    halting: bool,
}

/// A placeholder for a geom that has no number yet.
struct PlaceholderGeom;

impl Geom for PlaceholderGeom {}

impl FsGeom {
    pub(super) fn create(
        t: &mut Topology,
        &Create { name, members, params }: &Create<'_, FsParams>,
        site: Site,
    ) -> Result<GeomId, Error> {
        // Before anything is opened: files that cannot be used refuse it. The core that serves
        // reads none: a file system may hang.
        let keys = params.keys()?;
        let names: Vec<String> = members.iter().map(|p| t.provider_name(*p).to_owned()).collect();
        let device = match (params.device()?, device_of(&names)) {
            (Some(device), None) => device,
            (None, Some(device)) => device,
            (None, None) => {
                return Err(Error::inval(
                    "`members` (the cache device, then each device of the WORM) or `device` (a \
                     config string) is missing",
                ));
            }
            (Some(_), Some(_)) => return Err(Error::inval("either `members` or `device`")),
        };
        let me = t.new_geom(FS_CLASS, name, MADE_BY_VERB, Box::new(PlaceholderGeom))?;
        match open_all(t, me, &device) {
            Ok(below) => {
                let shared =
                    HostShared::new(name, (t.notifier(), me), params.clone(), device, site);
                shared.replace_keys(keys);
                let phase = Phase::Opening;
                t.set_ops(
                    me,
                    Box::new(FsGeom {
                        shared,
                        below,
                        disks: Vec::new(),
                        reported_phase: phase,
                        halting: false,
                    }),
                );
                t.barrier(me, Box::new(Message::GraphReady));
                Ok(me)
            }
            Err(e) => {
                t.wither_geom_close(me, Errno::NxIo);
                Err(e)
            }
        }
    }

    /// Every core knows the way down.
    fn start(&self, t: &mut Topology, me: GeomId) {
        let shared = self.shared.clone();
        let disks: Vec<Opened> = self.below.iter().map(|b| b.opened.clone()).collect();
        let core = self.core();
        let notifier = shared.notifier.clone();
        notifier.call(core, Box::new(move |core| host::start(core, shared, disks)));
        let shared = self.shared.clone();
        t.converse(
            me,
            "opening",
            Box::new(move |core| {
                Box::pin(async move {
                    let opened = shared.wait_for_phase(|p| *p != Phase::Opening);
                    // A longer opening can be followed with `status`.
                    let _ = deadline(core, OPENING_NS, opened).await;
                    Box::new(Message::Changed) as Notice
                })
            }),
        );
    }

    /// Makes everything durable and removes it.
    pub(super) fn halt(&mut self, t: &mut Topology, me: GeomId) {
        if std::mem::replace(&mut self.halting, true) {
            return;
        }
        let shared = self.shared.clone();
        shared.stop();
        t.converse(
            me,
            "halting",
            Box::new(move |core| {
                Box::pin(async move {
                    let halted = shared.wait_for_phase(|p| *p == Phase::Halted);
                    let _ = deadline(core, HALTING_NS, halted).await;
                    Box::new(Message::Halted) as Notice
                })
            }),
        );
    }

    /// A device of the WORM `volume` is there: if it is the one that this server lacks, it is
    /// taken in again. True when it was.
    pub(super) fn rejoin(
        &mut self,
        t: &mut Topology,
        me: GeomId,
        on: ProviderId,
        volume: u64,
    ) -> Result<bool, Error> {
        if self.shared.status().facts.volume != volume {
            return Ok(false);
        }
        let lacks = |b: &OpenDevice| b.lost && provider(t, &b.opened.disk).is_ok_and(|p| p == on);
        let Some(i) = self.below.iter().position(lacks) else { return Ok(false) };
        self.reattach(t, me, i, on)?;
        Ok(true)
    }

    /// A disk is there in the place of a lost device: it is opened with any contents.
    pub(super) fn open_replacement(
        &mut self,
        t: &mut Topology,
        me: GeomId,
        device: &str,
    ) -> Result<(), Error> {
        let lost = |b: &OpenDevice| b.lost && b.opened.name == device;
        let Some(i) = self.below.iter().position(lost) else { return Ok(()) };
        let on = provider(t, &self.below[i].opened.disk).map_err(|e| {
            let what =
                format!("{device} is gone: {}; next: give a blank disk that name", e.message);
            Error::new(e.kind, what)
        })?;
        self.reattach(t, me, i, on)
    }

    fn reattach(
        &mut self,
        t: &mut Topology,
        me: GeomId,
        i: usize,
        on: ProviderId,
    ) -> Result<(), Error> {
        let (consumer, size) = attach(t, me, on)?;
        let b = &mut self.below[i];
        b.consumer = consumer;
        b.opened.path.resize(size);
        // Its edge leads there when every core was notified of it.
        t.barrier(me, Box::new(Message::MemberReattached(consumer)));
        Ok(())
    }

    /// The core that it works on.
    fn core(&self) -> usize {
        let cores = self.shared.notifier.cores().max(1);
        self.shared.params().core.map_or(cores - 1, |c| c as usize % cores)
    }

    /// Providers are what files are disks now.
    fn update_disks(&mut self, t: &mut Topology, me: GeomId, wanted: &[FileDisk]) {
        let gone = |d: &Disk| !wanted.iter().any(|w| w.key == d.0.key);
        for (_, provider) in self.disks.iter().filter(|d| gone(d)) {
            t.wither_provider(*provider, Errno::NxIo);
        }
        self.disks.retain(|d| !gone(d));
        for disk in wanted {
            if self.disks.iter().any(|(d, _)| d.key == disk.key) {
                continue;
            }
            let layer = FileLayer::new(self.shared.notifier.clone(), self.core(), disk.key);
            let new = NewProvider {
                name: disk.name.clone(),
                layer: Arc::new(layer),
                limits: disk.limits(),
                stripe_bytes: disk.block,
                stripe_offset: 0,
                attrs: disk.attrs(),
            };
            match t.new_provider(me, new) {
                Ok(provider) => self.disks.push((disk.clone(), provider)),
                Err(e) => {
                    t.remark(me, Severity::Failed, &format!("disk {}: {}", disk.name, e.message))
                }
            }
        }
    }

    fn on_change(&mut self, t: &mut Topology, me: GeomId) {
        let Status { phase, disks, .. } = self.shared.status();
        self.update_disks(t, me, &disks);
        if phase == self.reported_phase {
            return;
        }
        match &phase {
            Phase::Serving => {
                // One on disks that forget is made anew at every start.
                let forgets = |b: &OpenDevice| {
                    let on = t.below(b.consumer);
                    on.and_then(|on| t.attr(on, "ASHLAR::forgets")) == Some(Attr::Int(1))
                };
                if !self.below.iter().any(forgets) {
                    let volume = self.shared.status().facts.volume;
                    self.shared.site.history.record_served(&self.shared.name, volume);
                }
                t.remark(me, Severity::Good, "serving files");
            }
            Phase::Refused(why, next) => t.remark(me, Severity::Failed, &format!("{why}; {next}")),
            Phase::Halted => t.remark(me, Severity::Good, "halted; all data is durable"),
            Phase::Opening | Phase::Halting => {}
        }
        self.reported_phase = phase;
    }
}

/// Opens a provider, alone; the consumer, and its bytes.
fn attach(t: &mut Topology, me: GeomId, on: ProviderId) -> Result<(ConsumerId, u64), Error> {
    let name = t.provider_name(on).to_owned();
    let Some(limits) = t.limits(on) else { return Err(Error::of(Errno::NxIo, &name)) };
    let consumer = t.attach_new(me, on).map_err(|e| Error::of(e, &format!("attach {name}")))?;
    match t.access(consumer, Access::EXCLUSIVE) {
        Ok(()) => Ok((consumer, limits.media_bytes)),
        Err(e) => {
            t.detach(consumer);
            let what = format!("{name} cannot be opened exclusively for writing: {}", e.text());
            Err(Error::new(e, format!("{what}; `ashlar list` shows who has it")))
        }
    }
}

fn open_all(
    t: &mut Topology,
    me: GeomId,
    device: &crate::config::Device,
) -> Result<Vec<OpenDevice>, Error> {
    let mut out: Vec<OpenDevice> = Vec::new();
    for disk in leaves(device) {
        let on = provider(t, disk)?;
        let name = t.provider_name(on).to_owned();
        if out.iter().any(|b| b.opened.name == name) {
            let what = format!("{name} is used twice, once as {disk}");
            return Err(Error::inval(what));
        }
        let (consumer, size) = attach(t, me, on)?;
        let opened =
            Opened { disk: disk.clone(), name, path: ProviderPath::new(t.edge(consumer), size) };
        out.push(OpenDevice { consumer, opened, lost: false });
    }
    Ok(out)
}

impl Geom for FsGeom {
    fn access(
        &mut self,
        _: &mut Topology,
        _: GeomId,
        provider: ProviderId,
        delta: Access,
    ) -> Result<(), Errno> {
        let disk = self.disks.iter().find(|(_, p)| *p == provider);
        match disk {
            Some((d, _)) if d.read_only && delta.w > 0 => Err(Errno::RoFs),
            _ => Ok(()),
        }
    }

    fn is_read_only(&self, _: &Topology, _: GeomId, provider: ProviderId) -> bool {
        let disk = self.disks.iter().find(|(_, p)| *p == provider);
        disk.is_some_and(|(d, _)| d.read_only)
    }

    /// Attributes are a file's own, not those of the devices below.
    fn attr(&self, _: &Topology, _: GeomId, _: ProviderId, _: &str) -> Option<Attr> {
        None
    }

    fn deletes(&self, _: &Topology, _: GeomId, provider: ProviderId) -> Deletes {
        let disk = self.disks.iter().find(|(_, p)| *p == provider);
        Deletes::of(disk.map_or(1, |(d, _)| d.block))
    }

    fn on_notice(&mut self, t: &mut Topology, me: GeomId, notice: Notice) {
        match message_of(notice) {
            Ok(Message::GraphReady) => self.start(t, me),
            Ok(Message::MemberReattached(consumer)) => {
                if let Some(b) = self.below.iter_mut().find(|b| b.consumer == consumer) {
                    b.opened.path.redirect(t.edge(consumer));
                    b.lost = false;
                    t.remark(me, Severity::Good, &format!("{} is back", b.opened.name));
                }
            }
            Ok(Message::Changed) | Err(Unanswered) => self.on_change(t, me),
            Ok(Message::Halted) => {
                self.on_change(t, me);
                t.wither_geom_close(me, Errno::NxIo);
            }
        }
    }

    fn orphan(&mut self, t: &mut Topology, me: GeomId, consumer: ConsumerId, _: Errno) {
        t.leave(consumer);
        if let Some(b) = self.below.iter_mut().find(|b| b.consumer == consumer) {
            b.lost = true;
            let text = format!("{} is gone", b.opened.name);
            t.remark(me, Severity::Failed, &text);
        }
    }

    fn resizes(&self) -> bool {
        true
    }

    /// The volume checks sizes by itself; a device that shrank refuses requests behind its end.
    fn resized(&mut self, t: &mut Topology, _: GeomId, consumer: ConsumerId) {
        let size = t.below(consumer).and_then(|p| t.limits(p)).map(|l| l.media_bytes);
        let found = self.below.iter().find(|b| b.consumer == consumer);
        if let (Some(size), Some(b)) = (size, found) {
            b.opened.path.resize(size);
        }
    }

    fn release_command(&self, t: &Topology, me: GeomId, _: ConsumerId) -> Option<String> {
        Some(format!(
            "take the file server {} out of the configuration, and `ashlar apply`",
            t.geom_name(me)
        ))
    }

    fn show(&self, _: &Topology, _: GeomId) -> Vec<(&'static str, String)> {
        lines(&self.shared, &self.shared.status())
    }

    fn settings(&self, _: &Topology, _: GeomId) -> Settings {
        let status = self.shared.status();
        match status.phase {
            // Verbs add and remove disks.
            Phase::Serving => {
                let params = FsParams::clone(&self.shared.params());
                FsParams { disks: status.wanted_disks, ..params }.settings()
            }
            _ => Settings::new(),
        }
    }

    fn clients(&self, _: &Topology, _: GeomId) -> Vec<ServedClient> {
        self.shared.status().connected.into_keys().collect()
    }

    fn transients(&self, t: &Topology, me: GeomId) -> Vec<Transient> {
        transients(&self.shared, t.geom_name(me))
    }

    fn measures(&self, _: &Topology, _: GeomId) -> Vec<Measure> {
        measures(&self.shared.status())
    }

    fn troubles(&self, t: &Topology, me: GeomId) -> Vec<Trouble> {
        let name = t.geom_name(me);
        let status = self.shared.status();
        let mut out = Vec::new();
        match &status.phase {
            Phase::Refused(why, next) => out.push(Trouble::failed(why.clone(), next.clone())),
            Phase::Halted => out.push(Trouble::failed(
                "halted",
                format!("`ashlar fs start {name}` opens it again"),
            )),
            _ => {}
        }
        if let Some(why) = &status.facts.refused
            && status.phase == Phase::Serving
        {
            let action = format!("`ashlar fs halt {name}`; `ashlar fs start {name}` shows why");
            out.push(Trouble::failed(why.clone(), action));
        }
        let f = &status.facts;
        if status.phase == Phase::Serving && f.slots_left * NEARLY_FULL < f.slots {
            let waits = status.members.iter().any(|l| l.behind > 0);
            let action = match waits {
                _ if f.is_temporary() => format!(
                    "remove temporary files (mode t): no dump takes them away; `ashlar fs check \
                     {name} --rtmp` removes all"
                ),
                true => {
                    "wait: the blocks are being copied to the WORM; `ashlar fs statw` shows the \
                     progress"
                        .to_owned()
                }
                false => format!("`ashlar fs dump {name}`; or use a larger cache device"),
            };
            let what =
                if f.is_temporary() { "temporary files" } else { "blocks that are in no dump" };
            let why = format!(
                "the cache device is nearly full of {what}: room for {} blocks",
                f.slots_left
            );
            out.push(Trouble::degraded(why, action));
        }
        for leg in &status.members {
            let Some(fault) = &leg.fault else { continue };
            let why = format!("{} is {} blocks behind: {fault}", leg.name, leg.behind);
            let device = &leg.name;
            let action = match leg.remedy {
                Remedy::Repair => "check the device; copying continues automatically when it \
                                   answers; to use a new device instead"
                    .to_owned(),
                Remedy::Replace => "reconnect the right device; or, if it is lost, copy all dumps \
                                    to this one"
                    .to_owned(),
                Remedy::ReplaceByForce => {
                    format!("reconnect the right device; or, to destroy the contents of {device}")
                }
            };
            let force = if leg.remedy == Remedy::ReplaceByForce { " --force" } else { "" };
            let action = format!("{action}: `ashlar fs replace {name} {device}{force}`");
            out.push(Trouble::degraded(why, action));
        }
        out.extend(file_disks::troubles(&status));
        out.extend(listen::trouble(&status));
        if let Some(fault) = &status.dump_fault {
            let action = format!("repair that, then `ashlar fs dump {name}`");
            out.push(Trouble::degraded(format!("the last daily dump failed: {fault}"), action));
        }
        for b in self.below.iter().filter(|b| b.lost) {
            let is_leg = status.members.iter().any(|l| l.name == b.opened.name);
            let action = match is_leg {
                true => format!(
                    "reconnect the device: it is used again automatically; or give a blank disk \
                     its name, then `ashlar fs replace {name} {}`",
                    b.opened.name
                ),
                false => "reconnect the device, then restart the daemon".to_owned(),
            };
            out.push(Trouble::failed(format!("{} is gone", b.opened.name), action));
        }
        out
    }

    fn show_consumer(
        &self,
        _: &Topology,
        _: GeomId,
        consumer: ConsumerId,
    ) -> Vec<(&'static str, String)> {
        let Some(b) = self.below.iter().find(|b| b.consumer == consumer) else { return Vec::new() };
        let status = self.shared.status();
        let leg = status.members.iter().find(|l| l.name == b.opened.name);
        let state = match (b.lost, leg) {
            (true, _) => "LOST".to_owned(),
            (_, Some(l)) if l.fault.is_some() => "FAULTED".to_owned(),
            (_, Some(l)) if l.behind > 0 => format!("COPYING {} blocks", l.behind),
            _ => "ACTIVE".to_owned(),
        };
        vec![("state", state)]
    }
}

/// Settings by verbs that are valid until the next start.
fn transients(shared: &HostShared, name: &str) -> Vec<Transient> {
    let (s, params) = (shared.status(), shared.params());
    if s.phase != Phase::Serving {
        return Vec::new();
    }
    let word = |off: bool| if off { "off" } else { "on" };
    let switch = |verb: &str, off: bool| {
        let is = format!("`fs {verb}` is {}", word(off));
        (is, format!("{verb} {name} {}", word(!off)))
    };
    let mut all = Vec::new();
    if s.noattach != params.noattach {
        all.push(switch("attaches", s.noattach));
    }
    if s.nodump != params.nodump {
        all.push(switch("dumpctl", s.nodump));
    }
    if s.nocopy {
        all.push(switch("copying", s.nocopy));
    }
    if s.allow {
        all.push(("permissions are not checked".to_owned(), format!("disallow {name}")));
    }
    if s.duallow {
        let what = "a user may read and search every directory".to_owned();
        all.push((what, format!("duallow {name} none")));
    }
    if s.traced {
        all.push(("messages of clients are recorded".to_owned(), format!("trace {name} off")));
    }
    if let Some(ReadAhead { workers, bytes }) = s.ahead {
        let usual = params.ahead();
        let undo = format!("ahead {name} --workers {} --bytes {}", usual.workers, usual.bytes);
        all.push((format!("{workers} blocks are read ahead at a time, over {bytes} bytes"), undo));
    }
    let transient = |(what, undo)| Transient { setting: what, undo: format!("ashlar fs {undo}") };
    all.into_iter().map(transient).collect()
}

/// The lines that lists show of it.
fn lines(shared: &HostShared, s: &Status) -> Vec<(&'static str, String)> {
    let f = &s.facts;
    let zone = clock::zone();
    let phase = match &s.phase {
        Phase::Opening => "OPENING",
        Phase::Serving => "SERVING",
        Phase::Refused(..) => "REFUSED",
        Phase::Halting => "HALTING",
        Phase::Halted => "HALTED",
    };
    let mut out = vec![("state", phase.to_owned()), ("device", shared.device.to_string())];
    if s.phase != Phase::Serving {
        return out;
    }
    out.push(("listens", s.listens.join(" ")));
    if let Some(who) = &s.last_refused {
        out.push(("turned away", who.clone()));
    }
    out.push(("clients", s.clients.to_string()));
    out.push(("block", f.block.to_string()));
    out.push(("memory", format!("{} blocks, {} dirty", f.memory, f.dirty)));
    out.push(("hits", format!("{}%", percent(f.hits, f.hits + f.misses))));
    out.push(("cache", format!("{}% of {} blocks", percent(f.slots_used, f.slots), f.slots)));
    if f.worm > 0 {
        out.push(("worm", format!("{}% of {} blocks", percent(f.next, f.worm), f.worm)));
        out.push(("dumps", f.dumps.to_string()));
        let holder = match &f.refused {
            Some(why) => why.clone(),
            None => format!("held by this server, epoch {}", f.epoch),
        };
        out.push(("fence", holder));
    }
    if let Some((ns, path)) = &s.last {
        out.push(("last", format!("{path} at {}", clock::text(*ns, &zone))));
    }
    for d in &s.disks {
        let how = if d.read_only { "read-only" } else { "read-write" };
        out.push(("disk", format!("{} is {}, {} bytes, {how}", d.name, d.path, d.bytes)));
    }
    if let Some(ns) = s.next {
        out.push(match s.nodump {
            true => ("next", format!("never: `fs dumpctl {} on`", shared.name)),
            false => ("next", clock::text(ns, &zone)),
        });
    }
    // Temporary settings of an operator, which may have been forgotten.
    for (is, what, how) in [
        (s.noattach, "attaches", "off"),
        (s.allow, "permissions", "not looked at"),
        (s.nocopy, "copying", "off"),
        (s.traced, "trace", "on"),
    ] {
        if is {
            out.push((what, how.to_owned()));
        }
    }
    out
}
