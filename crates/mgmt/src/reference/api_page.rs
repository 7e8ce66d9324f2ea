//! Parts of the page of the API: the OpenAPI document, the kinds of errors, and the requests that
//! the examples of the verbs make.

use std::collections::BTreeMap;

use clap::Command;
use serde_json::Value;

use super::marked::Part;
use super::page::Page;
use crate::api::Kind;
use crate::cli::{ClassVerbs, command, parse_by};
use crate::config::schema::{enum_values, types_of};
use crate::http::class_verbs::{CLASS_CALL, CLASSES_TAG};
use crate::http::components::SCHEMAS;
use crate::http::openapi::{VERBS_PREFIX, document};
use crate::verbs::find;
use crate::verbs::schema::{enum_names, follow_ref, rows_within};

/// Value in an example of a key that the command reads from a file.
const OMITTED: &str = "...";

pub(super) fn parts(classes: &[ClassVerbs]) -> Vec<Part> {
    let document = document(classes);
    let parts = [
        ("routes", routes(&document)),
        ("verbs", verbs(&document, classes)),
        ("errors", errors()),
        ("schemas", schemas(&document)),
    ];
    parts.map(|(name, text)| (name.to_owned(), text)).into()
}

/// One operation of the document.
struct Operation<'d> {
    method: String,
    path: &'d str,
    value: &'d Value,
}

impl Operation<'_> {
    fn summary(&self) -> &str {
        self.value.get("summary").and_then(Value::as_str).unwrap_or_default()
    }

    /// Content type and schema of its answer.
    fn answer(&self) -> Option<(&String, &Value)> {
        let content = self.value.pointer("/responses/200/content")?.as_object()?;
        let (kind, answer) = content.iter().next()?;
        Some((kind, answer.get("schema")?))
    }

    /// Name of the schema of its answer, if that has one.
    fn answer_name(&self) -> Option<&str> {
        referred(self.answer()?.1)
    }

    /// Whether it is a verb of a class.
    fn is_of_class(&self) -> bool {
        self.value.pointer("/tags/0").is_some_and(|tag| tag == CLASSES_TAG)
    }

    /// A reference to the schema of its body.
    fn body(&self) -> Option<&Value> {
        self.value.pointer("/requestBody/content/application~1json/schema")
    }
}

/// The name in a reference to a schema.
fn referred(schema: &Value) -> Option<&str> {
    schema.get("$ref")?.as_str()?.strip_prefix(SCHEMAS)
}

fn operations(document: &Value) -> Vec<Operation<'_>> {
    let paths = document.get("paths").and_then(Value::as_object);
    let mut out = Vec::new();
    for (path, methods) in paths.into_iter().flatten() {
        let methods = methods.as_object().into_iter().flatten();
        out.extend(methods.map(|(method, value)| Operation {
            method: method.to_uppercase(),
            path,
            value,
        }));
    }
    out
}

fn routes(document: &Value) -> String {
    let row = |of: &Operation<'_>| {
        let names = of.value.get("parameters").and_then(Value::as_array).into_iter().flatten();
        let names = names.filter_map(|parameter| {
            let doc = parameter.get("description")?.as_str()?;
            Some(format!("`{}`: {doc}", parameter.get("name")?.as_str()?))
        });
        let names: Vec<String> = names.collect();
        let kind = of.answer().map_or(String::new(), |(kind, _)| format!("`{kind}`"));
        let path = format!("`{}`", of.path);
        vec![of.method.clone(), path, of.summary().to_owned(), names.join(" "), kind]
    };
    let all = operations(document);
    let own = all.iter().filter(|of| !of.path.starts_with(VERBS_PREFIX));
    let mut rows: Vec<Vec<String>> = own.map(row).collect();
    let path = format!("`{VERBS_PREFIX}NAME`");
    let answers = "`application/json`, or `application/x-ndjson` with [progress](#progress)";
    let of_verbs = ["POST", path.as_str(), "Run a [verb](#verbs)", "its own", answers];
    rows.push(of_verbs.map(str::to_owned).into());
    let mut page = Page::part();
    page.table(&["method", "path", "does", "parameters", "answer"], &rows);
    page.finish()
}

fn verbs(document: &Value, classes: &[ClassVerbs]) -> String {
    let whole = command(classes);
    let mut page = Page::part();
    let all = operations(document);
    let calls: Vec<Vec<String>> = all.iter().filter_map(class_call).collect();
    for of in all.iter().filter(|of| !of.is_of_class()) {
        let Some(name) = of.path.strip_prefix(VERBS_PREFIX) else { continue };
        page.head(3, &format!("`{} {}`", of.method, of.path));
        page.text(&format!("{}: {}.", of.summary(), command_link(name)));
        match of.body().map(|body| parameters(document, follow_ref(document, body))) {
            Some(rows) if !rows.is_empty() => {
                page.table(&["parameter", "type", "default", "meaning"], &rows);
            }
            _ => page.text("No parameters."),
        }
        if let Some(name) = of.answer_name() {
            page.text(&format!("Answer: {}.", link_to(name)));
        }
        if name == CLASS_CALL && !calls.is_empty() {
            page.text("Each verb of a class has a path, with its own parameters and answer:");
            page.table(&["path", "command, with the parameters", "answer"], &calls);
        }
        if let Some(body) = example(name, &whole, classes) {
            page.block("http", &format!("{} {}\n\n{body}", of.method, of.path));
        }
    }
    page.finish()
}

/// A link to the command of a verb, where its parameters are.
fn command_link(name: &str) -> String {
    let words = name.replace('.', " ");
    format!("[`ashlar {words}`](verbs.md#ashlar-{})", words.replace(' ', "-"))
}

/// Row of the verb of a class.
fn class_call(of: &Operation<'_>) -> Option<Vec<String>> {
    let name = of.path.strip_prefix(VERBS_PREFIX).filter(|_| of.is_of_class())?;
    let answer = of.answer_name().map(link_to).unwrap_or_default();
    Some(vec![format!("`{}`", of.path), command_link(name), answer])
}

/// A property of a schema, with its type as the page writes it.
fn property_type(document: &Value, schema: &Value, key: &str) -> Option<String> {
    let property = schema.get("properties")?.get(key)?;
    Some(type_of(document, property))
}

fn parameters(document: &Value, body: &Value) -> Vec<Vec<String>> {
    let rows = rows_within(document, body).into_iter();
    let row = |[key, kind, default, _, doc]: [String; 5]| {
        let kind = property_type(document, body, &key).unwrap_or(kind);
        vec![format!("`{key}`"), kind, default, doc]
    };
    rows.map(row).collect()
}

/// The body of the request with the most keys among the examples of a verb.
fn example(name: &str, whole: &Command, classes: &[ClassVerbs]) -> Option<String> {
    let verb = find(name)?;
    let examples = verb.examples().into_iter();
    let requests = examples.filter_map(|line| parse_by(whole, classes, &line).ok());
    let own = requests.filter(|(entry, _)| entry.name == name).map(|(_, params)| params);
    let mut params = own.max_by_key(|params| params.as_object().map_or(0, |keys| keys.len()))?;
    let keys = params.as_object_mut()?;
    // A typed option of such a key is the name of the file.
    let is_typed = verb.from_files.iter().any(|key| keys.contains_key(*key));
    for key in verb.from_files {
        if !is_typed || keys.contains_key(*key) {
            keys.insert((*key).to_owned(), Value::from(OMITTED));
        }
    }
    Some(params.to_string())
}

fn errors() -> String {
    let mut by_status: BTreeMap<u16, Vec<String>> = BTreeMap::new();
    for kind in Kind::ALL {
        let text = format!("`{}` {}", kind.word(), kind.code());
        by_status.entry(kind.http()).or_default().push(text);
    }
    let row = |(status, kinds): (u16, Vec<String>)| vec![status.to_string(), kinds.join(", ")];
    let rows = by_status.into_iter().map(row);
    let mut page = Page::part();
    page.table(&["status", "kinds, each with its code"], &rows.collect::<Vec<_>>());
    page.finish()
}

fn schemas(document: &Value) -> String {
    let shared = document.pointer("/components/schemas").and_then(Value::as_object);
    let all = shared.into_iter().flatten().map(|(name, schema)| (name.as_str(), schema));
    let mut all: BTreeMap<&str, &Value> = all.collect();
    // The parameters of a verb are beside it.
    for name in operations(document).iter().filter_map(|of| referred(of.body()?)) {
        all.remove(name);
    }
    let mut page = Page::part();
    for (name, schema) in all.into_iter().filter(|(_, schema)| words_of(schema).is_none()) {
        page.head(3, &format!("`{name}`"));
        if let Some(doc) = schema.get("description").and_then(Value::as_str) {
            page.text(doc);
        }
        let rows: Vec<Vec<String>> = rows_within(document, schema)
            .into_iter()
            .map(|[key, kind, _, _, doc]| {
                let kind = property_type(document, schema, &key).unwrap_or(kind);
                vec![format!("`{key}`"), kind, doc]
            })
            .collect();
        match rows.is_empty() {
            true => page.text(&format!("A value: {}.", type_of(document, schema))),
            false => page.table(&["key", "type", "meaning"], &rows),
        }
    }
    page.finish()
}

fn link_to(name: &str) -> String {
    format!("[`{name}`](#{})", name.to_lowercase())
}

/// The words of a schema that is an enumeration of words.
fn words_of(schema: &Value) -> Option<String> {
    let forms = schema.get("oneOf").and_then(Value::as_array);
    if forms.is_some_and(|forms| forms.iter().any(|form| enum_values(form).is_none())) {
        return None;
    }
    let words = enum_names(schema);
    (!words.is_empty()).then(|| format!("`{}`", words.join("`, `")))
}

/// A type in words. Objects and other forms with a name are linked, enumerations are written out.
fn type_of(document: &Value, schema: &Value) -> String {
    let name = referred(schema);
    if let Some(words) = words_of(name.map_or(schema, |_| follow_ref(document, schema))) {
        return words;
    }
    if let Some(name) = name {
        return link_to(name);
    }
    let forms = schema.get("anyOf").or_else(|| schema.get("oneOf")).and_then(Value::as_array);
    if let Some(forms) = forms {
        let forms = forms.iter().map(|form| type_of(document, form));
        return forms.filter(|form| form != "null").collect::<Vec<_>>().join(" or ");
    }
    let of = |word: &str, key: &str| {
        let inner = schema.get(key).filter(|inner| inner.is_object());
        inner.map(|inner| format!("{word} of {}", type_of(document, inner)))
    };
    let kind = |kind: &str| match kind {
        "array" => of("array", "items").unwrap_or_else(|| kind.to_owned()),
        "object" => of("object", "additionalProperties").unwrap_or_else(|| kind.to_owned()),
        _ => kind.to_owned(),
    };
    let kinds: Vec<String> = types_of(schema).into_iter().map(kind).collect();
    if kinds.is_empty() { "any".to_owned() } else { kinds.join(" or ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verbs_of_classes_are_rows_with_their_commands_and_answers() {
        let plain = ClassVerbs { name: "plain", doc: "", verbs: &[] };
        let verbs = parts(&[plain]).swap_remove(1).1;
        let row = "| `/v1/verbs/plain.list` | [`ashlar plain list`](verbs.md#ashlar-plain-list) | \
                   [`GeomListing`](#geomlisting) |";
        assert!(verbs.contains(row), "{verbs}");
        assert!(!verbs.contains("### `POST /v1/verbs/plain."), "{verbs}");
    }

    #[test]
    fn every_verb_has_its_path_and_most_have_a_request() {
        let parts = parts(&[]);
        let text = |name: &str| {
            let found = parts.iter().find(|(known, _)| known == name);
            found.map(|(_, text)| text.clone()).expect("a part of that name")
        };
        let verbs = text("verbs");
        let paths = verbs.matches("\n### `POST /v1/verbs/").count();
        let requests = verbs.matches("\n```http\nPOST /v1/verbs/").count();
        assert!(paths > 30 && requests * 10 >= paths * 9, "{requests} of {paths}");
        assert!(verbs.contains("POST /v1/verbs/tree\n\n{"), "{verbs}");
        // The name of a file is not its contents.
        for key in ["document", "backup", "partcode"] {
            assert!(verbs.contains(&format!("\"{key}\":\"...\"")), "{key}: {verbs}");
        }
        assert!(text("routes").contains("| GET | `/v1/events` |"));
        assert!(text("errors").contains("| 403 | `forbidden` ASH-0042 |"));
    }

    /// Links to headings of the page lead to schemas that it has.
    #[test]
    fn linked_schemas_are_on_the_page() {
        let parts = parts(&[]);
        let all: String = parts.iter().map(|(_, text)| text.as_str()).collect();
        let heads: Vec<String> = all
            .lines()
            .filter_map(|line| line.strip_prefix("### `"))
            .map(|name| name.trim_end_matches('`').to_lowercase())
            .chain(["verbs".to_owned(), "progress".to_owned()])
            .collect();
        let links = all.split("](#").skip(1).filter_map(|rest| rest.split(')').next());
        let links: Vec<&str> = links.collect();
        assert!(links.len() > 40, "{}", links.len());
        for link in links {
            assert!(heads.iter().any(|head| head == link), "{link}");
        }
    }
}
