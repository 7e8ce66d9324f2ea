//! Bits of [`crate::ItlNexus::flags`]: the conditions that can keep a command from running.

pub const ATTENTION: u32 = 1;
/// A reservation keeps this nexus from commands that [`wire::scsi::Persistent::Read`] stops.
pub const RESERVED_READ: u32 = 1 << 1;
/// A reservation keeps this nexus from commands that [`wire::scsi::Persistent::Write`] stops.
pub const RESERVED_WRITE: u32 = 1 << 2;
/// A reservation keeps this nexus from commands that not even RESERVE lets run.
pub const RESERVED_STATUS: u32 = 1 << 3;
/// All that reservations set.
pub const RESERVED: u32 = RESERVED_READ | RESERVED_WRITE | RESERVED_STATUS;
/// An auto contingent allegiance concerns this nexus.
pub const ACA: u32 = 1 << 4;
/// Commands of the unit run in order just now (`task/set.rs`).
pub const ORDER: u32 = 1 << 5;
/// The unit was taken out of the initiator's map, or another has its number: commands that wait
/// to run there no longer run. No new command arrives on such a nexus.
pub const GONE: u32 = 1 << 6;
/// The group has ceased to grant writes since the nexus was made. New commands are refused by
/// their plan; this bit is for those that wait.
pub const PROTECTED: u32 = 1 << 7;
/// First bit of the asymmetric access state, four bits: zero while it is active, else its code
/// (SPC-4 table 180).
pub const ALUA_SHIFT: u32 = 8;
/// The asymmetric access state.
pub const ALUA: u32 = 0xf << ALUA_SHIFT;
/// The initiator knows another unit under this number, and has not read the identity of this one.
pub const IDENTITY_UNKNOWN: u32 = 1 << 12;
