//! `[api]` and `[[api_client]]`: listeners of the API over TCP, and the roles of TLS clients.
//!
//! The sections follow the running configuration: an edit takes effect when it is applied. Beyond
//! loopback the API is served over TLS only.

use super::check::{Problem, problem};
use super::types::Config;
use crate::api::Kind;
use crate::auth::{Role, Scope};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::net::SocketAddr;

/// `[api]`: listeners of the API over TCP.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ApiConfig {
    /// Addresses (`ADDRESS:PORT`) at which the API is served over TCP. Addresses beyond loopback
    /// need `tls_certificate`. [default: none, the control socket alone]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub listen: Vec<String>,
    /// File of the server's certificates in PEM, its own first, or `credential:NAME` (systemd).
    /// `apply` reads a replaced file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls_certificate: Option<String>,
    /// File of the private key in PEM, or `credential:NAME` (systemd). `apply` reads a replaced
    /// file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls_key: Option<String>,
    /// File of the CA certificates in PEM that sign certificates of clients. Absent: clients are
    /// identified by tokens alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls_client_ca: Option<String>,
}

/// `[[api_client]]`: the role of a client of the API that presents a TLS certificate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ApiClientConfig {
    /// Common name of the certificate or, without one, its first alternative name.
    #[schemars(length(min = 1, max = 255))]
    pub subject: String,
    /// Role of the client.
    pub role: Role,
    /// The only target that the client may use. [default: all]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// The only access group of that target that the client may use. [default: all]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
}

impl ApiClientConfig {
    /// The objects to which the role is limited.
    pub fn scope(&self) -> Scope {
        Scope { target: self.target.clone(), group: self.group.clone() }
    }
}

/// Both sections: all settings of the API over the network.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ApiSections {
    /// `[api]`.
    pub api: ApiConfig,
    /// `[[api_client]]`.
    pub api_client: Vec<ApiClientConfig>,
}

impl ApiSections {
    /// The sections of a configuration.
    pub fn of(config: &Config) -> ApiSections {
        ApiSections { api: config.api.clone(), api_client: config.api_client.clone() }
    }
}

impl ApiConfig {
    /// The files of TLS; `None`: the listeners have no TLS.
    pub fn tls_files(&self) -> Option<tls::Files<'_>> {
        let (certificate, key) = (self.tls_certificate.as_deref()?, self.tls_key.as_deref()?);
        let client_ca = self.tls_client_ca.as_deref().unwrap_or_default();
        Some(tls::Files { certificate, key, client_ca })
    }

    /// The files by their keys, for the checks of files.
    pub fn named_files(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let all = [
            ("tls_certificate", &self.tls_certificate),
            ("tls_key", &self.tls_key),
            ("tls_client_ca", &self.tls_client_ca),
        ];
        all.into_iter().filter_map(|(key, path)| Some((key, path.as_deref()?)))
    }
}

/// Reports faults of the sections.
pub(super) fn check(config: &Config, out: &mut Vec<Problem>) {
    let api = &config.api;
    let has_tls = api.tls_files().is_some();
    for (i, at) in api.listen.iter().enumerate() {
        let text = match at.parse::<SocketAddr>() {
            Err(_) => format!("`{at}` is not ADDRESS:PORT, such as `0.0.0.0:7320` or `[::]:7320`"),
            Ok(at) if !has_tls && !at.ip().to_canonical().is_loopback() => {
                format!("`{at}` is beyond loopback: `tls_certificate` and `tls_key` are required")
            }
            Ok(_) => continue,
        };
        let p = problem("api", 0, "listen", Kind::ConfigValue, text);
        out.push(Problem { element: Some(i), ..p });
    }
    let mut fault = |key: &'static str, text: &str| {
        out.push(problem("api", 0, key, Kind::ConfigValue, text.to_owned()));
    };
    match (&api.tls_certificate, &api.tls_key) {
        (Some(_), None) => fault("tls_certificate", "`tls_key` of this certificate is required"),
        (None, Some(_)) => fault("tls_key", "`tls_certificate` of this key is required"),
        (None, None) if api.tls_client_ca.is_some() => {
            fault("tls_client_ca", "`tls_certificate` and `tls_key` are required too");
        }
        _ => {}
    }
    let mut seen = BTreeSet::new();
    for (i, client) in config.api_client.iter().enumerate() {
        let mut fault = |key: &'static str, kind: Kind, text: String| {
            out.push(problem("api_client", i, key, kind, text));
        };
        if api.tls_client_ca.is_none() {
            let text = "`tls_client_ca` of [api] is required: it verifies the certificate";
            fault("subject", Kind::ConfigValue, text.to_owned());
        }
        if !seen.insert(&client.subject) {
            let text = format!("a client already has the subject `{}`", client.subject);
            fault("subject", Kind::ConfigName, text);
        }
        if let Some(target) = client.target.as_ref().filter(|name| config.target(name).is_none()) {
            fault("target", Kind::ConfigName, format!("no target is named `{target}`"));
        }
        if client.group.is_some() && client.target.is_none() {
            fault("group", Kind::ConfigValue, "`target` of this group is required".to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::config::{ApiSections, Config, read, write};
    use crate::fake::{FakePlant, catalog, control};
    use crate::plan::{Action, Risk};
    use std::sync::Arc;
    use testkit::Folder;

    const TLS: &str = "tls_certificate = '/etc/a.pem'\ntls_key = '/etc/a.key'\n";

    fn refusal(text: &str) -> String {
        match read(text, "a.toml", &catalog()) {
            Ok(_) => String::new(),
            Err(e) => e.to_string(),
        }
    }

    #[test]
    fn listeners_beyond_loopback_need_tls() {
        for listen in ["127.0.0.1:7320", "[::1]:7320", "[::ffff:127.0.0.1]:7320"] {
            assert_eq!(refusal(&format!("[api]\nlisten = ['{listen}']\n")), "");
        }
        for listen in ["0.0.0.0:7320", "[::]:7320", "192.0.2.1:7320"] {
            let text = format!("[api]\nlisten = ['{listen}']\n");
            let refused = refusal(&text);
            assert!(refused.contains("beyond loopback"), "{listen}: {refused}");
            assert_eq!(refusal(&format!("{text}{TLS}")), "");
        }
        assert!(refusal("[api]\nlisten = ['host']\n").contains("is not ADDRESS:PORT"));
    }

    #[test]
    fn incomplete_tls_and_clients_are_refused() {
        for (text, why) in [
            ("[api]\ntls_key = '/k'\n", "`tls_certificate` of this key"),
            ("[api]\ntls_certificate = '/c'\n", "`tls_key` of this certificate"),
            ("[api]\ntls_client_ca = '/ca'\n", "are required too"),
            ("[[api_client]]\nsubject = 'a'\nrole = 'viewer'\n", "`tls_client_ca` of [api]"),
        ] {
            let refused = refusal(text);
            assert!(refused.contains(why), "{text}: {refused}");
        }
        let api = format!("[api]\n{TLS}tls_client_ca = '/ca'\n");
        let one = "[[api_client]]\nsubject = 'a'\nrole = 'viewer'\n";
        let client = |more: &str| format!("{one}{more}");
        let two = format!("{api}{}{}", client(""), client(""));
        assert!(refusal(&two).contains("already has the subject `a`"));
        let lost = refusal(&format!("{api}{}", client("target = 'iqn.a:t'\n")));
        assert!(lost.contains("no target is named `iqn.a:t`"), "{lost}");
        let alone = refusal(&format!("{api}{}", client("group = 'g'\n")));
        assert!(alone.contains("`target` of this group is required"), "{alone}");
    }

    #[test]
    fn sections_are_written_as_they_were_read() {
        let text = format!(
            "[api]\nlisten = ['0.0.0.0:7320']\n{TLS}tls_client_ca = '/ca'\n\
             [[api_client]]\nsubject = 'laptop'\nrole = 'admin'\n"
        );
        let config = read(&text, "a.toml", &catalog()).expect("well-formed");
        let again = read(&write(&config), "a.toml", &catalog()).expect("well-formed");
        assert_eq!(ApiSections::of(&again), ApiSections::of(&config));
        assert_eq!(again.api_client[0].subject, "laptop");
    }

    #[test]
    fn edit_is_one_safe_step_that_has_an_inverse() {
        let text = "[api]\nlisten = ['127.0.0.1:7320']\n";
        let config = read(text, "a.toml", &catalog()).expect("well-formed");
        let folder = Folder::new("api-edit");
        let control = control(&Arc::new(FakePlant::new()), &folder);
        let plan = control.plan(&config).expect("a plan");
        let [step] = plan.steps.as_slice() else { panic!("{:?}", plan.steps) };
        assert_eq!(
            (step.risk, step.what.as_str()),
            (Risk::Safe, "change the API over the network")
        );
        assert!(step.why.contains("listen"), "{}", step.why);
        let mut changed = Config::default();
        step.action.apply_to(&mut changed);
        assert_eq!(changed.api, config.api);
        step.action.inverse().apply_to(&mut changed);
        assert_eq!(changed, Config::default());
        control.apply(&config, &Default::default(), &mut |_| {}).expect("applied");
        assert_eq!(control.api().api, config.api);
        assert!(control.plan(&config).expect("a plan").steps.is_empty());
    }

    #[test]
    fn files_that_cannot_be_used_are_refused_by_plan_and_apply() {
        let text = "[api]\nlisten = ['0.0.0.0:7320']\ntls_certificate = '/nonexistent/a.pem'\n\
                    tls_key = '/nonexistent/a.key'\n";
        let config = read(text, "a.toml", &catalog()).expect("well-formed");
        let folder = Folder::new("api-files");
        let control = control(&Arc::new(FakePlant::new()), &folder);
        let plan = control.plan(&config).expect("a plan");
        assert!(matches!(plan.steps[0].action, Action::Api { .. }));
        let (refused, awaited) = control.refused_steps(&plan);
        assert!(awaited.is_empty() && refused.len() == 1, "{refused:?} {awaited:?}");
        assert!(refused[0].contains("tls_certificate: /nonexistent/a.pem"), "{refused:?}");
        assert!(control.apply(&config, &Default::default(), &mut |_| {}).is_err());
        assert_eq!(control.api(), ApiSections::default());
        // A start serves everything else; the server of the API waits for the files.
        assert!(control.start(&config).expect("started").deferred.is_empty());
    }

    #[test]
    fn listener_of_a_target_does_not_overlap_one_of_the_api() {
        let text = "[api]\nlisten = ['127.0.0.1:3260']\n\
                    [[target]]\ndriver = 'iscsi'\nname = 'iqn.a:t'\nlisten = ['0.0.0.0:3260']\n";
        let refused = refusal(text);
        assert!(refused.contains("overlaps"), "{refused}");
    }
}
