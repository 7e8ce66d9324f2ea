//! Components of the OpenAPI document: each schema once, under its name, in the forms that
//! generators of clients read.
//!
//! Generators refuse or ignore some forms that JSON Schema has for one thing: a schema that is a
//! boolean, and an enumeration whose values are alternatives of one value each.

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
        let Value::Object(mut fields) = schema else { return json!({}) };
        fields.remove("$schema");
        fields.remove("title");
        if let Some(Value::Object(defs)) = fields.remove("$defs") {
            for (key, schema) in defs {
                self.insert(key, normalized(schema, name));
            }
        }
        self.insert(name.to_owned(), normalized(Value::Object(fields), name));
        json!({ "$ref": format!("{SCHEMAS}{name}") })
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

/// A schema in the forms that generators read. `root` is the component that `#` refers to.
fn normalized(schema: Value, root: &str) -> Value {
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
            Value::String(path) if key == "$ref" => *path = moved(path, root),
            // Both booleans are common here, and generators know them.
            Value::Bool(_) if key == "additionalProperties" => {}
            Value::Object(_) | Value::Bool(_) if SINGLE_KEYS.contains(&key) => {
                *value = normalized(value.take(), root);
            }
            Value::Array(list) if LIST_KEYS.contains(&key) => {
                list.iter_mut().for_each(|inner| *inner = normalized(inner.take(), root));
            }
            Value::Object(all) if NAMED_KEYS.contains(&key) => {
                all.values_mut().for_each(|inner| *inner = normalized(inner.take(), root));
            }
            _ => {}
        }
    }
    Value::Object(fields)
}

/// Where the document has the schema of a reference.
fn moved(path: &str, root: &str) -> String {
    match path.strip_prefix("#/$defs/") {
        Some(name) => format!("{SCHEMAS}{name}"),
        None if path == "#" => format!("{SCHEMAS}{root}"),
        None => path.to_owned(),
    }
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
        assert_eq!(normalized(schema.clone(), ""), schema);
    }
}
