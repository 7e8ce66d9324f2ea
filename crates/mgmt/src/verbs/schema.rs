//! schema: the possible content of `ashlar.toml`, and the parameters and answers of the verbs.

use super::entry::{CommandVerb, Local};
use super::{VERBS, find};
use crate::App;
use crate::api::{Error, Kind, Result, SystemState};
use crate::config::schema::{enum_values, types_of};
use crate::config::{
    AccessConfig, AluaConfig, ApiClientConfig, ApiConfig, BusConfig, Catalog, Config, DaemonConfig,
    DiskConfig, GeomConfig, LunConfig, TargetConfig, UnitConfig, WebhookConfig, for_editors,
    suggest,
};
use crate::plan::{CHANGE, kind_schema, section_schema};
use crate::text;
use geom::Verb;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Parameters of `schema`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct SchemaParams {
    /// A section (`disk`, `access`), a disk kind, a class, a driver, a verb (`mirror label`),
    /// `config` or `state`; or a section and a kind of it [default: list the names]
    pub name: Vec<String>,
}

/// One schema.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct NamedSchema {
    /// Its name.
    pub name: String,
    /// `disk`, `geom`, `target`, `verb`, `section` or `form`.
    pub section: String,
    /// Description in one sentence.
    pub doc: String,
    /// A section to paste; may be empty.
    pub example: String,
    /// JSON Schema; absent if only names were requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schema: Option<Value>,
}

/// The requested schemas.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Names {
    /// Each with its name.
    pub schemas: Vec<NamedSchema>,
}

/// Answer of `schema`.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(with = "Names")]
pub enum SchemaAnswer {
    /// All but the following.
    Named(Names),
    /// `schema config --json`: the JSON Schema of `ashlar.toml` alone, as editors take it.
    Config(Value),
}

/// The object among the forms of a value that may be written in several.
fn object<'s>(root: &'s Value, schema: &'s Value) -> &'s Value {
    let forms = schema.get("anyOf").and_then(Value::as_array);
    let mut forms = forms.into_iter().flatten().map(|form| follow_ref(root, form));
    forms.find(|form| form.get("properties").is_some()).unwrap_or(schema)
}

/// One key of an object: name, type, default, effect of an edit (may be empty), meaning.
pub(crate) type KeyRow = [String; 5];

/// The keys of an object.
pub(crate) fn rows(schema: &Value) -> Vec<KeyRow> {
    rows_within(schema, schema)
}

/// The keys of an object whose references are those of the document `root`.
pub(crate) fn rows_within(root: &Value, schema: &Value) -> Vec<KeyRow> {
    let keys = object(root, schema);
    let required: Vec<&str> = keys
        .get("required")
        .and_then(Value::as_array)
        .map(|list| list.iter().filter_map(Value::as_str).collect())
        .unwrap_or_default();
    let properties = keys.get("properties").and_then(Value::as_object);
    let row = |(key, property): (&String, &Value)| {
        let inner = follow_ref(root, property);
        let words = enum_names(inner);
        let kind = if words.is_empty() { types_of(inner).join("|") } else { words.join("|") };
        let default = match property.get("default") {
            Some(Value::Null) | None if required.contains(&key.as_str()) => "required".to_owned(),
            Some(Value::Null) | None => "-".to_owned(),
            Some(value) => value.to_string(),
        };
        let doc = property.get("description").or(inner.get("description"));
        let doc = doc.and_then(Value::as_str).unwrap_or("").replace('\n', " ");
        let change = property.get(CHANGE).and_then(Value::as_str).unwrap_or("");
        [key.clone(), text::or_dash(&kind), default, change.to_owned(), doc]
    };
    properties.into_iter().flatten().map(row).collect()
}

/// The keys as text. Parameters of verbs have no column `change`.
fn key_table(rows: Vec<KeyRow>) -> String {
    if rows.is_empty() {
        return "no keys of its own\n".to_owned();
    }
    if rows.iter().any(|[_, _, _, change, _]| !change.is_empty()) {
        let rows: Vec<Vec<String>> = rows.into_iter().map(Vec::from).collect();
        return text::table(&["key", "type", "default", "change", "is"], &rows);
    }
    let short = |[key, kind, default, _, doc]: KeyRow| vec![key, kind, default, doc];
    let rows: Vec<Vec<String>> = rows.into_iter().map(short).collect();
    text::table(&["key", "type", "default", "is"], &rows)
}

/// The schema that a property refers to by `$ref` or by "this or null".
pub fn follow_ref<'s>(root: &'s Value, property: &'s Value) -> &'s Value {
    let mut at = property;
    for _ in 0..8 {
        let path = at.get("$ref").and_then(Value::as_str);
        let next = path.and_then(|p| p.strip_prefix('#')).and_then(|p| root.pointer(p));
        let some = at.get("anyOf").and_then(Value::as_array).and_then(|list| {
            list.iter().find(|s| s.get("type").and_then(Value::as_str) != Some("null"))
        });
        match next.or(some) {
            Some(inner) => at = inner,
            None => break,
        }
    }
    at
}

/// The words of an enumeration in any of its forms.
pub fn enum_names(schema: &Value) -> Vec<String> {
    let all = match schema.get("oneOf").and_then(Value::as_array) {
        Some(branches) => branches.iter().filter_map(enum_values).flatten().collect(),
        None => enum_values(schema).unwrap_or_default(),
    };
    all.iter().filter_map(Value::as_str).map(str::to_owned).collect()
}

impl Verb<App> for SchemaParams {
    const NAME: &'static str = "schema";
    const DOC: &'static str = "Show the schema of ashlar.toml or of a verb";
    const DETAIL: &'static str = "A disk has the keys of the section `disk` and the keys of its \
        kind; geoms and targets likewise. `change` is the effect of an edit on running hosts. With \
        --json the output contains the JSON Schema (2020-12); `schema config --json` prints the \
        schema of the whole file for editors.";
    const POSITIONAL: &'static [&'static str] = &["name"];
    const EXAMPLE: &'static str = "schema";
    const MORE_EXAMPLES: &'static [&'static str] = &["schema access", "schema config --json"];
    type Answer = SchemaAnswer;

    fn run(self, local: Local<'_>) -> Result<SchemaAnswer> {
        if local.json && self.name == ["config"] {
            return Ok(SchemaAnswer::Config(config(&(local.app.catalog)())));
        }
        let catalog = (local.app.catalog)();
        let mut all = all(&catalog);
        if self.name.is_empty() {
            all.iter_mut().for_each(|s| s.schema = None);
            return Ok(SchemaAnswer::Named(Names { schemas: all }));
        }
        let name = self.name.join(".").replace(' ', ".");
        let names: Vec<String> = all.iter().map(|s| s.name.clone()).collect();
        match self.name.as_slice() {
            [section, kind] if all.iter().any(|s| s.section == *section && s.name == *kind) => {
                all.retain(|s| s.section == *section && s.name == *kind);
            }
            _ => all.retain(|s| s.name == name),
        }
        for verb in all.iter_mut().filter(|s| s.section == "verb") {
            let schemas = verb_schemas(&verb.name, &catalog);
            verb.schema = schemas.map(|(params, answer)| match local.json {
                true => json!({ "params": params(), "answer": answer() }),
                false => params(),
            });
        }
        if all.is_empty() {
            let meant = suggest(&name, names.iter().map(String::as_str));
            let meant = meant.map(|m| format!("Did you mean `{m}`?"));
            let error =
                Error::new(Kind::NotFound, "schema", "no section, kind or verb has that name")
                    .at(name);
            return Err(error.next(meant.unwrap_or("Run `ashlar schema` for the names.".into())));
        }
        Ok(SchemaAnswer::Named(Names { schemas: all }))
    }
}

impl CommandVerb<App> for SchemaParams {
    fn table(answer: &SchemaAnswer) -> String {
        let SchemaAnswer::Named(Names { schemas }) = answer else { return String::new() };
        if schemas.iter().all(|s| s.schema.is_none()) {
            let row = |s: &NamedSchema| vec![s.section.clone(), s.name.clone(), s.doc.clone()];
            let rows: Vec<_> = schemas.iter().map(row).collect();
            return text::table(&["section", "name", "is"], &rows);
        }
        let one = |s: &NamedSchema| {
            let keys = key_table(s.schema.as_ref().map(rows).unwrap_or_default());
            let example = if s.example.is_empty() {
                String::new()
            } else {
                format!("\n{}\n", s.example.trim_end())
            };
            format!("{} {}: {}\n{keys}{example}", s.section, s.name, s.doc)
        };
        schemas.iter().map(one).collect::<Vec<_>>().join("\n")
    }
}

/// The JSON Schema of `ashlar.toml` for editors.
pub fn config(catalog: &Catalog) -> Value {
    for_editors(geom::schema_of::<Config>(), catalog)
}

fn section(name: &str, doc: &str, example: &str, schema: Value) -> NamedSchema {
    NamedSchema {
        name: name.to_owned(),
        section: "section".to_owned(),
        doc: doc.to_owned(),
        example: example.to_owned(),
        schema: Some(section_schema(name, schema)),
    }
}

/// The sections of `ashlar.toml`, with the keys that do not depend on kind, class or driver.
pub(crate) fn sections() -> Vec<NamedSchema> {
    vec![
        section(
            "daemon",
            "[daemon]: the daemon itself.",
            "[daemon]\nlog = \"info\"\n",
            geom::schema_of::<DaemonConfig>(),
        ),
        section(
            "api",
            "[api]: the API over TCP; beyond loopback over TLS only.",
            "[api]\nlisten = [\"0.0.0.0:7320\"]\ntls_certificate = \"/etc/ashlar/api.pem\"\n\
             tls_key = \"/etc/ashlar/api.key\"\ntls_client_ca = \"/etc/ashlar/clients.pem\"\n",
            geom::schema_of::<ApiConfig>(),
        ),
        section(
            "api_client",
            "[[api_client]]: the role of a client of the API, by the subject of its certificate.",
            "[[api_client]]\nsubject = \"laptop\"\nrole = \"operator\"\n",
            geom::schema_of::<ApiClientConfig>(),
        ),
        section(
            "webhook",
            "[[webhook]]: a server that receives events.",
            "[[webhook]]\nname = \"pager\"\nurl = \"https://alerts.example/ashlar\"\n\
             level = \"warn\"\nsecret = \"file:/etc/ashlar/webhook\"\n",
            geom::schema_of::<WebhookConfig>(),
        ),
        section(
            "bus",
            "[[bus]]: a transport to disks that are discovered (da0, ada0); each kind has further \
             keys.",
            "[[bus]]\nname = \"mps0\"\nkind = \"virtual\"\ndisks = 4\nsize = \"1GiB\"\n\
             names = { da7 = \"3:0\" }\n",
            geom::schema_of::<BusConfig>(),
        ),
        section(
            "disk",
            "[[disk]]: a bottom provider; further keys are those of its kind.",
            "[[disk]]\nname = \"d0\"\nkind = \"file\"\npath = \"/srv/d0.img\"\n",
            geom::schema_of::<DiskConfig>(),
        ),
        section(
            "geom",
            "[[geom]]: a layer that is not found by tasting; further keys are those of its class.",
            "[[geom]]\nname = \"slow\"\nclass = \"nop\"\nprovider = \"d0\"\n",
            geom::schema_of::<GeomConfig>(),
        ),
        section(
            "target",
            "[[target]]: a target port; further keys are those of its driver.",
            "[[target]]\ndriver = \"iscsi\"\nname = \"iqn.2026-11.org.example:store\"\n\
             listen = [\"0.0.0.0:3260\"]\n\
             chap = { user = \"vmhost\", secret = \"file:/etc/ashlar/chap\" }\n",
            geom::schema_of::<TargetConfig>(),
        ),
        section(
            "access",
            "[[access]]: which initiators see which LUNs of a target; nothing else is visible.",
            "[[access]]\ntarget = \"iqn.2026-11.org.example:store\"\ngroup = \"vmhosts\"\n\
             initiators = [\"iqn.1998-01.com.vmware:*\"]\n\
             luns = { 0 = \"d0\", 1 = { provider = \"d1\", mode = \"ro\" } }\n",
            geom::schema_of::<AccessConfig>(),
        ),
        section(
            "unit",
            "[[unit]]: how a provider is shown to initiators, on all of its LUNs.",
            "[[unit]]\nprovider = \"d0\"\nserial = \"S0\"\n",
            geom::schema_of::<UnitConfig>(),
        ),
        section(
            "alua",
            "[[alua]]: a group of target ports with a common access state.",
            "[[alua]]\nname = \"near\"\nid = 1\nstate = \"optimized\"\n",
            geom::schema_of::<AluaConfig>(),
        ),
        section(
            "lun",
            "One LUN of [[access]]: the name of a provider, or these keys.",
            "luns = { 0 = { provider = \"d0\", mode = \"ro\", serial = \"S0\" } }\n",
            geom::schema_of::<LunConfig>(),
        ),
    ]
}

fn all(catalog: &Catalog) -> Vec<NamedSchema> {
    let mut out: Vec<NamedSchema> = catalog
        .all()
        .map(|(section, e)| NamedSchema {
            name: e.name.clone(),
            section: section.to_owned(),
            doc: e.doc.clone(),
            example: e.example.clone(),
            schema: Some(kind_schema(section, e, catalog)),
        })
        .collect();
    let form = |name: &str, doc: &str, schema: Value| NamedSchema {
        name: name.to_owned(),
        section: "form".to_owned(),
        doc: doc.to_owned(),
        example: String::new(),
        schema: Some(schema),
    };
    let config = geom::schema_of::<Config>();
    out.push(form("config", "The whole of ashlar.toml", config));
    out.extend(sections());
    let state = geom::schema_of::<SystemState>();
    out.push(form("state", "State of the daemon", state));
    out.extend(VERBS.iter().map(|v| NamedSchema {
        name: v.name.to_owned(),
        section: "verb".to_owned(),
        doc: v.doc.to_owned(),
        example: v.examples().join("\n"),
        schema: None,
    }));
    for class in catalog.class_verbs() {
        out.extend(class.all_verbs().map(|verb| NamedSchema {
            name: format!("{}.{}", class.name, verb.name),
            section: "verb".to_owned(),
            doc: verb.doc.to_owned(),
            example: class.example(verb),
            schema: None,
        }));
    }
    out
}

/// A function that makes a schema.
type MakeSchema = fn() -> Value;

/// Schemas of the parameters and of the answer of a verb, also of one of a class.
fn verb_schemas(name: &str, catalog: &Catalog) -> Option<(MakeSchema, MakeSchema)> {
    if let Some(entry) = find(name) {
        return Some((entry.params, entry.answer));
    }
    let (class, verb) = name.split_once('.')?;
    let class = catalog.class_verbs().into_iter().find(|known| known.name == class)?;
    let spec = class.all_verbs().find(|known| known.name == verb)?;
    Some((spec.params, spec.answer))
}
