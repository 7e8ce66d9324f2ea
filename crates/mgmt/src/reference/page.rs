//! One page of the reference, or a part of one, as Markdown.

use std::fmt::Write;

use crate::verbs::schema;

/// Columns of running text.
const COLUMNS: usize = 100;

/// The first line below each title.
const GENERATED_NOTE: &str = "This page is made from the program: `ASHLAR_WRITE_REFERENCE=1 \
                              cargo test -p ashlar-daemon --test suite reference` writes it.";

/// A page's text. Writing to a String cannot fail.
pub(super) struct Page(String);

impl Page {
    /// A page that is made as a whole.
    pub fn new(title: &str) -> Page {
        let mut page = Page(format!("# {title}\n"));
        page.text(GENERATED_NOTE);
        page
    }

    /// A part of a page.
    pub fn part() -> Page {
        Page(String::new())
    }

    /// The text.
    pub fn finish(self) -> String {
        self.0
    }

    /// A heading.
    pub fn head(&mut self, level: usize, title: &str) {
        let _ = writeln!(self.0, "\n{} {title}", "#".repeat(level));
    }

    /// A paragraph, wrapped.
    pub fn text(&mut self, text: &str) {
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

    /// A table.
    pub fn table(&mut self, columns: &[&str], rows: &[Vec<String>]) {
        let cells = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
        let cell = |text: &String| text.replace('\n', " ").replace('|', "\\|");
        self.0.push('\n');
        self.0.push_str(&cells(columns.iter().map(|c| (*c).to_owned()).collect()));
        self.0.push_str(&cells(columns.iter().map(|_| "---".to_owned()).collect()));
        rows.iter().for_each(|row| self.0.push_str(&cells(row.iter().map(cell).collect())));
    }

    /// A block of code.
    pub fn block(&mut self, language: &str, text: &str) {
        let _ = writeln!(self.0, "\n```{language}\n{}\n```", text.trim_end());
    }

    /// The keys of a schema of the configuration.
    pub fn keys(&mut self, schema: &serde_json::Value) {
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
