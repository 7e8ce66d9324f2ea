//! `discover`: what targets an iSCSI portal knows, and the lines that make a bus of each.

use std::fmt::Write;
use std::net::{IpAddr, SocketAddr};

use bio::Errno;
use geom::{ArgKind, ArgSpec, Control, Error, VerbSpec};
use serde_json::{Value, json};

use super::verb;
use crate::class::CamClass;
use crate::sims::iscsi::discover::{Asker, Found, ask};

/// The port of portals that do not say theirs.
const PORT: u16 = 3260;
/// Who asks when nobody says.
const INITIATOR: &str = "iqn.2026-01.org.example:initiator";

const fn text(name: &'static str, doc: &'static str) -> ArgSpec {
    ArgSpec { name, short: None, kind: ArgKind::Text, doc }
}

pub(super) const DISCOVER: VerbSpec = VerbSpec {
    detail: "Asks with SendTargets, in a session of its own, and attaches nothing: under each \
             target stand the lines of ashlar.toml that make a bus of it. Targets may show an \
             initiator only what it may have, so ask by the name that the bus will have. Reached \
             are addresses, not names of hosts. The secret's file is read by the daemon.",
    ..verb(
        "discover",
        "Ask an iSCSI portal for its targets",
        &[
            ArgSpec {
                name: "name",
                short: None,
                kind: ArgKind::Name,
                doc: "A portal's address, with or without port: 10.0.0.1",
            },
            text("initiator", "Our name: iqn.2026-01.org.example:host7"),
            text("user", "CHAP: our user"),
            text("secret_file", "CHAP: the file with our secret"),
        ],
        "discover 10.0.0.1:3260 --initiator iqn.2026-01.org.example:host7",
    )
};

fn portal(typed: &str) -> Result<SocketAddr, Error> {
    let bare = typed.trim_start_matches('[').trim_end_matches(']');
    let address = bare.parse::<IpAddr>().map(|ip| SocketAddr::new(ip, PORT));
    typed.parse::<SocketAddr>().or(address).map_err(|_| {
        let what = format!("`{typed}` is no address of a portal: 10.0.0.1:3260, [fd00::1]:3260");
        Error::inval(what)
    })
}

fn asker(params: &Value) -> Result<(String, Asker), Error> {
    let refuse = |what: String| Error::inval(what);
    let initiator = params["initiator"].as_str().unwrap_or(INITIATOR);
    let (user, file) = (params["user"].as_str(), params["secret_file"].as_str());
    let secret = file.map(|file| format!("file:{file}"));
    let proof = match (user, &secret) {
        (Some(user), Some(secret)) => Some((user, secret.as_str())),
        (None, None) => None,
        _ => return Err(refuse("a proof needs both: user and secret_file".into())),
    };
    let asker = Asker::new(initiator, proof).map_err(refuse)?;
    Ok((initiator.to_owned(), asker))
}

/// The lines of a bus to all portals of a target that are addresses.
fn lines(found: &Found, at: SocketAddr, params: &Value, initiator: &str) -> String {
    let said = found.portals.iter().filter_map(|(place, _)| place.parse::<SocketAddr>().ok());
    let mut portals: Vec<SocketAddr> = said.collect();
    if portals.is_empty() {
        portals.push(at);
    }
    let portals: Vec<String> = portals.iter().map(|at| format!("\"{at}\"")).collect();
    let mut out = format!(
        "[[bus]]\nname = \"iscsi0\"\nkind = \"iscsi\"\nportals = [{}]\ntarget = \"{}\"\n\
         initiator = \"{initiator}\"\n",
        portals.join(", "),
        found.name
    );
    if let (Some(user), Some(file)) = (params["user"].as_str(), params["secret_file"].as_str()) {
        let (user, file) = (toml_text(user), toml_text(&format!("file:{file}")));
        let _ = writeln!(out, "chap = {{ user = {user}, secret = {file} }}");
    }
    out
}

/// As it stands in ashlar.toml.
fn toml_text(text: &str) -> String {
    Value::from(text).to_string()
}

impl CamClass {
    /// Attaches nothing.
    pub(super) fn discover(
        &self,
        control: &mut Control,
        on: &str,
        params: &Value,
    ) -> Result<Value, Error> {
        let (at, (initiator, asker), params) = (portal(on)?, asker(params)?, params.clone());
        self.order(control, ("discover", on), move |core| {
            Box::pin(async move {
                let found = ask(core, at, asker).await;
                let found = found.map_err(|why| Error::new(Errno::Io, format!("{at}: {why}")))?;
                Ok(told(&found, at, &params, &initiator))
            })
        })
    }
}

fn told(found: &[Found], at: SocketAddr, params: &Value, initiator: &str) -> Value {
    let (mut text, mut targets) = (String::new(), Vec::new());
    for target in found {
        let bus = lines(target, at, params, initiator);
        let _ = writeln!(text, "{}", target.name);
        for (place, tag) in &target.portals {
            let _ = writeln!(text, "    {place},{tag}");
        }
        let _ = writeln!(text, "\n{bus}");
        let portals: Vec<Value> = target
            .portals
            .iter()
            .map(|(place, tag)| json!({ "portal": place, "group": tag }))
            .collect();
        targets.push(json!({ "target": target.name, "portals": portals, "bus": bus }));
    }
    if found.is_empty() {
        text = format!("{at} shows {initiator} no target\n");
    }
    json!({ "text": text, "targets": targets })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_typed_is_a_portal_or_refused() {
        assert_eq!(portal("10.0.0.1").unwrap().to_string(), "10.0.0.1:3260");
        assert_eq!(portal("[fd00::1]").unwrap().to_string(), "[fd00::1]:3260");
        assert_eq!(portal("[fd00::1]:99").unwrap().port(), 99);
        assert!(portal("san.example.org").is_err());
        assert!(asker(&json!({ "user": "me" })).is_err());
        assert!(asker(&json!({ "initiator": "me" })).is_err());
    }
}
