//! Verbs to clap commands: one argument, one option.

use super::classes::ClassVerbs;
use super::words::{OWN_CLASS, with_common_verbs};
use crate::api::Exit;
use crate::verbs::{Entry, GROUPS, VERBS, has_commands_of};
use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgAction, Command};
use geom::{ArgKind, ArgSpec};

/// Options of earlier versions that are accepted without effect: verb and option.
const FORMER_FLAGS: &[(&str, &str)] = &[("serve", "keep-going")];

/// The whole command line, with the verbs of these classes.
pub fn command(classes: &[ClassVerbs]) -> Command {
    command_with(classes, |_| true)
}

/// The command line for words that begin with `first`. It has the command of that name alone, which
/// is all that a process needs, or every command if none has the name.
pub(super) fn command_of(classes: &[ClassVerbs], first: &str) -> Command {
    let is_known = has_commands_of(first) || classes.iter().any(|class| class.name == first);
    command_with(classes, |name| !is_known || name == first)
}

/// The command line with the commands whose names are `wanted`.
fn command_with(classes: &[ClassVerbs], wanted: impl Fn(&str) -> bool) -> Command {
    let mut root = Command::new("ashlar")
        .about("User-space block storage: disks, layers and targets")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .after_help(format!(
            "`ashlar help --all` prints the help of all commands.\n\n{}",
            exit_codes()
        ))
        .args(common_options());
    for verb in VERBS.iter().filter(|v| !v.name.contains('.') && wanted(v.name)) {
        root = root.subcommand(with_inner_verbs(verb));
    }
    for (group, doc) in GROUPS.iter().filter(|(group, _)| wanted(group)) {
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
        root = root.subcommand(if *group == OWN_CLASS { with_common_verbs(of) } else { of });
    }
    let classes = classes.iter().filter(|class| wanted(class.name));
    classes.fold(root, |root, class| root.subcommand(class.command()))
}

/// A verb, and the verbs that are typed after it: `sessions`, `sessions end`.
fn with_inner_verbs(verb: &Entry) -> Command {
    let is_inner = |v: &&Entry| v.name.split_once('.').is_some_and(|(of, _)| of == verb.name);
    let inner: Vec<Command> = VERBS.iter().filter(is_inner).map(subcommand).collect();
    match inner.is_empty() {
        true => subcommand(verb),
        // An option of the outer verb before the inner one would have no effect.
        false => subcommand(verb)
            .args_conflicts_with_subcommands(true)
            .disable_help_subcommand(true)
            .subcommands(inner),
    }
}

pub(super) fn exit_codes() -> String {
    let lines = Exit::ALL.iter().map(|(exit, doc)| format!("  {}  {doc}", *exit as u8));
    format!("Exit codes:\n{}", lines.collect::<Vec<_>>().join("\n"))
}

/// An option of every verb that has a value.
fn common_option(name: &'static str, value: &'static str) -> Arg {
    Arg::new(name).long(name).global(true).value_name(value)
}

/// Options of every verb.
pub fn common_options() -> Vec<Arg> {
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
            .help("Format of the answer [default: table]"),
        common_option("socket", "PATH").help(
            "Socket of the daemon [default: $ASHLAR_SOCKET, else `socket` of the configuration, \
                   else /run/ashlar/ashlar.sock for root, else a path of the user]",
        ),
        common_option("remote", "URL").help(
            "Daemon of another machine: https://HOST:PORT [default: $ASHLAR_REMOTE, else --socket]",
        ),
        common_option("token-file", "FILE")
            .help("File of the token for --remote, with mode 0600 [default: $ASHLAR_TOKEN_FILE]"),
        common_option("certificate", "FILE").help(
            "Client certificate for --remote, instead of a token [default: $ASHLAR_CERTIFICATE]",
        ),
        common_option("key", "FILE")
            .help("Private key of --certificate [default: $ASHLAR_KEY, else in the same file]"),
        common_option("ca", "FILE").help(
            "CA certificates that verify --remote [default: $ASHLAR_CA, else \
                   /etc/ssl/certs/ca-certificates.crt]",
        ),
        common_option("idempotency-key", "KEY")
            .help("Key of a change: repeated with the same key, it is carried out once"),
        Arg::new("progress")
            .long("progress")
            .global(true)
            .value_name("HOW")
            .value_parser(PossibleValuesParser::new(["bar", "plain", "json", "none"]))
            .help("Form of progress reports [default: bar on a terminal, else plain]"),
    ]
}

/// The options of every verb, for a verb that has some arguments already: one of these that it has
/// itself is left as it has it.
pub(super) fn missing_options(of: &Command) -> Vec<Arg> {
    let has = |arg: &Arg| of.get_arguments().any(|own| own.get_id() == arg.get_id());
    common_options().into_iter().filter(|arg| !has(arg)).collect()
}

/// One verb of the table.
pub fn subcommand(verb: &Entry) -> Command {
    let name = verb.name.rsplit('.').next().unwrap_or(verb.name);
    let former = FORMER_FLAGS.iter().filter(|(of, _)| *of == verb.name);
    let hidden = |flag: &'static str| Arg::new(flag).long(flag).hide(true);
    let former = former.map(|&(_, flag)| hidden(flag).action(ArgAction::SetTrue));
    verb_command(name, (verb.doc, verb.detail), &verb.examples(), verb.args()).args(former)
}

/// A verb: its words for people, and its arguments, those by position in their order.
pub(super) fn verb_command<'a>(
    name: &'static str,
    (doc, detail): (&'static str, &str),
    examples: &[String],
    args: impl IntoIterator<Item = &'a ArgSpec>,
) -> Command {
    let detail = match detail {
        "" => format!("{doc}."),
        detail => format!("{doc}.\n\n{detail}"),
    };
    let examples: Vec<String> = examples.iter().map(|e| format!("  {e}")).collect();
    let mut out = Command::new(name).about(doc).long_about(detail).after_help(format!(
        "Examples:\n{}\n\n{}",
        examples.join("\n"),
        exit_codes()
    ));
    let args: Vec<&ArgSpec> = args.into_iter().collect();
    if args.iter().any(|arg| arg.short == Some('h')) {
        // The letter is the verb's own, as in its man page.
        let help = Arg::new("help").long("help").action(ArgAction::Help);
        out = out.disable_help_flag(true).arg(help.help("Print help"));
    }
    for general in common_options() {
        let letter = general.get_short();
        if letter.is_some() && args.iter().any(|arg| arg.short == letter) {
            // The same of a letter that every verb has otherwise: its word stays.
            out = out.arg(general.short(None));
        }
    }
    let mut place = 0;
    for arg in args {
        place += usize::from(arg.kind.is_positional());
        out = out.arg(argument(arg, place));
    }
    out
}

fn argument(spec: &ArgSpec, place: usize) -> Arg {
    let value = spec.name.to_uppercase().replace('-', "_");
    let arg = Arg::new(spec.name).help(spec.doc);
    let option = |arg: Arg| match spec.short {
        Some(letter) => arg.long(spec.name.replace('_', "-")).short(letter),
        None => arg.long(spec.name.replace('_', "-")),
    };
    match spec.kind {
        ArgKind::Name => arg.index(place).required(true).value_name(value),
        ArgKind::OptionalName => arg.index(place).value_name(value),
        ArgKind::Names(least) => arg
            .index(place)
            .required(least > 0)
            .num_args(usize::from(least)..)
            .action(ArgAction::Append)
            .value_name(value),
        ArgKind::Flag => option(arg).action(ArgAction::SetTrue),
        ArgKind::Choice(words) => {
            option(arg).value_name(value).value_parser(PossibleValuesParser::new(words))
        }
        ArgKind::Consent => option(arg).value_name("NAME").action(ArgAction::Append),
        ArgKind::Texts => option(arg).value_name(value).action(ArgAction::Append),
        ArgKind::Text | ArgKind::Number | ArgKind::Bytes => option(arg).value_name(value),
    }
}
