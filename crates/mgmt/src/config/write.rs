//! [`Config`] to text that [`read`](super::read) takes back to the same value.

use super::types::Config;
use super::units;
use serde::Serialize;
use serde_json::Value;
use toml_edit::{Array, ArrayOfTables, DocumentMut, InlineTable, Item, Table, Value as Toml};

/// The document, with the sections in the order of the struct. Settings of the daemon that are as
/// they would be anyway are left out.
pub fn write(config: &Config) -> String {
    let mut document = DocumentMut::new();
    let default = json(&super::daemon::DaemonConfig::default());
    let mut daemon = Table::new();
    for (key, value) in json(&config.daemon).as_object().into_iter().flatten() {
        if default.get(key) != Some(value) {
            put(&mut daemon, key, value);
        }
    }
    if !daemon.is_empty() {
        document.insert("daemon", Item::Table(daemon));
    }
    let mut api = Table::new();
    for (key, value) in json(&config.api).as_object().into_iter().flatten() {
        put(&mut api, key, value);
    }
    if !api.is_empty() {
        document.insert("api", Item::Table(api));
    }
    for (name, sections) in [
        ("api_client", json(&config.api_client)),
        ("webhook", json(&config.webhook)),
        ("bus", json(&config.bus)),
        ("disk", json(&config.disk)),
        ("geom", json(&config.geom)),
        ("unit", json(&config.unit)),
        ("alua", json(&config.alua)),
        ("target", json(&config.target)),
        ("access", json(&config.access)),
    ] {
        let mut list = ArrayOfTables::new();
        for section in sections.as_array().into_iter().flatten() {
            list.push(section_table(name, section));
        }
        if !list.is_empty() {
            document.insert(name, Item::ArrayOfTables(list));
        }
    }
    document.to_string()
}

/// Keys that are first in their section, in this order; the others follow by name.
const LEADING_KEYS: [&str; 13] = [
    "target",
    "group",
    "class",
    "kind",
    "driver",
    "name",
    "id",
    "provider",
    "members",
    "path",
    "listen",
    "initiators",
    "luns",
];

fn section_table(name: &str, section: &Value) -> Table {
    let mut table = Table::new();
    let Some(fields) = section.as_object() else { return table };
    for key in LEADING_KEYS {
        if let Some(value) = fields.get(key) {
            put(&mut table, key, &short_lun(key, value));
        }
    }
    for (key, value) in fields.iter().filter(|(key, _)| !LEADING_KEYS.contains(&key.as_str())) {
        // The default digest policy of a target is left out.
        let usual = match name {
            "target" => key.ends_with("_digest") && value == "allow",
            // The defaults of a unit or a port group are left out too.
            "unit" => *value == Value::Bool(false) && key != "write_cache" || value == "disk",
            "alua" => *value == Value::Bool(false),
            _ => false,
        };
        if !usual {
            put(&mut table, key, value);
        }
    }
    table
}

fn json<T: Serialize>(value: &T) -> Value {
    serde_json::to_value(value).unwrap_or(Value::Null)
}

fn put(table: &mut Table, key: &str, value: &Value) {
    // Sizes are written as people write them, when that is exact.
    let size = key == "size" || key == "memory" || key.ends_with("_bytes");
    let text = value.as_u64().filter(|n| size && *n >= 1024 && n % 1024 == 0).map(units::exact);
    if let Some(value) = text.map(Toml::from).or_else(|| toml(value)) {
        table.insert(key, Item::Value(value));
    }
}

/// A LUN with a provider and no other key is written as that.
fn short_lun(key: &str, value: &Value) -> Value {
    let (true, Some(luns)) = (key == "luns", value.as_object()) else {
        return value.clone();
    };
    let short = |lun: &Value| {
        let plain = lun.get("mode").and_then(Value::as_str) == Some("rw");
        let plain = plain && lun.get("serial").is_none();
        lun.get("provider").filter(|_| plain).cloned().unwrap_or_else(|| lun.clone())
    };
    Value::Object(luns.iter().map(|(n, lun)| (n.clone(), short(lun))).collect())
}

fn toml(value: &Value) -> Option<Toml> {
    Some(match value {
        Value::Null => return None,
        Value::Bool(b) => Toml::from(*b),
        Value::String(text) => Toml::from(text.as_str()),
        Value::Number(n) => match (n.as_i64(), n.as_u64(), n.as_f64()) {
            (Some(n), _, _) => Toml::from(n),
            // TOML has no whole numbers above 2^63: as a text it is understood again.
            (_, Some(n), _) => Toml::from(n.to_string()),
            (_, _, x) => Toml::from(x?),
        },
        Value::Array(list) => Toml::Array(list.iter().filter_map(toml).collect::<Array>()),
        Value::Object(fields) => {
            let mut table = InlineTable::new();
            for (key, value) in fields {
                if let Some(value) = toml(value) {
                    table.insert(key, value);
                }
            }
            Toml::InlineTable(table)
        }
    })
}
