//! Licences of the linked dependencies: each must be compatible with `Apache-2.0 OR MIT`.

/// Licences that request no more than a notice, and so are compatible with either of ours.
pub const ALLOWED: &[&str] = &[
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "ISC",
    "MIT",
    "MIT-0",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

/// True when an SPDX expression can be met with [`ALLOWED`] licences alone. `/` is the old way to
/// write OR; a text that is no expression is not met.
pub fn is_compatible(expression: &str) -> bool {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut at = 0;
    let met = any(&words, &mut at);
    met == Some(true) && at == words.len()
}

/// `all {OR all}`
fn any(words: &[&str], at: &mut usize) -> Option<bool> {
    let mut met = all(words, at)?;
    while words.get(*at) == Some(&"OR") {
        *at += 1;
        met |= all(words, at)?;
    }
    Some(met)
}

/// `one {AND one}`
fn all(words: &[&str], at: &mut usize) -> Option<bool> {
    let mut met = one(words, at)?;
    while words.get(*at) == Some(&"AND") {
        *at += 1;
        met &= one(words, at)?;
    }
    Some(met)
}

/// `( any )` or a name, perhaps WITH an exception.
fn one(words: &[&str], at: &mut usize) -> Option<bool> {
    let word = *words.get(*at)?;
    *at += 1;
    if word == "(" {
        let met = any(words, at)?;
        *at += 1;
        return (words.get(*at - 1) == Some(&")")).then_some(met);
    }
    if words.get(*at) == Some(&"WITH") {
        let exception = words.get(*at + 1)?;
        *at += 2;
        return Some(ALLOWED.contains(&format!("{word} WITH {exception}").as_str()));
    }
    Some(ALLOWED.contains(&word))
}
