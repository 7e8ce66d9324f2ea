//! System calls, counted in the kernel by `perf stat`.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::error::{Error, Kind};
use crate::servers::{Scratch, tool};

/// The tracepoint that every system call passes.
const EVENT: &str = "raw_syscalls:sys_enter";
/// Name of perf's table in its scratch folder.
const TABLE: &str = "table";

/// Whether perf is there and this user may count system calls.
pub fn has_perf() -> bool {
    matches!(syscalls_of(&["true".to_owned()]), Ok(calls) if calls > 0)
}

/// Counts the system calls of a running process from [`Counter::start`] to [`Counter::finish`].
///
/// perf runs a shell that reports when the counters are on, and ends with its standard input. No
/// signal has to be sent, and no count is lost at either end.
pub struct Counter {
    perf: Child,
    scratch: Scratch,
}

impl Counter {
    /// Begins to count; the counters are on when this returns.
    pub fn start(pid: u32) -> Result<Counter, Error> {
        let scratch = Scratch::new("perf")?;
        let mut command = stat(&scratch.path().join(TABLE))?;
        command.arg("-p").arg(pid.to_string()).args(["/bin/sh", "-c", "echo on; read _; true"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let perf = command.spawn().map_err(|e| Error::system("perf", e))?;
        let mut counter = Counter { perf, scratch };
        let mut word = String::new();
        let out = counter.perf.stdout.take();
        let read = out.map(|out| BufReader::new(out).read_line(&mut word));
        match read {
            Some(Ok(_)) if word == "on\n" => Ok(counter),
            _ => Err(Error::new(Kind::System, format!("perf cannot count process {pid}"))),
        }
    }

    /// Ends counting; answers how many there were.
    pub fn finish(mut self) -> Result<u64, Error> {
        drop(self.perf.stdin.take());
        self.perf.wait().map_err(|e| Error::system("perf", e))?;
        read_table(&self.scratch.path().join(TABLE))
    }
}

impl Drop for Counter {
    fn drop(&mut self) {
        drop(self.perf.stdin.take());
        let _ = self.perf.wait();
    }
}

/// System calls of a command and its children from start to end. `env`: more environment.
pub fn syscalls_of(words: &[String]) -> Result<u64, Error> {
    let scratch = Scratch::new("perf")?;
    let table = scratch.path().join(TABLE);
    let mut command = stat(&table)?;
    command.args(words).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let output = command.output().map_err(|e| Error::system("perf", e))?;
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        return Err(Error::new(Kind::System, format!("perf: {}", stderr.trim())));
    }
    read_table(&table)
}

fn stat(table: &Path) -> Result<Command, Error> {
    let mut command = Command::new(tool("perf")?);
    command.args(["stat", "-x", ",", "-e", EVENT, "-o"]).arg(table);
    Ok(command)
}

fn read_table(table: &Path) -> Result<u64, Error> {
    let text = fs::read_to_string(table).map_err(|e| Error::system("perf's table", e))?;
    let calls = value(&text, EVENT).map(|calls| calls as u64);
    calls.ok_or_else(|| Error::new(Kind::System, format!("perf counted nothing: {}", text.trim())))
}

/// The count of one event in perf's table. "<not counted>": the process did not run, so zero.
fn value(table: &str, event: &str) -> Option<f64> {
    let line = table.lines().find(|line| line.split(',').any(|field| field == event))?;
    match line.split(',').next()? {
        "<not counted>" => Some(0.0),
        count => count.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_read() {
        let table = "# started\n\n1209812,,raw_syscalls:sys_enter,3,100.00,,\n\
                     301.02,msec,task-clock,301015885,100.00,,\n";
        assert_eq!(value(table, EVENT), Some(1_209_812.0));
        assert_eq!(value(table, "task-clock"), Some(301.02));
        assert_eq!(value("<not counted>,,raw_syscalls:sys_enter,0", EVENT), Some(0.0));
        assert_eq!(value("<not supported>,,raw_syscalls:sys_enter,0", EVENT), None);
        assert_eq!(value("", EVENT), None);
    }

    #[test]
    fn calls_of_a_process_are_counted_from_start_to_finish() {
        if !has_perf() {
            return; // Some machines do not count; the benchmark reports that in a note.
        }
        let counter = Counter::start(std::process::id()).unwrap();
        for _ in 0..1000 {
            let _ = fs::metadata("/proc/self");
        }
        assert!(counter.finish().unwrap() >= 1000);
    }
}
