//! Verbs of classes on the command line. A class's specification of a verb gives the command, its
//! manual page and its completions; a typed command becomes a call of `geom`.
//!
//! `ashlar mirror label data d0 d1 --balance load` is `ashlar geom mirror label name=data ...`.

use super::build::{missing_options, verb_command};
use super::values::params;
use super::words::with_common_verbs;
use crate::api::{GeomListParams, GeomListing, GeomStatusParams, Result};
use crate::verbs::geom::former_names;
use clap::{ArgMatches, Command};
use geom::{ArgKind, ArgSpec, VerbSpec};
use serde_json::{Value, json};
use std::sync::LazyLock;

/// A class that has verbs, as the command line knows it.
#[derive(Clone, Copy)]
pub struct ClassVerbs {
    /// Its name.
    pub name: &'static str,
    /// One sentence.
    pub doc: &'static str,
    /// Its own verbs; those that every class has are added here.
    pub verbs: &'static [VerbSpec],
}

/// The verbs that every class has.
fn common_verbs() -> &'static [VerbSpec] {
    static ALL: LazyLock<Vec<VerbSpec>> = LazyLock::new(|| {
        vec![
            geom::describe::<GeomStatusParams, GeomListing>("status", &["names"], "status"),
            geom::describe::<GeomListParams, GeomListing>("list", &["names"], "list"),
        ]
    });
    &ALL
}

/// GEOM's option of every verb that changes something. `geom` removes it from the request to the
/// class, so it has a name that no class may use.
const LISTED_ARG: ArgSpec = ArgSpec {
    name: "listed",
    short: Some('v'),
    kind: ArgKind::Flag,
    doc: "Show the geom afterwards, as `list` does",
};

/// The arguments of a verb: its own, and [`LISTED_ARG`] where there is something to show.
fn arguments(verb: &VerbSpec) -> impl Iterator<Item = &ArgSpec> {
    let shows = common_verbs().iter().any(|v| v.name == verb.name);
    let taken = verb.args.iter().any(|a| a.name == LISTED_ARG.name || a.short == LISTED_ARG.short);
    verb.args.iter().chain((!shows && !taken).then_some(&LISTED_ARG))
}

impl ClassVerbs {
    /// Its verbs, with those of every class that it does not have itself.
    pub fn all_verbs(&self) -> impl Iterator<Item = &'static VerbSpec> {
        let own = self.verbs;
        let others = common_verbs().iter().filter(|v| !own.iter().any(|o| o.name == v.name));
        own.iter().chain(others)
    }

    /// The group of its commands.
    pub fn command(&self) -> Command {
        let mut of = Command::new(self.name)
            .about(self.doc.trim_end_matches('.'))
            .subcommand_required(true)
            .arg_required_else_help(true)
            .disable_help_subcommand(true);
        for verb in self.all_verbs() {
            of = of.subcommand(self.subcommand(verb));
        }
        with_common_verbs(of)
    }

    /// A command line that works.
    pub fn example(&self, verb: &VerbSpec) -> String {
        match verb.example.strip_prefix(self.name) {
            Some(_) => format!("ashlar {}", verb.example),
            None => format!("ashlar {} {}", self.name, verb.example),
        }
    }

    /// One verb.
    pub fn subcommand(&self, verb: &VerbSpec) -> Command {
        verb_command(verb.name, (verb.doc, verb.detail), &[self.example(verb)], arguments(verb))
            .aliases(former_names(verb.name))
    }
}

/// The parameters of `geom` for a typed verb of a class.
///
/// # Errors
/// [`Kind::Usage`] for a text where a number is wanted.
pub fn call(classes: &[ClassVerbs], matches: &ArgMatches) -> Option<Result<Value>> {
    let (class, of) = matches.subcommand()?;
    let found = classes.iter().find(|c| c.name == class)?;
    let (verb, of) = of.subcommand()?;
    let spec = found.all_verbs().find(|v| v.name == verb)?;
    let value = params(&format!("{class} {verb}"), arguments(spec), of);
    Some(value.map(|value| json!({ "class": class, "verb": verb, "value": value })))
}

/// The manual pages: name, command, example.
pub fn pages(classes: &[ClassVerbs]) -> Vec<(String, Command, String)> {
    let mut out = Vec::new();
    for class in classes {
        for verb in class.all_verbs() {
            let title = format!("ashlar-{}-{}", class.name, verb.name);
            let words = format!("ashlar {} {}", class.name, verb.name);
            let command = class.subcommand(verb);
            let general = missing_options(&command);
            let command = command.args(general).name(title.clone()).bin_name(words);
            out.push((format!("{title}.8"), command, class.example(verb)));
        }
    }
    out
}
