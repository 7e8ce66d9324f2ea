//! The class `disk`: an opened disk as a geom with one provider.

use std::sync::{Arc, Weak};

use bio::{Attr, Errno};
use geom::{
    Access, Class, Create, Error, Geom, GeomId, GraphControl, Inbox, NewProvider, PHYSICAL_SECTOR,
    ProviderId, Severity, Topology, Trouble, VerbSpec,
};
use reactor::File;
use serde_json::{Value, json};

use crate::failures::Failures;
use crate::kind::{Identity, Open, Site, Unit};
use crate::lasting::Identities;
use crate::medium::Medium;
use crate::opening::{OpenedDisk, Opener};
use crate::ordered::Ordered;
use crate::path_state::PathState;
use crate::registry::KINDS;
use crate::verbs::VERBS;
use crate::watch::Watch;

pub const DISK_CLASS: &str = "disk";

pub const DISK_DOC: &str = "The disks at the bottom of the graph.";

/// Puts disks into the graph. Register one value with the topology.
pub struct DiskClass {
    site: Site,
}

impl DiskClass {
    /// For disks with requests from `cores` cores; the loss of a disk is reported to `inbox`.
    pub fn new(inbox: Arc<Inbox>, cores: usize) -> DiskClass {
        DiskClass { site: Site { inbox, cores, identities: None } }
    }

    /// The same, of disks whose identities are kept.
    pub fn keeping(mut self, identities: Arc<dyn Identities>) -> DiskClass {
        self.site.identities = Some(identities);
        self
    }

    /// Its verbs, for the command line.
    pub fn specs() -> &'static [VerbSpec] {
        geom::specs(VERBS)
    }

    /// Opens disks of this class on any thread, for [`DiskClass::install`].
    pub fn opener(&self, topology: &Topology) -> Opener {
        Opener { site: self.site.clone(), notifier: topology.notifier() }
    }

    /// Opens a disk of `kind` and makes its geom and provider, both called `name`. Blocks while
    /// it opens. On an error nothing was added to the graph.
    pub fn add(
        &self,
        topology: &mut Topology,
        kind: &str,
        name: &str,
        params: &Value,
    ) -> Result<GeomId, Error> {
        check_name(topology, name)?;
        let disk = self.opener(topology).open(kind, name, params)?;
        DiskClass::install(topology, disk)
    }

    /// As [`DiskClass::add`], of a file that is open already: of a simulated one, which has no
    /// path that could be opened. Sectors are as large as the file's own; `can_delete`: whether
    /// holes can be punched.
    pub fn adopt(
        &self,
        topology: &mut Topology,
        name: &str,
        file: File,
        serial: &str,
        can_delete: bool,
    ) -> Result<GeomId, Error> {
        let opened = crate::file::adopted(name, file, serial, can_delete, &self.site)?;
        let disk = self.opener(topology).opened("file", name, opened);
        DiskClass::install(topology, disk)
    }

    /// Adds a disk of kind `nbd` whose server was probed already: of a simulated world, which the
    /// control thread cannot reach.
    pub fn adopt_nbd(
        &self,
        topology: &mut Topology,
        name: &str,
        params: &Value,
        terms: &wire::nbd::client::Terms,
    ) -> Result<GeomId, Error> {
        let notifier = &topology.notifier();
        let request = Open { name, params, site: &self.site, notifier };
        let opened = crate::nbd::adopted(&request, terms)?;
        let disk = self.opener(topology).opened("nbd", name, opened);
        DiskClass::install(topology, disk)
    }

    /// An open disk takes over the live keys of its parameters, and reads the files again that they
    /// name. A disk without a medium does both when it is opened.
    ///
    /// # Errors
    /// Why a key or a file cannot be used; nothing has changed then.
    pub fn update_params(t: &mut Topology, name: &str, params: &Value) -> Result<(), Error> {
        let Some(geom) = t.find_geom(DISK_CLASS, name) else { return Ok(()) };
        t.with(geom, |g: &mut DiskGeom, _| g.unit.update_params(params)).unwrap_or(Ok(()))
    }

    /// Makes geom and provider of an opened disk, or neither. Does not block.
    ///
    /// # Errors
    /// Its name is in use.
    pub fn install(topology: &mut Topology, disk: OpenedDisk) -> Result<GeomId, Error> {
        let OpenedDisk { kind, name, cores, opened } = disk;
        check_name(topology, &name)?;
        let remarks = opened.unit.remarks();
        let failures = Arc::<Failures>::default();
        let physical = opened.stripe_bytes.max(u64::from(opened.limits.sector_bytes));
        let geom = topology.new_geom(
            DISK_CLASS,
            &name,
            "configured",
            Box::new(DiskGeom {
                kind,
                read_only: opened.read_only,
                identity: opened.identity.clone(),
                physical,
                first_serial: None,
                watch: opened.watch.clone(),
                failures: failures.clone(),
                unit: opened.unit,
            }),
        )?;
        let attrs = attrs(kind, &opened.identity, physical);
        let result = topology.new_provider(
            geom,
            NewProvider {
                name,
                layer: Arc::new(Ordered::new(opened.layer, cores, failures)),
                limits: opened.limits,
                stripe_bytes: opened.stripe_bytes,
                stripe_offset: 0,
                attrs,
            },
        );
        match result {
            Ok(provider) => {
                if let Some(watch) = opened.watch {
                    watch.set_provider(provider);
                }
                remarks.iter().for_each(|text| topology.remark(geom, Severity::Good, text));
                Ok(geom)
            }
            Err(e) => {
                topology.wither_geom(geom, Errno::NxIo);
                Err(e)
            }
        }
    }
}

/// Refuses the name of a disk that a provider has.
///
/// # Errors
/// The name.
pub fn check_name(topology: &Topology, name: &str) -> Result<(), Error> {
    if topology.find(name).is_none() {
        return Ok(());
    }
    let what = format!("a provider {name} exists already; give the disk another name");
    Err(Error::new(Errno::Exist, what))
}

pub(crate) struct DiskGeom {
    pub(crate) kind: &'static str,
    read_only: bool,
    identity: Identity,
    /// Bytes of a physical sector.
    physical: u64,
    /// The serial number with which it was opened, once it has been given another one.
    first_serial: Option<String>,
    pub(crate) watch: Option<Arc<Watch>>,
    failures: Arc<Failures>,
    pub(crate) unit: Box<dyn Unit>,
}

/// The attributes of a disk's provider.
fn attrs(kind: &str, identity: &Identity, physical: u64) -> Vec<(&'static str, Attr)> {
    let mut attrs = identity.attrs();
    attrs.push((PHYSICAL_SECTOR, Attr::Int(physical)));
    if KINDS.iter().any(|k| k.name() == kind && k.volatile()) {
        attrs.push(("ASHLAR::forgets", Attr::Int(1)));
    }
    attrs
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

    fn keeps_records(&self) -> bool {
        self.unit.must_be_flushed()
    }

    /// A disk has no records, but its server may have data that is not stored.
    fn clean_records(&mut self, _: &mut Topology, _: GeomId) -> bool {
        self.unit.make_durable()
    }

    /// Attributes that do not change are in the provider's own table.
    fn attr(&self, _: &Topology, _: GeomId, _: ProviderId, name: &str) -> Option<Attr> {
        let number = match name {
            "DISK::used" => self.unit.space_usage()?.used,
            "DISK::free" => self.unit.space_usage()?.free,
            "DISK::shared" => u64::from(self.unit.space_usage()?.is_shared),
            _ => return self.failures.attr(name),
        };
        Some(Attr::Int(number))
    }

    fn show(&self, _: &Topology, _: GeomId) -> Vec<(&'static str, String)> {
        let mut lines = vec![
            ("kind", self.kind.to_string()),
            ("serial", self.identity.lasting.ident.clone()),
            ("descr", self.identity.descr.clone()),
            ("read-only", if self.read_only { "yes" } else { "no" }.to_string()),
        ];
        lines.extend(self.unit.show());
        if self.watch.as_ref().is_some_and(|w| w.is_lost()) {
            lines.push(("state", "gone".into()));
        }
        lines
    }

    fn troubles(&self, _: &Topology, _: GeomId) -> Vec<Trouble> {
        match self.watch.as_ref().is_some_and(|w| w.is_lost()) {
            true => Vec::new(), // the loss is shown, and reports more
            false => self.unit.troubles(),
        }
    }
}

/// The path of an open disk, which the caller examines on a thread that may block. A weak
/// reference: the file is closed with the disk. `None`: the disk has no path.
pub fn path_state(topology: &mut Topology, disk: &str) -> Option<Weak<PathState>> {
    let geom = topology.find_geom(DISK_CLASS, disk)?;
    topology.with(geom, |g: &mut DiskGeom, _| g.unit.path_state().map(Arc::downgrade))?
}

/// Problems of the medium of a disk though requests succeed, as [`PathState::examine`] last found
/// them.
pub fn troubles(topology: &mut Topology, disk: &str) -> Vec<Trouble> {
    let Some(geom) = topology.find_geom(DISK_CLASS, disk) else { return Vec::new() };
    topology.with(geom, |g: &mut DiskGeom, t| g.troubles(t, geom)).unwrap_or_default()
}

/// The file or device that an open disk uses, even if its path names another now.
pub fn open_medium(topology: &mut Topology, disk: &str) -> Option<Medium> {
    let geom = topology.find_geom(DISK_CLASS, disk)?;
    topology.with(geom, |g: &mut DiskGeom, _| g.unit.medium())?
}

/// Gives an open disk another serial number. `None` or an empty one: that with which it was opened.
///
/// # Errors
/// The disk is not there.
pub fn set_serial(topology: &mut Topology, disk: &str, serial: Option<&str>) -> Result<(), Error> {
    let gone = || Error::new(Errno::NxIo, format!("{disk}: its medium is gone"));
    let geom = topology.find_geom(DISK_CLASS, disk).ok_or_else(gone)?;
    let provider = topology.providers_of(geom).first().copied().ok_or_else(gone)?;
    let attrs = topology.with(geom, |g: &mut DiskGeom, _| {
        let now = g.identity.lasting.ident.clone();
        let first = g.first_serial.get_or_insert(now).clone();
        let given = serial.filter(|serial| !serial.is_empty());
        g.identity.lasting.ident = given.map_or(first, str::to_owned);
        attrs(g.kind, &g.identity, g.physical)
    });
    topology.set_attrs(provider, attrs.ok_or_else(gone)?);
    Ok(())
}

impl Class for DiskClass {
    fn name(&self) -> &'static str {
        DISK_CLASS
    }

    fn doc(&self) -> &'static str {
        DISK_DOC
    }

    fn params(&self) -> Option<Value> {
        let kinds: Vec<&str> = KINDS.iter().map(|k| k.name()).collect();
        Some(json!({
            "type": "object",
            "required": ["kind"],
            "properties": { "kind": { "enum": kinds, "description": "Which kind of disk." } },
        }))
    }

    /// As [`DiskClass::add`], with the kind under `kind` among the parameters.
    fn create(&self, topology: &mut Topology, request: &Create<'_>) -> Result<GeomId, Error> {
        if !request.members.is_empty() {
            return Err(Error::inval("a disk takes no providers"));
        }
        let mut params = request.params.as_object().cloned().unwrap_or_default();
        match params.remove("kind") {
            Some(Value::String(kind)) => {
                self.add(topology, &kind, request.name, &Value::Object(params))
            }
            _ => Err(Error::inval("a disk needs its `kind`")),
        }
    }

    fn verbs(&self) -> &'static [VerbSpec] {
        DiskClass::specs()
    }

    fn verb(
        &self,
        control: &mut GraphControl,
        verb: &str,
        on: &str,
        params: &Value,
    ) -> Result<Value, Error> {
        geom::call(VERBS, self, control, (verb, on), params)
    }
}
