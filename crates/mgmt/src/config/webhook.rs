//! `[[webhook]]`: servers that receive events.
//!
//! The sections follow the running configuration: an edit takes effect when it is applied.

use super::check::{Problem, problem};
use super::secret::{self, HIDDEN_SECRET, is_literal};
use super::types::Config;
use crate::api::{Error, Event, Kind, Level, Result};
use crate::remote::{SYSTEM_CA, Url};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use tls::{ClientFiles, ClientKeys};
use wire::pattern::{self, PATTERN_MAX};

/// `[[webhook]]`: a server that receives events.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WebhookConfig {
    /// Name of the webhook.
    #[schemars(length(min = 1, max = 64))]
    pub name: String,
    /// URL to which each event is sent by POST: `https://HOST[:PORT]/PATH` or `http://...`.
    /// Redirects are not followed.
    #[schemars(length(min = 1, max = 2048))]
    pub url: String,
    /// Least severity of the events.
    #[serde(default = "least_level")]
    pub level: Level,
    /// Patterns, with `*` and `?`, of the objects of the events, as `about` of the journal has
    /// them: `mirror *`, `disk d0`, `daemon`. [default: all objects]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<String>,
    /// `file:PATH` or `credential:NAME` (systemd) of the secret that signs each event. [default:
    /// events are not signed]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<String>,
    /// File of the CA certificates in PEM that verify the server. [default:
    /// /etc/ssl/certs/ca-certificates.crt]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls_ca: Option<String>,
}

fn least_level() -> Level {
    Level::Warn
}

/// The parts of a URL with a path.
pub(crate) struct Address {
    /// Without the path.
    pub(crate) url: Url,
    /// With the query.
    pub(crate) path: String,
}

/// Contents of the files of a webhook.
pub(crate) struct WebhookFiles {
    /// The secret that signs events.
    pub(crate) secret: Option<Vec<u8>>,
    /// Absent for a URL without TLS.
    pub(crate) keys: Option<ClientKeys>,
}

impl WebhookConfig {
    /// The parts of the URL; `None`: it is no URL of HTTP.
    pub(crate) fn address(&self) -> Option<Address> {
        let (scheme, rest) = self.url.split_once("://")?;
        let port = match scheme {
            "https" => 443,
            "http" => 80,
            _ => return None,
        };
        let (authority, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
        let url = Url::parse(&format!("{scheme}://{authority}"), port)?;
        let is_valid = path.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'#');
        let slash = if path.starts_with('/') { "" } else { "/" };
        is_valid.then(|| Address { url, path: format!("{slash}{path}") })
    }

    /// Reads the files.
    ///
    /// # Errors
    /// [`Kind::Secret`] for the secret, [`Kind::System`] for the CA certificates.
    pub(crate) fn files(&self) -> Result<WebhookFiles> {
        let secret = self.secret.as_deref().map(secret::resolve).transpose()?;
        let has_tls = self.address().is_some_and(|address| address.url.has_tls);
        let ca = self.tls_ca.as_deref().unwrap_or(SYSTEM_CA);
        let unusable = |why| {
            let next = "Correct `tls_ca` in [[webhook]]; `ashlar doctor certificates` checks it.";
            let at = format!("webhook {}", self.name);
            Error::new(Kind::System, "read TLS files", why).at(at).next(next)
        };
        let files = ClientFiles { ca, certificate: "", key: "" };
        let keys = has_tls.then(|| ClientKeys::read(&files).map_err(unusable)).transpose()?;
        Ok(WebhookFiles { secret, keys })
    }

    /// Replaces the path of the URL, which may be a secret, by a placeholder.
    pub(crate) fn hide_path(&mut self) {
        if let Some(address) = self.address().filter(|address| address.path != "/") {
            self.url = format!("{}/{HIDDEN_SECRET}", address.url);
        }
    }

    /// Whether the URL has the placeholder.
    fn is_hidden(&self) -> bool {
        self.address().is_some_and(|address| address.path.get(1..) == Some(HIDDEN_SECRET))
    }

    /// Whether the server receives an event.
    pub(crate) fn selects(&self, event: &Event) -> bool {
        let mut patterns = self.events.iter();
        event.level >= self.level
            && (self.events.is_empty() || patterns.any(|p| pattern::matches(p, &event.about)))
    }
}

/// Gives webhooks whose path `export` has hidden the URL of the running one with the same name and
/// server.
pub(crate) fn restore_paths(config: &mut Config, running: &Config) {
    for hook in config.webhook.iter_mut().filter(|hook| hook.is_hidden()) {
        let is_same = |of: &&WebhookConfig| {
            let mut shown = (*of).clone();
            shown.hide_path();
            (&shown.name, &shown.url) == (&hook.name, &hook.url)
        };
        if let Some(url) = running.webhook.iter().find(is_same).map(|of| of.url.clone()) {
            hook.url = url;
        }
    }
}

/// Refuses webhooks whose path is still hidden: no server has it.
///
/// # Errors
/// [`Kind::ConfigValue`].
pub(crate) fn check_paths(config: &Config) -> Result<()> {
    let Some(hook) = config.webhook.iter().find(|hook| hook.is_hidden()) else { return Ok(()) };
    let why = format!(
        "`ashlar export` hid the path of `url`, and no running webhook has this name and server \
         (`{}`)",
        hook.url
    );
    let next = "Write the URL again, or use `ashlar export --secrets`.";
    let error = Error::new(Kind::ConfigValue, "read configuration", why);
    Err(error.at(format!("webhook {}", hook.name)).next(next))
}

/// Reports faults of the sections.
pub(super) fn check(config: &Config, out: &mut Vec<Problem>) {
    let mut seen = BTreeSet::new();
    for (i, hook) in config.webhook.iter().enumerate() {
        let mut fault = |key: &'static str, kind: Kind, text: String| {
            out.push(problem("webhook", i, key, kind, text));
        };
        if !seen.insert(&hook.name) {
            let text = format!("a webhook already has the name `{}`", hook.name);
            fault("name", Kind::ConfigName, text);
        }
        match hook.address() {
            None => {
                // The URL may contain a secret, so it is not repeated.
                let text = "a URL such as `https://alerts.example/ashlar` is wanted here";
                fault("url", Kind::ConfigValue, text.to_owned());
            }
            Some(address) if !address.url.has_tls && hook.tls_ca.is_some() => {
                let text = "`url` without TLS uses no `tls_ca`: write `https://` or remove the key";
                fault("tls_ca", Kind::ConfigValue, text.to_owned());
            }
            Some(_) => {}
        }
        if let Some(bad) = hook.events.iter().find(|p| p.is_empty() || p.len() > PATTERN_MAX) {
            let length = bad.len();
            let text = format!("a pattern has {length} bytes (limits 1 and {PATTERN_MAX})");
            fault("events", Kind::ConfigValue, text);
        }
        if hook.secret.as_deref().is_some_and(is_literal) {
            let text = "`file:PATH` or `credential:NAME` is wanted here: store the secret in a \
                        file with mode 0600";
            fault("secret", Kind::ConfigValue, text.to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{read, write};
    use crate::fake::catalog;

    fn hook(url: &str, keys: &str) -> String {
        format!("[[webhook]]\nname = 'a'\nurl = '{url}'\n{keys}")
    }

    #[test]
    fn webhooks_that_cannot_work_are_refused() {
        let refusal = |text: &str| match read(text, "/etc/a.toml", &catalog()) {
            Ok(_) => String::new(),
            Err(e) => e.to_string(),
        };
        let good = hook("https://alerts.example/x?key=1", "secret = 'file:s'\n");
        assert_eq!(refusal(&good), "");
        for (text, why) in [
            (hook("ftp://a/x", ""), "a URL such as"),
            (hook("https://a/x#y", ""), "a URL such as"),
            (hook("https:///x", ""), "a URL such as"),
            (hook("http://a/x", "tls_ca = 'ca.pem'\n"), "uses no `tls_ca`"),
            (hook("http://a/x", "secret = 'sesame'\n"), "`file:PATH`"),
            (hook("http://a/x", "events = ['']\n"), "a pattern has 0 bytes"),
            (hook("http://a/x", "level = 'fatal'\n"), "fatal"),
            (format!("{good}{good}"), "already has the name"),
        ] {
            let refused = refusal(&text);
            assert!(refused.contains(why), "{text}: {refused}");
            assert!(!refused.contains("sesame"), "{refused}");
        }
    }

    #[test]
    fn hidden_path_is_that_of_the_running_webhook_or_refused() {
        let config = |url: &str| read(&hook(url, ""), "/a.toml", &catalog()).expect("well-formed");
        let running = config("https://alerts.example/T0/sesame?key=1");
        let mut shown = running.clone();
        shown.webhook[0].hide_path();
        assert_eq!(shown.webhook[0].url, "https://alerts.example:443/(hidden)");
        assert_eq!(check_paths(&running), Ok(()));
        let mut restored = config(&shown.webhook[0].url);
        let error = check_paths(&restored).expect_err("no server has that path");
        assert_eq!((error.kind, error.at.as_str()), (Kind::ConfigValue, "webhook a"));
        restore_paths(&mut restored, &running);
        assert_eq!(restored, running);
        for other in ["https://evil.example/(hidden)", "http://alerts.example:443/(hidden)"] {
            let mut moved = config(other);
            restore_paths(&mut moved, &running);
            assert!(moved == config(other) && check_paths(&moved).is_err(), "{other}");
        }
        let mut plain = config("https://alerts.example");
        plain.webhook[0].hide_path();
        assert_eq!(plain, config("https://alerts.example"), "it has no path");
    }

    #[test]
    fn export_of_webhooks_reads_back_with_absolute_paths() {
        let keys = "secret = 'file:s'\ntls_ca = 'ca.pem'\nevents = ['disk *']\nlevel = 'info'\n";
        let text = hook("https://alerts.example/x", keys);
        let config = read(&text, "/etc/a.toml", &catalog()).expect("well-formed");
        assert_eq!(config.webhook[0].secret.as_deref(), Some("file:/etc/s"));
        assert_eq!(config.webhook[0].tls_ca.as_deref(), Some("/etc/ca.pem"));
        let again = read(&write(&config), "/b.toml", &catalog()).expect("well-formed");
        assert_eq!(again, config);
    }

    #[test]
    fn addresses_have_a_default_port_and_a_path() {
        for (url, authority, path) in [
            ("https://a", "a:443", "/"),
            ("http://a/", "a:80", "/"),
            ("http://[::1]:8080/b/c?d=e", "[::1]:8080", "/b/c?d=e"),
            ("https://a?d=e", "a:443", "/?d=e"),
        ] {
            let text = hook(url, "");
            let config = read(&text, "/a.toml", &catalog()).expect("well-formed");
            let address = config.webhook[0].address().expect(url);
            assert_eq!(address.url.authority(), authority);
            assert_eq!(address.path, path);
        }
    }

    #[test]
    fn events_are_selected_by_severity_and_object() {
        let text = hook("http://a/", "events = ['disk *', 'daemon']\n");
        let config = read(&text, "/a.toml", &catalog()).expect("well-formed");
        for (level, about, expected) in [
            (Level::Warn, "disk d0", true),
            (Level::Error, "daemon", true),
            (Level::Info, "disk d0", false),
            (Level::Error, "mirror m0", false),
        ] {
            let event = Event { level, about: about.to_owned(), ..Event::default() };
            assert_eq!(config.webhook[0].selects(&event), expected, "{level:?} {about}");
        }
    }
}
