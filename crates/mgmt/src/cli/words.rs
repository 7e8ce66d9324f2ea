//! Words that GEOM's tools have for every class, answered without a daemon. `help` prints the
//! arguments of a class's verbs; `load` and `unload` report that there is nothing to load.

use super::build::common_options;
use super::classes::ClassVerbs;
use crate::api::{Error, Kind, Result};
use clap::{Arg, ArgAction, ArgMatches, Command};
use serde_json::{Value, json};

/// A class that has commands of its own in the table of verbs.
pub(super) const OWN_CLASS: &str = "part";

fn is_class(classes: &[ClassVerbs], name: &str) -> bool {
    name == OWN_CLASS || classes.iter().any(|class| class.name == name)
}

/// The group of a class's commands with the words that every class has.
pub(super) fn with_common_verbs(group: Command) -> Command {
    let verbose = || Arg::new("verbose").short('v').action(ArgAction::SetTrue);
    let verbose = || verbose().help("Accepted for compatibility with GEOM's tools; has no effect");
    let name = group.get_name().to_owned();
    let example = |line: &str| format!("Examples:\n  ashlar {name} {line}");
    let help = Command::new("help")
        .about("Show the arguments of the verbs of the class")
        .arg(Arg::new("verb").index(1).value_name("VERB").help("One verb [default: all]"))
        .after_help(example("help"));
    let load = Command::new("load")
        .about("Load the class (no effect: every class is built in)")
        .arg(verbose())
        .after_help(example("load"));
    let unload = Command::new("unload")
        .about("Unload the class (always refused: every class is built in)")
        .arg(verbose())
        .after_help(example("unload"));
    // A class may have a verb of that name.
    let own = |word: &Command| group.find_subcommand(word.get_name()).is_some();
    let words: Vec<Command> = [help, load, unload].into_iter().filter(|w| !own(w)).collect();
    group.subcommands(words)
}

/// The answer to one of these words, if it was typed: a value, and the same as text. `root` makes
/// the command line.
///
/// # Errors
/// [`Kind::Usage`] for help on a verb that the class has not; [`Kind::Unsupported`] for `unload`.
pub(super) fn answer(
    classes: &[ClassVerbs],
    root: impl Fn() -> Command,
    matches: &ArgMatches,
) -> Option<Result<(Value, String)>> {
    let (class, of) = matches.subcommand().filter(|(name, _)| is_class(classes, name))?;
    let (word, of) = of.subcommand()?;
    let has = |c: &ClassVerbs| c.name == class && c.all_verbs().any(|verb| verb.name == word);
    if classes.iter().any(has) {
        return None;
    }
    match word {
        "help" => Some(help(root().find_subcommand(class)?, of.get_one::<String>("verb"))),
        "load" => {
            let output = format!("{class} is built in: already loaded");
            Some(Ok((json!({ "message": output }), format!("{output}\n"))))
        }
        "unload" => {
            let why = format!(
                "{class} is built in and cannot be unloaded; `ashlar {class} list` names its \
                 geoms: remove them one by one (`ashlar {class} help` shows the verbs), or stop \
                 the daemon"
            );
            Some(Err(Error::new(Kind::Unsupported, format!("{class} unload"), why)))
        }
        _ => None,
    }
}

fn help(group: &Command, verb: Option<&String>) -> Result<(Value, String)> {
    let class = group.get_name();
    let all = group.get_subcommands().filter(|c| verb.is_none_or(|verb| c.get_name() == verb));
    let all: Vec<(String, String)> = all.map(|c| (usage(class, c), about(c))).collect();
    if let Some(verb) = verb.filter(|_| all.is_empty()) {
        let why = format!("{class} has no verb {verb}; `ashlar {class} help` lists those it has");
        return Err(Error::new(Kind::Usage, format!("{class} help"), why));
    }
    let text = all.iter().map(|(usage, about)| format!("{usage}\n    {about}\n")).collect();
    let verbs: Vec<Value> =
        all.iter().map(|(usage, about)| json!({ "usage": usage, "about": about })).collect();
    Ok((json!({ "class": class, "verbs": verbs }), text))
}

fn about(command: &Command) -> String {
    command.get_about().map(ToString::to_string).unwrap_or_default()
}

/// The line of a verb as GEOM's tools write it: `ashlar stripe label [-hv] [-s STRIP] NAME
/// MEMBERS...`; of an option with a letter the letter.
fn usage(class: &str, verb: &Command) -> String {
    let general: Vec<_> = common_options().iter().map(|arg| arg.get_id().clone()).collect();
    let own = || verb.get_arguments().filter(|arg| !general.contains(arg.get_id()));
    let mut flags = String::new();
    let (mut options, mut places) = (String::new(), String::new());
    for arg in own().filter(|arg| arg.get_id() != "help" && arg.get_id() != "version") {
        let names = arg.get_value_names().unwrap_or_default();
        let value = names.first().map(ToString::to_string).unwrap_or_default();
        let takes = arg.get_action().takes_values();
        match (arg.is_positional(), arg.get_short(), arg.get_long()) {
            (true, ..) => {
                let many = matches!(arg.get_action(), ArgAction::Append);
                let value = if many { format!("{value}...") } else { value };
                places += &if arg.is_required_set() {
                    format!(" {value}")
                } else {
                    format!(" [{value}]")
                };
            }
            (_, Some(letter), _) if !takes => flags.push(letter),
            (_, Some(letter), _) => options += &format!(" [-{letter} {value}]"),
            (_, None, Some(word)) if takes => options += &format!(" [--{word} {value}]"),
            (_, None, Some(word)) => options += &format!(" [--{word}]"),
            (_, None, None) => {}
        }
    }
    let flags = if flags.is_empty() { flags } else { format!(" [-{flags}]") };
    format!("ashlar {class} {}{flags}{options}{places}", verb.get_name())
}
