//! Many seeds of one play. A failing one prints itself; `ASHLAR_SEED=n` runs only that one,
//! `ASHLAR_SEEDS=n` that many, both so many from there on.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// A number of the environment.
pub fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|v| v.parse().ok())
}

/// So many seeds, or those asked for.
pub fn first(count: u64) -> Range<u64> {
    let asked = number("ASHLAR_SEEDS").unwrap_or(1);
    number("ASHLAR_SEED").map_or(0..count, |seed| seed..seed + asked)
}

/// The seeds to play; `few` of them when nobody says otherwise.
pub fn chosen(few: u64) -> Range<u64> {
    first(number("ASHLAR_SEEDS").unwrap_or(few))
}

/// Plays them, and answers what came of each.
pub fn each<T>(seeds: Range<u64>, mut play: impl FnMut(u64) -> T) -> Vec<T> {
    let one = |seed| {
        catch_unwind(AssertUnwindSafe(|| play(seed))).unwrap_or_else(|e| {
            eprintln!("seed {seed}; again: ASHLAR_SEED={seed}");
            resume_unwind(e)
        })
    };
    seeds.map(one).collect()
}
