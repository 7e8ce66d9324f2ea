//! Permissions: the role that each verb and route needs, and the parameters that limit a call to
//! one target or group.
//!
//! Invariants
//!  A1  A verb or route without an entry is refused to every caller of the network; a test requires
//!      an entry for each.
//!  A2  A caller whose role is limited to a target may make only two kinds of calls. Some read the
//!      part of the state that its scope covers (A10). Others name this target, and with a group
//!      this group too. It may give a parameter that raises the role only if the call changes an
//!      object that its scope covers alone (`Control::change_own`).
//!  A9  No parameter changes the permission of a verb that takes a document, so that it is decided
//!      before the document is read.
//!  A13  A verb reads its parameters by the keys by which the permission is decided: parameters
//!       that are no object are refused.

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
    /// The call reads and finds objects only through `Control::state`, `config` and `journal`,
    /// which contain the objects of the caller's scope, and samples only of objects that it found
    /// there. It then need not name the target. It changes only objects that this scope covers
    /// alone.
    is_limited: bool,
}

const fn need(name: &'static str, role: Role) -> Permission {
    Permission { name, role, raised_by: &[], scope: &[], is_limited: false }
}

impl Permission {
    const fn raised_by(self, raised_by: &'static [(&'static str, Role)]) -> Permission {
        Permission { raised_by, ..self }
    }

    /// See [`Permission::is_limited`].
    const fn limited(self) -> Permission {
        Permission { is_limited: true, ..self }
    }

    const fn within(self, scope: &'static [&'static str]) -> Permission {
        Permission { scope, ..self }
    }
}

/// Every verb of the daemon and every route.
const PERMISSIONS: &[Permission] = &[
    need("/", Viewer).limited(),
    need("/access", Viewer).limited(),
    // Permissions of the file server are not checked there.
    need("/files", Admin),
    need("/files/folder", Admin),
    need("/files/versions", Admin),
    need("/files/compare", Admin),
    need("/files/content", Admin),
    need("/v1/schema", Viewer).limited(),
    need("/v1/view", Viewer).limited(),
    need("/v1/state", Viewer).limited(),
    need("/v1/events", Viewer).limited(),
    need("/v1/trace", Operator).limited(),
    need("/metrics", Viewer).limited(),
    need("/openapi.json", Viewer).limited(),
    need("status", Viewer).limited(),
    need("tree", Viewer).limited(),
    need("graph", Viewer).limited(),
    need("list", Viewer).limited(),
    need("sessions", Viewer).within(&["target", "group"]).limited(),
    need("sessions.end", Operator).limited(),
    need("rates", Viewer).limited(),
    need("reservations", Viewer).raised_by(&[("clear", Operator)]).limited(),
    need("journal", Viewer).limited(),
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
    need("access.check", Viewer).within(&["target"]).limited(),
    need("access.who", Viewer).limited(),
    need("alua.show", Viewer).limited(),
    need("alua.set", Operator).limited(),
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
            let next = "Use a token of the role admin without --target and --group.".to_owned();
            refused(format!("{who} may not make this call"), next)
        };
    };
    if caller.role < needed {
        let (has, needed) = (caller.role.label(), needed.label());
        let why = format!("{who} has the role {has}, and the call needs {needed}");
        let next = format!("Use a token of that role: ashlar token create NAME --role {needed}.");
        return refused(why, next);
    }
    refuse_outside(caller, call).map_or(Ok(()), |(why, next)| refused(why, next))
}

/// Reason why the scope of a caller does not cover a call, and the next step (A2).
fn refuse_outside(caller: &Caller, call: Call<'_>) -> Option<(String, String)> {
    if caller.scope.is_whole() {
        return None;
    }
    let who = &caller.name;
    let unlimited = || "Use a token without --target and --group.".to_owned();
    let Some(of) = permission(call) else {
        return Some((format!("{who} may not make this call"), unlimited()));
    };
    let given = |key: &str| match call {
        Call::Verb(_, params) if is_given(params, key) => params.get(key),
        _ => None,
    };
    let mut raised = of.raised_by.iter().filter(|_| !of.is_limited);
    if let Some((key, _)) = raised.find(|(key, _)| given(key).is_some()) {
        let scope = &caller.scope;
        let why = format!("{who} is limited to {scope}, but `{key}` needs the whole daemon");
        return Some((why, unlimited()));
    }
    for (key, value) in [("target", &caller.scope.target), ("group", &caller.scope.group)] {
        let Some(value) = value else { continue };
        let is_key = of.scope.contains(&key);
        let given = given(key).filter(|_| is_key);
        if given.is_none() && of.is_limited || given.is_some_and(|given| given == value.as_str()) {
            continue;
        }
        let why = format!("{who} is limited to {key} {value}");
        return Some(match is_key {
            true => (why, format!("Repeat the call with {key} {value}.")),
            false => (why + ", and the call cannot be limited", unlimited()),
        });
    }
    None
}

#[cfg(test)]
#[path = "limited_tests.rs"]
mod limited_tests;

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

    /// A1.
    #[test]
    fn every_verb_and_route_has_one_permission() {
        let verbs = VERBS.iter().filter(|v| matches!(v.run, Run::Daemon(_))).map(|v| v.name);
        let document = crate::http::openapi::document(&[]);
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
        let unknown = authorize(&all[1], Call::Verb("no.such.verb", &json!({})));
        let refused = unknown.expect_err("only an admin receives that it does not exist");
        assert!(refused.advice().contains("role admin"), "{refused}");
    }

    #[test]
    fn a2_limited_role_reads_its_part_and_names_its_target() {
        let of_target = caller(Admin, Some("iqn.a:t"), None);
        let own = json!({ "target": "iqn.a:t" });
        for verb in ["status", "tree", "list", "sessions", "reservations", "journal", "alua.show"] {
            assert!(may(&of_target, verb, json!({})), "{verb}");
        }
        assert!(may(&of_target, "rates", json!({ "object": "d0" })), "the charts of the page");
        assert!(may(&of_target, "sessions", own.clone()));
        assert!(!may(&of_target, "sessions", json!({ "target": "iqn.a:u" })));
        assert!(may(&of_target, "sessions.end", json!({ "id": "7", "yes": true })));
        assert!(may(&of_target, "attach", own.clone()));
        assert!(!may(&of_target, "attach", json!({ "list": true })), "it names no target");
        for verb in ["plan", "apply", "undo", "export", "history", "token.create", "geom", "x"] {
            assert!(!may(&of_target, verb, own.clone()), "{verb}");
        }
        assert!(may(&of_target, "reservations", json!({ "provider": "d0", "clear": true })));
        assert!(may(&of_target, "alua.set", json!({ "group": "p", "state": "standby" })));
        assert!(!may(&of_target, "export", json!({ "secrets": true })));
        let of_group = caller(Viewer, Some("iqn.a:t"), Some("g"));
        assert!(may(&of_group, "sessions", json!({ "target": "iqn.a:t", "group": "g" })));
        assert!(may(&of_group, "sessions", own.clone()));
        assert!(!may(&of_group, "sessions", json!({ "group": "h" })));
        assert!(may(&of_group, "access.check", own.clone()));
        assert!(!may(&of_group, "sessions.end", json!({ "id": "7" })), "its role is lower");
        assert!(!may(&caller(Admin, Some("iqn.a:t"), Some("g")), "detach", own));
    }

    #[test]
    fn a2_limited_role_may_use_routes_of_its_part() {
        let of_group = caller(Viewer, Some("iqn.a:t"), Some("g"));
        let routes = PERMISSIONS.iter().filter(|of| of.name.starts_with('/'));
        for of in routes {
            let is_of_all = of.name.starts_with("/files") || of.role > Viewer;
            let may = authorize(&of_group, Call::Route(of.name)).is_ok();
            assert_eq!(may, !is_of_all, "{}", of.name);
        }
        assert!(authorize(&of_group, Call::Route("/v1/other")).is_err());
        let operator = caller(Operator, Some("iqn.a:t"), Some("g"));
        assert!(authorize(&operator, Call::Route("/v1/trace")).is_ok());
    }

    #[test]
    fn manual_lists_the_calls_of_limited_tokens() {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let manual = std::fs::read_to_string(root.join("docs/security.md")).expect("a page");
        let (_, section) = manual.split_once("\n## Limited tokens\n").expect("a section");
        let role = |verb: &str| {
            let family = verb.split('.').next().unwrap_or_default();
            let names = [format!("`{verb}`"), format!("`{family}.*`")];
            let mut rows = section.lines().filter(|line| line.starts_with("| "));
            let row = rows.find(|row| names.iter().any(|name| row.contains(name.as_str())))?;
            row.split(['|', '`', ' ']).find(|word| !word.is_empty())
        };
        for of in PERMISSIONS.iter().filter(|of| !of.name.starts_with('/')) {
            let may = of.is_limited || !of.scope.is_empty();
            let expected = if may { of.role.label() } else { "none" };
            assert_eq!(role(of.name), Some(expected), "{}", of.name);
        }
    }

    #[test]
    fn refusal_of_a_limited_role_names_the_scope_and_the_next_step() {
        let of_target = caller(Admin, Some("iqn.a:t"), None);
        let error = |verb: &str, params: Value| {
            authorize(&of_target, Call::Verb(verb, &params)).expect_err(verb).to_string()
        };
        let whole = error("apply", json!({}));
        assert!(whole.contains("token t is limited to target iqn.a:t"), "{whole}");
        assert!(whole.contains("without --target"), "{whole}");
        let other = error("sessions", json!({ "target": "iqn.a:u" }));
        assert!(other.contains("Repeat the call with target iqn.a:t."), "{other}");
        let raised = error("export", json!({ "secrets": true }));
        assert!(raised.contains("`secrets`"), "{raised}");
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
