//! Interface to the service manager (systemd): the socket that it passes, and reports to it.
//!
//! ```text
//! socket passed (LISTEN_FDS) -> READY=1 once initiators may log in -> WATCHDOG=1 ... -> STOPPING=1
//! ```
//!
//! Invariants
//!  M1  Without $NOTIFY_SOCKET nothing is sent. A report that cannot be sent is logged and changes
//!      nothing else.
//!  M2  Each WATCHDOG=1 follows an answer of the control thread. So a control thread that hangs for
//!      the time of the watchdog ends the daemon, and the service manager starts it again.

use crate::api::{Error, Kind, Result};
use listenfd::ListenFd;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener};
use std::time::Duration;

/// Reports in one period of the watchdog: one that is late or lost does no harm.
const REPORTS_PER_PERIOD: u32 = 3;

/// The service manager that started this process, if one did.
#[derive(Clone, Debug)]
pub(crate) struct ServiceManager {
    /// Path of its socket, or `@` and an abstract name.
    address: Option<OsString>,
    /// The period of its watchdog.
    watchdog: Option<Duration>,
}

impl ServiceManager {
    /// The one that the environment names.
    pub fn from_env() -> ServiceManager {
        ServiceManager::of(|name| std::env::var_os(name))
    }

    fn of(variable: impl Fn(&str) -> Option<OsString>) -> ServiceManager {
        let number = |name: &str| variable(name)?.to_str()?.parse::<u64>().ok();
        // The variables of a parent process are inherited.
        let is_own = number("WATCHDOG_PID").is_none_or(|pid| pid == u64::from(std::process::id()));
        let period = number("WATCHDOG_USEC").filter(|usec| is_own && *usec > 0);
        ServiceManager {
            address: variable("NOTIFY_SOCKET").filter(|address| !address.is_empty()),
            watchdog: period.map(Duration::from_micros),
        }
    }

    /// Reports that the start is complete.
    pub fn ready(&self, status: &str) {
        self.report(&format!("READY=1\nSTATUS={}", one_line(status)));
    }

    /// Reports the begin of an orderly stop.
    pub fn stopping(&self, reason: &str) {
        self.report(&format!("STOPPING=1\nSTATUS=stopping: {}", one_line(reason)));
    }

    /// Reports again and again that the daemon works, each time after `ping` has succeeded (M2).
    /// Ends at once if there is no watchdog.
    pub async fn report_alive(self, ping: impl Fn() -> Result<()> + Clone + Send + 'static) {
        let Some(period) = self.watchdog else { return };
        loop {
            match tokio::task::spawn_blocking(ping.clone()).await {
                Ok(Ok(())) => self.report("WATCHDOG=1"),
                Ok(Err(e)) => tracing::warn!("watchdog: no report: {e}"),
                Err(e) => tracing::warn!("watchdog: no report: {e}"),
            }
            tokio::time::sleep(period / REPORTS_PER_PERIOD).await;
        }
    }

    fn report(&self, text: &str) {
        let Some(address) = &self.address else { return };
        if let Err(e) = send(address, text) {
            tracing::warn!("{}: report to the service manager failed: {e}", address.display());
        }
    }
}

fn one_line(text: &str) -> String {
    text.replace('\n', " ")
}

fn send(address: &OsStr, text: &str) -> io::Result<()> {
    let to = match address.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(address)?,
    };
    UnixDatagram::unbound()?.send_to_addr(text.as_bytes(), &to).map(drop)
}

/// The control socket that the service manager passed to this process, if it did: once.
///
/// # Errors
/// [`Kind::System`] if it passed several sockets, or one that is not a Unix stream socket.
pub(crate) fn passed_listener() -> Result<Option<UnixListener>> {
    let mut passed = ListenFd::from_env();
    let refuse = |why: String| {
        let error = Error::new(Kind::System, "take the passed socket", why).at("LISTEN_FDS");
        error.next("Give the socket unit of the daemon one `ListenStream=PATH`.")
    };
    match passed.len() {
        0 | 1 => passed.take_unix_listener(0).map_err(|e| refuse(e.to_string())),
        n => Err(refuse(format!("{n} sockets were passed, at most 1 is supported"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    fn manager(set: &[(&str, &OsStr)]) -> ServiceManager {
        let known = |name: &str| set.iter().find(|(known, _)| *known == name);
        ServiceManager::of(|name| known(name).map(|(_, value)| (*value).to_owned()))
    }

    fn bound(name: &str) -> (UnixDatagram, PathBuf) {
        let path = std::env::temp_dir().join(format!("ashlar-{name}-{}.sock", std::process::id()));
        let socket = UnixDatagram::bind(&path).expect("a free path");
        socket.set_read_timeout(Some(Duration::from_secs(60))).expect("a limit for failures");
        (socket, path)
    }

    fn received(socket: &UnixDatagram) -> String {
        let mut buffer = [0; 512];
        let length = socket.recv(&mut buffer).expect("a report");
        String::from_utf8_lossy(&buffer[..length]).into_owned()
    }

    #[test]
    fn ready_and_stopping_are_reported_to_paths_and_abstract_names() {
        let (socket, path) = bound("notify");
        let at_path = manager(&[("NOTIFY_SOCKET", path.as_os_str())]);
        at_path.ready("serving a.toml\nREADY=0");
        assert_eq!(received(&socket), "READY=1\nSTATUS=serving a.toml READY=0");
        std::fs::remove_file(&path).expect("scratch");

        let name = format!("ashlar-notify-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).expect("a short name");
        let socket = UnixDatagram::bind_addr(&address).expect("a free name");
        let address = OsString::from(format!("@{name}"));
        manager(&[("NOTIFY_SOCKET", address.as_os_str())]).stopping("SIGTERM");
        assert_eq!(received(&socket), "STOPPING=1\nSTATUS=stopping: SIGTERM");
        // M1.
        manager(&[]).ready("no service manager");
        manager(&[("NOTIFY_SOCKET", OsStr::new("/nonexistent/notify"))]).ready("it is gone");
    }

    #[test]
    fn watchdog_of_another_process_is_ignored() {
        let own = OsString::from(std::process::id().to_string());
        let period = ("WATCHDOG_USEC", OsStr::new("3000000"));
        let watchdog = |set: &[(&str, &OsStr)]| manager(set).watchdog;
        assert_eq!(watchdog(&[period]), Some(Duration::from_secs(3)));
        assert_eq!(
            watchdog(&[period, ("WATCHDOG_PID", own.as_os_str())]),
            Some(Duration::from_secs(3))
        );
        assert_eq!(watchdog(&[period, ("WATCHDOG_PID", OsStr::new("1"))]), None);
        assert_eq!(watchdog(&[("WATCHDOG_USEC", OsStr::new("0"))]), None);
        assert_eq!(watchdog(&[]), None);
    }

    #[test]
    fn m2_watchdog_report_follows_an_answer_of_the_control_thread() {
        let (socket, path) = bound("watchdog");
        let period = ("WATCHDOG_USEC", OsStr::new("3000"));
        let manager = manager(&[("NOTIFY_SOCKET", path.as_os_str()), period]);
        let asked = Arc::new(AtomicUsize::new(0));
        let count = asked.clone();
        let ping = move || match count.fetch_add(1, Ordering::AcqRel) {
            0..3 => Err(Error::new(Kind::Limit, "ask the daemon", "too many requests")),
            _ => Ok(()),
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.expect("a runtime");
        let report = runtime.block_on(async {
            tokio::select! {
                () = manager.report_alive(ping) => Err("the reports ended".to_owned()),
                report = tokio::task::spawn_blocking(move || received(&socket)) => {
                    report.map_err(|e| e.to_string())
                }
            }
        });
        std::fs::remove_file(&path).expect("scratch");
        assert_eq!(report, Ok("WATCHDOG=1".to_owned()));
        assert!(asked.load(Ordering::Acquire) > 3, "three failed answers are not reported");
    }
}
