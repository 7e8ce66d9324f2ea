//! Patterns of initiator names: `*` is any text, also none; `?` is any one character.
//!
//! Names are compared without regard to case, as RFC 3722 prepares them for iSCSI.

use std::collections::{HashMap, VecDeque};

/// Longest pattern and longest name, in bytes (RFC 7143 4.2.7.1). Longer ones match nothing, and
/// `check` refuses them in a configuration.
pub const NAME_BYTES_MAX: usize = 223;

fn fold(text: &str) -> Vec<char> {
    text.chars().map(|c| c.to_ascii_lowercase()).collect()
}

/// Whether `name` is one that `pattern` means.
pub fn matches(pattern: &str, name: &str) -> bool {
    if pattern.len() > NAME_BYTES_MAX || name.len() > NAME_BYTES_MAX {
        return false;
    }
    let (pattern, name) = (fold(pattern), fold(name));
    let (mut p, mut n) = (0, 0);
    // Where to go on when it does not fit: behind the last star, one character further.
    let mut retry: Option<(usize, usize)> = None;
    while n < name.len() {
        match pattern.get(p) {
            Some('*') => {
                retry = Some((p + 1, n));
                p += 1;
            }
            Some(&c) if c == '?' || name.get(n) == Some(&c) => {
                (p, n) = (p + 1, n + 1);
            }
            _ => match retry {
                Some((after, from)) => {
                    retry = Some((after, from + 1));
                    (p, n) = (after, from + 1);
                }
                None => return false,
            },
        }
    }
    pattern.get(p..).is_some_and(|rest| rest.iter().all(|&c| c == '*'))
}

/// A short name that both patterns mean; `None` when there is none.
pub fn common(a: &str, b: &str) -> Option<String> {
    if a.len() > NAME_BYTES_MAX || b.len() > NAME_BYTES_MAX {
        return None;
    }
    let (a, b) = (fold(a), fold(b));
    let mut came: Way = HashMap::new();
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

/// How far both patterns are read.
type Place = (usize, usize);

/// For every place reached: the place before, and the letter read in between.
type Way = HashMap<Place, (Place, Option<char>)>;

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

fn spell(came: &Way, end: Place) -> String {
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

    #[test]
    fn stars_and_question_marks() {
        assert!(matches("iqn.1998-01.com.vmware:*", "IQN.1998-01.com.vmware:esx1"));
        assert!(matches("*", ""));
        assert!(matches("a*b*c", "a-b-b-c"));
        assert!(!matches("a*b*c", "a-b-b"));
        assert!(matches("host?", "host1"));
        assert!(!matches("host?", "host"));
        assert!(!matches("host?", "host12"));
        assert!(!matches("", "a"));
    }

    #[test]
    fn common_names() {
        assert_eq!(common("a*", "*b").as_deref(), Some("ab"));
        assert_eq!(common("host?", "host1").as_deref(), Some("host1"));
        assert_eq!(common("a*", "b*"), None);
        assert_eq!(common("*", "*").as_deref(), Some(""));
        assert_eq!(common("iqn.a:x", "iqn.A:x").as_deref(), Some("iqn.a:x"));
        assert_eq!(common("a?c*", "ab?").as_deref(), Some("abc"));
    }

    /// Every pair of patterns of up to four letters, against every name of up to four letters.
    #[test]
    fn common_is_exactly_what_matching_says() {
        let words = |letters: &[char], max: usize| {
            let mut all = vec![String::new()];
            let mut last = all.clone();
            for _ in 0..max {
                let longer = |w: &String| letters.iter().map(|c| format!("{w}{c}")).collect();
                last = last.iter().flat_map(|w| -> Vec<String> { longer(w) }).collect();
                all.extend(last.clone());
            }
            all
        };
        let patterns = words(&['a', 'b', '*', '?'], 3);
        let names = words(&['a', 'b', 'x'], 6);
        let sets: Vec<Vec<bool>> =
            patterns.iter().map(|p| names.iter().map(|n| matches(p, n)).collect()).collect();
        for (a, set_a) in patterns.iter().zip(&sets) {
            for (b, set_b) in patterns.iter().zip(&sets) {
                let both = set_a.iter().zip(set_b).any(|(x, y)| *x && *y);
                let found = common(a, b);
                assert_eq!(found.is_some(), both, "{a} {b}");
                if let Some(name) = found {
                    assert!(matches(a, &name) && matches(b, &name), "{a} {b} {name}");
                }
            }
        }
    }
}
