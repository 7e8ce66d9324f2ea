//! Check that secrets can be read, are long enough, and are private.

use super::certificates::tls_files;
use super::{Check, CheckFinding, Facts, Severity, bad, ok};
use crate::config::{Config, secret};
use std::os::unix::fs::MetadataExt;

/// See the module.
pub const CHECK: Check = Check { id: "secrets", doc: "whether secrets are protected", findings };

fn findings(facts: &Facts) -> Vec<CheckFinding> {
    let Some(config) = facts.valid_config() else { return ok("no configuration to look at") };
    let mut out = Vec::new();
    let mut literal = false;
    let targets = config.target.iter();
    let targets = targets.flat_map(|t| {
        let all = [&t.chap, &t.mutual_chap, &t.discovery_chap];
        all.into_iter().flatten().map(|c| (t.name.as_str(), c.user.as_str(), c.secret.as_str()))
    });
    let groups = config.access.iter().flat_map(|a| a.accounts().map(move |(_, c)| (a, c)));
    let groups = groups.flat_map(|(a, c)| {
        let own = (a.target.as_str(), c.user.as_str(), c.secret.as_str());
        let ours = c.mutual.iter().map(|m| (a.target.as_str(), m.user.as_str(), m.secret.as_str()));
        std::iter::once(own).chain(ours)
    });
    for (target, user, reference) in targets.chain(groups) {
        literal |= secret::is_literal(reference);
        if secret::is_out_of_reach(reference) {
            continue;
        }
        match secret::resolve(reference) {
            Err(e) => out.push(bad(
                Severity::Fail,
                format!("{}: {}", e.at, e.source),
                format!("target {target} cannot be served"),
                e.advice(),
            )),
            Ok(bytes) if bytes.len() < secret::CHAP_BYTES_MIN => out.push(bad(
                Severity::Fail,
                format!("the secret of {user} has only {} bytes", bytes.len()),
                "short secrets can be guessed; initiators that follow RFC 7143 refuse them",
                "head -c 12 /dev/urandom | base64 > FILE && chmod 600 FILE",
            )),
            Ok(_) => {}
        }
    }
    if let Some(Err(e)) = config.daemon.metrics_token.as_deref().map(secret::resolve) {
        out.push(bad(
            Severity::Fail,
            format!("{}: {}", e.at, e.source),
            "metrics are not served over TCP",
            e.advice(),
        ));
    }
    for hook in &config.webhook {
        let reference = hook.secret.as_deref().filter(|text| !secret::is_out_of_reach(text));
        if let Some(Err(e)) = reference.map(secret::resolve) {
            out.push(bad(
                Severity::Fail,
                format!("{}: {}", e.at, e.source),
                format!("webhook {} delivers no events", hook.name),
                e.advice(),
            ));
        }
    }
    let mode = std::fs::metadata(&facts.file).map_or(0, |m| m.mode());
    if literal && mode & 0o077 != 0 {
        let file = facts.file.display();
        out.push(bad(
            Severity::Fail,
            format!("{file} contains secrets and has mode {:04o}", mode & 0o7777),
            "every user of this machine can read them",
            format!("chmod 600 {file}, and better: secret = \"file:PATH\""),
        ));
    }
    out.extend(keys(config));
    if out.is_empty() { ok("no other user can read secrets") } else { out }
}

/// Private keys that other users can read.
fn keys(config: &Config) -> Vec<CheckFinding> {
    let files = tls_files(config).into_iter();
    let open = files.filter(|(_, key, _)| *key == "tls_key").filter_map(|(at, _, path)| {
        let mode = std::fs::metadata(path).ok()?.mode();
        (mode & 0o077 != 0).then(|| {
            bad(
                Severity::Warn,
                format!("the private key of {at}, {path}, has mode {:04o}", mode & 0o7777),
                "other users of this machine can read it",
                format!("chmod 600 {path}"),
            )
        })
    });
    open.collect()
}
