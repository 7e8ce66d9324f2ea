//! Digests of files that sections of the configuration were set up from: secrets, certificates and
//! keys of targets, access groups, buses, disks, file servers, the API and webhooks. They show
//! whether a file has other contents now; the contents themselves are not kept.
//!
//! Invariant F1: a digest is taken before its file is used, so a file that is replaced in between
//! counts as changed.

mod reads;
mod watch;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use bio::sync::Mutex;
use mgmt::StaleFiles;
use mgmt::api::{CertificateState, ChangedFilesState};
use mgmt::config::{
    AccessConfig, ApiConfig, BusConfig, Chap, Config, DiskConfig, GeomConfig, TLS_FILE_KEYS,
    TargetConfig, WebhookConfig, secret,
};
use mgmt::plan::FileSection;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use crate::state_store::ReportFn;
use reads::FileReads;
pub use reads::{RETRY_WAIT, has_sources, has_tls_files};

/// Longest part of a file that is looked at, in bytes. Longer ones are no certificates.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// The parameter that names the CA certificates of clients.
const CLIENT_CA: &str = "tls_client_ca";

/// A file, as it was read.
#[derive(Clone)]
struct File {
    /// The key of the configuration: `tls_key`; of a group with its name.
    key: String,
    path: String,
    digest: [u8; 32],
    /// When the first of its certificates expires, in seconds since 1970.
    expires: Option<i64>,
    /// The reference to it in the configuration, of a secret.
    secret: Option<String>,
    /// Digests of the certificates in it, of one that verifies clients.
    client_cas: BTreeSet<[u8; 32]>,
}

/// Digests of the certificates that a file of this key verifies clients against.
fn client_cas(key: &str, contents: &[u8]) -> BTreeSet<[u8; 32]> {
    if key != CLIENT_CA {
        return BTreeSet::new();
    }
    tls::certificates_of(contents).iter().map(|one| Sha256::digest(one).into()).collect()
}

impl File {
    /// `None` when it cannot be read: setting up the target reports why.
    fn read(key: String, path: &str) -> Option<File> {
        let contents = contents(path)?;
        let expires = if key == "tls_key" { None } else { tls::expires(&contents) };
        let digest = Sha256::digest(&contents).into();
        let client_cas = client_cas(&key, &contents);
        Some(File { key, path: path.to_owned(), digest, expires, secret: None, client_cas })
    }

    /// Whether its contents are others now. What cannot be used has none: what was read stays in
    /// use, and no change of the configuration waits for it.
    fn has_changed(&self) -> bool {
        let now = contents(&self.path).filter(|_| self.refusal().is_none());
        now.is_some_and(|now| Sha256::digest(&now)[..] != self.digest)
    }

    /// What an operator should know: its contents are others, or the next start could not use it.
    fn warning(&self) -> Option<String> {
        let refused = self.refusal();
        refused.or_else(|| self.change())
    }

    /// How it differs from the file that was read.
    fn change(&self) -> Option<String> {
        self.has_changed().then(|| format!("{} {} has changed", self.key, self.path))
    }

    /// Whether clients that it verified are not verified any more by its contents now. A further
    /// CA beside the former one locks no client out.
    fn drops_client_ca(&self) -> bool {
        let now = contents(&self.path).filter(|_| !self.client_cas.is_empty());
        now.is_some_and(|now| !self.client_cas.is_subset(&client_cas(&self.key, &now)))
    }

    /// Why the next start could not use it.
    fn refusal(&self) -> Option<String> {
        let refused = |why: &str| Some(format!("{} {} cannot be used: {why}", self.key, self.path));
        match &self.secret {
            Some(reference) => refused(&secret::resolve(reference).err()?.source),
            None if contents(&self.path).is_none() => refused("not readable"),
            None => None,
        }
    }
}

fn contents(path: &str) -> Option<Vec<u8>> {
    bio::read_named(path, FILE_BYTES_MAX).ok()
}

/// The files of a section, or of the groups of a target.
#[derive(Clone, Default)]
pub struct Files(Vec<File>);

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
        out.params(&target.params);
        out
    }

    /// Reads those of a bus.
    pub fn of_bus(bus: &BusConfig) -> Files {
        let mut out = Files::default();
        for (key, value) in &bus.params {
            if let Some(secret) = value.get("secret").and_then(Value::as_str) {
                out.secret(key.clone(), secret);
            }
        }
        out
    }

    /// Reads those of a disk.
    pub fn of_disk(disk: &DiskConfig) -> Files {
        let mut out = Files::default();
        out.params(&disk.params);
        out
    }

    /// Reads those of a file server.
    pub fn of_fs(geom: &GeomConfig) -> Files {
        let mut out = Files::default();
        out.params(&geom.params);
        out
    }

    /// Reads those of the API.
    fn of_api(api: &ApiConfig) -> Files {
        let all = api.named_files().filter(|_| api.tls_files().is_some());
        Files(all.filter_map(|(key, path)| File::read(key.to_owned(), path)).collect())
    }

    /// Reads those of a webhook.
    fn of_webhook(hook: &WebhookConfig) -> Files {
        let mut out = Files::default();
        if let Some(secret) = &hook.secret {
            out.secret("secret".to_owned(), secret);
        }
        let ca = hook.tls_ca.as_deref();
        out.0.extend(ca.and_then(|path| File::read("tls_ca".to_owned(), path)));
        out
    }

    fn params(&mut self, params: &Map<String, Value>) {
        for key in TLS_FILE_KEYS {
            let path = params.get(key).and_then(Value::as_str).filter(|path| !path.is_empty());
            self.0.extend(path.and_then(|path| File::read(key.to_owned(), path)));
        }
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
            let file = path.to_str().and_then(|path| File::read(key, path));
            let reference = Some(reference.to_owned());
            self.0.extend(file.map(|file| File { secret: reference, ..file }));
        }
    }
}

#[derive(Clone, Default)]
struct SectionFiles {
    own: Files,
    /// Of the groups of a target.
    groups: Files,
}

impl SectionFiles {
    fn all(&self) -> impl Iterator<Item = &File> {
        self.own.0.iter().chain(&self.groups.0)
    }

    fn is_empty(&self) -> bool {
        self.all().next().is_none()
    }

    /// The report about files that have changed.
    fn stale(
        &self,
        of: &FileSection,
        change: impl Fn(&File) -> Option<String>,
    ) -> Option<StaleFiles> {
        let why: Vec<String> = self.all().filter_map(change).collect();
        let stale = || StaleFiles { of: of.clone(), why: why.join("; "), drops_client_ca: false };
        (!why.is_empty()).then(stale)
    }
}

#[derive(Default)]
struct TrackedFiles {
    all: BTreeMap<FileSection, SectionFiles>,
    /// Those of which the watch has seen other contents.
    changed: Vec<StaleFiles>,
    is_watched: bool,
}

/// The files that are in use, by section.
#[derive(Clone)]
pub struct FilesInUse {
    inner: Arc<Mutex<TrackedFiles>>,
    reads: FileReads,
    report: Arc<ReportFn>,
}

impl FilesInUse {
    /// An empty set; the callback receives the reports of changed files.
    pub fn new(tell: Arc<ReportFn>) -> FilesInUse {
        FilesInUse { inner: Arc::default(), reads: FileReads::default(), report: tell }
    }

    fn set(&self, of: FileSection, set: impl FnOnce(&mut SectionFiles)) {
        let mut inner = self.inner.lock();
        inner.changed.retain(|stale| stale.of != of);
        let place = inner.all.entry(of.clone()).or_default();
        set(place);
        if place.is_empty() {
            inner.all.remove(&of);
        }
        if !inner.all.is_empty() && !inner.is_watched {
            inner.is_watched = watch::begin(Arc::downgrade(&self.inner), self.report.clone());
        }
    }

    /// A target uses these now.
    pub(super) fn set_target(&self, target: &str, files: Files) {
        self.set(FileSection::Target(target.to_owned()), |of| of.own = files);
    }

    /// The groups of a target use these now.
    pub(super) fn set_groups(&self, target: &str, files: Files) {
        self.set(FileSection::Target(target.to_owned()), |of| of.groups = files);
    }

    /// A section without groups uses these now.
    pub fn set_own(&self, of: FileSection, files: Files) {
        self.set(of, |of| of.own = files);
    }

    /// The control side is about to read the files of these sections. Reads them.
    pub fn set_control(&self, sections: &[FileSection], config: &Config) {
        for of in sections {
            let files = match of {
                FileSection::Api => Files::of_api(&config.api),
                FileSection::Webhook(name) => {
                    let hook = config.webhook.iter().find(|hook| hook.name == *name);
                    hook.map_or_else(Files::default, Files::of_webhook)
                }
                _ => continue,
            };
            self.set_own(of.clone(), files);
        }
    }

    /// Disks have other names, which may be former names of others of them.
    pub fn rename_disks(&self, names: &[(String, String)]) {
        let section = |name: &str| FileSection::Disk(name.to_owned());
        let mut inner = self.inner.lock();
        let mut renamed = Vec::with_capacity(names.len());
        for (from, to) in names {
            let (from, to) = (section(from), section(to));
            inner.changed.retain(|stale| stale.of != from && stale.of != to);
            renamed.push((inner.all.remove(&from), to));
        }
        for (files, to) in renamed {
            match files {
                Some(files) => inner.all.insert(to, files),
                None => inner.all.remove(&to),
            };
        }
    }

    /// A section is removed, with the groups of a target.
    pub fn forget(&self, of: FileSection) {
        self.set(of, |of| *of = SectionFiles::default());
    }

    /// Sections whose files have other contents now. Reads them.
    pub fn stale(&self) -> Vec<StaleFiles> {
        // Files may be on a slow file system: not under the lock.
        let all = self.inner.lock().all.clone();
        let stale = |(of, files): (&FileSection, &SectionFiles)| {
            let drops_client_ca = files.all().any(File::drops_client_ca);
            files.stale(of, File::change).map(|stale| StaleFiles { drops_client_ca, ..stale })
        };
        all.iter().filter_map(stale).collect()
    }

    /// The same, as the watch saw it last. Reads nothing.
    pub fn changed(&self) -> Vec<ChangedFilesState> {
        let state = |stale: &StaleFiles| ChangedFilesState {
            at: stale.of.to_string(),
            why: stale.why.clone(),
        };
        self.inner.lock().changed.iter().map(state).collect()
    }

    /// The certificates that are in use.
    pub fn certificates(&self) -> Vec<CertificateState> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let now = i64::try_from(now).unwrap_or(i64::MAX);
        let inner = self.inner.lock();
        let files = inner.all.iter().flat_map(|(of, files)| files.all().map(move |f| (of, f)));
        let state = |(of, file): (&FileSection, &File)| {
            let expires_at = file.expires?;
            Some(CertificateState {
                at: of.to_string(),
                key: file.key.clone(),
                path: file.path.clone(),
                expires_s: expires_at.saturating_sub(now),
                expires_at,
            })
        };
        files.filter_map(state).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Certificates, which are looked at as bytes.
    const OLD: &str = "-----BEGIN CERTIFICATE-----\nb2xk\n-----END CERTIFICATE-----\n";
    const NEW: &str = "-----BEGIN CERTIFICATE-----\nbmV3\n-----END CERTIFICATE-----\n";

    #[test]
    fn files_follow_disks_that_exchange_their_names() {
        let tracked = TrackedFiles { is_watched: true, ..TrackedFiles::default() };
        let files = FilesInUse {
            inner: Arc::new(Mutex::new(tracked)),
            reads: FileReads::default(),
            report: Arc::new(|_: &str, _: String| {}),
        };
        let file = |path: &str| File {
            key: "tls_ca".into(),
            path: path.into(),
            digest: [0; 32],
            expires: None,
            secret: None,
            client_cas: BTreeSet::new(),
        };
        for (disk, path) in [("a", "/a.pem"), ("b", "/b.pem")] {
            files.set_own(FileSection::Disk(disk.into()), Files(vec![file(path)]));
        }
        let rename = |names: &[(&str, &str)]| -> Vec<(String, String)> {
            let owned = |(from, to): &(&str, &str)| ((*from).to_owned(), (*to).to_owned());
            files.rename_disks(&names.iter().map(owned).collect::<Vec<_>>());
            let inner = files.inner.lock();
            let shown = |(of, files): (&FileSection, &SectionFiles)| {
                (of.to_string(), files.all().map(|file| file.path.clone()).collect())
            };
            inner.all.iter().map(shown).collect()
        };
        let [a, b] = ["a", "b"].map(|name| FileSection::Disk(name.into()).to_string());
        let at = |section: &String, path: &str| (section.clone(), path.to_owned());
        let exchanged = [at(&a, "/b.pem"), at(&b, "/a.pem")];
        assert_eq!(rename(&[("a", "b"), ("b", "a")]), exchanged);
        // The disk `c` has no files.
        assert_eq!(rename(&[("c", "b")]), [at(&a, "/b.pem")]);
        assert_eq!(rename(&[("a", "b"), ("b", "bp1")]), [at(&b, "/b.pem")]);
    }

    #[test]
    fn ca_of_clients_is_dropped_by_another_one_and_kept_beside_it() {
        let file = std::env::temp_dir().join(format!("ashlar-cas-{}.pem", std::process::id()));
        std::fs::write(&file, OLD).unwrap();
        let read = File::read(CLIENT_CA.to_owned(), file.to_str().unwrap()).unwrap();
        assert!(!read.has_changed() && !read.drops_client_ca());
        std::fs::write(&file, [OLD, NEW].concat()).unwrap();
        assert!(read.has_changed() && !read.drops_client_ca());
        std::fs::write(&file, NEW).unwrap();
        assert!(read.drops_client_ca());
        std::fs::remove_file(&file).unwrap();
        assert!(!read.drops_client_ca(), "the one that was read stays in use");
    }
}
