//! Allocations and system calls of a Bio, counted from outside and without code of ours in the way.
//! This program runs the same stack for few and for many rounds, once under glibc's libmemusage
//! (which counts malloc, calloc and realloc) and once under perf. The cost of start and end cancels
//! out in the difference of the runs.

use std::process::{Command, Stdio};

use crate::error::{Error, Kind};
use crate::process_costs;
use crate::servers::own_path;

/// Rounds of the short and of the long run.
const ROUNDS: [u32; 2] = [1, 21];
/// Where Debian keeps libmemusage (package libc6).
const MEMUSAGE: [&str; 3] = [
    "/lib/x86_64-linux-gnu/libmemusage.so",
    "/lib/aarch64-linux-gnu/libmemusage.so",
    "/lib64/libmemusage.so",
];

/// Allocations and system calls of a Bio.
pub(crate) struct Counts {
    /// Calls of malloc, calloc and realloc a Bio.
    pub allocations: Result<f64, Error>,
    /// System calls a Bio.
    pub syscalls: Result<f64, Error>,
}

/// Counts for the stack of the case `case`.
pub(crate) fn count(case: &str) -> Result<Counts, Error> {
    let own = own_path()?;
    let words = |rounds: u32| {
        let mut words = vec![own.clone()];
        let more = ["layers", "--case", case, "--no-counters", "--rounds", &rounds.to_string()];
        words.extend(more.map(str::to_owned));
        words
    };
    let difference = |measure: &dyn Fn(&[String]) -> Result<u64, Error>| -> Result<f64, Error> {
        let [few, many] = ROUNDS;
        let more = measure(&words(many))?.saturating_sub(measure(&words(few))?);
        Ok(more as f64 / f64::from(many - few) / f64::from(super::BIOS))
    };
    Ok(Counts {
        allocations: difference(&allocations_of),
        syscalls: difference(&process_costs::syscalls_of),
    })
}

fn allocations_of(words: &[String]) -> Result<u64, Error> {
    let library = MEMUSAGE.iter().find(|path| std::path::Path::new(path).exists());
    let library = library.ok_or(Error::new(Kind::Missing, "glibc's libmemusage.so is missing"))?;
    let [program, arguments @ ..] = words else {
        return Err(Error::new(Kind::Options, "no worker"));
    };
    let mut command = Command::new(program);
    command.args(arguments).env("LD_PRELOAD", library).stdin(Stdio::null());
    let output = command.output().map_err(|e| Error::system("run under libmemusage", e))?;
    let text = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        return Err(Error::new(Kind::System, format!("run under libmemusage: {}", text.trim())));
    }
    parse(&text).ok_or(Error::new(Kind::System, "libmemusage printed no table"))
}

/// The sum of the call counts in libmemusage's table, whose lines look like
/// ` malloc|        123          4567             0`, with colours around them.
fn parse(text: &str) -> Option<u64> {
    let mut sum = None;
    for line in text.lines() {
        let Some((head, rest)) = line.split_once('|') else { continue };
        if ["malloc", "calloc", "realloc"].iter().any(|name| head.contains(name)) {
            let plain: String = rest.chars().skip_while(|c| !c.is_whitespace()).collect();
            let plain = if plain.trim().is_empty() { rest.to_owned() } else { plain };
            let calls = plain.split_whitespace().find_map(|word| word.parse::<u64>().ok())?;
            sum = Some(sum.unwrap_or(0) + calls);
        }
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libmemusage_table_is_parsed() {
        let text = "\n\u{1b}[01;32mMemory usage summary:\u{1b}[0;0m heap total: 9, heap peak: 8\n\
            \u{1b}[04;34m         total calls   total memory   failed calls\u{1b}[0m\n\
            \u{1b}[00;34m malloc|\u{1b}[0m         41           2466              0\n\
            \u{1b}[00;34mrealloc|\u{1b}[0m          2             48              0  (nomove:0)\n\
            \u{1b}[00;34m calloc|\u{1b}[0m          1             80              0\n\
            \u{1b}[00;34m   free|\u{1b}[0m         40           2498\n";
        assert_eq!(parse(text), Some(44));
        assert_eq!(parse("no table"), None);
    }
}
