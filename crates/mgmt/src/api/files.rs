//! Files that sections of the configuration name: certificates, and contents that have changed.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A certificate file in use.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct CertificateState {
    /// The object that uses the file: `target shop`, `fs main`.
    pub at: String,
    /// Configuration key that names the file: `tls_certificate`, `tls_client_ca`.
    pub key: String,
    /// Path of the file.
    pub path: String,
    /// Seconds until the first certificate in the file expires; negative if it has expired.
    pub expires_s: i64,
    /// Expiry of the first certificate to expire, in seconds since 1970.
    pub expires_at: i64,
}

impl CertificateState {
    /// Certificates that expire within this time are reported.
    pub const EXPIRY_WARNING_S: i64 = 30 * 24 * 3600;

    /// The report that it has expired or expires soon; `None` when neither is so.
    pub fn warning(&self) -> Option<String> {
        let (key, path) = (&self.key, &self.path);
        let days = self.expires_s.unsigned_abs() / (24 * 3600);
        let days = format!("{days} day{}", if days == 1 { "" } else { "s" });
        match self.expires_s {
            ..0 => Some(format!("{key} {path} expired {days} ago")),
            0..=Self::EXPIRY_WARNING_S => Some(format!("{key} {path} expires in {days}")),
            _ => None,
        }
    }
}

/// Files whose contents have changed since they were read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ChangedFilesState {
    /// The object that uses the files: `target shop`, `bus iscsi0`.
    pub at: String,
    /// Description of the changes: "chap /etc/ashlar/own has changed".
    pub why: String,
}
