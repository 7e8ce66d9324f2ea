//! Export names, and the description of an export for clients.
//!
//! An initiator's exports are the LUNs of its group. Each is called by its LUN in decimal digits,
//! by the name of its unit or by an alias. It is also called by the name that its unit had before
//! its disk was renamed. Nothing at all is LUN 0. Where targets share an address and a name is not
//! enough, `TARGET/NAME` is.

use std::sync::Arc;

use engine::registry::{LunEntry, LunMap};
use engine::{Device, Engine, ModeBits, TargetPort};
use reactor::Address;
use wire::nbd::codes::export_flag as flag;
use wire::nbd::{Export, Listed};

use super::NAME;
use super::params::Checked;

/// Largest READ or WRITE, bytes: what every client may send without asking. A longer READ ends
/// INVAL, a longer WRITE is read, dropped and ends INVAL.
pub const PAYLOAD_MAX: u32 = 32 << 20;

/// Best size of a request when the unit knows none, bytes.
const PREFERRED: u32 = 4096;
/// Largest unit of trims that is a preferred block size too: reads and writes keep to it as well.
const UNIT_MAX: u32 = 64 << 10;

/// A unit that an initiator may use.
pub(crate) struct FoundExport {
    pub target: Arc<Checked>,
    pub port: Arc<TargetPort>,
    pub entry: Arc<LunEntry>,
}

/// Every export of an initiator at those targets, in the order of targets and LUNs.
pub(crate) fn all(
    engine: &Engine,
    targets: &[Arc<Checked>],
    initiator: &str,
    portal: &Address,
) -> Vec<FoundExport> {
    let mut out = Vec::new();
    for target in targets {
        let Some(port) = engine.find_target(NAME, &target.spec.name) else { continue };
        let decision = port.decide(initiator, portal);
        let one = |entry: &Arc<LunEntry>| FoundExport {
            target: target.clone(),
            port: port.clone(),
            entry: entry.clone(),
        };
        out.extend(decision.luns.iter().map(one));
    }
    out
}

/// The meaning of a name.
pub(crate) enum ExportLookup {
    Found(FoundExport),
    /// A unit that is configured for the initiator as this LUN, and not there yet.
    Awaited(u64),
    /// Nothing that the initiator sees.
    Unknown,
}

/// Finds the unit of a name. A target's LUNs are read all at once, so that a unit that appears
/// meanwhile is either there or awaited, and never neither.
pub(crate) fn find(
    engine: &Engine,
    targets: &[Arc<Checked>],
    initiator: &str,
    portal: &Address,
    name: &str,
) -> ExportLookup {
    let mut awaited = None;
    let mut of_target = |t: &Arc<Checked>, name: &str| {
        let port = engine.find_target(NAME, &t.spec.name)?;
        let luns = port.decide(initiator, portal).luns;
        let Some(entry) = pick(engine, t, &luns, name).cloned() else {
            awaited = awaited.or_else(|| awaited_lun(engine, t, &luns, name));
            return None;
        };
        Some(FoundExport { target: t.clone(), port, entry })
    };
    let plain = targets.iter().find_map(|t| of_target(t, name));
    let found = plain.or_else(|| {
        let (target, name) = name.split_once('/')?;
        of_target(targets.iter().find(|t| t.spec.name == target)?, name)
    });
    match (found, awaited) {
        (Some(found), _) => ExportLookup::Found(found),
        (None, Some(lun)) => ExportLookup::Awaited(lun),
        (None, None) => ExportLookup::Unknown,
    }
}

/// The number of a unit of that name that is not there yet.
fn awaited_lun(engine: &Engine, target: &Checked, luns: &LunMap, name: &str) -> Option<u64> {
    let number = if name.is_empty() { Some(0) } else { name.parse().ok() };
    let former = || Some(engine.registry().former(name)?.provider);
    let unit = target.params.aliases.get(name).cloned().or_else(former);
    let unit = unit.as_deref().unwrap_or(name);
    let found = luns.awaited().find(|(lun, of)| *of == unit || Some(*lun) == number);
    found.map(|(lun, _)| lun)
}

fn pick<'a>(
    engine: &Engine,
    target: &Checked,
    luns: &'a LunMap,
    name: &str,
) -> Option<&'a Arc<LunEntry>> {
    let named = |name: &str| luns.iter().find(|e| e.device.name() == name);
    let of_lun = |lun: u64| luns.get(lun);
    if name.is_empty() {
        return of_lun(0);
    }
    let alias = || target.params.aliases.get(name).and_then(|unit| named(unit));
    let former = || {
        let unit = engine.registry().former(name)?;
        luns.iter().find(|e| e.device.spec().serial == unit.serial)
    };
    named(name).or_else(alias).or_else(former).or_else(|| of_lun(name.parse().ok()?))
}

/// Lines of LIST: the names of units, with their target's where there is another of that name.
pub(crate) fn list(all: &[FoundExport]) -> Vec<Listed> {
    let name = |f: &FoundExport| f.entry.device.name();
    let line = |(i, f): (usize, &FoundExport)| {
        let first = all.iter().position(|other| name(other) == name(f));
        let name = match first {
            Some(first) if first < i => format!("{}/{}", f.target.spec.name, name(f)),
            _ => name(f),
        };
        Listed { name, description: description(f) }
    };
    all.iter().enumerate().map(line).collect()
}

fn description(f: &FoundExport) -> String {
    let spec = f.entry.device.spec();
    format!("LUN {} of {}, serial number {}", f.entry.lun, f.target.spec.name, spec.serial)
}

/// Zeroes cost no writing of them.
pub(crate) fn zeroes_fast(device: &Device) -> bool {
    device.spec().can_delete && device.provisioning().reads_zero
}

/// Transmission flags of a unit, for its clients.
pub(crate) fn flags(entry: &LunEntry) -> u16 {
    let device = &entry.device;
    let spec = device.spec();
    let read_only = entry.read_only || spec.read_only || device.mode().has(ModeBits::SWP);
    let mut flags = flag::HAS_FLAGS
        | flag::SEND_FLUSH
        | flag::SEND_FUA
        // A flush covers the whole unit, on whichever connection the data was written.
        | flag::CAN_MULTI_CONN
        | flag::SEND_CACHE;
    if read_only {
        flags |= flag::READ_ONLY;
    } else {
        flags |= flag::SEND_WRITE_ZEROES | flag::SEND_FAST_ZERO;
        flags |= if spec.can_delete { flag::SEND_TRIM } else { 0 };
    }
    if spec.rotation.is_some_and(|rpm| rpm > 1) {
        flags |= flag::ROTATIONAL;
    }
    flags
}

/// Preferred size of a request, bytes: the stripe, else the largest of physical block and `unit` of
/// trims; `min` where none of them fits the protocol.
fn preferred(stripe: u64, physical: u32, unit: u32, min: u32) -> u32 {
    let stripe = u32::try_from(stripe).unwrap_or(0);
    let best = [stripe, physical.max(PREFERRED).max(unit), min];
    let fits = |b: &u32| b.is_power_of_two() && (min..=PAYLOAD_MAX).contains(b);
    best.into_iter().find(fits).unwrap_or(min)
}

/// The description of an export for a client.
pub(crate) fn describe(f: &FoundExport) -> Export {
    let device = &f.entry.device;
    let spec = device.spec();
    let min = device.block_bytes();
    // The protocol has no other word for where trims should begin and end.
    let unit = u32::try_from(device.provisioning().natural_unit()).unwrap_or(0);
    let unit = if spec.can_delete && unit <= UNIT_MAX { unit } else { 0 };
    let preferred = preferred(spec.stripe_bytes, spec.physical_bytes, unit, min);
    Export {
        name: device.name(),
        description: description(f),
        size: device.blocks().saturating_mul(u64::from(min)),
        flags: flags(&f.entry),
        block_sizes: [min, preferred, PAYLOAD_MAX],
        unaligned: f.target.params.unaligned,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn preferred_size_is_the_stripe_or_the_physical_block() {
        const KIB: u32 = 1024;
        for (stripe, physical, unit, wanted) in [
            (0, 512, 0, 4 * KIB),
            (0, 16 * KIB, 0, 16 * KIB),
            (0, 4 * KIB, 64 * KIB, 64 * KIB),
            (16 * KIB, 4 * KIB, 0, 16 * KIB),
            (64 * KIB, 4 * KIB, 0, 64 * KIB),
            // No power of two, and longer than a request.
            (48 * KIB, 4 * KIB, 0, 4 * KIB),
            (2 * PAYLOAD_MAX, 4 * KIB, 0, 4 * KIB),
        ] {
            assert_eq!(preferred(stripe.into(), physical, unit, 512), wanted, "{stripe}");
        }
    }
}
