//! Check of the files that targets, disks, file servers and `[api]` name for TLS: whether they can
//! be read and when they expire.

use super::{Check, CheckFinding, Facts, Severity, bad, ok};
use crate::api::CertificateState;
use crate::config::{Config, TLS_FILE_KEYS, secret};
use std::time::{SystemTime, UNIX_EPOCH};

/// See the module.
pub const CHECK: Check =
    Check { id: "certificates", doc: "whether certificates in use are valid", findings };

/// Longest part of a file that is read, in bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;

fn findings(facts: &Facts) -> Vec<CheckFinding> {
    let Some(config) = facts.valid_config() else { return of_daemon(facts) };
    let files = tls_files(config);
    let found = files.iter().filter_map(|(at, key, path)| file(at, key, path));
    let (out, seen): (Vec<CheckFinding>, usize) = (found.collect(), files.len());
    if out.is_empty() { ok(format!("{seen} files looked at, all valid")) } else { out }
}

/// Findings about the certificates that the daemon reports.
fn of_daemon(facts: &Facts) -> Vec<CheckFinding> {
    let Ok(state) = &facts.daemon else { return ok("no configuration to look at") };
    let found: Vec<CheckFinding> = state.certificates.iter().filter_map(validity).collect();
    match found.is_empty() {
        true => ok(format!("{} certificates of the daemon are valid", state.certificates.len())),
        false => found,
    }
}

/// The files that sections name for TLS: the section, the key, the path.
pub(super) fn tls_files(config: &Config) -> Vec<(String, &'static str, &str)> {
    let targets = config.target.iter().map(|t| (format!("target {}", t.name), &t.params));
    let disks = config.disk.iter().map(|d| (format!("disk {}", d.name), &d.params));
    let geoms = config.geom.iter().map(|g| (format!("{} {}", g.class, g.name), &g.params));
    let api = config.api.named_files().map(|(key, path)| ("api".to_owned(), key, path));
    let hooks = config.webhook.iter().filter_map(|hook| {
        Some((format!("webhook {}", hook.name), "tls_ca", hook.tls_ca.as_deref()?))
    });
    let named = targets.chain(disks).chain(geoms).flat_map(|(at, params)| {
        TLS_FILE_KEYS.into_iter().filter_map(move |key| {
            let path = params.get(key)?.as_str().filter(|path| !path.is_empty())?;
            Some((at.clone(), key, path))
        })
    });
    named.chain(api).chain(hooks).collect()
}

fn file(at: &str, key: &str, path: &str) -> Option<CheckFinding> {
    if secret::is_out_of_reach(path) {
        // The daemon reports its state.
        return None;
    }
    let contents = match bio::read_named(path, FILE_BYTES_MAX) {
        Ok(contents) => contents,
        Err(e) => {
            return Some(bad(
                Severity::Fail,
                format!("{at}: {key} {path}: {e}"),
                "the target, disk, file server, webhook or API cannot be used",
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
