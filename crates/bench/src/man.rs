//! Manual page `ashlar-bench(1)`.

use std::io;

use clap_mangen::roff::{Roff, bold, roman};

const FILES: &[(&str, &str)] = &[
    ("ashlar", "the program to measure: the one beside ashlar-bench, else of PATH"),
    ("run/", "images, configuration, socket and log of the demo, in the current folder"),
];

const ENVIRONMENT: &[(&str, &str)] = &[("PATH", "folders of ashlar, of the peers and of perf")];

/// Names with their descriptions.
fn items(roff: &mut Roff, title: &str, items: impl IntoIterator<Item = (String, &'static str)>) {
    roff.control("SH", [title]);
    for (name, doc) in items {
        roff.control("TP", []);
        roff.text([bold(name)]);
        roff.text([roman(doc)]);
    }
}

/// The page: the sections that clap renders, then exit codes, examples and files.
///
/// # Errors
/// Those of writing to memory: none.
pub fn page(
    command: clap::Command,
    exits: &[(u8, &'static str)],
    examples: &[&str],
) -> io::Result<Vec<u8>> {
    let man = clap_mangen::Man::new(command).manual("Ashlar").source("Ashlar");
    let mut out = Vec::new();
    man.render_title(&mut out)?;
    man.render_name_section(&mut out)?;
    man.render_synopsis_section(&mut out)?;
    man.render_description_section(&mut out)?;
    man.render_options_section(&mut out)?;
    man.render_subcommands_section(&mut out)?;
    let mut roff = Roff::new();
    items(&mut roff, "EXIT STATUS", exits.iter().map(|(code, doc)| (code.to_string(), *doc)));
    roff.control("SH", ["EXAMPLES"]);
    for line in examples {
        roff.control("PP", []);
        roff.control("nf", []);
        roff.text([roman(*line)]);
        roff.control("fi", []);
    }
    let named = |(name, doc): &(&str, &'static str)| ((*name).to_owned(), *doc);
    items(&mut roff, "FILES", FILES.iter().map(named));
    items(&mut roff, "ENVIRONMENT", ENVIRONMENT.iter().map(named));
    roff.control("SH", ["SEE ALSO"]);
    roff.text([bold("ashlar"), roman("(7), "), bold("ashlar"), roman("(8)")]);
    roff.to_writer(&mut out)?;
    Ok(out)
}
