//! "Did you mean": the known word nearest to an unknown one.

/// Edits that turn one word into the other: insert, delete, replace, swap two neighbours.
fn distance(a: &str, b: &str) -> usize {
    let fold = |s: &str| -> Vec<char> {
        s.chars().map(|c| if c == '-' { '_' } else { c.to_ascii_lowercase() }).collect()
    };
    let (a, b) = (fold(a), fold(b));
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, y) in b.iter().enumerate() {
            let replace = last[j] + usize::from(x != y);
            let mut best = replace.min(last[j + 1] + 1).min(row[j] + 1);
            let swapped = i > 0 && j > 0 && a[i - 1] == *y && b[j - 1] == *x;
            if swapped {
                best = best.min(before[j - 1] + 1);
            }
            row.push(best);
        }
        before = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

/// Longest word that is compared, in bytes: a longer one is not a typing mistake.
const WORD_BYTES_MAX: usize = 256;

/// The candidate that was most likely meant; `None` when none is near.
pub fn suggest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    if word.len() > WORD_BYTES_MAX {
        return None;
    }
    let far = (word.chars().count() / 3).max(1);
    let scored = candidates.into_iter().filter(|c| c.len() <= WORD_BYTES_MAX).map(|c| {
        // A unit left out or added, or the beginning of a word, is nearer than the distance of its
        // letters.
        let begins = word.len() >= 3 && c.starts_with(word) || c.len() >= 3 && word.starts_with(c);
        (if begins { 1 } else { distance(word, c) }, c)
    });
    scored.filter(|(d, _)| *d <= far).min_by_key(|(d, _)| *d).map(|(_, c)| c)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suggestion_is_the_nearest_key_or_none() {
        let keys = ["balance", "members", "size_bytes", "name"];
        assert_eq!(suggest("blance", keys), Some("balance"));
        assert_eq!(suggest("memebrs", keys), Some("members"));
        assert_eq!(suggest("size", keys), Some("size_bytes"));
        assert_eq!(suggest("size-bytes", keys), Some("size_bytes"));
        assert_eq!(suggest("name_text", keys), Some("name"));
        assert_eq!(suggest("colour", keys), None);
        assert_eq!(suggest("", keys), None);
        assert_eq!(suggest(&"n".repeat(1000), keys), None);
    }
}
