//! Pages that are written by hand except for marked parts.
//!
//! ```text
//!   <!-- made from the program: NAME -->
//!   ...
//!   <!-- end of the part that is made from the program -->
//! ```

use std::fmt::Write;

/// Beginning of a marked part, before its name.
const BEGIN: &str = "<!-- made from the program: ";

/// End of the line that begins a marked part.
const CLOSE: &str = " -->\n";

/// Last line of a marked part.
const END: &str = "<!-- end of the part that is made from the program -->";

/// A part of a page: its name and its text.
pub(super) type Part = (String, String);

/// The page `file` with the text of each marked part replaced.
pub(super) fn fill(file: &str, page: &str, parts: &[Part]) -> Result<String, String> {
    let mut out = String::new();
    let mut filled = Vec::new();
    let mut rest = page;
    while let Some((before, after)) = rest.split_once(BEGIN) {
        let marked = after.split_once(CLOSE).and_then(|(name, body)| {
            let (_, behind) = body.split_once(END)?;
            Some((name, behind))
        });
        let Some((name, behind)) = marked else {
            let line = after.lines().next().unwrap_or_default();
            return Err(format!("{file}: part {line} has no end; next: add the line {END}"));
        };
        let Some((_, text)) = parts.iter().find(|(known, _)| known == name) else {
            let known: Vec<&str> = parts.iter().map(|(known, _)| known.as_str()).collect();
            let known = known.join(", ");
            return Err(format!("{file}: part {name} is unknown; next: mark one of {known}"));
        };
        filled.push(name);
        // Writing to a String cannot fail.
        let _ = write!(out, "{before}{BEGIN}{name}{CLOSE}\n{}\n\n{END}", text.trim());
        rest = behind;
    }
    out.push_str(rest);
    match parts.iter().find(|(name, _)| !filled.contains(&name.as_str())) {
        Some((name, _)) => Err(format!(
            "{file}: part {name} is missing; next: add the lines {BEGIN}{name}{} and {END}",
            CLOSE.trim_end()
        )),
        None => Ok(out),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(names: &[&str]) -> Vec<Part> {
        names.iter().map(|name| ((*name).to_owned(), format!("\ntext of {name}\n"))).collect()
    }

    #[test]
    fn marked_parts_are_replaced_and_the_rest_is_kept() {
        let page = |a: &str, b: &str| {
            format!("# By hand\n\n{BEGIN}a{CLOSE}{a}{END}\nmore\n{BEGIN}b{CLOSE}{b}{END}\n")
        };
        let filled = fill("x.md", &page("", "\nformer\n"), &parts(&["a", "b"])).expect("two parts");
        assert_eq!(filled, page("\ntext of a\n\n", "\ntext of b\n\n"));
        assert_eq!(fill("x.md", &filled, &parts(&["a", "b"])), Ok(filled), "once is enough");
    }

    #[test]
    fn unknown_missing_and_unfinished_parts_are_refused_by_name() {
        let page = format!("{BEGIN}a{CLOSE}{END}\n");
        let refused = |page: &str, names: &[&str]| {
            fill("x.md", page, &parts(names)).expect_err("a fault of the page")
        };
        assert!(refused(&page, &["b"]).contains("part a is unknown; next: mark one of b"));
        assert!(refused(&page, &["a", "b"]).contains("part b is missing"));
        assert!(refused(&format!("{BEGIN}a{CLOSE}"), &["a"]).contains("has no end"));
    }
}
