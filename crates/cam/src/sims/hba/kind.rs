//! The kind `virtual` of `[[bus]]`.

use std::sync::Arc;

use bio::Errno;
use geom::Error;
use reactor::model::{DiskShape, Timing};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use super::{DiskSpec, Transport, VirtualHba};
use crate::kind::{Open, SimKind};
use crate::sim::Sim;

/// Largest medium of a virtual disk, bytes: its sectors are found by searching.
const SIZE_MAX: u64 = 16 << 40;

/// A virtual HBA with as many disks as wanted, all alike.
pub struct Virtual;

/// Which language its disks speak.
#[derive(Clone, Copy, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Speaks {
    /// SCSI.
    #[default]
    Sas,
    /// ATA.
    Sata,
}

#[derive(Deserialize, JsonSchema)]
#[serde(default)]
struct Params {
    /// `sas`: SCSI disks; `sata`: ATA disks.
    transport: Speaks,
    /// How many.
    #[schemars(range(min = 1, max = 64))]
    disks: u64,
    /// Size of each, whole sectors of 512 bytes.
    #[schemars(range(min = 512, max = 17_592_186_044_416_u64))]
    size: u64,
}

impl Default for Params {
    fn default() -> Params {
        Params { transport: Speaks::Sas, disks: 1, size: 1 << 30 }
    }
}

impl SimKind for Virtual {
    fn name(&self) -> &'static str {
        "virtual"
    }

    fn doc(&self) -> &'static str {
        "An HBA in memory: its disks behave as disks do, with a volatile cache, queues and \
         attentions."
    }

    fn schema(&self) -> Value {
        schemars::schema_for!(Params).to_value()
    }

    fn volatile(&self) -> bool {
        true
    }

    fn example(&self) -> &'static str {
        "[[bus]]\nname = \"mps0\"\nkind = \"virtual\"\ntransport = \"sas\"\ndisks = 4\n\
         size = \"1GiB\"\n"
    }

    fn open(&self, request: &Open<'_>) -> Result<Arc<dyn Sim>, Error> {
        let name = request.name;
        let refuse = |what: String| Error::new(Errno::Inval, format!("bus {name}: {what}"));
        let params = Params::deserialize(request.params).map_err(|e| refuse(e.to_string()))?;
        let size = params.size;
        if !(512..=SIZE_MAX).contains(&size) || !size.is_multiple_of(512) {
            return Err(refuse(format!("size is {size}: whole sectors of 512 bytes are wanted")));
        }
        let transport = match params.transport {
            Speaks::Sas => Transport::Sas,
            Speaks::Sata => Transport::Sata,
        };
        let bays = usize::try_from(params.disks).unwrap_or(0);
        let hba = VirtualHba::new(name, transport, bays);
        for bay in 0..params.disks {
            let serial = format!("{name}-{bay}");
            let hash = |h: u64, b: u8| (h ^ u64::from(b)).wrapping_mul(0x0000_0100_0000_01b3);
            let wwn = serial.bytes().fold(0xcbf2_9ce4_8422_2325, hash) >> 4 | 0x5 << 60;
            let shape = DiskShape {
                size,
                timing: Timing::Between { min_ns: 20_000, max_ns: 200_000 },
                ..DiskShape::default()
            };
            let spec = DiskSpec { serial, wwn, shape, ..DiskSpec::default() };
            hba.plug(bay, spec, wwn).map_err(|e| refuse(format!("disk {bay}: {e}")))?;
        }
        Ok(hba)
    }
}
