//! The kind `iscsi` of `[[bus]]`.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;

use geom::Error;
use reactor::clock::S;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use wire::iscsi::{Algorithms, ChapUser, DigestPolicy, SECRET_LEN_MIN, normalise_name};

use super::engine::{Chap, Rules, SharedTerms, Terms};
use super::{Iscsi, secret};
use crate::kind::{Open, SimKind};
use crate::sim::Sim;

/// Most portals of a bus: their numbers are in a byte of the ISID.
const PORTALS_MAX: u32 = 64;

/// An iSCSI initiator.
pub struct IscsiKind;

#[derive(Deserialize, JsonSchema)]
struct IscsiParams {
    /// Addresses of the target, with ports. Each portal is a path of its own; class multipath joins
    /// the disks of several portals. The number of a portal in `names` is its place in the list
    /// when the bus is opened; added portals get the next numbers.
    #[schemars(length(min = 1, max = 64))]
    portals: Vec<SocketAddr>,
    /// iSCSI name of the target.
    target: String,
    /// iSCSI name of this initiator, which no other machine may have. Absent: the name in
    /// /etc/iscsi/initiatorname.iscsi, otherwise a name that is generated once and kept in the
    /// state folder.
    initiator: Option<String>,
    /// CHAP: credentials of this initiator for the target.
    chap: Option<ChapCredentials>,
    /// Mutual CHAP: credentials that the target must present.
    mutual: Option<ChapCredentials>,
    /// Digests that CHAP may use; the target selects one. Old targets support only md5, and some
    /// claim digests that they do not support.
    #[serde(default = "algorithms")]
    #[schemars(length(min = 1))]
    chap_algorithms: Vec<Algorithm>,
    /// CRC32C digest of headers.
    #[serde(default)]
    header_digest: Digest,
    /// CRC32C digest of data.
    #[serde(default)]
    data_digest: Digest,
    /// Seconds without an answer after which a portal and the disks behind it are lost. They are
    /// used again when the portal answers.
    #[serde(default = "deadline")]
    #[schemars(range(min = 1, max = 25))]
    deadline_s: u64,
    /// Maximum number of logical units to use, counted from the start of the target's list. If it
    /// is lowered, a running bus keeps the disks that it has.
    #[serde(default = "luns")]
    #[schemars(range(min = 1, max = 16384))]
    luns_max: u32,
}

fn luns() -> u32 {
    crate::probe::LUNS_MAX
}

#[derive(Deserialize, JsonSchema)]
struct ChapCredentials {
    /// User name.
    user: String,
    /// `file:PATH`, `credential:NAME` (systemd), or the secret itself (discouraged).
    secret: String,
}

/// A digest for CHAP.
#[derive(Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
enum Algorithm {
    /// Weak.
    #[serde(rename = "md5")]
    Md5,
    #[serde(rename = "sha1")]
    Sha1,
    #[serde(rename = "sha256")]
    Sha256,
    #[serde(rename = "sha3-256")]
    Sha3,
}

fn algorithms() -> Vec<Algorithm> {
    vec![Algorithm::Sha3, Algorithm::Sha256, Algorithm::Sha1]
}

/// Use of a digest.
#[derive(Clone, Copy, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Digest {
    /// Never.
    Off,
    /// Only if the target requires it.
    Allow,
    /// If the target supports it.
    #[default]
    Prefer,
    /// Required: no session without it.
    Require,
}

impl From<Digest> for DigestPolicy {
    fn from(digest: Digest) -> DigestPolicy {
        match digest {
            Digest::Off => DigestPolicy::Off,
            Digest::Allow => DigestPolicy::Allow,
            Digest::Prefer => DigestPolicy::Prefer,
            Digest::Require => DigestPolicy::Require,
        }
    }
}

fn deadline() -> u64 {
    20
}

fn user(proof: &ChapCredentials) -> Result<ChapUser, String> {
    let secret = secret::read(&proof.secret)?;
    match secret.len() {
        n if n < SECRET_LEN_MIN => Err(format!(
            "{}: the secret is too short ({n} bytes, at least {SECRET_LEN_MIN})",
            proof.user
        )),
        _ => Ok(ChapUser { name: proof.user.clone(), secret }),
    }
}

/// One that proves itself with a secret, and requires no proof.
pub(super) fn one_way_chap(user: &str, secret: &str) -> Result<Chap, String> {
    let proof = ChapCredentials { user: user.to_owned(), secret: secret.to_owned() };
    // A secret of a question is worth no more than the target's oldest digest.
    let algorithms = Algorithms { md5: true, sha1: true, sha256: true, sha3: true };
    Ok(Chap { user: self::user(&proof)?, mutual: None, algorithms })
}

fn chap(params: &IscsiParams) -> Result<Option<Chap>, String> {
    let Some(ours) = &params.chap else {
        return match params.mutual {
            Some(_) => Err("mutual: chap is missing; the target authenticates the initiator \
                            first"
                .into()),
            None => Ok(None),
        };
    };
    let own = user(ours).map_err(|e| format!("chap: {e}"))?;
    let theirs = params.mutual.as_ref().map(user).transpose();
    let mutual = theirs.map_err(|e| format!("mutual: {e}"))?;
    if mutual.as_ref().is_some_and(|theirs| theirs.secret == own.secret) {
        return Err("mutual: the secret of the target must differ from the secret of chap".into());
    }
    let has = |algorithm| params.chap_algorithms.contains(&algorithm);
    let algorithms = Algorithms {
        md5: has(Algorithm::Md5),
        sha1: has(Algorithm::Sha1),
        sha256: has(Algorithm::Sha256),
        sha3: has(Algorithm::Sha3),
    };
    if params.chap_algorithms.is_empty() {
        return Err("chap_algorithms: one at least is needed".into());
    }
    Ok(Some(Chap { user: own, mutual, algorithms }))
}

impl IscsiParams {
    fn terms(&self) -> Result<Terms, String> {
        Ok(Terms {
            chap: chap(self)?,
            header_digest: self.header_digest.into(),
            data_digest: self.data_digest.into(),
            deadline_ns: self.deadline_s * S,
        })
    }
}

/// The parameters that a running bus takes over: portals and terms.
pub(super) fn live_params(bus: &str, params: &Value) -> Result<(Vec<SocketAddr>, Terms), Error> {
    let params = checked(bus, params)?;
    let terms = params.terms().map_err(|e| Error::inval(format!("bus {bus}: {e}")))?;
    Ok((params.portals, terms))
}

/// An iSCSI name in the form in which it is sent. `key`: the parameter that has it.
fn iscsi_name(bus: &str, key: &str, text: &str) -> Result<String, Error> {
    normalise_name(text).map_err(|_| {
        Error::inval(format!(
            "bus {bus}: {key}: `{text}` is no iSCSI name (iqn.2026-01.org.example:name)"
        ))
    })
}

/// The parameters of a bus, if they can be used. It needs no initiator name until it is opened.
fn checked(bus: &str, params: &Value) -> Result<IscsiParams, Error> {
    let refuse = |what: String| Error::inval(format!("bus {bus}: {what}"));
    let params = IscsiParams::deserialize(params).map_err(|e| refuse(e.to_string()))?;
    iscsi_name(bus, "target", &params.target)?;
    if let Some(own) = &params.initiator {
        iscsi_name(bus, "initiator", own)?;
    }
    let mut seen = BTreeSet::new();
    if let Some(twice) = params.portals.iter().find(|portal| !seen.insert(**portal)) {
        return Err(refuse(format!("portals: {twice} is listed twice")));
    }
    if params.portals.is_empty() || params.portals.len() > PORTALS_MAX as usize {
        return Err(refuse(format!("portals: 1 to {PORTALS_MAX} are needed")));
    }
    params.terms().map_err(refuse)?;
    Ok(params)
}

impl SimKind for IscsiKind {
    fn name(&self) -> &'static str {
        "iscsi"
    }

    fn has_initiator_name(&self) -> bool {
        true
    }

    fn doc(&self) -> &'static str {
        "Disks of an iSCSI target, by TCP/IP."
    }

    fn schema(&self) -> Value {
        geom::schema_of::<IscsiParams>()
    }

    fn live_keys(&self) -> &'static [&'static str] {
        &[
            "portals",
            "luns_max",
            "deadline_s",
            "header_digest",
            "data_digest",
            "chap",
            "mutual",
            "chap_algorithms",
        ]
    }

    fn example(&self) -> &'static str {
        "[[bus]]\nname = \"iscsi0\"\nkind = \"iscsi\"\n\
         portals = [\"10.0.0.1:3260\", \"10.0.1.1:3260\"]\n\
         target = \"iqn.2026-01.org.example:t0\"\n\
         initiator = \"iqn.2026-01.org.example:host7\"\n"
    }

    fn check(&self, name: &str, params: &Value) -> Result<(), Error> {
        checked(name, params).map(drop)
    }

    fn open(&self, request: &Open<'_>) -> Result<Arc<dyn Sim>, Error> {
        let name = request.name;
        let refuse = |what: String| Error::inval(format!("bus {name}: {what}"));
        let params = checked(name, request.params)?;
        let own = params
            .initiator
            .as_deref()
            .ok_or_else(|| refuse("initiator: no name is set".into()))?;
        let rules = Rules {
            initiator: iscsi_name(name, "initiator", own)?,
            target: iscsi_name(name, "target", &params.target)?,
            isid: [0; 6],
            terms: SharedTerms::new(params.terms().map_err(refuse)?),
            luns_max: params.luns_max,
        };
        let site = (request.site.notifier.clone(), request.site.cores);
        Ok(Arc::new(Iscsi::new(name, params.portals, rules, site)))
    }
}
