//! ATA: command codes, registers, IDENTIFY DEVICE and DATA SET MANAGEMENT (ACS-3).

mod bridge;
mod identify;
mod log;
mod trim;

#[cfg(test)]
mod tests;

pub use bridge::{
    CONTROL_PORT, READ_PORT_MULTIPLIER, SEP_ATTN, SEP_IDENTIFY_LEN, SepIdentify,
    WRITE_PORT_MULTIPLIER, gscr, pm_registers, pm_value, pscr, sep,
};
pub use identify::{IDENTIFY_LEN, Identify, Trim};
pub use log::{NCQ_ERROR_LOG, NcqError};
pub use trim::{TRIM_BLOCK, TRIM_RANGE_MAX, TRIM_RANGES_A_BLOCK, trim_blocks, trim_ranges};

/// Commands (ACS-3 section 7).
pub mod command {
    /// DATA SET MANAGEMENT EXT; feature bit 0: TRIM.
    pub const DATA_SET_MANAGEMENT: u8 = 0x06;
    /// READ SECTOR(S), 28 bits.
    pub const READ: u8 = 0x20;
    pub const READ_DMA_EXT: u8 = 0x25;
    pub const READ_LOG_EXT: u8 = 0x2F;
    pub const WRITE_DMA_EXT: u8 = 0x35;
    /// READ DMA, 28 bits.
    pub const READ_DMA: u8 = 0xC8;
    /// WRITE DMA, 28 bits.
    pub const WRITE_DMA: u8 = 0xCA;
    /// READ FPDMA QUEUED.
    pub const READ_QUEUED: u8 = 0x60;
    /// WRITE FPDMA QUEUED.
    pub const WRITE_QUEUED: u8 = 0x61;
    /// READ SECTOR(S) EXT, 48 bits.
    pub const READ_EXT: u8 = 0x24;
    /// WRITE SECTOR(S), 28 bits.
    pub const WRITE: u8 = 0x30;
    /// WRITE SECTOR(S) EXT, 48 bits.
    pub const WRITE_EXT: u8 = 0x34;
    /// READ VERIFY SECTOR(S).
    pub const VERIFY: u8 = 0x40;
    /// READ VERIFY SECTOR(S) EXT.
    pub const VERIFY_EXT: u8 = 0x42;
    pub const SMART: u8 = 0xB0;
    pub const CHECK_POWER_MODE: u8 = 0xE5;
    /// FLUSH CACHE.
    pub const FLUSH: u8 = 0xE7;
    /// FLUSH CACHE EXT.
    pub const FLUSH_EXT: u8 = 0xEA;
    /// IDENTIFY DEVICE.
    pub const IDENTIFY: u8 = 0xEC;
    pub const SET_FEATURES: u8 = 0xEF;
}

/// The feature of DATA SET MANAGEMENT that deallocates blocks.
pub const FEATURE_TRIM: u8 = 1;

/// Bits of the status register (ACS-3 section 6.2).
pub mod status {
    /// ERR: the error register describes the error.
    pub const ERROR: u8 = 0x01;
    /// DRQ: data are waited for.
    pub const DATA: u8 = 0x08;
    /// DF: the device is at fault.
    pub const FAULT: u8 = 0x20;
    /// DRDY.
    pub const READY: u8 = 0x40;
    /// BSY.
    pub const BUSY: u8 = 0x80;
    /// Any of these, and the command has failed, or has not ended.
    pub const FAILED: u8 = BUSY | FAULT | DATA | ERROR;
}

/// Bits of the error register (ACS-3 section 6.3).
pub mod error {
    /// ABRT: the command is not known, or cannot be carried out.
    pub const ABORT: u8 = 0x04;
    /// IDNF: there is no such sector.
    pub const NOT_FOUND: u8 = 0x10;
    /// UNC: data that cannot be read.
    pub const UNCORRECTABLE: u8 = 0x40;
}
