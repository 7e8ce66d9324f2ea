//! `discover`: the targets that an iSCSI portal knows, and the lines that make a bus of each.

use std::fmt::Write;
use std::net::{IpAddr, SocketAddr};

use bio::Errno;
use geom::{At, Deferred, Deserialize, Error, JsonSchema, Verb};
use serde::Serialize;
use serde_json::Value;

use crate::class::CamClass;
use crate::sims::iscsi::discover::{DiscoveredTarget, DiscoveryInitiator, discover_targets};

/// The port of portals that name none.
const PORT: u16 = 3260;
/// The initiator name, by default.
const INITIATOR: &str = "iqn.2026-01.org.example:initiator";

/// Ask an iSCSI portal for its targets
///
/// Sends SendTargets in a discovery session and attaches nothing. The output has, under each
/// target, the lines of ashlar.toml that define a bus for it. A target may list only targets that
/// the initiator may access, so use the initiator name that the bus will have. Portals are given as
/// addresses, not as host names. The daemon reads the file with the secret.
#[derive(Deserialize, JsonSchema)]
pub(super) struct Discover {
    /// Address of the portal: 10.0.0.1, or 10.0.0.1:3260 with the port
    name: String,
    /// iSCSI name of this initiator
    #[serde(default = "initiator")]
    initiator: String,
    /// CHAP: user name of this initiator [default: no CHAP]
    user: Option<String>,
    /// CHAP: file with the secret of this initiator
    secret_file: Option<String>,
}

fn initiator() -> String {
    INITIATOR.to_owned()
}

/// The targets that a portal knows.
#[derive(Serialize, JsonSchema)]
pub(super) struct DiscoverAnswer {
    /// Result for people.
    text: String,
    /// Each target.
    targets: Vec<ListedTarget>,
}

/// A target.
#[derive(Serialize, JsonSchema)]
struct ListedTarget {
    /// Name of the target.
    target: String,
    /// Portals of the target.
    portals: Vec<ListedPortal>,
    /// Lines of ashlar.toml that define a bus for the target.
    bus: String,
}

/// A portal of a target.
#[derive(Serialize, JsonSchema)]
struct ListedPortal {
    /// Address and port.
    portal: String,
    /// Portal group tag.
    group: u16,
}

impl Verb<CamClass> for Discover {
    const NAME: &'static str = "discover";
    const EXAMPLE: &'static str =
        "discover 10.0.0.1:3260 --initiator iqn.2026-01.org.example:host7";
    type Answer = Deferred<DiscoverAnswer>;

    fn run(self, (class, control): At<'_, CamClass>) -> Result<Self::Answer, Error> {
        let (on, at, asker) = (self.name.clone(), portal(&self.name)?, self.discovery_initiator()?);
        class.run_on_core(control, (Self::NAME, &on), move |core| {
            Box::pin(async move {
                let found = discover_targets(core, at, asker).await;
                let found = found.map_err(|why| Error::new(Errno::Io, format!("{at}: {why}")))?;
                Ok(self.report(&found, at))
            })
        })
    }
}

impl Discover {
    fn discovery_initiator(&self) -> Result<DiscoveryInitiator, Error> {
        let refuse = |what: String| Error::inval(what);
        let secret = self.secret_file.as_ref().map(|file| format!("file:{file}"));
        let proof = match (&self.user, &secret) {
            (Some(user), Some(secret)) => Some((user.as_str(), secret.as_str())),
            (None, None) => None,
            _ => return Err(refuse("a proof needs both: user and secret_file".into())),
        };
        DiscoveryInitiator::new(&self.initiator, proof).map_err(refuse)
    }

    /// The lines of a bus to all portals of a target that are addresses.
    fn lines(&self, found: &DiscoveredTarget, at: SocketAddr) -> String {
        let addresses =
            found.portals.iter().filter_map(|(place, _)| place.parse::<SocketAddr>().ok());
        let mut portals: Vec<SocketAddr> = addresses.collect();
        if portals.is_empty() {
            portals.push(at);
        }
        let portals: Vec<String> = portals.iter().map(|at| format!("\"{at}\"")).collect();
        let mut out = format!(
            "[[bus]]\nname = \"iscsi0\"\nkind = \"iscsi\"\nportals = [{}]\ntarget = \"{}\"\n\
             initiator = \"{}\"\n",
            portals.join(", "),
            found.name,
            self.initiator
        );
        if let (Some(user), Some(file)) = (&self.user, &self.secret_file) {
            let (user, file) = (toml_text(user), toml_text(&format!("file:{file}")));
            let _ = writeln!(out, "chap = {{ user = {user}, secret = {file} }}");
        }
        out
    }

    fn report(&self, found: &[DiscoveredTarget], at: SocketAddr) -> DiscoverAnswer {
        let (mut text, mut targets) = (String::new(), Vec::new());
        for target in found {
            let bus = self.lines(target, at);
            let _ = writeln!(text, "{}", target.name);
            for (place, tag) in &target.portals {
                let _ = writeln!(text, "    {place},{tag}");
            }
            let _ = writeln!(text, "\n{bus}");
            let portal =
                |(place, tag): &(String, u16)| ListedPortal { portal: place.clone(), group: *tag };
            let portals = target.portals.iter().map(portal).collect();
            targets.push(ListedTarget { target: target.name.clone(), portals, bus });
        }
        if found.is_empty() {
            text = format!("{at} shows {} no target\n", self.initiator);
        }
        DiscoverAnswer { text, targets }
    }
}

fn portal(typed: &str) -> Result<SocketAddr, Error> {
    let bare = typed.trim_start_matches('[').trim_end_matches(']');
    let address = bare.parse::<IpAddr>().map(|ip| SocketAddr::new(ip, PORT));
    typed.parse::<SocketAddr>().or(address).map_err(|_| {
        let what = format!("`{typed}` is no address of a portal: 10.0.0.1:3260, [fd00::1]:3260");
        Error::inval(what)
    })
}

/// As in ashlar.toml.
fn toml_text(text: &str) -> String {
    Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn typed_portals_are_parsed_or_refused() {
        assert_eq!(portal("10.0.0.1").unwrap().to_string(), "10.0.0.1:3260");
        assert_eq!(portal("[fd00::1]").unwrap().to_string(), "[fd00::1]:3260");
        assert_eq!(portal("[fd00::1]:99").unwrap().port(), 99);
        assert!(portal("san.example.org").is_err());
        for wrong in [json!({ "user": "me" }), json!({ "initiator": "me" })] {
            let mut params = wrong;
            params["name"] = "10.0.0.1".into();
            let parsed: Discover =
                geom::parse_params("cam discover", &params).expect("well-formed");
            assert!(parsed.discovery_initiator().is_err(), "{params}");
        }
    }
}
