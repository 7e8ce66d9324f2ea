//! Programs run as a person would run them, each shown before it runs.

use std::io::Write;
use std::path::Path;
use std::process::Command;

use crate::error::{Error, Kind};

/// Shows a step and runs it; its output has the same destination as ours.
pub struct Tools<'a> {
    /// Where the steps are shown.
    pub out: &'a mut dyn Write,
    /// Our own binary.
    pub ashlar: &'a Path,
    pub socket: &'a Path,
}

impl Tools<'_> {
    /// A sentence between steps.
    pub fn print_note(&mut self, text: &str) {
        // A demo whose output has no reader any more runs to its end.
        let _ = writeln!(self.out, "\n# {text}");
        let _ = self.out.flush();
    }

    /// Shows and runs `program`; its output is returned and shown.
    pub fn run(&mut self, program: &str, args: &[&str]) -> Result<String, Error> {
        let shown = std::iter::once(program).chain(args.iter().copied()).collect::<Vec<_>>();
        let _ = writeln!(self.out, "$ {}", shown.join(" "));
        let _ = self.out.flush();
        self.quietly(program, args).inspect(|text| {
            let _ = write!(self.out, "{text}");
            let _ = self.out.flush();
        })
    }

    /// Shows and runs `program` and shows its output, whether it succeeds or not.
    pub fn show(&mut self, program: &str, args: &[&str]) {
        let shown = std::iter::once(program).chain(args.iter().copied()).collect::<Vec<_>>();
        let _ = writeln!(self.out, "$ {}", shown.join(" "));
        if let Ok(done) = Command::new(program).args(args).output() {
            let _ = write!(self.out, "{}", String::from_utf8_lossy(&done.stdout));
        }
    }

    /// Runs a verb of ours against the demo's daemon.
    pub fn ashlar(&mut self, args: &[&str]) -> Result<String, Error> {
        let (program, socket) = (self.ashlar.display().to_string(), self.socket.display());
        let socket = format!("--socket={socket}");
        let mut all = args.to_vec();
        all.push(&socket);
        self.run(&program, &all)
    }

    /// Runs without showing anything.
    pub fn quietly(&mut self, program: &str, args: &[&str]) -> Result<String, Error> {
        let done = Command::new(program).args(args).output().map_err(|e| {
            let what = format!("{program}: {e}; `make demo` installs what the demo needs");
            Error::new(Kind::Missing, what)
        })?;
        let text = String::from_utf8_lossy(&done.stdout).into_owned();
        if done.status.success() {
            return Ok(text);
        }
        let why = String::from_utf8_lossy(&done.stderr);
        Err(Error::new(Kind::Server, format!("{program}: {} ({})", why.trim(), done.status)))
    }
}
