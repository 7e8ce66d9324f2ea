//! Geom of class `lun`, which holds a provider open for a logical unit.
//!
//! ```text
//!   provider --orphan--> Device::lose  (commands end NOT READY, sessions stay)
//!            --resize--> Device::resize (CAPACITY DATA HAS CHANGED for every nexus)
//! ```
//! It opens the provider as a device node does (docs/reference/geom.md 1.2): r1w1, or r1 when
//! read-only; never exclusively.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bio::{Attr, Errno};
use geom::{
    Access, Class, ConsumerId, Core, DELETES, Error, Geom, GeomId, GraphControl, Message,
    ProviderId, Topology,
};

use wire::scsi::CD_BLOCK;

use crate::handlers::disk::medium_operation;
use crate::job::protection;
use crate::registry::Registry;
use crate::state_store::{RecordKind, save_channel};
use crate::unit::Device;
use crate::unit::ids::ConfiguredIds;
use crate::unit::medium_state::{MediumState, TrayError};
use crate::unit::protection::{Layout, Protection, ProtectionSpec};
use crate::unit::provisioning::Provisioning;
use crate::unit::space::{FULL_PERCENTS, SpaceUsage};
use crate::unit::spec::{DeviceSpec, Label, PRODUCT, PRODUCT_CD, REVISION, VENDOR};
use wire::scsi::SERIAL_MAX;

pub const CLASS: &str = "lun";

/// Largest physical block believed, bytes; a disk that reports a larger one has stripes.
const PHYSICAL_MAX: u64 = 64 * 1024;

/// How often an operator's change looks whether an initiator's has ended; then it is refused.
const CLEAR_POLLS_MAX: u32 = 5000;

/// Time between two looks.
const CLEAR_PAUSE: Duration = Duration::from_millis(1);

/// The class; it is made by [`open_device`] only.
pub struct LunClass;

impl Class for LunClass {
    fn name(&self) -> &'static str {
        CLASS
    }

    fn doc(&self) -> &'static str {
        "Holds a provider open for a logical unit of the target side."
    }

    fn is_named_after_provider(&self) -> bool {
        true
    }

    fn passes_serial(&self) -> bool {
        true
    }
}

/// Holds one provider open.
#[derive(Default)]
struct LunGeom {
    device: Option<Arc<Device>>,
    lost: Option<Errno>,
}

impl Geom for LunGeom {
    fn orphan(&mut self, t: &mut Topology, me: GeomId, consumer: ConsumerId, error: Errno) {
        self.lost = Some(error);
        if let Some(device) = &self.device {
            device.lose(error);
        }
        t.leave(consumer);
        t.wither_geom(me, error);
    }

    fn resizes(&self) -> bool {
        true
    }

    fn resized(&mut self, t: &mut Topology, _: GeomId, consumer: ConsumerId) {
        let size = t.below(consumer).and_then(|p| t.limits(p));
        if let (Some(device), Some(limits)) = (&self.device, size) {
            device.resize(limits.media_bytes);
        }
    }

    fn attr_changed(&mut self, t: &mut Topology, _: GeomId, consumer: ConsumerId, name: &str) {
        if let (DELETES, Some(device), Some(below)) = (name, &self.device, t.below(consumer)) {
            device.set_provisioning(Provisioning::of(t, below));
            device.traffic().set_shared(t.shares(below));
        }
    }

    fn show(&self, _: &Topology, _: GeomId) -> Vec<(&'static str, String)> {
        match &self.device {
            Some(d) => {
                let mut out =
                    vec![("serial", d.spec().serial.clone()), ("blocks", d.blocks().to_string())];
                if let Some(unused) = d.protection().map(Protection::unused).filter(|n| *n > 0) {
                    out.push(("blocks that FORMAT UNIT would add", unused.to_string()));
                }
                out
            }
            None => Vec::new(),
        }
    }
}

/// How a unit is to be made of a provider.
#[derive(Clone, Default, Debug)]
pub struct OpenSpec {
    /// Serial number; `None` takes the provider's own identity, or else its name.
    pub serial: Option<String>,
    /// Other names that are configured.
    pub configured_ids: ConfiguredIds,
    /// Opened for reading only, as a provider is that cannot be written.
    pub read_only: bool,
    /// Handler; `None` is `disk`.
    pub handler: Option<String>,
    /// The medium can be taken out.
    pub removable: bool,
    /// SANITIZE is served.
    pub sanitize: bool,
    /// WRITE SAME of no blocks reaches to the end of the medium.
    pub write_same_to_end: bool,
    /// Whether WCE is set at first; `None` is yes.
    pub write_cache: Option<bool>,
    /// Protection information, kept in the provider's tail. Data in the tail is lost when a unit is
    /// first opened with protection.
    pub protection: ProtectionSpec,
    /// Percentages of used space at which initiators are notified; `None` is 80 and 90.
    pub full_percents: Option<Vec<u8>>,
    /// T10 vendor, product and revision; `None` are ours.
    pub vendor: Option<String>,
    /// See `vendor`.
    pub product: Option<String>,
    /// See `vendor`.
    pub revision: Option<String>,
}

impl OpenSpec {
    pub fn label(&self, name: &str) -> Label {
        let is_cd = self.handler.as_deref() == Some("cdrom");
        let product = if is_cd { PRODUCT_CD } else { PRODUCT };
        Label {
            name: name.into(),
            vendor: self.vendor.clone().unwrap_or_else(|| VENDOR.into()),
            product: self.product.clone().unwrap_or_else(|| product.into()),
            revision: self.revision.clone().unwrap_or_else(|| REVISION.into()),
            sanitize: self.sanitize,
            write_same_to_end: self.write_same_to_end,
        }
    }
}

/// Opens a provider as a logical unit. Whole or not at all; the graph is at rest when it returns.
/// A unit that was lost is ready again when its provider is back with the same identity.
pub fn open_device(
    control: &mut GraphControl,
    registry: &Arc<Registry>,
    provider: &str,
    spec: &OpenSpec,
) -> Result<Arc<Device>, Error> {
    if control.topology.class(CLASS).is_none() {
        control.topology.load(Arc::new(LunClass))?;
    }
    if registry.device(provider).is_some_and(|d| d.lost().is_none()) {
        return Err(Error::new(Errno::Exist, format!("device {provider} is exported already")));
    }
    let mut spec = spec.clone();
    // A lost unit returns as hosts know it.
    spec.read_only |= registry.device(provider).is_some_and(|lost| lost.spec().read_only);
    let mut plugged = control.call(|t| plug_in(t, provider, &spec));
    if plugged.as_ref().is_err_and(|e| e.kind == Errno::RoFs) {
        spec.read_only = true;
        plugged = control.call(|t| plug_in(t, provider, &spec));
    }
    let (geom, consumer) = plugged?;
    let spec = &spec;
    let described = describe(&control.topology, provider, consumer, spec).and_then(|d| {
        let recalled = protection::load_tail_record(registry, &d)?;
        Ok((make(registry, d, spec.handler.as_deref().unwrap_or("disk"))?, recalled))
    });
    let (device, recalled) = match described {
        Ok(described) => described,
        Err(e) => {
            unplug(control, geom)?;
            return Err(e);
        }
    };
    let t = &control.topology;
    device.traffic().set_shared(t.below(consumer).is_some_and(|p| t.shares(p)));
    let attached = control.topology.with::<LunGeom, ()>(geom, |g, _| {
        g.device = Some(device.clone());
        if let Some(error) = g.lost {
            device.lose(error);
        }
    });
    if attached.is_none() {
        device.lose(Errno::NxIo);
    }
    start(control, registry, &device, recalled);
    Ok(device)
}

/// Starts the work that a unit needs on a core before it is ready; `recalled` is the place of its
/// protection information.
fn start(
    control: &mut GraphControl,
    registry: &Arc<Registry>,
    device: &Arc<Device>,
    recalled: protection::TailRecord,
) {
    let sanitizes = device.condition().state() == MediumState::Sanitizing;
    if device.protection().is_none() && !sanitizes {
        return;
    }
    if device.protection().is_some() {
        // A medium that is corrupted or sanitized stays so.
        let _ = device.condition().enter(&[MediumState::Ready], MediumState::Starting);
    }
    let (device, registry) = (device.clone(), registry.clone());
    let goes_on = move |core: &Rc<Core>| {
        let (again, core2) = (device.clone(), core.clone());
        let known = (registry.clone(), recalled);
        let resume = move || {
            if sanitizes {
                medium_operation::resume(&core2, again, registry);
            }
        };
        protection::mount(core, device, known, resume);
    };
    control.send(0, Message::Call(Box::new(goes_on)));
}

/// A new unit, or the lost one of the same name.
fn make(registry: &Registry, spec: DeviceSpec, handler: &str) -> Result<Arc<Device>, Error> {
    let Some(lost) = registry.device(&spec.label.name) else {
        return registry.add_device(handler, spec);
    };
    let was = lost.spec();
    if spec.read_only && !was.read_only && was.ids() == spec.ids() {
        let what = format!(
            "{}: can only be read now, and its hosts could write; make it writable, or remove its \
             LUNs from the groups first",
            spec.label.name
        );
        return Err(Error::new(Errno::RoFs, what));
    }
    let same = was.ids() == spec.ids()
        && was.sector_bytes == spec.sector_bytes
        && was.protection == spec.protection
        && lost.kind().name() == handler;
    if !same {
        let what = format!(
            "{}: not the disk that was lost (serial {}, now {}); remove its LUNs from the groups \
             first",
            spec.label.name, was.serial, spec.serial
        );
        return Err(Error::new(Errno::Exist, what));
    }
    lost.find(spec.edge, spec.media_bytes);
    Ok(lost)
}

/// Gives a provider back. Refused while a group maps the unit; waits until no command is below.
pub fn close_device(
    control: &mut GraphControl,
    registry: &Registry,
    provider: &str,
) -> Result<(), Error> {
    let marked = registry.device(provider).filter(|d| d.ports().is_empty());
    if let Some(device) = marked.filter(|d| d.lost().is_none() && protection::is_marked(d)) {
        // One that does not answer keeps its marks.
        let _ = control.run_on_core("protection marks", move |core| {
            Box::pin(async move { protection::clean_now(core, &device).await })
        });
    }
    registry.remove_device(provider)?;
    match control.topology.find_geom(CLASS, provider) {
        Some(geom) => unplug(control, geom),
        None => Ok(()),
    }
}

/// Lets the operator clear the reservations of a host that does not return: registrations and
/// reservations end, and their holders receive RESERVATIONS PREEMPTED. Waits for the state store;
/// refused while another change does not end.
pub fn clear_reservations(registry: &Registry, provider: &str) -> Result<(), Error> {
    let Some(device) = registry.device(provider) else {
        return Err(Error::new(Errno::NoEnt, format!("no device {provider}")));
    };
    let mut looks = 0;
    let turn = loop {
        match device.reservations().try_lock_for_change() {
            Some(turn) => break turn,
            None if looks == CLEAR_POLLS_MAX => {
                let what = format!(
                    "{provider}: another change of its reservations is not \
                                    finished"
                );
                return Err(Error::new(Errno::Busy, what));
            }
            // The control thread has no core for it.
            None => std::thread::park_timeout(CLEAR_PAUSE),
        }
        looks += 1;
    };
    let change = turn.state().cleared();
    if change.save {
        let (done, saved) = save_channel();
        let record = change.next.record();
        registry.state_store().save(&device.spec().serial, RecordKind::Reservations, record, done);
        let what = || format!("save the reservations of {provider}");
        saved.wait().map_err(|e| Error::of(e, &what()))?;
    }
    turn.commit(&device, change.next, &change.effects);
    Ok(())
}

/// Takes the medium of a unit out, as a hand at the drive does: refused while an initiator
/// prevents it.
pub fn eject_medium(registry: &Registry, unit: &str) -> Result<(), Error> {
    let device = removable(registry, unit)?;
    device.eject().map_err(|e| refused(unit, e))
}

/// Inserts a medium into a unit whose tray is out: the earlier one, or that of another provider,
/// whose sectors must be as large. Initiators are notified that the medium may have changed.
pub fn load_medium(
    control: &mut GraphControl,
    registry: &Registry,
    unit: &str,
    provider: Option<&str>,
) -> Result<(), Error> {
    let device = removable(registry, unit)?;
    if let Some(provider) = provider {
        if device.condition().state() != MediumState::Empty {
            let what = format!("{unit} has a medium; eject it first");
            return Err(Error::new(Errno::Busy, what));
        }
        let (consumer, media_bytes) = control.call(|t| exchange(t, &device, unit, provider))?;
        device.find(control.topology.edge(consumer), media_bytes);
    }
    device.load(None).map_err(|e| refused(unit, e))
}

fn removable(registry: &Registry, unit: &str) -> Result<Arc<Device>, Error> {
    registry.device(unit).ok_or_else(|| {
        Error::new(Errno::NoEnt, format!("no unit {unit}; `ashlar list luns` lists the units"))
    })
}

fn refused(unit: &str, error: TrayError) -> Error {
    let (errno, what) = match error {
        TrayError::Fixed => {
            let next = "set `removable = true` in its [[unit]]";
            (Errno::NotSup, format!("the medium of {unit} cannot be taken out; {next}"))
        }
        TrayError::Prevented => {
            let what = format!("an initiator prevents the removal of the medium of {unit}");
            (Errno::Busy, what)
        }
        TrayError::Busy(state) => (Errno::Busy, format!("{unit} is busy: {state:?}")),
    };
    Error::new(errno, what)
}

/// Opens another provider for the geom of a unit and leaves the one it had.
fn exchange(
    t: &mut Topology,
    device: &Device,
    unit: &str,
    provider: &str,
) -> Result<(ConsumerId, u64), Error> {
    let none = |what: &str| Error::new(Errno::NoEnt, format!("no {what}"));
    let geom = t.find_geom(CLASS, unit).ok_or_else(|| none(&format!("unit {unit}")))?;
    let below = t.find(provider).ok_or_else(|| none(&format!("provider {provider}")))?;
    let limits = t.limits(below).ok_or_else(|| none(&format!("provider {provider}")))?;
    if !device.block_bytes().is_multiple_of(limits.sector_bytes.max(1)) {
        let what = format!(
            "{provider}: its sectors of {} bytes do not fit the blocks of {unit}, {} bytes",
            limits.sector_bytes,
            device.block_bytes()
        );
        return Err(Error::inval(what));
    }
    let before = t.consumers_of(geom).to_vec();
    let what = |e: Errno| match e {
        // Hosts know the unit as one that can be written.
        Errno::RoFs => {
            let what = format!(
                "{unit}: {provider} can only be read, and the unit can be written; load a medium \
                 that can be written, or set `read_only = true` in the [[unit]] of {unit} and run \
                 `ashlar apply` first"
            );
            Error::new(e, what)
        }
        e => Error::of(e, &format!("load {provider}")),
    };
    let access = if device.spec().read_only { Access::READ } else { Access::WRITE };
    let consumer = t.attach_new(geom, below).map_err(what)?;
    if let Err(e) = t.access(consumer, access) {
        t.leave(consumer);
        return Err(what(e));
    }
    before.into_iter().for_each(|old| t.leave(old));
    Ok((consumer, limits.media_bytes))
}

fn unplug(control: &mut GraphControl, geom: GeomId) -> Result<(), Error> {
    control.call(|t| {
        for consumer in t.consumers_of(geom).to_vec() {
            t.leave(consumer);
        }
        t.wither_geom(geom, Errno::NxIo);
        Ok(())
    })
}

fn plug_in(
    t: &mut Topology,
    provider: &str,
    spec: &OpenSpec,
) -> Result<(GeomId, ConsumerId), Error> {
    let Some(below) = t.find(provider) else {
        return Err(Error::new(Errno::NoEnt, format!("no provider {provider}")));
    };
    let geom = t.new_geom(CLASS, provider, "exported", Box::new(LunGeom::default()))?;
    let what = |e| Error::of(e, &format!("export {provider}"));
    let opened = t.attach_new(geom, below).and_then(|c| {
        let only = spec.read_only || is_cd(spec);
        let access = if only { Access::READ } else { Access::WRITE };
        t.access(c, access).map(|()| c)
    });
    opened.map(|c| (geom, c)).map_err(|e| {
        t.wither_geom(geom, Errno::NxIo);
        what(e)
    })
}

/// A drive: its medium is only read, in larger blocks, and can be taken out.
fn is_cd(spec: &OpenSpec) -> bool {
    spec.handler.as_deref() == Some("cdrom")
}

/// Refuses a unit whose provider, of so many bytes with such blocks, cannot keep its protection
/// information.
fn has_room(provider: &str, spec: &OpenSpec, (bytes, sector): (u64, u32)) -> Result<(), Error> {
    let disk = spec.handler.as_deref().is_none_or(|h| h == "disk");
    let can_keep = disk && !spec.read_only && Layout::new(bytes, sector).is_some();
    if spec.protection == ProtectionSpec::Off || can_keep {
        return Ok(());
    }
    let what = format!(
        "{provider}: protection information needs a disk that can be written, with blocks of a \
         power of two and space for it"
    );
    Err(Error::inval(what))
}

/// Why the protection information of a unit would keep it from being opened on a provider of so
/// many bytes with such blocks. Waits for the state store, if the serial number is given.
pub fn check_protection(
    registry: &Registry,
    provider: &str,
    spec: &OpenSpec,
    media: (u64, u32),
) -> Result<(), Error> {
    has_room(provider, spec, media)?;
    let Some(serial) = spec.serial.as_ref().filter(|_| spec.protection != ProtectionSpec::Off)
    else {
        return Ok(());
    };
    let record = registry.state_store().load(serial, RecordKind::Protection)?;
    protection::recorded_total(&record.unwrap_or_default(), provider, media).map(drop)
}

fn describe(
    t: &Topology,
    provider: &str,
    consumer: ConsumerId,
    spec: &OpenSpec,
) -> Result<DeviceSpec, Error> {
    let gone = || Error::new(Errno::NxIo, format!("{provider} was removed meanwhile"));
    let below = t.below(consumer).ok_or_else(gone)?;
    let limits = t.limits(below).ok_or_else(gone)?;
    let freeing = Provisioning::of(t, below);
    let int = |name: &str| match t.attr(below, name) {
        Some(Attr::Int(i)) => Some(i),
        _ => None,
    };
    let ident = match t.attr(below, "GEOM::ident") {
        Some(Attr::Text(text)) if is_serial(&text) => Some(text),
        _ => None,
    };
    let serial = spec.serial.clone().or(ident).unwrap_or_else(|| name_serial(provider));
    let (physical, stripe_bytes) = block_sizes(t, below, u64::from(limits.sector_bytes));
    let sector_bytes = match is_cd(spec) {
        true if CD_BLOCK.is_multiple_of(limits.sector_bytes.max(1)) => CD_BLOCK,
        true => {
            let what = format!("{provider}: blocks of 2048 bytes do not fit its sectors");
            return Err(Error::inval(what));
        }
        false => limits.sector_bytes,
    };
    let is_cd = is_cd(spec);
    has_room(provider, spec, (limits.media_bytes, sector_bytes))?;
    let usage = space_usage_of(t, below);
    if usage.is_none() && spec.full_percents.as_ref().is_some_and(|all| !all.is_empty()) {
        let what = format!(
            "{provider}: its allocated space is unknown: image files and memory disks report it, \
             block devices and geoms over several providers do not; leave `thresholds` out"
        );
        return Err(Error::new(Errno::NotSup, what));
    }
    // Only the disk handler frees blocks of the medium.
    let is_disk = spec.handler.as_deref().is_none_or(|h| h == "disk") && !spec.read_only;
    Ok(DeviceSpec {
        physical_bytes: u32::try_from(physical).unwrap_or(sector_bytes).max(sector_bytes),
        rotation: int("GEOM::rotation_rate").and_then(|r| u16::try_from(r).ok()).filter(|r| *r > 0),
        any_memory: int("ASHLAR::any_memory") == Some(1),
        atomic_bytes: atomic_of(t, below),
        can_delete: int("GEOM::candelete") == Some(1) && is_disk,
        delete_reads_zero: freeing.reads_zero,
        delete_unit_bytes: freeing.unit_bytes,
        delete_offset: freeing.offset,
        delete_request_bytes: freeing.request_bytes,
        read_only: spec.read_only || is_cd,
        removable: spec.removable || is_cd,
        write_cache: spec.write_cache.unwrap_or(true),
        label: spec.label(provider),
        protection: spec.protection,
        space_usage: usage,
        full_percents: spec.full_percents.clone().unwrap_or_else(|| FULL_PERCENTS.to_vec()),
        can_anchor: int("GEOM::cananchor") == Some(1) && is_disk,
        stripe_bytes,
        configured_ids: spec.configured_ids,
        ..DeviceSpec::new(provider, &serial, t.edge(consumer), limits.media_bytes, sector_bytes)
    })
}

/// Physical block and stripe of a provider, bytes; the stripe is zero where there is none. GEOM
/// calls the physical sector of a disk a stripe too.
fn block_sizes(t: &Topology, below: ProviderId, sector: u64) -> (u64, u64) {
    let physical = match t.physical_sector(below) {
        p if p.is_power_of_two() && p.is_multiple_of(sector) && p <= PHYSICAL_MAX => p,
        _ => sector,
    };
    let (stripe, _) = t.stripe(below);
    let is_stripe = stripe > physical && stripe.is_multiple_of(physical);
    (physical, if is_stripe { stripe } else { 0 })
}

/// Largest write that a disk keeps as a whole at a power cut, bytes. Only disks report it: a layer
/// between may shift or split requests.
fn atomic_of(t: &Topology, provider: ProviderId) -> u64 {
    let is_disk = t.geom_of(provider).is_some_and(|geom| t.consumers_of(geom).is_empty());
    match t.attr(provider, "DISK::atomic") {
        Some(Attr::Int(bytes)) if is_disk => bytes,
        _ => 0,
    }
}

/// Space that a provider reports, if it does.
pub fn space_usage_of(t: &Topology, provider: ProviderId) -> Option<SpaceUsage> {
    let int = |name: &str| match t.attr(provider, name) {
        Some(Attr::Int(i)) => Some(i),
        _ => None,
    };
    Some(SpaceUsage {
        used: int("DISK::used")?,
        free: int("DISK::free")?,
        is_shared: int("DISK::shared") == Some(1),
    })
}

/// Reads the used space of the providers of all thin units, and raises unit attentions at their
/// thresholds. To be called from time to time; it calls file systems, which may block.
pub fn poll_space_usage(t: &Topology, registry: &Registry) {
    for device in registry.thin_devices() {
        let geom = t.find_geom(CLASS, &device.name());
        let consumer = geom.and_then(|g| t.consumers_of(g).first().copied());
        let usage = consumer.and_then(|c| t.below(c)).and_then(|p| space_usage_of(t, p));
        if let Some(usage) = usage {
            device.update_space_usage(usage);
        }
    }
}

fn is_serial(text: &str) -> bool {
    !text.is_empty() && text.len() <= SERIAL_MAX && text.is_ascii()
}

/// A serial number of a provider that has no identity: its name, or a digest of a long one.
fn name_serial(provider: &str) -> String {
    if is_serial(provider) {
        return provider.into();
    }
    let hash = provider
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3));
    format!("name-{hash:016x}")
}
