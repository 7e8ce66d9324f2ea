//! Patterns of initiator names: `*` is any text, also none; `?` is any one character.
//!
//! ASCII letters are compared without regard to case, as names of iSCSI and Fibre Channel are. In
//! NQNs of NVMe, which begin with `nqn.`, case counts (NVMe base specification 2.0, 4.5).
//!
//! The configuration, the command line and the engine all use these patterns, so `access check`
//! reports the same result that an initiator gets.

use std::collections::{HashMap, VecDeque};

/// Longest pattern, in bytes: the longest iSCSI name (RFC 7143 4.2.7.1). A longer one is refused.
pub const PATTERN_MAX: usize = 223;

/// How NQNs begin.
const NQN: &str = "nqn.";

/// The names by which a protocol knows its initiators.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Naming {
    /// Names that are compared as they are written.
    #[default]
    Plain,
    /// iSCSI names, which have one normal form. Initiators may have accounts of CHAP.
    Iscsi,
    /// Addresses.
    Address,
}

/// A pattern that was checked.
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

    /// True when the name fits. Allocates nothing.
    pub fn matches(&self, name: &str) -> bool {
        let (p, s) = (self.0.as_bytes(), name.as_bytes());
        let exact = name.starts_with(NQN);
        let (mut i, mut j) = (0, 0);
        // Position to continue from when it does not fit: the last star, which takes one byte more.
        let mut back: Option<(usize, usize)> = None;
        while let Some(byte) = s.get(j) {
            match p.get(i) {
                Some(b'*') => {
                    back = Some((i, j));
                    i += 1;
                }
                Some(b'?') => {
                    i += 1;
                    j = after_character(s, j);
                }
                Some(c) if c == byte || !exact && c.eq_ignore_ascii_case(byte) => {
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
        let (a, b) = folded(self, other);
        let width = b.len() + 1;
        // `fits[j]`: the rest of `a` from here and `b[j..]` have a name in common.
        let mut fits = vec![false; width];
        for i in (0..=a.len()).rev() {
            let below = std::mem::replace(&mut fits, vec![false; width]);
            for j in (0..width).rev() {
                let (x, y) = (a.get(i), b.get(j));
                let down = below.get(j).copied().unwrap_or(false);
                let right = fits.get(j + 1).copied().unwrap_or(false);
                let both = below.get(j + 1).copied().unwrap_or(false);
                let fit = match (x, y) {
                    (None, None) => true,
                    (Some('*'), Some(_)) | (Some(_), Some('*')) => down || right,
                    (Some('*'), None) => down,
                    (None, Some('*')) => right,
                    (Some(x), Some(y)) => (*x == '?' || *y == '?' || x == y) && both,
                    _ => false,
                };
                if let Some(slot) = fits.get_mut(j) {
                    *slot = fit;
                }
            }
        }
        fits.first().copied().unwrap_or(false)
    }

    /// A short name that fits both patterns, in lower case; `None` when there is none.
    pub fn common(&self, other: &Pattern) -> Option<String> {
        if !self.overlaps(other) {
            return None;
        }
        let (a, b) = folded(self, other);
        let mut came: BackPointers = HashMap::new();
        let mut queue = VecDeque::from([(0, 0)]);
        came.insert((0, 0), ((0, 0), None));
        while let Some((i, j)) = queue.pop_front() {
            if i == a.len() && j == b.len() {
                return Some(spell(&came, (i, j)));
            }
            for (to, letter) in moves(a.get(i).copied(), b.get(j).copied(), (i, j)) {
                came.entry(to).or_insert_with(|| {
                    // A star that ends costs nothing: it is looked at before longer names.
                    if letter.is_none() {
                        queue.push_front(to)
                    } else {
                        queue.push_back(to)
                    }
                    ((i, j), letter)
                });
            }
        }
        None
    }
}

/// [`Pattern::matches`] for a pattern that is only text; false when it is no pattern.
pub fn matches(pattern: &str, name: &str) -> bool {
    Pattern::new(pattern).is_some_and(|p| p.matches(name))
}

/// Index of the byte behind the character at `at`.
fn after_character(text: &[u8], at: usize) -> usize {
    let rest = text.get(at + 1..).unwrap_or(&[]);
    at + 1 + rest.iter().take_while(|b| **b & 0xc0 == 0x80).count()
}

/// The characters by which two patterns are compared: of two NQNs as they are, else without case,
/// for then a name may fit both that has letters of either.
fn folded(a: &Pattern, b: &Pattern) -> (Vec<char>, Vec<char>) {
    let exact = a.0.starts_with(NQN) && b.0.starts_with(NQN);
    let fold =
        |p: &Pattern| p.0.chars().map(|c| if exact { c } else { c.to_ascii_lowercase() }).collect();
    (fold(a), fold(b))
}

/// How far both patterns are read.
type Position = (usize, usize);

/// For every place reached: the place before, and the letter read in between.
type BackPointers = HashMap<Position, (Position, Option<char>)>;

/// From one place in both patterns to the next, with the letter that is read on the way.
fn moves(
    x: Option<char>,
    y: Option<char>,
    (i, j): (usize, usize),
) -> Vec<((usize, usize), Option<char>)> {
    let letter = |c: char| Some(if c == '?' { 'x' } else { c });
    let mut out = Vec::with_capacity(3);
    if x == Some('*') {
        out.push(((i + 1, j), None));
        out.extend(y.filter(|&c| c != '*').map(|c| ((i, j + 1), letter(c))));
    }
    if y == Some('*') {
        out.push(((i, j + 1), None));
        out.extend(x.filter(|&c| c != '*').map(|c| ((i + 1, j), letter(c))));
    }
    if let (Some(x), Some(y)) = (x, y)
        && x != '*'
        && y != '*'
        && (x == y || x == '?' || y == '?')
    {
        out.push(((i + 1, j + 1), letter(if x == '?' { y } else { x })));
    }
    out
}

fn spell(came: &BackPointers, end: Position) -> String {
    let mut letters = Vec::new();
    let mut place = end;
    while place != (0, 0) {
        let Some(&(before, letter)) = came.get(&place) else {
            break;
        };
        letters.extend(letter);
        place = before;
    }
    letters.iter().rev().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn p(s: &str) -> Pattern {
        Pattern::new(s).unwrap()
    }

    fn common(a: &str, b: &str) -> Option<String> {
        p(a).common(&p(b))
    }

    #[test]
    fn wildcards_match_names() {
        for (pattern, name, fits) in [
            ("iqn.2004-10.org:*", "iqn.2004-10.org:host1", true),
            ("iqn.2004-10.org:*", "iqn.2004-10.or:host1", false),
            ("*", "", true),
            ("?", "", false),
            ("a*b*c", "aXbYbZc", true),
            ("a*b*c", "a-b-b-c", true),
            ("a*b*c", "aXbYbZ", false),
            ("host?", "host1", true),
            ("host?", "host", false),
            ("host?", "host12", false),
        ] {
            assert_eq!(matches(pattern, name), fits, "{pattern} {name}");
        }
    }

    #[test]
    fn iscsi_names_match_without_regard_to_case() {
        assert!(matches("iqn.1998-01.com.VMware:*", "IQN.1998-01.com.vmware:esx1"));
        assert!(p("iqn.a:X").overlaps(&p("iqn.A:x")));
        assert_eq!(common("iqn.a:x", "iqn.A:x").as_deref(), Some("iqn.a:x"));
        assert_eq!(p("iqn.A:x").as_str(), "iqn.A:x", "shown as it was written");
    }

    #[test]
    fn only_nqns_are_case_sensitive() {
        assert!(matches("iqn.A:*", "iqn.a:X"));
        assert!(matches("nqn.2014-08.org:Host", "nqn.2014-08.org:Host"));
        assert!(!matches("nqn.2014-08.org:host", "nqn.2014-08.org:Host"));
        assert!(!matches("*:host", "nqn.2014-08.org:Host"));
        let p = |text: &str| Pattern::new(text).unwrap();
        assert!(!p("nqn.a:x").overlaps(&p("nqn.a:X")));
        assert!(p("*:x").overlaps(&p("nqn.a:X")), "a name of either case may fit");
    }

    #[test]
    fn question_mark_matches_one_whole_character() {
        assert!(matches("h?st", "h\u{f6}st") && matches("h*st", "h\u{f6}st"));
        assert!(!matches("h??st", "h\u{f6}st") && !matches("*??", "\u{20ac}"));
        assert!(matches("?\u{20ac}*", "\u{20ac}\u{20ac}"));
    }

    #[test]
    fn common_name_of_two_patterns_is_short() {
        assert_eq!(common("a*", "*b").as_deref(), Some("ab"));
        assert_eq!(common("host?", "host1").as_deref(), Some("host1"));
        assert_eq!(common("a*", "b*"), None);
        assert_eq!(common("*", "*").as_deref(), Some(""));
        assert_eq!(common("a?c*", "ab?").as_deref(), Some("abc"));
    }

    #[test]
    fn empty_and_overlong_patterns_are_refused() {
        assert!(Pattern::new("").is_none());
        assert!(Pattern::new(&"x".repeat(PATTERN_MAX)).is_some());
        assert!(Pattern::new(&"x".repeat(PATTERN_MAX + 1)).is_none());
    }

    /// All words over some letters, up to a length.
    fn words(letters: &[char], max: usize) -> Vec<String> {
        let mut all = vec![String::new()];
        let mut last = all.clone();
        for _ in 0..max {
            let longer = |w: &String| letters.iter().map(|c| format!("{w}{c}")).collect();
            last = last.iter().flat_map(|w| -> Vec<String> { longer(w) }).collect();
            all.extend(last.clone());
        }
        all
    }

    /// Every pair of patterns of up to three signs, against every name of up to six letters. Three
    /// signs beside three force no longer common name.
    #[test]
    fn two_patterns_overlap_exactly_when_a_name_fits_both() {
        let texts = words(&['a', 'b', '*', '?'], 3);
        let patterns: Vec<Pattern> = texts.iter().filter_map(|t| Pattern::new(t)).collect();
        let names = words(&['a', 'b', 'x'], 6);
        let sets: Vec<Vec<bool>> =
            patterns.iter().map(|p| names.iter().map(|n| p.matches(n)).collect()).collect();
        for (a, set_a) in patterns.iter().zip(&sets) {
            for (b, set_b) in patterns.iter().zip(&sets) {
                let both = set_a.iter().zip(set_b).any(|(x, y)| *x && *y);
                assert_eq!(a.overlaps(b), both, "{a:?} {b:?}");
                let found = a.common(b);
                assert_eq!(found.is_some(), both, "{a:?} {b:?}");
                if let Some(name) = found {
                    assert!(a.matches(&name) && b.matches(&name), "{a:?} {b:?} {name}");
                }
            }
        }
    }
}
