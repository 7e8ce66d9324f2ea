//! Blocks of commands in the README and the manual: each is run by a test, or marked with the
//! reason why it is not.
//!
//! `crates/ashlar/tests/live/manual.rs` runs the `console` blocks. A block of another kind that
//! holds commands or a script follows a comment `<!-- not run: REASON -->`. Files in a reason
//! exist. A block without a kind counts as commands: diagrams and files have one, such as `text`.

use std::fs;
use std::io;
use std::path::Path;

use crate::links::documents_of;

/// Start of the comment that gives the reason.
const MARK: &str = "<!-- not run: ";

/// Info string of a block whose commands a test runs.
const RUN: &str = "console";

/// Info strings of blocks of commands and scripts. A block without one is in doubt.
const COMMANDS: [&str; 5] = [RUN, "sh", "powershell", "python", ""];

/// Pages that are made from the program; tests run its examples.
const GENERATED: &str = "docs/reference/";

/// First words of a path in a reason.
const FOLDERS: [&str; 3] = ["crates/", "docs/", "ci/"];

/// A block of commands that no test runs.
#[derive(Debug, PartialEq, Eq)]
pub struct UnrunBlock {
    /// Number of its first line.
    pub line: usize,
    /// The reason; `None` without a mark.
    pub reason: Option<String>,
}

/// Every block of commands of the checkout that no test runs and that has no mark. Also every mark
/// with a file that does not exist.
pub fn unmarked_commands(root: &Path) -> io::Result<Vec<String>> {
    let mut out = Vec::new();
    for page in documents_of(root)? {
        let name = page.strip_prefix(root).unwrap_or(&page).display().to_string();
        let is_checked = name == "README.md" || name.starts_with("docs/");
        if !is_checked || name.starts_with(GENERATED) {
            continue;
        }
        for UnrunBlock { line, reason } in unrun_blocks(&fs::read_to_string(&page)?) {
            let Some(reason) = reason else {
                out.push(format!(
                    "{name}:{line}: no test runs these commands: make it a `{RUN}` block with its \
                     output, or put `{MARK}REASON -->` before it; other contents have a kind, such \
                     as `text`"
                ));
                continue;
            };
            let files = reason.split_whitespace().map(|word| word.trim_end_matches([',', ';']));
            let files = files.filter(|word| FOLDERS.iter().any(|folder| word.starts_with(folder)));
            let missing = files.filter(|file| !root.join(file).exists());
            out.extend(missing.map(|file| format!("{name}:{line}: {file} does not exist")));
        }
    }
    Ok(out)
}

/// The blocks of commands of a document that no test runs.
pub fn unrun_blocks(text: &str) -> Vec<UnrunBlock> {
    let lines: Vec<&str> = text.lines().collect();
    let mut out = Vec::new();
    let mut is_code = false;
    for (at, line) in lines.iter().enumerate() {
        let Some(info) = line.trim_start().strip_prefix("```") else { continue };
        is_code = !is_code;
        if !is_code {
            continue;
        }
        let is_run = line.strip_prefix("```") == Some(RUN);
        let first = lines.get(at + 1).map_or("", |line| line.trim_start());
        if !is_run && (COMMANDS.contains(&info.trim()) || first.starts_with("$ ")) {
            out.push(UnrunBlock { line: at + 1, reason: marked(&lines[..at], MARK) });
        }
    }
    out
}

/// The words between `mark` and the end of the comment at the end of these lines.
pub(crate) fn marked(before: &[&str], mark: &str) -> Option<String> {
    let begin = before.iter().rposition(|line| line.trim_start().starts_with("<!--"))?;
    let comment: Vec<&str> = before[begin..].iter().map(|line| line.trim()).collect();
    let comment = comment.join(" ");
    let words = comment.trim_end().strip_prefix(mark)?.strip_suffix("-->")?.trim();
    (!words.is_empty() && !words.contains("-->")).then(|| words.to_owned())
}
