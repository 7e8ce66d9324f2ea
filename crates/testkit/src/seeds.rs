//! Seeds that a simulation runs, and the report of a failing one.
//!
//! `ASHLAR_SEEDS=n` plays n seeds in place of as many as the test takes by itself. `ASHLAR_SEED=n`
//! plays that one alone; both play so many from there on.

use std::ops::Range;

/// The seeds of one test.
#[derive(Clone, Debug)]
pub struct Seeds {
    first: u64,
    count: u64,
    usual: u64,
    /// Command that runs one of them again, without its number.
    command: String,
}

impl Seeds {
    /// Those of the test that runs on this thread, which takes `usual` by itself, from 0 on.
    pub fn of(usual: u64) -> Seeds {
        let (first, count) = (number("ASHLAR_SEED"), number("ASHLAR_SEEDS"));
        let alone = if first.is_some() { 1 } else { usual };
        let (first, count) = (first.unwrap_or(0), count.unwrap_or(alone));
        Seeds { first, count, usual, command: command() }
    }

    /// The `nth` part of them, of `parts`: tests that share seeds run beside each other. Seeds that
    /// are fewer than the parts, as one that is repeated, are every part's.
    pub fn part(self, nth: u64, parts: u64) -> Seeds {
        if self.count < parts {
            return Seeds { usual: self.usual.div_ceil(parts), ..self };
        }
        let count = self.count.div_ceil(parts);
        Seeds { first: self.first + nth * count, count, usual: self.usual.div_ceil(parts), ..self }
    }

    /// How many.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Their numbers.
    pub fn range(&self) -> Range<u64> {
        self.first..self.first + self.count
    }

    /// Whether they are as many as the test takes by itself: fewer seeds may not contain rare
    /// events.
    pub fn are_enough(&self) -> bool {
        self.count >= self.usual
    }

    /// Plays them in their order; the result of each.
    pub fn each<T>(&self, play: impl FnMut(u64) -> T) -> Vec<T> {
        self.clone().into_iter().map(play).collect()
    }

    /// Plays one, on any thread.
    pub fn play<T>(&self, seed: u64, play: impl FnOnce(u64) -> T) -> T {
        let _says = SeedReporter { seeds: self, seed };
        play(seed)
    }
}

/// Prints the command that plays a seed again when its thread panics.
struct SeedReporter<'a> {
    seeds: &'a Seeds,
    seed: u64,
}

impl Drop for SeedReporter<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let SeedReporter { seeds, seed } = self;
            eprintln!("seed {seed} failed; again: ASHLAR_SEED={seed} {}", seeds.command);
        }
    }
}

/// Iterator of a `for` loop over [`Seeds`]. A loop that panics prints the current seed.
pub struct Played {
    seeds: Seeds,
    next: u64,
}

impl IntoIterator for Seeds {
    type Item = u64;
    type IntoIter = Played;

    fn into_iter(self) -> Played {
        Played { next: self.first, seeds: self }
    }
}

impl Iterator for Played {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        let seed = self.next;
        self.next += 1;
        self.seeds.range().contains(&seed).then_some(seed)
    }
}

impl Drop for Played {
    fn drop(&mut self) {
        // The last that was given out; before the first and after the last there is none.
        if let Some(seed) = self.next.checked_sub(1).filter(|s| self.seeds.range().contains(s)) {
            drop(SeedReporter { seeds: &self.seeds, seed });
        }
    }
}

/// A number of the environment.
pub fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Command that runs the test of this thread again: by cargo when cargo started it.
fn command() -> String {
    let thread = std::thread::current();
    let test = thread.name().unwrap_or_default();
    let program = std::env::current_exe().unwrap_or_default();
    // `suite-0123456789abcdef`
    let name = program.file_stem().unwrap_or_default().to_string_lossy();
    let target = name.rsplit_once('-').map_or(&*name, |(target, _)| target);
    match std::env::var("CARGO_PKG_NAME") {
        Ok(package) if package.strip_prefix("ashlar-") == Some(target) => {
            format!("cargo test -p {package} --lib -- --exact {test}")
        }
        Ok(package) => format!("cargo test -p {package} --test {target} -- --exact {test}"),
        Err(_) => format!("{} --exact {test}", program.display()),
    }
}

#[cfg(test)]
mod tests {
    use super::Seeds;

    #[test]
    fn parts_cover_every_seed_once() {
        let all = Seeds { first: 10, count: 10, usual: 20, command: String::new() };
        let parts: Vec<_> = (0..4).flat_map(|nth| all.clone().part(nth, 4).range()).collect();
        assert_eq!(parts, (10..22).collect::<Vec<_>>(), "rounded up");
        assert_eq!(all.each(|seed| seed * 2), (10..20).map(|n| n * 2).collect::<Vec<_>>());
        assert!(!all.are_enough());
        let one = Seeds { first: 7, count: 1, usual: 20, command: String::new() };
        assert!((0..4).all(|nth| one.clone().part(nth, 4).range() == (7..8)));
    }

    #[test]
    fn the_command_names_this_test() {
        let command = Seeds::of(1).command;
        assert!(
            command.ends_with(" --exact seeds::tests::the_command_names_this_test"),
            "{command}"
        );
    }
}
