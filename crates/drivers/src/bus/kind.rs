//! The kind `local` of `[[bus]]`, and the buses of that kind.

use std::sync::{Arc, Weak};

use bio::sync::{Mutex, MutexGuard};
use cam::{Open, Sim, SimKind};
use engine::Registry;
use geom::Error;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use wire::scsi::TransportId;

use super::sim::LocalBus;

/// Which nexus a bus is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BusNexusId {
    pub driver: String,
    pub target: String,
    /// The initiator's name, as access groups know it.
    pub initiator: String,
}

#[derive(Deserialize, JsonSchema)]
struct LocalBusParams {
    /// Name of the target whose LUNs become disks here, as in its section. The target may be added
    /// later.
    target: String,
    /// Driver of the target.
    #[serde(default = "driver")]
    driver: String,
    /// Initiator name of this bus for access groups and reservations; absent: `local:` and the name
    /// of the bus. With an iSCSI name, the bus is an iSCSI initiator port for other initiators.
    #[serde(default)]
    initiator: String,
}

fn driver() -> String {
    "iscsi".into()
}

/// The kind. One value for the daemon: it knows its buses.
pub struct LocalKind {
    registry: Arc<Registry>,
    buses: Mutex<Vec<(String, Weak<LocalBus>)>>,
}

impl LocalKind {
    /// For the targets of a registry.
    pub fn new(registry: Arc<Registry>) -> Arc<LocalKind> {
        Arc::new(LocalKind { registry, buses: Mutex::default() })
    }

    fn buses(&self) -> MutexGuard<'_, Vec<(String, Weak<LocalBus>)>> {
        self.buses.lock()
    }

    /// The daemon ends: the removal of the targets is no news of their disks, which mirrors would
    /// note.
    pub fn stop_watching(&self) {
        self.buses()
            .iter()
            .filter_map(|(_, bus)| bus.upgrade())
            .for_each(|bus| bus.stop_watching());
    }

    /// Which nexus the bus of that name is; `None` for buses of other kinds.
    pub fn nexus_id(&self, bus: &str) -> Option<BusNexusId> {
        let buses = self.buses();
        let found = buses.iter().rev().find_map(|(name, b)| b.upgrade().filter(|_| name == bus));
        found.map(|b| b.nexus_id().clone())
    }

    /// Names of the providers that a nexus reaches now.
    pub fn reachable_providers(&self, faces: &BusNexusId) -> Vec<String> {
        let Some(port) = self.registry.target(&faces.driver, &faces.target) else {
            return Vec::new();
        };
        let luns = port.decide(&faces.initiator, &crate::local::local_address()).luns;
        luns.iter().map(|entry| entry.device.name()).collect()
    }
}

/// How the initiator port of a bus is called among SCSI's.
fn transport_id(initiator: &str) -> Option<TransportId> {
    match initiator.starts_with("iqn.") {
        true => TransportId::iscsi_port(initiator, [0; 6]),
        false => TransportId::named(initiator),
    }
}

impl SimKind for LocalKind {
    fn name(&self) -> &'static str {
        "local"
    }

    fn doc(&self) -> &'static str {
        "LUNs of a target of this daemon as local disks, through an I_T nexus of their own."
    }

    fn schema(&self) -> Value {
        geom::schema_of::<LocalBusParams>()
    }

    fn example(&self) -> &'static str {
        "[[bus]]\nname = \"loop0\"\nkind = \"local\"\n\
         target = \"iqn.2026-01.org.example:t0\"\ninitiator = \"local:loop0\"\n"
    }

    fn open(&self, request: &Open<'_>) -> Result<Arc<dyn Sim>, Error> {
        let name = request.name;
        let refuse = |what: String| Error::inval(format!("bus {name}: {what}"));
        let params =
            LocalBusParams::deserialize(request.params).map_err(|e| refuse(e.to_string()))?;
        let initiator = match params.initiator.as_str() {
            "" => format!("local:{name}"),
            given => given.to_lowercase(),
        };
        let id = transport_id(&initiator).ok_or_else(|| {
            refuse(format!(
                "initiator: `{initiator}` names no initiator port: an iSCSI name (iqn. and up to \
                 223 letters), or any other of up to 243 letters"
            ))
        })?;
        let mut buses = self.buses();
        buses.retain(|(_, bus)| bus.strong_count() > 0);
        let faces = BusNexusId { driver: params.driver, target: params.target, initiator };
        let other = buses.iter().find(|(_, b)| b.upgrade().is_some_and(|b| *b.nexus_id() == faces));
        if let Some((other, _)) = other {
            return Err(refuse(format!(
                "initiator: bus {other} is {} at this target already; two buses cannot share one \
                 initiator port",
                faces.initiator
            )));
        }
        let site = (request.site.notifier.clone(), request.site.cores);
        let bus = LocalBus::new(name, faces, id, self.registry.clone(), site);
        buses.push((name.to_owned(), Arc::downgrade(&bus)));
        Ok(bus)
    }
}
