//! man: manual pages. Section 8 is made from the table of verbs, section 5 from the schemas of
//! `ashlar.toml`; section 7 is text (`man_overview`).

use super::entry::{CommandVerb, Entry, Local};
use super::man_sections::{examples, exits, files, name, verbatim};
use super::schema::{rows, sections};
use super::{GROUPS, VERBS, man_overview};
use crate::App;
use crate::api::{Error, Kind, Result};
use crate::cli::{ClassVerbs, class_pages, command, common_options, subcommand};
use crate::config::Catalog;
use crate::plan::kind_schema;
use clap_mangen::roff::{Roff, bold, roman};
use geom::Verb;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::path::Path;

/// Parameters of `man`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ManParams {
    /// Folder for the pages, in man5, man7 and man8 below it [default: print the overview]
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

/// The page of one command: the sections that clap renders, then exit codes, examples and files.
fn page(command: clap::Command, lines: &[impl AsRef<str>]) -> Result<String> {
    let fail = |e: std::io::Error| Error::new(Kind::Internal, "man", e);
    let has_verbs = command.has_subcommands();
    let man = clap_mangen::Man::new(command).section("8").manual("Ashlar").source("Ashlar");
    let mut out = Vec::new();
    man.render_title(&mut out).map_err(fail)?;
    man.render_name_section(&mut out).map_err(fail)?;
    man.render_synopsis_section(&mut out).map_err(fail)?;
    man.render_description_section(&mut out).map_err(fail)?;
    man.render_options_section(&mut out).map_err(fail)?;
    if has_verbs {
        man.render_subcommands_section(&mut out).map_err(fail)?;
    }
    let mut roff = Roff::new();
    exits(&mut roff);
    examples(&mut roff, lines);
    files(&mut roff);
    roff.to_writer(&mut out).map_err(fail)?;
    Ok(String::from_utf8_lossy(&out).into_owned())
}

/// File name of the configuration's page.
const FILE_PAGE: &str = "ashlar.toml.5";

/// The page of the configuration file, section 5.
fn file_page(catalog: &Catalog) -> String {
    let mut roff = Roff::new();
    name(&mut roff, ("ashlar.toml", "5"), "configuration of the Ashlar storage daemon");
    roff.control("SH", ["DESCRIPTION"]);
    roff.text([roman(
        "A TOML file. Unknown keys are errors. A number of bytes may have a unit (64MiB, 10GiB), \
         and so may a duration (10ms, 5s). Relative paths begin at the folder of the file. ashlar \
         plan shows what a change would do, with the risk of each step; ashlar apply does it.",
    )]);
    let mut keys = |title: &str, doc: &str, schema: Option<&Value>, example: &str| {
        roff.control("SH", [title]);
        roff.text([roman(doc)]);
        for [key, kind, default, change, doc] in schema.map(rows).unwrap_or_default() {
            roff.control("TP", []);
            roff.text([bold(key), roman(format!(" ({kind}; default {default})"))]);
            roff.text([roman(doc)]);
            roff.control("br", []);
            roff.text([roman(format!("Change: {change}."))]);
        }
        if !example.is_empty() {
            verbatim(&mut roff, example.lines());
        }
    };
    for section in sections() {
        keys(&section.name.to_uppercase(), &section.doc, section.schema.as_ref(), &section.example);
    }
    for (section, entry) in catalog.all() {
        let title = format!("{} {}", section.to_uppercase(), entry.name);
        keys(&title, &entry.doc, Some(&kind_schema(section, entry, catalog)), &entry.example);
    }
    examples(&mut roff, &["ashlar schema disk", "ashlar plan ashlar.toml"]);
    files(&mut roff);
    roff.to_roff()
}

/// The name of a verb's page.
pub fn page_name(verb: &Entry) -> String {
    format!("ashlar-{}.8", verb.name.replace('.', "-"))
}

/// Examples of the page of the whole program.
const PROGRAM_EXAMPLES: &[&str] =
    &["ashlar serve ashlar.toml", "ashlar status", "ashlar plan ashlar.toml"];

/// The first example of each verb of a group.
fn group_examples(group: &str, classes: &[ClassVerbs]) -> Vec<String> {
    let is_of = |verb: &&Entry| verb.name.split_once('.').is_some_and(|(of, _)| of == group);
    let own = VERBS.iter().filter(is_of).filter_map(|verb| verb.examples().into_iter().next());
    let class = classes.iter().filter(|class| class.name == group);
    own.chain(class.flat_map(|c| c.all_verbs().map(move |verb| c.example(verb)))).collect()
}

/// The pages of section 8 with their names.
///
/// # Errors
/// [`Kind::Internal`] when a page cannot be set.
pub fn pages(classes: &[ClassVerbs]) -> Result<Vec<(String, String)>> {
    let program = command(classes);
    let mut out = vec![("ashlar.8".to_owned(), page(program.clone(), PROGRAM_EXAMPLES)?)];
    for group in GROUPS.iter().map(|(group, _)| *group).chain(classes.iter().map(|c| c.name)) {
        if let Some(found) = program.find_subcommand(group) {
            let name = format!("ashlar-{group}");
            let named = found.clone().name(name.clone()).bin_name(format!("ashlar {group}"));
            out.push((format!("{name}.8"), page(named, &group_examples(group, classes))?));
        }
    }
    for verb in VERBS {
        let name = page_name(verb);
        let title = name.trim_end_matches(".8").to_owned();
        let described = subcommand(verb).args(common_options());
        let named = described.name(title).bin_name(format!("ashlar {}", verb.words()));
        out.push((name, page(named, &verb.examples())?));
    }
    for (name, command, example) in class_pages(classes) {
        out.push((name, page(command, &[example])?));
    }
    Ok(out)
}

/// The pages of all sections with their names.
fn all_pages(classes: &[ClassVerbs], catalog: &Catalog) -> Result<Vec<(String, String)>> {
    let mut all = pages(classes)?;
    all.push((FILE_PAGE.to_owned(), file_page(catalog)));
    all.extend(man_overview::pages());
    Ok(all)
}

/// The folder of a page below the folder of all pages, by its section.
fn section_folder(page: &str) -> String {
    format!("man{}", page.rsplit('.').next().unwrap_or_default())
}

impl Verb<App> for ManParams {
    const NAME: &'static str = "man";
    const DOC: &'static str = "Write the manual pages";
    const EXAMPLE: &'static str = "man --out /usr/local/share/man";
    const MORE_EXAMPLES: &'static [&'static str] = &["man | man -l -"];
    type Answer = ManAnswer;

    fn run(self, local: Local<'_>) -> Result<ManAnswer> {
        let classes = (local.app.classes)();
        let Some(folder) = self.out else {
            let page = pages(&classes)?.into_iter().next().map(|(_, text)| text);
            return Ok(ManAnswer { files: Vec::new(), page: page.unwrap_or_default() });
        };
        let fail = |at: &Path, e| Error::new(Kind::System, "man", e).at(at.display().to_string());
        let mut files = Vec::new();
        for (name, text) in all_pages(&classes, &(local.app.catalog)())? {
            let folder = Path::new(&folder).join(section_folder(&name));
            std::fs::create_dir_all(&folder).map_err(|e| fail(&folder, e))?;
            let path = folder.join(name);
            std::fs::write(&path, text).map_err(|e| fail(&path, e))?;
            files.push(path.display().to_string());
        }
        Ok(ManAnswer { files, page: String::new() })
    }
}

impl CommandVerb<App> for ManParams {
    fn table(answer: &ManAnswer) -> String {
        if answer.page.is_empty() {
            answer.files.iter().map(|f| format!("{f}\n")).collect()
        } else {
            answer.page.clone()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_page_has_examples_files_environment_and_see_also() {
        let pages = all_pages(&[], &crate::fake::catalog()).expect("pages");
        for page in ["ashlar.8", "ashlar-part.8", "ashlar.toml.5", "ashlar.7", "ashlar-concepts.7"]
        {
            assert!(pages.iter().any(|(name, _)| name == page), "{page} is missing");
        }
        for (page, text) in &pages {
            for title in ["NAME", "EXAMPLES", "FILES", "ENVIRONMENT", "\"SEE ALSO\""] {
                let sections = text.matches(&format!(".SH {title}\n")).count();
                assert_eq!(sections, 1, "{page}: section {title}");
            }
        }
    }

    #[test]
    fn pages_are_written_to_the_folder_of_their_section() {
        assert_eq!(section_folder("ashlar.toml.5"), "man5");
        assert_eq!(section_folder("ashlar-part-add.8"), "man8");
    }
}
