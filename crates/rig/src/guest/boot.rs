//! The emulator's process and the conversation over its serial console.
//!
//! Invariants
//!  B1  The emulator is dead when [`boot`] returns in any case.
//!  B2  Nothing waits longer than the deadline: the console is read by a thread of its own and
//!      every wait for it is bounded.
//!  B3  Every step of the script has a result, in order, begun or not.

use std::fmt::Display;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::image::Image;
use super::script::{Run, Script, StepResult};
use crate::proc::{self, Scratch};

/// Lines read ahead of the host's attention; a guest that prints faster waits.
const LINES_AHEAD: usize = 1024;
/// A console longer than this is from a broken guest: it is stopped.
const CONSOLE_BYTES_MAX: usize = 16 << 20;
/// How long a guest that printed its last line may take to switch itself off.
const POWER_OFF_LIMIT: Duration = Duration::from_secs(10);
/// The guest's memory in MiB.
const MEMORY_MIB: u32 = 512;
/// The file for the emulator's own output.
const EMULATOR_OUTPUT: &str = "emulator";

/// Kernel parameters. The timer check is off: an emulated machine that waits for a processor fails
/// it, and panics. The others save instructions that the emulator would have to translate:
/// tests of ciphers, zeroing of new pages, access control and accounting that no check looks at.
/// Without capability 112 (`rep_good`) memory is copied by moves and not by string instructions,
/// which are emulated step by step.
pub(super) const KERNEL_WORDS: &str = "console=ttyS0 quiet panic=-1 mitigations=off \
    random.trust_cpu=on no_timer_check clearcpuid=112 cryptomgr.notests init_on_alloc=0 \
    apparmor=0 audit=0 hardened_usercopy=off randomize_kstack_offset=off cgroup_disable=memory \
    nowatchdog preempt=none edd=off";

/// The emulator's own processor, with the random numbers that the kernel otherwise gathers from
/// the jitter of a busy loop.
const PROCESSOR: &str = "qemu64,+rdrand";

#[derive(Clone, Copy, Debug)]
pub struct Boot {
    /// From the start of the emulator to the end of the last step.
    pub deadline: Duration,
    /// The only core the emulator may use; None: all.
    pub core: Option<usize>,
}

/// The guest's serial console, to answer on.
pub struct Console {
    input: ChildStdin,
}

impl Console {
    /// Sends one line; a step takes it with `read`.
    pub fn send(&mut self, line: &str) -> Result<()> {
        self.input.write_all(line.as_bytes()).context("write to the guest's console")?;
        self.input.write_all(b"\n")?;
        self.input.flush().context("write to the guest's console")
    }
}

/// The emulator; killed by its id and reaped when dropped.
struct Emulator {
    child: Child,
}

impl Drop for Emulator {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Boots the image with a script and stays until the last step ended, the guest died, the
/// deadline passed or `on_line` returned an error. `on_line` sees every line the guest prints.
///
/// An error here means that the emulator could not be started; failures in the guest are in the
/// [`Run`], see [`Run::expect_ok`].
pub fn boot(
    image: &Image,
    script: &Script,
    how: Boot,
    on_line: &mut dyn FnMut(&str, &mut Console) -> Result<()>,
) -> Result<Run> {
    Ok(Running::boot(image, script, how.core, &[])?.run(script, how.deadline, on_line))
}

/// Options of the emulator for the medium of disk `number`, which may be a number on a bus: `2-7`.
pub(super) fn drive(number: impl Display, disk: &Path) -> [String; 2] {
    let file = disk.display();
    ["-drive".into(), format!("file={file},format=raw,if=none,id=disk{number}")]
}

/// Like [`boot`], from a disk that [`Image::write_disk`] made with the same script, wherever it is
/// now. `drive` is opened by the emulator's own block layer: a file or an `iscsi://` or `nbd://`
/// address. The firmware loads the boot loader from it, the boot loader loads the kernel, and the
/// kernel has its root there.
pub fn boot_disk(
    drive: &str,
    script: &Script,
    how: Boot,
    on_line: &mut dyn FnMut(&str, &mut Console) -> Result<()>,
) -> Result<Run> {
    let scratch = Scratch::new("guest")?;
    let mut command = proc::command("qemu-system-x86_64", how.core)?;
    command.arg("-drive").arg(format!("file={drive},format=raw,if=none,id=disk,cache=none"));
    command.args(["-device", "virtio-blk-pci,drive=disk,bootindex=0"]);
    Ok(Running::start(command, scratch)?.run(script, how.deadline, on_line))
}

/// A running emulator and the ends of its console.
pub(super) struct Running {
    emulator: Emulator,
    lines: Receiver<String>,
    console: Console,
    /// Holds the initramfs and the emulator's own output.
    scratch: Scratch,
}

impl Running {
    /// Starts the emulator with an image, a script and further devices.
    pub(super) fn boot(
        image: &Image,
        script: &Script,
        core: Option<usize>,
        devices: &[String],
    ) -> Result<Running> {
        let scratch = Scratch::new("guest")?;
        let initramfs = scratch.path().join("initramfs");
        std::fs::write(&initramfs, image.with(script)).context("write the initramfs")?;
        let mut command = proc::command("qemu-system-x86_64", core)?;
        command.arg("-kernel").arg(&image.kernel).arg("-initrd").arg(&initramfs);
        command.args(["-append", KERNEL_WORDS]).args(devices);
        Running::start(command, scratch)
    }

    fn start(command: Command, scratch: Scratch) -> Result<Running> {
        let mut command = proc::ending_with_us(&command)?;
        command.stderr(File::create(scratch.path().join(EMULATOR_OUTPUT))?);
        arguments(&mut command);
        let mut child = proc::spawn(command).context("start the emulator")?;
        let input = child.stdin.take().context("the emulator's input")?;
        let output = child.stdout.take().context("the emulator's output")?;
        let emulator = Emulator { child };
        let lines = read_lines(output);
        Ok(Running { emulator, lines, console: Console { input }, scratch })
    }

    pub(super) fn send(&mut self, line: &str) -> Result<()> {
        self.console.send(line)
    }

    /// Reads the console until the script's last step ended, the guest died, the deadline passed
    /// or `on_line` returned an error.
    pub(super) fn follow(
        &mut self,
        script: &Script,
        deadline: Duration,
        on_line: &mut dyn FnMut(&str, &mut Console) -> Result<()>,
    ) -> Record {
        let start = Instant::now();
        let mut record = Record::new(script, start);
        loop {
            let left = deadline.saturating_sub(start.elapsed());
            match self.lines.recv_timeout(left) {
                Ok(line) => record.take(&line),
                Err(RecvTimeoutError::Timeout) => record.late = true,
                Err(RecvTimeoutError::Disconnected) => return record,
            }
            if record.late || record.console.len() > CONSOLE_BYTES_MAX {
                return record;
            }
            if let Err(error) = on_line(record.last(), &mut self.console) {
                record.stopped = Some(format!("on the host: {error:#}"));
                return record;
            }
            if record.done {
                return record;
            }
        }
    }

    /// Follows a script, and the guest until it is off.
    fn run(
        mut self,
        script: &Script,
        deadline: Duration,
        on_line: &mut dyn FnMut(&str, &mut Console) -> Result<()>,
    ) -> Run {
        let record = self.follow(script, deadline, on_line);
        if record.done && record.stopped.is_none() {
            let off = Instant::now() + POWER_OFF_LIMIT;
            let left = || off.saturating_duration_since(Instant::now());
            while self.lines.recv_timeout(left()).is_ok() {}
        }
        self.end(record)
    }

    /// Ends the emulator and adds its own output to the record.
    pub(super) fn end(self, mut record: Record) -> Run {
        drop(self.emulator);
        // Usually empty, else the reason for an empty console.
        let output = std::fs::read_to_string(self.scratch.path().join(EMULATOR_OUTPUT));
        record.console.push_str(&output.unwrap_or_default());
        record.finish()
    }
}

fn arguments(command: &mut Command) {
    // No default devices, no option ROM for the card: both would need further packages.
    command.args(["-accel", "tcg", "-cpu", PROCESSOR, "-smp", "1", "-m", &MEMORY_MIB.to_string()]);
    command.args(["-nodefaults", "-display", "none", "-no-reboot", "-serial", "stdio"]);
    command.args(["-netdev", "user,id=net", "-device", "virtio-net-pci,netdev=net,romfile="]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
}

fn read_lines(output: ChildStdout) -> Receiver<String> {
    let (send, receive) = sync_channel(LINES_AHEAD);
    std::thread::spawn(move || {
        let mut reader = BufReader::new(output);
        let mut bytes = Vec::new();
        while let Ok(1..) = reader.read_until(b'\n', &mut bytes) {
            let line = String::from_utf8_lossy(&bytes).trim_end().to_string();
            if send.send(line).is_err() {
                return;
            }
            bytes.clear();
        }
    });
    receive
}

/// State of a script so far.
pub(super) struct Record {
    steps: Vec<StepResult>,
    /// Index of the step whose BEGIN was printed without its END, and when.
    running: Option<(usize, Instant)>,
    console: String,
    /// Where the last line starts in `console`.
    last_at: usize,
    start: Instant,
    boot: Option<Duration>,
    done: bool,
    late: bool,
    stopped: Option<String>,
}

impl Record {
    fn new(script: &Script, start: Instant) -> Record {
        let blank = |name: &String| StepResult {
            name: name.clone(),
            status: None,
            output: Vec::new(),
            took: Duration::ZERO,
        };
        let steps = script.steps.iter().map(|step| blank(&step.name)).collect();
        Record {
            steps,
            running: None,
            console: String::new(),
            last_at: 0,
            start,
            boot: None,
            done: false,
            late: false,
            stopped: None,
        }
    }

    fn last(&self) -> &str {
        self.console.get(self.last_at..).unwrap_or_default().trim_end()
    }

    fn take(&mut self, line: &str) {
        self.last_at = self.console.len();
        self.console.push_str(line);
        self.console.push('\n');
        let mut words = line.split(' ');
        let index = |word: Option<&str>| word.and_then(|word| word.parse::<usize>().ok());
        match words.next() {
            Some("@@BOOT") => self.boot = Some(self.start.elapsed()),
            Some("@@BEGIN") => {
                self.running = index(words.next()).map(|index| (index, Instant::now()));
            }
            Some("@@END") => {
                let ended = index(words.next());
                if let Some((index, since)) = self.running.take()
                    && ended == Some(index)
                    && let Some(step) = self.steps.get_mut(index)
                {
                    step.status = words.next().and_then(|word| word.parse().ok());
                    step.took = since.elapsed();
                }
            }
            Some("@@DONE") => self.done = true,
            _ => {
                if let Some((index, _)) = self.running
                    && let Some(step) = self.steps.get_mut(index)
                {
                    step.output.push(line.to_string());
                }
            }
        }
    }

    /// Whether every step ended with 0.
    pub(super) fn succeeded(&self) -> bool {
        let ended_well = |step: &StepResult| step.status == Some(0);
        self.done && self.stopped.is_none() && self.steps.iter().all(ended_well)
    }

    pub(super) fn finish(self) -> Run {
        Run {
            steps: self.steps,
            console: self.console,
            took: self.start.elapsed(),
            boot: self.boot,
            late: self.late,
            stopped: self.stopped,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn b3_console_output_becomes_step_results() {
        let mut script = Script::new();
        script.step("one", "").step("two", "").step("three", "");
        let mut record = Record::new(&script, Instant::now());
        let lines = "noise\n@@BOOT 6.1\n@@BEGIN 000\nhello\n@@END 000 0\n@@BEGIN 001\n@@ACK f1\n\
                     @@END 001 7\nlast kernel messages:\n@@DONE";
        lines.lines().for_each(|line| record.take(line));
        assert!(record.done && record.boot.is_some());
        assert_eq!(record.last(), "@@DONE");
        let run = record.finish();
        let statuses: Vec<_> = run.steps.iter().map(|step| step.status).collect();
        assert_eq!(statuses, [Some(0), Some(7), None]);
        assert_eq!(run.steps[0].output, ["hello"]);
        assert_eq!(run.steps[1].output, ["@@ACK f1"]);
        let error = run.expect_ok().unwrap_err().to_string();
        assert!(error.contains("step `two`: status is 7"), "{error}");
        assert!(error.contains("noise"), "{error}");
    }
}
