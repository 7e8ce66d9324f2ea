//! The reference of the manual: pages of Markdown made from the same schemas and tables as the
//! program, so that they cannot differ from it. A test of the daemon compares `docs/reference`.
//!
//! [`pages`] are made as a whole, [`MARKED_PAGES`] in the parts that they mark.

mod api_page;
mod class_page;
mod event_page;
mod marked;
mod page;

use self::page::Page;
use crate::api::{Exit, Kind};
use crate::cli::ClassVerbs;
use crate::config::{Catalog, Entry};
use crate::http::metrics::{Family, METRICS};
use crate::plan::kind_schema;
use crate::verbs::{VERBS, schema};
use geom::ArgKind;

/// Every page: its file's name and its text.
pub fn pages(catalog: &Catalog, classes: &[ClassVerbs]) -> Vec<(&'static str, String)> {
    vec![
        ("configuration.md", configuration(catalog)),
        ("verbs.md", verbs(classes)),
        ("metrics.md", metrics()),
        ("errors.md", errors()),
    ]
}

/// Pages of `docs/reference` that are written by hand except for the parts that they mark.
pub const MARKED_PAGES: [&str; 3] = ["api.md", "classes.md", "events.md"];

/// A page of [`MARKED_PAGES`] with its marked parts as the program makes them.
///
/// # Errors
/// A part that the page marks and nothing makes, or that it lacks.
pub fn filled(
    name: &str,
    page: &str,
    catalog: &Catalog,
    classes: &[ClassVerbs],
) -> Result<String, String> {
    let parts = match name {
        "api.md" => api_page::parts(classes),
        "classes.md" => class_page::parts(catalog, classes),
        "events.md" => event_page::parts(),
        _ => Vec::new(),
    };
    marked::fill(name, page, &parts)
}

/// The JSON Schema of `ashlar.toml` for editors: `docs/ashlar.schema.json`.
pub fn editor_schema(catalog: &Catalog) -> serde_json::Value {
    schema::config(catalog)
}

fn configuration(catalog: &Catalog) -> String {
    let mut page = Page::new("ashlar.toml");
    page.text(
        "Unknown keys are errors. A number of bytes may have a unit (`64MiB`, `10GiB`), and so may \
         a duration (`10ms`, `5s`). Relative paths begin at the folder of the file. \
         `ashlar schema config --json` prints the JSON Schema for editors.",
    );
    page.text(
        "The column `change` has the effect that an edit of the key has on running hosts when it \
         is applied. `live`: sessions, LUNs and requests continue. `new logins only`: running \
         sessions keep the former value. An object that is removed and added takes all layers and \
         LUNs above it along; `ashlar plan` shows each of these steps with its risk and the hosts \
         concerned.",
    );
    for section in schema::sections() {
        page.head(2, &format!("`{}`", section.name));
        page.text(&section.doc);
        if let Some(schema) = &section.schema {
            page.keys(schema);
        }
        page.block("toml", &section.example);
        let (kinds, of): (&[Entry], &str) = match section.name.as_str() {
            "bus" => (&catalog.buses, "kind"),
            "disk" => (&catalog.disks, "kind"),
            "geom" => (&catalog.classes, "class"),
            "target" => (&catalog.drivers, "driver"),
            _ => (&[], ""),
        };
        for entry in kinds {
            page.head(3, &format!("`{of} = \"{}\"`", entry.name));
            page.text(&entry.doc);
            page.keys(&kind_schema(section.name.as_str(), entry, catalog));
            if !entry.example.is_empty() {
                page.block("toml", &entry.example);
            }
        }
    }
    page.finish()
}

fn verbs(classes: &[ClassVerbs]) -> String {
    let mut page = Page::new("Commands");
    page.text(
        "Every command has `--json`, `--socket PATH` and `--progress HOW`. `ashlar help --all` \
         prints the help of all commands.",
    );
    let args = |page: &mut Page, args: &[geom::ArgSpec]| {
        let name = |arg: &geom::ArgSpec| match arg.kind {
            ArgKind::Name | ArgKind::OptionalName | ArgKind::Names(_) => {
                format!("`{}`", arg.name.to_uppercase())
            }
            _ => match arg.short {
                Some(letter) => format!("`-{letter}`, `--{}`", arg.name.replace('_', "-")),
                None => format!("`--{}`", arg.name.replace('_', "-")),
            },
        };
        let doc = |arg: &geom::ArgSpec| match arg.kind {
            ArgKind::Choice(words) => {
                format!("{} [possible values: {}]", arg.doc, words.join(", "))
            }
            _ => arg.doc.to_owned(),
        };
        let rows: Vec<Vec<String>> = args.iter().map(|arg| vec![name(arg), doc(arg)]).collect();
        if !rows.is_empty() {
            page.table(&["argument", "meaning"], &rows);
        }
    };
    for verb in VERBS {
        page.head(2, &format!("`ashlar {}`", verb.words()));
        page.text(&format!("{}.", verb.doc));
        if !verb.detail.is_empty() {
            page.text(verb.detail);
        }
        args(&mut page, verb.args());
        page.block("", &verb.examples().join("\n"));
    }
    for class in classes {
        page.head(2, &format!("`ashlar {}`", class.name));
        page.text(&format!("{}.", class.doc.trim_end_matches('.')));
        for verb in class.all_verbs() {
            page.head(3, &format!("`ashlar {} {}`", class.name, verb.name));
            page.text(&format!("{}.", verb.doc));
            if !verb.detail.is_empty() {
                page.text(verb.detail);
            }
            args(&mut page, verb.args);
        }
    }
    page.finish()
}

fn metrics() -> String {
    let mut page = Page::new("Metrics");
    page.text(
        "`/metrics` on the control socket, and over TCP with `metrics_listen` of `[daemon]`, in \
         the text format of Prometheus, or in its protobuf format for clients that prefer it by \
         `Accept`. Units are seconds and bytes. Names, types, units and labels change only with \
         the version of the API. Histograms are classic, and in protobuf also native.",
    );
    let row = |f: &Family| {
        let labels: Vec<String> = f.labels.iter().map(|label| format!("`{label}`")).collect();
        vec![format!("`{}`", f.name), f.kind.to_owned(), labels.join(", "), f.help.to_owned()]
    };
    let rows: Vec<Vec<String>> = METRICS.iter().map(row).collect();
    page.table(&["metric", "type", "labels", "meaning"], &rows);
    page.finish()
}

fn errors() -> String {
    let mut page = Page::new("Errors and exit codes");
    page.head(2, "Exit codes");
    let exit = |(exit, doc): &(Exit, &str)| vec![(*exit as u8).to_string(), (*doc).to_owned()];
    page.table(&["code", "meaning"], &Exit::ALL.iter().map(exit).collect::<Vec<_>>());
    page.head(2, "Errors");
    page.text("`ashlar explain CODE` prints these lines.");
    let row = |kind: &Kind| {
        let exit = (kind.exit() as u8).to_string();
        vec![format!("`{}`", kind.code()), kind.title().to_owned(), kind.next().to_owned(), exit]
    };
    let rows: Vec<_> = Kind::ALL.iter().map(row).collect();
    page.table(&["code", "meaning", "what to do", "exit code"], &rows);
    page.finish()
}
