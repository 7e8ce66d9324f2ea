//! Digests of the files that targets and access groups were set up from: secrets, certificates and
//! keys. They show whether a file has other contents now; the contents themselves are not kept.
//!
//! Invariant F1: a digest is taken before its file is used, so a file that is replaced in between
//! counts as changed.

use std::collections::BTreeMap;
use std::io::Read;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use control::Stale;
use control::api::CertificateState;
use control::config::{AccessConfig, Chap, TargetConfig, secret};
use sha2::{Digest, Sha256};

/// Longest part of a file that is looked at, in bytes. Longer ones are no certificates.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Parameters of drivers that name a file.
const PARAMS: [&str; 3] = ["tls_certificate", "tls_key", "tls_client_ca"];

/// A file, as it was read.
#[derive(Clone)]
struct File {
    /// The key of the configuration: `tls_key`; of a group with its name.
    key: String,
    path: String,
    digest: [u8; 32],
    /// When the first of its certificates expires, in seconds since 1970.
    expires: Option<i64>,
}

impl File {
    /// `None` when it cannot be read: setting up the target reports why.
    fn read(key: String, path: &str) -> Option<File> {
        let contents = contents(path)?;
        let expires = if key == "tls_key" { None } else { keys::expires(&contents) };
        let digest = Sha256::digest(&contents).into();
        Some(File { key, path: path.to_owned(), digest, expires })
    }

    /// Its contents are others now. A file that cannot be read now has none.
    fn has_changed(&self) -> bool {
        contents(&self.path).is_some_and(|now| Sha256::digest(&now)[..] != self.digest)
    }
}

fn contents(path: &str) -> Option<Vec<u8>> {
    // Opening a FIFO would wait for its writer.
    if !std::fs::metadata(path).ok()?.is_file() {
        return None;
    }
    let mut out = Vec::new();
    std::fs::File::open(path).ok()?.take(FILE_BYTES_MAX).read_to_end(&mut out).ok()?;
    Some(out)
}

/// The files of a target or of its groups.
#[derive(Clone, Default)]
pub(super) struct Files(Vec<File>);

impl Files {
    /// Reads those of a target.
    pub(super) fn of_target(target: &TargetConfig) -> Files {
        let mut out = Files::default();
        let accounts = [
            ("chap", &target.chap),
            ("mutual_chap", &target.mutual_chap),
            ("discovery_chap", &target.discovery_chap),
        ];
        for (key, account) in accounts {
            out.account(key.to_owned(), account.as_ref());
        }
        for key in PARAMS {
            let path = target.params.get(key).and_then(|path| path.as_str()).unwrap_or("");
            out.0.extend(File::read(key.to_owned(), path));
        }
        out
    }

    /// Reads those of the groups of a target.
    pub(super) fn of_groups<'c>(groups: impl Iterator<Item = &'c AccessConfig>) -> Files {
        let mut out = Files::default();
        for group in groups {
            for (initiator, account) in group.accounts() {
                let key = match initiator {
                    None => format!("group {}: chap", group.group),
                    Some(name) => format!("group {}: initiator_chap of {name}", group.group),
                };
                out.account(format!("{key} mutual"), account.mutual.as_ref());
                out.secret(key, &account.secret);
            }
        }
        out
    }

    fn account(&mut self, key: String, account: Option<&Chap>) {
        if let Some(account) = account {
            self.secret(key, &account.secret);
        }
    }

    fn secret(&mut self, key: String, reference: &str) {
        if let Ok(Some(path)) = secret::path(reference) {
            self.0.extend(path.to_str().and_then(|path| File::read(key, path)));
        }
    }
}

/// The files of one target.
#[derive(Default)]
struct Of {
    own: Files,
    groups: Files,
}

/// The files that are in use, by target.
#[derive(Clone, Default)]
pub struct InUse(Arc<Mutex<BTreeMap<String, Of>>>);

impl InUse {
    fn all(&self) -> MutexGuard<'_, BTreeMap<String, Of>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A target uses these now.
    pub(super) fn set_target(&self, target: &str, files: Files) {
        self.all().entry(target.to_owned()).or_default().own = files;
    }

    /// The groups of a target use these now.
    pub(super) fn set_groups(&self, target: &str, files: Files) {
        self.all().entry(target.to_owned()).or_default().groups = files;
    }

    /// A target is removed with its groups.
    pub(super) fn forget(&self, target: &str) {
        self.all().remove(target);
    }

    /// Targets whose files have other contents now.
    pub fn stale(&self) -> Vec<Stale> {
        // Files may be on a slow file system: not under the lock.
        let one = |(name, of): (&String, &Of)| {
            let files = of.own.0.iter().chain(&of.groups.0).cloned();
            (name.clone(), files.collect::<Vec<File>>())
        };
        let all: Vec<(String, Vec<File>)> = self.all().iter().map(one).collect();
        let stale = |(target, files): (String, Vec<File>)| {
            let changed = files.iter().filter(|file| file.has_changed());
            let why: Vec<String> =
                changed.map(|file| format!("{} {} has changed", file.key, file.path)).collect();
            (!why.is_empty()).then(|| Stale { target, why: why.join("; ") })
        };
        all.into_iter().filter_map(stale).collect()
    }

    /// The certificates of a target.
    pub fn certificates(&self, target: &str) -> Vec<CertificateState> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let now = i64::try_from(now).unwrap_or(i64::MAX);
        let all = self.all();
        let files = all.get(target).into_iter().flat_map(|of| &of.own.0);
        let state = |file: &File| {
            let expires_s = file.expires?.saturating_sub(now);
            Some(CertificateState { key: file.key.clone(), path: file.path.clone(), expires_s })
        };
        files.filter_map(state).collect()
    }
}
