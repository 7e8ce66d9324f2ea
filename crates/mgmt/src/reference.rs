//! The reference of the manual: pages of Markdown made from the same schemas and tables as the
//! program, so that they cannot differ from it. A test of the daemon compares `docs/reference`.

use std::fmt::Write;

use crate::api::{Exit, Kind};
use crate::cli::ClassVerbs;
use crate::config::{Catalog, Entry};
use crate::http::metrics::{Family, METRICS};
use crate::plan::kind_schema;
use crate::verbs::{VERBS, schema};
use geom::ArgKind;

/// Columns of running text.
const COLUMNS: usize = 100;

/// The first line below each title.
const GENERATED_NOTE: &str = "This page is made from the program: `ASHLAR_WRITE_REFERENCE=1 \
                              cargo test -p ashlar-daemon --test suite reference` writes it.";

/// Every page: its file's name and its text.
pub fn pages(catalog: &Catalog, classes: &[ClassVerbs]) -> Vec<(&'static str, String)> {
    vec![
        ("configuration.md", configuration(catalog)),
        ("verbs.md", verbs(classes)),
        ("metrics.md", metrics()),
        ("errors.md", errors()),
    ]
}

/// The JSON Schema of `ashlar.toml` for editors: `docs/ashlar.schema.json`.
pub fn editor_schema(catalog: &Catalog) -> serde_json::Value {
    schema::config(catalog)
}

/// A page's text. Writing to a String cannot fail.
struct Page(String);

impl Page {
    fn new(title: &str) -> Page {
        let mut page = Page(format!("# {title}\n"));
        page.text(GENERATED_NOTE);
        page
    }

    fn head(&mut self, level: usize, title: &str) {
        let _ = writeln!(self.0, "\n{} {title}", "#".repeat(level));
    }

    /// A paragraph, wrapped.
    fn text(&mut self, text: &str) {
        for paragraph in text.split("\n\n") {
            let mut line = String::new();
            self.0.push('\n');
            for word in paragraph.split_whitespace() {
                if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > COLUMNS {
                    let _ = writeln!(self.0, "{line}");
                    line.clear();
                }
                if !line.is_empty() {
                    line.push(' ');
                }
                line.push_str(word);
            }
            let _ = writeln!(self.0, "{line}");
        }
    }

    fn table(&mut self, columns: &[&str], rows: &[Vec<String>]) {
        let cells = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
        let cell = |text: &String| text.replace('\n', " ").replace('|', "\\|");
        self.0.push('\n');
        self.0.push_str(&cells(columns.iter().map(|c| (*c).to_owned()).collect()));
        self.0.push_str(&cells(columns.iter().map(|_| "---".to_owned()).collect()));
        rows.iter().for_each(|row| self.0.push_str(&cells(row.iter().map(cell).collect())));
    }

    fn block(&mut self, language: &str, text: &str) {
        let _ = writeln!(self.0, "\n```{language}\n{}\n```", text.trim_end());
    }

    /// The keys of a schema.
    fn keys(&mut self, schema: &serde_json::Value) {
        let row = |[key, kind, default, change, doc]: schema::KeyRow| {
            vec![format!("`{key}`"), kind, default, change, doc]
        };
        let rows: Vec<Vec<String>> = schema::rows(schema).into_iter().map(row).collect();
        match rows.is_empty() {
            true => self.text("No keys of its own."),
            false => self.table(&["key", "type", "default", "change", "meaning"], &rows),
        }
    }
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
    page.0
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
        page.block("", &verb.examples.join("\n"));
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
    page.0
}

fn metrics() -> String {
    let mut page = Page::new("Metrics");
    page.text(
        "`/metrics` on the control socket, and over TCP with `metrics_listen` of `[daemon]`, in \
         the text format of Prometheus. Units are seconds and bytes. Names, types, units and labels \
         change only with the version of the API. Histograms are classic: the text format has no \
         native ones.",
    );
    let row = |f: &Family| {
        let labels: Vec<String> = f.labels.iter().map(|label| format!("`{label}`")).collect();
        vec![format!("`{}`", f.name), f.kind.to_owned(), labels.join(", "), f.help.to_owned()]
    };
    let rows: Vec<Vec<String>> = METRICS.iter().map(row).collect();
    page.table(&["metric", "type", "labels", "meaning"], &rows);
    page.0
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
    page.0
}
