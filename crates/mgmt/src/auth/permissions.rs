//! Permissions: the role that each verb and route needs, and the parameters that limit a call to
//! one target or group.
//!
//! Invariants
//!  A1  A verb or route without an entry is refused to every caller of the network; a test requires
//!      an entry for each.
//!  A2  A caller whose role is limited to a target may make only calls that name this target, and
//!      with a group only calls that name this group too.
//!  A9  No parameter changes the permission of a verb that takes a document, so that it is decided
//!      before the document is read.

use super::Caller;
use super::Role::{self, Admin, Operator, Viewer};
use crate::api::{Error, Kind, Result};
use serde_json::Value;

/// One request.
#[derive(Clone, Copy, Debug)]
pub enum Call<'a> {
    /// A verb with its parameters.
    Verb(&'a str, &'a Value),
    /// Another route, by its path.
    Route(&'a str),
}

/// What one verb or route needs.
struct Permission {
    /// Name of the verb, or path of the route.
    name: &'static str,
    /// Least role.
    role: Role,
    /// Parameters that, if given, need a greater role.
    raised_by: &'static [(&'static str, Role)],
    /// Parameters that name a target and an access group, for callers whose role is limited.
    scope: &'static [&'static str],
}

const fn need(name: &'static str, role: Role) -> Permission {
    Permission { name, role, raised_by: &[], scope: &[] }
}

impl Permission {
    const fn raised_by(self, raised_by: &'static [(&'static str, Role)]) -> Permission {
        Permission { raised_by, ..self }
    }

    const fn within(self, scope: &'static [&'static str]) -> Permission {
        Permission { scope, ..self }
    }
}

/// Every verb of the daemon and every route.
const PERMISSIONS: &[Permission] = &[
    need("/", Viewer),
    need("/v1/schema", Viewer),
    need("/v1/view", Viewer),
    need("/v1/state", Viewer),
    need("/v1/events", Viewer),
    need("/metrics", Viewer),
    need("/openapi.json", Viewer),
    need("status", Viewer),
    need("tree", Viewer),
    need("list", Viewer),
    need("sessions", Viewer).within(&["target", "group"]),
    need("sessions.end", Operator),
    need("reservations", Viewer).raised_by(&[("clear", Operator)]),
    need("journal", Viewer),
    need("plan", Operator),
    need("apply", Admin),
    need("undo", Admin),
    need("history", Viewer),
    need("export", Viewer).raised_by(&[("secrets", Admin)]),
    need("part.show", Viewer),
    need("part.status", Viewer),
    need("part.list", Viewer),
    need("part.create", Admin),
    need("part.add", Admin),
    need("part.delete", Admin),
    need("part.modify", Admin),
    need("part.resize", Admin),
    need("part.recover", Admin),
    need("part.destroy", Admin),
    need("part.set", Admin),
    need("part.unset", Admin),
    need("part.bootcode", Admin),
    need("part.backup", Viewer),
    need("part.restore", Admin),
    need("part.commit", Admin),
    need("part.undo", Admin),
    need("inspect", Viewer),
    need("wipe", Admin),
    need("access.check", Viewer).within(&["target"]),
    need("access.who", Viewer),
    need("alua.show", Viewer),
    need("alua.set", Operator),
    need("tray.eject", Operator),
    need("tray.load", Admin),
    need("attach", Admin).within(&["target"]),
    need("detach", Admin).within(&["target"]),
    need("geom", Admin),
    need("token.create", Admin),
    need("token.list", Admin),
    need("token.revoke", Admin),
    need("audit", Admin),
];

/// Verbs that every class has and that only read.
const READING_CLASS_VERBS: [&str; 2] = ["status", "list"];

/// Whether a verb is one that every class has and that only reads.
pub fn is_reading_class_verb(verb: &str) -> bool {
    READING_CLASS_VERBS.contains(&verb)
}

/// A parameter that is given: neither absent nor null, false or empty.
fn is_given(params: &Value, key: &str) -> bool {
    match params.get(key) {
        None | Some(Value::Null | Value::Bool(false)) => false,
        Some(Value::String(text)) => !text.is_empty(),
        Some(Value::Array(list)) => !list.is_empty(),
        Some(_) => true,
    }
}

/// Verbs whose parameters contain a document (A9).
const DOCUMENT_VERBS: [&str; 4] = ["plan", "apply", "part.restore", "part.bootcode"];

/// Whether the parameters of a verb contain a document, which may be long.
pub fn takes_document(verb: &str) -> bool {
    DOCUMENT_VERBS.contains(&verb)
}

fn permission(call: Call<'_>) -> Option<&'static Permission> {
    let (Call::Verb(name, _) | Call::Route(name)) = call;
    PERMISSIONS.iter().find(|of| of.name == name)
}

/// The role that a call needs; `None`: the call has no entry.
fn needed_role(call: Call<'_>) -> Option<Role> {
    let of = permission(call)?;
    let Call::Verb(name, params) = call else { return Some(of.role) };
    let class_verb = params.get("verb").and_then(Value::as_str).unwrap_or_default();
    if name == "geom" && is_reading_class_verb(class_verb) {
        return Some(Viewer);
    }
    let raised = of.raised_by.iter().filter(|(key, _)| is_given(params, key));
    raised.map(|(_, role)| *role).chain([of.role]).max()
}

/// Whether a call may change something: it is recorded in the audit log.
pub fn changes(call: Call<'_>) -> bool {
    let reads = matches!(call, Call::Verb("plan" | "token.list" | "audit", _));
    !reads && needed_role(call).is_none_or(|role| role > Viewer)
}

/// Whether a caller may make a call.
///
/// # Errors
/// [`Kind::Forbidden`] with the role or the parameter that is needed.
pub fn authorize(caller: &Caller, call: Call<'_>) -> Result<()> {
    let (Call::Verb(name, _) | Call::Route(name)) = call;
    let refused = |why: String, next: String| {
        Err(Error::new(Kind::Forbidden, "authorize", why).at(name).next(next))
    };
    let who = &caller.name;
    let Some(needed) = needed_role(call) else {
        // A call that does not exist is answered as such.
        return if caller.role == Admin && caller.scope.is_whole() {
            Ok(())
        } else {
            refused(format!("{who} may not make this call"), "Ask an admin.".to_owned())
        };
    };
    if caller.role < needed {
        let (has, needed) = (caller.role.label(), needed.label());
        let why = format!("{who} has the role {has}, and the call needs {needed}");
        let next = format!("Use a token of that role: ashlar token create NAME --role {needed}.");
        return refused(why, next);
    }
    if caller.scope.is_whole() || matches!(call, Call::Route("/openapi.json")) {
        return Ok(());
    }
    let accepted = permission(call).map_or(&[][..], |of| of.scope);
    for (key, value) in [("target", &caller.scope.target), ("group", &caller.scope.group)] {
        let Some(value) = value else { continue };
        if !accepted.contains(&key) {
            let why = format!("{who} is limited to {key} {value}, and the call cannot be limited");
            return refused(why, "Use a token without --target and --group.".to_owned());
        }
        let given = match call {
            Call::Verb(_, params) => params.get(key).and_then(Value::as_str),
            Call::Route(_) => None,
        };
        if given != Some(value.as_str()) {
            let why = format!("{who} is limited to {key} {value}");
            return refused(why, format!("Repeat the call with {key} {value}."));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::Scope;
    use crate::verbs::{Run, VERBS};
    use serde_json::json;

    fn caller(role: Role, target: Option<&str>, group: Option<&str>) -> Caller {
        let scope = Scope { target: target.map(str::to_owned), group: group.map(str::to_owned) };
        Caller { name: "token t".to_owned(), role, scope }
    }

    fn may(caller: &Caller, verb: &str, params: Value) -> bool {
        authorize(caller, Call::Verb(verb, &params)).is_ok()
    }

    #[test]
    fn a9_no_parameter_changes_the_permission_of_a_document_verb() {
        for name in DOCUMENT_VERBS {
            let of = permission(Call::Verb(name, &Value::Null)).expect(name);
            assert!(of.raised_by.is_empty() && of.scope.is_empty(), "{name}");
        }
        assert!(takes_document("apply") && !takes_document("geom"));
    }

    #[test]
    fn every_verb_and_route_has_one_permission() {
        let verbs = VERBS.iter().filter(|v| matches!(v.run, Run::Daemon(_))).map(|v| v.name);
        let document = crate::http::openapi::document();
        let paths = document["paths"].as_object().expect("paths").keys();
        let routes = paths.map(String::as_str).filter(|path| !path.starts_with("/v1/verbs/"));
        let known: Vec<&str> = verbs.chain(routes).collect();
        for name in &known {
            let entries = PERMISSIONS.iter().filter(|of| of.name == *name).count();
            assert_eq!(entries, 1, "{name}: add it to PERMISSIONS");
        }
        for of in PERMISSIONS {
            assert!(known.contains(&of.name), "{} exists no more", of.name);
            let entry = VERBS.iter().find(|v| v.name == of.name);
            let schema = entry.map_or(Value::Null, |v| (v.params)());
            for key in of.scope.iter().chain(of.raised_by.iter().map(|(key, _)| key)) {
                assert!(schema["properties"].get(*key).is_some(), "{}: {key}", of.name);
            }
        }
    }

    #[test]
    fn greater_roles_include_lesser_ones() {
        let all = [Viewer, Operator, Admin].map(|role| caller(role, None, None));
        for (verb, params, least) in [
            ("status", json!({}), 0),
            ("plan", json!({}), 1),
            ("apply", json!({}), 2),
            ("reservations", json!({ "clear": false }), 0),
            ("reservations", json!({ "clear": true }), 1),
            ("export", json!({}), 0),
            ("export", json!({ "secrets": true }), 2),
            ("geom", json!({ "class": "mirror", "verb": "status" }), 0),
            ("geom", json!({ "class": "mirror", "verb": "label" }), 2),
            ("token.create", json!({}), 2),
        ] {
            for (i, who) in all.iter().enumerate() {
                assert_eq!(may(who, verb, params.clone()), i >= least, "{verb} {params} {i}");
            }
        }
        assert!(!may(&all[1], "no.such.verb", json!({})));
    }

    #[test]
    fn limited_role_reaches_only_its_target_and_group() {
        let of_target = caller(Admin, Some("iqn.a:t"), None);
        assert!(may(&of_target, "sessions", json!({ "target": "iqn.a:t" })));
        assert!(!may(&of_target, "sessions", json!({})));
        assert!(!may(&of_target, "sessions", json!({ "target": "iqn.a:u" })));
        for verb in ["status", "list", "apply", "token.create", "no.such.verb"] {
            assert!(!may(&of_target, verb, json!({ "target": "iqn.a:t" })), "{verb}");
        }
        assert!(authorize(&of_target, Call::Route("/v1/state")).is_err());
        assert!(authorize(&of_target, Call::Route("/openapi.json")).is_ok());
        let of_group = caller(Viewer, Some("iqn.a:t"), Some("g"));
        assert!(may(&of_group, "sessions", json!({ "target": "iqn.a:t", "group": "g" })));
        assert!(!may(&of_group, "sessions", json!({ "target": "iqn.a:t" })));
        assert!(!may(&of_group, "access.check", json!({ "target": "iqn.a:t" })));
    }

    #[test]
    fn changes_are_distinguished_from_reads() {
        let none = Value::Null;
        for (verb, is) in [("apply", true), ("status", false), ("plan", false), ("wipe", true)] {
            assert_eq!(changes(Call::Verb(verb, &none)), is, "{verb}");
        }
        assert!(changes(Call::Verb("reservations", &json!({ "clear": true }))));
    }
}
