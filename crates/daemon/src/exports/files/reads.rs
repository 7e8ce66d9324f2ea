//! Reads of files ahead of the steps that use them, each on a thread of its own: a file system or a
//! resolver may hang. The control thread gets what was read, and reads no file again.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bio::ReadAhead;
use bio::sync::{Condvar, Mutex};
use mgmt::api::Result;
use mgmt::config::{Config, TLS_FILE_KEYS, TargetConfig};
use mgmt::plan::{Action, FileSection};
use serde_json::{Map, Value};

use super::super::specs::target_spec;
use super::{Files, FilesInUse, SectionFiles, contents};
use crate::initiator;
use crate::within::late_files;

/// Reads under way at once, those that hang among them; a further one is not made.
const THREADS_MAX: usize = 64;

/// Longest wait of the control thread for the files of a part that it tries again.
pub const RETRY_WAIT: Duration = Duration::from_millis(50);

#[derive(Default)]
struct Inner {
    /// The sections whose files are being read.
    under_way: Mutex<BTreeSet<String>>,
    /// A read has ended.
    ended: Condvar,
}

/// The reads under way. Clones are handles of one table.
#[derive(Clone, Default)]
pub(super) struct FileReads(Arc<Inner>);

impl FileReads {
    /// Whether a read of a section ends in time: within `limit`, and an earlier one within `limit`
    /// before. One that hangs continues, and no other is made for its section.
    fn ends_within(
        &self,
        section: &str,
        limit: Duration,
        read: impl FnOnce() + Send + 'static,
    ) -> bool {
        let ended = &self.0.ended;
        let is_under_way = |all: &mut BTreeSet<String>| all.contains(section);
        let mut all = ended.wait_timeout_while(self.0.under_way.lock(), limit, is_under_way);
        if all.contains(section) || all.len() >= THREADS_MAX {
            return false;
        }
        let (inner, own) = (self.0.clone(), section.to_owned());
        let run = move || {
            read();
            inner.under_way.lock().remove(&own);
            inner.ended.notify_all();
        };
        if std::thread::Builder::new().name("ashlar-files".into()).spawn(run).is_err() {
            return false;
        }
        // The thread removes it under the lock, which is held here.
        all.insert(section.to_owned());
        let all = ended.wait_timeout_while(all, limit, is_under_way);
        !all.contains(section)
    }
}

/// The section whose files in use an action reads again.
fn section_of(action: &Action) -> Option<FileSection> {
    match action {
        Action::Renew { of } => Some(of.clone()),
        Action::CreateAccess { access }
        | Action::ModifyAccess { to: access, .. }
        | Action::RemoveAccess { access } => Some(FileSection::Target(access.target.clone())),
        Action::Regroup { target, .. } => Some(FileSection::Target(target.clone())),
        _ => None,
    }
}

/// Whether the parameters of a section name certificates or keys.
pub fn has_tls_files(params: &Map<String, Value>) -> bool {
    TLS_FILE_KEYS.iter().any(|key| params.get(*key).is_some_and(Value::is_string))
}

/// Whether an action reads files that its section names, or the name of this machine's initiator,
/// or resolves names of listeners.
pub fn has_sources(action: &Action) -> bool {
    match action {
        Action::CreateTarget { .. } | Action::ModifyTarget { .. } => true,
        Action::CreateBus { bus } if initiator::is_needed_by(bus) => true,
        Action::CreateBus { bus } | Action::ModifyBus { to: bus, .. } => {
            bus.params.values().any(|value| value.get("secret").is_some())
        }
        Action::CreateGeom { geom } | Action::ModifyGeom { to: geom, .. } => {
            has_tls_files(&geom.params)
        }
        Action::ModifyDisk { to, .. } => has_tls_files(&to.params),
        action => action.groups().any(|group| group.accounts().next().is_some()),
    }
}

/// Reads these files, and those that the section of an action names, or that of the configuration
/// which it renews. Blocks while one hangs.
fn read(action: &Action, known: &SectionFiles, config: Option<&Config>) {
    for file in known.all() {
        contents(&file.path);
    }
    // Their errors are found again by the step.
    if let Action::CreateBus { bus } = action
        && initiator::is_needed_by(bus)
    {
        initiator::machine_name();
    }
    match action {
        Action::CreateTarget { target } => read_target(target),
        Action::ModifyTarget { from, to } => {
            // A change that fails gives it its former settings.
            let _ = target_spec(from);
            read_target(to);
        }
        Action::CreateBus { bus } | Action::ModifyBus { to: bus, .. } => drop(Files::of_bus(bus)),
        Action::CreateGeom { geom } | Action::ModifyGeom { to: geom, .. } => {
            drop(Files::of_fs(geom));
        }
        Action::Renew { of } => {
            if let Some(config) = config {
                read_section(of, config);
            }
        }
        Action::ModifyDisk { to, .. } => drop(Files::of_disk(to)),
        action => drop(Files::of_groups(action.groups())),
    }
}

fn read_section(of: &FileSection, config: &Config) {
    match of {
        FileSection::Target(name) => {
            config.target(name).into_iter().for_each(read_target);
            Files::of_groups(config.access.iter().filter(|group| group.target == *name));
        }
        FileSection::Bus(name) => drop(config.bus(name).map(Files::of_bus)),
        FileSection::Disk(name) => drop(config.disk(name).map(Files::of_disk)),
        FileSection::Fs(name) => drop(config.geom(name).map(Files::of_fs)),
        // The control side reads the files of these.
        FileSection::Api | FileSection::Webhook(_) => {}
    }
}

fn read_target(target: &TargetConfig) {
    Files::of_target(target);
    let _ = target_spec(target);
}

impl FilesInUse {
    /// Reads the files that a step uses, on a thread of its own. `config`: with the section that a
    /// step reads again.
    ///
    /// # Errors
    /// They do not answer within `limit`.
    pub fn read_ahead(
        &self,
        action: &Action,
        config: Option<Config>,
        limit: Duration,
    ) -> Result<ReadAhead> {
        if let Action::ModifyAccess { from, to } = action
            && from.differs_in_luns_only(to)
        {
            return Ok(ReadAhead::default());
        }
        let known = section_of(action).and_then(|of| self.inner.lock().all.get(&of).cloned());
        if known.is_none() && !has_sources(action) {
            return Ok(ReadAhead::default());
        }
        let (own, known, section) = (action.clone(), known.unwrap_or_default(), action.name());
        let place: Arc<Mutex<ReadAhead>> = Arc::default();
        let found = place.clone();
        let run = move || {
            let ((), recorded) = ReadAhead::record(|| read(&own, &known, config.as_ref()));
            *found.lock() = recorded;
        };
        if self.reads.ends_within(&section, limit, run) {
            return Ok(std::mem::take(&mut *place.lock()));
        }
        Err(late_files("read files", &section, limit))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;
    use std::sync::mpsc;

    use mgmt::api::Kind;
    use mgmt::config::{AccessConfig, BusConfig};
    use serde_json::json;

    use super::*;

    /// A wait that is over when it fails.
    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn read_that_hangs_is_made_once_and_delays_no_other_section() {
        let reads = FileReads::default();
        let (release, released) = mpsc::channel::<()>();
        let hangs = move || {
            let _ = released.recv();
        };
        assert!(!reads.ends_within("slow", Duration::ZERO, hangs));
        let (made, makes) = mpsc::channel();
        let again = move || {
            let _ = made.send(());
        };
        assert!(!reads.ends_within("slow", Duration::ZERO, again));
        assert!(makes.try_recv().is_err(), "the first one has not ended");
        assert!(reads.ends_within("other", LONG, || {}));
        drop(release);
        assert!(reads.ends_within("slow", LONG, || {}));
    }

    #[test]
    fn step_whose_files_hang_is_refused_and_edit_of_luns_reads_none() {
        let files = FilesInUse::new(Arc::new(|_: &str, _: String| {}));
        let mut bus = BusConfig { name: "b".into(), ..BusConfig::default() };
        let made = Action::CreateBus { bus: bus.clone() };
        files.read_ahead(&made, None, Duration::ZERO).expect("it has no files");
        bus.params.insert("chap".into(), json!({ "secret": "file:/none/ashlar" }));
        let made = Action::CreateBus { bus };
        files.read_ahead(&made, None, LONG).expect("the step reports that there is no file");
        let (release, released) = mpsc::channel::<()>();
        let hangs = move || {
            let _ = released.recv();
        };
        assert!(!files.reads.ends_within("b", Duration::ZERO, hangs));
        let late = files.read_ahead(&made, None, Duration::ZERO).err().expect("they hang");
        assert!(late.kind == Kind::Timeout && late.at == "b", "{late}");
        assert!(late.source.contains("do not answer (0ns, the limit)"), "{late}");
        let group = AccessConfig { target: "t".into(), ..AccessConfig::default() };
        let edit = Action::ModifyAccess { from: group.clone(), to: group };
        files.read_ahead(&edit, None, Duration::ZERO).expect("it reads no files");
        drop(release);
    }

    #[test]
    fn step_uses_the_files_that_were_read_ahead_although_they_have_gone() {
        let path = std::env::temp_dir().join(format!("ashlar-ahead-{}", std::process::id()));
        let mut private = std::fs::OpenOptions::new();
        private.write(true).create(true).truncate(true).mode(0o600);
        let mut file = private.open(&path).expect("a scratch file");
        file.write_all(b"0123456789abcdef\n").expect("a secret");
        let reference = format!("file:{}", path.display());
        let files = FilesInUse::new(Arc::new(|_: &str, _: String| {}));
        let mut bus = BusConfig { name: "b".into(), ..BusConfig::default() };
        bus.params.insert("chap".into(), json!({ "user": "u", "secret": reference }));
        let made = Action::CreateBus { bus };
        let ahead = files.read_ahead(&made, None, LONG).expect("it answers");
        std::fs::remove_file(&path).expect("the scratch file");
        let secret = ahead.replay(|| mgmt::config::secret::resolve(&reference));
        assert_eq!(secret, Ok(b"0123456789abcdef".to_vec()));
        assert!(mgmt::config::secret::resolve(&reference).is_err(), "it has gone");
    }

    #[test]
    fn step_that_renews_a_target_has_the_files_of_its_section() {
        let path = std::env::temp_dir().join(format!("ashlar-renewed-{}", std::process::id()));
        std::fs::write(&path, "a certificate").expect("a scratch file");
        let name = path.display().to_string();
        let mut config = Config::default();
        let target = json!({ "driver": "nbd", "name": "n", "listen": [], "tls_key": name });
        config.target.push(serde_json::from_value(target).expect("a target"));
        let renew = Action::Renew { of: FileSection::Target("n".into()) };
        let files = FilesInUse::new(Arc::new(|_: &str, _: String| {}));
        files.set_target("n", Files::of_target(&config.target[0]));
        let ahead = files.read_ahead(&renew, Some(config), LONG).expect("it answers");
        std::fs::remove_file(&path).expect("the scratch file");
        let replayed = ahead.replay(|| contents(&name));
        assert_eq!(replayed.as_deref(), Some(&b"a certificate"[..]));
        files.forget(FileSection::Target("n".into()));
    }

    #[test]
    fn iscsi_bus_without_initiator_waits_for_the_name_of_the_machine() {
        let files = FilesInUse::new(Arc::new(|_: &str, _: String| {}));
        let (release, released) = mpsc::channel::<()>();
        let hangs = move || {
            let _ = released.recv();
        };
        assert!(!files.reads.ends_within("b", Duration::ZERO, hangs));
        let mut bus = BusConfig { name: "b".into(), kind: "iscsi".into(), ..BusConfig::default() };
        let made = Action::CreateBus { bus: bus.clone() };
        let late = files.read_ahead(&made, None, Duration::ZERO).err().expect("it hangs");
        assert_eq!(late.kind, Kind::Timeout, "{late}");
        bus.params.insert("initiator".into(), json!("iqn.2026-11.org.example:own"));
        let made = Action::CreateBus { bus };
        files.read_ahead(&made, None, Duration::ZERO).expect("it reads no file");
        drop(release);
    }
}
