//! READ CAPACITY 10 and 16 (SBC-3 5.15, 5.16).

use wire::scsi::{Capacity, read_capacity10, read_capacity16};

use crate::handlers::ImmediateCommand;
use crate::unit::Device;

fn capacity(device: &Device) -> Capacity {
    let spec = device.spec();
    let ratio = (spec.physical_bytes / device.block_bytes()).max(1);
    Capacity {
        blocks: device.blocks(),
        block_len: device.block_bytes(),
        // At most 31, but the field holds at most 15.
        physical_exponent: ratio.ilog2().min(15) as u8,
        lowest_aligned: 0,
        thin: spec.can_delete,
        protection: device.protection_type(),
        zeros: spec.can_delete && device.provisioning().reads_zero,
    }
}

pub(super) fn read_capacity_10(ask: &mut ImmediateCommand<'_>, device: &Device) {
    ask.reply.extend(read_capacity10(&capacity(device)));
}

pub(super) fn read_capacity_16(ask: &mut ImmediateCommand<'_>, device: &Device) {
    ask.reply.extend(read_capacity16(&capacity(device)));
}
