//! Initiator patterns: `*` any characters, `?` one character, all else itself.

/// Longest pattern, in bytes: an iSCSI name and a little. A longer one is refused.
pub const PATTERN_MAX: usize = 255;

/// A pattern over initiator names. Names are compared as they are: drivers normalise them first.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pattern(String);

impl Pattern {
    /// `None` when the text is empty or longer than [`PATTERN_MAX`].
    pub fn new(text: &str) -> Option<Pattern> {
        (!text.is_empty() && text.len() <= PATTERN_MAX).then(|| Pattern(text.to_string()))
    }

    /// The pattern as it was written.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// True when the name fits.
    pub fn matches(&self, name: &str) -> bool {
        let (p, s) = (self.0.as_bytes(), name.as_bytes());
        let (mut i, mut j) = (0, 0);
        let mut back: Option<(usize, usize)> = None;
        while j < s.len() {
            match p.get(i) {
                Some(b'*') => {
                    back = Some((i, j));
                    i += 1;
                }
                Some(b'?') => {
                    i += 1;
                    j += 1;
                }
                Some(c) if Some(c) == s.get(j) => {
                    i += 1;
                    j += 1;
                }
                _ => match back {
                    Some((star, at)) => {
                        back = Some((star, at + 1));
                        i = star + 1;
                        j = at + 1;
                    }
                    None => return false,
                },
            }
        }
        p.get(i..).unwrap_or(&[]).iter().all(|c| *c == b'*')
    }

    /// True when some name fits both patterns.
    pub fn overlaps(&self, other: &Pattern) -> bool {
        let (a, b) = (self.0.as_bytes(), other.0.as_bytes());
        let width = b.len() + 1;
        // `fits[j]`: the rest of `a` from here and `b[j..]` have a name in common.
        let mut fits = vec![false; width];
        for i in (0..=a.len()).rev() {
            let below = std::mem::take(&mut fits);
            fits = vec![false; width];
            for j in (0..width).rev() {
                let (x, y) = (a.get(i), b.get(j));
                let down = below.get(j).copied().unwrap_or(false);
                let right = fits.get(j + 1).copied().unwrap_or(false);
                let both = below.get(j + 1).copied().unwrap_or(false);
                let fit = match (x, y) {
                    (None, None) => true,
                    (Some(b'*'), Some(b'*')) => down || right,
                    (Some(b'*'), Some(_)) => down || right,
                    (Some(_), Some(b'*')) => down || right,
                    (Some(b'*'), None) => down,
                    (None, Some(b'*')) => right,
                    (Some(x), Some(y)) => (*x == b'?' || *y == b'?' || x == y) && both,
                    _ => false,
                };
                if let Some(slot) = fits.get_mut(j) {
                    *slot = fit;
                }
            }
        }
        fits.first().copied().unwrap_or(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn p(s: &str) -> Pattern {
        Pattern::new(s).unwrap()
    }

    /// All words over `ab` up to five letters.
    fn words() -> Vec<String> {
        let mut all = vec![String::new()];
        let mut last = all.clone();
        for _ in 0..5 {
            last = last.iter().flat_map(|w| ["a", "b"].map(|c| format!("{w}{c}"))).collect();
            all.extend(last.clone());
        }
        all
    }

    /// All patterns over `ab*?` of one to three characters.
    fn patterns() -> Vec<Pattern> {
        let mut all = Vec::new();
        let mut last = vec![String::new()];
        for _ in 0..3 {
            last =
                last.iter().flat_map(|w| ["a", "b", "*", "?"].map(|c| format!("{w}{c}"))).collect();
            all.extend(last.iter().map(|t| p(t)));
        }
        all
    }

    #[test]
    fn matching_is_what_people_expect() {
        for (pattern, name, fits) in [
            ("iqn.2004-10.org:*", "iqn.2004-10.org:host1", true),
            ("iqn.2004-10.org:*", "iqn.2004-10.or:host1", false),
            ("*", "", true),
            ("?", "", false),
            ("a*b*c", "aXbYbZc", true),
            ("a*b*c", "aXbYbZ", false),
            ("host?", "host1", true),
            ("host?", "host12", false),
        ] {
            assert_eq!(p(pattern).matches(name), fits, "{pattern} {name}");
        }
    }

    #[test]
    fn two_patterns_overlap_exactly_when_a_name_fits_both() {
        let (words, patterns) = (words(), patterns());
        let fits: Vec<Vec<bool>> =
            patterns.iter().map(|p| words.iter().map(|w| p.matches(w)).collect()).collect();
        for (i, a) in patterns.iter().enumerate() {
            for (j, b) in patterns.iter().enumerate() {
                // Six characters, one of them a star, force no common name longer than five.
                let common = (0..words.len()).any(|w| fits[i][w] && fits[j][w]);
                assert_eq!(a.overlaps(b), common, "{a:?} {b:?}");
            }
        }
    }

    #[test]
    fn an_empty_or_endless_pattern_is_refused() {
        assert!(Pattern::new("").is_none());
        assert!(Pattern::new(&"x".repeat(PATTERN_MAX + 1)).is_none());
    }
}
