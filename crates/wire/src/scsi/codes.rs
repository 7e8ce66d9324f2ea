//! Sense keys and additional sense codes, by their standard names (SPC-4 section 4.5, annex F).

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Key {
    #[default]
    NoSense = 0x0,
    RecoveredError = 0x1,
    NotReady = 0x2,
    MediumError = 0x3,
    HardwareError = 0x4,
    IllegalRequest = 0x5,
    UnitAttention = 0x6,
    DataProtect = 0x7,
    BlankCheck = 0x8,
    Vendor = 0x9,
    CopyAborted = 0xa,
    AbortedCommand = 0xb,
    VolumeOverflow = 0xd,
    Miscompare = 0xe,
    Completed = 0xf,
}

impl Key {
    /// The key of a code; the reserved code Ch is None.
    pub fn from_code(code: u8) -> Option<Key> {
        const ALL: [Key; 15] = [
            Key::NoSense,
            Key::RecoveredError,
            Key::NotReady,
            Key::MediumError,
            Key::HardwareError,
            Key::IllegalRequest,
            Key::UnitAttention,
            Key::DataProtect,
            Key::BlankCheck,
            Key::Vendor,
            Key::CopyAborted,
            Key::AbortedCommand,
            Key::VolumeOverflow,
            Key::Miscompare,
            Key::Completed,
        ];
        ALL.into_iter().find(|key| *key as u8 == code)
    }
}

/// A sense key with an additional sense code and its qualifier: one meaning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Asc {
    pub key: Key,
    /// Additional sense code.
    pub asc: u8,
    /// Additional sense code qualifier.
    pub ascq: u8,
}

impl Asc {
    /// A meaning by its numbers.
    pub const fn new(key: Key, asc: u8, ascq: u8) -> Asc {
        Asc { key, asc, ascq }
    }

    /// The standard's name of ASC and ASCQ; "additional sense" when this file does not have it.
    pub fn name(self) -> &'static str {
        let found = asc::ALL.iter().find(|(c, _)| (c.asc, c.ascq) == (self.asc, self.ascq));
        found.map_or("additional sense", |(_, name)| name)
    }
}

impl std::fmt::Display for Asc {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (key, asc, ascq) = (self.key as u8, self.asc, self.ascq);
        write!(f, "{} ({key:x}/{asc:02x}/{ascq:02x})", self.name())
    }
}

/// Defines the constants, the table of names and the constants' docs from one list.
macro_rules! sense_codes {
    ($($id:ident = $key:ident, $asc:literal, $ascq:literal, $name:literal;)*) => {
        /// Meanings used here, by name.
        pub mod asc {
            use super::{Asc, Key};
            $(#[doc = $name] pub const $id: Asc = Asc::new(Key::$key, $asc, $ascq);)*
            /// Every constant with its standard name.
            pub const ALL: &[(Asc, &str)] = &[$(($id, $name)),*];
        }
    };
}

sense_codes! {
    NONE = NoSense, 0x00, 0x00, "NO ADDITIONAL SENSE INFORMATION";
    NOT_READY = NotReady, 0x04, 0x00, "LOGICAL UNIT NOT READY, CAUSE NOT REPORTABLE";
    BECOMING_READY = NotReady, 0x04, 0x01, "LOGICAL UNIT IS IN PROCESS OF BECOMING READY";
    START_NEEDED = NotReady, 0x04, 0x02, "LOGICAL UNIT NOT READY, INITIALIZING COMMAND REQUIRED";
    MANUAL_NEEDED = NotReady, 0x04, 0x03,
        "LOGICAL UNIT NOT READY, MANUAL INTERVENTION REQUIRED";
    ALUA_TRANSITION = NotReady, 0x04, 0x0a,
        "LOGICAL UNIT NOT ACCESSIBLE, ASYMMETRIC ACCESS STATE TRANSITION";
    ALUA_STANDBY = NotReady, 0x04, 0x0b,
        "LOGICAL UNIT NOT ACCESSIBLE, TARGET PORT IN STANDBY STATE";
    ALUA_UNAVAILABLE = NotReady, 0x04, 0x0c,
        "LOGICAL UNIT NOT ACCESSIBLE, TARGET PORT IN UNAVAILABLE STATE";
    ALUA_OFFLINE = NotReady, 0x04, 0x12, "LOGICAL UNIT NOT READY, OFFLINE";
    NO_MEDIUM = NotReady, 0x3a, 0x00, "MEDIUM NOT PRESENT";
    WRITE_ERROR = MediumError, 0x0c, 0x00, "WRITE ERROR";
    READ_ERROR = MediumError, 0x11, 0x00, "UNRECOVERED READ ERROR";
    WRITE_FAULT = MediumError, 0x03, 0x00, "PERIPHERAL DEVICE WRITE FAULT";
    COMMUNICATION_FAILURE = HardwareError, 0x08, 0x00, "LOGICAL UNIT COMMUNICATION FAILURE";
    TIMEOUT = AbortedCommand, 0x3e, 0x02, "TIMEOUT ON LOGICAL UNIT";
    LUN_FAILURE = HardwareError, 0x3e, 0x01, "LOGICAL UNIT FAILURE";
    SELF_TEST_FAILED = HardwareError, 0x3e, 0x03, "LOGICAL UNIT FAILED SELF-TEST";
    INTERNAL_FAILURE = HardwareError, 0x44, 0x00, "INTERNAL TARGET FAILURE";
    PARAMETER_LIST_LEN = IllegalRequest, 0x1a, 0x00, "PARAMETER LIST LENGTH ERROR";
    SET_PORT_GROUPS_FAILED = HardwareError, 0x67, 0x0a,
        "SET TARGET PORT GROUPS COMMAND FAILED";
    INVALID_FIELD_IN_INFORMATION_UNIT = IllegalRequest, 0x0e, 0x03,
        "INVALID FIELD IN COMMAND INFORMATION UNIT";
    INVALID_OPCODE = IllegalRequest, 0x20, 0x00, "INVALID COMMAND OPERATION CODE";
    LBA_OUT_OF_RANGE = IllegalRequest, 0x21, 0x00, "LOGICAL BLOCK ADDRESS OUT OF RANGE";
    INVALID_FIELD_IN_CDB = IllegalRequest, 0x24, 0x00, "INVALID FIELD IN CDB";
    LUN_NOT_SUPPORTED = IllegalRequest, 0x25, 0x00, "LOGICAL UNIT NOT SUPPORTED";
    INVALID_FIELD_IN_LIST = IllegalRequest, 0x26, 0x00, "INVALID FIELD IN PARAMETER LIST";
    TOO_MANY_CSCDS = IllegalRequest, 0x26, 0x06, "TOO MANY TARGET DESCRIPTORS";
    UNSUPPORTED_CSCD = IllegalRequest, 0x26, 0x07, "UNSUPPORTED TARGET DESCRIPTOR TYPE CODE";
    TOO_MANY_SEGMENTS = IllegalRequest, 0x26, 0x08, "TOO MANY SEGMENT DESCRIPTORS";
    UNSUPPORTED_SEGMENT = IllegalRequest, 0x26, 0x09,
        "UNSUPPORTED SEGMENT DESCRIPTOR TYPE CODE";
    INLINE_DATA_TOO_LONG = IllegalRequest, 0x26, 0x0b, "INLINE DATA LENGTH EXCEEDED";
    OPERATION_IN_PROGRESS = IllegalRequest, 0x00, 0x16, "OPERATION IN PROGRESS";
    TOKEN_TYPE = IllegalRequest, 0x23, 0x01,
        "INVALID TOKEN OPERATION, UNSUPPORTED TOKEN TYPE";
    TOKEN_UNKNOWN = IllegalRequest, 0x23, 0x04, "INVALID TOKEN OPERATION, TOKEN UNKNOWN";
    TOKEN_CORRUPT = IllegalRequest, 0x23, 0x05, "INVALID TOKEN OPERATION, TOKEN CORRUPT";
    TOKEN_REVOKED = IllegalRequest, 0x23, 0x06, "INVALID TOKEN OPERATION, TOKEN REVOKED";
    TOKEN_EXPIRED = IllegalRequest, 0x23, 0x07, "INVALID TOKEN OPERATION, TOKEN EXPIRED";
    TOKEN_CANCELLED = IllegalRequest, 0x23, 0x08, "INVALID TOKEN OPERATION, TOKEN CANCELLED";
    TOKEN_DELETED = IllegalRequest, 0x23, 0x09, "INVALID TOKEN OPERATION, TOKEN DELETED";
    TOKEN_LENGTH = IllegalRequest, 0x23, 0x0a, "INVALID TOKEN OPERATION, INVALID TOKEN LENGTH";
    NO_ROD_TOKEN_RESOURCES = IllegalRequest, 0x55, 0x0d,
        "INSUFFICIENT RESOURCES TO CREATE ROD TOKEN";
    COPY_ABORTED = CopyAborted, 0x00, 0x00, "NO ADDITIONAL SENSE INFORMATION";
    COPY_UNREACHABLE = CopyAborted, 0x08, 0x04, "UNREACHABLE COPY TARGET";
    COPY_DEVICE_FAILURE = CopyAborted, 0x0d, 0x01, "THIRD PARTY DEVICE FAILURE";
    COPY_DEVICE_GONE = CopyAborted, 0x0d, 0x02, "COPY TARGET DEVICE NOT REACHABLE";
    COPY_DEVICE_TYPE = CopyAborted, 0x0d, 0x03, "INCORRECT COPY TARGET DEVICE TYPE";
    COPY_INEXACT = CopyAborted, 0x26, 0x0a, "UNEXPECTED INEXACT SEGMENT";
    COPY_INVALID_OPERATION = CopyAborted, 0x26, 0x0c,
        "INVALID OPERATION FOR COPY SOURCE OR DESTINATION";
    INVALID_RELEASE = IllegalRequest, 0x26, 0x04, "INVALID RELEASE OF PERSISTENT RESERVATION";
    SEQUENCE_ERROR = IllegalRequest, 0x2c, 0x00, "COMMAND SEQUENCE ERROR";
    SAVING_UNSUPPORTED = IllegalRequest, 0x39, 0x00, "SAVING PARAMETERS NOT SUPPORTED";
    REMOVAL_PREVENTED = IllegalRequest, 0x53, 0x02, "MEDIUM REMOVAL PREVENTED";
    OUT_OF_RESERVATIONS = IllegalRequest, 0x55, 0x04, "INSUFFICIENT REGISTRATION RESOURCES";
    OUT_OF_RESOURCES = IllegalRequest, 0x55, 0x03, "INSUFFICIENT RESOURCES";
    MEDIUM_CHANGED = UnitAttention, 0x28, 0x00,
        "NOT READY TO READY CHANGE, MEDIUM MAY HAVE CHANGED";
    POWER_ON_OR_RESET = UnitAttention, 0x29, 0x00,
        "POWER ON, RESET, OR BUS DEVICE RESET OCCURRED";
    NEXUS_LOSS = UnitAttention, 0x29, 0x07, "I_T NEXUS LOSS OCCURRED";
    MODE_CHANGED = UnitAttention, 0x2a, 0x01, "MODE PARAMETERS CHANGED";
    LOG_CHANGED = UnitAttention, 0x2a, 0x02, "LOG PARAMETERS CHANGED";
    RESERVATIONS_PREEMPTED = UnitAttention, 0x2a, 0x03, "RESERVATIONS PREEMPTED";
    RESERVATIONS_RELEASED = UnitAttention, 0x2a, 0x04, "RESERVATIONS RELEASED";
    REGISTRATIONS_PREEMPTED = UnitAttention, 0x2a, 0x05, "REGISTRATIONS PREEMPTED";
    ALUA_STATE_CHANGED = UnitAttention, 0x2a, 0x06, "ASYMMETRIC ACCESS STATE CHANGED";
    CAPACITY_CHANGED = UnitAttention, 0x2a, 0x09, "CAPACITY DATA HAS CHANGED";
    TIMESTAMP_CHANGED = UnitAttention, 0x2a, 0x10, "TIMESTAMP CHANGED";
    COMMANDS_CLEARED = UnitAttention, 0x2f, 0x00, "COMMANDS CLEARED BY ANOTHER INITIATOR";
    THIN_SOFT_THRESHOLD = UnitAttention, 0x38, 0x07,
        "THIN PROVISIONING SOFT THRESHOLD REACHED";
    IDENTIFIER_CHANGED = UnitAttention, 0x3f, 0x05, "DEVICE IDENTIFIER CHANGED";
    INQUIRY_CHANGED = UnitAttention, 0x3f, 0x03, "INQUIRY DATA HAS CHANGED";
    LUNS_CHANGED = UnitAttention, 0x3f, 0x0e, "REPORTED LUNS DATA HAS CHANGED";
    WRITE_PROTECTED = DataProtect, 0x27, 0x00, "WRITE PROTECTED";
    SPACE_EXHAUSTED = DataProtect, 0x27, 0x07, "SPACE ALLOCATION FAILED WRITE PROTECT";
    UNEXPECTED_DATA = AbortedCommand, 0x0c, 0x0c, "UNEXPECTED UNSOLICITED DATA";
    NOT_ENOUGH_DATA = AbortedCommand, 0x0c, 0x0d, "NOT ENOUGH UNSOLICITED DATA";
    CRC_ERROR = AbortedCommand, 0x47, 0x05, "PROTOCOL SERVICE CRC ERROR";
    OVERLAPPED_COMMANDS = AbortedCommand, 0x4e, 0x00, "OVERLAPPED COMMANDS ATTEMPTED";
    DATA_PHASE_ERROR = AbortedCommand, 0x4b, 0x00, "DATA PHASE ERROR";
    MISCOMPARE = Miscompare, 0x1d, 0x00, "MISCOMPARE DURING VERIFY OPERATION";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sense_code_names_are_found_and_unique() {
        for (i, (code, name)) in asc::ALL.iter().enumerate() {
            assert_eq!(code.name(), *name);
            assert!(asc::ALL[..i].iter().all(|(c, _)| c != code), "{name} stands twice");
            assert_eq!(Key::from_code(code.key as u8), Some(code.key));
        }
        assert_eq!(
            asc::LBA_OUT_OF_RANGE.to_string(),
            "LOGICAL BLOCK ADDRESS OUT OF RANGE (5/21/00)"
        );
        assert_eq!(Key::from_code(0xc), None);
    }
}
