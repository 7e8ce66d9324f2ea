//! The class `cam`: a disk of a bus as a geom with one provider, `da0` or `ada0`.

use std::collections::BTreeSet;
use std::sync::Arc;

use bio::sync::{Mutex, MutexGuard};
use bio::{Attr, Errno};
use geom::{
    Access, ClassVerb, Error, Geom, GeomId, GraphControl, Inbox, NewProvider, NoClaim, NoParams,
    Notifier, PHYSICAL_SECTOR, ProviderId, Topology, Transient, Typed, VerbSpec,
};

use serde_json::Value;

use crate::address::Path;
use crate::bus::{ACCESS, Bus, Change, Names, PHYSPATH};
use crate::kind::{Open, SimKind, Site};
use crate::periph::{self, Disk, DiskLayer, Facts};
use crate::sim::Sim;
use crate::unit::Unit;
use crate::verbs::{VERBS, faults, verb_jobs::VerbJobs};
use crate::wired_names::WiredNames;

/// Name of the class.
pub const CAM_CLASS: &str = "cam";

/// Description of the class.
pub const CAM_DOC: &str = "SCSI and ATA disks on buses: iSCSI, AoE, sg, local, virtual.";

/// Most disks of one prefix; more are left out of the graph.
const UNITS_MAX: u32 = 65_536;

/// Puts disks of buses into the graph. Register one value with the topology.
pub struct CamClass {
    inbox: Arc<Inbox>,
    kinds: Vec<Arc<dyn SimKind>>,
    cores: usize,
    buses: Mutex<Vec<Arc<Bus>>>,
    pub(crate) verb_jobs: VerbJobs,
    wired_names: Arc<WiredNames>,
    /// Results of updates that [`CamClass::take_update_results`] has not returned yet.
    update_results: Mutex<Vec<UpdateResult>>,
}

/// The name of a bus, and its new disks or the error of the update.
pub type UpdateResult = (String, Result<Vec<String>, Error>);

impl Typed for CamClass {
    const NAME: &'static str = CAM_CLASS;
    const DOC: &'static str = CAM_DOC;
    const VERBS: &'static [ClassVerb<CamClass>] = VERBS;
    const CREATABLE: bool = false;
    type Params = NoParams;
    type Claim = NoClaim;
    type Geom = DiskGeom;

    fn verb(
        &self,
        control: &mut GraphControl,
        verb: &str,
        on: &str,
        params: &Value,
    ) -> Result<Value, Error> {
        match params["ticket"].as_u64() {
            Some(number) => self.job_progress(control, (verb, on), number),
            None => geom::call(VERBS, self, control, (verb, on), params),
        }
    }
}

impl CamClass {
    /// Its verbs, for the command line.
    pub fn specs() -> &'static [VerbSpec] {
        geom::specs(VERBS)
    }

    /// Creates the class for buses of these kinds; so many cores send CCBs. Losses of disks are
    /// posted to `inbox`.
    pub fn new(inbox: Arc<Inbox>, kinds: Vec<Arc<dyn SimKind>>, cores: usize) -> CamClass {
        CamClass {
            inbox,
            kinds,
            cores,
            buses: Mutex::default(),
            verb_jobs: VerbJobs::default(),
            wired_names: Arc::default(),
            update_results: Mutex::default(),
        }
    }

    fn list(&self) -> MutexGuard<'_, Vec<Arc<Bus>>> {
        self.buses.lock()
    }

    /// Names that are kept for disks.
    pub fn wired_names(&self) -> &WiredNames {
        &self.wired_names
    }

    /// The buses, by number.
    pub fn buses(&self) -> Vec<Arc<Bus>> {
        self.list().clone()
    }

    /// The bus of that name.
    pub fn bus(&self, name: &str) -> Option<Arc<Bus>> {
        self.list().iter().find(|bus| bus.sim().facts().name == name).cloned()
    }

    /// A driver of some kind, with the kind's own parameters.
    pub(crate) fn driver(
        &self,
        name: &str,
        kind: &str,
        params: &Value,
        notifier: Notifier,
    ) -> Result<Arc<dyn Sim>, Error> {
        let found = self.kinds.iter().find(|k| k.name() == kind).ok_or_else(|| {
            let known: Vec<&str> = self.kinds.iter().map(|k| k.name()).collect();
            let what = format!("no kind of bus is called {kind}; known: {}", known.join(", "));
            Error::new(Errno::NoEnt, what)
        })?;
        let site = Site { notifier, cores: self.cores };
        found.open(&Open { name, params, site: &site })
    }

    /// A bus with the lowest number that is free. It is to be scanned.
    pub fn add_bus(&self, sim: Arc<dyn Sim>, names: Names, notifier: Notifier) -> Arc<Bus> {
        let mut buses = self.list();
        let mut numbers = 0..;
        let free = numbers.find(|n| buses.iter().all(|bus| bus.number() != *n));
        let (number, kept) = (free.unwrap_or(0), self.wired_names.clone());
        let bus = Bus::new(number, sim, (names, kept), notifier, self.inbox.clone());
        buses.push(bus.clone());
        buses.sort_by_key(|bus| bus.number());
        bus
    }

    /// Forgets a bus that has no disks in the graph.
    pub(crate) fn remove_bus(&self, bus: &Arc<Bus>) {
        bus.begin_removal();
        self.list().retain(|other| !Arc::ptr_eq(other, bus));
        bus.sim().close();
    }

    /// Updates the graph with the devices that buses found by themselves, and returns the news
    /// since the last call.
    pub fn take_update_results(&self, control: &mut GraphControl) -> Vec<UpdateResult> {
        self.apply_scan_results(control);
        std::mem::take(&mut *self.update_results.lock())
    }

    /// Updates the graph with the devices that buses found by themselves; the next
    /// [`CamClass::take_update_results`] returns the news.
    pub fn apply_scan_results(&self, control: &mut GraphControl) {
        for bus in self.buses() {
            if let Some(done) = self.apply_scan_results_of(control, &bus) {
                let news = (bus.sim().facts().name, done);
                self.update_results.lock().push(news);
            }
        }
    }

    /// A bus is being scanned: devices may be added.
    pub fn is_scanning(&self) -> bool {
        self.buses().iter().any(|bus| bus.is_scanning())
    }

    /// The same of one bus; None when it found nothing.
    pub(crate) fn apply_scan_results_of(
        &self,
        control: &mut GraphControl,
        bus: &Bus,
    ) -> Option<Result<Vec<String>, Error>> {
        let found = Some(bus.take_pending_changes()).filter(|found| !found.is_empty())?;
        let done = self.update_graph(control, bus, found);
        if let Err(why) = &done {
            bus.record_failure(why);
        }
        Some(done)
    }

    /// Updates the graph with the results of a scan. The remains of lost disks that are no longer
    /// open are removed first, so that a disk that returns gets its old name.
    fn update_graph(
        &self,
        control: &mut GraphControl,
        bus: &Bus,
        changes: Vec<Change>,
    ) -> Result<Vec<String>, Error> {
        control.call(|t| {
            let all = t.view(0).into_iter().filter(|g| g.class == CAM_CLASS && !g.withering);
            for dead in all.filter(|g| g.providers.is_empty()) {
                let geom = t.find_geom(CAM_CLASS, &dead.name);
                if let Some(geom) = geom.filter(|g| !t.geom_is_open(*g)) {
                    t.wither_geom(geom, Errno::NxIo);
                }
            }
            Ok(())
        })?;
        control.call(|t| self.commit(t, bus, changes))
    }

    /// Ends the work that drivers have under way outside; the graph has shut down.
    pub fn shut_down(&self) {
        for bus in self.buses() {
            self.remove_bus(&bus);
        }
    }

    /// Takes a bus out, with its disks; refused while one is open.
    pub(crate) fn take_out(&self, topology: &mut Topology, bus: &Arc<Bus>) -> Result<(), Error> {
        let geom = |topology: &Topology, name: &str| topology.find_geom(CAM_CLASS, name);
        for (.., name) in &bus.devices() {
            if geom(topology, name).is_some_and(|g| topology.geom_is_open(g)) {
                let what = format!("{name} is open; close what uses it first");
                return Err(Error::new(Errno::Busy, what));
            }
        }
        bus.begin_removal();
        for (unit, _, name) in &bus.devices() {
            if let Some(geom) = geom(topology, name) {
                topology.wither_geom(geom, Errno::NxIo);
            }
            unit.close();
        }
        self.remove_bus(bus);
        Ok(())
    }

    /// Updates the graph with the results of a scan; returns the names of the new disks.
    pub fn commit(
        &self,
        topology: &mut Topology,
        bus: &Bus,
        changes: Vec<Change>,
    ) -> Result<Vec<String>, Error> {
        let (mut names, mut failed) = (Vec::new(), None);
        for change in changes {
            // Losses and changes of size were reported already.
            let (unit, facts) = match change {
                Change::Found(unit, facts) => {
                    self.attach_periphs(bus, unit.path());
                    (unit, facts)
                }
                // A medium that was put into a drive that had none.
                Change::Changed(path, facts) => match bus.unit(path) {
                    Some(unit) if !bus.has_disk(path) => (unit, facts),
                    _ => continue,
                },
                Change::Lost(_) => continue,
            };
            let path = unit.path();
            match self.add(topology, bus, unit, &facts) {
                Ok(name) => names.extend(name),
                Err(e) => {
                    // The next scan finds it anew.
                    bus.attach_failed(path);
                    failed.get_or_insert(e);
                }
            }
        }
        failed.map_or(Ok(names), Err)
    }

    /// Names of periphs that are no disks: the first that are free on all buses.
    fn attach_periphs(&self, bus: &Bus, path: Path) {
        let mut taken = BTreeSet::new();
        for bus in self.buses() {
            for (unit, ..) in bus.devices() {
                taken.extend(bus.periphs(unit.path()));
            }
        }
        bus.attach_periphs(path, |prefix| {
            let mut names = (0..UNITS_MAX).map(|n| format!("{prefix}{n}"));
            names.find(|name| !taken.contains(name)).unwrap_or_default()
        });
    }

    /// A name for a new disk: its own by the configuration, else one that is kept for it, else the
    /// first of its prefix that no other has or is to have.
    fn name(
        &self,
        topology: &Topology,
        (bus, path): (&Bus, Path),
        facts: &Facts,
        prefix: &str,
    ) -> Result<String, Error> {
        // A lost disk keeps its name until all of its users have closed it.
        let is_free = |name: &str| {
            topology.find(name).is_none() && topology.find_geom(CAM_CLASS, name).is_none()
        };
        if let Some(name) = bus.name_of(path, facts) {
            if is_free(&name) {
                return Ok(name);
            }
            let what = format!(
                "the disk at target {} lun {} is wired to {name}, but another device has that \
                 name; not added until `ashlar cam rescan`",
                path.target, path.lun
            );
            return Err(Error::new(Errno::Exist, what));
        }
        let buses = self.buses();
        let is_promised = |name: &str| {
            self.wired_names.has(name) || buses.iter().any(|bus| bus.reserves_name(name))
        };
        let kept =
            facts.identity().map(|id| self.wired_names.names_of(&bus.sim().facts().name, &id));
        let kept = kept.into_iter().flatten().filter(|name| name.starts_with(prefix));
        let of_order = (0..UNITS_MAX).map(|n| format!("{prefix}{n}"));
        kept.filter(|name| !buses.iter().any(|bus| bus.reserves_name(name)))
            .chain(of_order.filter(|name| !is_promised(name)))
            .find(|name| is_free(name))
            .ok_or(Error::new(Errno::NoSpc, "no name is left for a disk"))
    }

    fn add(
        &self,
        topology: &mut Topology,
        bus: &Bus,
        unit: Arc<Unit>,
        facts: &Facts,
    ) -> Result<Option<String>, Error> {
        let Some(disk) = facts.disk(&unit.sim().facts()) else { return Ok(None) };
        let name = self.name(topology, (bus, unit.path()), facts, disk.prefix)?;
        add_to_graph(topology, bus, unit, facts, (name, disk))
    }
}

/// Puts a disk into the graph.
fn add_to_graph(
    topology: &mut Topology,
    bus: &Bus,
    unit: Arc<Unit>,
    facts: &Facts,
    (name, disk): (String, Disk),
) -> Result<Option<String>, Error> {
    let sim = unit.sim().facts();
    let Disk { command_set: language, limits, shape, stripe_bytes, read_only, attrs, .. } = disk;
    let mut attrs = attrs;
    attrs.push((PHYSICAL_SECTOR, Attr::Int(stripe_bytes.max(u64::from(limits.sector_bytes)))));
    let path = unit.path();
    let place = format!("{}@{}", sim.name, unit.sim().location(path));
    let shape = unit.sim().window(path).map_or(shape, periph::window);
    let (openings, label) = (shape.openings_max, facts.label());
    let disk_geom = DiskGeom { unit: unit.clone(), openings, location: place, read_only, label };
    let geom = topology.new_geom(CAM_CLASS, &name, "found on its bus", Box::new(disk_geom))?;
    let provider = topology.new_provider(
        geom,
        NewProvider {
            name: name.clone(),
            layer: Arc::new(DiskLayer::new(unit.clone(), language, bus.shared_bounds())),
            limits,
            stripe_bytes,
            stripe_offset: 0,
            attrs,
        },
    );
    match provider {
        Ok(provider) => {
            unit.reshape(shape);
            bus.provider_attached(path, provider, &name);
            Ok(Some(name))
        }
        Err(e) => {
            topology.wither_geom(geom, Errno::NxIo);
            Err(e)
        }
    }
}

pub struct DiskGeom {
    unit: Arc<Unit>,
    /// Commands at a time when it was added.
    openings: u32,
    location: String,
    label: String,
    read_only: bool,
}

impl Geom for DiskGeom {
    fn access(
        &mut self,
        _: &mut Topology,
        _: GeomId,
        _: ProviderId,
        delta: Access,
    ) -> Result<(), Errno> {
        if self.read_only && delta.w > 0 { Err(Errno::RoFs) } else { Ok(()) }
    }

    fn is_read_only(&self, _: &Topology, _: GeomId, _: ProviderId) -> bool {
        self.read_only
    }

    fn attr(&self, _: &Topology, _: GeomId, _: ProviderId, name: &str) -> Option<bio::Attr> {
        match name {
            ACCESS => Some(bio::Attr::Text(self.unit.access()?.name().into())),
            // Behind no enclosure that reports it, where its bus leads to it.
            PHYSPATH => {
                Some(bio::Attr::Text(self.unit.physpath().unwrap_or_else(|| self.location.clone())))
            }
            _ => None,
        }
    }

    fn transients(&self, t: &Topology, me: GeomId) -> Vec<Transient> {
        let (now, name) =
            (self.unit.inspect(|device| device.shape().openings_max), t.geom_name(me));
        let openings = (now != self.openings).then(|| Transient {
            setting: format!("at most {now} commands at a time"),
            undo: format!("ashlar cam tags {name} -N {}", self.openings),
        });
        let faults = faults(&self.unit).map(|faults| Transient {
            setting: format!("`cam fault`: {faults}"),
            undo: format!("ashlar cam fault {name} --clear"),
        });
        openings.into_iter().chain(faults).collect()
    }

    fn show(&self, _: &Topology, _: GeomId) -> Vec<(&'static str, String)> {
        let (openings, active, counts, lost) = self.unit.inspect(|device| {
            let (openings, active) = device.openings();
            (openings, active, device.counts(), device.is_lost())
        });
        let mut lines = vec![
            ("device", self.label.clone()),
            ("path", self.location.clone()),
            ("openings", format!("{openings}, {active} in use")),
            ("retries", counts.retries.to_string()),
            ("timeouts", counts.timeouts.to_string()),
            ("queue-full", counts.full.to_string()),
        ];
        if let Some(access) = self.unit.access() {
            lines.push(("access", access.name().into()));
        }
        if let Some(place) = self.unit.physpath() {
            lines.push(("physpath", place));
        }
        if lost {
            lines.push(("state", "gone".into()));
        }
        lines
    }
}
