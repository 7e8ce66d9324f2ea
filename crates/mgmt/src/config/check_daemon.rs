//! Checks of `[daemon]`: metrics over TCP, and the sandbox beside parts that it does not permit.

use super::catalog::Catalog;
use super::check::{Problem, problem};
use super::daemon::{DaemonConfig, SystemCalls};
use super::secret::is_literal;
use super::types::Config;
use crate::api::Kind;
use std::net::SocketAddr;
use std::path::Path;

pub(super) fn metrics(daemon: &DaemonConfig, out: &mut Vec<Problem>) {
    let listen = daemon.metrics_listen.as_ref();
    if let Some(address) = listen.filter(|at| at.parse::<SocketAddr>().is_err()) {
        let text = format!("`{address}` is not an address with a port (127.0.0.1:9464)");
        out.push(problem("daemon", 0, "metrics_listen", Kind::ConfigValue, text));
    }
    let Some(token) = &daemon.metrics_token else { return };
    if is_literal(token) {
        let text = "`file:PATH` or `credential:NAME` is wanted here: store the token in a file \
                    with mode 0600";
        out.push(problem("daemon", 0, "metrics_token", Kind::ConfigValue, text.to_owned()));
    }
    if listen.is_none() {
        let text = "`metrics_token` needs `metrics_listen`: `metrics_listen = \"127.0.0.1:9464\"`";
        out.push(problem("daemon", 0, "metrics_token", Kind::ConfigKey, text.to_owned()));
    }
}

fn is_root(folder: &Path) -> bool {
    folder.has_root() && folder.parent().is_none()
}

pub(super) fn sandbox(config: &Config, catalog: &Catalog, out: &mut Vec<Problem>) {
    let (folders, calls) = (&config.daemon.sandbox_folders, config.daemon.sandbox_system_calls);
    let read = config.daemon.sandbox_read_folders.as_ref();
    if config.daemon.sandbox {
        let all = "permits changes of all files: name the folders of the images";
        let all_read = "permits reading of all files: remove the key, or name the folders";
        for (key, list, why) in
            [("sandbox_folders", Some(folders), all), ("sandbox_read_folders", read, all_read)]
        {
            if list.into_iter().flatten().any(|folder| is_root(Path::new(folder))) {
                out.push(problem("daemon", 0, key, Kind::ConfigValue, format!("`/` {why}")));
            }
        }
        let local = config.target.iter().find(|target| catalog.driver(&target.driver).is_local);
        let server = config.disk.iter().find(|disk| disk.params.contains_key("command"));
        let other = match (local, server) {
            (Some(target), _) => format!("target {}, whose LUNs need mounts", target.name),
            (None, Some(disk)) => format!("`command` of disk {}, which is a program", disk.name),
            (None, None) => return,
        };
        let text = format!("a sandbox does not permit {other}: set `sandbox = false`");
        out.push(problem("daemon", 0, "sandbox", Kind::ConfigValue, text));
        return;
    }
    for (key, is_given) in [
        ("sandbox_folders", !folders.is_empty()),
        ("sandbox_read_folders", read.is_some()),
        ("sandbox_required", config.daemon.sandbox_required),
        ("sandbox_system_calls", calls != SystemCalls::default()),
    ] {
        if is_given {
            let text = format!("`{key}` needs `sandbox = true`");
            out.push(problem("daemon", 0, key, Kind::ConfigKey, text));
        }
    }
}
