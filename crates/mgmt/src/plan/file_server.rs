//! Clients of a file server, which its geom serves itself, and edits of its section that their next
//! connection does not survive. Their present connections continue, as sessions of targets do.

use super::risk::is_listening;
use crate::api::{ServedClientState, SystemState};
use crate::config::GeomConfig;
use serde_json::Value;

/// The clients of a geom that serves clients itself.
pub(super) fn geom_clients<'s>(
    state: &'s SystemState,
    geom: &str,
) -> impl Iterator<Item = &'s ServedClientState> {
    state.geoms.iter().filter(move |g| g.name == geom).flat_map(|g| &g.clients)
}

/// Names of clients that could not connect again as they are connected now. No listener of their
/// protocol has their portal any more, or no attach is accepted. Or all clients of their listener
/// are another user, or the CA of their certificates may be dropped. Which CA signed a certificate
/// is not known: it counts as the former one.
pub(super) fn cut_clients(from: &GeomConfig, to: &GeomConfig, state: &SystemState) -> Vec<String> {
    let is_on = |geom: &GeomConfig, key: &str| geom.params.get(key) == Some(&Value::Bool(true));
    let shuts = is_on(to, "noattach") && !is_on(from, "noattach");
    let differs = |key: &str| from.params.get(key) != to.params.get(key);
    let (drops_ca, changes_user) = (differs("tls_client_ca"), differs("everybody"));
    let is_cut = |client: &&ServedClientState| {
        let key = client.key.as_str();
        let had = is_listening(&client.portal, &listen(from, key));
        had && !is_listening(&client.portal, &listen(to, key))
            || shuts
            || drops_ca && key.ends_with("_tls")
            || changes_user && key == "linux"
    };
    geom_clients(state, &to.name).filter(is_cut).map(|client| client.name.clone()).collect()
}

/// The addresses of a key of a section.
fn listen(geom: &GeomConfig, key: &str) -> Vec<String> {
    let all = geom.params.get(key).and_then(Value::as_array);
    all.into_iter().flatten().filter_map(|at| at.as_str().map(str::to_owned)).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::api::GeomState;

    fn server(params: &Value) -> GeomConfig {
        let mut section = json!({ "class": "fs", "name": "main", "members": ["c", "w"] });
        if let (Some(section), Some(params)) = (section.as_object_mut(), params.as_object()) {
            section.extend(params.clone());
        }
        serde_json::from_value(section).expect("a geom")
    }

    #[test]
    fn clients_are_cut_by_edits_of_their_own_listener() {
        let client = |name: &str, key: &str, portal: &str| ServedClientState {
            name: name.into(),
            key: key.into(),
            portal: portal.into(),
        };
        let clients = vec![
            client("10.0.0.7", "plan9", "10.0.0.1:564"),
            client("10.0.0.8", "linux_tls", "10.0.0.1:565"),
            client("unix:/run/9p uid=0", "linux", "unix:/run/9p"),
        ];
        let geom =
            GeomState { class: "fs".into(), name: "main".into(), clients, ..GeomState::default() };
        let state = SystemState { geoms: vec![geom], ..SystemState::default() };
        let from = json!({
            "plan9": ["0.0.0.0:564"], "linux": ["unix:/run/9p"], "linux_tls": ["10.0.0.1:565"],
            "tls_client_ca": "/ca",
        });
        let edits: [(&str, Value, &[&str]); 9] = [
            ("dump_at", json!("04:00"), &[]),
            ("plan9", json!(["10.0.0.1:564", "10.0.0.2:564"]), &[]),
            ("plan9", json!(["10.0.0.2:564"]), &["10.0.0.7"]),
            ("plan9", json!([]), &["10.0.0.7"]),
            ("linux", json!(["unix:/run/other"]), &["unix:/run/9p uid=0"]),
            ("tls_client_ca", json!("/next"), &["10.0.0.8"]),
            ("everybody", json!("glenda"), &["unix:/run/9p uid=0"]),
            ("noattach", json!(true), &["10.0.0.7", "10.0.0.8", "unix:/run/9p uid=0"]),
            ("nodump", json!(true), &[]),
        ];
        for (key, value, cut) in edits {
            let mut to = from.clone();
            to[key] = value;
            let found = cut_clients(&server(&from), &server(&to), &state);
            assert_eq!(found, cut, "{key} {}", to[key]);
            let back = cut_clients(&server(&to), &server(&from), &state);
            let is_cut_back = ["tls_client_ca", "everybody"].contains(&key);
            assert_eq!(back.is_empty(), !is_cut_back, "{key}: back");
        }
    }
}
