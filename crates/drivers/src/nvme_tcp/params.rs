//! The parameters of an NVMe/TCP target.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use geom::Error;
use schemars::JsonSchema;
use serde::Deserialize;
use wire::nvme::codes::DISCOVERY_NQN;
use wire::nvme::is_nqn;

use super::controllers::NUMBER_MAX;
use crate::connection_claim::ConnectionClaim;
use crate::driver::{DigestPolicy, TargetSpec};
use crate::targets::{Target, check_ranges};

/// Parameters of an NVMe/TCP target besides its name (the subsystem's NQN), portals and digests.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct NvmeTcpParams {
    /// Serial number of the subsystem; empty: derived from its name.
    #[schemars(length(max = 20))]
    pub serial: String,
    /// Model of the subsystem.
    #[schemars(length(min = 1, max = 40))]
    pub model: String,
    /// Limit of I/O queues of one association.
    #[schemars(range(min = 1, max = 1024))]
    pub queues_max: u16,
    /// Timeout for a connection to become a queue, in seconds.
    #[schemars(range(min = 1, max = 300))]
    pub handshake_timeout: u32,
    /// Smallest controller identifier (CNTLID) for hosts. Two gateways that serve one subsystem
    /// need ranges without common numbers: Linux refuses a second path with the identifier of the
    /// first.
    #[schemars(range(min = 1, max = 65519))]
    pub controller_id_min: u16,
    /// Largest controller identifier for hosts.
    #[schemars(range(min = 1, max = 65519))]
    pub controller_id_max: u16,
    /// Limit of simultaneous connections; further connections are refused.
    #[schemars(range(min = 1, max = 16384))]
    pub connections_max: u32,
    /// Maximum number of connections of one peer address; more are refused. A host has one
    /// for each queue of each subsystem. Targets at the same address share the largest value.
    #[schemars(range(min = 1, max = 65536))]
    pub connections_per_peer: u32,
}

impl Default for NvmeTcpParams {
    fn default() -> NvmeTcpParams {
        NvmeTcpParams {
            serial: String::new(),
            model: "Ashlar".into(),
            queues_max: 64,
            handshake_timeout: NvmeTcpParams::HANDSHAKE_S,
            controller_id_min: 1,
            controller_id_max: NUMBER_MAX,
            connections_max: 4096,
            connections_per_peer: NvmeTcpParams::PEER_CONNECTIONS_MAX,
        }
    }
}

impl NvmeTcpParams {
    /// Default of `handshake_timeout`.
    pub(crate) const HANDSHAKE_S: u32 = 15;
    /// Default of `connections_per_peer`: 64 I/O queues for each of 63 subsystems.
    pub(crate) const PEER_CONNECTIONS_MAX: u32 = 4096;

    pub fn controllers(&self) -> RangeInclusive<u16> {
        self.controller_id_min..=self.controller_id_max
    }
}

/// A target, checked.
pub(crate) struct Checked {
    /// As it was given.
    pub spec: TargetSpec,
    /// Its parameters.
    pub params: NvmeTcpParams,
    pub connections: Arc<AtomicUsize>,
}

/// A serial number that is the same for the same name.
fn serial_of(name: &str) -> String {
    let step = |h: u64, b: u8| (h ^ u64::from(b)).wrapping_mul(0x0000_0100_0000_01b3);
    format!("{:016x}", name.bytes().fold(0xcbf2_9ce4_8422_2325, step))
}

impl Target for Checked {
    const DRIVER: &'static str = super::NAME;

    fn schema() -> serde_json::Value {
        schema()
    }

    fn check(spec: TargetSpec) -> Result<Checked, Error> {
        Checked::new(spec)
    }

    fn spec(&self) -> &TargetSpec {
        &self.spec
    }

    fn conflicting_param(&self, other: &Checked) -> Option<&'static str> {
        (self.digests() != other.digests()).then_some("digests")
    }

    fn inherit_from(&mut self, old: &Checked) {
        self.connections = old.connections.clone();
    }
}

impl Checked {
    /// Checks a target; an error names the remedy.
    pub fn new(spec: TargetSpec) -> Result<Checked, Error> {
        let name = spec.name.clone();
        let bad = |what: String| Error::inval(format!("nvme_tcp target {name}: {what}"));
        if !is_nqn(&spec.name) || spec.name == DISCOVERY_NQN {
            let form = "nqn.2026-01.org.example:disk1";
            return Err(bad(format!("a name is an NQN of its own, as in {form}")));
        }
        if spec.chap.is_some() || spec.mutual_chap.is_some() || spec.discovery_chap.is_some() {
            return Err(bad("NVMe/TCP has no CHAP; leave chap out".into()));
        }
        if let Some(at) = spec.listen.iter().find(|at| at.inet().is_none()) {
            return Err(bad(format!("listen: {at}: NVMe/TCP listens at TCP addresses only")));
        }
        let mut params = match &spec.params {
            serde_json::Value::Null => NvmeTcpParams::default(),
            other => NvmeTcpParams::deserialize(other).map_err(|e| bad(e.to_string()))?,
        };
        check(&params).map_err(bad)?;
        if params.serial.is_empty() {
            params.serial = serial_of(&spec.name);
        }
        Ok(Checked { spec, params, connections: Arc::default() })
    }

    /// Policies for header and data digests.
    pub fn digests(&self) -> [DigestPolicy; 2] {
        [self.spec.header_digest, self.spec.data_digest]
    }

    /// Whether a digest that a host requests, or does not, is used; None refuses the host.
    pub fn digest(policy: DigestPolicy, requested: bool) -> Option<bool> {
        match policy {
            DigestPolicy::Off => Some(false),
            DigestPolicy::Allow => Some(requested),
            DigestPolicy::Require => requested.then_some(true),
        }
    }

    /// One connection more; None when there are enough.
    pub fn claim_connection(&self) -> Option<ConnectionClaim> {
        ConnectionClaim::take(&self.connections, self.params.connections_max)
    }
}

fn check(p: &NvmeTcpParams) -> Result<(), String> {
    check_ranges(&[
        ("queues_max", u32::from(p.queues_max), 1, 1024),
        ("handshake_timeout", p.handshake_timeout, 1, 300),
        ("controller_id_min", u32::from(p.controller_id_min), 1, u32::from(NUMBER_MAX)),
        ("controller_id_max", u32::from(p.controller_id_max), 1, u32::from(NUMBER_MAX)),
        ("connections_max", p.connections_max, 1, 16384),
        ("connections_per_peer", p.connections_per_peer, 1, 65_536),
    ])?;
    if p.controllers().is_empty() {
        return Err(format!(
            "controller_id_min = {} is greater than controller_id_max = {}",
            p.controller_id_min, p.controller_id_max
        ));
    }
    let plain = |text: &str| text.chars().all(|c| c.is_ascii_graphic() || c == ' ');
    for (key, text, min, max) in [("serial", &p.serial, 0, 20), ("model", &p.model, 1, 40)] {
        if text.len() < min || text.len() > max || !plain(text) {
            return Err(format!("{key}: {min} to {max} printable ASCII characters"));
        }
    }
    Ok(())
}

/// JSON Schema of [`NvmeTcpParams`].
pub(crate) fn schema() -> serde_json::Value {
    geom::schema_of::<NvmeTcpParams>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn spec(name: &str, params: serde_json::Value) -> TargetSpec {
        TargetSpec { name: name.into(), params, ..TargetSpec::default() }
    }

    #[test]
    fn invalid_parameters_are_refused_by_name() {
        let good = "nqn.2026-11.test:a";
        for (name, params, word) in [
            ("disk", json!({}), "NQN"),
            (DISCOVERY_NQN, json!({}), "NQN"),
            (good, json!({"queues": 1}), "queues"),
            (good, json!({"queues_max": 0}), "queues_max"),
            (good, json!({"handshake_timeout": 301}), "handshake_timeout"),
            (good, json!({"connections_per_peer": 65537}), "connections_per_peer"),
            (good, json!({"serial": "123456789012345678901"}), "serial"),
            (good, json!({"model": ""}), "model"),
            (good, json!({"controller_id_min": 0}), "controller_id_min"),
            (good, json!({"controller_id_max": 65520}), "controller_id_max"),
            (good, json!({"controller_id_min": 3, "controller_id_max": 2}), "greater than"),
        ] {
            let error = Checked::new(spec(name, params)).err().unwrap();
            assert!(error.message.contains(word), "{error}");
        }
        let unix = TargetSpec {
            listen: vec!["unix:/run/x".parse().unwrap()],
            ..spec(good, serde_json::Value::Null)
        };
        assert!(Checked::new(unix).err().unwrap().message.contains("TCP"));
        let checked = Checked::new(spec(good, serde_json::Value::Null)).unwrap();
        assert_eq!(checked.params.serial, serial_of(good));
    }

    #[test]
    fn digests_are_negotiated_or_the_host_is_refused() {
        use DigestPolicy::{Allow, Off, Require};
        let all = [Off, Allow, Require]
            .map(|p| [false, true].map(|requested| Checked::digest(p, requested)));
        let (no, yes) = (Some(false), Some(true));
        assert_eq!(all, [[no, no], [no, yes], [None, yes]]);
    }
}
