//! The parameters of an NBD target.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use geom::Error;
use reactor::Address;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tls::{Files, Keys};
use transport::PEER_CONNECTIONS_MAX;

use super::file::SocketFile;
use crate::connection_claim::ConnectionClaim;
use crate::driver::TargetSpec;
use crate::targets::{Target, check_ranges};

/// Longest name of a target, bytes: export names begin with it.
const NAME_MAX: usize = 223;

/// Whether connections are encrypted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TlsPolicy {
    /// Never.
    #[default]
    Off,
    /// If the client requests it.
    Allow,
    /// Always: exports are neither listed nor served without TLS.
    Require,
}

/// Parameters of an NBD target besides its name and portals.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct NbdParams {
    /// Whether connections are encrypted. Targets at the same address need the same value.
    pub tls: TlsPolicy,
    /// File with the certificates of the server in PEM, its own first.
    pub tls_certificate: String,
    /// File with the private key of the server in PEM.
    pub tls_key: String,
    /// File in PEM with the CA certificates that verify clients. A client must then present a
    /// certificate; its name in access groups is `tls:NAME`, with its common name or, without one,
    /// its first alternative name. Empty: clients need no certificate.
    pub tls_client_ca: String,
    /// List the exports that a client may use, if it asks.
    pub list: bool,
    /// Further names of exports: alias to the name of a unit.
    pub aliases: BTreeMap<String, String>,
    /// Owner of the files of Unix sockets in `listen`: a number, or a name in /etc/passwd. Empty:
    /// unchanged. A client needs write permission on the file to connect; its name in access groups
    /// is `unix:uid=N`. Targets at the same socket need the same value.
    pub socket_owner: String,
    /// Group of the files of Unix sockets: a number, or a name in /etc/group. Empty: unchanged.
    pub socket_group: String,
    /// Mode of the files of Unix sockets, octal: "0660" admits owner and group. Empty: as set by
    /// the umask of the daemon.
    pub socket_mode: String,
    /// Serve requests that are not aligned to blocks, from clients that did not ask for the block
    /// size (NBD_INFO_BLOCK_SIZE): a part of a block is read, changed and written back, atomically.
    /// With `false` such a client is refused if blocks are larger than 512 bytes; if blocks have
    /// 512 bytes, its unaligned requests fail with EINVAL.
    pub unaligned: bool,
    /// Timeout of a whole handshake, in seconds.
    #[schemars(range(min = 1, max = 300))]
    pub handshake_timeout: u32,
    /// Limit of simultaneous connections; further connections are refused.
    #[schemars(range(min = 1, max = 16384))]
    pub connections_max: u32,
    /// Maximum number of connections of one peer address, or of one user at a Unix socket; more are
    /// refused. Targets at the same address share the largest value.
    #[schemars(range(min = 1, max = 65536))]
    pub connections_per_peer: u32,
}

impl NbdParams {
    /// Default of `handshake_timeout`.
    pub(crate) const HANDSHAKE_S: u32 = 15;
}

impl Default for NbdParams {
    fn default() -> NbdParams {
        NbdParams {
            tls: TlsPolicy::Off,
            tls_certificate: String::new(),
            tls_key: String::new(),
            tls_client_ca: String::new(),
            list: true,
            aliases: BTreeMap::new(),
            socket_owner: String::new(),
            socket_group: String::new(),
            socket_mode: String::new(),
            unaligned: true,
            handshake_timeout: NbdParams::HANDSHAKE_S,
            connections_max: 4096,
            connections_per_peer: PEER_CONNECTIONS_MAX,
        }
    }
}

/// A target, checked.
pub(crate) struct Checked {
    /// As it was given.
    pub spec: TargetSpec,
    /// Its parameters.
    pub params: NbdParams,
    /// Keys for TLS; `None` without TLS.
    pub keys: Option<Keys>,
    /// Owner, group and mode of the files of its Unix sockets.
    pub file: SocketFile,
    pub connections: Arc<AtomicUsize>,
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
        let tls = |t: &Checked| {
            let p = t.params.clone();
            (p.tls, p.tls_certificate, p.tls_key, p.tls_client_ca)
        };
        let unix = |at: &&Address| at.unix().is_some();
        let shares = |at: &Address| other.spec.listen.contains(at);
        let share = self.spec.listen.iter().filter(unix).any(shares);
        if share && self.file != other.file {
            return Some("socket_owner, socket_group or socket_mode");
        }
        (tls(self) != tls(other)).then_some("TLS parameters")
    }

    fn inherit_from(&mut self, old: &Checked) {
        self.connections = old.connections.clone();
    }
}

impl Checked {
    /// Checks a target and reads its keys; an error names the remedy.
    pub fn new(spec: TargetSpec) -> Result<Checked, Error> {
        let name = spec.name.clone();
        let bad = |what: String| Error::inval(format!("nbd target {name}: {what}"));
        let odd = |c: char| c.is_control() || c == '/';
        if spec.name.is_empty() || spec.name.len() > NAME_MAX || spec.name.chars().any(odd) {
            return Err(bad(format!("a name has 1 to {NAME_MAX} bytes, printable, without /")));
        }
        if spec.chap.is_some() || spec.mutual_chap.is_some() || spec.discovery_chap.is_some() {
            return Err(bad("NBD has no CHAP; authenticate clients with tls_client_ca".into()));
        }
        let params = match &spec.params {
            serde_json::Value::Null => NbdParams::default(),
            other => NbdParams::deserialize(other).map_err(|e| bad(e.to_string()))?,
        };
        check(&params).map_err(bad)?;
        let keys = match params.tls {
            TlsPolicy::Off => None,
            TlsPolicy::Allow | TlsPolicy::Require => {
                Some(Keys::read(&files(&params)).map_err(bad)?)
            }
        };
        let file = SocketFile::of(&params).map_err(bad)?;
        Ok(Checked { spec, params, keys, file, connections: Arc::default() })
    }

    /// One connection more; None when there are enough.
    pub fn claim_connection(&self) -> Option<ConnectionClaim> {
        ConnectionClaim::take(&self.connections, self.params.connections_max)
    }
}

fn files(p: &NbdParams) -> Files<'_> {
    let (certificate, key) = (&p.tls_certificate, &p.tls_key);
    Files { certificate, key, client_ca: &p.tls_client_ca }
}

fn check(p: &NbdParams) -> Result<(), String> {
    check_ranges(&[
        ("handshake_timeout", p.handshake_timeout, 1, 300),
        ("connections_max", p.connections_max, 1, 16384),
        ("connections_per_peer", p.connections_per_peer, 1, 65_536),
    ])?;
    if let Some(alias) = p.aliases.keys().find(|a| a.is_empty() || a.parse::<u64>().is_ok()) {
        return Err(format!(
            "aliases: {alias:?}: a number already means a LUN, and an empty name \
                            LUN 0"
        ));
    }
    let given = [&p.tls_certificate, &p.tls_key, &p.tls_client_ca];
    match p.tls {
        TlsPolicy::Off if given.iter().any(|file| !file.is_empty()) => {
            Err("tls is off: set tls = \"require\", or leave the files out".into())
        }
        TlsPolicy::Allow | TlsPolicy::Require
            if p.tls_certificate.is_empty() || p.tls_key.is_empty() =>
        {
            Err("tls needs tls_certificate and tls_key".into())
        }
        _ => Ok(()),
    }
}

/// JSON Schema of [`NbdParams`].
pub(crate) fn schema() -> serde_json::Value {
    geom::schema_of::<NbdParams>()
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
        for (name, params, word) in [
            ("", json!({}), "name"),
            ("a/b", json!({}), "name"),
            ("a", json!({"tsl": "off"}), "tsl"),
            ("a", json!({"tls": "require"}), "tls_certificate"),
            ("a", json!({"tls_key": "x"}), "off"),
            ("a", json!({"socket_mode": "rw"}), "socket_mode"),
            ("a", json!({"handshake_timeout": 0}), "handshake_timeout"),
            ("a", json!({"connections_per_peer": 0}), "connections_per_peer"),
            ("a", json!({"aliases": {"3": "disk"}}), "LUN"),
            (
                "a",
                json!({"tls": "allow", "tls_certificate": "/nowhere/c", "tls_key": "/nowhere/k"}),
                "/nowhere/c",
            ),
        ] {
            let error = Checked::new(spec(name, params)).err().unwrap();
            assert!(error.message.contains(word), "{error}");
        }
        assert!(Checked::new(spec("a", serde_json::Value::Null)).is_ok());
    }

    #[test]
    fn closed_connection_frees_its_place() {
        let c = Checked::new(spec("a", json!({"connections_max": 2}))).unwrap();
        let (a, b) = (c.claim_connection(), c.claim_connection());
        assert!(a.is_some() && b.is_some() && c.claim_connection().is_none());
        drop(a);
        assert!(c.claim_connection().is_some());
    }
}
