//! JSON Schemas of types, built by one function for all types.
//!
//! `schemars::schema_for!` contains the same work once for each type: 1.5 kB for each verb.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde_json::Value;

/// The schema of `T`, as `schemars::schema_for!` makes it.
pub fn schema_of<T: JsonSchema>() -> Value {
    root_schema(T::json_schema, T::schema_name)
}

/// Completes the schema that `build` returns to one of a document.
fn root_schema(
    build: fn(&mut SchemaGenerator) -> Schema,
    title: fn() -> Cow<'static, str>,
) -> Value {
    let mut generator = SchemaGenerator::default();
    let mut schema = build(&mut generator);
    let object = schema.ensure_object();
    object.entry("title").or_insert_with(|| title().into());
    if let Some(meta_schema) = generator.settings().meta_schema.clone() {
        object.insert("$schema".to_owned(), meta_schema.into());
    }
    let definitions = generator.take_definitions(true);
    if !definitions.is_empty() {
        object.insert("$defs".to_owned(), Value::Object(definitions));
    }
    schema.to_value()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A part
    #[derive(JsonSchema)]
    #[allow(dead_code, reason = "its schema is looked at")]
    struct Part {
        /// Parts of the part
        parts: Vec<Part>,
    }

    /// Things
    #[derive(JsonSchema)]
    #[allow(dead_code, reason = "its schema is looked at")]
    struct Things {
        /// Number of them
        #[schemars(range(min = 1, max = 9))]
        number: Option<u8>,
        /// Each one
        parts: Vec<Part>,
    }

    #[test]
    fn schema_is_the_same_as_that_of_schemars() {
        assert_eq!(schema_of::<Things>(), schemars::schema_for!(Things).to_value());
        assert_eq!(schema_of::<Vec<u8>>(), schemars::schema_for!(Vec<u8>).to_value());
        assert_eq!(schema_of::<Value>(), schemars::schema_for!(Value).to_value());
    }
}
