//! The tree as the rules see it.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// One Rust file.
pub struct Source {
    /// Path from the root of the checkout, with `/`.
    pub path: String,
    pub text: String,
}

impl Source {
    /// The crate it belongs to: `crates/NAME/...`.
    pub fn krate(&self) -> &str {
        self.path.strip_prefix("crates/").and_then(|p| p.split('/').next()).unwrap_or("")
    }

    /// True for files that only tests compile.
    pub fn is_test(&self) -> bool {
        let name = self.path.rsplit('/').next().unwrap_or("");
        let folders = ["/tests/", "/benches/", "/examples/"];
        folders.iter().any(|f| self.path.contains(f))
            || name == "tests.rs"
            || name.ends_with("_tests.rs")
            || name == "fuzzing.rs"
            || self.path.contains("/transcripts")
            || self.path.contains("/fuzzing/")
    }

    /// Numbered lines outside of test modules; comments are blanked.
    pub fn product_lines(&self) -> Vec<(usize, String)> {
        let mut out = Vec::new();
        let mut lines = self.text.lines().enumerate().peekable();
        while let Some((i, line)) = lines.next() {
            if is_for_tests(line.trim()) {
                let opens_module = lines.peek().is_some_and(|(_, l)| {
                    l.trim_start().starts_with("mod ") && l.trim_end().ends_with('{')
                });
                if opens_module {
                    let indent = indent_of(line);
                    for (_, inner) in lines.by_ref() {
                        if inner.trim_end() == format!("{}}}", " ".repeat(indent)) {
                            break;
                        }
                    }
                } else {
                    lines.next();
                }
                continue;
            }
            out.push((i + 1, without_comment(line)));
        }
        out
    }

    /// Text of the tests: all of a file that only tests compile, otherwise the test modules in it.
    pub fn test_text(&self) -> String {
        if self.is_test() {
            return self.text.clone();
        }
        let product: BTreeSet<usize> = self.product_lines().into_iter().map(|(n, _)| n).collect();
        let tests = (1..).zip(self.text.lines()).filter(|(n, _)| !product.contains(n));
        tests.map(|(_, line)| line).collect::<Vec<_>>().join("\n")
    }
}

/// Whether an attribute keeps an item for tests, perhaps on some systems only.
fn is_for_tests(line: &str) -> bool {
    line == "#[cfg(test)]" || line.starts_with("#[cfg(all(test,")
}

/// Spaces at the start of a line.
pub fn indent_of(line: &str) -> usize {
    line.len() - line.trim_start().len()
}

fn without_comment(line: &str) -> String {
    match line.find("//") {
        Some(at) if !line[..at].contains('"') => line[..at].to_string(),
        _ => line.to_string(),
    }
}

/// Everything the rules look at.
pub struct Tree {
    /// Rust files.
    pub sources: Vec<Source>,
    /// `(crate, text)` of every manifest; the name is empty for that of the workspace.
    pub manifests: Vec<(String, String)>,
}

impl Tree {
    /// Reads `crates/` below `root`.
    pub fn read(root: &Path) -> io::Result<Tree> {
        let mut tree = Tree { sources: Vec::new(), manifests: Vec::new() };
        let workspace = fs::read_to_string(root.join("Cargo.toml"))?;
        tree.manifests.push((String::new(), workspace));
        let mut todo = vec![root.join("crates")];
        while let Some(dir) = todo.pop() {
            let mut entries: Vec<PathBuf> =
                fs::read_dir(&dir)?.map(|e| e.map(|e| e.path())).collect::<io::Result<_>>()?;
            entries.sort();
            for path in entries {
                let name = path.strip_prefix(root).unwrap_or(&path).to_string_lossy().to_string();
                if path.is_dir() {
                    todo.push(path);
                } else if name.ends_with(".rs") {
                    tree.sources.push(Source { text: fs::read_to_string(&path)?, path: name });
                } else if name.ends_with("/Cargo.toml") {
                    let krate = name.split('/').nth(1).unwrap_or("").to_string();
                    tree.manifests.push((krate, fs::read_to_string(&path)?));
                }
            }
        }
        tree.sources.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(tree)
    }
}
