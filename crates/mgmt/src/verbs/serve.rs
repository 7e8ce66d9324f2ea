//! serve: the daemon.
//!
//! ```text
//! read file -> take the socket -> launch the plant -> carry out the file -> let initiators in
//!                                        |                                      -> SIGTERM, SIGINT
//!                                        '-- answer on the socket from here on  -> stop the plant
//! ```

use super::entry::{CommandVerb, Local};
use super::plan::default_file;
use super::serve_signals::{SignalRequest, Signals};
use crate::App;
use crate::api::{Error, Kind, Result};
use crate::audit::{AuditedCaller, of_steps};
use crate::client::shared_folder;
use crate::config::{Catalog, Config, DaemonConfig, read, read_text};
use crate::http::{self, BoundSocket};
use crate::log_form::{LogForm, RecordLayer};
use crate::logs::LogQueue;
use crate::plan::{Action, Applied, Deferred, DeferredPart};
use crate::service::{Archive, Control, Plan};
use crate::service_manager::{ServiceManager, passed_listener};
use crate::webhook::Webhooks;
use geom::Verb;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Parameters of `serve`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ServeParams {
    /// Configuration file [default: $ASHLAR_CONFIG, else /etc/ashlar/ashlar.toml]
    pub file: Option<String>,
    /// Stop if an object of the configuration cannot be created [default: serve the others, and add
    /// it when it becomes available]
    pub strict: bool,
}

/// Answer of `serve` when it has ended.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct ServeAnswer {
    /// The served socket.
    pub socket: String,
    /// Reason for the end.
    pub why: String,
}

/// Starts the log. Answers the lines to be flushed at the end, if this is the process's first log.
fn start_log(config: &DaemonConfig) -> Option<LogQueue> {
    use tracing_subscriber::filter::Targets;
    use tracing_subscriber::layer::SubscriberExt;
    use tracing_subscriber::util::SubscriberInitExt;
    use tracing_subscriber::{Layer, Registry, fmt};
    let filter = config.log.parse::<Targets>().unwrap_or_default();
    let form = LogForm::of(config.log_format);
    let lines = form.start().ok()?;
    let writer = lines.clone();
    // The sentence names the object and the peer already.
    let fields = fmt::format::debug_fn(|writer, field, value| match field.name() {
        "message" => write!(writer, "{value:?}"),
        "object" | "kind" | "event" | "peer" | "initiator" => Ok(()),
        name => write!(writer, " {name}={value:?}"),
    });
    let text = fmt::layer::<Registry>().fmt_fields(fields).with_ansi(false);
    let layer: Box<dyn Layer<Registry> + Send + Sync> = match form {
        LogForm::Text => Box::new(text.with_writer(move || writer.clone())),
        LogForm::Json | LogForm::Journal => Box::new(RecordLayer::new(writer, form)),
    };
    // A second call (tests) keeps the first subscriber.
    let first = tracing_subscriber::registry().with(layer).with(filter).try_init();
    lines.set_daemon_log();
    first.is_ok().then_some(lines)
}

/// Writes the log when it is dropped, before the command reports why it ended.
struct FlushOnDrop(Option<LogQueue>);

impl Drop for FlushOnDrop {
    fn drop(&mut self) {
        if let Some(lines) = &self.0 {
            lines.flush();
        }
    }
}

fn load(catalog: fn() -> Catalog, file: &str) -> Result<Config> {
    let text = read_text(Path::new(file)).map_err(|e| {
        Error::new(Kind::System, "read configuration", e)
            .at(file)
            .next("Name the file: ashlar serve FILE.")
    })?;
    read(&text, file, &catalog())
}

/// Where the socket is: the flag or environment, then the file, then the default.
fn socket(local: &Local<'_>, config: &Config) -> PathBuf {
    let given = local.client.socket();
    match &config.daemon.socket {
        Some(path) if given == crate::client::default_socket() => PathBuf::from(path),
        _ => given.to_owned(),
    }
}

/// Carries out the whole file. An object that cannot be added now is left out, and added later.
///
/// # Errors
/// Those of [`Control::start`]; the first that is left out when `strict` is set, or when no target
/// has a portal that can be opened.
pub fn start_configured(control: &Control, config: &Config, strict: bool) -> Result<()> {
    let applied = control.start(config)?;
    applied.notes.iter().for_each(|n| tracing::warn!("{n}"));
    // Targets whose portals cannot be opened: another daemon has them, most of the time.
    let is_shut = |l: &&Deferred| {
        let target =
            matches!(&l.part, DeferredPart::Step(a) if matches!(**a, Action::CreateTarget { .. }));
        target && l.kind == Kind::System
    };
    let shut = applied.deferred.iter().filter(is_shut).count();
    let useless = shut > 0 && shut == config.target.len();
    for left in &applied.deferred {
        tracing::error!("left out: {}: {}", left.subject, left.why);
    }
    let first = applied.deferred.iter().find(|l| strict || (useless && is_shut(l)));
    first.map_or(Ok(()), |left| {
        let error = Error::new(Kind::CannotCarryOut, "serve", &left.why).at(&left.subject);
        Err(match &left.next {
            Some(next) => error.next(next),
            None => error,
        })
    })
}

/// Action of SIGHUP: `apply` of the file that the daemon was started with, without consent to lose
/// anything. Errors are logged, and the daemon keeps its configuration.
fn reload(control: &Control, catalog: fn() -> Catalog, file: &str) {
    let mut progress = |line: crate::api::ProgressLine| tracing::debug!("{}", line.what);
    let config = load(catalog, file);
    let by = AuditedCaller { who: "SIGHUP".to_owned(), ..AuditedCaller::default() };
    let what = json!({ "file": file });
    let applied = config.and_then(|config| {
        let apply = || control.reload(&config, &mut progress);
        let made = |(plan, _): &(Plan, Applied)| of_steps(&plan.steps);
        control.audit().record_change(&by, ("apply", &what), || control.generation(), apply, made)
    });
    match applied {
        Ok((plan, applied)) => {
            tracing::info!("SIGHUP: {file} reloaded, {} changes", plan.steps.len());
            applied.notes.iter().for_each(|note| tracing::warn!("SIGHUP: {note}"));
        }
        Err(e) if e.kind == Kind::HalfDone => {
            tracing::error!("SIGHUP: {file} was reloaded in part: {e}");
        }
        Err(e) => tracing::error!("SIGHUP: {file} was not reloaded; nothing changed: {e}"),
    }
}

/// A folder for what outlives the daemon, and the machine's next boot, when the configuration does
/// not name one.
fn persistent_path(socket: &Path, name: &str) -> PathBuf {
    let is_root = rustix::process::geteuid().is_root();
    match lasting_folder(socket, is_root, |variable| std::env::var_os(variable)) {
        Some(folder) => folder.join(name),
        None => socket.with_file_name(name),
    }
}

/// The folder that is used instead of that of a socket that a restart of the machine removes: that
/// of system daemons, or the user's own (XDG base directories). `None`: the socket's folder lasts.
fn lasting_folder(
    socket: &Path,
    is_root: bool,
    variable: impl Fn(&str) -> Option<OsString>,
) -> Option<PathBuf> {
    // Relative ones are invalid.
    let folder = |name: &str| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let is_users = socket.starts_with("/run/user")
        || socket.parent() == Some(&*shared_folder())
        || folder("XDG_RUNTIME_DIR").is_some_and(|runtime| socket.starts_with(runtime));
    if is_users && !is_root {
        let usual = || folder("HOME").map(|home| home.join(".local/state"));
        return folder("XDG_STATE_HOME").or_else(usual).map(|state| state.join("ashlar"));
    }
    let is_volatile = socket.starts_with("/run") || socket.starts_with("/var/run");
    is_volatile.then(|| PathBuf::from("/var/lib/ashlar"))
}

/// The configuration with the paths that the daemon uses where the file names none.
fn with_places(config: &Config, file: &str, socket: &Path) -> Config {
    let mut config = config.clone();
    if let Some(folders) = &mut config.daemon.sandbox_read_folders {
        // SIGHUP reads the file again.
        let places = [std::path::absolute(file).ok(), Path::new(file).canonicalize().ok()];
        let own = places.iter().flatten().filter_map(|place| place.parent());
        folders.extend(own.map(|folder| folder.display().to_string()));
    }
    let socket = std::path::absolute(socket).unwrap_or_else(|_| socket.to_owned());
    let lasting = |name: &str| persistent_path(&socket, name).display().to_string();
    config.daemon.socket = Some(socket.display().to_string());
    config.daemon.state.get_or_insert_with(|| lasting("units"));
    config.daemon.history.get_or_insert_with(|| lasting("history"));
    config
}

/// Where configurations are archived.
fn archive(config: &Config, socket: &Path) -> Archive {
    let lasting = || persistent_path(socket, "history");
    let folder = config.daemon.history.as_ref().map_or_else(lasting, PathBuf::from);
    Archive::new(&folder, config.daemon.history_kept)
}

impl Verb<App> for ServeParams {
    const NAME: &'static str = "serve";
    const DOC: &'static str = "Run the daemon until it is stopped";
    const DETAIL: &'static str = "Reads the configuration, applies it, and serves. SIGTERM, SIGINT \
        and SIGQUIT stop the daemon in order: no new logins, sessions closed, disks flushed. \
        SIGHUP reloads the file, as `ashlar apply` does, and logs errors in it. Other signals have \
        no effect. A daemon that answers on the socket is never replaced; a stale socket is. Under \
        systemd the daemon takes a passed socket (LISTEN_FDS) and reports to it (Type=notify, \
        WatchdogSec=). An object that is missing at the start (a disk, a layer, a target, a LUN) \
        does not keep others from being served: it is added automatically when it becomes \
        available, `ashlar status` lists it, and hosts are asked to try again. With --strict the \
        daemon stops instead.";
    const POSITIONAL: &'static [&'static str] = &["file"];
    const EXAMPLE: &'static str = "serve";
    const MORE_EXAMPLES: &'static [&'static str] = &["serve ./ashlar.toml --socket ./ashlar.sock"];
    type Answer = ServeAnswer;

    fn run(self, local: Local<'_>) -> Result<ServeAnswer> {
        let manager = ServiceManager::from_env();
        let passed = passed_listener()?;
        let file = self.file.unwrap_or_else(default_file);
        let catalog = local.app.catalog;
        let config = load(catalog, &file)?;
        let _log = FlushOnDrop(start_log(&config.daemon));
        let path = socket(&local, &config);
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = builder.enable_all().thread_name("control").build();
        let runtime = runtime.map_err(|e| Error::new(Kind::System, "start runtime", e))?;
        // Before anything is open that a signal could leave behind.
        let signals = runtime.block_on(async { Signals::install() });
        let mut signals = signals.map_err(|e| Error::new(Kind::System, "handle signals", e))?;
        let listening = match passed {
            Some(listener) => BoundSocket::passed(&path, listener)?,
            None => BoundSocket::at(&path)?,
        };
        let given = with_places(&config, &file, &path);
        let state = given.daemon.state.as_deref().map(|state| Path::new(state).join("api"));
        let plant = (local.app.launch)(&given)?;
        let archive = archive(&config, &path);
        let control = Control::new(plant, (local.app.catalog)(), &config, archive);
        let control = Arc::new(match state {
            Some(folder) => control.with_api_folder(&folder),
            None => control,
        });
        control.complete_scrapes();
        control.set_starting(true);
        let (mut why, mut failed) = ("", None);
        let stop = async {
            let pinged = control.clone();
            tokio::spawn(manager.clone().report_alive(move || pinged.plant().ping()));
            // Questions are answered meanwhile; signals and changes wait.
            let (starts, config, strict) = (control.clone(), config.clone(), self.strict);
            let start = move || {
                start_configured(&starts, &config, strict)?;
                starts.plant().open();
                starts.set_starting(false);
                Ok(())
            };
            let ended = tokio::task::spawn_blocking(start).await;
            let ended = ended.unwrap_or_else(|e| Err(Error::new(Kind::Internal, "start", e)));
            if let Err(e) = ended {
                failed = Some(e);
                return;
            }
            let serving = format!("serving {file} on {}", path.display());
            tracing::info!("{serving}");
            manager.ready(&serving);
            loop {
                match signals.next().await {
                    SignalRequest::Stop(signal) => {
                        // Logged before the socket is removed: a waiting client finds the reason.
                        tracing::info!("stopping: {signal}");
                        manager.stopping(signal);
                        break why = signal;
                    }
                    SignalRequest::Reload => {
                        let (control, file) = (control.clone(), file.clone());
                        let reload = move || reload(&control, catalog, &file);
                        if let Err(e) = tokio::task::spawn_blocking(reload).await {
                            tracing::error!("SIGHUP: the reload ended early: {e}");
                        }
                    }
                }
            }
        };
        let webhooks = Webhooks::start(control.clone());
        let served = runtime.block_on(http::serve(listening, control.clone(), stop));
        drop(webhooks);
        control.change_when_free(|plant| plant.stop());
        // Clients that still read a long list do not delay the daemon; a change was waited for
        // above.
        runtime.shutdown_background();
        if let Some(e) = failed {
            return Err(e);
        }
        served?;
        Ok(ServeAnswer { socket: path.display().to_string(), why: why.to_owned() })
    }
}

impl CommandVerb<App> for ServeParams {
    fn table(answer: &ServeAnswer) -> String {
        format!("stopped by {}\n", answer.why)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_folders_survive_a_reboot() {
        let folder = |socket: &str, is_root: bool, set: &[(&str, &str)]| {
            let variable = |name: &str| {
                set.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into())
            };
            let found = lasting_folder(Path::new(socket), is_root, variable);
            found.map_or_else(String::new, |path| path.display().to_string())
        };
        let home = ("HOME", "/home/ann");
        for is_root in [true, false] {
            assert_eq!(folder("/run/ashlar/ashlar.sock", is_root, &[home]), "/var/lib/ashlar");
            assert_eq!(folder("/var/run/ashlar.sock", is_root, &[home]), "/var/lib/ashlar");
            assert_eq!(folder("/srv/a/ashlar.sock", is_root, &[home]), "");
        }
        let users = "/run/user/1000/ashlar/ashlar.sock";
        assert_eq!(folder(users, false, &[home]), "/home/ann/.local/state/ashlar");
        assert_eq!(folder(users, true, &[home]), "/var/lib/ashlar");
        let state = ("XDG_STATE_HOME", "/data/state");
        assert_eq!(folder(users, false, &[home, state]), "/data/state/ashlar");
        let wrong = ("XDG_STATE_HOME", "state");
        assert_eq!(folder(users, false, &[home, wrong]), "/home/ann/.local/state/ashlar");
        let runtime = [home, ("XDG_RUNTIME_DIR", "/var/ann")];
        assert_eq!(folder("/var/ann/a.sock", false, &runtime), "/home/ann/.local/state/ashlar");
        let shared = shared_folder().join("ashlar.sock");
        let shared = shared.to_str().expect("a path");
        assert_eq!(folder(shared, false, &[home]), "/home/ann/.local/state/ashlar");
        let path = persistent_path(Path::new("/srv/a/ashlar.sock"), "history");
        assert_eq!(path, Path::new("/srv/a/history"));
    }

    use crate::fake::{FakePlant, catalog, control};
    use crate::service::Consent;
    use crate::verbs::status;
    use testkit::Folder;

    #[test]
    fn stale_files_are_reread_by_an_unchanged_configuration() {
        let text = "[[target]]\ndriver='iscsi'\nname='iqn.a:t'\nlisten=['127.0.0.1:0']\n";
        let config = read(text, "a.toml", &catalog()).expect("well-formed");
        let plant = Arc::new(FakePlant::new());
        let folder = Folder::new("renew");
        let control = control(&plant, &folder);
        start_configured(&control, &config, false).expect("served");
        plant.stale("iqn.a:t", "tls_key /x has changed");
        let steps = control.plan(&config).expect("a plan").steps;
        let lines = steps.iter().map(|s| (s.what.as_str(), s.why.as_str()));
        let what = "read files of target iqn.a:t anew";
        assert_eq!(lines.collect::<Vec<_>>(), [(what, "tls_key /x has changed")]);
        control.apply(&config, &Consent::default(), &mut |_| {}).expect("applied");
        assert!(control.plan(&config).expect("a plan").steps.is_empty());
    }

    #[test]
    fn reload_of_a_pipe_or_device_removes_nothing() {
        let text = "[[target]]\ndriver='iscsi'\nname='iqn.a:t'\nlisten=['127.0.0.1:0']\n";
        let config = read(text, "a.toml", &catalog()).expect("well-formed");
        let folder = Folder::new("reload");
        let control = control(&Arc::new(FakePlant::new()), &folder);
        start_configured(&control, &config, false).expect("served");
        reload(&control, catalog, "/dev/null");
        assert_eq!(control.config().0.target.len(), 1, "what is read there is empty");
        let file = folder.join("a.toml");
        std::fs::write(&file, "").expect("scratch");
        reload(&control, catalog, file.to_str().expect("a path"));
        assert!(control.config().0.target.is_empty(), "a file may be empty");
    }

    #[test]
    fn skipped_group_that_is_no_longer_configured_is_dropped() {
        let target = "[[target]]\ndriver='iscsi'\nname='iqn.a:t'\nlisten=['127.0.0.1:0']\n";
        let group = "[[access]]\ntarget='iqn.a:t'\ngroup='g'\ninitiators=['*']\n\
                     luns={0='nowhere'}\n";
        let config = |text: &str| read(text, "a.toml", &catalog()).expect("well-formed");
        let folder = Folder::new("unwanted");
        let control = control(&Arc::new(FakePlant::new()), &folder);
        start_configured(&control, &config(&format!("{target}{group}")), false)
            .expect("what can be");
        let steps = control.plan(&config(target)).expect("a plan").steps;
        let what: Vec<&str> = steps.iter().map(|s| s.what.as_str()).collect();
        assert_eq!(what, ["remove group g of iqn.a:t"], "or it would come with the next change");
    }

    #[test]
    fn unknown_state_is_an_error_and_not_an_empty_daemon() {
        let plant = Arc::new(FakePlant::new());
        let control = control(&plant, Path::new("/nonexistent"));
        assert!(status::status_answer(&control).is_ok());
        plant.refuse_state(Error::new(Kind::Stopping, "ask the daemon", "the daemon is stopping"));
        let error = status::status_answer(&control).expect_err("no state");
        assert_eq!(error.kind, Kind::Stopping);
        let error = control.plan(&Config::default()).err().expect("no state");
        assert_eq!(error.kind, Kind::Stopping);
    }

    #[test]
    fn unservable_parts_are_skipped_and_reported() {
        let text = "[[disk]]\nname='d'\nkind='null'\n\
            [[geom]]\nclass='nop'\nname='lost'\nprovider='nowhere'\n\
            [[geom]]\nclass='nop'\nname='above'\nprovider='lost'\n\
            [[geom]]\nclass='nop'\nname='good'\nprovider='d'\n";
        let config = read(text, "a.toml", &catalog()).expect("well-formed");
        let plant = Arc::new(FakePlant::new());
        let folder = Folder::new("serve");
        let control = control(&plant, &folder);
        let error = start_configured(&control, &config, true).expect_err("strict");
        assert_eq!(error.at, "create geom lost (nop)");
        start_configured(&control, &config, false).expect("what can be");
        assert!(plant.desired().is_equivalent(&config), "what is left out is intended");
        let names: Vec<String> = plant.config().geom.iter().map(|g| g.name.clone()).collect();
        assert_eq!(names, ["good"]);
        let left: Vec<String> = control.deferred().into_iter().map(|l| l.subject).collect();
        assert_eq!(left, ["create geom lost (nop)", "create geom above (nop)"]);
        let answer = status::status_answer(&control).expect("a state");
        let at: Vec<&str> = answer.findings.iter().map(|f| f.at.as_str()).collect();
        assert_eq!(at, left, "each once");
        assert_eq!(answer.health, crate::api::Health::Failed);
    }
}
