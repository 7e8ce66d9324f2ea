//! Reader of a configuration: text to [`Config`], through the schemas of this crate and of the
//! catalog. All faults are found in one pass, each with its line.

use super::api::{ApiClientConfig, ApiConfig};
use super::catalog::{Catalog, Entry};
use super::check::{Problem, check, unused_sections};
use super::daemon::DaemonConfig;
use super::paths::make_absolute;
use super::schema::{Checker, Fault, unknown_key};
use super::suggest::suggest;
use super::tree::{Field, Node, Span, Tree, caret, line_and_column, parse};
use super::types::{
    AccessConfig, AluaConfig, BusConfig, Config, DiskConfig, GeomConfig, InitiatorChap,
    TargetConfig, UnitConfig,
};
use super::webhook::WebhookConfig;
use crate::api::{Error, Kind, Result};
use serde::Deserialize;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use wire::pattern::Naming;

/// Longest document, in bytes. Longer ones are refused unread.
pub const CONFIG_BYTES_MAX: usize = 4 << 20;

/// How many sections of one kind a document may have. More are refused.
const SECTIONS_MAX: usize = 65_536;

/// How many faults one message shows; the rest are counted.
const FAULTS_SHOWN: usize = 20;

const SECTIONS: [&str; 11] = [
    "daemon",
    "api",
    "api_client",
    "webhook",
    "bus",
    "disk",
    "geom",
    "unit",
    "alua",
    "target",
    "access",
];

/// The text of a configuration file, for [`read`]. It is read again later, so it must be a regular
/// file. Of a file that is too long, one byte more than allowed is read.
///
/// # Errors
/// Those of [`bio::read_regular`]; `InvalidData` for text that is not UTF-8.
pub fn read_text(file: &Path) -> io::Result<String> {
    let most = u64::try_from(CONFIG_BYTES_MAX).unwrap_or(u64::MAX).saturating_add(1);
    let bytes = bio::read_regular(file, most)?;
    String::from_utf8(bytes).map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))
}

/// Reads a document; `file` names it in messages, and relative paths are below its folder.
///
/// # Errors
/// [`Kind::ConfigSyntax`], [`Kind::ConfigKey`], [`Kind::ConfigValue`], [`Kind::ConfigName`],
/// [`Kind::AccessOverlap`]: the kind of the first fault; the text shows all of them.
pub fn read(text: &str, file: &str, catalog: &Catalog) -> Result<Config> {
    read_with((text, file), catalog, make_absolute, report)
}

/// Reads a section that was made of words `KEY=VALUE` on a command line, one to a line below its
/// heading. Errors refer to the words, as the user did not type a section.
///
/// # Errors
/// As [`read`].
pub fn read_arguments(text: &str, op: &str, catalog: &Catalog) -> Result<Config> {
    // Paths of words are below the folder of the command, which is no file's.
    read_with((text, op), catalog, |config, _| config, report_arguments)
}

/// Makes an error of the faults of a text and its source.
type ReportFaults = fn(&str, &str, Vec<Fault>) -> Error;

/// Completes the paths of a text by its source.
type CompletePaths = fn(Config, &str) -> Config;

fn read_with(
    (text, file): (&str, &str),
    catalog: &Catalog,
    complete: CompletePaths,
    report: ReportFaults,
) -> Result<Config> {
    let op = "read configuration";
    if text.len() > CONFIG_BYTES_MAX {
        let why = format!("longer than {CONFIG_BYTES_MAX} bytes");
        return Err(Error::new(Kind::Limit, op, why).at(file));
    }
    let root = parse(text).map_err(|(span, message)| {
        let fault = Fault { span, kind: Kind::ConfigSyntax, text: message };
        report(text, file, vec![fault])
    })?;
    let (document, mut faults) = sections(&root, catalog);
    let refused = |faults: Vec<Fault>| {
        let next = schema_hint(&root, &faults);
        let error = report(text, file, faults);
        match next {
            Some(next) => error.next(next),
            None => error,
        }
    };
    if !faults.is_empty() {
        return Err(refused(faults));
    }
    let config = Config::deserialize(&document).map_err(|e| {
        Error::new(Kind::Internal, op, format!("accepted by its schema, but {e}")).at(file)
    })?;
    // Before the check, which looks at the files behind the paths.
    let mut config = complete(config, file);
    normalise_names(&mut config, catalog);
    let problems = check(&config, catalog).into_iter().chain(unused_sections(&config));
    faults.extend(problems.map(|p| locate(&root, p)));
    if faults.is_empty() { Ok(config) } else { Err(refused(faults)) }
}

/// Names of iSCSI targets, and names and patterns of their initiators, in the one form in which
/// names are sent, for any typed form (RFC 3722, RFC 7143 4.2.7.1). An NQN stays as typed: its
/// letters have a case (NVMe base specification 2.0, 4.5).
fn normalise_names(config: &mut Config, catalog: &Catalog) {
    let folded = |name: &str| wire::iscsi::normalise_name(name).ok();
    let is_iscsi = |driver: &str| catalog.driver(driver).naming == Naming::Iscsi;
    for target in config.target.iter_mut().filter(|t| is_iscsi(&t.driver)) {
        if let Some(name) = folded(&target.name) {
            target.name = name;
        }
    }
    for access in &mut config.access {
        let exists = config.target.iter().any(|t| t.name == access.target);
        if let Some(name) = folded(&access.target).filter(|_| !exists) {
            access.target = name;
        }
        let its = config.target.iter().find(|t| t.name == access.target);
        if its.is_some_and(|t| is_iscsi(&t.driver)) {
            // Letters of ASCII are compared without regard to case.
            for pattern in access.initiators.iter_mut().filter(|pattern| !pattern.is_ascii()) {
                *pattern = wire::iscsi::fold_pattern(pattern).unwrap_or_else(|| pattern.clone());
            }
        }
        let named = |(name, account): (&String, &InitiatorChap)| {
            (folded(name).unwrap_or_else(|| name.clone()), account.clone())
        };
        let accounts: BTreeMap<_, _> = access.initiator_chap.iter().map(named).collect();
        // Two spellings of one name are a fault, which `check` reports.
        if accounts.len() == access.initiator_chap.len() {
            access.initiator_chap = accounts;
        }
    }
}

fn sections(root: &Node, catalog: &Catalog) -> (Value, Vec<Fault>) {
    let mut faults = Vec::new();
    let mut out = Map::new();
    let Tree::Table(fields) = &root.value else {
        return (Value::Object(out), faults);
    };
    for field in fields {
        let value = match field.key.as_str() {
            "daemon" => {
                let schema = geom::schema_of::<DaemonConfig>();
                strict(&schema, &field.node, &mut faults)
            }
            "api" => {
                let schema = geom::schema_of::<ApiConfig>();
                strict(&schema, &field.node, &mut faults)
            }
            "api_client" => {
                let core = geom::schema_of::<ApiClientConfig>();
                list(field, &mut faults, |n, f| strict(&core, n, f))
            }
            "webhook" => {
                let core = geom::schema_of::<WebhookConfig>();
                list(field, &mut faults, |n, f| strict(&core, n, f))
            }
            "bus" => {
                let core = geom::schema_of::<BusConfig>();
                let of = SectionSchema { core: &core, entry_key: "kind", entries: &catalog.buses };
                list(field, &mut faults, |n, f| of.section(n, f))
            }
            "disk" => {
                let core = geom::schema_of::<DiskConfig>();
                let of = SectionSchema { core: &core, entry_key: "kind", entries: &catalog.disks };
                list(field, &mut faults, |n, f| of.section(n, f))
            }
            "geom" => {
                let core = geom::schema_of::<GeomConfig>();
                let of =
                    SectionSchema { core: &core, entry_key: "class", entries: &catalog.classes };
                list(field, &mut faults, |n, f| of.section(n, f))
            }
            "target" => {
                let core = geom::schema_of::<TargetConfig>();
                let of =
                    SectionSchema { core: &core, entry_key: "driver", entries: &catalog.drivers };
                list(field, &mut faults, |n, f| of.section(n, f))
            }
            "unit" => {
                let core = geom::schema_of::<UnitConfig>();
                list(field, &mut faults, |n, f| strict(&core, n, f))
            }
            "alua" => {
                let core = geom::schema_of::<AluaConfig>();
                list(field, &mut faults, |n, f| strict(&core, n, f))
            }
            "access" => {
                let core = geom::schema_of::<AccessConfig>();
                list(field, &mut faults, |n, f| {
                    lun_numbers(n, f);
                    strict(&core, n, f)
                })
            }
            other => {
                let text = unknown_key(other, SECTIONS.into_iter());
                faults.push(Fault { span: field.key_span.clone(), kind: Kind::ConfigKey, text });
                Value::Null
            }
        };
        out.insert(field.key.clone(), value);
    }
    (Value::Object(out), faults)
}

/// Each LUN is written in one way, so that none is written twice: digits, without a sign, and
/// without zeros before them.
fn lun_numbers(access: &Node, faults: &mut Vec<Fault>) {
    let Some(Field { node: Node { value: Tree::Table(luns), .. }, .. }) = access.get("luns") else {
        return;
    };
    for field in luns {
        // The schema refuses keys that are no numbers.
        let Ok(number) = field.key.parse::<u64>() else { continue };
        if number.to_string() == field.key {
            continue;
        }
        let text = format!("write LUN {number} as `{number}`, not as `{}`", field.key);
        faults.push(Fault { span: field.key_span.clone(), kind: Kind::ConfigValue, text });
    }
}

/// A table that has the keys of one schema and no others.
fn strict(schema: &Value, node: &Node, faults: &mut Vec<Fault>) -> Value {
    let mut checker = Checker::new(schema);
    let value = match &node.value {
        Tree::Table(fields) => checker.table(&node.span, fields, &[]),
        _ => {
            faults.push(not_a_table(node));
            Value::Null
        }
    };
    faults.append(&mut checker.faults);
    value
}

fn not_a_table(node: &Node) -> Fault {
    let text = format!("a table is wanted here, this is {}", node.value.noun());
    Fault { span: node.span.clone(), kind: Kind::ConfigValue, text }
}

/// Every section of one kind, through `one`.
fn list(
    field: &Field,
    faults: &mut Vec<Fault>,
    one: impl Fn(&Node, &mut Vec<Fault>) -> Value,
) -> Value {
    let Tree::Array(nodes) = &field.node.value else {
        let text = format!("write [[{0}]]: there may be several of `{0}`", field.key);
        faults.push(Fault { span: field.key_span.clone(), kind: Kind::ConfigValue, text });
        return Value::Null;
    };
    if nodes.len() > SECTIONS_MAX {
        let text = format!("more than {SECTIONS_MAX} sections of `{}`", field.key);
        faults.push(Fault { span: field.key_span.clone(), kind: Kind::Limit, text });
        return Value::Null;
    }
    Value::Array(nodes.iter().map(|n| one(n, faults)).collect())
}

/// A section whose keys are in two schemas: this crate's and that of the entry it names.
struct SectionSchema<'a> {
    core: &'a Value,
    entry_key: &'a str,
    entries: &'a [Entry],
}

impl SectionSchema<'_> {
    fn section(&self, node: &Node, faults: &mut Vec<Fault>) -> Value {
        let Tree::Table(fields) = &node.value else {
            faults.push(not_a_table(node));
            return Value::Null;
        };
        let properties = self.core.get("properties").and_then(Value::as_object);
        let core_keys: Vec<&str> =
            properties.into_iter().flat_map(|p| p.keys()).map(String::as_str).collect();
        let (ours, theirs): (Vec<Field>, Vec<Field>) =
            fields.iter().cloned().partition(|f| core_keys.contains(&f.key.as_str()));
        let mut checker = Checker::new(self.core);
        let mut value = checker.table(&node.span, &ours, &[]);
        faults.append(&mut checker.faults);
        let Some(entry) = self.entry(node, faults) else {
            return value;
        };
        let mut checker = Checker::new(&entry.schema);
        // Theirs are checked with our keys known, so that a typo of `name` is recognised as one.
        let params = checker.table(&node.span, &theirs, &core_keys);
        faults.append(&mut checker.faults);
        if let (Value::Object(value), Value::Object(params)) = (&mut value, params) {
            value.extend(params);
        }
        value
    }

    /// The entry that the section names.
    fn entry(&self, node: &Node, faults: &mut Vec<Fault>) -> Option<&Entry> {
        let field = node.get(self.entry_key)?;
        let name = field.node.text()?;
        let usable = |e: &&Entry| e.configurable;
        let names = || self.entries.iter().filter(usable).map(|e| e.name.as_str());
        let text = match self.entries.iter().find(|e| e.name == name) {
            Some(entry) if entry.configurable => return Some(entry),
            Some(_) => format!("`{name}` is found by tasting and not configured"),
            None => match suggest(name, names()) {
                Some(meant) => {
                    format!("unknown {} `{name}`; did you mean `{meant}`?", self.entry_key)
                }
                None => {
                    let known = names().collect::<Vec<_>>().join(", ");
                    format!("unknown {} `{name}`; known: {known}", self.entry_key)
                }
            },
        };
        faults.push(Fault { span: field.node.span.clone(), kind: Kind::ConfigValue, text });
        None
    }
}

/// The command that shows the keys of the section of the first fault, when that is about keys or
/// values.
fn schema_hint(root: &Node, faults: &[Fault]) -> Option<String> {
    let first = faults.iter().min_by_key(|f| f.span.start)?;
    if !matches!(first.kind, Kind::ConfigKey | Kind::ConfigValue) {
        return None;
    }
    let Tree::Table(fields) = &root.value else { return None };
    let sections = fields.iter().flat_map(|field| {
        let nodes = match &field.node.value {
            Tree::Array(nodes) => nodes.as_slice(),
            _ => std::slice::from_ref(&field.node),
        };
        nodes.iter().map(move |section| (field.key.as_str(), section))
    });
    // A key is behind its heading, which may be all of the section that has a place.
    let before = sections.filter(|(_, section)| section.span.start <= first.span.start);
    let (name, section) = before.max_by_key(|(_, section)| section.span.start)?;
    if !SECTIONS.contains(&name) {
        return Some("Run `ashlar schema config` to see the sections; nothing was changed.".into());
    }
    let word =
        ["kind", "class", "driver"].into_iter().find_map(|key| section.get(key)?.node.text());
    let what = word.map_or_else(|| name.to_owned(), |word| format!("{name} {word}"));
    Some(format!("Run `ashlar schema {what}` to see its keys; nothing was changed."))
}

/// The place in the document of a problem of the configuration.
fn locate(root: &Node, problem: Problem) -> Fault {
    let section = root.get(problem.section).and_then(|f| f.node.element(problem.index));
    let span: Span = match section {
        None => 0..0,
        Some(section) => match section.get(problem.key) {
            None => section.span.clone(),
            Some(field) => match problem.element.and_then(|i| field.node.element(i)) {
                None => field.node.span.clone(),
                Some(element) => element.span.clone(),
            },
        },
    };
    Fault { span, kind: problem.kind, text: problem.text }
}

/// One error out of all faults, each with its line and a caret.
fn report(text: &str, file: &str, mut faults: Vec<Fault>) -> Error {
    faults.sort_by_key(|f| f.span.start);
    let first = faults.first().cloned().unwrap_or(Fault {
        span: 0..0,
        kind: Kind::Internal,
        text: "no fault to report".to_owned(),
    });
    let (line, column) = line_and_column(text, first.span.start);
    let mut source = String::new();
    for (i, fault) in faults.iter().take(FAULTS_SHOWN).enumerate() {
        if i > 0 {
            let (line, column) = line_and_column(text, fault.span.start);
            source.push_str(&format!("{file}:{line}:{column}: "));
        }
        source.push_str(&format!("{}\n{}\n", fault.text, caret(text, &fault.span)));
    }
    if faults.len() > FAULTS_SHOWN {
        source.push_str(&format!("... and {} more\n", faults.len() - FAULTS_SHOWN));
    }
    Error::new(first.kind, "read configuration", source.trim_end())
        .at(format!("{file}:{line}:{column}"))
}

/// The same of words: each with its key, where it is about one that is there.
fn report_arguments(text: &str, op: &str, mut faults: Vec<Fault>) -> Error {
    faults.sort_by_key(|f| f.span.start);
    let kind = faults.first().map_or(Kind::Internal, |f| f.kind);
    let text_of = |fault: &Fault| {
        let before = text.get(..fault.span.start).unwrap_or(text);
        let line = text.lines().nth(before.matches('\n').count()).unwrap_or("");
        match line.split_once(" = ") {
            Some((key, _)) => format!("{key}: {}", fault.text),
            None => fault.text.clone(),
        }
    };
    let texts: Vec<String> = faults.iter().map(text_of).collect();
    Error::new(kind, op, texts.join("; "))
}

#[cfg(test)]
#[path = "read_tests.rs"]
mod tests;
