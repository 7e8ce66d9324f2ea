//! The JSON Schema of `ashlar.toml` for editors: the sections with the keys of each kind, class and
//! driver. It permits all that the daemon accepts: a whole number may be a text with a unit.

use serde_json::{Map, Value, json};

use super::Catalog;

/// Place of shared schemas in a JSON Schema.
const DEFS: &str = "$defs";

/// `schema`: the schema of the sections, whose entries leave open the keys of their kind.
pub fn for_editors(schema: Value, catalog: &Catalog) -> Value {
    let mut root = schema;
    let sections = [
        ("BusConfig", "kind", &catalog.buses),
        ("DiskConfig", "kind", &catalog.disks),
        ("GeomConfig", "class", &catalog.classes),
        ("TargetConfig", "driver", &catalog.drivers),
    ];
    for (section, key, entries) in sections {
        let mut forms = Vec::new();
        for entry in entries.iter() {
            let prefix = format!("{section}.{}.", entry.name);
            let mut own = entry.schema.clone();
            rename(&mut own, &prefix);
            let shared = take_object(&mut own, DEFS);
            let of_section = shared_schema(&root, section);
            forms.push(kind_schema(of_section, &own, (key, &entry.name, &entry.doc)));
            add(&mut root, shared, &prefix);
        }
        let place = root.get_mut(DEFS).and_then(|all| all.get_mut(section));
        if let Some(place) = place {
            *place = json!({ "oneOf": forms });
        }
    }
    accept_unit_texts(&mut root);
    root
}

fn shared_schema(root: &Value, name: &str) -> Value {
    root.get(DEFS).and_then(|all| all.get(name)).cloned().unwrap_or_default()
}

fn take_object(of: &mut Value, key: &str) -> Map<String, Value> {
    let taken = of.as_object_mut().and_then(|of| of.remove(key));
    taken.and_then(|value| value.as_object().cloned()).unwrap_or_default()
}

/// One kind of a section: the keys of both, and no others.
fn kind_schema(section: Value, own: &Value, (key, name, doc): (&str, &str, &str)) -> Value {
    let part = |of: &Value, part: &str| of.get(part).cloned().unwrap_or_default();
    let mut keys = part(&section, "properties").as_object().cloned().unwrap_or_default();
    keys.extend(part(own, "properties").as_object().cloned().unwrap_or_default());
    keys.insert(key.to_owned(), json!({ "const": name, "description": doc }));
    let all =
        [&section, own].map(|of| part(of, "required").as_array().cloned().unwrap_or_default());
    let mut required: Vec<Value> = all.into_iter().flatten().collect();
    required.dedup();
    json!({
        "title": name,
        "description": doc,
        "type": "object",
        "properties": keys,
        "required": required,
        "additionalProperties": false,
    })
}

/// References to shared schemas get a prefix, so that those of two kinds do not meet.
fn rename(value: &mut Value, prefix: &str) {
    match value {
        Value::Object(all) => {
            for (key, value) in all {
                match value {
                    Value::String(at) if key == "$ref" => {
                        *at = at.replacen("#/$defs/", &format!("#/$defs/{prefix}"), 1);
                    }
                    other => rename(other, prefix),
                }
            }
        }
        Value::Array(all) => all.iter_mut().for_each(|value| rename(value, prefix)),
        _ => {}
    }
}

fn add(root: &mut Value, shared: Map<String, Value>, prefix: &str) {
    if let Some(all) = root.get_mut(DEFS).and_then(Value::as_object_mut) {
        all.extend(shared.into_iter().map(|(name, schema)| (format!("{prefix}{name}"), schema)));
    }
}

/// Where a whole number is wanted a text with a unit is accepted, too.
fn accept_unit_texts(value: &mut Value) {
    if let Value::Object(all) = value {
        let kind = all.get_mut("type");
        match kind {
            Some(Value::String(one)) if one == "integer" => {
                all.insert("type".to_owned(), json!(["integer", "string"]));
            }
            Some(Value::Array(several)) if several.contains(&json!("integer")) => {
                several.push(json!("string"));
            }
            _ => {}
        }
        all.values_mut().for_each(accept_unit_texts);
    } else if let Value::Array(all) = value {
        all.iter_mut().for_each(accept_unit_texts);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::fake::catalog;

    #[test]
    fn editor_schema_of_a_kind_has_exactly_its_own_and_its_section_keys() {
        let schema = for_editors(geom::schema_of::<Config>(), &catalog());
        let forms = schema["$defs"]["DiskConfig"]["oneOf"].as_array().expect("kinds");
        assert_eq!(forms.len(), catalog().disks.len());
        for (form, entry) in forms.iter().zip(&catalog().disks) {
            let keys = form["properties"].as_object().expect("keys");
            assert_eq!(keys["kind"]["const"], entry.name.as_str());
            assert!(keys.contains_key("name"), "{keys:?}");
            let own = entry.schema["properties"].as_object().cloned().unwrap_or_default();
            assert!(own.keys().all(|key| keys.contains_key(key)), "{keys:?}");
            assert_eq!(form["additionalProperties"], false);
        }
        let mut missing = Vec::new();
        let shared = &schema["$defs"];
        references(&schema, &mut |at| {
            let name = at.strip_prefix("#/$defs/").expect("a shared schema");
            if shared.get(name).is_none() {
                missing.push(at.to_owned());
            }
        });
        assert_eq!(missing, Vec::<String>::new());
    }

    fn references(value: &Value, found: &mut impl FnMut(&str)) {
        match value {
            Value::Object(all) => {
                if let Some(Value::String(at)) = all.get("$ref") {
                    found(at);
                }
                all.values().for_each(|value| references(value, found));
            }
            Value::Array(all) => all.iter().for_each(|value| references(value, found)),
            _ => {}
        }
    }
}
