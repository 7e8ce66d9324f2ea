//! Shape of the documents: columns of their lines, and lengths of those that are read as a whole.

use std::fs;
use std::io;
use std::path::Path;

use crate::links::{documents_of, prose_lines};

/// Columns of a line outside of tables and code, at most.
const COLUMNS_MAX: usize = 100;

/// Documents, the line with which counting begins, and the most lines from there on.
const LENGTHS: &[(&str, &str, usize)] = &[
    ("README.md", "", 200),
    ("ARCHITECTURE.md", "", 300),
    ("CONTRIBUTING.md", "", 250),
    ("CHANGELOG.md", "## 0.1.0", 150),
];

/// Every document, or line of one, that is too long.
pub fn long_documents(root: &Path) -> io::Result<Vec<String>> {
    let mut out = Vec::new();
    for page in documents_of(root)? {
        let text = fs::read_to_string(&page)?;
        let name = page.strip_prefix(root).unwrap_or(&page).display();
        let long = long_lines(&text).into_iter();
        out.extend(long.map(|(n, columns)| {
            format!("{name}:{n}: {columns} columns, at most {COLUMNS_MAX}: wrap the line")
        }));
    }
    for (name, begin, most) in LENGTHS {
        let text = fs::read_to_string(root.join(name))?;
        let lines = text.lines().skip_while(|line| !line.starts_with(begin)).count();
        if lines > *most {
            out.push(format!("{name}: {lines} lines, at most {most}: move details to docs/"));
        }
    }
    Ok(out)
}

/// Numbers and columns of the lines that are too long; tables and code are not wrapped.
pub fn long_lines(text: &str) -> Vec<(usize, usize)> {
    prose_lines(text)
        .filter(|(_, line)| !line.trim_start().starts_with('|'))
        .map(|(n, line)| (n, line.chars().count()))
        .filter(|(_, columns)| *columns > COLUMNS_MAX)
        .collect()
}
