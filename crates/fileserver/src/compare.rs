//! Comparison of two files of a file server. [`compare`] runs on the thread of its caller. The verb
//! `diff` uses the same rules on the core of the file server.

use std::fmt::Write;
use std::time::Instant;

use geom::Error;
use similar::algorithms::{Capture, Compact, IdentifyDistinct, Replace, myers};
use similar::udiff::UnifiedHunkHeader;
use similar::{DiffableStr, group_diff_ops};

use crate::service::OpenFile;

/// Files up to this size are compared line by line, in bytes.
const TEXT_MAX: u64 = 1 << 20;

/// Equal lines that are shown before and after a change.
const CONTEXT: usize = 3;

/// Bytes of larger files that are compared, at most.
const COMPARED_MAX: u64 = 256 << 20;

/// The difference between two files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Comparison {
    /// Position of the first byte that differs; `None`: no difference was found.
    pub first_difference: Option<u64>,
    /// Bytes that were compared: at most 256 MiB of each file.
    pub compared: u64,
    /// The differences in the format of `diff -u`; `None`: a file is not text, or is larger than
    /// 1 MiB.
    pub text: Option<String>,
}

/// A difference of texts, each with its name, in the format of `diff -u`; empty if they are equal.
/// After `deadline` a difference is shown that may not be the smallest one.
///
/// Calls one algorithm: `TextDiff`, which chooses among six when it runs, would contain them all.
pub(crate) fn unified(
    (old, old_name): (&str, &str),
    (new, new_name): (&str, &str),
    deadline: Option<Instant>,
) -> String {
    let (old, new) = (old.tokenize_lines(), new.tokenize_lines());
    let numbers = IdentifyDistinct::<u32>::new(&old[..], 0..old.len(), &new[..], 0..new.len());
    let (a, b) = (numbers.old_lookup(), numbers.new_lookup());
    let mut found = Compact::new(Replace::new(Capture::new()), a, b);
    let (a_lines, b_lines) = (numbers.old_range(), numbers.new_range());
    let Ok(()) = myers::diff_deadline(&mut found, a, a_lines, b, b_lines, deadline);
    let mut out = String::new();
    for hunk in group_diff_ops(found.into_inner().into_inner().into_ops(), CONTEXT) {
        if out.is_empty() {
            let _ = writeln!(out, "--- {old_name}\n+++ {new_name}");
        }
        let _ = writeln!(out, "{}", UnifiedHunkHeader::new(&hunk));
        for change in hunk.iter().flat_map(|op| op.iter_changes(&old[..], &new[..])) {
            let _ = write!(out, "{}{}", change.tag(), change.value());
            if change.missing_newline() {
                out.push_str("\n\\ No newline at end of file\n");
            }
        }
    }
    out
}

/// The first position at which two pieces differ.
fn first_difference(old: &[u8], new: &[u8]) -> Option<usize> {
    let within = old.iter().zip(new).position(|(a, b)| a != b);
    within.or_else(|| (old.len() != new.len()).then(|| old.len().min(new.len())))
}

/// Search for the first byte that differs, in pieces of two files from their start.
#[derive(Debug, Default)]
pub(crate) struct FirstDifference {
    /// Position of the byte; `None`: it is not found yet.
    pub(crate) at: Option<u64>,
    /// Bytes that were compared.
    pub(crate) compared: u64,
}

impl FirstDifference {
    /// Compares the next pieces, of which only the last one of a file is shorter.
    pub(crate) fn add(&mut self, old: &[u8], new: &[u8]) {
        if self.at.is_none() {
            self.at = first_difference(old, new).map(|n| self.compared + n as u64);
        }
        self.compared += old.len().max(new.len()) as u64;
    }

    /// No more bytes are compared.
    pub(crate) fn is_at_limit(&self) -> bool {
        self.compared >= COMPARED_MAX
    }
}

/// The text of a file; `None`: it is not text.
pub(crate) fn text_of(bytes: Vec<u8>) -> Option<String> {
    String::from_utf8(bytes).ok().filter(|text| !text.contains('\0'))
}

/// Compares two files from the start. `search_end` is called when the search for the smallest
/// difference of two texts begins; at that time a larger one is accepted.
///
/// # Errors
/// Those of [`OpenFile::read`].
pub fn compare(
    old: &mut OpenFile,
    new: &mut OpenFile,
    search_end: impl FnOnce() -> Option<Instant>,
) -> Result<Comparison, Error> {
    let is_small = old.size().max(new.size()) <= TEXT_MAX;
    let (mut was, mut is) = (Vec::new(), Vec::new());
    let mut first = FirstDifference::default();
    while !first.is_at_limit() {
        let (a, b) = (old.read()?, new.read()?);
        if a.is_empty() && b.is_empty() {
            break;
        }
        first.add(&a, &b);
        if is_small {
            was.extend(a);
            is.extend(b);
        } else if first.at.is_some() {
            break;
        }
    }
    let FirstDifference { at: first_difference, compared } = first;
    let mut out = Comparison { first_difference, compared, text: None };
    if let (true, Some(was), Some(is)) = (is_small, text_of(was), text_of(is)) {
        out.text = Some(unified((&was, old.path()), (&is, new.path()), search_end()));
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use similar::TextDiff;

    use super::*;

    #[test]
    fn unified_is_the_same_as_that_of_a_text_diff() {
        let long =
            |from: u32| -> String { (from..from + 400).map(|n| format!("{}\n", n % 97)).collect() };
        let (old, moved) = (long(0), long(7));
        let edited = old.replace("50\n", "fifty\nand more\n");
        let [old, moved, edited] = [old.as_str(), moved.as_str(), edited.as_str()];
        for (old, new) in [
            ("", ""),
            ("", "a\n"),
            ("a\n", ""),
            ("a\nb\nc\n", "a\nb\nc\n"),
            ("a\nb\nc\n", "a\nx\nc"),
            ("1\r\n2\r\n3\r\n", "1\n2\r3\r\n"),
            ("a\nb\na\nb\na\n", "b\na\nb\na\nb\n"),
            (old, edited),
            (old, moved),
            (moved, edited),
            (old, "0\n5\n"),
        ] {
            let diff = TextDiff::from_lines(old, new);
            let expected = diff.unified_diff().header("a", "b").to_string();
            assert_eq!(unified((old, "a"), (new, "b"), None), expected, "{old:?} {new:?}");
        }
    }

    #[test]
    fn first_difference_is_a_byte_or_the_end_of_the_shorter_one() {
        for (old, new, at) in [
            (&b"abc"[..], &b"abc"[..], None),
            (b"abc", b"abd", Some(2)),
            (b"abc", b"ab", Some(2)),
            (b"", b"x", Some(0)),
            (b"", b"", None),
        ] {
            assert_eq!(first_difference(old, new), at, "{old:?} {new:?}");
        }
    }

    #[test]
    fn first_difference_is_counted_from_the_start_of_the_files() {
        let mut first = FirstDifference::default();
        first.add(b"abcd", b"abcd");
        assert_eq!((first.at, first.compared), (None, 4));
        first.add(b"ef", b"eg");
        first.add(b"x", b"y");
        assert_eq!((first.at, first.compared, first.is_at_limit()), (Some(5), 7, false));
    }

    #[test]
    fn bytes_are_text_only_if_they_are_utf8_without_zeros() {
        assert_eq!(text_of(b"a\n".to_vec()).as_deref(), Some("a\n"));
        assert_eq!(text_of(vec![0xff]), None);
        assert_eq!(text_of(vec![b'a', 0]), None);
    }
}
