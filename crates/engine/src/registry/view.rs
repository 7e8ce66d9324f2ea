//! The registry as plain data, from which the daemon builds the state that its API shows.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bio::Errno;
use wire::scsi::{AccessState, Addressing};

use super::facts::SessionFacts;
use super::name_conflicts::NameConflict;
use super::{Denied, Former, Registry};
use crate::load::FlowView;
use crate::reservations::Reservations;
use crate::unit::counters::NexusCounts;
use crate::unit::ids::Ids;
use crate::unit::space::SpaceUsage;
use crate::unit::{Device, ModeBits};

/// Everything at one moment.
pub struct RegistryView {
    /// Targets by driver and name.
    pub targets: Vec<TargetView>,
    /// Target port groups by growing identifier.
    pub port_groups: Vec<PortGroupView>,
    /// Devices by name.
    pub devices: Vec<DeviceView>,
    /// Sessions, oldest first. Counters and commands are read through the facts.
    pub sessions: Vec<Arc<SessionFacts>>,
    /// Counters of the LUNs that a session has used, by the number of the session, in the order of
    /// the LUNs.
    pub nexuses: HashMap<u64, Vec<NexusCounts>>,
    /// Logins that were refused, newest last.
    pub denied: Vec<Denied>,
    /// Sessions that several hosts take from each other.
    pub name_conflicts: Vec<NameConflict>,
    /// Former names of units.
    pub former: BTreeMap<String, Former>,
}

/// A target.
pub struct TargetView {
    /// Its driver.
    pub driver: String,
    /// Its name.
    pub name: String,
    /// Relative target port identifier.
    pub port: u16,
    /// Name of its target port group.
    pub port_group: String,
    /// Its groups.
    pub groups: Vec<GroupView>,
    /// Sessions now.
    pub sessions: usize,
}

/// A target port group.
pub struct PortGroupView {
    /// Its name.
    pub name: String,
    /// TARGET PORT GROUP.
    pub id: u16,
    /// Its state.
    pub state: AccessState,
    /// PREF.
    pub preferred: bool,
    /// Initiators may change its state.
    pub explicit: bool,
}

/// An access group.
pub struct GroupView {
    /// Its name.
    pub name: String,
    /// Its patterns.
    pub initiators: Vec<String>,
    /// Its rules for portals; empty means all.
    pub portals: Vec<String>,
    /// How REPORT LUNS writes the numbers.
    pub addressing: Addressing,
    /// LUN, device, read-only.
    pub luns: Vec<(u64, String, bool)>,
}

/// A logical unit.
pub struct DeviceView {
    /// Its name.
    pub name: String,
    /// Its number.
    pub number: u32,
    /// The names by which hosts know it.
    pub ids: Ids,
    /// Handler of its commands.
    pub handler: &'static str,
    /// Capacity, blocks.
    pub blocks: u64,
    /// Block, bytes.
    pub block_bytes: u32,
    /// WCE is set.
    pub write_cache: bool,
    /// SWP is set, or the device is read-only altogether.
    pub write_protected: bool,
    /// Reservations of the unit, if a host has registered or reserved.
    pub reservations: Option<Arc<Reservations>>,
    /// Latency, rate and limit of its reads and writes.
    pub flow: FlowView,
    /// Room that its disk reported last, if it does.
    pub space_usage: Option<SpaceUsage>,
    /// Its medium can be ejected.
    pub removable: bool,
    /// Why it was removed, if it was.
    pub lost: Option<Errno>,
}

impl Registry {
    /// Plain data for lists.
    pub fn view(&self) -> RegistryView {
        let state = self.state();
        let targets = state.targets.values().map(|t| TargetView {
            driver: t.driver.clone(),
            name: t.name.clone(),
            port: t.port,
            port_group: t.port_group().name().into(),
            groups: t.groups().groups().iter().map(group_view).collect(),
            sessions: state
                .sessions
                .values()
                .filter(|s| s.driver == t.driver && s.target == t.name)
                .count(),
        });
        let devices = state.devices.values().map(|d| DeviceView {
            name: d.name(),
            number: d.number(),
            ids: d.spec().ids(),
            handler: d.kind().name(),
            blocks: d.blocks(),
            block_bytes: d.block_bytes(),
            write_cache: d.mode().has(ModeBits::WCE),
            write_protected: d.spec().read_only || d.mode().has(ModeBits::SWP),
            reservations: d.reservations().state_in_use(),
            flow: d.flow(),
            space_usage: d.space_usage(),
            removable: d.spec().removable,
            lost: d.lost(),
        });
        let port_groups = state.port_groups.iter().map(|g| PortGroupView {
            name: g.name().into(),
            id: g.id(),
            state: g.state(),
            preferred: g.is_preferred(),
            explicit: g.is_explicit(),
        });
        let mut view = RegistryView {
            port_groups: port_groups.collect(),
            targets: targets.collect(),
            devices: devices.collect(),
            sessions: state.sessions.values().cloned().collect(),
            nexuses: HashMap::new(),
            denied: state.denied.iter().cloned().collect(),
            name_conflicts: state.name_conflicts.all().cloned().collect(),
            former: self.all_former(),
        };
        let all: Vec<Arc<Device>> = state.devices.values().cloned().collect();
        drop(state);
        // A daemon may have many thousand nexuses, for which no login waits.
        view.nexuses = nexus_counts(&all);
        view
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

fn group_view(g: &super::Group) -> GroupView {
    let luns = g.luns();
    GroupView {
        name: g.name.clone(),
        initiators: g.patterns.iter().map(|p| p.as_str().to_string()).collect(),
        portals: g.portals.iter().map(|r| r.to_string()).collect(),
        addressing: luns.addressing(),
        luns: luns.iter().map(|e| (e.lun, e.device.name(), e.read_only)).collect(),
    }
}
