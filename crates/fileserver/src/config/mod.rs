//! config: what a file server is made of, in the words of the first ones.
//!
//! * [`Device`]: config strings, `ce565.0{e565.1e545.1}`.
//! * [`Settings`]: the lines of config mode, `filsys main ...`, `dumpctl yes`.

mod device;
mod parse;
mod settings;
#[cfg(test)]
mod tests;

pub use device::{Device, Disk};
pub use settings::{Filsys, Settings};

use std::fmt;

/// What is wrong with a config string or line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrong {
    /// Byte of the text at which it is seen.
    pub at: usize,
    /// What is wrong there, and what would be right.
    pub why: String,
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at character {}: {}", self.at + 1, self.why)
    }
}

impl std::error::Error for Wrong {}
