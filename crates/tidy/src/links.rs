//! Links between the documents of the repository.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Folders whose documents are looked at, besides the root of the checkout.
const FOLDERS: [&str; 4] = ["docs", "bench", "fuzz", ".github"];

/// Every link of the tree's documents that leads nowhere, as `FILE: LINK`: to a file that is not
/// there, or to a heading that its file does not have. Links to other hosts are not looked at.
pub fn broken_links(root: &Path) -> io::Result<Vec<String>> {
    let mut broken = Vec::new();
    for page in documents_of(root)? {
        let text = fs::read_to_string(&page)?;
        for link in links_of(&text) {
            if !leads_somewhere(&page, &text, &link) {
                let name = page.strip_prefix(root).unwrap_or(&page);
                broken.push(format!("{}: {link}", name.display()));
            }
        }
    }
    Ok(broken)
}

/// The Markdown files of the checkout: those in its root and in [`FOLDERS`].
pub(crate) fn documents_of(root: &Path) -> io::Result<Vec<PathBuf>> {
    let mut pages = Vec::new();
    documents(root, false, &mut pages)?;
    for folder in FOLDERS {
        documents(&root.join(folder), true, &mut pages)?;
    }
    Ok(pages)
}

fn documents(folder: &Path, deep: bool, out: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() && deep {
            documents(&path, deep, out)?;
        } else if path.extension().is_some_and(|e| e == "md") {
            out.push(path);
        }
    }
    Ok(())
}

/// Numbered lines of a document outside of code blocks.
pub(crate) fn prose_lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut is_code = false;
    (1..).zip(text.lines()).filter(move |(_, line)| {
        is_code ^= line.trim_start().starts_with("```");
        !is_code
    })
}

/// The targets of `[text](target)`, outside of code blocks.
pub fn links_of(text: &str) -> Vec<String> {
    let mut out = Vec::new();
    for (_, line) in prose_lines(text) {
        for rest in line.split("](").skip(1) {
            let link = rest.split(')').next().unwrap_or("");
            // Invariants cite items of the program as rustdoc does.
            let is_item = link.contains("::");
            if !link.is_empty() && !is_item && !link.contains([' ', '`']) {
                out.push(link.to_owned());
            }
        }
    }
    out
}

fn leads_somewhere(page: &Path, text: &str, link: &str) -> bool {
    if link.contains("://") || link.starts_with("mailto:") {
        return true;
    }
    let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
    let path = page.parent().unwrap_or(page).join(file);
    if !file.is_empty() && !path.exists() {
        return false;
    }
    let other = if file.is_empty() { None } else { fs::read_to_string(&path).ok() };
    anchor.is_empty() || anchors_of(other.as_deref().unwrap_or(text)).any(|a| a == anchor)
}

/// The anchors of a document's headings, as mdBook and GitHub make them.
pub(crate) fn anchors_of(text: &str) -> impl Iterator<Item = String> {
    let heads = text.lines().filter(|line| line.starts_with('#'));
    heads.map(|line| {
        let title = line.trim_start_matches('#').trim().to_lowercase();
        let kept = title.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect()
    })
}
