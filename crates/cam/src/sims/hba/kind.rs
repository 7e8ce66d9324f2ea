//! The kind `virtual` of `[[bus]]`.

use std::sync::Arc;

use geom::Error;
use reactor::model::{DiskShape, Timing};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use super::{DiskSpec, Role, Transport, VirtualHba};
use crate::kind::{Open, SimKind};
use crate::sim::Sim;

/// Largest medium of a virtual disk, bytes: its sectors are found by searching.
const SIZE_MAX: u64 = 16 << 40;

/// A virtual HBA with as many disks as wanted, all alike.
pub struct HbaKind;

/// Command set of the disks.
#[derive(Clone, Copy, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum TransportParam {
    /// SCSI.
    #[default]
    Sas,
    /// ATA.
    Sata,
}

#[derive(Deserialize, JsonSchema)]
#[serde(default)]
struct HbaParams {
    /// `sas`: SCSI disks; `sata`: ATA disks.
    transport: TransportParam,
    /// Number of disks.
    #[schemars(range(min = 1, max = 64))]
    disks: u64,
    /// Size of each disk in bytes, a multiple of 512.
    #[schemars(range(min = 512, max = 17_592_186_044_416_u64))]
    size: u64,
    /// T10 vendor of SAS disks.
    vendor: String,
    /// Model name of the disks.
    model: String,
    /// Firmware revision of the disks.
    revision: String,
    /// Target number of an enclosure for the disks, higher than theirs; 0: no enclosure. With SAS
    /// it is that of an expander, with SATA it is behind a bridge.
    #[schemars(range(max = 254))]
    enclosure: u8,
    /// SATA: the disks are behind a port multiplier, which is target 15.
    multiplier: bool,
    /// SAS: number of CD drives (cd0) at the targets after the disks, each with a read-only disc of
    /// the same size.
    #[schemars(range(max = 64))]
    drives: u64,
}

impl Default for HbaParams {
    fn default() -> HbaParams {
        let DiskSpec { vendor, model, revision, .. } = DiskSpec::default();
        HbaParams {
            transport: TransportParam::Sas,
            disks: 1,
            size: 1 << 30,
            vendor,
            model,
            revision,
            enclosure: 0,
            multiplier: false,
            drives: 0,
        }
    }
}

impl HbaParams {
    /// Devices other than disks, by target.
    fn other_devices(
        &self,
        refuse: &dyn Fn(String) -> Error,
    ) -> Result<Vec<(u64, DiskSpec)>, Error> {
        let sata = matches!(self.transport, TransportParam::Sata);
        let small = DiskShape { size: 4096, ..DiskShape::default() };
        let spec = |vendor: &str, model: &str, revision: &str, serial: &str, wwn, role| DiskSpec {
            vendor: vendor.into(),
            model: model.into(),
            revision: revision.into(),
            serial: serial.into(),
            wwn,
            role,
            shape: small.clone(),
            ..DiskSpec::default()
        };
        let mut out = Vec::new();
        let place = u64::from(self.enclosure);
        if self.drives > 0 && (sata || !self.size.is_multiple_of(DISC_SECTOR)) {
            let why = "drives are SAS's, and a disc has whole sectors of 2048 bytes";
            return Err(refuse(why.into()));
        }
        for number in 0..self.drives {
            let serial = format!("DISC{number}");
            let wwn = 0x5000_c500_00cd_0000 + number;
            let mut drive = spec("ASHLAR", "virtual drive", "1", &serial, wwn, Role::Cdrom);
            (drive.shape.size, drive.shape.sector) = (self.size, DISC_SECTOR as u32);
            drive.shape.discards = false;
            out.push((self.disks + number, drive));
        }
        let behind = self.disks + self.drives;
        if place > 0 {
            if place < behind || (self.multiplier && place >= MULTIPLIER) {
                let most = if self.multiplier { MULTIPLIER - 1 } else { 254 };
                return Err(refuse(format!(
                    "enclosure is target {place}: from {} to {most} is wanted, behind the disks",
                    behind
                )));
            }
            let role = Role::Enclosure(u8::try_from(self.disks).unwrap_or(u8::MAX));
            out.push(match sata {
                true => (place, spec("AMI", "MG9071", "1.00", "0011", 0x3_0480_0002, role)),
                false => {
                    let wwn = 0x5003_0480_0000_003f;
                    (place, spec("LSILOGIC", "SASX28 A.0", "9", "X28", wwn, role))
                }
            });
        }
        if self.multiplier {
            if !sata || self.disks > MULTIPLIER {
                let why = "a port multiplier has up to 15 ports, and is SATA's";
                return Err(refuse(why.into()));
            }
            // An enclosure's bridge is behind a port of its own.
            let ports = self.disks.max(if place > 0 { place + 1 } else { 0 });
            let role = Role::Multiplier(u8::try_from(ports).unwrap_or(15));
            out.push((MULTIPLIER, spec("", "", "", "", 0, role)));
        }
        Ok(out)
    }
}

/// The parameters of a bus, if they can be used, with its devices other than disks, by target.
fn checked(bus: &str, params: &Value) -> Result<(HbaParams, Vec<(u64, DiskSpec)>), Error> {
    let refuse = |what: String| Error::inval(format!("bus {bus}: {what}"));
    let params = HbaParams::deserialize(params).map_err(|e| refuse(e.to_string()))?;
    let size = params.size;
    if !(512..=SIZE_MAX).contains(&size) || !size.is_multiple_of(512) {
        return Err(refuse(format!("size is {size}: whole sectors of 512 bytes are wanted")));
    }
    let others = params.other_devices(&refuse)?;
    Ok((params, others))
}

/// Bytes of a disc's sector.
const DISC_SECTOR: u64 = 2048;

/// Target of a port multiplier itself.
const MULTIPLIER: u64 = 15;

impl SimKind for HbaKind {
    fn name(&self) -> &'static str {
        "virtual"
    }

    fn doc(&self) -> &'static str {
        "An HBA in memory, with disks that have a volatile cache, queues and unit attentions."
    }

    fn schema(&self) -> Value {
        geom::schema_of::<HbaParams>()
    }

    fn volatile(&self) -> bool {
        true
    }

    fn example(&self) -> &'static str {
        "[[bus]]\nname = \"mps0\"\nkind = \"virtual\"\ntransport = \"sas\"\ndisks = 4\n\
         size = \"1GiB\"\n"
    }

    fn check(&self, name: &str, params: &Value) -> Result<(), Error> {
        checked(name, params).map(drop)
    }

    fn open(&self, request: &Open<'_>) -> Result<Arc<dyn Sim>, Error> {
        let name = request.name;
        let refuse = |what: String| Error::inval(format!("bus {name}: {what}"));
        let (params, others) = checked(name, request.params)?;
        let transport = match params.transport {
            TransportParam::Sas => Transport::Sas,
            TransportParam::Sata => Transport::Sata,
        };
        let last = others.iter().map(|(bay, _)| *bay + 1).max().unwrap_or(0);
        let bays = usize::try_from(params.disks.max(last)).unwrap_or(0);
        let hba = VirtualHba::new(name, transport, bays);
        for (bay, spec) in others {
            hba.plug(bay, spec, bay).map_err(|e| refuse(format!("target {bay}: {e}")))?;
        }
        for bay in 0..params.disks {
            let serial = format!("{name}-{bay}");
            let hash = |h: u64, b: u8| (h ^ u64::from(b)).wrapping_mul(0x0000_0100_0000_01b3);
            let wwn = serial.bytes().fold(0xcbf2_9ce4_8422_2325, hash) >> 4 | 0x5 << 60;
            let shape = DiskShape {
                size: params.size,
                timing: Timing::Between { min_ns: 20_000, max_ns: 200_000 },
                ..DiskShape::default()
            };
            let (vendor, model) = (params.vendor.clone(), params.model.clone());
            let revision = params.revision.clone();
            let spec =
                DiskSpec { vendor, model, revision, serial, wwn, shape, ..DiskSpec::default() };
            hba.plug(bay, spec, wwn).map_err(|e| refuse(format!("disk {bay}: {e}")))?;
        }
        Ok(hba)
    }
}
