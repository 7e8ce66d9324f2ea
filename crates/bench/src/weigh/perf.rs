//! System calls, counted in the kernel by `perf stat`.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::error::{Error, Kind};
use crate::servers::{Scratch, tool};

/// The tracepoint that every system call passes.
const EVENT: &str = "raw_syscalls:sys_enter";
/// Time the counters were on, ns.
const CLOCK: &str = "duration_time";

/// Whether perf is there and this user may count system calls.
pub fn has_perf() -> bool {
    matches!(syscalls_of(&["true".to_owned()], &[]), Ok(calls) if calls > 0)
}

/// System calls a second of a running process, measured for `seconds`.
pub fn syscall_rate(pid: u32, seconds: f64) -> Result<f64, Error> {
    let scratch = Scratch::new("perf")?;
    let table = scratch.path().join("table");
    let mut command = stat(&table)?;
    command.arg("-p").arg(pid.to_string()).arg("sleep").arg(format!("{seconds:.3}"));
    let text = run(&mut command, &table)?;
    let (calls, ns) = (value(&text, EVENT), value(&text, CLOCK));
    match (calls, ns) {
        (Some(calls), Some(ns)) if ns > 0.0 => Ok(calls / ns * 1e9),
        _ => Err(Error::new(Kind::System, format!("perf counted nothing: {}", text.trim()))),
    }
}

/// System calls of a command and its children from start to end. `env`: more environment.
pub fn syscalls_of(words: &[String], env: &[(&str, &str)]) -> Result<u64, Error> {
    let scratch = Scratch::new("perf")?;
    let table = scratch.path().join("table");
    let mut command = stat(&table)?;
    command.args(words).envs(env.iter().copied());
    let text = run(&mut command, &table)?;
    let calls = value(&text, EVENT).map(|calls| calls as u64);
    calls.ok_or(Error::new(Kind::System, "perf counted nothing"))
}

fn stat(table: &Path) -> Result<Command, Error> {
    let mut command = Command::new(tool("perf")?);
    command.args(["stat", "-x", ",", "-e"]).arg(format!("{EVENT},{CLOCK}")).arg("-o").arg(table);
    Ok(command)
}

fn run(command: &mut Command, table: &Path) -> Result<String, Error> {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let output = command.output().map_err(|e| Error::system("perf", e))?;
    if !output.status.success() {
        let words = String::from_utf8_lossy(&output.stderr);
        return Err(Error::new(Kind::System, format!("perf: {}", words.trim())));
    }
    fs::read_to_string(table).map_err(|e| Error::system("perf's table", e))
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
                     301414139,ns,duration_time,301414139,100.00,,\n";
        assert_eq!(value(table, EVENT), Some(1_209_812.0));
        assert_eq!(value(table, CLOCK), Some(301_414_139.0));
        assert_eq!(value("<not counted>,,raw_syscalls:sys_enter,0", EVENT), Some(0.0));
        assert_eq!(value("<not supported>,,raw_syscalls:sys_enter,0", EVENT), None);
        assert_eq!(value("", EVENT), None);
    }
}
