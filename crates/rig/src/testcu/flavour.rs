//! A kind of unit, and the tests that are run on it.

use anyhow::{Result, ensure};

/// A unit of the target under test, described by its special property.
#[derive(Clone, Debug)]
pub struct Flavour {
    /// A word for the expectation file.
    pub name: &'static str,
    /// Its `iscsi://` address, and a second one for tests that use two paths.
    pub urls: Vec<String>,
    /// Run tests that erase the medium with SANITIZE.
    pub sanitize: bool,
    /// Sleeps of the tool are shortened from this one on: it sleeps for a minute to wait for events
    /// that take seconds. Counted from 1.
    pub awake_from: Option<u32>,
    takes: &'static [&'static str],
    leaves: &'static [&'static str],
}

impl Flavour {
    /// A unit that takes every test.
    pub fn new(name: &'static str, url: String) -> Flavour {
        Flavour {
            name,
            urls: vec![url],
            sanitize: false,
            awake_from: None,
            takes: &["*"],
            leaves: &[],
        }
    }

    /// Takes only tests that fit a pattern: `SUITE` or `SUITE.TEST`, with `*` for
    /// any text.
    pub fn taking(mut self, patterns: &'static [&'static str]) -> Flavour {
        self.takes = patterns;
        self
    }

    /// Leaves tests that fit one of these patterns to others.
    pub fn leaving(mut self, patterns: &'static [&'static str]) -> Flavour {
        self.leaves = patterns;
        self
    }

    /// True when a test runs on this flavour.
    pub fn takes(&self, name: &str) -> bool {
        let any = |patterns: &[&str]| patterns.iter().any(|pattern| fits(pattern, name));
        any(self.takes) && !any(self.leaves)
    }

    /// Every pattern fits a test of the list.
    pub(super) fn check(&self, names: &[String]) -> Result<()> {
        for pattern in self.takes.iter().chain(self.leaves) {
            let fit = names.iter().any(|name| fits(pattern, name));
            ensure!(fit, "flavour {}: the suite has no test {pattern}", self.name);
        }
        Ok(())
    }
}

/// A pattern without a dot matches the suite's name. A `*` matches any text.
fn fits(pattern: &str, name: &str) -> bool {
    let name = match (pattern.contains('.'), name.split_once('.')) {
        (false, Some((suite, _))) => suite,
        _ => name,
    };
    let Some((head, tail)) = pattern.rsplit_once('*') else {
        return name == pattern;
    };
    let Some(mut rest) = name.strip_suffix(tail) else { return false };
    for (number, piece) in head.split('*').enumerate() {
        let at = rest.find(piece).filter(|at| number > 0 || *at == 0);
        match at.and_then(|at| rest.get(at + piece.len()..)) {
            Some(behind) => rest = behind,
            None => return false,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::Flavour;

    /// T2 of testcu/mod.rs.
    #[test]
    fn patterns_choose_tests() {
        let flavour = Flavour::new("x", "iscsi://".into());
        assert!(flavour.takes("Read10.Simple"));
        let flavour = flavour.taking(&["Read10", "Write*"]).leaving(&["WriteSame10.Unmap"]);
        let names = ["Read10.Simple", "Read12.Simple", "Write10.Simple", "WriteSame10.Unmap"];
        assert_eq!(names.map(|name| flavour.takes(name)), [true, false, true, false]);
        let others = Flavour::new("y", String::new()).taking(&["*.Unm*", "*.U*p"]);
        assert_eq!(names.map(|name| others.takes(name)), [false, false, false, true]);
        let others = Flavour::new("y", String::new()).taking(&["*.Simple"]);
        assert_eq!(names.map(|name| others.takes(name)), [true, true, true, false]);
        let names = names.map(String::from);
        flavour.check(&names).unwrap();
        assert!(flavour.taking(&["Raed10"]).check(&names).is_err());
    }
}
