//! Operational negotiation as a pure state machine (RFC 7143 section 6.2), for either side.
//!
//! Invariants
//!  N1  A key is received at most once in a negotiation.
//!  N2  Every key received as an offer gets one answer; declarations and answers get none.
//!  N3  The result of a negotiation never exceeds this side's [`Offer`].
//!
//! ```text
//!            receive: offer ---------> answered (result in params)
//!   silent <
//!            propose ---> proposed --- receive: answer ---> agreed (checked against N3)
//! ```

use super::keys::{KEYS, Key, KeySpec, Phase, Rule, Sender, key_spec};
use super::number::parse_number;
use super::text::TextBuilder;
use crate::error::{Kind, WireError};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Target,
    Initiator,
}

/// The values that this side accepts for a digest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DigestPolicy {
    /// Never.
    Off,
    /// Either; the acceptor takes the other side's preference, the proposer prefers none.
    #[default]
    Allow,
    /// Either; as proposer prefer CRC32C.
    Prefer,
    /// Only CRC32C; the login fails without.
    Require,
}

impl DigestPolicy {
    fn accepts(self, crc: bool) -> bool {
        match self {
            DigestPolicy::Off => !crc,
            DigestPolicy::Allow | DigestPolicy::Prefer => true,
            DigestPolicy::Require => crc,
        }
    }

    fn proposal(self) -> &'static str {
        match self {
            DigestPolicy::Off => "None",
            DigestPolicy::Allow => "None,CRC32C",
            DigestPolicy::Prefer => "CRC32C,None",
            DigestPolicy::Require => "CRC32C",
        }
    }
}

/// How tasks ended by a task management function are reported (RFC 7143 section 13.23).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TaskReporting {
    /// Wait for the data of all affected tasks.
    #[default]
    Rfc3720,
    ResponseFence,
    /// End tasks at once and notify other initiators with an asynchronous message.
    FastAbort,
}

const TASK_REPORTING: [(&str, TaskReporting); 3] = [
    ("RFC3720", TaskReporting::Rfc3720),
    ("ResponseFence", TaskReporting::ResponseFence),
    ("FastAbort", TaskReporting::FastAbort),
];

/// The parameters of a session and connection. [`SessionParams::default`] gives the values before
/// any negotiation. Lengths are bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionParams {
    /// CRC32C over headers.
    pub header_digest: bool,
    /// CRC32C over data.
    pub data_digest: bool,
    /// Connections of the session.
    pub max_connections: u32,
    /// The initiator waits for an R2T before it sends data outside the command.
    pub initial_r2t: bool,
    /// The initiator may send data with the command.
    pub immediate_data: bool,
    /// Largest data segment this side accepts (its declared value).
    pub recv_data_len_max: u32,
    /// Largest data segment the other side accepts.
    pub send_data_len_max: u32,
    /// Largest sequence of Data-In, or of Data-Out for one R2T.
    pub max_burst: u32,
    /// Most unsolicited data of a command, immediate data included; at most `max_burst`.
    pub first_burst: u32,
    /// Seconds to wait before a reconnect.
    pub time2wait_s: u32,
    /// Seconds after that for which tasks are kept.
    pub time2retain_s: u32,
    /// R2Ts outstanding for one task.
    pub max_outstanding_r2t: u32,
    /// Data PDUs of a sequence are in order.
    pub data_pdu_in_order: bool,
    /// Sequences of a task are in order.
    pub data_sequence_in_order: bool,
    pub error_recovery_level: u32,
    /// iSCSIProtocolLevel.
    pub protocol_level: u32,
    pub task_reporting: TaskReporting,
}

impl Default for SessionParams {
    fn default() -> SessionParams {
        SessionParams {
            header_digest: false,
            data_digest: false,
            max_connections: 1,
            initial_r2t: true,
            immediate_data: true,
            recv_data_len_max: 8192,
            send_data_len_max: 8192,
            max_burst: 262_144,
            first_burst: 65_536,
            time2wait_s: 2,
            time2retain_s: 20,
            max_outstanding_r2t: 1,
            data_pdu_in_order: true,
            data_sequence_in_order: true,
            error_recovery_level: 0,
            protocol_level: 1,
            task_reporting: TaskReporting::Rfc3720,
        }
    }
}

impl SessionParams {
    /// The value of a numeric or Yes/No key; None for other keys.
    fn get(&self, key: Key) -> Option<u32> {
        Some(match key {
            Key::MaxConnections => self.max_connections,
            Key::InitialR2t => u32::from(self.initial_r2t),
            Key::ImmediateData => u32::from(self.immediate_data),
            Key::MaxBurstLength => self.max_burst,
            Key::FirstBurstLength => self.first_burst,
            Key::DefaultTime2Wait => self.time2wait_s,
            Key::DefaultTime2Retain => self.time2retain_s,
            Key::MaxOutstandingR2t => self.max_outstanding_r2t,
            Key::DataPduInOrder => u32::from(self.data_pdu_in_order),
            Key::DataSequenceInOrder => u32::from(self.data_sequence_in_order),
            Key::ErrorRecoveryLevel => self.error_recovery_level,
            Key::ProtocolLevel => self.protocol_level,
            _ => return None,
        })
    }

    fn set(&mut self, key: Key, value: u32) {
        match key {
            Key::MaxConnections => self.max_connections = value,
            Key::InitialR2t => self.initial_r2t = value != 0,
            Key::ImmediateData => self.immediate_data = value != 0,
            Key::MaxRecvDataSegmentLength => self.send_data_len_max = value,
            Key::MaxBurstLength => self.max_burst = value,
            Key::FirstBurstLength => self.first_burst = value,
            Key::DefaultTime2Wait => self.time2wait_s = value,
            Key::DefaultTime2Retain => self.time2retain_s = value,
            Key::MaxOutstandingR2t => self.max_outstanding_r2t = value,
            Key::DataPduInOrder => self.data_pdu_in_order = value != 0,
            Key::DataSequenceInOrder => self.data_sequence_in_order = value != 0,
            Key::ErrorRecoveryLevel => self.error_recovery_level = value,
            Key::ProtocolLevel => self.protocol_level = value,
            _ => {}
        }
    }
}

/// The values that this side offers and allows. The numbers of `params` are this side's part of
/// each key's rule (`recv_data_len_max` is its declared value); its digests and TaskReporting are
/// not used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offer {
    pub header_digest: DigestPolicy,
    pub data_digest: DigestPolicy,
    /// Numbers and Yes/No keys.
    pub params: SessionParams,
    /// Highest TaskReporting taken; RFC3720 is always taken.
    pub task_reporting: TaskReporting,
}

/// One negotiation: a login's operational stage, or one text exchange in full feature phase.
#[derive(Clone, Debug)]
pub struct Negotiation {
    side: Side,
    discovery: bool,
    full_feature: bool,
    offer: Offer,
    params: SessionParams,
    received: u64,
    proposed: u64,
    declared: bool,
}

impl Negotiation {
    /// A login's negotiation, from the defaults.
    pub fn login(side: Side, discovery: bool, offer: Offer) -> Negotiation {
        let params = SessionParams::default();
        Negotiation {
            side,
            discovery,
            full_feature: false,
            offer,
            params,
            received: 0,
            proposed: 0,
            declared: false,
        }
    }

    /// One text exchange in full feature phase, which starts from the current values. Only
    /// MaxRecvDataSegmentLength can change; keys of the login are answered Reject. SendTargets is
    /// not handled here: the caller removes it first.
    pub fn full_feature(
        side: Side,
        discovery: bool,
        offer: Offer,
        params: SessionParams,
    ) -> Negotiation {
        let login = Negotiation::login(side, discovery, offer);
        Negotiation { full_feature: true, params, declared: true, ..login }
    }

    /// Declares this side's MaxRecvDataSegmentLength, once.
    pub fn declare(&mut self, out: &mut TextBuilder) -> Result<(), WireError> {
        if !std::mem::replace(&mut self.declared, true) {
            let len = self.offer.params.recv_data_len_max;
            out.push_number("MaxRecvDataSegmentLength", u64::from(len))?;
            self.params.recv_data_len_max = len;
        }
        Ok(())
    }

    /// Proposes the keys that are needed because the other side has not sent them. The initiator
    /// proposes keys whose default differs from its wish, the target those whose default exceeds
    /// its limit. Returns whether a proposal waits for an answer now.
    pub fn propose(&mut self, out: &mut TextBuilder) -> Result<bool, WireError> {
        for spec in KEYS {
            if (self.received | self.proposed) & spec.bit() != 0
                || (self.discovery && !spec.discovery)
            {
                continue;
            }
            if let Some(value) = self.proposal(spec) {
                out.push(spec.name, &value)?;
                self.proposed |= spec.bit();
            }
        }
        Ok(self.waiting())
    }

    /// Whether a proposal of ours has no answer yet.
    pub fn waiting(&self) -> bool {
        self.proposed & !self.received != 0
    }

    fn proposal(&self, spec: &KeySpec) -> Option<String> {
        let digest = |policy: DigestPolicy| {
            let needed = match self.side {
                Side::Target => policy == DigestPolicy::Require,
                Side::Initiator => policy != DigestPolicy::Off,
            };
            needed.then(|| policy.proposal().to_owned())
        };
        match spec.key {
            Key::HeaderDigest => return digest(self.offer.header_digest),
            Key::DataDigest => return digest(self.offer.data_digest),
            _ => {}
        }
        let ours = self.offer.params.get(spec.key)?;
        let needed = match self.side {
            Side::Initiator => ours != spec.default,
            Side::Target => combine(spec.rule, spec.default, ours) != spec.default,
        };
        needed.then(|| value_text(spec, ours))
    }

    /// Reads the pairs of one whole text and writes the answers. FirstBurstLength is processed last
    /// because it depends on other keys. Errors: a key twice, a key that only this side may send or
    /// that is not for this phase, an answer beyond the proposal.
    pub fn receive(
        &mut self,
        pairs: &[(&str, &str)],
        out: &mut TextBuilder,
    ) -> Result<(), WireError> {
        no_duplicates(pairs)?;
        let last = |name: &str| name == "FirstBurstLength";
        for (name, value) in pairs.iter().filter(|(name, _)| !last(name)) {
            self.receive_one(name, value, out)?;
        }
        for (name, value) in pairs.iter().filter(|(name, _)| last(name)) {
            self.receive_one(name, value, out)?;
        }
        Ok(())
    }

    fn receive_one(
        &mut self,
        name: &str,
        value: &str,
        out: &mut TextBuilder,
    ) -> Result<(), WireError> {
        let reserved = matches!(value, "Reject" | "NotUnderstood" | "Irrelevant");
        let Some(spec) = key_spec(name) else {
            return if reserved { Ok(()) } else { out.push(name, "NotUnderstood") };
        };
        if self.received & spec.bit() != 0 {
            return Err(WireError::new(Kind::Duplicate, spec.name, 0));
        }
        let may_send = match spec.sender {
            Sender::Both => true,
            Sender::Initiator => self.side == Side::Target,
            Sender::Target => self.side == Side::Initiator,
        };
        let for_us = !matches!(spec.rule, Rule::Security | Rule::Text);
        if !may_send || !for_us && !self.full_feature {
            return Err(WireError::new(Kind::OutOfOrder, spec.name, 0));
        }
        self.received |= spec.bit();
        if self.proposed & spec.bit() != 0 {
            return self.agree(spec, value);
        }
        if reserved {
            return Err(WireError::bad(spec.name, 0));
        }
        if self.full_feature && spec.phase != Phase::Any {
            return out.push(spec.name, "Reject");
        }
        self.answer(spec, value, out)
    }

    /// Answers an offer of the other side.
    fn answer(
        &mut self,
        spec: &KeySpec,
        value: &str,
        out: &mut TextBuilder,
    ) -> Result<(), WireError> {
        if self.discovery && !spec.discovery || self.is_irrelevant(spec.key) {
            return out.push(spec.name, "Irrelevant");
        }
        match spec.rule {
            Rule::Text | Rule::Security => Ok(()),
            Rule::ObsoleteBool => out.push(spec.name, "No"),
            Rule::ObsoleteRange => out.push(spec.name, "Reject"),
            Rule::List => match self.choose(spec.key, value) {
                Some(chosen) => out.push(spec.name, chosen),
                None => out.push(spec.name, "Reject"),
            },
            Rule::Declared => match parse_value(spec, value) {
                Some(number) => {
                    self.params.set(spec.key, number);
                    Ok(())
                }
                None => out.push(spec.name, "Reject"),
            },
            Rule::Min | Rule::Max | Rule::And | Rule::Or => {
                let ours = self.our_value(spec);
                match (parse_value(spec, value), ours) {
                    (Some(theirs), Some(ours)) => {
                        let result = combine(spec.rule, theirs, ours);
                        self.params.set(spec.key, result);
                        out.push(spec.name, &value_text(spec, result))
                    }
                    _ => out.push(spec.name, "Reject"),
                }
            }
        }
    }

    /// Our part of a rule; FirstBurstLength does not exceed MaxBurstLength.
    fn our_value(&self, spec: &KeySpec) -> Option<u32> {
        let ours = self.offer.params.get(spec.key)?;
        Some(if spec.key == Key::FirstBurstLength { ours.min(self.params.max_burst) } else { ours })
    }

    fn is_irrelevant(&self, key: Key) -> bool {
        key == Key::FirstBurstLength && self.params.initial_r2t && !self.params.immediate_data
    }

    /// Takes the other side's answer to a proposal of ours.
    fn agree(&mut self, spec: &KeySpec, value: &str) -> Result<(), WireError> {
        let refused = WireError::new(Kind::Unsupported, spec.name, 0);
        let reserved = matches!(value, "Reject" | "NotUnderstood" | "Irrelevant");
        match spec.rule {
            Rule::List if reserved => {
                let policy = self.policy(spec.key);
                if policy.is_none_or(|p| p.accepts(false)) { Ok(()) } else { Err(refused) }
            }
            Rule::List => {
                let single = !value.contains(',');
                let chosen = self.choose(spec.key, value);
                if single && chosen.is_some() { Ok(()) } else { Err(refused) }
            }
            Rule::Min | Rule::Max | Rule::And | Rule::Or => {
                let ours = self.offer.params.get(spec.key).ok_or(refused)?;
                let result = match value {
                    "Irrelevant" => return Ok(()),
                    _ if reserved => spec.default,
                    _ => parse_value(spec, value).ok_or(WireError::bad(spec.name, 0))?,
                };
                // N3: combining the result with our own value once more changes nothing.
                if combine(spec.rule, result, ours) != result {
                    return Err(refused);
                }
                self.params.set(spec.key, result);
                Ok(())
            }
            _ => Err(refused),
        }
    }

    fn policy(&self, key: Key) -> Option<DigestPolicy> {
        match key {
            Key::HeaderDigest => Some(self.offer.header_digest),
            Key::DataDigest => Some(self.offer.data_digest),
            _ => None,
        }
    }

    /// The first value of a list that we take; it is stored.
    fn choose(&mut self, key: Key, list: &str) -> Option<&'static str> {
        if let Some(policy) = self.policy(key) {
            let crc = list.split(',').find_map(|value| match value {
                "None" if policy.accepts(false) => Some(false),
                "CRC32C" if policy.accepts(true) => Some(true),
                _ => None,
            })?;
            match key {
                Key::HeaderDigest => self.params.header_digest = crc,
                _ => self.params.data_digest = crc,
            }
            return Some(if crc { "CRC32C" } else { "None" });
        }
        let ours = self.offer.task_reporting;
        let (name, chosen) = list.split(',').find_map(|value| {
            TASK_REPORTING
                .into_iter()
                .find(|(name, way)| *name == value && (*way as u8) <= ours as u8)
        })?;
        self.params.task_reporting = chosen;
        Some(name)
    }

    /// Ends the negotiation. An error when a digest is required and was not agreed.
    pub fn finish(&mut self) -> Result<SessionParams, WireError> {
        if !self.offer.header_digest.accepts(self.params.header_digest) {
            return Err(WireError::new(Kind::Unsupported, "HeaderDigest", 0));
        }
        if !self.offer.data_digest.accepts(self.params.data_digest) {
            return Err(WireError::new(Kind::Unsupported, "DataDigest", 0));
        }
        self.params.first_burst = self.params.first_burst.min(self.params.max_burst);
        Ok(self.params)
    }

    /// The current values.
    pub fn params(&self) -> &SessionParams {
        &self.params
    }
}

fn combine(rule: Rule, theirs: u32, ours: u32) -> u32 {
    match rule {
        Rule::Max | Rule::Or => theirs.max(ours),
        _ => theirs.min(ours),
    }
}

/// A legal value of a numeric or Yes/No key.
fn parse_value(spec: &KeySpec, value: &str) -> Option<u32> {
    match (spec.rule, value) {
        (Rule::And | Rule::Or, "Yes") => Some(1),
        (Rule::And | Rule::Or, "No") => Some(0),
        (Rule::And | Rule::Or, _) => None,
        _ => {
            let number = u32::try_from(parse_number(value)?).ok()?;
            (spec.low..=spec.high).contains(&number).then_some(number)
        }
    }
}

fn value_text(spec: &KeySpec, value: u32) -> String {
    match (spec.rule, value) {
        (Rule::And | Rule::Or, 0) => "No".to_owned(),
        (Rule::And | Rule::Or, _) => "Yes".to_owned(),
        _ => value.to_string(),
    }
}

/// The same key twice in one text is an error, whether the key is known or not.
pub(crate) fn no_duplicates(pairs: &[(&str, &str)]) -> Result<(), WireError> {
    let mut names: Vec<&str> = pairs.iter().map(|(name, _)| *name).collect();
    names.sort_unstable();
    match names.windows(2).find(|two| two.first() == two.last()) {
        None => Ok(()),
        Some(two) => {
            let known = two.first().and_then(|name| key_spec(name));
            Err(WireError::new(Kind::Duplicate, known.map_or("key", |spec| spec.name), 0))
        }
    }
}

#[cfg(test)]
#[path = "negotiate_tests.rs"]
mod tests;
