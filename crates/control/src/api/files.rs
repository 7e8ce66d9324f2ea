//! Files that sections of the configuration name: certificates, and contents that have changed.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A file with certificates that is in use.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct CertificateState {
    /// What uses it: `target shop`, `fs main`.
    pub at: String,
    /// The key of the configuration that names it: `tls_certificate`, `tls_client_ca`.
    pub key: String,
    /// The file.
    pub path: String,
    /// Seconds until the first of its certificates expires; negative when one has expired.
    pub expires_s: i64,
    /// When the first of its certificates expires, seconds since 1970.
    pub expires_at: i64,
}

impl CertificateState {
    /// Certificates that expire within this time are reported.
    pub const SOON_S: i64 = 30 * 24 * 3600;

    /// Says that it has expired or expires soon; `None` when neither is so.
    pub fn warning(&self) -> Option<String> {
        let (key, path) = (&self.key, &self.path);
        let days = self.expires_s.unsigned_abs() / (24 * 3600);
        let days = format!("{days} day{}", if days == 1 { "" } else { "s" });
        match self.expires_s {
            ..0 => Some(format!("{key} {path} expired {days} ago")),
            0..=Self::SOON_S => Some(format!("{key} {path} expires in {days}")),
            _ => None,
        }
    }
}

/// Files whose contents have changed since they were read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ChangedFilesState {
    /// What uses them: `target shop`, `bus iscsi0`.
    pub at: String,
    /// Which: "chap /etc/ashlar/own has changed".
    pub why: String,
}
