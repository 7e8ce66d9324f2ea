//! Differences between two versions of a file, as several verbs show them.

use geom::Error;

use super::about;
use super::paths::{self, Found};
use crate::compare::{FirstDifference, text_of, unified};
use crate::files::{Kind, Reader};
use crate::service::Host;
use crate::volume::Dump;

/// Files up to so many bytes are compared line by line.
const DIFF_MAX: u64 = 8 << 20;

pub(super) fn named(dump: Option<&Dump>, path: &str) -> String {
    let path = path.trim_start_matches('/');
    match dump {
        None => format!("/{path}"),
        Some(d) => {
            let (year, day) = d.path();
            format!("/dump/{year}/{day}/{path}")
        }
    }
}

/// The differences between two files.
#[derive(Default)]
pub(super) struct Compared {
    /// In the format of `diff -u`, or in a sentence; empty if there is none.
    pub(super) text: String,
    /// Position of the first byte that differs.
    pub(super) first_difference: Option<u64>,
}

/// A file, and its name for the answer.
pub(super) type Named<'a> = (&'a Found, &'a str);

pub(super) async fn compare(
    host: &Host,
    old: Named<'_>,
    new: Named<'_>,
) -> Result<Compared, Error> {
    let (files, names) = ([old.0, new.0], [old.1, new.1]);
    if files[0].inode.version == files[1].inode.version {
        return Ok(Compared::default());
    }
    if files.iter().any(|file| file.inode.kind == Kind::Dir) {
        return Err(Error::inval(format!("{}: a directory, not a file", names[0])));
    }
    let fs = host.files()?;
    let a = paths::bytes(&fs, files[0], DIFF_MAX).await.map_err(about(names[0]))?;
    let b = paths::bytes(&fs, files[1], DIFF_MAX).await.map_err(about(names[1]))?;
    let (Some(a), Some(b)) = (a, b) else {
        let first = compare_pieces(host, old, new).await?;
        let text = difference_words(names, &first);
        return Ok(Compared { text, first_difference: first.at });
    };
    let mut first = FirstDifference::default();
    first.add(&a, &b);
    let text = match (first.at, text_of(a), text_of(b)) {
        (Some(_), Some(a), Some(b)) => unified((&a, names[0]), (&b, names[1]), None),
        _ => difference_words(names, &first),
    };
    Ok(Compared { text, first_difference: first.at })
}

/// Compares large files up to the first byte that differs; clients are served meanwhile.
async fn compare_pieces(
    host: &Host,
    old: Named<'_>,
    new: Named<'_>,
) -> Result<FirstDifference, Error> {
    let mut first = FirstDifference::default();
    let (mut old_reader, mut new_reader) = (Reader::default(), Reader::default());
    while first.at.is_none() && !first.is_at_limit() {
        let (a, reader) = paths::piece(host, old, first.compared, old_reader).await?;
        old_reader = reader;
        let (b, reader) = paths::piece(host, new, first.compared, new_reader).await?;
        new_reader = reader;
        if a.is_empty() && b.is_empty() {
            break;
        }
        first.add(&a, &b);
        host.yield_now().await;
    }
    Ok(first)
}

/// The first difference of two files in a sentence; empty if they are the same.
fn difference_words(names: [&str; 2], first: &FirstDifference) -> String {
    let [old, new] = names;
    match first.at {
        Some(at) => format!("{old} and {new} differ: the first difference is at byte {at}\n"),
        None if first.is_at_limit() => {
            format!("the first {} bytes of {old} and {new} are equal\n", first.compared)
        }
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::{FirstDifference, difference_words};

    #[test]
    fn first_difference_of_files_that_are_not_text_is_named() {
        let words = |old: &[u8], new: &[u8]| {
            let mut first = FirstDifference::default();
            first.add(old, new);
            difference_words(["/dump/2026/1121/a", "/a"], &first)
        };
        let expected = "/dump/2026/1121/a and /a differ: the first difference is at byte 2\n";
        assert_eq!(words(&[1, 0, 2], &[1, 0, 3]), expected);
        assert_eq!(words(&[0], &[0]), "");
    }
}
