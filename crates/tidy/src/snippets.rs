//! Snippets of code in the documents: each is a part of the file that it quotes.
//!
//! A block of Rust follows a comment `<!-- from: FILE -->`, or `<!-- no file: REASON -->` if it is
//! in no file. `...` in it replaces code that is left out. Blanks, line ends and comments behind
//! code are not compared. A block of kind `diff` names its files by lines `--- a/FILE`: they have
//! its added lines, and those beside them.

use std::fs;
use std::io;
use std::path::Path;

use crate::commands::marked;
use crate::links::documents_of;

/// Start of the comment that names the quoted file.
const FROM: &str = "<!-- from: ";

/// Start of the comment before code that is in no file.
const NO_FILE: &str = "<!-- no file: ";

/// Text of a file, by its path from the root of the checkout.
type Read<'r> = &'r dyn Fn(&str) -> Option<String>;

/// Every snippet of the checkout's documents that its file does not have, as `FILE:LINE: fault`.
pub fn false_snippets(root: &Path) -> io::Result<Vec<String>> {
    let read = |file: &str| fs::read_to_string(root.join(file)).ok();
    let mut out = Vec::new();
    for page in documents_of(root)? {
        let name = page.strip_prefix(root).unwrap_or(&page).display();
        let faults = snippet_faults(&fs::read_to_string(&page)?, &read).into_iter();
        out.extend(faults.map(|(line, fault)| format!("{name}:{line}: {fault}")));
    }
    Ok(out)
}

/// First lines of the false snippets of a document, each with the fault.
pub fn snippet_faults(text: &str, read: Read<'_>) -> Vec<(usize, String)> {
    let lines: Vec<&str> = text.lines().collect();
    let is_fence = |line: &&&str| line.trim_start().starts_with("```");
    let mut out = Vec::new();
    let mut at = 0;
    while at < lines.len() {
        let begin = at;
        at += 1;
        let Some(info) = lines[begin].trim_start().strip_prefix("```") else { continue };
        let len = lines[at..].iter().take_while(|line| !is_fence(line)).count();
        let block = &lines[at..at + len];
        at += len + 1;
        let fault = match info.trim() {
            "rust" => fault_of_code(&lines[..begin], block, read),
            "diff" => fault_of_change(block, read),
            _ => None,
        };
        out.extend(fault.map(|fault| (begin + 1, fault)));
    }
    out
}

fn fault_of_code(before: &[&str], block: &[&str], read: Read<'_>) -> Option<String> {
    let Some(file) = marked(before, FROM) else {
        let is_marked = marked(before, NO_FILE).is_some();
        return (!is_marked).then(|| {
            format!("no file is named: put `{FROM}FILE -->` or `{NO_FILE}REASON -->` before it")
        });
    };
    let Some(text) = read(&file) else { return Some(format!("{file} does not exist")) };
    let is_there = is_part_of(&block.join("\n"), &text);
    (!is_there).then(|| format!("{file} has other code: copy it again"))
}

fn fault_of_change(block: &[&str], read: Read<'_>) -> Option<String> {
    let mut file: Option<(&str, String)> = None;
    for line in block {
        if let Some(name) = line.strip_prefix("--- a/") {
            let Some(text) = read(name) else { return Some(format!("{name} does not exist")) };
            file = Some((name, text));
            continue;
        }
        let mut signs = ["@@", "+", " "].into_iter();
        let Some(code) = signs.find_map(|sign| line.strip_prefix(sign)) else { continue };
        let Some((name, text)) = &file else {
            return Some("the change names no file: begin it with `--- a/FILE`".to_owned());
        };
        if !text.contains(code.trim()) {
            return Some(format!("{name} has no `{}`: copy it again", code.trim()));
        }
    }
    None
}

/// Whether the parts of a snippet, which `...` separates, are in a file in their order.
fn is_part_of(snippet: &str, file: &str) -> bool {
    let (snippet, file) = (bare(snippet), bare(file));
    let mut rest = file.as_str();
    let mut parts = snippet.split("...");
    parts.all(|part| match rest.find(part) {
        Some(at) => {
            rest = &rest[at + part.len()..];
            true
        }
        None => false,
    })
}

/// Code without blanks, line ends and comments behind it.
fn bare(code: &str) -> String {
    let lines = code.lines().map(|line| line.split_once(" // ").map_or(line, |(code, _)| code));
    lines.flat_map(|line| line.chars().filter(|c| !c.is_whitespace())).collect()
}
