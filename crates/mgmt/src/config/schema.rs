//! A part of JSON Schema 2020-12, as much as `schemars` writes for the structs of the registries.
//! It has `$ref`, `type`, `properties`, `patternProperties` with digits, `required`, `items`,
//! `enum`, `const`, `oneOf`, `anyOf`, `allOf` and the bounds of numbers, texts and lists.
//!
//! Stricter than the standard: keys that no schema names are refused, unless
//! `additionalProperties` is given and not false. More lenient: where a whole number is wanted a
//! text with a unit is understood (`"64MiB"`; `"10ms"` when the key ends in `_ns`, `_us`, `_ms`,
//! `_s`).

use super::suggest::suggest;
use super::tree::{Node, Span, Tree};
use super::units;
use crate::api::Kind;
use serde_json::{Map, Number, Value, json};

/// Depth of nested schemas. Deeper ones (a schema that refers to itself) are refused.
const DEPTH_MAX: usize = 64;

/// One thing that is wrong with a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Where.
    pub span: Span,
    /// For control flow.
    pub kind: Kind,
    /// What, one line.
    pub text: String,
}

/// Checks values against one schema and turns them into JSON.
pub struct Checker<'a> {
    root: &'a Value,
    /// Faults found so far.
    pub faults: Vec<Fault>,
}

/// Context of the value under check, besides its schema.
#[derive(Clone, Copy)]
struct ValueContext<'a> {
    key: &'a str,
    depth: usize,
}

impl<'a> Checker<'a> {
    /// A checker for `root`, in whose `$defs` references are looked up.
    pub fn new(root: &'a Value) -> Checker<'a> {
        Checker { root, faults: Vec::new() }
    }

    /// Checks a table; other code checks its `known` keys.
    pub fn table(&mut self, span: &Span, fields: &[super::tree::Field], known: &[&str]) -> Value {
        let root = self.root;
        self.object(span, fields, root, known, ValueContext { key: "", depth: 0 })
    }

    fn fault(&mut self, span: &Span, kind: Kind, text: String) -> Value {
        self.faults.push(Fault { span: span.clone(), kind, text });
        Value::Null
    }

    fn resolve(&self, schema: &'a Value) -> &'a Value {
        let mut schema = schema;
        for _ in 0..DEPTH_MAX {
            let Some(path) = schema.get("$ref").and_then(Value::as_str) else {
                return schema;
            };
            let found = path.strip_prefix('#').and_then(|p| self.root.pointer(p));
            match found {
                Some(inner) => schema = inner,
                None => return schema,
            }
        }
        schema
    }

    fn value(&mut self, node: &Node, schema: &'a Value, at: ValueContext<'_>) -> Value {
        if at.depth > DEPTH_MAX {
            return self.fault(&node.span, Kind::ConfigValue, "nested too deep".to_owned());
        }
        let at = ValueContext { depth: at.depth + 1, ..at };
        let schema = self.resolve(schema);
        for word in ["oneOf", "anyOf"] {
            if let Some(branches) = schema.get(word).and_then(Value::as_array) {
                return self.branches(node, branches, at);
            }
        }
        if let Some([only]) = schema.get("allOf").and_then(Value::as_array).map(Vec::as_slice) {
            return self.value(node, only, at);
        }
        if let Some(words) = enum_values(schema) {
            return self.enum_value(node, &words);
        }
        let types = types_of(schema);
        match &node.value {
            _ if types.is_empty() => node_json(node),
            Tree::Table(fields) if types.contains(&"object") => {
                self.object(&node.span, fields, schema, &[], at)
            }
            Tree::Array(list) if types.contains(&"array") => self.array(node, list, schema, at),
            Tree::Text(text) if types.contains(&"string") => self.text(node, text, schema),
            Tree::Bool(b) if types.contains(&"boolean") => Value::Bool(*b),
            Tree::Int(n) if types.contains(&"integer") => {
                self.integer(node, i128::from(*n), schema)
            }
            Tree::Int(n) if types.contains(&"number") => self.number(node, *n as f64, schema),
            Tree::Float(x) if types.contains(&"number") => self.number(node, *x, schema),
            Tree::Text(text) if types.contains(&"integer") => {
                self.with_unit(node, text, schema, at)
            }
            other => {
                let noun = other.noun();
                let wanted = types.iter().map(|t| noun_of(t)).collect::<Vec<_>>().join(" or ");
                let text = format!("{wanted} is wanted here, this is {noun}");
                self.fault(&node.span, Kind::ConfigValue, text)
            }
        }
    }

    /// The first branch without faults; otherwise the faults of the branch that is nearest.
    fn branches(&mut self, node: &Node, branches: &'a [Value], at: ValueContext<'_>) -> Value {
        let resolved: Vec<&Value> = branches.iter().map(|b| self.resolve(b)).collect();
        let words: Vec<Value> = resolved.iter().filter_map(|b| enum_values(b)).flatten().collect();
        let only_words = resolved.iter().all(|b| enum_values(b).is_some() || is_null(b));
        if only_words && !words.is_empty() {
            return self.enum_value(node, &words);
        }
        let mut best: Option<(usize, Vec<Fault>)> = None;
        for (schema, branch) in resolved.iter().zip(branches) {
            if is_null(schema) {
                continue;
            }
            let mut trial = Checker::new(self.root);
            let value = trial.value(node, branch, at);
            if trial.faults.is_empty() {
                return value;
            }
            let misfit = usize::from(!fits(node, schema)) * 1000 + trial.faults.len();
            if best.as_ref().is_none_or(|(b, _)| misfit < *b) {
                best = Some((misfit, trial.faults));
            }
        }
        self.faults.extend(best.map(|(_, faults)| faults).unwrap_or_default());
        Value::Null
    }

    fn enum_value(&mut self, node: &Node, words: &[Value]) -> Value {
        let value = node_json(node);
        if words.contains(&value) {
            return value;
        }
        let names: Vec<String> = words.iter().map(show).collect();
        let meant = node.text().and_then(|t| suggest(t, words.iter().filter_map(Value::as_str)));
        let meant = meant.map(|m| format!("; did you mean `{m}`?")).unwrap_or_default();
        let text = format!("{} is not one of {}{meant}", show(&value), names.join(", "));
        self.fault(&node.span, Kind::ConfigValue, text)
    }

    fn object(
        &mut self,
        span: &Span,
        fields: &[super::tree::Field],
        schema: &'a Value,
        known: &[&str],
        at: ValueContext<'_>,
    ) -> Value {
        let schema = self.resolve(schema);
        let properties = schema.get("properties").and_then(Value::as_object);
        let digits = schema
            .get("patternProperties")
            .and_then(Value::as_object)
            .and_then(|p| p.iter().find(|(pattern, _)| pattern.contains("\\d")))
            .map(|(_, s)| s);
        let others = schema.get("additionalProperties").filter(|v| **v != json!(false));
        let mut out = Map::new();
        for field in fields.iter().filter(|f| !known.contains(&f.key.as_str())) {
            let inner = ValueContext { key: &field.key, depth: at.depth };
            let value = if let Some(schema) = properties.and_then(|p| p.get(&field.key)) {
                self.value(&field.node, schema, inner)
            } else if let Some(schema) = digits.filter(|_| field.key.parse::<u64>().is_ok()) {
                self.value(&field.node, schema, inner)
            } else if let Some(schema) = others {
                self.value(&field.node, schema, inner)
            } else if digits.is_some() {
                let text = format!("`{}` is not a number", field.key);
                self.fault(&field.key_span, Kind::ConfigKey, text)
            } else {
                let keys = properties.into_iter().flat_map(|p| p.keys()).map(String::as_str);
                let keys = keys.chain(known.iter().copied());
                let text = unknown_key(&field.key, keys);
                self.fault(&field.key_span, Kind::ConfigKey, text)
            };
            out.insert(field.key.clone(), value);
        }
        let required = schema.get("required").and_then(Value::as_array);
        for name in required.into_iter().flatten().filter_map(Value::as_str) {
            if !out.contains_key(name) && !known.contains(&name) {
                self.fault(span, Kind::ConfigKey, format!("`{name}` is missing"));
            }
        }
        Value::Object(out)
    }

    fn array(
        &mut self,
        node: &Node,
        list: &[Node],
        schema: &'a Value,
        at: ValueContext<'_>,
    ) -> Value {
        let length = i128::try_from(list.len()).unwrap_or(i128::MAX);
        self.bounds(node, length, schema, "minItems", "maxItems", "elements");
        let items = schema.get("items");
        let one = |n: &Node| match items {
            Some(items) => self.value(n, items, at),
            None => node_json(n),
        };
        Value::Array(list.iter().map(one).collect())
    }

    fn text(&mut self, node: &Node, text: &str, schema: &Value) -> Value {
        let length = i128::try_from(text.chars().count()).unwrap_or(i128::MAX);
        self.bounds(node, length, schema, "minLength", "maxLength", "characters");
        Value::String(text.to_owned())
    }

    fn with_unit(
        &mut self,
        node: &Node,
        text: &str,
        schema: &Value,
        at: ValueContext<'_>,
    ) -> Value {
        const TIMES: [(&str, u64); 4] =
            [("_ns", 1), ("_us", 1_000), ("_ms", 1_000_000), ("_s", 1_000_000_000)];
        let time = TIMES.iter().find(|(suffix, _)| at.key.ends_with(suffix));
        let parsed = match time {
            None => units::size(text),
            Some((_, unit)) => units::duration(text).and_then(|ns| match ns % unit {
                0 => Ok(ns / unit),
                _ => Err(units::UnitError::Fraction),
            }),
        };
        match parsed {
            Ok(n) => self.integer(node, i128::from(n), schema),
            Err(e) => {
                let like = if time.is_some() { "10ms" } else { "64MiB" };
                let text = format!("a number or a text such as \"{like}\" is wanted here: {e}");
                self.fault(&node.span, Kind::ConfigValue, text)
            }
        }
    }

    fn integer(&mut self, node: &Node, n: i128, schema: &Value) -> Value {
        let (low, high) = match schema.get("format").and_then(Value::as_str) {
            Some("uint8") => (0, i128::from(u8::MAX)),
            Some("uint16") => (0, i128::from(u16::MAX)),
            Some("uint32") => (0, i128::from(u32::MAX)),
            Some("uint64" | "uint" | "usize") => (0, i128::from(u64::MAX)),
            Some("int8") => (i128::from(i8::MIN), i128::from(i8::MAX)),
            Some("int16") => (i128::from(i16::MIN), i128::from(i16::MAX)),
            Some("int32") => (i128::from(i32::MIN), i128::from(i32::MAX)),
            _ => (i128::from(i64::MIN), i128::from(u64::MAX)),
        };
        let clean = self.faults.len();
        self.bounds(node, n, schema, "minimum", "maximum", "");
        if self.faults.len() == clean && !(low..=high).contains(&n) {
            let text = format!("{n} is out of range: {low} to {high}");
            self.fault(&node.span, Kind::ConfigValue, text);
        }
        let number = u64::try_from(n).map(Number::from);
        let number = number.or_else(|_| i64::try_from(n).map(Number::from));
        number.map_or(Value::Null, Value::Number)
    }

    fn number(&mut self, node: &Node, x: f64, schema: &Value) -> Value {
        let bound = |word: &str| schema.get(word).and_then(Value::as_f64);
        let low = bound("minimum").is_some_and(|b| x < b);
        let high = bound("maximum").is_some_and(|b| x > b);
        if low || high || !x.is_finite() {
            return self.fault(&node.span, Kind::ConfigValue, format!("{x} is out of range"));
        }
        Number::from_f64(x).map_or(Value::Null, Value::Number)
    }

    fn bounds(&mut self, node: &Node, n: i128, schema: &Value, min: &str, max: &str, of: &str) {
        let bound = |word: &str| {
            let v = schema.get(word)?;
            let integer = v.as_u64().map(i128::from).or(v.as_i64().map(i128::from));
            // Bounds may be written as decimals; whole numbers are compared, so cutting is exact
            // enough for the bounds in schemas (below 2^53).
            integer.or(v.as_f64().map(|x| x as i128))
        };
        let space = if of.is_empty() { "" } else { " " };
        if let Some(low) = bound(min).filter(|&low| n < low) {
            let text = format!("{n}{space}{of} is too little: at least {low}");
            self.fault(&node.span, Kind::ConfigValue, text);
        } else if let Some(high) = bound(max).filter(|&high| n > high) {
            let text = format!("{n}{space}{of} is too much: at most {high}");
            self.fault(&node.span, Kind::ConfigValue, text);
        }
    }
}

/// The sentence about an unknown key.
pub fn unknown_key<'k>(key: &str, keys: impl Iterator<Item = &'k str>) -> String {
    let mut keys: Vec<&str> = keys.collect();
    keys.sort_unstable();
    keys.dedup();
    match suggest(key, keys.iter().copied()) {
        Some(meant) => format!("unknown key `{key}`; did you mean `{meant}`?"),
        None => format!("unknown key `{key}`; known here: {}", keys.join(", ")),
    }
}

/// The node as JSON, unchecked.
pub fn node_json(node: &Node) -> Value {
    match &node.value {
        Tree::Table(fields) => {
            Value::Object(fields.iter().map(|f| (f.key.clone(), node_json(&f.node))).collect())
        }
        Tree::Array(list) => Value::Array(list.iter().map(node_json).collect()),
        Tree::Text(text) | Tree::Date(text) => Value::String(text.clone()),
        Tree::Int(n) => json!(n),
        Tree::Float(x) => json!(x),
        Tree::Bool(b) => json!(b),
    }
}

fn show(value: &Value) -> String {
    match value {
        Value::String(text) => format!("`{text}`"),
        other => other.to_string(),
    }
}

/// The words of an enumeration, in either of the forms in which they are written.
pub fn enum_values(schema: &Value) -> Option<Vec<Value>> {
    let several = schema.get("enum").and_then(Value::as_array).cloned();
    several.or_else(|| schema.get("const").map(|v| vec![v.clone()]))
}

/// The names in `type`.
pub fn types_of(schema: &Value) -> Vec<&str> {
    match schema.get("type") {
        Some(Value::String(one)) => vec![one.as_str()],
        Some(Value::Array(many)) => {
            many.iter().filter_map(Value::as_str).filter(|t| *t != "null").collect()
        }
        _ => Vec::new(),
    }
}

fn is_null(schema: &Value) -> bool {
    schema.get("type").and_then(Value::as_str) == Some("null")
}

fn noun_of(name: &str) -> &'static str {
    match name {
        "object" => "a table",
        "array" => "a list",
        "string" => "a text",
        "integer" => "a whole number",
        "number" => "a number",
        "boolean" => "true or false",
        _ => "nothing",
    }
}

fn fits(node: &Node, schema: &Value) -> bool {
    let types = types_of(schema);
    match &node.value {
        Tree::Table(_) => types.contains(&"object"),
        Tree::Array(_) => types.contains(&"array"),
        Tree::Text(_) | Tree::Date(_) => types.contains(&"string"),
        Tree::Int(_) => types.contains(&"integer") || types.contains(&"number"),
        Tree::Float(_) => types.contains(&"number"),
        Tree::Bool(_) => types.contains(&"boolean"),
    }
}
