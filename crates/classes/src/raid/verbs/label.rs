//! The `label` verb: makes a new array with one volume.

use bio::Errno;
use geom::{At, Consent, Deserialize, Error, GraphControl, JsonSchema, Verb};

use super::volume::{LevelName, NewVolume, VolumeParams, guid, usable};
use super::{VolumeAnswer, apply_plan, erase, serial, wait_for_volume};
use crate::members::{provider_access, verb_util};
use crate::raid::assemble::SetId;
use crate::raid::class::RaidClass;
use crate::raid::ddf::{Limits, Order, TargetDisk};
use crate::raid::geom::NAME;
use crate::raid::model::{Array, Disk, DiskState, Identity};
use crate::raid::{Fault, ddf, imsm};
use crate::shared_args::{Force, Members};
use crate::write_plan::WritePlan;

/// A slot without a disk.
const NONE: &str = "NONE";

/// Create an array with one volume on its disks
///
/// The end of each disk is overwritten (Intel: two sectors or more, DDF: 32 MiB). NONE in place of
/// a provider is a slot without a disk. Volumes with redundancy are resynced in the background,
/// copies from the first disk. With DDF, --order is -o of graid: "linux" is the format that mdadm
/// reads, "big" that of the standard, "little" that of some controllers. The volume's provider is
/// named after its array and its label, such as raid/Intel-1234abcd/data, regardless of other
/// arrays. Special bytes of a label are written as %XX. An empty label, or one that two volumes of
/// an array have, gets a ~ and the volume's number.
///
/// With --consistency ppl, an Intel RAID5 keeps the same log of partial parity as Linux with `mdadm
/// --consistency-policy=ppl`, in 1 MiB of each disk. After a crash it is replayed before the volume
/// is available: there is no resync, and a volume with a missing disk starts without --force. The
/// log makes writes slower. Each row waits until its entry is on stable storage, and for a flush of
/// all disks before the next entry. Use the log for volumes whose resync takes long, or that must
/// start without a disk; avoid it for volumes with many small writes. Without the log such a volume
/// needs --force, and data of the missing disk may be wrong wherever it was being written. With the
/// log this applies only to data that was being written to the missing disk itself. The volume also
/// needs --force after a double failure: one disk is missing, and another disk that is needed
/// failed a flush or a request that a row needs, and may have lost data. `ashlar raid consistency`
/// changes the policy later.
#[derive(Deserialize, JsonSchema)]
pub(super) struct Label {
    /// Metadata format: Intel, or DDF (also called SNIA)
    format: String,
    /// Name of the array, without the class
    name: String,
    level: LevelName,
    members: Members,
    #[serde(flatten)]
    how: VolumeParams,
    /// Overwrite other data at the end of the disks
    force: Force,
    /// DDF: byte order and checksum, as -o of graid (here -o is --output) [default: linux]
    #[schemars(extend("x-short" = "O"))]
    order: Option<ByteOrder>,
    // The guard has looked at it before.
    #[serde(rename = "yes_destroy")]
    _consent: Consent,
}

#[derive(Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
enum ByteOrder {
    Linux,
    #[serde(alias = "BE")]
    Big,
    #[serde(alias = "LE")]
    Little,
}

/// Formats that can be written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Format {
    Intel,
    Ddf(Order),
}

impl Verb<RaidClass> for Label {
    const NAME: &'static str = "label";
    const POSITIONAL: &'static [&'static str] = &["format", "name", "level", "members"];
    const EXAMPLE: &'static str = "raid label Intel data RAID1 d0 d1";
    const WRITES: bool = true;
    type Answer = VolumeAnswer;

    fn run(self, (class, control): At<'_, RaidClass>) -> Result<VolumeAnswer, Error> {
        let (name, members) = (self.name.as_str(), &self.members.0);
        let format = self.format()?;
        let intel = format == Format::Intel;
        let level = self.level.level(intel)?;
        let (chosen, sector) = choose(control, members, self.force.0, intel)?;
        let like = chosen.iter().flatten().next().map(|c| c.disk.clone());
        let Some(like) = like else { return Err(Error::inval("every slot is NONE")) };
        let disks: Vec<Disk> = chosen
            .iter()
            .enumerate()
            .map(|(at, c)| c.as_ref().map_or_else(|| absent(at, &like, intel), |c| c.disk.clone()))
            .collect();
        let present: Vec<bool> = chosen.iter().map(Option::is_some).collect();
        let spaces: Vec<(u64, u64)> = disks
            .iter()
            .map(|disk| (0, if intel { usable(true, disk.bytes) } else { disk.bytes }))
            .collect();
        let number = verb_util::new_id(control, name);
        let identity = match format {
            Format::Intel => Identity::Intel { family: number, original: number },
            Format::Ddf(_) => Identity::Ddf(guid(number)),
        };
        let mut id = [0; 24];
        match format {
            Format::Intel => crate::probe::put(&mut id, 0, &1_u16.to_le_bytes()),
            Format::Ddf(_) => id = guid(number.wrapping_add(1)),
        }
        let wish = NewVolume { name, id, level, params: &self.how, intel, sector };
        let volume = wish.volume(&spaces, &present)?;
        let array = Array { identity, generation: 1, disks, volumes: vec![volume] };
        array.check().map_err(|fault| Error::inval(fault.to_string()))?;
        let plans = plans(&array, &chosen, format, sector)?;
        let set = match identity {
            Identity::Intel { original, .. } => SetId::Intel(original),
            Identity::Ddf(guid) => SetId::Ddf(guid),
        };
        class.stopped.start(&set.name());
        for (name, _) in &plans {
            erase(control, name)?;
        }
        for (name, plan) in plans {
            apply_plan(control, &name, plan)?;
        }
        let members: Vec<String> = members.iter().filter(|m| *m != NONE).cloned().collect();
        wait_for_volume(control, &set.name(), name, &members)
    }
}

impl Label {
    fn format(&self) -> Result<Format, Error> {
        let order = match self.order {
            None | Some(ByteOrder::Linux) => Order::LINUX,
            Some(ByteOrder::Big) => Order::BIG,
            Some(ByteOrder::Little) => Order::LITTLE,
        };
        match self.format.to_ascii_lowercase().as_str() {
            "intel" | "imsm" if self.order.is_some() => {
                Err(Error::inval("--order is for DDF only: Intel has one order"))
            }
            "intel" | "imsm" => Ok(Format::Intel),
            "ddf" | "snia" => Ok(Format::Ddf(order)),
            _ => Err(Error::inval(format!("no format {}; Intel, DDF", self.format))),
        }
    }
}

/// A member disk that was named.
struct Chosen {
    name: String,
    disk: Disk,
    sectors: u64,
}

/// Whether a provider may be labelled: not in use, and nothing at its end that would be lost.
fn check(control: &mut GraphControl, name: &str, force: bool) -> Result<(), Error> {
    provider_access::with_read_access(control, NAME, name, |control, edge| {
        let (at, last) = provider_access::read_last_sector(control, name, edge)?;
        let before = at.checked_sub(last.len() as u64);
        let before = match before {
            Some(before) => provider_access::read(control, name, edge, before, last.len())?,
            None => Vec::new(),
        };
        let empty = last.iter().chain(&before).all(|byte| *byte == 0);
        if force || empty || before.starts_with(imsm::SIGNATURE) {
            return Ok(());
        }
        let what = format!(
            "the last sectors of {name} hold something (`ashlar inspect {name}` shows it); give \
             --force if it may be lost"
        );
        Err(Error::new(Errno::Exist, what))
    })?;
    // Open for writing, if only for a moment, is what labelling needs.
    provider_access::with_write_access(control, NAME, name, |_, _| Ok(()), |_, _| Ok(()))
}

fn choose(
    control: &mut GraphControl,
    members: &[String],
    force: bool,
    intel: bool,
) -> Result<(Vec<Option<Chosen>>, u32), Error> {
    let (mut all, mut sector) = (Vec::new(), None);
    for (at, name) in members.iter().enumerate() {
        if name == NONE {
            all.push(None);
            continue;
        }
        if members.iter().take(at).any(|other| other == name) {
            return Err(Error::inval(format!("{name} is named twice")));
        }
        let on = provider_access::find(control, name)?;
        let (size, media) = provider_access::sizes(control, on);
        if *sector.get_or_insert(size) != size {
            let what = format!(
                "{name} has sectors of {size} bytes, but another disk has sectors of another size"
            );
            return Err(Error::inval(what));
        }
        check(control, name, force)?;
        let number = verb_util::new_id(control, name).wrapping_add(at as u32);
        let serial = serial(control, name)?;
        let twin = |c: &Chosen| intel && c.disk.serial == serial;
        if all.iter().flatten().any(twin) {
            let what = format!("{name} has the serial number \"{serial}\" of another disk");
            return Err(Error::inval(what));
        }
        let guid = guid(number);
        let disk = Disk {
            serial: if intel { serial } else { String::from_utf8_lossy(&guid).into_owned() },
            reference: if intel { at as u32 } else { number },
            guid: if intel { [0; 24] } else { guid },
            state: DiskState::Active,
            bytes: if intel { media } else { usable(false, media) },
            bad: Vec::new(),
        };
        let sectors = media / u64::from(size.max(1));
        all.push(Some(Chosen { name: name.clone(), disk, sectors }));
    }
    match sector {
        Some(sector) => Ok((all, sector)),
        None => Err(Error::inval("an array without a disk: name at least one")),
    }
}

/// A disk to be inserted.
fn absent(at: usize, like: &Disk, intel: bool) -> Disk {
    let number = 0xfff0_0000 | at as u32;
    let guid = guid(number);
    Disk {
        serial: if intel { format!("NONE{at}") } else { String::from_utf8_lossy(&guid).into() },
        reference: if intel { u32::MAX } else { number },
        guid: if intel { [0; 24] } else { guid },
        state: DiskState::Missing,
        ..like.clone()
    }
}

/// The record of each disk.
fn plans(
    array: &Array,
    chosen: &[Option<Chosen>],
    format: Format,
    sector: u32,
) -> Result<Vec<(String, WritePlan)>, Error> {
    let refused = |fault: Fault| Error::inval(fault.to_string());
    let mut all = Vec::new();
    for (index, one) in chosen.iter().enumerate() {
        let Some(one) = one else { continue };
        let plan = match format {
            Format::Intel => {
                let record = imsm::create(array, &imsm::Names::default(), sector);
                imsm::plan(&record.map_err(refused)?, one.sectors, sector)
            }
            Format::Ddf(order) => {
                let place = TargetDisk {
                    sector_size: sector,
                    media_sectors: one.sectors,
                    time: 0,
                    controller: *b"ASHLAR  controller      ",
                    limits: Limits::default(),
                    order,
                };
                let meta = ddf::create(array, index, &place).map_err(refused)?;
                ddf::plan(&meta, one.sectors, sector, true)
            }
        };
        all.push((one.name.clone(), plan.map_err(refused)?));
    }
    Ok(all)
}
