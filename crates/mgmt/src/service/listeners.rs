//! Listeners of the API and of metrics: as they are configured, and as their servers report them.

use crate::api::{CertificateState, ListenerState, SystemState};
use crate::config::Config;
use crate::plan::FileSection;
use bio::sync::Mutex;
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// Reports of the server of the API over TCP.
#[derive(Default)]
pub struct ApiListeners(Mutex<Reports>);

#[derive(Default)]
struct Reports {
    /// Addresses that are open, and the reasons why others are not.
    addresses: BTreeMap<SocketAddr, Option<String>>,
    /// Why the files of TLS cannot be used.
    problem: Option<String>,
}

impl ApiListeners {
    /// The address is open, or `why` it is not.
    pub fn report(&self, at: SocketAddr, why: Option<String>) {
        self.0.lock().addresses.insert(at, why);
    }

    /// The address is not listened on any more.
    pub fn closed(&self, at: SocketAddr) {
        self.0.lock().addresses.remove(&at);
    }

    /// Why the files of TLS cannot be used; `None`: they are in use, or there are none.
    pub fn set_problem(&self, why: Option<String>) {
        self.0.lock().problem = why;
    }

    /// Adds the listeners to a state, which has the certificates of the API.
    pub fn add_to(&self, state: &mut SystemState, config: &Config, tokens: usize) {
        let reports = self.0.lock();
        let api = FileSection::Api.to_string();
        let is_own = |of: &&CertificateState| of.at == api && of.key == "tls_certificate";
        let own = state.certificates.iter().find(is_own).map(|of| of.expires_s);
        for mut listener in configured(config) {
            if listener.name == "metrics" {
                listener.open = state.daemon.metrics_listen.is_some();
                if let Some(at) = &state.daemon.metrics_listen {
                    listener.address.clone_from(at);
                }
            } else {
                let at = listener.address.parse::<SocketAddr>().ok();
                let report = at.and_then(|at| reports.addresses.get(&at));
                listener.open = matches!(report, Some(None));
                let why = report.cloned().flatten().or_else(|| reports.problem.clone());
                listener.why = why.unwrap_or_default();
                let tokens = u64::try_from(tokens).unwrap_or(u64::MAX);
                listener.callers = Some(tokens.saturating_add(clients(config)));
                listener.certificate_expires_s = own;
            }
            state.listeners.push(listener);
        }
    }
}

/// Clients that the listener admits with a certificate.
fn clients(config: &Config) -> u64 {
    match config.api.tls_client_ca {
        Some(_) => u64::try_from(config.api_client.len()).unwrap_or(u64::MAX),
        None => 0,
    }
}

/// The listeners of a configuration, as far as it shows them.
pub fn configured(config: &Config) -> Vec<ListenerState> {
    let api = &config.api;
    let admits = match clients(config) {
        0 => "bearers of tokens".to_owned(),
        1 => "bearers of tokens, 1 client with a certificate".to_owned(),
        n => format!("bearers of tokens, {n} clients with certificates"),
    };
    let of_api = api.listen.iter().map(|at| ListenerState {
        name: "api".to_owned(),
        address: at.clone(),
        tls: api.tls_files().is_some(),
        admits: admits.clone(),
        authenticated: true,
        ..ListenerState::default()
    });
    let has_token = config.daemon.metrics_token.is_some();
    let admits = if has_token { "bearers of metrics_token" } else { "every host" };
    let of_metrics = config.daemon.metrics_listen.iter().map(|at| ListenerState {
        name: "metrics".to_owned(),
        address: at.clone(),
        admits: admits.to_owned(),
        authenticated: has_token,
        ..ListenerState::default()
    });
    of_api.chain(of_metrics).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::catalog;

    #[test]
    fn listeners_have_their_addresses_callers_and_problems() {
        let text = "[daemon]\nmetrics_listen = '0.0.0.0:9464'\n\
                    [api]\nlisten = ['127.0.0.1:7320', '127.0.0.1:7321', '127.0.0.1:7322']\n";
        let config = crate::config::read(text, "a.toml", &catalog()).expect("well-formed");
        let listeners = ApiListeners::default();
        listeners.report(([127, 0, 0, 1], 7320).into(), None);
        listeners.report(([127, 0, 0, 1], 7321).into(), Some("address in use".to_owned()));
        let mut state = SystemState::default();
        listeners.add_to(&mut state, &config, 2);
        let brief = |l: &ListenerState| (l.place(), l.open, l.why.clone(), l.callers);
        let brief: Vec<_> = state.listeners.iter().map(brief).collect();
        let wanted = [
            ("api at 127.0.0.1:7320", true, "", Some(2)),
            ("api at 127.0.0.1:7321", false, "address in use", Some(2)),
            ("api at 127.0.0.1:7322", false, "", Some(2)),
            ("metrics at 0.0.0.0:9464", false, "", None),
        ];
        let wanted = wanted.map(|(at, open, why, n)| (at.to_owned(), open, why.to_owned(), n));
        assert_eq!(brief, wanted);
        assert_eq!(state.listeners[3].admits, "every host");

        listeners.closed(([127, 0, 0, 1], 7320).into());
        listeners.set_problem(Some("/c: no such file".to_owned()));
        state.listeners.clear();
        listeners.add_to(&mut state, &config, 0);
        let first = state.listeners.first().expect("a listener");
        assert_eq!((first.open, first.why.as_str()), (false, "/c: no such file"));
    }
}
