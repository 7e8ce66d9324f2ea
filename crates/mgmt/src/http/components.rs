//! Components of the OpenAPI document: each schema once, under its name, in the forms that
//! generators of clients read.
//!
//! Generators refuse or ignore some forms that JSON Schema has for one thing. They are a schema
//! that is a boolean, and an enumeration whose values are alternatives of one value each.

use crate::config::schema::enum_values;
use serde_json::{Map, Value, json};

/// Where the document has the schemas that others refer to.
pub(crate) const SCHEMAS: &str = "#/components/schemas/";

/// Keys of a schema whose value is a schema.
const SINGLE_KEYS: [&str; 4] = ["items", "additionalProperties", "not", "propertyNames"];

/// Keys of a schema whose value is a list of schemas.
const LIST_KEYS: [&str; 4] = ["allOf", "anyOf", "oneOf", "prefixItems"];

/// Keys of a schema whose value is an object of named schemas.
const NAMED_KEYS: [&str; 2] = ["properties", "patternProperties"];

/// The schemas added so far.
#[derive(Default)]
pub(super) struct Components {
    schemas: Map<String, Value>,
}

impl Components {
    /// Adds the schema of a type under the name of the type, with the schemas that it contains.
    /// Returns a reference to it.
    pub(super) fn add(&mut self, schema: Value) -> Value {
        let title = schema.get("title").and_then(Value::as_str).unwrap_or_default().to_owned();
        self.add_as(&title, schema)
    }

    /// The same under another name, for types whose own name is ambiguous.
    pub(super) fn add_as(&mut self, name: &str, schema: Value) -> Value {
        self.insert_all(named(schema, Names { root: name, prefix: "" }));
        reference(name)
    }

    /// Adds the schema of an answer of a class, whose types may have names of other classes' types.
    /// As `name`, with contained schemas whose names begin with `prefix`. A type that was added
    /// before under its own name keeps that.
    pub(super) fn add_of_class(&mut self, name: &str, prefix: &str, schema: Value) -> Value {
        let title = schema.get("title").and_then(Value::as_str).unwrap_or_default().to_owned();
        let shared = named(schema.clone(), Names { root: &title, prefix: "" });
        if shared.iter().all(|(name, schema)| self.schemas.get(name) == Some(schema)) {
            return reference(&title);
        }
        self.insert_all(named(schema, Names { root: name, prefix }));
        reference(name)
    }

    fn insert_all(&mut self, schemas: Vec<(String, Value)>) {
        schemas.into_iter().for_each(|(name, schema)| self.insert(name, schema));
    }

    fn insert(&mut self, name: String, schema: Value) {
        let known = self.schemas.get(&name);
        debug_assert!(
            known.is_none_or(|known| *known == schema),
            "two types of the API have the name {name}"
        );
        if known.is_none() {
            self.schemas.insert(name, schema);
        }
    }

    /// All of them by name.
    pub(super) fn into_schemas(self) -> Map<String, Value> {
        self.schemas
    }
}

/// A reference to the component of that name.
fn reference(name: &str) -> Value {
    json!({ "$ref": format!("{SCHEMAS}{name}") })
}

/// Names of the components that a schema becomes.
#[derive(Clone, Copy)]
struct Names<'n> {
    /// Name of the schema itself.
    root: &'n str,
    /// Beginning of the names of contained schemas.
    prefix: &'n str,
}

impl Names<'_> {
    /// Name of a contained schema. A name that begins with the prefix keeps its form.
    fn contained(self, name: &str) -> String {
        let prefix = if name.starts_with(self.prefix) { "" } else { self.prefix };
        format!("{prefix}{name}")
    }

    /// Where the document has the schema of a reference.
    fn moved(self, path: &str) -> String {
        match path.strip_prefix("#/$defs/") {
            Some(name) => format!("{SCHEMAS}{}", self.contained(name)),
            None if path == "#" => format!("{SCHEMAS}{}", self.root),
            None => path.to_owned(),
        }
    }
}

/// The components of a schema: those that it contains, and itself.
fn named(schema: Value, names: Names<'_>) -> Vec<(String, Value)> {
    let mut fields = match schema {
        Value::Object(fields) => fields,
        other => return vec![(names.root.to_owned(), normalized(other, names))],
    };
    fields.remove("$schema");
    fields.remove("title");
    let mut out = Vec::new();
    if let Some(Value::Object(defs)) = fields.remove("$defs") {
        for (name, schema) in defs {
            out.push((names.contained(&name), normalized(schema, names)));
        }
    }
    out.push((names.root.to_owned(), normalized(Value::Object(fields), names)));
    out
}

/// A schema in the forms that generators read.
fn normalized(schema: Value, names: Names<'_>) -> Value {
    let mut fields = match schema {
        Value::Object(fields) => fields,
        Value::Bool(false) => return json!({ "not": {} }),
        _ => return json!({}),
    };
    merge_enumeration(&mut fields);
    let is_array = fields.get("type").and_then(Value::as_str) == Some("array");
    if is_array && !fields.contains_key("items") && !fields.contains_key("prefixItems") {
        fields.insert("items".to_owned(), json!({}));
    }
    for (key, value) in &mut fields {
        let key = key.as_str();
        match value {
            Value::String(path) if key == "$ref" => *path = names.moved(path),
            // Both booleans are common here, and generators know them.
            Value::Bool(_) if key == "additionalProperties" => {}
            Value::Object(_) | Value::Bool(_) if SINGLE_KEYS.contains(&key) => {
                *value = normalized(value.take(), names);
            }
            Value::Array(list) if LIST_KEYS.contains(&key) => {
                list.iter_mut().for_each(|inner| *inner = normalized(inner.take(), names));
            }
            Value::Object(all) if NAMED_KEYS.contains(&key) => {
                all.values_mut().for_each(|inner| *inner = normalized(inner.take(), names));
            }
            _ => {}
        }
    }
    Value::Object(fields)
}

/// Writes alternatives that are all texts as one `enum`. Their descriptions move to an extension
/// that documentation tools show.
fn merge_enumeration(fields: &mut Map<String, Value>) {
    let Some(branches) = fields.get("oneOf").and_then(Value::as_array) else { return };
    let (mut words, mut docs) = (Vec::new(), Map::new());
    for branch in branches {
        let Some(values) = enum_values(branch) else { return };
        for value in values {
            let Value::String(word) = &value else { return };
            if let Some(doc) = branch.get("description") {
                docs.insert(word.clone(), doc.clone());
            }
            words.push(value);
        }
    }
    fields.remove("oneOf");
    fields.insert("type".to_owned(), json!("string"));
    fields.insert("enum".to_owned(), Value::Array(words));
    if !docs.is_empty() {
        fields.insert("x-enumDescriptions".to_owned(), Value::Object(docs));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schemas_are_components_in_the_forms_of_generators() {
        let mut components = Components::default();
        let reference = components.add(json!({
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "title": "Edit",
            "type": "object",
            "properties": {
                "any": true,
                "list": { "type": "array", "items": true },
                "level": { "$ref": "#/$defs/Level" },
                "parent": { "anyOf": [{ "$ref": "#" }, { "type": "null" }] },
                "free": { "type": "object", "additionalProperties": true, "default": {} },
            },
            "$defs": { "Level": { "oneOf": [
                { "type": "string", "enum": ["info", "warn"] },
                { "type": "string", "const": "error", "description": "Act." },
            ] } },
        }));
        assert_eq!(reference, json!({ "$ref": "#/components/schemas/Edit" }));
        let schemas = components.into_schemas();
        let level = json!({
            "type": "string",
            "enum": ["info", "warn", "error"],
            "x-enumDescriptions": { "error": "Act." },
        });
        assert_eq!(schemas["Level"], level);
        let expected = json!({
            "any": {},
            "list": { "type": "array", "items": {} },
            "level": { "$ref": "#/components/schemas/Level" },
            "parent": { "anyOf": [
                { "$ref": "#/components/schemas/Edit" },
                { "type": "null" },
            ] },
            "free": { "type": "object", "additionalProperties": true, "default": {} },
        });
        assert_eq!(schemas["Edit"]["properties"], expected);
    }

    #[test]
    fn alternatives_that_are_not_all_texts_stay() {
        let schema = json!({ "oneOf": [{ "const": "a" }, { "type": "object" }] });
        assert_eq!(normalized(schema.clone(), Names { root: "", prefix: "" }), schema);
    }

    #[test]
    fn types_of_two_classes_with_one_name_have_components_of_their_own() {
        let mut components = Components::default();
        let answer = |kind: &str| {
            json!({
                "title": "Answer",
                "type": "object",
                "properties": { "item": { "$ref": "#/$defs/Item" } },
                "$defs": { "Item": { "type": kind } },
            })
        };
        let message = json!({ "title": "Message", "type": "string" });
        components.add(message.clone());
        let shared = components.add_of_class("RaidStopAnswer", "Raid", message);
        assert_eq!(shared["$ref"], "#/components/schemas/Message");
        let own = components.add_of_class("RaidDumpAnswer", "Raid", answer("string"));
        assert_eq!(own["$ref"], "#/components/schemas/RaidDumpAnswer");
        components.add_of_class("PartDumpAnswer", "Part", answer("integer"));
        let schemas = components.into_schemas();
        let names: Vec<&String> = schemas.keys().collect();
        let expected = ["Message", "PartDumpAnswer", "PartItem", "RaidDumpAnswer", "RaidItem"];
        assert_eq!(names, expected);
        let item = &schemas["RaidDumpAnswer"]["properties"]["item"]["$ref"];
        assert_eq!(item, "#/components/schemas/RaidItem");
    }
}
