//! INQUIRY and its vital product data: identity and capabilities of the unit.

use std::sync::Arc;

use wire::scsi::{
    Identity, Limits, Provisioning, Sense, TargetPortName, Vpd, commands_of, inquiry_data, vpd_page,
};

use super::unmap::UNMAP_DESCRIPTORS_MAX;
use super::write_same::WRITE_SAME_BYTES_MAX;
use super::{atomic, compare_write, unmap};
use crate::gate::ACA_SERVED;
use crate::handlers::ImmediateCommand;
use crate::registry::TargetPort;
use crate::unit::Device;
use crate::unit::copies::LIMITS;
use crate::unit::space::Space;

/// SANITIZE and two of its service actions.
const SANITIZE: u8 = 0x48;
const BLOCK_ERASE: u16 = 0x02;
const CRYPTOGRAPHIC_ERASE: u16 = 0x03;

/// SPT of page 86h: types 1, 2 and 3.
const PROTECTION_TYPES: u8 = 7;

/// Standard INQUIRY data, or a page.
pub(super) fn inquiry(
    ask: &mut ImmediateCommand<'_>,
    device: &Device,
    page: Option<u8>,
) -> Result<(), Sense> {
    let identity = identity(device, ask.port, &ask.registry.ports_of(device));
    let Some(page) = page else {
        ask.reply.extend(inquiry_data(&identity));
        return Ok(());
    };
    let limits = limits(device);
    match vpd_page(page, Vpd { identity: &identity, limits: &limits }) {
        Some(bytes) => {
            ask.reply.extend(bytes);
            Ok(())
        }
        None => Err(Sense::cdb_field(2, None)),
    }
}

/// Identity of the unit at the requesting port. It claims only features that the engine has.
/// `ports` are all ports of the unit.
fn identity(device: &Device, port: &TargetPort, ports: &[Arc<TargetPort>]) -> Identity {
    let (spec, label, group) = (device.spec(), device.label(), port.port_group());
    let ids = spec.ids();
    Identity {
        kind: device.kind().peripheral(),
        removable: spec.removable,
        vendor: label.vendor.clone(),
        product: label.product.clone(),
        revision: label.revision.clone(),
        serial: ids.serial,
        naa: Some(ids.naa),
        eui64: ids.eui64,
        // One that is made from other names adds nothing.
        uuid: spec.configured_ids.uuid,
        target_name: port.name.clone(),
        relative_port: port.port,
        port_group: group.id(),
        portal_group: 1,
        // Implicit changes always, explicit ones when the group takes orders.
        tpgs: 1 | if group.is_explicit() { 2 } else { 0 },
        multi_port: ports.len() > 1,
        ports: ports
            .iter()
            .map(|port| TargetPortName { relative: port.port, group: 1, name: port.name.clone() })
            .collect(),
        normal_aca: ACA_SERVED,
        protection: device.protection().map(|_| PROTECTION_TYPES),
        write_cache: spec.write_cache,
        third_party: Some(LIMITS),
        block_erase: serves(device, SANITIZE, Some(BLOCK_ERASE)),
        crypto_erase: serves(device, SANITIZE, Some(CRYPTOGRAPHIC_ERASE)),
        rotation_rate: spec.rotation.unwrap_or(0),
    }
}

/// Whether the unit serves a command. A handler that uses these pages may serve fewer commands than
/// the disk handler, and pages offer only those that it serves.
fn serves(device: &Device, opcode: u8, action: Option<u16>) -> bool {
    let mut rows = commands_of(device.kind().peripheral(), opcode);
    rows.any(|info| info.service_action == action && device.handler().serves(info, device))
}

/// VPD page 83h of a unit: its designators.
pub(crate) fn designators(device: &Device, port: &TargetPort) -> Vec<u8> {
    let (identity, limits) = (identity(device, port, &[]), limits(device));
    vpd_page(0x83, Vpd { identity: &identity, limits: &limits }).unwrap_or_default()
}

/// Least OPTIMAL TRANSFER LENGTH of a stripe, bytes.
const TRANSFER_BEST_MIN: u64 = 128 << 10;

/// The stripe, bytes, as far as a command reaches; 0 where there is none.
fn stripe(device: &Device) -> u64 {
    device.spec().stripe_bytes.min(u64::from(device.transfer_max()))
}

/// OPTIMAL TRANSFER LENGTH, bytes: the stripe, or the smallest multiple of a small one that is at
/// least [`TRANSFER_BEST_MIN`]; 0 where there is no stripe. Linux takes it for its largest command
/// (`max_sectors_kb`), so it must be no physical sector and no strip of 16 KiB.
pub(crate) fn transfer_best(device: &Device) -> u64 {
    let stripe = stripe(device);
    let most = u64::from(device.transfer_max()).checked_div(stripe).unwrap_or(0);
    let wanted = TRANSFER_BEST_MIN.checked_div(stripe).map_or(0, |n| n.max(1));
    let short = stripe * wanted < TRANSFER_BEST_MIN;
    stripe * (wanted + u64::from(short)).min(most)
}

/// OPTIMAL TRANSFER LENGTH GRANULARITY, bytes: the stripe, else the physical block. Linux ignores
/// an optimal length that is no multiple of it.
fn transfer_granularity(device: &Device) -> u64 {
    match stripe(device) {
        0 => u64::from(device.spec().physical_bytes),
        stripe => stripe,
    }
}

/// Limits that page B0h reports and the commands enforce, in blocks.
fn limits(device: &Device) -> Limits {
    let spec = device.spec();
    let block = u64::from(device.block_bytes());
    let blocks = |bytes: u64| u32::try_from(bytes / block).unwrap_or(u32::MAX);
    let thin = spec.can_delete;
    let atomic = atomic::limits(device);
    let (compares, atomic_writes) = (serves(device, 0x89, None), serves(device, 0x9C, None));
    let writes_same = serves(device, 0x41, None) || serves(device, 0x93, None);
    let freeing = device.provisioning();
    let unit = u32::try_from(freeing.unit(block)).unwrap_or(u32::MAX);
    Limits {
        granularity: u16::try_from(transfer_granularity(device) / block).unwrap_or(0),
        transfer_max: blocks(u64::from(device.transfer_max())),
        transfer_best: blocks(transfer_best(device)),
        compare_max: if compares { compare_write::blocks_max(device) } else { 0 },
        atomic_max: if atomic_writes { atomic.blocks } else { 0 },
        atomic_alignment: if atomic_writes { atomic.alignment } else { 0 },
        unmap_blocks_max: if thin { unmap::blocks_max(device) } else { 0 },
        unmap_descriptors_max: if thin { UNMAP_DESCRIPTORS_MAX } else { 0 },
        unmap_granularity: if thin { unit } else { 0 },
        unmap_alignment: freeing.alignment(block).filter(|_| thin),
        write_same_max: if writes_same { u64::from(blocks(WRITE_SAME_BYTES_MAX)) } else { 0 },
        write_same_nonzero: writes_same && !device.label().write_same_to_end,
        provisioning: if thin { Provisioning::Thin } else { Provisioning::Full },
        unmap: thin,
        unmap_same16: thin,
        unmap_same10: thin,
        zeros: thin && freeing.reads_zero,
        anchor: thin && spec.can_anchor,
        threshold_exponent: device.space().map_or(0, |_| Space::exponent(device.block_bytes())),
        threshold_percent: u8::from(device.space().is_some()),
    }
}
