//! The section `[daemon]` of the configuration.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How a reactor waits for events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Port {
    /// io_uring if the kernel allows it, otherwise epoll.
    #[default]
    Auto,
    /// io_uring only, without a fallback to epoll.
    Uring,
    /// epoll.
    Poll,
}

/// Form of the log on standard error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LogFormat {
    /// Lines for people.
    Text,
    /// A JSON object in each line: `time`, `level`, `target`, `message`, and fields such as
    /// `object`.
    Json,
}

/// Effect of a system call that a sandboxed daemon does not need.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SystemCalls {
    /// The call fails, as on a kernel that does not have it (ENOSYS).
    #[default]
    Refuse,
    /// The kernel carries the call out and writes its number to the audit log, to find the cause of
    /// a refusal.
    Log,
}

impl SystemCalls {
    fn is_default(&self) -> bool {
        *self == SystemCalls::default()
    }
}

/// `[daemon]`: settings of the daemon; those of metrics are live, others take effect at its start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct DaemonConfig {
    /// Path of the control socket. This and all other paths are relative to the folder of this file
    /// unless they are absolute. Absent: /run/ashlar/ashlar.sock for root, otherwise a path in the
    /// user's runtime folder.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub socket: Option<String>,
    /// Number of reactors, one thread each; absent: one for each core that the process may use.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 256))]
    pub cores: Option<u32>,
    /// How the reactors wait for events.
    pub port: Port,
    /// Size of the data buffers of all cores together, in bytes; absent: the daemon's default.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1_048_576))]
    pub memory: Option<u64>,
    /// Microseconds that an idle core polls for work before it sleeps. A higher value lowers the
    /// latency of single requests and uses more CPU time. 0: sleep at once; absent: the daemon's
    /// default.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 1000))]
    pub spin_us: Option<u32>,
    /// Log filter: `info`, or a list such as `info,geom=debug`.
    pub log: String,
    /// Form of the log on standard error; absent: records with fields for journald if systemd
    /// connects standard error to it, otherwise text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log_format: Option<LogFormat>,
    /// After its start the daemon changes files only below /dev and the folders of paths in this
    /// file, runs no program (Landlock), and makes only system calls of a list (seccomp). Targets
    /// of driver `local` and disks with `command` are refused.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub sandbox: bool,
    /// The daemon does not start if the kernel has no Landlock or no seccomp. Absent: it then
    /// serves without that part of the sandbox, and `status` reports it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub sandbox_required: bool,
    /// Folders in which the sandbox permits changes besides those of paths in this file: images may
    /// be added there without a restart.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sandbox_folders: Vec<String>,
    /// Folders in which the sandbox permits reading besides those of paths in this file and of the
    /// system (/etc, /usr, /lib, /proc, /sys, /run). Absent: reading is not restricted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sandbox_read_folders: Option<Vec<String>>,
    /// Effect of system calls outside of the list of `sandbox`.
    #[serde(skip_serializing_if = "SystemCalls::is_default")]
    pub sandbox_system_calls: SystemCalls,
    /// Folder of the state that logical units keep over a restart: persistent reservations, saved
    /// mode pages, identities of disks. Absent: `units` beside the socket; for a socket in a folder
    /// that is emptied when the machine restarts, `units` in /var/lib/ashlar (/run) or in
    /// $XDG_STATE_HOME/ashlar, else ~/.local/state/ashlar (the runtime folder of a user).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// Folder of the archived configurations. Absent: `history` in the folder where `units` is by
    /// default, which survives a restart of the machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub history: Option<String>,
    /// Number of archived configurations that are kept.
    #[schemars(range(min = 1, max = 1000))]
    pub history_kept: u32,
    /// TCP address at which Prometheus scrapes `/metrics`, for example `127.0.0.1:9464`; absent:
    /// only the control socket serves it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metrics_listen: Option<String>,
    /// `file:PATH` or `credential:NAME` (systemd) of the bearer token that a scrape over TCP must
    /// send; absent: no token is required. A replaced file is valid within a second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metrics_token: Option<String>,
    /// Largest number of time series in one scrape. Series of single sessions and histograms are
    /// left out first; `ashlar_metrics_series_dropped` counts them.
    #[schemars(range(min = 1000, max = 10_000_000))]
    pub metrics_series_max: u32,
}

impl Default for DaemonConfig {
    fn default() -> DaemonConfig {
        DaemonConfig {
            socket: None,
            cores: None,
            port: Port::Auto,
            memory: None,
            spin_us: None,
            log: "info".to_owned(),
            log_format: None,
            sandbox: false,
            sandbox_required: false,
            sandbox_folders: Vec::new(),
            sandbox_read_folders: None,
            sandbox_system_calls: SystemCalls::Refuse,
            state: None,
            history: None,
            history_kept: 32,
            metrics_listen: None,
            metrics_token: None,
            metrics_series_max: 100_000,
        }
    }
}

impl DaemonConfig {
    /// Keys whose edit takes effect at once.
    pub const LIVE_KEYS: [&str; 3] = ["metrics_listen", "metrics_token", "metrics_series_max"];

    /// Whether `to` differs in a setting that takes effect at the next start.
    pub fn needs_restart(&self, to: &DaemonConfig) -> bool {
        let bare = |config: &DaemonConfig| DaemonConfig {
            metrics_listen: None,
            metrics_token: None,
            metrics_series_max: 0,
            ..config.clone()
        };
        bare(self) != bare(to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Catalog, Config, check};

    #[test]
    fn metrics_settings_that_cannot_work_are_refused() {
        let faults = |listen: Option<&str>, token: Option<&str>| {
            let daemon = DaemonConfig {
                metrics_listen: listen.map(str::to_owned),
                metrics_token: token.map(str::to_owned),
                ..DaemonConfig::default()
            };
            let found = check(&Config { daemon, ..Config::default() }, &Catalog::default());
            found.iter().map(|problem| problem.key).collect::<Vec<_>>()
        };
        let at = Some("127.0.0.1:9464");
        assert!(faults(at, Some("file:/etc/ashlar/token")).is_empty());
        assert_eq!(faults(Some("9464"), None), ["metrics_listen"]);
        assert_eq!(faults(at, Some("sesame")), ["metrics_token"], "a literal would be exported");
        assert_eq!(faults(None, Some("file:/etc/ashlar/token")), ["metrics_token"]);
    }

    #[test]
    fn settings_of_the_sandbox_need_it() {
        let faults = |sandbox: bool| {
            let sandbox_system_calls = SystemCalls::Log;
            let sandbox_folders = vec!["/srv".to_owned()];
            let daemon = DaemonConfig {
                sandbox,
                sandbox_required: true,
                sandbox_folders,
                sandbox_read_folders: Some(Vec::new()),
                sandbox_system_calls,
                ..DaemonConfig::default()
            };
            let found = check(&Config { daemon, ..Config::default() }, &Catalog::default());
            found.iter().map(|problem| problem.key).collect::<Vec<_>>()
        };
        assert!(faults(true).is_empty());
        let keys = ["folders", "read_folders", "required", "system_calls"];
        assert_eq!(faults(false), keys.map(|key| format!("sandbox_{key}")));
    }

    #[test]
    fn folder_of_all_files_is_none_of_a_sandbox() {
        let faults = |folder: &str| {
            let sandbox_folders = vec![folder.to_owned()];
            let sandbox_read_folders = Some(sandbox_folders.clone());
            let base = DaemonConfig { sandbox: true, ..DaemonConfig::default() };
            let daemon = DaemonConfig { sandbox_folders, sandbox_read_folders, ..base };
            check(&Config { daemon, ..Config::default() }, &Catalog::default()).len()
        };
        assert_eq!(["/srv", "/srv/", "/", "//", "/."].map(faults), [0, 0, 2, 2, 2]);
    }

    #[test]
    fn only_settings_of_metrics_take_effect_without_a_restart() {
        let plain = DaemonConfig::default();
        let listen = Some("127.0.0.1:9464".to_owned());
        let token = Some("file:/etc/ashlar/token".to_owned());
        let live = DaemonConfig {
            metrics_listen: listen,
            metrics_token: token,
            metrics_series_max: 5000,
            ..plain.clone()
        };
        assert!(!plain.needs_restart(&live));
        let json = serde_json::to_value(&live).expect("plain data");
        for key in DaemonConfig::LIVE_KEYS {
            assert!(json.get(key).is_some(), "{key}");
        }
        assert!(plain.needs_restart(&DaemonConfig { log: "debug".to_owned(), ..live }));
    }
}
