//! Listeners of the daemon over TCP, beside those of targets: the API and metrics.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;

/// A listener of the API or of metrics.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ListenerState {
    /// `api` or `metrics`.
    pub name: String,
    /// Address at which it listens.
    pub address: String,
    /// Whether connections are encrypted.
    pub tls: bool,
    /// Callers that it admits.
    pub admits: String,
    /// Whether a caller must authenticate.
    pub authenticated: bool,
    /// Number of tokens and clients with certificates; absent if that is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub callers: Option<u64>,
    /// Whether it is open.
    pub open: bool,
    /// Reason why it cannot be opened; otherwise empty.
    pub why: String,
    /// Seconds until the certificate of the listener expires; absent without TLS.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificate_expires_s: Option<i64>,
}

/// A weakness of a listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenerWarning {
    /// The weakness.
    pub why: &'static str,
    /// Its consequence.
    pub consequence: &'static str,
    /// The change that ends it.
    pub fix: &'static str,
}

impl ListenerState {
    /// The listener, for findings: `metrics at 0.0.0.0:9464`.
    pub fn place(&self) -> String {
        format!("{} at {}", self.name, self.address)
    }

    /// Whole days until the certificate expires; 0 if it has expired.
    pub fn certificate_days(&self) -> Option<u64> {
        let seconds = u64::try_from(self.certificate_expires_s?.max(0)).unwrap_or_default();
        Some(seconds / (24 * 3600))
    }

    fn is_loopback(&self) -> bool {
        let at = self.address.parse::<SocketAddr>();
        at.is_ok_and(|at| at.ip().to_canonical().is_loopback())
    }

    /// The greatest weakness of the listener.
    pub fn warning(&self) -> Option<ListenerWarning> {
        if !self.authenticated && !self.is_loopback() {
            return Some(ListenerWarning {
                why: "no token is required beyond loopback",
                consequence: "every host that reaches the address reads the names of initiators",
                fix: "set `metrics_token = \"file:/etc/ashlar/metrics.token\"` in [daemon], then \
                      run `ashlar apply`",
            });
        }
        if !self.tls && !self.is_loopback() {
            return Some(ListenerWarning {
                why: "connections beyond loopback have no TLS",
                consequence: "the token and the answers can be read on the network",
                fix: "listen on 127.0.0.1 behind a proxy with TLS, or scrape /metrics of [api], \
                      then run `ashlar apply`",
            });
        }
        (self.callers == Some(0)).then_some(ListenerWarning {
            why: "there is no token and no [[api_client]]",
            consequence: "no caller can log in",
            fix: "ashlar token create NAME --role viewer",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listener(address: &str, tls: bool, authenticated: bool) -> ListenerState {
        let address = address.to_owned();
        ListenerState { address, tls, authenticated, ..ListenerState::default() }
    }

    #[test]
    fn listener_beyond_loopback_without_token_or_tls_is_weak() {
        let why = |l: &ListenerState| l.warning().map(|w| w.why);
        for (at, tls, authenticated, wanted) in [
            ("127.0.0.1:1", false, false, None),
            ("[::ffff:127.0.0.1]:1", false, false, None),
            ("0.0.0.0:1", false, false, Some("no token is required beyond loopback")),
            ("[::]:1", false, true, Some("connections beyond loopback have no TLS")),
            ("[::]:1", true, true, None),
        ] {
            assert_eq!(why(&listener(at, tls, authenticated)), wanted, "{at}");
        }
        let empty = ListenerState { callers: Some(0), ..listener("127.0.0.1:1", false, true) };
        assert_eq!(why(&empty), Some("there is no token and no [[api_client]]"));
    }

    #[test]
    fn days_of_a_certificate_are_whole_and_not_negative() {
        let days = |seconds: i64| {
            let certificate_expires_s = Some(seconds);
            ListenerState { certificate_expires_s, ..ListenerState::default() }.certificate_days()
        };
        assert_eq!([days(-1), days(86_399), days(86_400)], [Some(0), Some(0), Some(1)]);
        assert_eq!(ListenerState::default().certificate_days(), None);
    }
}
