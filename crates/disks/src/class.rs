//! The class `disk`: an opened disk as a geom with one provider.

use std::sync::{Arc, Weak};
use std::time::Duration;

use bio::{Attr, Errno};
use geom::{
    Access, Class, Create, Error, Event, Geom, GeomId, GraphControl, Inbox, Message, NewProvider,
    PHYSICAL_SECTOR, ProviderId, Severity, Topology, Trouble,
};
use reactor::{File, SendError};
use serde_json::{Value, json};

use crate::failures::Failures;
use crate::kind::{Identity, Open, Opened, Site, Unit, VerbAnswer};
use crate::lasting::Identities;
use crate::medium::Medium;
use crate::ordered::Ordered;
use crate::path_state::PathState;
use crate::registry::KINDS;
use crate::watch::Watch;

/// Name of the class.
pub const DISK_CLASS: &str = "disk";

/// Longest wait for room in a core's mailbox before it is tried again; after [`SEND_TRIES_MAX`] of
/// them the requests stay asleep and the verb reports that.
const SEND_WAIT: Duration = Duration::from_millis(10);
const SEND_TRIES_MAX: u32 = 100;

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

    /// Opens a disk of `kind` and makes its geom and provider, both called `name`. Blocks while
    /// it opens. On an error nothing was added to the graph.
    pub fn add(
        &self,
        topology: &mut Topology,
        kind: &str,
        name: &str,
        params: &Value,
    ) -> Result<GeomId, Error> {
        let Some(kind) = crate::registry::kind(kind) else {
            let known: Vec<&str> = KINDS.iter().map(|k| k.name()).collect();
            let what = format!("no kind of disk {kind}; there are {}", known.join(", "));
            return Err(Error::new(Errno::NoEnt, what));
        };
        if topology.find(name).is_some() {
            let what = format!("a provider {name} exists already; give the disk another name");
            return Err(Error::new(Errno::Exist, what));
        }
        let notifier = &topology.notifier();
        let opened = kind.open(&Open { name, params, site: &self.site, notifier })?;
        self.create_geom(topology, kind.name(), name, opened)
    }

    /// As [`DiskClass::add`], of a file that is open already: of a simulated one, which has no
    /// path that could be opened. Sectors are as large as the file's own; `can_delete` says
    /// whether holes can be punched.
    pub fn adopt(
        &self,
        topology: &mut Topology,
        name: &str,
        file: File,
        serial: &str,
        can_delete: bool,
    ) -> Result<GeomId, Error> {
        let opened = crate::file::adopted(name, file, serial, can_delete, &self.site)?;
        self.create_geom(topology, "file", name, opened)
    }

    /// Adds a disk of kind `nbd` whose server was asked already: of a simulated world, which the
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
        self.create_geom(topology, "nbd", name, opened)
    }

    /// Reads the files again that the parameters of a disk name. A disk without a medium reads them
    /// when it is opened.
    ///
    /// # Errors
    /// Why a file cannot be used; nothing has changed then.
    pub fn reload_keys(t: &mut Topology, name: &str, params: &Value) -> Result<(), Error> {
        let Some(geom) = t.find_geom(DISK_CLASS, name) else { return Ok(()) };
        t.with(geom, |g: &mut DiskGeom, _| g.unit.reload_keys(params)).unwrap_or(Ok(()))
    }

    /// Makes geom and provider of an opened disk, or neither.
    fn create_geom(
        &self,
        topology: &mut Topology,
        kind: &'static str,
        name: &str,
        opened: Opened,
    ) -> Result<GeomId, Error> {
        let remarks = opened.unit.remarks();
        let failures = Arc::<Failures>::default();
        let physical = opened.stripe_bytes.max(u64::from(opened.limits.sector_bytes));
        let geom = topology.new_geom(
            DISK_CLASS,
            name,
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
        let made = topology.new_provider(
            geom,
            NewProvider {
                name: name.into(),
                layer: Arc::new(Ordered::new(opened.layer, self.site.cores, failures)),
                limits: opened.limits,
                stripe_bytes: opened.stripe_bytes,
                stripe_offset: 0,
                attrs,
            },
        );
        match made {
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

struct DiskGeom {
    kind: &'static str,
    read_only: bool,
    identity: Identity,
    /// Bytes of a physical sector.
    physical: u64,
    /// The serial number with which it was opened, once it has been given another one.
    first_serial: Option<String>,
    watch: Option<Arc<Watch>>,
    failures: Arc<Failures>,
    unit: Box<dyn Unit>,
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
            true => Vec::new(), // the loss is shown, and says more
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

/// The file or device that an open disk uses, whatever its path names now.
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
        "The disks at the bottom of the graph."
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

    /// `resize` reads the size again; the others are the kind's own.
    fn verb(
        &self,
        control: &mut GraphControl,
        verb: &str,
        on: &str,
        params: &Value,
    ) -> Result<Value, Error> {
        let Some(geom) = control.topology.find_geom(DISK_CLASS, on) else {
            return Err(Error::new(Errno::NoEnt, format!("no disk {on}")));
        };
        if verb == "resize" {
            return resize(control, geom, on, params);
        }
        let answer = control.topology.with(geom, |g: &mut DiskGeom, _| {
            let known = g.unit.verbs();
            if known.iter().any(|(v, _)| *v == verb) {
                return g.unit.verb(verb, params);
            }
            let mut names = vec!["resize"];
            names.extend(known.iter().map(|(v, _)| *v));
            let what = format!("{} disks have no verb {verb}; {}", g.kind, names.join(", "));
            Err(Error::new(Errno::NotSup, what))
        });
        let VerbAnswer { value, wake } = answer
            .unwrap_or_else(|| Err(Error::new(Errno::NxIo, format!("{on} is being removed"))))?;
        for (core, bio) in wake {
            wake_on(control, core, bio)?;
        }
        control.settle()?;
        Ok(value)
    }
}

/// Makes the medium `size` bytes large when that is among the parameters, reads its size again and
/// notifies all geoms above. A disk is never made smaller: that would lose data.
fn resize(
    control: &mut GraphControl,
    geom: GeomId,
    on: &str,
    params: &Value,
) -> Result<Value, Error> {
    let wanted = wanted_size(params)?;
    let Some(&provider) = control.topology.providers_of(geom).first() else {
        return Err(Error::new(Errno::NxIo, format!("{on} is being removed")));
    };
    let (was, sector) =
        control.topology.limits(provider).map_or((0, 1), |l| (l.media_bytes, l.sector_bytes));
    if let Some(wanted) = wanted {
        check_resize(on, (was, sector), wanted)?;
        if wanted > was {
            let grown = control.topology.with(geom, |g: &mut DiskGeom, _| g.unit.grow(wanted));
            grown.unwrap_or_else(|| {
                Err(Error::new(Errno::NxIo, format!("{on} is being removed")))
            })?;
        }
    }
    let size = control.topology.with(geom, |g: &mut DiskGeom, _| {
        let size = g.unit.size();
        if let (Err(Errno::NxIo), Some(watch)) = (size, &g.watch) {
            watch.lost(Errno::NxIo);
        }
        size
    });
    let size = size
        .unwrap_or(Err(Errno::NxIo))
        .map_err(|e| Error::new(e, format!("{on}: its size cannot be read: {}", e.text())))?;
    control.call(|t| {
        t.post(Event::Resize(provider, size));
        Ok(())
    })?;
    let message = match size == was {
        true => format!("{on} has {size} bytes, as before"),
        false => format!("{on} has {size} bytes now; it had {was}"),
    };
    Ok(json!({ "was": was, "size": size, "message": message }))
}

/// Refuses to give a disk of `was` bytes in such sectors another size than a larger one.
///
/// # Errors
/// The sizes, and how to keep the present one.
pub fn check_resize(disk: &str, (was, sector): (u64, u32), wanted: u64) -> Result<(), Error> {
    if wanted >= was && wanted.is_multiple_of(u64::from(sector.max(1))) {
        return Ok(());
    }
    Err(Error::inval(format!(
        "{disk}: size cannot change from {was} to {wanted} bytes: a disk only grows, in whole \
         sectors of {sector} bytes; without `size` it keeps its {was} bytes"
    )))
}

/// `size` of the verb `resize`, bytes; other parameters are refused.
fn wanted_size(params: &Value) -> Result<Option<u64>, Error> {
    let mut size = None;
    for (key, value) in params.as_object().into_iter().flatten() {
        match (key.as_str(), value.as_u64()) {
            ("size", Some(bytes)) => size = Some(bytes),
            _ => {
                let what = format!("resize takes size=BYTES, not {key}={value}");
                return Err(Error::inval(what));
            }
        }
    }
    Ok(size)
}

fn wake_on(control: &mut GraphControl, core: usize, ticket: bio::Ticket) -> Result<(), Error> {
    let mut message = Message::Call(Box::new(move |core| core.wake(ticket, 0)));
    for _ in 0..SEND_TRIES_MAX {
        let Some(mailer) = control.core(core) else { return Ok(()) };
        match mailer.send(message) {
            Ok(()) | Err(SendError::Closed(_)) => return Ok(()),
            Err(SendError::Full(m)) => message = m,
        }
        control.wait_until(SEND_WAIT, |_| false);
    }
    Err(Error::new(Errno::TimedOut, format!("core {core} takes no messages; try again")))
}
