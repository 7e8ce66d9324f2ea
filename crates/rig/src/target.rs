//! The target under test as tests describe it: only its address and credentials.

use std::net::SocketAddr;

/// One logical unit of one iSCSI target, as seen from the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Where the target listens, usually on 127.0.0.1.
    pub portal: SocketAddr,
    /// The target's iSCSI name (RFC 7143 section 4.2.7).
    pub iqn: String,
    /// The logical unit's number in the flat numbering, 0 to 16383.
    pub lun: u64,
}

impl Target {
    /// The `iscsi://` address that libiscsi's tools and qemu take.
    pub fn url(&self) -> String {
        format!("iscsi://{}/{}/{}", self.portal, self.iqn, self.lun)
    }

    /// As [`Target::url`] with the initiator's CHAP name and secret in front.
    pub fn url_with(&self, chap: &Chap) -> String {
        let (user, secret) = (&chap.user, &chap.secret);
        format!("iscsi://{user}%{secret}@{}/{}/{}", self.portal, self.iqn, self.lun)
    }
}

/// CHAP credentials (RFC 7143 section 12.1.3).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chap {
    /// The name with which the initiator presents itself.
    pub user: String,
    /// The secret with which it proves it; 12 to 16 bytes suit every initiator.
    pub secret: String,
    /// Name and secret with which the target proves itself in turn; None: one-way CHAP.
    pub mutual: Option<(String, String)>,
}

/// A target with all that is needed to log in to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Login {
    pub target: Target,
    /// The initiator's iSCSI name; access groups are tested with it.
    pub initiator: String,
    /// None: `AuthMethod=None`.
    pub chap: Option<Chap>,
    /// Keys of open-iscsi's node record with their values, such as
    /// `node.conn[0].iscsi.HeaderDigest` and `CRC32C`.
    pub settings: Vec<(String, String)>,
}

impl Login {
    /// The initiator name used where a test does not care.
    pub const INITIATOR: &'static str = "iqn.2026-11.test.ashlar:guest";

    /// A login without authentication under [`Login::INITIATOR`].
    pub fn open(target: Target) -> Login {
        Login { target, initiator: Login::INITIATOR.to_string(), chap: None, settings: Vec::new() }
    }

    pub fn with_chap(mut self, chap: Chap) -> Login {
        self.chap = Some(chap);
        self
    }

    /// The same login with CRC32C over headers and data.
    pub fn with_digests(mut self) -> Login {
        for part in ["Header", "Data"] {
            let key = format!("node.conn[0].iscsi.{part}Digest");
            self.settings.push((key, "CRC32C".to_string()));
        }
        self
    }
}
