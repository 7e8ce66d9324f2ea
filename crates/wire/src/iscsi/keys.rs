//! The table of keys (RFC 7143 section 13, RFC 7144 section 5): permitted values, defaults, result
//! functions and permitted phases.

/// A key that the negotiation knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Key {
    HeaderDigest,
    DataDigest,
    MaxConnections,
    /// InitialR2T.
    InitialR2t,
    ImmediateData,
    MaxRecvDataSegmentLength,
    MaxBurstLength,
    FirstBurstLength,
    DefaultTime2Wait,
    DefaultTime2Retain,
    /// MaxOutstandingR2T.
    MaxOutstandingR2t,
    DataPduInOrder,
    DataSequenceInOrder,
    ErrorRecoveryLevel,
    /// iSCSIProtocolLevel.
    ProtocolLevel,
    TaskReporting,
    /// OFMarker (obsolete).
    OfMarker,
    /// IFMarker (obsolete).
    IfMarker,
    /// OFMarkInt (obsolete).
    OfMarkInt,
    /// IFMarkInt (obsolete).
    IfMarkInt,
    InitiatorName,
    InitiatorAlias,
    TargetName,
    TargetAlias,
    TargetAddress,
    TargetPortalGroupTag,
    SessionType,
    SendTargets,
    AuthMethod,
    ChapA,
    ChapI,
    ChapC,
    ChapN,
    ChapR,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// The smaller number.
    Min,
    /// The larger number.
    Max,
    /// Yes when both sides send Yes.
    And,
    /// Yes when one side sends Yes.
    Or,
    /// The first of the offered values that the other side supports.
    List,
    /// A number that each side declares for itself; it has no answer.
    Declared,
    /// Text that is declared; handled by the login, not by the negotiation.
    Text,
    /// A Yes/No key of the markers: answered No.
    ObsoleteBool,
    /// A range key of the markers: answered Reject.
    ObsoleteRange,
    /// Belongs to the security stage.
    Security,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Security stage of a login.
    Security,
    /// Operational stage of the first connection's login.
    Leading,
    /// Operational stage of any connection's login.
    Login,
    /// Any time, full feature phase included.
    Any,
    FullFeature,
}

/// The sides that may send a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sender {
    /// Either side.
    Both,
    Initiator,
    Target,
}

/// One row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeySpec {
    pub key: Key,
    pub name: &'static str,
    /// How the result is found.
    pub rule: Rule,
    /// Smallest legal number; Yes/No keys are 0 and 1.
    pub low: u32,
    /// Largest legal number.
    pub high: u32,
    /// The default value (for lists, its index).
    pub default: u32,
    /// The phases in which it may be sent.
    pub phase: Phase,
    /// The sides that may send it.
    pub sender: Sender,
    /// Whether it means something in a discovery session; if not, the answer is Irrelevant.
    pub discovery: bool,
}

impl KeySpec {
    const fn number(
        key: Key,
        name: &'static str,
        rule: Rule,
        range: (u32, u32, u32),
        discovery: bool,
    ) -> KeySpec {
        let (low, high, default) = range;
        let (phase, sender) = (Phase::Leading, Sender::Both);
        KeySpec { key, name, rule, low, high, default, phase, sender, discovery }
    }

    const fn non_numeric(
        key: Key,
        name: &'static str,
        rule: Rule,
        phase: Phase,
        by: Sender,
    ) -> KeySpec {
        let (low, high, default) = (0, 0, 0);
        KeySpec { key, name, rule, low, high, default, phase, sender: by, discovery: true }
    }

    pub(crate) const fn bit(&self) -> u64 {
        1 << self.key as u8
    }
}

const SEGMENT_MAX: u32 = 16_777_215;

/// Every key the RFCs name, in the order of RFC 7143 section 13.
pub const KEYS: &[KeySpec] = &[
    KeySpec::non_numeric(Key::HeaderDigest, "HeaderDigest", Rule::List, Phase::Login, Sender::Both),
    KeySpec::non_numeric(Key::DataDigest, "DataDigest", Rule::List, Phase::Login, Sender::Both),
    KeySpec::number(Key::MaxConnections, "MaxConnections", Rule::Min, (1, 65535, 1), false),
    KeySpec::number(Key::InitialR2t, "InitialR2T", Rule::Or, (0, 1, 1), false),
    KeySpec::number(Key::ImmediateData, "ImmediateData", Rule::And, (0, 1, 1), false),
    KeySpec {
        phase: Phase::Any,
        ..KeySpec::number(
            Key::MaxRecvDataSegmentLength,
            "MaxRecvDataSegmentLength",
            Rule::Declared,
            (512, SEGMENT_MAX, 8192),
            true,
        )
    },
    KeySpec::number(
        Key::MaxBurstLength,
        "MaxBurstLength",
        Rule::Min,
        (512, SEGMENT_MAX, 262_144),
        false,
    ),
    KeySpec::number(
        Key::FirstBurstLength,
        "FirstBurstLength",
        Rule::Min,
        (512, SEGMENT_MAX, 65_536),
        false,
    ),
    KeySpec::number(Key::DefaultTime2Wait, "DefaultTime2Wait", Rule::Max, (0, 3600, 2), true),
    KeySpec::number(Key::DefaultTime2Retain, "DefaultTime2Retain", Rule::Min, (0, 3600, 20), true),
    KeySpec::number(Key::MaxOutstandingR2t, "MaxOutstandingR2T", Rule::Min, (1, 65535, 1), false),
    KeySpec::number(Key::DataPduInOrder, "DataPDUInOrder", Rule::Or, (0, 1, 1), false),
    KeySpec::number(Key::DataSequenceInOrder, "DataSequenceInOrder", Rule::Or, (0, 1, 1), false),
    KeySpec::number(Key::ErrorRecoveryLevel, "ErrorRecoveryLevel", Rule::Min, (0, 2, 0), true),
    KeySpec::number(Key::ProtocolLevel, "iSCSIProtocolLevel", Rule::Min, (0, 31, 1), false),
    KeySpec {
        discovery: false,
        ..KeySpec::non_numeric(
            Key::TaskReporting,
            "TaskReporting",
            Rule::List,
            Phase::Leading,
            Sender::Both,
        )
    },
    KeySpec::non_numeric(Key::OfMarker, "OFMarker", Rule::ObsoleteBool, Phase::Login, Sender::Both),
    KeySpec::non_numeric(Key::IfMarker, "IFMarker", Rule::ObsoleteBool, Phase::Login, Sender::Both),
    KeySpec::non_numeric(
        Key::OfMarkInt,
        "OFMarkInt",
        Rule::ObsoleteRange,
        Phase::Login,
        Sender::Both,
    ),
    KeySpec::non_numeric(
        Key::IfMarkInt,
        "IFMarkInt",
        Rule::ObsoleteRange,
        Phase::Login,
        Sender::Both,
    ),
    KeySpec::non_numeric(
        Key::InitiatorName,
        "InitiatorName",
        Rule::Text,
        Phase::Login,
        Sender::Initiator,
    ),
    KeySpec::non_numeric(
        Key::InitiatorAlias,
        "InitiatorAlias",
        Rule::Text,
        Phase::Any,
        Sender::Initiator,
    ),
    KeySpec::non_numeric(Key::TargetName, "TargetName", Rule::Text, Phase::Any, Sender::Both),
    KeySpec::non_numeric(Key::TargetAlias, "TargetAlias", Rule::Text, Phase::Any, Sender::Target),
    KeySpec::non_numeric(
        Key::TargetAddress,
        "TargetAddress",
        Rule::Text,
        Phase::Any,
        Sender::Target,
    ),
    KeySpec::non_numeric(
        Key::TargetPortalGroupTag,
        "TargetPortalGroupTag",
        Rule::Text,
        Phase::Login,
        Sender::Target,
    ),
    KeySpec::non_numeric(
        Key::SessionType,
        "SessionType",
        Rule::Text,
        Phase::Login,
        Sender::Initiator,
    ),
    KeySpec::non_numeric(
        Key::SendTargets,
        "SendTargets",
        Rule::Text,
        Phase::FullFeature,
        Sender::Initiator,
    ),
    KeySpec::non_numeric(
        Key::AuthMethod,
        "AuthMethod",
        Rule::Security,
        Phase::Security,
        Sender::Both,
    ),
    KeySpec::non_numeric(Key::ChapA, "CHAP_A", Rule::Security, Phase::Security, Sender::Both),
    KeySpec::non_numeric(Key::ChapI, "CHAP_I", Rule::Security, Phase::Security, Sender::Both),
    KeySpec::non_numeric(Key::ChapC, "CHAP_C", Rule::Security, Phase::Security, Sender::Both),
    KeySpec::non_numeric(Key::ChapN, "CHAP_N", Rule::Security, Phase::Security, Sender::Both),
    KeySpec::non_numeric(Key::ChapR, "CHAP_R", Rule::Security, Phase::Security, Sender::Both),
];

/// The row of a key by its name on the wire; names are case sensitive.
pub fn key_spec(name: &str) -> Option<&'static KeySpec> {
    KEYS.iter().find(|spec| spec.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_table_is_consistent() {
        let mut bits = 0u64;
        for spec in KEYS {
            assert_eq!(bits & spec.bit(), 0, "{} stands twice", spec.name);
            bits |= spec.bit();
            assert_eq!(key_spec(spec.name), Some(spec));
            assert!(spec.low <= spec.default && spec.default <= spec.high.max(spec.default));
        }
        assert_eq!(bits, (1 << KEYS.len()) - 1);
        assert_eq!(key_spec("maxburstlength"), None);
    }
}
