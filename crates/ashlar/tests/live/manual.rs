//! Sessions of the README and the manual: every `console` block of a page in its order, in one
//! folder and with one daemon. Each command's output must be as printed there; `...` matches text
//! that differs from run to run. `crates/tidy` refuses other blocks of commands that have no mark
//! with the reason.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use rig::proc;

use crate::fixture::Fixture;
use crate::two_paths::Wire;

/// The portal of the pages; replaced by the daemon's own.
const PORTAL: &str = "127.0.0.1:3260";
/// The listener of the API of a page; replaced by a free address.
const API: &str = "127.0.0.1:7320";
/// The network interfaces of a page for AoE, which a cable joins; replaced by those of a cable of
/// the test.
const INTERFACES: [&str; 2] = ["eth1", "eth2"];
/// Longest wait for the output of a command that only reads.
const LIMIT: Duration = Duration::from_secs(60);

/// A command line, and the lines that it prints.
struct Step {
    command: String,
    prints: Vec<String>,
}

impl Step {
    /// It changes nothing, so it may be repeated until a rebuild or the like has ended.
    fn asks(&self) -> bool {
        let words: Vec<&str> = self.command.split(' ').collect();
        let verbs = ["tree", "status", "list", "access", "history", "sessions"];
        words[0] == "ashlar" && words[1..].iter().take(2).any(|word| verbs.contains(word))
    }

    fn is_printed(&self, output: &str) -> bool {
        let lines: Vec<&str> = output.lines().map(str::trim_end).collect();
        let fits = |(want, line): (&String, &&str)| match want.split_once("...") {
            Some((before, after)) => line.starts_with(before) && line.ends_with(after),
            None => want == line,
        };
        lines.len() == self.prints.len() && self.prints.iter().zip(&lines).all(fits)
    }
}

fn read(page: &Path) -> (String, Vec<Step>) {
    let text = std::fs::read_to_string(page).unwrap();
    let block = |fence: &str| {
        let blocks = text.split(fence).skip(1).map(|rest| rest.split_once("\n```").unwrap().0);
        blocks.collect::<Vec<&str>>()
    };
    let mut steps: Vec<Step> = Vec::new();
    for line in block("```console\n").into_iter().flat_map(str::lines) {
        match line.strip_prefix("$ ") {
            Some(command) => steps.push(Step { command: command.into(), prints: Vec::new() }),
            None => steps.last_mut().expect("a command").prints.push(line.trim_end().into()),
        }
    }
    (block("```toml\n# ashlar.toml\n")[0].to_owned(), steps)
}

/// Standard output and standard error of a command in the folder of the fixture.
fn run(fixture: &Fixture, command: &str) -> String {
    let program = Path::new(env!("CARGO_BIN_EXE_ashlar")).parent().unwrap();
    let path = format!("{}:{}", program.display(), std::env::var("PATH").unwrap());
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("{command} 2>&1")]).current_dir(fixture.path(""));
    shell.env("PATH", path).env("ASHLAR_SOCKET", fixture.path("ashlar.sock"));
    shell.env("ASHLAR_CONFIG", fixture.path("ashlar.toml"));
    String::from_utf8(shell.output().unwrap().stdout).unwrap()
}

/// The README and the pages of the manual that have a session, by their names.
fn pages() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let (mut pages, mut folders) = (vec![root.join("README.md")], vec![root.join("docs")]);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let list = if path.is_dir() { &mut folders } else { &mut pages };
            list.push(path);
        }
    }
    pages.retain(|path| {
        let is_page = path.extension().is_some_and(|e| e == "md");
        is_page && std::fs::read_to_string(path).unwrap().contains("```console\n")
    });
    pages.sort();
    pages
}

/// Runs a page; the faults that it has.
fn play(page: &Path) -> Vec<String> {
    let name = page.file_stem().unwrap().to_string_lossy().into_owned();
    let (mut config, mut steps) = read(page);
    let needs_cable = config.contains("\"ether:");
    // A short name: lists cut long paths.
    let mut fixture = if needs_cable { Fixture::alone("m") } else { Fixture::new("m") };
    let cable = needs_cable.then(Wire::new);
    if let Some(Wire { near, far }) = &cable {
        for (interface, end) in INTERFACES.into_iter().zip([far, near]) {
            config = config.replace(interface, end);
        }
    }
    let portal = fixture.portal().to_string();
    let api = format!("127.0.0.1:{}", proc::free_port().unwrap());
    let own = |text: &str| text.replace(PORTAL, &portal).replace(API, &api);
    for step in &mut steps {
        step.command = own(&step.command);
        step.prints.iter_mut().for_each(|line| *line = own(line));
    }
    fixture.write("ashlar.toml", &format!("{}\n", own(&config)));
    let mut faults = Vec::new();
    for step in steps {
        if step.command.starts_with("ashlar serve") {
            fixture.start();
            continue;
        }
        let mut output = run(&fixture, &step.command);
        let begun = Instant::now();
        while step.asks() && !step.is_printed(&output) && begun.elapsed() < LIMIT {
            sleep(Duration::from_millis(100));
            output = run(&fixture, &step.command);
        }
        if !step.is_printed(&output) {
            let printed = step.prints.join("\n");
            faults.push(format!("{name}: $ {}\n{output}printed:\n{printed}\n", step.command));
        }
    }
    fixture.stop();
    faults
}

#[test]
fn console_sessions_print_the_documented_output() {
    let pages = pages();
    assert!(!pages.is_empty());
    let faults: Vec<String> = pages.iter().flat_map(|page| play(page)).collect();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}
