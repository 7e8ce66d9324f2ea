//! man: manual pages from the table of verbs.

use super::entry::{Entry, Local, LocalVerb, Verb};
use super::schema::{rows, sections};
use super::{GROUPS, VERBS};
use crate::api::{Error, Exit, Kind, Result};
use crate::cli::{ClassVerbs, class_pages, command, common_options, subcommand};
use crate::config::Catalog;
use clap_mangen::roff::{Roff, bold, roman};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::path::Path;

/// See the module.
pub struct Man;

/// Parameters of `man`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ManParams {
    /// Folder for the pages, created if it does not exist [default: print the overview]
    pub out: Option<String>,
}

/// Answer of `man`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct ManAnswer {
    /// Files written.
    pub files: Vec<String>,
    /// The overview page, when no folder was given.
    pub page: String,
}

fn exits(roff: &mut Roff) {
    roff.control("SH", ["EXIT STATUS"]);
    for (exit, doc) in Exit::ALL {
        roff.control("TP", []);
        roff.text([bold((*exit as u8).to_string())]);
        roff.text([roman(*doc)]);
    }
}

fn examples(roff: &mut Roff, examples: &[&str]) {
    roff.control("SH", ["EXAMPLES"]);
    for line in examples {
        roff.control("PP", []);
        roff.control("nf", []);
        roff.text([roman(*line)]);
        roff.control("fi", []);
    }
}

/// The page of one command: what clap knows of it, then exit codes and examples.
fn page(command: clap::Command, lines: &[&str]) -> Result<String> {
    let fail = |e: std::io::Error| Error::new(Kind::Internal, "man", e);
    let man = clap_mangen::Man::new(command).section("8").manual("Ashlar").source("Ashlar");
    let mut out = Vec::new();
    man.render_title(&mut out).map_err(fail)?;
    man.render_name_section(&mut out).map_err(fail)?;
    man.render_synopsis_section(&mut out).map_err(fail)?;
    man.render_description_section(&mut out).map_err(fail)?;
    man.render_options_section(&mut out).map_err(fail)?;
    if man_has_verbs(lines) {
        man.render_subcommands_section(&mut out).map_err(fail)?;
    }
    let mut roff = Roff::new();
    exits(&mut roff);
    if !lines.is_empty() {
        examples(&mut roff, lines);
    }
    files_section(&mut roff);
    roff.to_writer(&mut out).map_err(fail)?;
    Ok(String::from_utf8_lossy(&out).into_owned())
}

/// File name of the configuration's page.
const FILE_PAGE: &str = "ashlar.toml.5";

/// The page of the configuration file, section 5.
fn file_page(catalog: &Catalog) -> String {
    let mut roff = Roff::new();
    roff.control("TH", ["ashlar.toml", "5", "", "Ashlar", "Ashlar"]);
    roff.control("SH", ["NAME"]);
    roff.text([roman("ashlar.toml - configuration of the Ashlar storage daemon")]);
    roff.control("SH", ["DESCRIPTION"]);
    roff.text([roman(
        "A TOML file. Unknown keys are errors. A number of bytes may have a unit (64MiB, 10GiB), \
         and so may a duration (10ms, 5s). Relative paths begin at the folder of the file. ashlar \
         plan shows what a change would do, with the risk of each step; ashlar apply does it.",
    )]);
    let mut keys = |title: &str, doc: &str, schema: Option<&Value>, example: &str| {
        roff.control("SH", [title]);
        roff.text([roman(doc)]);
        for row in schema.map(rows).unwrap_or_default() {
            let [key, kind, default, doc] = row.as_slice() else { continue };
            roff.control("TP", []);
            roff.text([bold(key.as_str()), roman(format!(" ({kind}; default {default})"))]);
            roff.text([roman(doc.as_str())]);
        }
        if !example.is_empty() {
            roff.control("PP", []);
            roff.control("nf", []);
            for line in example.lines() {
                roff.text([roman(line)]);
            }
            roff.control("fi", []);
        }
    };
    for section in sections() {
        keys(&section.name.to_uppercase(), &section.doc, section.schema.as_ref(), &section.example);
    }
    for (section, entry) in catalog.all() {
        let title = format!("{} {}", section.to_uppercase(), entry.name);
        keys(&title, &entry.doc, Some(&entry.schema), &entry.example);
    }
    files_section(&mut roff);
    roff.to_roff()
}

/// Files, environment and other pages.
fn files_section(roff: &mut Roff) {
    let list = [
        (
            "FILES",
            &[
                ("/etc/ashlar/ashlar.toml", "the configuration"),
                ("/run/ashlar/ashlar.sock", "the control socket of root's daemon"),
                ("/var/lib/ashlar", "state and history of root's daemon"),
                ("~/.local/state/ashlar", "state and history of a user's daemon"),
            ][..],
        ),
        (
            "ENVIRONMENT",
            &[
                ("ASHLAR_CONFIG", "the configuration, instead of /etc/ashlar/ashlar.toml"),
                ("ASHLAR_SOCKET", "the control socket"),
                ("CREDENTIALS_DIRECTORY", "folder of secrets that are written as credential:NAME"),
            ][..],
        ),
    ];
    for (title, entries) in list {
        roff.control("SH", [title]);
        for (name, doc) in entries {
            roff.control("TP", []);
            roff.text([bold(*name)]);
            roff.text([roman(*doc)]);
        }
    }
    roff.control("SH", ["SEE ALSO"]);
    roff.text([bold("ashlar"), roman("(8), "), bold("ashlar.toml"), roman("(5)")]);
}

/// Overview pages have no examples of their own but a list of verbs.
fn man_has_verbs(lines: &[&str]) -> bool {
    lines.is_empty()
}

/// The name of a verb's page.
pub fn page_name(verb: &Entry) -> String {
    format!("ashlar-{}.8", verb.name.replace('.', "-"))
}

/// Every page with its name.
///
/// # Errors
/// [`Kind::Internal`] when a page cannot be set.
pub fn pages(classes: &[ClassVerbs]) -> Result<Vec<(String, String)>> {
    let whole = command(classes);
    let mut out = vec![("ashlar.8".to_owned(), page(whole.clone(), &[])?)];
    for group in GROUPS.iter().map(|(group, _)| *group).chain(classes.iter().map(|c| c.name)) {
        if let Some(found) = whole.find_subcommand(group) {
            let name = format!("ashlar-{group}");
            let named = found.clone().name(name.clone()).bin_name(format!("ashlar {group}"));
            out.push((format!("{name}.8"), page(named, &[])?));
        }
    }
    for verb in VERBS {
        let name = page_name(verb);
        let title = name.trim_end_matches(".8").to_owned();
        let whole = subcommand(verb).args(common_options());
        let named = whole.name(title).bin_name(format!("ashlar {}", verb.words()));
        out.push((name, page(named, verb.examples)?));
    }
    for (name, command, example) in class_pages(classes) {
        out.push((name, page(command, &[&example])?));
    }
    Ok(out)
}

impl Verb for Man {
    type Params = ManParams;
    type Answer = ManAnswer;
    const NAME: &'static str = "man";
    const DOC: &'static str = "Write the manual pages";
    const EXAMPLES: &'static [&'static str] =
        &["ashlar man --out /usr/local/share/man/man8", "ashlar man | man -l -"];

    fn table(answer: &ManAnswer) -> String {
        if answer.page.is_empty() {
            answer.files.iter().map(|f| format!("{f}\n")).collect()
        } else {
            answer.page.clone()
        }
    }
}

impl LocalVerb for Man {
    fn run(local: &mut Local<'_>, params: ManParams) -> Result<ManAnswer> {
        let mut pages = pages(&(local.app.classes)())?;
        let Some(folder) = params.out else {
            let page = pages.into_iter().next().map(|(_, text)| text).unwrap_or_default();
            return Ok(ManAnswer { files: Vec::new(), page });
        };
        let fail = |at: &Path, e| Error::new(Kind::System, "man", e).at(at.display().to_string());
        let folder = Path::new(&folder);
        std::fs::create_dir_all(folder).map_err(|e| fail(folder, e))?;
        pages.push((FILE_PAGE.to_owned(), file_page(&(local.app.catalog)())));
        let mut files = Vec::new();
        for (name, text) in pages {
            let path = folder.join(name);
            std::fs::write(&path, text).map_err(|e| fail(&path, e))?;
            files.push(path.display().to_string());
        }
        Ok(ManAnswer { files, page: String::new() })
    }
}
