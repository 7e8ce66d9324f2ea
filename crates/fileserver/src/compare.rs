//! Comparison of two files of a file server: [`compare`] runs on the thread of its caller, and the
//! verb `diff` uses the same rules on the core of the file server.

use std::time::Duration;

use geom::Error;
use similar::TextDiff;

use crate::service::OpenFile;

/// Files up to this size are compared line by line, in bytes.
const TEXT_MAX: u64 = 1 << 20;

/// Longest search for the smallest difference between two texts; after that, a larger one is shown.
const SEARCH_MAX: Duration = Duration::from_secs(2);

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

/// A difference of texts in the format of `diff -u`; empty if they are equal.
pub(crate) fn unified(diff: &TextDiff<'_, '_, str>, old: &str, new: &str) -> String {
    diff.unified_diff().context_radius(3).header(old, new).to_string()
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

/// Compares two files from the start.
///
/// # Errors
/// Those of [`OpenFile::read`].
pub fn compare(old: &mut OpenFile, new: &mut OpenFile) -> Result<Comparison, Error> {
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
        let diff = TextDiff::configure().timeout(SEARCH_MAX).diff_lines(was.as_str(), is.as_str());
        out.text = Some(unified(&diff, old.path(), new.path()));
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

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
