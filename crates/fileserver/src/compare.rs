//! Comparison of two files of a file server, on the thread of the caller.

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

/// The text of a file; `None`: it is not text.
fn text_of(bytes: Vec<u8>) -> Option<String> {
    String::from_utf8(bytes).ok().filter(|text| !text.contains('\0'))
}

/// Compares two files from the start.
///
/// # Errors
/// Those of [`OpenFile::read`].
pub fn compare(old: &mut OpenFile, new: &mut OpenFile) -> Result<Comparison, Error> {
    let is_small = old.size().max(new.size()) <= TEXT_MAX;
    let (mut was, mut is) = (Vec::new(), Vec::new());
    let mut out = Comparison::default();
    while out.compared < COMPARED_MAX {
        let (a, b) = (old.read()?, new.read()?);
        if a.is_empty() && b.is_empty() {
            break;
        }
        if out.first_difference.is_none() {
            out.first_difference = first_difference(&a, &b).map(|n| out.compared + n as u64);
        }
        out.compared += a.len().max(b.len()) as u64;
        if is_small {
            was.extend(a);
            is.extend(b);
        } else if out.first_difference.is_some() {
            break;
        }
    }
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
    fn bytes_are_text_only_if_they_are_utf8_without_zeros() {
        assert_eq!(text_of(b"a\n".to_vec()).as_deref(), Some("a\n"));
        assert_eq!(text_of(vec![0xff]), None);
        assert_eq!(text_of(vec![b'a', 0]), None);
    }
}
