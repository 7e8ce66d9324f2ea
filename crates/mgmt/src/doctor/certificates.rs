//! Check of the files that targets and file servers name for TLS: whether they can be read and when
//! they expire.

use super::{Check, CheckFinding, Facts, Severity, bad, ok};
use crate::api::CertificateState;
use std::io::Read;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

/// See the module.
pub const CHECK: Check =
    Check { id: "certificates", doc: "whether certificates in use are valid", findings };

/// Longest part of a file that is read, in bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;

fn findings(facts: &Facts) -> Vec<CheckFinding> {
    let Some(config) = facts.valid_config() else { return ok("no configuration to look at") };
    let mut out = Vec::new();
    let mut seen = 0;
    let targets = config.target.iter().map(|t| (format!("target {}", t.name), &t.params));
    let servers = config.geom.iter().filter(|g| g.class == "fs");
    let servers = servers.map(|g| (format!("fs {}", g.name), &g.params));
    for (at, params) in targets.chain(servers) {
        for key in ["tls_certificate", "tls_key", "tls_client_ca"] {
            let path = params.get(key).and_then(|path| path.as_str()).unwrap_or("");
            if !path.is_empty() {
                seen += 1;
                out.extend(file(&at, key, path));
            }
        }
    }
    if out.is_empty() { ok(format!("{seen} files looked at, all valid")) } else { out }
}

fn file(at: &str, key: &str, path: &str) -> Option<CheckFinding> {
    let contents = match contents(Path::new(path)) {
        Ok(contents) => contents,
        Err(e) => {
            return Some(bad(
                Severity::Fail,
                format!("{at}: {key} {path}: {e}"),
                "the target cannot be served",
                format!("ls -l {path}, or correct `{key}`"),
            ));
        }
    };
    if key == "tls_key" {
        return None;
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let now = i64::try_from(now).unwrap_or(i64::MAX);
    let expires_at = tls::expires(&contents)?;
    validity(&CertificateState {
        at: at.into(),
        key: key.into(),
        path: path.into(),
        expires_s: expires_at.saturating_sub(now),
        expires_at,
    })
}

/// The finding about a certificate that has expired or expires soon.
pub(super) fn validity(file: &CertificateState) -> Option<CheckFinding> {
    let grade = if file.expires_s < 0 { Severity::Fail } else { Severity::Warn };
    Some(bad(
        grade,
        format!("{}: {}", file.at, file.warning()?),
        "TLS connections are refused after that time",
        format!("replace {}, then run `ashlar apply`", file.path),
    ))
}

fn contents(path: &Path) -> std::io::Result<Vec<u8>> {
    // Opening a FIFO would wait for its writer.
    if !std::fs::metadata(path)?.is_file() {
        return Err(std::io::Error::other("not a file"));
    }
    let mut out = Vec::new();
    std::fs::File::open(path)?.take(FILE_BYTES_MAX).read_to_end(&mut out)?;
    Ok(out)
}
