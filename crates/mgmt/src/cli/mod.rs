//! The command line: made from the table of verbs, and carried out.

mod build;
mod classes;
mod complete;
mod connect;
mod progress;
mod values;
mod words;

pub use build::{command, common_options, subcommand};
pub use classes::{ClassVerbs, pages as class_pages};

use crate::api::{Error, Exit, Kind, Result};
use crate::client::Client;
use crate::verbs::{Entry, Local, Run, has_commands_of};
use build::command_of;
use clap::{ArgMatches, Command};
use progress::{ProgressMeter, ProgressMode};
use serde_json::{Value, json};
use std::ffi::OsString;
use std::io::Write;

/// The parts that the binary provides: its version, its registries, and the launch of the daemon.
pub struct App {
    /// Version of the binary.
    pub version: &'static str,
    /// The catalog of a configuration: the registries' disk kinds, classes and drivers.
    pub catalog: fn() -> crate::config::Catalog,
    /// The classes that have verbs and no commands of their own here.
    pub classes: fn() -> Vec<ClassVerbs>,
    /// The one of them with a name.
    pub class: fn(&str) -> Option<ClassVerbs>,
    /// Starts the daemon with the settings of `[daemon]`; disks, geoms and targets follow as steps.
    pub launch: fn(&crate::config::Config) -> Result<Box<dyn crate::Plant>>,
}

/// How an answer is printed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum OutputFormat {
    Table,
    Json,
}

impl OutputFormat {
    fn of(matches: &ArgMatches) -> OutputFormat {
        let is_json = matches.get_one::<String>("output").is_some_and(|form| form == "json");
        if matches.get_flag("json") || is_json { OutputFormat::Json } else { OutputFormat::Table }
    }
}

/// Carries out one command line; `args` without the program's name.
pub fn run(
    app: &App,
    args: impl IntoIterator<Item = OsString>,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> Exit {
    let words: Vec<OsString> = std::iter::once(OsString::from("ashlar")).chain(args).collect();
    let first = words.get(1).and_then(|word| word.to_str()).unwrap_or_default();
    let classes = classes_of(app, first);
    if words.iter().skip(1).eq(["help", "--all"].iter()) {
        let wrote = out.write_all(full_help(command(&classes)).as_bytes());
        return if wrote.is_ok() { Exit::Done } else { Exit::Failed };
    }
    if words.get(1).is_some_and(|word| word == complete::WORD) {
        let names = complete::answer(&command(&classes), words.get(2..).unwrap_or_default());
        let wrote = out.write_all(names.as_bytes());
        return if wrote.is_ok() { Exit::Done } else { Exit::Failed };
    }
    let line = || command_of(&classes, first).version(app.version);
    let matches = match line().try_get_matches_from(&words) {
        Ok(matches) => matches,
        Err(e) => {
            let text = e.render().to_string();
            let stream: &mut dyn Write = if e.use_stderr() { err } else { out };
            let wrote = stream.write_all(text.as_bytes());
            return match (e.use_stderr(), wrote) {
                (true, _) => Exit::Usage,
                (false, Ok(())) => Exit::Done,
                (false, Err(_)) => Exit::Failed,
            };
        }
    };
    if let Some(answer) = words::answer(&classes, line, &matches) {
        let inner = matches.subcommand().and_then(|(_, of)| of.subcommand());
        let form = inner.map_or(OutputFormat::Table, |(_, of)| OutputFormat::of(of));
        let done = answer.and_then(|(value, text)| print(form, &value, || Ok(text), out));
        return done.map_or_else(|error| print_error(&error, form, out, err), |()| Exit::Done);
    }
    let Some((entry, of, params)) = typed(&classes, &matches) else { return Exit::Usage };
    let form = OutputFormat::of(of);
    let mode = ProgressMode::of(of.get_one::<String>("progress").map(String::as_str));
    let done = params.and_then(|params| {
        let option = |name: &str| of.get_one::<String>(name).cloned();
        let client = connect::client(&option, entry, &params)?;
        run_verb(app, entry, params, &client, form, mode, out, err)
    });
    done.unwrap_or_else(|error| print_error(&error, form, out, err))
}

/// The classes that a command line with this first word uses. Descriptions of classes are made from
/// schemas: a process makes those that it needs.
fn classes_of(app: &App, first: &str) -> Vec<ClassVerbs> {
    if has_commands_of(first) {
        return Vec::new();
    }
    (app.class)(first).map_or_else(app.classes, |class| vec![class])
}

/// The typed verb, its arguments, and the parameters that these are, before its client completes
/// them from files.
fn typed<'m>(
    classes: &[ClassVerbs],
    matches: &'m ArgMatches,
) -> Option<(&'static Entry, &'m ArgMatches, Result<Value>)> {
    let (entry, of) = values::typed_verb(classes, matches)?;
    let params = classes::call(classes, matches)
        .unwrap_or_else(|| values::params(&entry.words(), entry.args(), of));
    Some((entry, of, params))
}

/// A command line as a verb and its parameters.
///
/// # Errors
/// [`Kind::Usage`]: it is no command line of `ashlar`, or a value is wrong.
pub fn parse(classes: &[ClassVerbs], line: &str) -> Result<(&'static Entry, Value)> {
    parse_by(&command(classes), classes, line)
}

/// As [`parse`]; `whole` is the [`command`] of `classes`. A redirection and the words behind it
/// are left out.
pub(crate) fn parse_by(
    whole: &Command,
    classes: &[ClassVerbs],
    line: &str,
) -> Result<(&'static Entry, Value)> {
    let is_shell = |word: &String| matches!(word.as_str(), "|" | "<" | ">" | "&");
    let words: Vec<String> =
        shell_words(line).into_iter().take_while(|word| !is_shell(word)).collect();
    let wrong = |why: String| Error::new(Kind::Usage, "read a command line", why).at(line);
    let matches = whole.clone().try_get_matches_from(words).map_err(|e| wrong(e.to_string()))?;
    let no_verb = || wrong("it has no verb".to_owned());
    let (entry, _, params) = typed(classes, &matches).ok_or_else(no_verb)?;
    Ok((entry, params?))
}

/// The words of a command line as a shell splits it: text in double quotes is one word.
pub fn shell_words(line: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut is_quoted = false;
    for letter in line.chars() {
        match (letter, words.last_mut()) {
            ('"', _) => is_quoted = !is_quoted,
            (' ', _) if !is_quoted => words.push(String::new()),
            (_, Some(word)) => word.push(letter),
            (_, None) => {}
        }
    }
    words
}

/// The help of every command, one after the other.
fn full_help(mut root: Command) -> String {
    fn add(command: &mut Command, path: &str, out: &mut String) {
        out.push_str(&format!("# {path}\n\n{}\n", command.render_long_help()));
        for of in command.get_subcommands_mut().filter(|of| of.get_name() != "help") {
            add(of, &format!("{path} {}", of.get_name()), out);
        }
    }
    root.build();
    let mut out = String::new();
    add(&mut root, "ashlar", &mut out);
    out
}

fn print_error(
    error: &Error,
    form: OutputFormat,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> Exit {
    // A failed write cannot be reported.
    let _ = match form {
        OutputFormat::Json => {
            writeln!(out, "{}", crate::text::json(&json!({ "error": error }).to_string()))
        }
        OutputFormat::Table => writeln!(err, "{}", crate::text::escape_text(&error.to_string())),
    };
    error.kind.exit()
}

/// Prints an answer.
fn print(
    form: OutputFormat,
    answer: &Value,
    table: impl FnOnce() -> Result<String>,
    out: &mut dyn Write,
) -> Result<()> {
    let text = match form {
        OutputFormat::Json => crate::text::json(&format!("{answer:#}\n")).into_owned(),
        OutputFormat::Table => crate::text::escape_text(&table()?).into_owned(),
    };
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        // `ashlar list | head -1` is no failure.
        Err(e) if e.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Error::new(Kind::System, "print", e))
        }
        _ => Ok(()),
    }
}

/// Runs one verb and prints its answer.
#[allow(clippy::too_many_arguments)]
fn run_verb(
    app: &App,
    entry: &Entry,
    params: Value,
    client: &Client,
    form: OutputFormat,
    mode: ProgressMode,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> Result<Exit> {
    let params = (entry.prepare)(params, app)?;
    let answer = match entry.run {
        Run::Daemon(_) => {
            let mut meter = ProgressMeter::new(mode, err);
            client.verb(entry.name, &params, &mut |line| meter.show(&line))?
        }
        Run::Local(run) => {
            let json = form == OutputFormat::Json;
            run(Local { client, app, json, out: &mut *out }, params)?
        }
    };
    print(form, &answer, || (entry.table)(&answer), out)?;
    Ok((entry.exit)(&answer))
}

#[cfg(test)]
#[path = "transcripts.rs"]
mod tests;
