//! OpenAPI 3.1 document of the API, written from the table of verbs and from those of the classes.

use super::class_verbs::{self, CLASS_CALL, CLASSES_TAG};
use super::components::Components;
use super::metrics::TEXT_TYPE;
use crate::api::{Error, SCHEMA_VERSION, SystemState, TraceQuery, TraceState};
use crate::cli::ClassVerbs;
use crate::page::{self, View};
use crate::verbs::{Run, VERBS};
use serde_json::{Map, Value, json};

/// Path of the verbs, before the name of one.
pub(crate) const VERBS_PREFIX: &str = "/v1/verbs/";

/// Content type of most answers.
pub(super) const JSON: &str = "application/json";

/// Content type of a downloaded file of any kind.
pub(super) const BYTES: &str = "application/octet-stream";

/// A parameter of a route.
struct Parameter {
    name: &'static str,
    place: &'static str,
    kind: &'static str,
    doc: &'static str,
    required: bool,
}

type Parameters = &'static [Parameter];

const fn parameter(name: &'static str, kind: &'static str, doc: &'static str) -> Parameter {
    Parameter { name, place: "query", kind, doc, required: false }
}

/// A route that is not a verb.
struct Route {
    path: &'static str,
    id: &'static str,
    doc: &'static str,
    parameters: Parameters,
    content_type: &'static str,
    answer: fn(&mut Components) -> Value,
}

const EVENT_PARAMETERS: Parameters = &[
    parameter(
        "after",
        "integer",
        "Number of the last event that the client has; absent: all kept events.",
    ),
    Parameter {
        place: "header",
        ..parameter(
            "Last-Event-ID",
            "integer",
            "The same, as clients of server-sent events repeat it; precedes `after`.",
        )
    },
];

/// Field of a request with the key of a change.
pub(crate) const IDEMPOTENCY_KEY: &str = "Idempotency-Key";

const KEY_PARAMETERS: Parameters = &[Parameter {
    place: "header",
    ..parameter(
        IDEMPOTENCY_KEY,
        "string",
        "Key of a change. A request that is repeated with it is answered as the first one.",
    )
}];

const VIEW_PARAMETERS: Parameters = &[
    parameter("find", "string", "Text that the names of the shown objects contain."),
    parameter("at", "string", "Identifier of the object whose details are shown."),
    parameter("unfold", "string", "Identifier of the folded node whose objects are drawn."),
];

const TRACE_PARAMETERS: Parameters = &[
    Parameter {
        required: true,
        ..parameter("slow_ns", "integer", "Least time of a request, in nanoseconds.")
    },
    parameter(
        "after",
        "integer",
        "Number of the last request that the client has; absent: only begin.",
    ),
    parameter("lun", "string", "Provider of the LUN."),
    parameter("geom", "string", "Geom that the requests passed, as `mirror:data` or `data`."),
];

const ROUTES: &[Route] = &[
    Route {
        path: "/v1/state",
        id: "state",
        doc: "Show the state",
        parameters: &[],
        content_type: JSON,
        answer: |components| components.add(geom::schema_of::<SystemState>()),
    },
    Route {
        path: "/v1/view",
        id: "view",
        doc: "Show the contents of the page",
        parameters: VIEW_PARAMETERS,
        content_type: JSON,
        answer: |components| components.add(geom::schema_of::<View>()),
    },
    Route {
        path: "/",
        id: "page",
        doc: "Show the page",
        parameters: VIEW_PARAMETERS,
        content_type: "text/html",
        answer: text,
    },
    Route {
        path: "/v1/events",
        id: "events",
        doc: "Stream the journal",
        parameters: EVENT_PARAMETERS,
        content_type: "text/event-stream",
        answer: text,
    },
    Route {
        path: TraceQuery::PATH,
        id: "trace",
        doc: "Show slow requests, and record them for 5 s",
        parameters: TRACE_PARAMETERS,
        content_type: JSON,
        answer: |components| components.add(geom::schema_of::<TraceState>()),
    },
    Route {
        path: "/metrics",
        id: "metrics",
        doc: "Show the metrics, as text or by `Accept` as protobuf",
        parameters: &[],
        content_type: TEXT_TYPE,
        answer: text,
    },
    Route {
        path: "/v1/schema",
        id: "schema",
        doc: "Show the JSON Schema of `ashlar.toml`",
        parameters: &[],
        content_type: JSON,
        answer: |components| document_of(components, "SchemaDocument", "JSON Schema 2020-12."),
    },
    Route {
        path: "/openapi.json",
        id: "openapi",
        doc: "Show this document",
        parameters: &[],
        content_type: JSON,
        answer: |components| document_of(components, "OpenapiDocument", "OpenAPI 3.1."),
    },
];

fn text(_: &mut Components) -> Value {
    json!({ "type": "string" })
}

/// A document with a format of its own.
fn document_of(components: &mut Components, name: &str, doc: &str) -> Value {
    let schema = json!({ "type": "object", "description": doc, "additionalProperties": true });
    components.add_as(name, schema)
}

/// The words of a name, as names of schemas have them: `PartAdd` for `part.add`.
pub(super) fn camel_case(name: &str) -> String {
    let word = |word: &str| {
        let mut letters = word.chars();
        let first = letters.next().map(|letter| letter.to_ascii_uppercase());
        first.into_iter().chain(letters).collect::<String>()
    };
    name.split(['.', '_', '-']).map(word).collect()
}

/// Name of the parameters of a verb: `PartAddParams` for `part.add`.
pub(super) fn params_name(verb: &str) -> String {
    format!("{}Params", camel_case(verb))
}

/// A verb as its operation names and describes it.
pub(super) struct Operation<'v> {
    pub(super) name: &'v str,
    pub(super) tag: &'static str,
    pub(super) doc: &'v str,
    pub(super) detail: &'v str,
}

/// The operation of a verb, with references to its parameters and its answer.
pub(super) fn operation(of: &Operation<'_>, params: Value, answer: Value, error: &Value) -> Value {
    json!({
        "operationId": of.name.replace(['.', '-'], "_"),
        "tags": [of.tag],
        "summary": of.doc,
        "description": of.detail,
        "parameters": parameters(KEY_PARAMETERS),
        "requestBody": { "content": { JSON: { "schema": params } } },
        "responses": responses(answer, JSON, error),
    })
}

/// Adds the operations of the verbs, those of classes behind the verb that calls them.
fn add_verbs(
    paths: &mut Map<String, Value>,
    components: &mut Components,
    classes: &[ClassVerbs],
    error: &Value,
) {
    for verb in VERBS.iter().filter(|v| matches!(v.run, Run::Daemon(_))) {
        let params = components.add_as(&params_name(verb.name), (verb.params)());
        let mut answer = (verb.answer)();
        if verb.name == CLASS_CALL && !classes.is_empty() {
            let any = class_verbs::add_operations(paths, components, classes, error);
            answer["properties"]["answer"] = any;
        }
        let answer = components.add(answer);
        let (name, doc, detail) = (verb.name, verb.doc, verb.detail);
        let of = Operation { name, tag: "verbs", doc, detail };
        let operation = operation(&of, params, answer, error);
        paths.insert(format!("{VERBS_PREFIX}{name}"), json!({ "post": operation }));
    }
}

fn responses(answer: Value, content_type: &str, error: &Value) -> Value {
    json!({
        "200": { "description": "Done.", "content": { content_type: { "schema": answer } } },
        "default": {
            "description": "Refused or failed.",
            "content": { JSON: { "schema": error } },
        },
    })
}

/// The body of a refusal.
fn error_answer(components: &mut Components) -> Value {
    let error = components.add(geom::schema_of::<Error>());
    let schema = json!({
        "type": "object",
        "description": "Answer of a request that was refused or failed.",
        "properties": { "error": error },
        "required": ["error"],
    });
    components.add_as("ErrorAnswer", schema)
}

fn parameters(of: &[Parameter]) -> Value {
    let one = |of: &Parameter| {
        json!({
            "name": of.name,
            "in": of.place,
            "description": of.doc,
            "required": of.required,
            "schema": { "type": of.kind },
        })
    };
    Value::Array(of.iter().map(one).collect())
}

/// The description of a field in the queries of pages without a script.
fn field_text(name: &str) -> &'static str {
    match name {
        "server" => "Name of the file server.",
        "path" => "Path from the root; /dump/2026/1121/... for a file of a dump.",
        "old" => "Path of the older file.",
        "new" => "Path of the newer file.",
        "target" => "Name of the target; absent: the first one.",
        "find" => "Part of the names of the shown initiators and providers.",
        "initiator" => "Name of an initiator whose LUNs are listed.",
        "column" => "Number of the first column; the link to the next ones has it.",
        "year" => "Year of the calendar; absent: the newest one with a dump.",
        _ => "Number at which the rows begin; the link to the next rows has it.",
    }
}

/// The document, with the answers of these classes.
pub fn document(classes: &[ClassVerbs]) -> Value {
    let mut components = Components::default();
    let mut paths = Map::new();
    let error = error_answer(&mut components);
    add_verbs(&mut paths, &mut components, classes, &error);
    for (path, doc, fields) in page::files::ROUTES.iter().chain([&page::ACCESS_ROUTE]) {
        let fields: Vec<Parameter> =
            fields.iter().map(|name| parameter(name, "string", field_text(name))).collect();
        let (answer, content_type) = match *path {
            page::files::CONTENT => (json!({ "type": "string", "format": "binary" }), BYTES),
            _ => (text(&mut components), "text/html"),
        };
        let operation = json!({
            "operationId": format!("get{}", path.replace('/', "_")),
            "tags": ["routes"],
            "summary": doc,
            "parameters": parameters(&fields),
            "responses": responses(answer, content_type, &error),
        });
        paths.insert((*path).to_owned(), json!({ "get": operation }));
    }
    for route in ROUTES {
        let answer = (route.answer)(&mut components);
        let operation = json!({
            "operationId": format!("get_{}", route.id),
            "tags": ["routes"],
            "summary": route.doc,
            "parameters": parameters(route.parameters),
            "responses": responses(answer, route.content_type, &error),
        });
        paths.insert(route.path.to_owned(), json!({ "get": operation }));
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Ashlar",
            "version": SCHEMA_VERSION.to_string(),
            "summary": "The API of the daemon",
        },
        // Without a token: the control socket, and clients with a certificate.
        "security": [{ "token": [] }, {}],
        "tags": [{ "name": "verbs" }, { "name": CLASSES_TAG }, { "name": "routes" }],
        "paths": paths,
        "components": {
            "schemas": components.into_schemas(),
            "securitySchemes": { "token": { "type": "http", "scheme": "bearer" } },
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

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

    /// The operations with their paths.
    fn operations(document: &Value) -> Vec<(&String, &Value)> {
        let mut out = Vec::new();
        for (path, methods) in document["paths"].as_object().expect("paths") {
            let methods = methods.as_object().expect("methods").values();
            out.extend(methods.map(|operation| (path, operation)));
        }
        out
    }

    fn is_set(schema: &Value, key: &str) -> bool {
        schema.get(key).is_some()
    }

    /// Collects the classes that openapi-python-client makes of a schema and of those within it,
    /// and the places of schemas that it cannot read.
    fn walk(schema: &Value, parent: &str, name: &str, classes: &mut Vec<String>) {
        assert!(schema.is_object(), "{parent} {name}: {schema}");
        if is_set(schema, "$ref") {
            return;
        }
        let own = format!("{parent}{name}");
        let is_object = schema["type"] == "object" || is_set(schema, "properties");
        if is_object || is_set(schema, "enum") {
            classes.push(own.clone());
        }
        for (key, inner) in schema["properties"].as_object().into_iter().flatten() {
            walk(inner, &own, key, classes);
        }
        let others = schema.get("additionalProperties").filter(|others| !others.is_boolean());
        others.into_iter().for_each(|inner| walk(inner, &own, "AdditionalProperty", classes));
        if schema["type"] == "array" && !is_set(schema, "prefixItems") {
            walk(&schema["items"], parent, &format!("{name}Item"), classes);
        }
        for key in ["anyOf", "oneOf", "prefixItems"] {
            for (i, inner) in schema[key].as_array().into_iter().flatten().enumerate() {
                walk(inner, parent, &format!("{name}Type{i}"), classes);
            }
        }
        let values = schema["enum"].as_array().into_iter().flatten();
        let kinds: BTreeSet<bool> = values.map(Value::is_string).collect();
        assert!(kinds.len() < 2, "{own}: an enumeration of texts and numbers");
    }

    /// A name as files of Python modules have it, without the signs that it may lose.
    fn folded(name: &str) -> String {
        let letters = name.chars().filter(char::is_ascii_alphanumeric);
        letters.map(|c| c.to_ascii_lowercase()).collect()
    }

    #[track_caller]
    fn assert_unique(names: impl IntoIterator<Item = String>) {
        let mut seen = BTreeSet::new();
        let twice: Vec<String> = names.into_iter().filter(|n| !seen.insert(folded(n))).collect();
        assert!(twice.is_empty(), "{twice:?}");
    }

    #[test]
    fn openapi_references_resolve_and_every_verb_has_a_path() {
        let document = document(&[]);
        let mut paths = Vec::new();
        references(&document, &mut paths);
        assert!(paths.len() > 20, "{}", paths.len());
        for path in paths {
            let found = document.pointer(path.trim_start_matches('#'));
            assert!(path.starts_with("#/components/") && found.is_some(), "{path}");
        }
        for verb in VERBS.iter().filter(|v| matches!(v.run, Run::Daemon(_))) {
            assert!(document["paths"].get(format!("/v1/verbs/{}", verb.name)).is_some());
        }
    }

    /// openapi-python-client refuses schemas that are booleans and arrays without items, and makes
    /// one class of each object and enumeration, whose names must differ.
    #[test]
    fn openapi_schemas_make_python_classes_with_different_names() {
        let document = document(&[]);
        let schemas = document["components"]["schemas"].as_object().expect("schemas");
        let mut classes = Vec::new();
        for (name, schema) in schemas {
            walk(schema, "", name, &mut classes);
        }
        assert!(classes.len() > 100, "{}", classes.len());
        assert_unique(classes);
    }

    #[test]
    fn openapi_operations_have_their_own_ids_and_typed_answers() {
        let document = document(&[]);
        let all = operations(&document);
        assert_unique(all.iter().map(|(_, of)| of["operationId"].to_string()));
        for (path, operation) in all {
            for status in ["200", "default"] {
                let content = operation["responses"][status]["content"].as_object();
                let (kind, media) = content.and_then(|all| all.iter().next()).expect(path);
                let schema = &media["schema"];
                let is_text = kind.starts_with("text/") && schema["type"] == "string";
                let is_file = kind == BYTES && schema["format"] == "binary";
                let is_typed = is_text || is_file || is_set(schema, "$ref");
                assert!(is_typed, "{path} {status}: {schema}");
            }
            let body = operation.pointer("/requestBody/content/application~1json/schema");
            assert!(body.is_none_or(|schema| is_set(schema, "$ref")), "{path}");
        }
    }

    #[test]
    fn params_are_named_after_their_verbs() {
        assert_eq!(params_name("part.add"), "PartAddParams");
        assert_eq!(params_name("plan"), "PlanParams");
    }
}
