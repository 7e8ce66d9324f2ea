//! What a class says about its verbs: enough for a command line, a manual page, completions and a
//! check of parameters, and no more. The class itself gets one JSON object, a key an argument.

/// A verb, as the man page of its class has it: `mirror label [-b balance] NAME PROVIDER...`.
#[derive(Clone, Copy, Debug)]
pub struct VerbSpec {
    /// The word typed.
    pub name: &'static str,
    /// One sentence, without the point at its end.
    pub doc: &'static str,
    /// More for the manual page; may be empty.
    pub detail: &'static str,
    /// Its arguments: those by position first, in their order, then options.
    pub args: &'static [ArgSpec],
    /// A command line that works, without the program's name and, if shared, the class's.
    pub example: &'static str,
    /// Writes on disks: asked for without `--force`-like words, its refusals say what would be
    /// lost.
    pub writes: bool,
}

/// One argument of a verb.
#[derive(Clone, Copy, Debug)]
pub struct ArgSpec {
    /// Key in the parameters, and the long option: lower case, words joined by `_`.
    pub name: &'static str,
    /// The letter of the option in GEOM's man page.
    pub short: Option<char>,
    /// What it is.
    pub kind: ArgKind,
    /// One sentence with unit and default.
    pub doc: &'static str,
}

/// What an argument is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ArgKind {
    /// By position, one word that must be given: a string.
    Name,
    /// By position, one word that may be left out: a string.
    Maybe,
    /// By position, at least this many words: an array of strings.
    Names(u8),
    /// An option without a value: a boolean.
    Flag,
    /// An option with a text.
    Text,
    /// An option with one of these words.
    Choice(&'static [&'static str]),
    /// An option with a number.
    Number,
    /// An option with a number of bytes; units are allowed: a number.
    Bytes,
}
