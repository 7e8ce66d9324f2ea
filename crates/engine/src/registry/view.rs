//! The registry as plain data, from which the daemon builds the state that its API shows.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bio::Errno;
use wire::scsi::{AccessState, Addressing};

use super::facts::SessionFacts;
use super::name_conflicts::NameConflict;
use super::{Denied, Former, LunEntry, Registry, TargetPort};
use crate::load::FlowView;
use crate::reservations::Reservations;
use crate::unit::counters::NexusCounts;
use crate::unit::ids::Ids;
use crate::unit::medium_state::MediumState;
use crate::unit::space::SpaceUsage;
use crate::unit::spec::Label;
use crate::unit::{Device, ModeBits};

/// Everything at one moment.
pub struct RegistryView {
    /// Targets by driver and name.
    pub targets: Vec<TargetView>,
    /// Target port groups by growing identifier.
    pub port_groups: Vec<PortGroupView>,
    pub devices: Vec<DeviceView>,
    /// Sessions, oldest first. Counters and commands are read through the facts.
    pub sessions: Vec<Arc<SessionFacts>>,
    /// Counters of the LUNs that a session has used, by the number of the session, in the order of
    /// the LUNs; empty in [`Registry::figures`].
    pub nexuses: HashMap<u64, Vec<NexusCounts>>,
    /// Logins that were refused, newest last.
    pub denied: Vec<Denied>,
    /// Sessions that several hosts take from each other.
    pub name_conflicts: Vec<NameConflict>,
    /// Former names of units.
    pub former: BTreeMap<String, Former>,
}

pub struct TargetView {
    pub driver: String,
    pub name: String,
    pub port: u16,
    pub port_group: String,
    pub groups: Vec<GroupView>,
    pub sessions: usize,
}

pub struct PortGroupView {
    pub name: String,
    /// TARGET PORT GROUP.
    pub id: u16,
    pub state: AccessState,
    /// PREF.
    pub preferred: bool,
    /// Initiators may change its state.
    pub explicit: bool,
}

pub struct GroupView {
    pub name: String,
    /// Its patterns.
    pub initiators: Vec<String>,
    /// Its rules for portals; empty means all.
    pub portals: Vec<String>,
    /// How REPORT LUNS writes the numbers.
    pub addressing: Addressing,
    /// Its LUNs, by number.
    pub luns: Vec<LunView>,
}

/// A LUN of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LunView {
    /// Its number.
    pub lun: u64,
    /// The label of its unit, shared: there are many of them.
    pub label: Arc<Label>,
    /// Writes are refused.
    pub read_only: bool,
    /// Commands of all sessions since it was mapped, if a session has used it.
    pub counts: Option<NexusCounts>,
}

/// A logical unit.
pub struct DeviceView {
    /// Its label, which has its name.
    pub label: Arc<Label>,
    pub number: u32,
    /// The names by which hosts know it; `None` in [`Registry::figures`].
    pub ids: Option<Ids>,
    pub handler: &'static str,
    /// Capacity, blocks.
    pub blocks: u64,
    pub block_bytes: u32,
    /// WCE is set.
    pub write_cache: bool,
    /// SWP is set, or the device is read-only altogether.
    pub write_protected: bool,
    /// Reservations of the unit, if a host has registered or reserved.
    pub reservations: Option<Arc<Reservations>>,
    /// Latency, rate and limit of its reads and writes.
    pub flow: FlowView,
    /// Space that its disk reported last, if it does.
    pub space_usage: Option<SpaceUsage>,
    /// Its medium can be ejected.
    pub removable: bool,
    /// Its medium is out.
    pub ejected: bool,
    /// Why it was removed, if it was.
    pub lost: Option<Errno>,
}

impl RegistryView {
    pub fn target(&self, driver: &str, name: &str) -> Option<&TargetView> {
        let place = |t: &TargetView| (t.driver.as_str(), t.name.as_str()).cmp(&(driver, name));
        self.targets.get(self.targets.binary_search_by(place).ok()?)
    }
}

impl Registry {
    /// Plain data for lists.
    pub fn view(&self) -> RegistryView {
        let (mut view, devices) = self.figures_and_devices(&mut || ());
        for (shown, device) in view.devices.iter_mut().zip(&devices) {
            shown.ids = Some(device.spec().ids());
        }
        view.nexuses = nexus_counts(&devices);
        view
    }

    /// The same without the names of units for hosts and without counters of nexuses: a daemon may
    /// have many million. Those of a LUN of a group are summed, for used LUNs only. `pause` is
    /// called after each unit and after each LUN of a group.
    pub fn figures(&self, pause: &mut dyn FnMut()) -> RegistryView {
        self.figures_and_devices(pause).0
    }

    /// The figures, and the devices in the same order.
    fn figures_and_devices(&self, pause: &mut dyn FnMut()) -> (RegistryView, Vec<Arc<Device>>) {
        let state = self.state();
        let targets: Vec<Arc<TargetPort>> = state.targets.values().cloned().collect();
        let devices: Vec<Arc<Device>> = state.devices.values().cloned().collect();
        let sessions: Vec<Arc<SessionFacts>> = state.sessions.values().cloned().collect();
        let port_groups = state.port_groups.clone();
        let denied = state.denied.iter().cloned().collect();
        let name_conflicts = state.name_conflicts.all().cloned().collect();
        // A daemon may have many thousand units and nexuses, for which no login waits.
        drop(state);
        let port_groups = port_groups.iter().map(|g| PortGroupView {
            name: g.name().into(),
            id: g.id(),
            state: g.state(),
            preferred: g.is_preferred(),
            explicit: g.is_explicit(),
        });
        let targets = targets.iter().map(|t| target_view(t, &sessions, pause)).collect();
        let device = |device: &Arc<Device>| {
            pause();
            device_view(device)
        };
        let view = RegistryView {
            port_groups: port_groups.collect(),
            targets,
            devices: devices.iter().map(device).collect(),
            sessions,
            nexuses: HashMap::new(),
            denied,
            name_conflicts,
            former: self.all_former(),
        };
        (view, devices)
    }

    /// Logins refused since the start.
    pub fn denied_total(&self) -> u64 {
        self.denied_total.load(Ordering::Relaxed)
    }
}

/// Counters of the nexuses of all devices.
fn nexus_counts(devices: &[Arc<Device>]) -> HashMap<u64, Vec<NexusCounts>> {
    let mut out: HashMap<u64, Vec<NexusCounts>> = HashMap::new();
    for nexus in devices.iter().flat_map(|device| device.nexuses()) {
        out.entry(nexus.port().session).or_default().push(NexusCounts::of(&nexus));
    }
    out.values_mut().for_each(|all| all.sort_by_key(|counts| counts.lun));
    out
}

fn target_view(
    t: &TargetPort,
    sessions: &[Arc<SessionFacts>],
    pause: &mut dyn FnMut(),
) -> TargetView {
    TargetView {
        driver: t.driver.clone(),
        name: t.name.clone(),
        port: t.port,
        port_group: t.port_group().name().into(),
        groups: t.groups().groups().iter().map(|g| group_view(g, pause)).collect(),
        sessions: sessions.iter().filter(|s| s.driver == t.driver && s.target == t.name).count(),
    }
}

fn device_view(d: &Device) -> DeviceView {
    DeviceView {
        label: d.label(),
        number: d.number(),
        ids: None,
        handler: d.kind().name(),
        blocks: d.blocks(),
        block_bytes: d.block_bytes(),
        write_cache: d.mode().has(ModeBits::WCE),
        write_protected: d.spec().read_only || d.mode().has(ModeBits::SWP),
        reservations: d.reservations().state_in_use(),
        flow: d.flow(),
        space_usage: d.space_usage(),
        removable: d.spec().removable,
        ejected: d.condition().state() == MediumState::Empty,
        lost: d.lost(),
    }
}

fn group_view(g: &super::Group, pause: &mut dyn FnMut()) -> GroupView {
    let luns = g.luns();
    let lun = |e: &Arc<LunEntry>| {
        pause();
        LunView { lun: e.lun, label: e.device.label(), read_only: e.read_only, counts: e.counts() }
    };
    GroupView {
        name: g.name.clone(),
        initiators: g.patterns.iter().map(|p| p.as_str().to_string()).collect(),
        portals: g.portals.iter().map(|r| r.to_string()).collect(),
        addressing: luns.addressing(),
        luns: luns.iter().map(lun).collect(),
    }
}
