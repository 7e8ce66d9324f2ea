//! OpenAPI 3.1, written from the table of verbs.

use crate::api::{Error, SCHEMA_VERSION, SystemState};
use crate::page::View;
use crate::verbs::{Run, VERBS};
use serde_json::{Map, Value, json};

/// The schema of any value as `{}`: generators of clients refuse its short form `true`.
fn object_schema(schema: Value) -> Value {
    if schema == Value::Bool(true) { json!({}) } else { schema }
}

/// Moves the `$defs` of a schema to the document's components and points the references there.
fn move_defs(schema: Value, components: &mut Map<String, Value>) -> Value {
    match schema {
        Value::Object(mut fields) => {
            fields.remove("$schema");
            if let Some(Value::Object(defs)) = fields.remove("$defs") {
                for (name, def) in defs {
                    let def = move_defs(def, components);
                    components.insert(name, object_schema(def));
                }
            }
            if let Some(Value::String(path)) = fields.get_mut("$ref") {
                *path = path.replace("#/$defs/", "#/components/schemas/");
            }
            let rest = fields.into_iter().map(|(k, v)| {
                let moved = match (k.as_str(), move_defs(v, components)) {
                    ("items", v) => object_schema(v),
                    ("properties", Value::Object(all)) => {
                        all.into_iter().map(|(key, v)| (key, object_schema(v))).collect()
                    }
                    (_, v) => v,
                };
                (k, moved)
            });
            Value::Object(rest.collect())
        }
        Value::Array(list) => {
            Value::Array(list.into_iter().map(|v| move_defs(v, components)).collect())
        }
        other => other,
    }
}

fn responses(schema: Value, kind: &str) -> Value {
    json!({
        "200": { "description": "Done.", "content": { kind: { "schema": schema } } },
        "default": {
            "description": "Refused or failed.",
            "content": { "application/json": { "schema": {
                "type": "object",
                "properties": { "error": { "$ref": "#/components/schemas/Error" } },
            } } },
        },
    })
}

/// Path of the verbs, before the name of one.
pub(crate) const VERBS_PREFIX: &str = "/v1/verbs/";

/// Content type of most answers.
pub(super) const JSON: &str = "application/json";

/// Content type of the metrics.
pub(super) const METRICS_TYPE: &str = "text/plain; version=0.0.4";

/// The document.
pub fn document() -> Value {
    let mut components = Map::new();
    let mut paths = Map::new();
    for verb in VERBS.iter().filter(|v| matches!(v.run, Run::Daemon(_))) {
        let params = move_defs((verb.params)(), &mut components);
        let answer = move_defs((verb.answer)(), &mut components);
        let operation = json!({
            "operationId": verb.name,
            "summary": verb.doc,
            "description": verb.detail,
            "requestBody": { "content": { "application/json": { "schema": params } } },
            "responses": responses(answer, JSON),
        });
        paths.insert(format!("{VERBS_PREFIX}{}", verb.name), json!({ "post": operation }));
    }
    let error = move_defs(schemars::schema_for!(Error).to_value(), &mut components);
    components.insert("Error".to_owned(), error);
    let state = move_defs(schemars::schema_for!(SystemState).to_value(), &mut components);
    let view = move_defs(schemars::schema_for!(View).to_value(), &mut components);
    let (text, object) = (json!({ "type": "string" }), json!({ "type": "object" }));
    let after = json!([{
        "name": "after",
        "in": "query",
        "description": "Number of the last event that the client has; absent: all kept events.",
        "schema": { "type": "integer" },
    }]);
    let text_of = |name: &str, description: &str| {
        json!({
            "name": name,
            "in": "query",
            "description": description,
            "schema": { "type": "string" },
        })
    };
    let selection = json!([
        text_of("find", "Text that the names of the shown objects contain."),
        text_of("at", "Identifier of the object whose details are shown."),
    ]);
    let none = json!([]);
    for (path, doc, parameters, schema, kind) in [
        ("/v1/state", "Show the state", &none, state, JSON),
        ("/v1/view", "Show the contents of the page", &selection, view, JSON),
        ("/", "Show the page", &selection, text.clone(), "text/html"),
        ("/v1/events", "Stream the journal", &after, text.clone(), "text/event-stream"),
        ("/metrics", "Show the metrics", &none, text, METRICS_TYPE),
        ("/v1/schema", "Show the JSON Schema of `ashlar.toml`", &none, object.clone(), JSON),
        ("/openapi.json", "Show this document", &none, object, JSON),
    ] {
        let operation = json!({
            "summary": doc,
            "parameters": parameters,
            "responses": responses(schema, kind),
        });
        paths.insert(path.to_owned(), json!({ "get": operation }));
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Ashlar",
            "version": SCHEMA_VERSION.to_string(),
            "summary": "The control socket of the daemon",
        },
        "paths": paths,
        "components": { "schemas": components },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn references(value: &Value, out: &mut Vec<String>) {
        match value {
            Value::Object(fields) => fields.iter().for_each(|(key, v)| match v {
                Value::String(path) if key == "$ref" => out.push(path.clone()),
                other => references(other, out),
            }),
            Value::Array(list) => list.iter().for_each(|v| references(v, out)),
            _ => {}
        }
    }

    /// Places of schemas that are written as a boolean.
    fn boolean_schemas(value: &Value, at: &str, out: &mut Vec<String>) {
        match value {
            Value::Object(fields) => fields.iter().for_each(|(key, v)| {
                let at = format!("{at}/{key}");
                let is_schema = key == "items" || at.rsplit('/').nth(1) == Some("properties");
                if is_schema && v.is_boolean() {
                    out.push(at.clone());
                }
                boolean_schemas(v, &at, out);
            }),
            Value::Array(list) => list.iter().for_each(|v| boolean_schemas(v, at, out)),
            _ => {}
        }
    }

    #[test]
    fn openapi_has_no_schema_that_is_a_boolean() {
        let document = document();
        let mut found = Vec::new();
        boolean_schemas(&document, "", &mut found);
        let all = document["components"]["schemas"].as_object().expect("an object");
        found.extend(all.iter().filter(|(_, v)| v.is_boolean()).map(|(name, _)| name.clone()));
        assert!(found.is_empty(), "{found:?}");
    }

    #[test]
    fn openapi_references_resolve_and_every_verb_has_a_path() {
        let document = document();
        let mut paths = Vec::new();
        references(&document, &mut paths);
        assert!(paths.len() > 20, "{}", paths.len());
        for path in paths {
            let found = document.pointer(path.trim_start_matches('#'));
            assert!(found.is_some(), "{path}");
        }
        for verb in VERBS.iter().filter(|v| matches!(v.run, Run::Daemon(_))) {
            assert!(document["paths"].get(format!("/v1/verbs/{}", verb.name)).is_some());
        }
    }
}
