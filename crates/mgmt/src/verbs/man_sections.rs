//! Sections of a manual page that do not depend on clap: exit codes, examples, files.

use crate::api::Exit;
use clap_mangen::roff::{Roff, bold, roman};

/// Names with their descriptions.
pub(super) type Items<'a> = &'a [(&'a str, &'a str)];

const FILES: Items<'static> = &[
    ("/etc/ashlar/ashlar.toml", "the configuration"),
    ("/run/ashlar/ashlar.sock", "the control socket of root's daemon"),
    ("/var/lib/ashlar", "state and history of root's daemon"),
    ("~/.local/state/ashlar", "state and history of a user's daemon"),
];

const ENVIRONMENT: Items<'static> = &[
    ("ASHLAR_CONFIG", "the configuration, instead of /etc/ashlar/ashlar.toml"),
    ("ASHLAR_SOCKET", "the control socket"),
    ("ASHLAR_REMOTE", "URL of the daemon of another machine, instead of --remote"),
    ("ASHLAR_TOKEN_FILE", "file of the token for it, instead of --token-file"),
    ("ASHLAR_CERTIFICATE", "client certificate for it, instead of --certificate"),
    ("ASHLAR_KEY", "private key of that certificate, instead of --key"),
    ("ASHLAR_CA", "CA certificates that verify it, instead of --ca"),
    ("CREDENTIALS_DIRECTORY", "folder of secrets that are written as credential:NAME"),
];

/// Pages that every page refers to, with their sections.
const SEE_ALSO: Items<'static> = &[
    ("ashlar", "(7), "),
    ("ashlar-concepts", "(7), "),
    ("ashlar.toml", "(5), "),
    ("ashlar", "(8), "),
    ("ashlar-bench", "(1)"),
];

/// The title line of a page that clap does not know, and its NAME section.
pub(super) fn name(roff: &mut Roff, (page, section): (&str, &str), about: &str) {
    roff.control("TH", [page, section, "", "Ashlar", "Ashlar"]);
    roff.control("SH", ["NAME"]);
    roff.text([roman(format!("{page} - {about}"))]);
}

/// A section that lists names with their descriptions.
pub(super) fn items(roff: &mut Roff, title: &str, items: Items<'_>) {
    roff.control("SH", [title]);
    for (name, doc) in items {
        roff.control("TP", []);
        roff.text([bold(*name)]);
        roff.text([roman(*doc)]);
    }
}

/// Lines as they are: a configuration or a session.
pub(super) fn verbatim<'a>(roff: &mut Roff, lines: impl IntoIterator<Item = &'a str>) {
    roff.control("PP", []);
    roff.control("nf", []);
    for line in lines {
        roff.text([roman(line)]);
    }
    roff.control("fi", []);
}

/// The exit codes of every command.
pub(super) fn exits(roff: &mut Roff) {
    roff.control("SH", ["EXIT STATUS"]);
    for (exit, doc) in Exit::ALL {
        roff.control("TP", []);
        roff.text([bold((*exit as u8).to_string())]);
        roff.text([roman(*doc)]);
    }
}

/// Command lines, one in each paragraph.
pub(super) fn examples(roff: &mut Roff, examples: &[impl AsRef<str>]) {
    roff.control("SH", ["EXAMPLES"]);
    for line in examples {
        verbatim(roff, [line.as_ref()]);
    }
}

/// The end of every page: files, environment and other pages.
pub(super) fn files(roff: &mut Roff) {
    items(roff, "FILES", FILES);
    items(roff, "ENVIRONMENT", ENVIRONMENT);
    roff.control("SH", ["SEE ALSO"]);
    let word = |(page, section): &(&str, &str)| [bold(*page), roman(*section)];
    roff.text(SEE_ALSO.iter().flat_map(word).collect::<Vec<_>>());
}
