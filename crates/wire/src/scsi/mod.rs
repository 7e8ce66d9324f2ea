//! SCSI: command descriptor blocks, sense data and parameter data (SAM-5, SPC-4, SBC-3).
//!
//! | file | holds |
//! | --- | --- |
//! | `commands` | the table of commands: usage maps, access rules; reports about it |
//! | `cdb` | a CDB as a typed command |
//! | `sense`, `codes` | sense data, and the additional sense codes by name |
//! | `status` | status codes |
//! | `inquiry`, `vpd` | standard INQUIRY data and vital product data pages |
//! | `initiator` | INQUIRY, its pages and mode data of any device, as initiators read them |
//! | `log` | log pages |
//! | `mode` | mode pages, MODE SENSE and MODE SELECT |
//! | `caps` | READ CAPACITY, REPORT LUNS, LBA status |
//! | `alua` | target port groups and their states |
//! | `pr` | PERSISTENT RESERVE OUT lists, PERSISTENT RESERVE IN data |
//! | `transport_id` | initiator ports by name |
//! | `copy` | third-party copy: EXTENDED COPY, its results, ROD tokens, page 8Fh |
//! | `unmap` | the UNMAP parameter list |
//! | `protection` | protection information: guards, tuples, fields |
//! | `format` | parameter lists of FORMAT UNIT and SANITIZE |
//! | `mmc` | parameter data of CD and DVD units |
//! | `ses` | diagnostic pages of enclosures |
//! | `defects` | READ DEFECT DATA |
//! | `lun` | LUN addressing |

mod alua;
pub mod build;
mod caps;
mod cdb;
mod codes;
mod commands;
mod copy;
mod defects;
mod format;
mod ids;
mod initiator;
mod inquiry;
mod log;
mod lun;
mod mmc;
mod mode;
mod pr;
mod protection;
mod sense;
mod ses;
mod status;
mod transport_id;
mod unmap;
mod vpd;

pub use alua::{
    AccessState, GROUP_PORTS_MAX, PortGroup, SetGroup, StateCause, parse_set_target_port_groups,
    parse_target_port_groups, report_target_port_groups, set_target_port_groups,
};
pub use caps::{
    Capacity, LbaExtent, LbaState, lba_status, parse_capacity10, parse_capacity16,
    parse_lba_extent, parse_luns, read_capacity10, read_capacity16, report_luns, report_luns_into,
};
pub use cdb::{
    CdbError, Command, CopyOut, CopyStatus, Extent, LogControl, LunSelect, MainChannel,
    PageControl, SanitizeAction, Tags, TrackAddress,
};
pub use codes::{Asc, Key, asc};
pub use commands::{
    Access, Alua, COMMANDS, CommandInfo, Direction, NACA, Persistent, Report, Times, Types,
    commands_of, control_byte, find, naca, report_opcodes,
};
pub use copy::{
    BlockRange, COPY_IN_ACTIONS, COPY_OUT_ACTIONS, CSCD_LEN, CSCD_THIS_UNIT, CopyForm, CopyLimits,
    CopyList, CopyProgress, CopyState, Cscd, DESCRIPTOR_TYPES, ListUsage, PopulateToken,
    ROD_TOKEN_LEN, RodToken, RodType, Segment, SegmentAt, TOKEN_SECRET_LEN, TokenInfo, WriteToken,
    copy_status_lid1, copy_status_lid4, encode_populate, encode_write_token, failed_segment,
    held_data, operating_parameters, report_rod_tokens, rod_token_information, third_party_page,
};
pub use defects::{DEFECTS_MAX, Defect, DefectFormat, Defects};
pub use format::{FormatList, Overwrite, format_protection, parse_format_list, parse_overwrite};
pub use ids::{
    Naa, SERIAL_MAX, hex, naa_bytes, parse_eui64, parse_naa, parse_uuid, show_naa, show_uuid,
};
pub use initiator::{
    DiskMode, INQUIRY_SHORT, Inquiry, UnitNames, parse_disk_mode, parse_inquiry, parse_vpd_limits,
    parse_vpd_names, parse_vpd_provisioning, parse_vpd_rotation, parse_vpd_serial, vpd_body,
};
pub use inquiry::{
    Identity, PeripheralType, TargetPortName, inquiry_data, no_lun_inquiry, unconnected_inquiry,
};
pub use log::{ErrorCounts, LogCounts, SpaceCounts, is_log_page, log_page};
pub use lun::{Addressing, LUN_MAX, Lun, LunError};
pub use mmc::{
    CD_BLOCK, Disc, FeatureFilter, ISO_DESCRIPTOR_BLOCK, IsoVolume, MediaEvent, capabilities_page,
    dvd_physical_format, get_configuration, get_event_status, mechanism_status, parse_iso_volume,
    parse_toc, read_disc_information, read_toc, read_track_information,
};
pub use mode::{
    ModeBlock, ModeField, ModePage, ModeSelect, ModeState, THRESHOLDS, Threshold, ThresholdKind,
    mode_fields, mode_select_list, mode_sense, parse_mode_pages, parse_mode_select,
};
pub use pr::{
    PR_OUT_LEN, PR_OUT_LEN_MAX, PrInAction, PrMove, PrOutAction, PrOutList, PrStatus, PrType,
    parse_pr_full_status, parse_pr_keys, parse_pr_reservation, pr_capabilities, pr_full_status,
    pr_keys, pr_reservation,
};
pub use protection::{Protect, ProtectionType, TUPLE_LEN, Tuple, guard, guard_more};
pub use sense::{FieldPointer, SENSE_LEN_MAX, Sense};
pub use ses::{
    ARRAY_DEVICE_SLOT, AdditionalElement, DEVICE_SLOT, SES_ELEMENTS_MAX, SesConfig, SesStatus,
    SesType, ses_kind, ses_page, ses_supported,
};
pub use status::Status;
pub use transport_id::{TRANSPORT_ID_LEN_MAX, TransportId};
pub use unmap::{UnmapDescriptor, UnmapList};
pub use vpd::{Limits, Provisioning, Vpd, vpd_page};

/// Cuts parameter data to an allocation length, as every data-in command does: length fields inside
/// keep the full length (SPC-4 4.2.5.6).
pub fn truncate(data: &mut Vec<u8>, allocation_len: u32) {
    data.truncate(usize::try_from(allocation_len).unwrap_or(usize::MAX));
}
