//! Words that prose does not use, each with the words that take its place.
//!
//! Prose is the comments of every Rust file, the messages of its product code (literals with a
//! blank) and the documents. Code in backquotes or code blocks, a word in double quotes, a key
//! before ` =` and a name before `(` or `::` are not prose.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::Path;

use crate::links::{documents_of, prose_lines};
use crate::source::{Source, Tree};

/// Words, or pairs of words, of one kind in all their forms, and what to write instead.
const BANNED: &[(&[&str], &str)] = &[
    (
        &["nobody", "anybody", "somebody", "everybody", "whoever", "he", "him", "his"],
        "name the host, client, member or thread",
    ),
    (&["stand", "stands", "stood", "lies"], "is, is stored, waits"),
    (&["hear", "hears", "heard"], "receives, is notified, reports"),
    (&["tell", "tells", "told"], "reports, notifies, requests, distinguishes"),
    (&["heed", "heeds", "heeded"], "obeys, uses"),
    (&["bring", "brings", "brought"], "adds, attaches, returns, moves, restores"),
    (&["mend", "mends", "mended"], "repairs"),
    (&["verdict", "verdicts"], "decision, outcome, reason"),
    (&["accuse", "accuses", "accused", "accusation", "accusations"], "report, failure"),
    (&["blame", "blames", "blamed"], "cause"),
    (&["stranger", "strangers", "stander", "standers"], "another host, an unknown address, waiter"),
    (&["foretold", "foretell"], "predicted"),
    (&["court", "hall", "desk", "book", "books", "house", "door", "doors"], "the field's word"),
    (&["knock", "knocks", "knocked"], "connects, logs in"),
    (&["goes on", "went on"], "continues"),
    (&["comes back", "come back", "came back"], "returns"),
    (&["goes away", "went away"], "disappears"),
];

/// Words of one kind, what to write instead, and how many of them comments and messages may have.
pub type Falling = (&'static [&'static str], &'static str, usize);

/// Words that are being replaced. An edit may lower a number and never raises it.
pub const FALLING: &[Falling] = &[
    (&["say", "says", "said"], "reports, states, contains, shows", 248),
    (&["ask", "asks", "asked"], "requests, queries, probes, calls", 202),
    (&["come", "comes", "came"], "arrives, is received, is added, follows", 195),
    (&["go", "goes", "went", "gone"], "moves, is sent, was removed, was dropped", 337),
    (&["room"], "space, memory, free entries", 90),
    (&["whatever"], "any, each, all that, regardless of", 125),
];

/// Files and the banned word that each may use: names of a standard or of another program.
const EXCEPTIONS: &[(&str, &str)] = &[
    // An element type of SES-4.
    ("crates/wire/src/scsi/ses.rs", "door"),
    // A shell function of the guest.
    ("crates/bench/src/kernel.rs", "told"),
];

/// Every banned word in the prose of the checkout, as `file:line: word: what to write instead`.
pub fn banned_words(tree: &Tree, root: &Path) -> io::Result<Vec<String>> {
    let mut out: Vec<String> = tree.sources.iter().flat_map(banned_in_source).collect();
    for page in documents_of(root)? {
        let name = page.strip_prefix(root).unwrap_or(&page).display().to_string();
        out.extend(banned_in_document(&name, &fs::read_to_string(&page)?));
    }
    Ok(out)
}

/// Every kind of words of a list that comments and messages of the tree have too often.
pub fn falling_words(tree: &Tree, list: &[Falling]) -> Vec<String> {
    let mut counts = vec![0; list.len()];
    for (_, line) in tree.sources.iter().flat_map(lines_of) {
        for word in prose_words(line) {
            if let Some(kind) = list.iter().position(|(all, ..)| all.contains(&word.as_str())) {
                counts[kind] += 1;
            }
        }
    }
    let over = list.iter().zip(counts).filter(|((.., most), count)| count > most);
    let line = |((all, instead, most), count): (&Falling, usize)| {
        format!("{}: {count} in comments and messages, at most {most}: {instead}", all.join(", "))
    };
    over.map(line).collect()
}

/// Banned words in the comments and messages of a Rust file, in the order of their lines.
pub fn banned_in_source(source: &Source) -> Vec<String> {
    let lines = lines_of(source).into_iter();
    lines.flat_map(|(n, text)| banned_in_line(&source.path, n, text)).collect()
}

/// Comments and messages of a Rust file.
fn lines_of(source: &Source) -> Lines<'_> {
    let (mut lines, literals) = prose_of(&source.text);
    // Literals of this crate are the words themselves.
    if !source.is_test() && source.krate() != "tidy" {
        let product = source.product_lines().into_iter().map(|(n, _)| n);
        let product: BTreeSet<usize> = product.collect();
        lines.extend(literals.into_iter().filter(|(n, _)| product.contains(n)));
        lines.sort_by_key(|(n, _)| *n);
    }
    lines
}

/// Banned words in a document.
pub fn banned_in_document(name: &str, text: &str) -> Vec<String> {
    prose_lines(text).flat_map(|(n, line)| banned_in_line(name, n, line)).collect()
}

/// Lines of prose, with their numbers.
type Lines<'t> = Vec<(usize, &'t str)>;

/// Comments of a Rust file, and the lines of its literals that have a blank.
fn prose_of(text: &str) -> (Lines<'_>, Lines<'_>) {
    let (mut comments, mut literals) = (Lines::new(), Lines::new());
    let (mut number, mut rest) = (1, text);
    while let Some(first) = rest.chars().next() {
        let len = if rest.starts_with("//") {
            let len = rest.find('\n').unwrap_or(rest.len());
            comments.push((number, &rest[..len]));
            len
        } else if let Some((begin, end, len)) = literal(rest) {
            let content = &rest[begin..end];
            if content.contains(' ') {
                literals.extend((number..).zip(content.split('\n')));
            }
            len
        } else if first == '\'' {
            character(rest)
        } else {
            first.len_utf8()
        };
        number += rest[..len].matches('\n').count();
        rest = &rest[len..];
    }
    (comments, literals)
}

/// The literal at the start of a text: begin and end of its content, and its length.
fn literal(text: &str) -> Option<(usize, usize, usize)> {
    if let Some(raw) = text.strip_prefix('r') {
        let hashes = raw.len() - raw.trim_start_matches('#').len();
        let content = raw[hashes..].strip_prefix('"')?;
        let close = format!("\"{}", "#".repeat(hashes));
        let begin = hashes + 2;
        let end = begin + content.find(&close)?;
        return Some((begin, end, end + close.len()));
    }
    let mut is_escaped = false;
    let end = text.strip_prefix('"')?.find(|c: char| {
        let ends = c == '"' && !is_escaped;
        is_escaped = c == '\\' && !is_escaped;
        ends
    })?;
    Some((1, end + 1, end + 2))
}

/// Length of the character literal at the start of a text, or of the mark of a lifetime.
fn character(text: &str) -> usize {
    let mut inside = text[1..].chars();
    let (first, second) = (inside.next(), inside.next());
    match first {
        Some('\\') => {
            let close = text.get(3..).and_then(|rest| rest.find('\''));
            close.map_or(1, |at| at + 4)
        }
        Some(c) if second == Some('\'') => c.len_utf8() + 2,
        _ => 1,
    }
}

fn banned_in_line(path: &str, number: usize, line: &str) -> Vec<String> {
    let mut out = Vec::new();
    for span in line.split('`').step_by(2) {
        let words = lower_case(span);
        let pairs: Vec<String> = words.windows(2).map(|pair| pair.join(" ")).collect();
        for word in words.into_iter().chain(pairs) {
            let found = BANNED.iter().find(|(all, _)| all.contains(&word.as_str()));
            let Some((_, instead)) = found else { continue };
            if !EXCEPTIONS.contains(&(path, word.as_str())) {
                out.push(format!("{path}:{number}: `{word}` is not used: {instead}"));
            }
        }
    }
    out
}

fn prose_words(line: &str) -> Vec<String> {
    line.split('`').step_by(2).flat_map(lower_case).collect()
}

fn lower_case(text: &str) -> Vec<String> {
    words_of(text).into_iter().map(str::to_lowercase).collect()
}

/// Words of a text, without those that are code.
fn words_of(text: &str) -> Vec<&str> {
    let is_word = |c: char| c.is_alphanumeric() || c == '_' || c == '-';
    let is_code = |after: &str| ["::", "(", " =", "\""].iter().any(|sign| after.starts_with(sign));
    let mut words = Vec::new();
    let mut rest = text;
    while let Some(begin) = rest.find(is_word) {
        let tail = &rest[begin..];
        let len = tail.find(|c: char| !is_word(c)).unwrap_or(tail.len());
        if !is_code(&tail[len..]) {
            words.push(&tail[..len]);
        }
        rest = &tail[len..];
    }
    words
}
