//! Listener of metrics over TCP, which follows `[daemon]` while the daemon runs.

use std::net::SocketAddr;

use bio::sync::Mutex;
use mgmt::api::{Error, Kind, Result};
use mgmt::config::{DaemonConfig, secret};
use mgmt::http::{MetricsServer, StateFn, cannot_listen};
use mgmt::plan::{Action, Step};

use crate::exports;

/// The listener, closed until [`MetricsListener::set`].
pub(crate) struct MetricsListener {
    state: StateFn,
    open: Mutex<Option<Open>>,
}

/// An open listener and the settings with which it was opened.
struct Open {
    server: MetricsServer,
    config: DaemonConfig,
}

/// The configured address.
fn address(config: &DaemonConfig) -> Result<Option<SocketAddr>> {
    let Some(text) = &config.metrics_listen else { return Ok(None) };
    let parsed = text.parse::<SocketAddr>();
    let op = "serve metrics";
    parsed.map(Some).map_err(|e| Error::new(Kind::ConfigValue, op, e).at(text))
}

impl MetricsListener {
    pub(crate) fn new(state: StateFn) -> MetricsListener {
        MetricsListener { state, open: Mutex::new(None) }
    }

    /// The address at which it listens.
    pub(crate) fn address(&self) -> Option<String> {
        self.open.lock().as_ref().map(|open| open.server.bound().to_string())
    }

    /// Why it could not be set so after the steps `before`. Nothing listens.
    pub(crate) fn check(&self, to: &DaemonConfig, before: &[Step]) -> Result<()> {
        if let Some(token) = &to.metrics_token {
            secret::resolve(token)?;
        }
        let Some(at) = address(to)? else { return Ok(()) };
        let own_port = self.open.lock().as_ref().map(|open| open.server.bound().port());
        if own_port == Some(at.port()) || before.iter().any(frees_addresses) {
            return Ok(());
        }
        exports::check_address(at).map_err(|e| cannot_listen(at, &e))
    }

    /// Listens according to `to`. A listener that stays keeps its connections.
    ///
    /// # Errors
    /// Those of [`MetricsServer::start`]; then it listens as before.
    pub(crate) fn set(&self, to: &DaemonConfig) -> Result<()> {
        let mut open = self.open.lock();
        if let Some(open) = &mut *open
            && open.config.metrics_listen == to.metrics_listen
        {
            open.server.set(to);
            open.config = to.clone();
            return Ok(());
        }
        // Closed first: the new address may overlap the former one.
        let former = open.take().map(|open| open.config);
        match self.start(to) {
            Ok(started) => {
                *open = started;
                Ok(())
            }
            Err(e) => {
                if let Some(Ok(restarted)) = former.map(|former| self.start(&former)) {
                    *open = restarted;
                }
                Err(e)
            }
        }
    }

    fn start(&self, config: &DaemonConfig) -> Result<Option<Open>> {
        let Some(at) = address(config)? else { return Ok(None) };
        let server = MetricsServer::start(at, config, self.state.clone())?;
        Ok(Some(Open { server, config: config.clone() }))
    }

    /// Closes it.
    pub(crate) fn close(&self) {
        drop(self.open.lock().take());
    }
}

/// Whether a step may close a listener, so that its address is free after it.
fn frees_addresses(step: &Step) -> bool {
    matches!(
        step.action,
        Action::RemoveTarget { .. }
            | Action::ModifyTarget { .. }
            | Action::RemoveGeom { .. }
            | Action::ModifyGeom { .. }
    )
}
