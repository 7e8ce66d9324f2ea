//! Schemas to a clap command: one property, one option.

use super::classes::ClassVerbs;
use super::words::with_words;
use crate::api::Exit;
use crate::verbs::schema::{follow, words};
use crate::verbs::{Entry, GROUPS, VERBS};
use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgAction, Command};
use serde_json::Value;

/// The whole command line, with the verbs of these classes.
pub fn command(classes: &[ClassVerbs]) -> Command {
    let mut root = Command::new("ashlar")
        .about("Block storage in user space: disks, layers, iSCSI targets")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .after_help(exit_codes())
        .args(common());
    for verb in VERBS.iter().filter(|v| !v.name.contains('.')) {
        root = root.subcommand(subcommand(verb));
    }
    for (group, doc) in GROUPS {
        let mut of = Command::new(*group)
            .about(*doc)
            .subcommand_required(true)
            .arg_required_else_help(true)
            .disable_help_subcommand(true);
        for verb in VERBS.iter().filter(|v| v.name.split('.').next() == Some(group)) {
            if verb.name.contains('.') {
                of = of.subcommand(subcommand(verb));
            }
        }
        root = root.subcommand(if *group == "part" { with_words(of) } else { of });
    }
    classes.iter().fold(root, |root, class| root.subcommand(class.command()))
}

pub(super) fn exit_codes() -> String {
    let lines = Exit::ALL.iter().map(|(exit, doc)| format!("  {}  {doc}", *exit as u8));
    format!("Exit codes:\n{}", lines.collect::<Vec<_>>().join("\n"))
}

/// Options of every verb.
pub fn common() -> Vec<Arg> {
    vec![
        Arg::new("json")
            .long("json")
            .action(ArgAction::SetTrue)
            .global(true)
            .help("Print the answer as JSON"),
        Arg::new("output")
            .long("output")
            .short('o')
            .global(true)
            .value_name("FORM")
            .value_parser(PossibleValuesParser::new(["table", "json"]))
            .help("How the answer is printed"),
        Arg::new("socket").long("socket").global(true).value_name("PATH").help(
            "The daemon's socket; default: $ASHLAR_SOCKET, else as configured, else the \
                   user's own",
        ),
        Arg::new("progress")
            .long("progress")
            .global(true)
            .value_name("HOW")
            .value_parser(PossibleValuesParser::new(["bar", "plain", "json", "none"]))
            .help("How progress is shown; default: bar on a terminal, else plain"),
    ]
}

/// The options of every verb, for a verb that has some arguments already: one of these that it has
/// itself is left as it has it.
pub(super) fn common_beside(of: &Command) -> Vec<Arg> {
    let has = |arg: &Arg| of.get_arguments().any(|own| own.get_id() == arg.get_id());
    common().into_iter().filter(|arg| !has(arg)).collect()
}

/// One verb.
pub fn subcommand(verb: &Entry) -> Command {
    let name = verb.name.rsplit('.').next().unwrap_or(verb.name);
    let schema = (verb.params)();
    let examples = verb.examples.iter().map(|e| format!("  {e}")).collect::<Vec<_>>().join("\n");
    let detail = if verb.detail.is_empty() {
        format!("{}.", verb.doc)
    } else {
        format!("{}.\n\n{}", verb.doc, verb.detail)
    };
    let mut out = Command::new(name)
        .about(verb.doc)
        .long_about(detail)
        .after_help(format!("Examples:\n{examples}\n\n{}", exit_codes()));
    let properties = schema.get("properties").and_then(Value::as_object);
    for (key, property) in properties.into_iter().flatten() {
        let hidden = property.get("x-hidden").is_some();
        let position = verb.positional.iter().position(|p| p == key);
        if !hidden {
            out = out.arg(argument(&schema, key, property, position));
        }
    }
    out
}

/// Whether a value may be left out.
fn required(schema: &Value, key: &str) -> bool {
    let list = schema.get("required").and_then(Value::as_array);
    list.is_some_and(|l| l.iter().any(|v| v.as_str() == Some(key)))
}

fn argument(schema: &Value, key: &str, property: &Value, position: Option<usize>) -> Arg {
    let inner = follow(schema, property);
    let list = kind(inner) == "array";
    let needed = required(schema, key);
    let mut arg = Arg::new(key.to_owned()).required(needed && !list);
    let doc = property.get("description").or(inner.get("description")).and_then(Value::as_str);
    let doc = doc.unwrap_or("").replace('\n', " ");
    arg = match position {
        Some(at) => arg.index(at + 1),
        None => arg.long(key.replace('_', "-")),
    };
    let short = property.get("x-short").and_then(Value::as_str).and_then(|s| s.chars().next());
    if let Some(short) = short {
        arg = arg.short(short);
    }
    if kind(inner) == "boolean" {
        return arg.action(ArgAction::SetTrue).help(doc);
    }
    arg = arg.value_name(key.to_uppercase().replace('-', "_"));
    let choices = words(inner);
    if !choices.is_empty() {
        arg = arg.value_parser(PossibleValuesParser::new(choices));
    }
    if list {
        arg = arg.action(ArgAction::Append);
        if position.is_some() {
            arg = arg.num_args(0..);
        }
    }
    match property.get("default") {
        Some(Value::String(text)) if !text.is_empty() => {
            arg.help(format!("{doc} [default: {text}]"))
        }
        Some(Value::Number(n)) => arg.help(format!("{doc} [default: {n}]")),
        _ => arg.help(doc),
    }
}

/// The JSON type of a property, without "or nothing".
pub fn kind(schema: &Value) -> &str {
    crate::config::schema::types_of(schema).first().copied().unwrap_or("")
}
