//! Identify.

use std::collections::BTreeSet;

use engine::registry::LunEntry;
use engine::{ModeBits, unmap_limits};
use wire::nvme::codes::{NSID_ALL, cns, event};
use wire::nvme::{
    Command, Controller, Namespace, NvmLimits, Status, active_list, command_sets, descriptors,
    independent_namespace,
};
use wire::scsi::LUN_MAX;

use super::admin::AdminAnswer;
use super::data::CAPSULE_MAX;
use super::io::{TRANSFER_MAX, namespace_of};
use super::queue::Queue;
use super::tasks::DEPTH;

/// AERL: events requested at once, less one.
pub(crate) const EVENT_REQUESTS: u8 = 3;

/// KAS: keep alive is looked after once a second, in units of 100 ms.
const KEEP_ALIVE: u16 = 10;

/// DMRL: the largest number of ranges that its byte can hold; one more range is accepted too.
const RANGES: u8 = u8::MAX;

/// Units of memory that MDTS and WZSL count in, bytes.
const PAGE: u32 = 4096;
/// After how long a host sends a command again that a namespace was not ready for, 100 ms. Linux
/// tries five times: it waits 75 s for a disk that is missing, and sees it 15 s later at most.
const RETRY_DELAY: u16 = 150;

impl Queue {
    pub fn identify(&self, command: &Command) -> AdminAnswer {
        let [what, set, ..] = command.dwords;
        let [what, ..] = what.to_le_bytes();
        let [.., set] = set.to_le_bytes();
        let discovery = self.controller.target.is_none();
        let by_set =
            matches!(what, cns::SET_NAMESPACE | cns::SET_CONTROLLER | cns::SET_ACTIVE_LIST);
        if by_set && set != 0 {
            return Status::INVALID_FIELD.into();
        }
        match what {
            cns::CONTROLLER => AdminAnswer::Data(self.controller_data()),
            _ if discovery => Status::INVALID_FIELD.into(),
            cns::ACTIVE_LIST | cns::SET_ACTIVE_LIST => self.active(command.nsid),
            cns::COMMAND_SETS => AdminAnswer::Data(command_sets()),
            cns::SET_CONTROLLER => AdminAnswer::Data(self.limits().encode()),
            cns::NAMESPACE | cns::SET_NAMESPACE | cns::INDEPENDENT | cns::DESCRIPTORS => {
                self.namespace(what, command.nsid)
            }
            _ => Status::INVALID_FIELD.into(),
        }
    }

    fn active(&self, after: u32) -> AdminAnswer {
        if after >= NSID_ALL - 1 {
            return Status::INVALID_NAMESPACE.into();
        }
        let Some(nexus) = self.nexus() else { return Status::INTERNAL.into() };
        let map = nexus.map();
        // Linux removes the device of a namespace that is no longer listed.
        let awaited = map.awaited().filter_map(|(lun, _)| u32::try_from(lun + 1).ok());
        let all: BTreeSet<u32> =
            map.iter().filter_map(|e| namespace_of(e)).chain(awaited).collect();
        AdminAnswer::Data(active_list(all.into_iter(), after))
    }

    fn namespace(&self, what: u8, number: u32) -> AdminAnswer {
        let Some(nexus) = self.nexus() else { return Status::INTERNAL.into() };
        if number == 0 || number > LUN_MAX {
            return Status::INVALID_NAMESPACE.into();
        }
        let map = nexus.map();
        if map.awaits(u64::from(number - 1)) {
            return Status::NOT_READY.into();
        }
        let entry = map.get(u64::from(number - 1)).filter(|e| namespace_of(e) == Some(number));
        let Some(entry) = entry else {
            // Not an active one: all zeroes.
            let empty = AdminAnswer::Data(vec![0; wire::nvme::IDENTIFY_LEN]);
            return match what {
                cns::NAMESPACE => empty,
                _ => Status::INVALID_NAMESPACE.into(),
            };
        };
        self.controller.record_known_unit(number, entry.device.number());
        if matches!(what, cns::NAMESPACE | cns::DESCRIPTORS) {
            nexus.record_identity(entry.lun);
        }
        AdminAnswer::Data(match what {
            cns::NAMESPACE => namespace(entry).encode(),
            // Neither protection information nor anything else of the command set's own.
            cns::SET_NAMESPACE => vec![0; wire::nvme::IDENTIFY_LEN],
            cns::INDEPENDENT => independent_namespace(is_read_only(entry)),
            _ => {
                let ids = entry.device.spec().ids();
                descriptors(ids.uuid, ids.eui64)
            }
        })
    }

    /// The largest transfer that the pools permit, as a power of two of pages.
    fn transfer_shift(&self) -> u8 {
        let map = self.nexus().map(|n| n.map());
        let most = map.iter().flat_map(|m| m.iter()).map(|e| e.device.transfer_max()).min();
        let pages = most.unwrap_or(TRANSFER_MAX).min(TRANSFER_MAX) / PAGE;
        u8::try_from(pages.max(2).ilog2()).unwrap_or(1)
    }

    fn controller_data(&self) -> Vec<u8> {
        let map = self.nexus().map(|n| n.map());
        let cached = |e: &LunEntry| e.device.mode().has(ModeBits::WCE);
        let target = self.controller.target.as_ref();
        let (serial, model) = match target {
            Some(t) => (t.params.serial.clone(), t.params.model.clone()),
            None => ("discovery".into(), "Ashlar discovery".into()),
        };
        Controller {
            discovery: target.is_none(),
            serial,
            model,
            firmware: super::FIRMWARE.into(),
            subsystem: self.controller.host.subsystem.clone(),
            number: self.controller.number,
            transfer_shift: self.transfer_shift(),
            events: if target.is_some() { event::NAMESPACE_BIT } else { event::DISCOVERY_BIT },
            event_requests: EVENT_REQUESTS,
            commands: DEPTH,
            namespaces: if target.is_some() { LUN_MAX } else { 0 },
            capsule_data: u32::try_from(CAPSULE_MAX).unwrap_or(0),
            write_cache: map.iter().flat_map(|m| m.iter()).any(|e| cached(e)),
            retry_delay: if target.is_some() { RETRY_DELAY } else { 0 },
            keep_alive: KEEP_ALIVE,
        }
        .encode()
    }

    /// Limits of one Dataset Management that every namespace can free without splitting it.
    fn limits(&self) -> NvmLimits {
        let map = self.nexus().map(|n| n.map());
        let all = map.iter().flat_map(|m| m.iter()).filter(|e| e.device.spec().can_delete);
        let blocks = all.map(|e| unmap_limits(&e.device).0).min().unwrap_or(0);
        NvmLimits {
            zeroes_shift: 0,
            ranges: if blocks > 0 { RANGES } else { 0 },
            range_blocks: blocks,
            all_blocks: blocks.into(),
        }
    }
}

fn is_read_only(entry: &LunEntry) -> bool {
    let device = &entry.device;
    entry.read_only || device.spec().read_only || device.mode().has(ModeBits::SWP)
}

/// NPWG and NOWS, in blocks: the physical block, and the stripe, 0 where there is none.
fn write_sizes(physical: u32, stripe: u32) -> (u32, u32) {
    let unit = physical.max(1);
    (unit, if stripe.is_multiple_of(unit) { stripe } else { 0 })
}

/// Identify Namespace data (CNS 00h) of a unit.
pub(super) fn namespace(entry: &LunEntry) -> Namespace {
    let device = &entry.device;
    let (spec, block) = (device.spec(), device.block_bytes());
    let in_blocks = |bytes: u64| u32::try_from(bytes / u64::from(block)).unwrap_or(0);
    let freeing = device.provisioning();
    let physical = in_blocks(u64::from(spec.physical_bytes));
    let (write_unit, write_best) = write_sizes(physical, in_blocks(spec.stripe_bytes));
    // There is no word for units that begin elsewhere than with the namespace.
    let free_unit = if spec.can_delete { in_blocks(freeing.natural_unit()) } else { 0 };
    Namespace {
        blocks: device.blocks(),
        block_shift: u8::try_from(block.ilog2()).unwrap_or(9),
        write_unit,
        write_best,
        free_unit,
        frees: spec.can_delete,
        zeroes: spec.can_delete && freeing.reads_zero,
        read_only: is_read_only(entry),
        eui64: spec.configured_ids.eui64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn write_sizes_are_the_physical_block_and_the_stripe() {
        for (physical, stripe, wanted) in
            [(0, 0, (1, 0)), (8, 0, (8, 0)), (8, 32, (8, 32)), (1, 16, (1, 16)), (8, 12, (8, 0))]
        {
            assert_eq!(write_sizes(physical, stripe), wanted, "{physical} {stripe}");
        }
    }
}
