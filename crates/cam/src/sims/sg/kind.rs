//! The kind `sg` of `[[bus]]`.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use geom::Error;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use super::Sg;
use super::machine::Linux;
use crate::kind::{Open, SimKind};
use crate::sim::Sim;

/// Most devices of a bus.
const DEVICES_MAX: usize = 256;

/// This machine's own SCSI devices.
pub struct SgKind;

#[derive(Deserialize, JsonSchema)]
struct SgParams {
    /// The devices: nodes of the generic driver (`/dev/sg2`), whole disks (`/dev/sdb`), or links to
    /// either (`/dev/disk/by-id/...`, which survive a restart of the machine). A device that the
    /// machine uses is not attached; a missing one is attached when it appears.
    #[schemars(length(min = 1, max = 256))]
    devices: Vec<PathBuf>,
}

/// The parameters of a bus, if they can be used.
fn checked(bus: &str, params: &Value) -> Result<SgParams, Error> {
    let refuse = |what: String| Error::inval(format!("bus {bus}: {what}"));
    let params = SgParams::deserialize(params).map_err(|e| refuse(e.to_string()))?;
    if params.devices.is_empty() || params.devices.len() > DEVICES_MAX {
        return Err(refuse(format!("devices: 1 to {DEVICES_MAX} are needed")));
    }
    let mut seen = BTreeSet::new();
    for device in &params.devices {
        if !device.is_absolute() {
            return Err(refuse(format!(
                "devices: `{}` is not an absolute path (`/dev/sg2`, `/dev/disk/by-id/...`)",
                device.display()
            )));
        }
        if !seen.insert(device) {
            return Err(refuse(format!("devices: {} is listed twice", device.display())));
        }
    }
    Ok(params)
}

/// The devices of a bus, by its parameters.
pub(super) fn devices(bus: &str, params: &Value) -> Result<Vec<PathBuf>, Error> {
    checked(bus, params).map(|params| params.devices)
}

impl SimKind for SgKind {
    fn name(&self) -> &'static str {
        "sg"
    }

    fn doc(&self) -> &'static str {
        "SCSI devices of this machine, by the kernel's generic driver."
    }

    fn schema(&self) -> Value {
        geom::schema_of::<SgParams>()
    }

    fn live_keys(&self) -> &'static [&'static str] {
        &["devices"]
    }

    fn example(&self) -> &'static str {
        "[[bus]]\nname = \"sg0\"\nkind = \"sg\"\n\
         devices = [\"/dev/disk/by-id/scsi-35000c500a1b2c3d4\", \"/dev/sg3\"]\n"
    }

    fn check(&self, name: &str, params: &Value) -> Result<(), Error> {
        checked(name, params).map(drop)
    }

    fn open(&self, request: &Open<'_>) -> Result<Arc<dyn Sim>, Error> {
        let machine = Arc::new(Linux::new(devices(request.name, request.params)?));
        let site = (request.site.notifier.clone(), request.site.cores);
        Ok(Arc::new(Sg::new(request.name, machine, site)))
    }
}
