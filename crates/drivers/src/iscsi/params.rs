//! The parameters of an iSCSI target, and what follows from them at login.

use ::wire::iscsi::{self as wire, Offer};
use geom::Error;
use schemars::JsonSchema;
use serde::Deserialize;
use transport::PEER_CONNECTIONS_MAX;

use crate::driver::{DigestPolicy, TargetSpec};
use crate::targets::{self, Target};

/// Parameters of an iSCSI target besides its name, portals and secrets.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct IscsiParams {
    /// Allow CHAP with MD5, which some initiators (libiscsi, QEMU) need. SHA-1, SHA-256 and
    /// SHA3-256 are always allowed.
    pub chap_md5: bool,
    /// Largest data segment that the target accepts, bytes.
    #[schemars(range(min = 8192, max = 1_048_576))]
    pub max_recv_data_segment_length: u32,
    /// Largest sequence of data for one request or one R2T, bytes.
    #[schemars(range(min = 8192, max = 16_777_215))]
    pub max_burst_length: u32,
    /// Largest amount of unsolicited data of a command, bytes.
    #[schemars(range(min = 512, max = 1_048_576))]
    pub first_burst_length: u32,
    /// Initiators wait for an R2T before they send data outside of the command.
    pub initial_r2t: bool,
    /// Initiators may send data with the command.
    pub immediate_data: bool,
    /// Limit of outstanding R2Ts of one command.
    #[schemars(range(min = 1, max = 16))]
    pub max_outstanding_r2t: u32,
    /// Timeout of a whole login, in seconds.
    #[schemars(range(min = 1, max = 300))]
    pub login_timeout: u32,
    /// Maximum number of connections of one peer address; more are refused. Targets at the same
    /// address share the largest value.
    #[schemars(range(min = 1, max = 65536))]
    pub connections_per_peer: u32,
    /// Seconds of silence after which an initiator is pinged; 0: never.
    #[schemars(range(max = 3600))]
    pub nop_interval: u32,
    /// Seconds without an answer to a ping after which the connection is closed.
    #[schemars(range(min = 1, max = 3600))]
    pub nop_timeout: u32,
    /// Human-readable name sent at login; empty: none.
    #[schemars(length(max = 255))]
    pub alias: String,
    /// Address to which logins are redirected instead of being served here: `host[:port][,tag]`,
    /// IPv6 in brackets; empty: no redirection. Existing sessions continue.
    #[schemars(length(max = 255))]
    pub redirect: String,
    /// Redirect permanently: initiators may remember `redirect`. Otherwise they log in here again
    /// next time.
    pub redirect_permanent: bool,
}

impl Default for IscsiParams {
    fn default() -> IscsiParams {
        IscsiParams {
            chap_md5: false,
            max_recv_data_segment_length: 262_144,
            max_burst_length: 1_048_576,
            first_burst_length: 262_144,
            initial_r2t: true,
            immediate_data: true,
            max_outstanding_r2t: 4,
            login_timeout: IscsiParams::LOGIN_S,
            connections_per_peer: PEER_CONNECTIONS_MAX,
            nop_interval: 10,
            nop_timeout: 20,
            alias: String::new(),
            redirect: String::new(),
            redirect_permanent: false,
        }
    }
}

impl IscsiParams {
    /// Default of `login_timeout`.
    pub(crate) const LOGIN_S: u32 = 15;

    /// Where logins are sent, and whether for good (RFC 7143 section 11.13.5, class 1).
    pub(crate) fn moved_to(&self) -> Option<(&str, bool)> {
        (!self.redirect.is_empty()).then_some((self.redirect.as_str(), self.redirect_permanent))
    }
}

/// A target, checked.
pub(crate) struct Checked {
    /// As it was given, with the name normalised.
    pub spec: TargetSpec,
    /// Its parameters.
    pub params: IscsiParams,
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
}

impl Checked {
    /// Checks a target; an error names the remedy.
    pub fn new(mut spec: TargetSpec) -> Result<Checked, Error> {
        let name = spec.name.clone();
        let bad = |what: String| Error::inval(format!("iscsi target {name}: {what}"));
        spec.name = wire::normalise_name(&spec.name).map_err(|_| {
            bad("a name begins with iqn., eui. or naa., as in iqn.2026-01.org.example:disk1".into())
        })?;
        let params = match &spec.params {
            serde_json::Value::Null => IscsiParams::default(),
            other => IscsiParams::deserialize(other).map_err(|e| bad(e.to_string()))?,
        };
        check_ranges(&params).map_err(bad)?;
        if let Some(at) = spec.listen.iter().find(|at| at.inet().is_none()) {
            return Err(bad(format!("listen: {at}: iSCSI listens at TCP addresses only")));
        }
        let accounts = [
            ("chap", &spec.chap),
            ("mutual_chap", &spec.mutual_chap),
            ("discovery_chap", &spec.discovery_chap),
        ];
        for (key, account) in accounts {
            let Some(account) = account else { continue };
            if account.user.is_empty() || account.user.len() > 255 {
                return Err(bad(format!("{key}: a user name has 1 to 255 bytes")));
            }
            if account.secret.len() < wire::SECRET_LEN_MIN {
                let least = wire::SECRET_LEN_MIN;
                return Err(bad(format!("{key}: a secret has at least {least} bytes")));
            }
        }
        match (&spec.chap, &spec.mutual_chap) {
            _ if params.moved_to().is_some_and(|(to, _)| to_itself(&spec, to)) => {
                Err(bad("redirect: a target cannot send initiators to its own portal".into()))
            }
            (None, Some(_)) => {
                Err(bad("mutual_chap needs chap: initiators prove themselves first".into()))
            }
            (Some(a), Some(b)) if a.secret == b.secret => {
                Err(bad("chap and mutual_chap must have different secrets".into()))
            }
            (_, Some(b)) if spec.discovery_chap.as_ref().is_some_and(|d| d.secret == b.secret) => {
                // Else a challenge sent back on another connection would be answered by us.
                Err(bad("discovery_chap and mutual_chap must have different secrets".into()))
            }
            _ => Ok(Checked { spec, params }),
        }
    }

    pub fn offer(&self) -> Offer {
        let p = &self.params;
        Offer {
            header_digest: digest(self.spec.header_digest),
            data_digest: digest(self.spec.data_digest),
            params: wire::SessionParams {
                max_connections: 1,
                initial_r2t: p.initial_r2t,
                immediate_data: p.immediate_data,
                recv_data_len_max: p.max_recv_data_segment_length,
                max_burst: p.max_burst_length,
                first_burst: p.first_burst_length.min(p.max_burst_length),
                max_outstanding_r2t: p.max_outstanding_r2t,
                error_recovery_level: 0,
                // Its default. At recovery level 0 nothing is retained regardless of the agreed
                // value, and a key that the initiator did not send would cost one more round.
                time2retain_s: wire::SessionParams::default().time2retain_s,
                ..wire::SessionParams::default()
            },
            ..Offer::default()
        }
    }
}

/// True when the address is one of the target's own: initiators would return for ever.
fn to_itself(spec: &TargetSpec, address: &str) -> bool {
    let place = address.split(',').next().unwrap_or(address);
    spec.listen.iter().filter_map(|at| at.inet()).any(|at| at.to_string() == place)
}

fn check_ranges(p: &IscsiParams) -> Result<(), String> {
    targets::check_ranges(&[
        ("max_recv_data_segment_length", p.max_recv_data_segment_length, 8192, 1 << 20),
        ("max_burst_length", p.max_burst_length, 8192, 16_777_215),
        ("first_burst_length", p.first_burst_length, 512, 1 << 20),
        ("max_outstanding_r2t", p.max_outstanding_r2t, 1, 16),
        ("login_timeout", p.login_timeout, 1, 300),
        ("connections_per_peer", p.connections_per_peer, 1, 65_536),
        ("nop_interval", p.nop_interval, 0, 3600),
        ("nop_timeout", p.nop_timeout, 1, 3600),
    ])?;
    check_redirect(&p.redirect)?;
    if p.alias.len() > 255 || p.alias.chars().any(char::is_control) {
        return Err("alias: at most 255 printable bytes".into());
    }
    Ok(())
}

/// The form of TargetAddress (RFC 7143 section 13.8): `host[:port][,tag]`.
fn check_redirect(address: &str) -> Result<(), String> {
    if address.is_empty() {
        return Ok(());
    }
    let form = format!(
        "redirect = {address:?}: it must be host[:port][,tag] with IPv6 in brackets, as in \
         10.0.0.2:3260,1 or [fd00::2]:3260"
    );
    let (place, tag) = address.split_once(',').unwrap_or((address, "1"));
    let (host, rest) = match place.strip_prefix('[').and_then(|p| p.split_once(']')) {
        Some((host, rest)) if host.parse::<std::net::Ipv6Addr>().is_ok() => (host, rest),
        Some(_) => return Err(form),
        None => place.split_at(place.find(':').unwrap_or(place.len())),
    };
    let port = rest.is_empty() || rest.strip_prefix(':').is_some_and(nonzero);
    let word = |c: char| c.is_ascii_alphanumeric() || "-._:".contains(c);
    let good = port && tag.parse::<u16>().is_ok() && !host.is_empty() && host.chars().all(word);
    if good && address.len() <= 255 { Ok(()) } else { Err(form) }
}

fn nonzero(port: &str) -> bool {
    port.parse::<u16>().is_ok_and(|p| p > 0)
}

fn digest(policy: DigestPolicy) -> wire::DigestPolicy {
    match policy {
        DigestPolicy::Off => wire::DigestPolicy::Off,
        DigestPolicy::Allow => wire::DigestPolicy::Allow,
        DigestPolicy::Require => wire::DigestPolicy::Require,
    }
}

/// JSON Schema of [`IscsiParams`].
pub(crate) fn schema() -> serde_json::Value {
    geom::schema_of::<IscsiParams>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::Account;

    fn spec(params: serde_json::Value) -> TargetSpec {
        TargetSpec { name: "IQN.2026-01.org.Example:D".into(), params, ..TargetSpec::default() }
    }

    #[test]
    fn target_proposes_no_keys_by_default() {
        let c = Checked::new(spec(serde_json::Value::Null)).unwrap();
        let mut n = wire::Negotiation::login(wire::Side::Target, false, c.offer());
        let mut out = wire::TextBuilder::new();
        assert!(!n.propose(&mut out).unwrap(), "nothing waits for an answer");
    }

    #[test]
    fn names_are_normalised_and_defaults_hold() {
        let c = Checked::new(spec(serde_json::Value::Null)).unwrap();
        assert_eq!(c.spec.name, "iqn.2026-01.org.example:d");
        assert_eq!(c.params, IscsiParams::default());
    }

    #[test]
    fn invalid_parameters_are_refused_by_name() {
        for (value, word) in [
            (serde_json::json!({"burst": 1}), "burst"),
            (serde_json::json!({"login_timeout": 0}), "login_timeout"),
            (serde_json::json!({"connections_per_peer": 0}), "connections_per_peer"),
            (serde_json::json!({"max_burst_length": 100}), "max_burst_length"),
        ] {
            let error = Checked::new(spec(value)).err().unwrap();
            assert!(error.message.contains(word), "{error}");
        }
        for bad in ["a b", "10.0.0.2:", "10.0.0.2:0", "fd00::2", "[fd00::2", "x,y", ":3260"] {
            let error = Checked::new(spec(serde_json::json!({ "redirect": bad }))).err().unwrap();
            assert!(error.message.contains("[:port]"), "{bad}: {error}");
        }
        for good in ["10.0.0.2", "host.example:3260,1", "[fd00::2]:3260", "[::1]"] {
            assert!(Checked::new(spec(serde_json::json!({ "redirect": good }))).is_ok(), "{good}");
        }
        let itself = TargetSpec {
            listen: vec!["10.0.0.1:3260".parse().unwrap()],
            ..spec(serde_json::json!({ "redirect": "10.0.0.1:3260,1" }))
        };
        assert!(Checked::new(itself).err().unwrap().message.contains("own portal"));
        let same = Account { user: "u".into(), secret: b"one secret of two".to_vec() };
        let reflected = TargetSpec {
            chap: Some(Account { user: "a".into(), secret: b"another secret!".to_vec() }),
            mutual_chap: Some(same.clone()),
            discovery_chap: Some(same),
            ..spec(serde_json::Value::Null)
        };
        assert!(Checked::new(reflected).err().unwrap().message.contains("discovery_chap"));
        let short = Account { user: "u".into(), secret: b"short".to_vec() };
        let with = TargetSpec { chap: Some(short), ..spec(serde_json::Value::Null) };
        assert!(Checked::new(with).err().unwrap().message.contains("secret"));
        let name = TargetSpec { name: "disk".into(), ..TargetSpec::default() };
        assert!(Checked::new(name).err().unwrap().message.contains("iqn."));
    }
}
