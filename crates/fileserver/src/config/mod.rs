//! config: the devices and settings of a file server, in the syntax of the first file servers.
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

/// A syntax error of a config string or line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyntaxError {
    /// Byte of the text at which it is seen.
    pub at: usize,
    /// The error at that position, and the correct form.
    pub reason: String,
}

impl fmt::Display for SyntaxError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at character {}: {}", self.at + 1, self.reason)
    }
}

impl std::error::Error for SyntaxError {}
