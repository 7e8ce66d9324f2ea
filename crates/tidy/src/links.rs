//! Links between the documents of the repository.
//!
//! mdBook copies only the manual's folder, renders only the pages of `SUMMARY.md`, and gives each
//! `README.md` another name. A link of a page that is good in the checkout may break there.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};

/// Folders whose documents are examined, besides the root of the checkout.
const FOLDERS: [&str; 4] = [BOOK, "bench", "fuzz", ".github"];

/// Folder of the manual, as `src` of `book.toml` names it.
const BOOK: &str = "docs";

/// The list of the manual's pages.
const SUMMARY: &str = "SUMMARY.md";

/// Every broken link of the tree's documents, as `FILE: LINK`. A link is broken if the file or its
/// heading does not exist, or if a page of the manual links to a file that mdBook leaves out. Links
/// to other hosts are not examined.
pub fn broken_links(root: &Path) -> io::Result<Vec<String>> {
    let book = root.join(BOOK);
    let summary = fs::read_to_string(book.join(SUMMARY)).unwrap_or_default();
    let pages: BTreeSet<PathBuf> = links_of(&summary).into_iter().map(PathBuf::from).collect();
    let mut broken = Vec::new();
    for page in documents_of(root)? {
        let text = fs::read_to_string(&page)?;
        let name = page.strip_prefix(root).unwrap_or(&page).display();
        let in_book = page.strip_prefix(&book).ok().filter(|place| *place != Path::new(SUMMARY));
        for link in links_of(&text) {
            if !leads_somewhere(&page, &text, &link) {
                broken.push(format!("{name}: {link}"));
            } else if in_book.is_some_and(|place| !is_in_book(&book, &pages, place, &link)) {
                broken.push(format!("{name}: {link} is not in the book: name the file instead"));
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

fn is_external(link: &str) -> bool {
    link.contains("://") || link.starts_with("mailto:")
}

/// Whether mdBook has the file of a link. `place` is the path of the link's page in [`BOOK`].
fn is_in_book(book: &Path, pages: &BTreeSet<PathBuf>, place: &Path, link: &str) -> bool {
    let file = link.split('#').next().unwrap_or(link);
    if is_external(link) || file.is_empty() {
        return true;
    }
    let Some(target) = place_in_book(place, file) else { return false };
    match target.extension().is_some_and(|ending| ending == "md") {
        true => pages.contains(&target) && !target.ends_with("README.md"),
        false => book.join(&target).is_file(),
    }
}

/// The path in [`BOOK`] that a page refers to; `None` is a path outside of it.
fn place_in_book(page: &Path, file: &str) -> Option<PathBuf> {
    let mut place = page.parent()?.to_path_buf();
    for part in Path::new(file).components() {
        match part {
            Component::Normal(name) => place.push(name),
            Component::CurDir => {}
            Component::ParentDir if place.pop() => {}
            _ => return None,
        }
    }
    Some(place)
}

fn leads_somewhere(page: &Path, text: &str, link: &str) -> bool {
    if is_external(link) {
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
