//! Helpers of the tests of tables and labels: an image in memory, power cuts, other tools.

use classes::part::{self, Table, TableContext};
use classes::probe::{ProbeError, Sectors, Step};
use classes::write_plan::{WritePlan, WriteStep};
use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A small generator of chance (splitmix64), seeded.
pub struct Seed(pub u64);

impl Seed {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    pub fn bytes(&mut self) -> [u8; 16] {
        let (a, b) = (self.next().to_le_bytes(), self.next().to_le_bytes());
        let mut all = [0; 16];
        all[..8].copy_from_slice(&a);
        all[8..].copy_from_slice(&b);
        all
    }
}

/// A disk in memory: sectors never written are zero.
#[derive(Clone)]
pub struct Image {
    pub sector_size: u32,
    pub sectors: u64,
    pub held: BTreeMap<u64, Vec<u8>>,
}

impl Image {
    pub fn new(sectors: u64, sector_size: u32) -> Self {
        Self { sector_size, sectors, held: BTreeMap::new() }
    }

    pub fn read(&self, offset: u64, len: usize) -> Vec<u8> {
        let size = self.sector_size as usize;
        let first = offset / size as u64;
        assert_eq!((offset % size as u64, len % size), (0, 0), "a probe reads whole sectors");
        let mut out = Vec::with_capacity(len);
        for sector in first..first + (len / size) as u64 {
            assert!(sector < self.sectors, "a probe stays on the media");
            match self.held.get(&sector) {
                Some(bytes) => out.extend_from_slice(bytes),
                None => out.resize(out.len() + size, 0),
            }
        }
        out
    }

    pub fn put(&mut self, sector: u64, bytes: &[u8]) {
        assert!(sector < self.sectors, "a plan stays on the media");
        self.held.insert(sector, bytes.to_vec());
    }

    pub fn probe(&self, place: &TableContext) -> Result<Table, ProbeError> {
        let mut sectors = Sectors::new(self.sector_size, self.sectors * self.sector_size as u64);
        sectors.drive(|offset, len| Some(self.read(offset, len)), |s| part::step(s, place))
    }

    fn split(&self, step: &WriteStep) -> Vec<(u64, Vec<u8>)> {
        let WriteStep::Write { offset, bytes } = step else {
            return Vec::new();
        };
        let size = self.sector_size as usize;
        assert_eq!((offset % size as u64, bytes.len() % size), (0, 0), "whole sectors");
        let first = offset / size as u64;
        (first..).zip(bytes.chunks(size)).map(|(at, bytes)| (at, bytes.to_vec())).collect()
    }

    pub fn apply(&mut self, plan: &WritePlan) {
        assert!(plan.is_empty() || plan.steps().last() == Some(&WriteStep::Flush));
        for step in plan.steps() {
            for (at, bytes) in self.split(step) {
                self.put(at, &bytes);
            }
        }
    }
}

/// Carry out `plan` with the power cut at every point, with every subset of the sector writes
/// not yet flushed lost (all of them up to `2^EXHAUSTIVE`, beyond that each alone, each missing
/// alone, every prefix, and `SAMPLES` chosen by seed). Answers how many cuts were tried.
pub fn power_cuts(
    before: &Image,
    plan: &WritePlan,
    seed: u64,
    mut check: impl FnMut(&Image),
) -> u64 {
    const EXHAUSTIVE: usize = 10;
    const SAMPLES: u64 = 300;
    let mut chance = Seed(seed);
    let mut durable = before.clone();
    let mut pending: Vec<(u64, Vec<u8>)> = Vec::new();
    let mut cuts = 0;
    let mut cut = |durable: &Image, pending: &[(u64, Vec<u8>)], keep: &dyn Fn(usize) -> bool| {
        let mut image = durable.clone();
        for (place, (at, bytes)) in pending.iter().enumerate() {
            if keep(place) {
                image.put(*at, bytes);
            }
        }
        check(&image);
        cuts += 1;
    };
    // The states after a prefix of the window are a subset of those after the whole window. So the
    // subsets are taken once, when a flush is reached.
    for step in plan.steps() {
        pending.extend(before.split(step));
        if *step != WriteStep::Flush {
            continue;
        }
        let count = pending.len();
        if count <= EXHAUSTIVE {
            for set in 0..1_u64 << count {
                cut(&durable, &pending, &|place| set >> place & 1 != 0);
            }
        } else {
            for some in 0..=count {
                cut(&durable, &pending, &|place| place < some);
                cut(&durable, &pending, &|place| place == some);
                cut(&durable, &pending, &|place| place != some);
            }
            for _ in 0..SAMPLES {
                let (low, high) = (chance.next(), chance.next());
                let word = |place: usize| if place < 64 { low } else { high };
                cut(&durable, &pending, &|place| word(place) >> (place % 64) & 1 != 0);
            }
        }
        for (at, bytes) in pending.drain(..) {
            durable.put(at, &bytes);
        }
    }
    assert!(pending.is_empty(), "a plan ends with a flush");
    cuts
}

/// A directory that is removed again.
pub struct Scratch(PathBuf);

impl Scratch {
    pub fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("ashlar-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).expect("temporary directory");
        Self(path)
    }

    pub fn image(&self, name: &str, bytes: u64) -> PathBuf {
        let path = self.0.join(name);
        File::create(&path).and_then(|file| file.set_len(bytes)).expect("image file");
        path
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A loop device, for tools that need a sector size from the kernel.
pub struct Loop(String);

impl Loop {
    pub fn new(path: &Path, sector_size: u32) -> Self {
        let size = sector_size.to_string();
        let file = path.display().to_string();
        let output = run("losetup", &["-f", "--show", "-b", &size, &file]);
        Self(output.trim().to_owned())
    }

    /// A device that may have partitions: mdadm takes it for a whole disk.
    pub fn disk(path: &Path, sector_size: u32) -> Self {
        let size = sector_size.to_string();
        let file = path.display().to_string();
        let output = run("losetup", &["-f", "-P", "--show", "-b", &size, &file]);
        Self(output.trim().to_owned())
    }

    pub fn name(&self) -> &str {
        &self.0
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["-d", &self.0]).status();
    }
}

/// Run a tool; a missing or failing one fails the test.
pub fn run(tool: &str, args: &[&str]) -> String {
    run_with(tool, args, "")
}

pub fn run_with(tool: &str, args: &[&str], input: &str) -> String {
    let (ok, text) = try_run(tool, args, input);
    assert!(ok, "{tool} {args:?} failed:\n{text}");
    text
}

/// Run a tool; answers whether it succeeded, and all it printed.
pub fn try_run(tool: &str, args: &[&str], input: &str) -> (bool, String) {
    use std::io::Write;
    use std::process::Stdio;
    // Administrators' tools are not on every path.
    let path = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin";
    let child = Command::new(tool)
        .args(args)
        .env("PATH", path)
        .env("LC_ALL", "C.UTF-8")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = match child {
        Ok(child) => child,
        Err(error) => panic!("{tool} is missing ({error}): install ci/packages/classes.txt"),
    };
    // Small inputs fit in the pipe; a tool that does not read is not an error.
    let _ = child.stdin.take().map(|mut stdin| stdin.write_all(input.as_bytes()));
    let done = child.wait_with_output().expect("output of a tool");
    let mut text = String::from_utf8_lossy(&done.stdout).into_owned();
    text.push_str(&String::from_utf8_lossy(&done.stderr));
    (done.status.success(), text)
}

/// Read an image file with a probe.
pub fn probe_file<T>(
    path: &Path,
    sector_size: u32,
    probe: impl FnMut(&Sectors) -> Step<T>,
) -> Result<T, ProbeError> {
    let file = File::open(path).expect("image file");
    let len = file.metadata().expect("image file").len();
    let read = |offset, len: usize| {
        let mut bytes = vec![0; len];
        file.read_exact_at(&mut bytes, offset).ok().map(|()| bytes)
    };
    Sectors::new(sector_size, len).drive(read, probe)
}

pub fn table_of(path: &Path, sector_size: u32) -> Result<Table, ProbeError> {
    probe_file(path, sector_size, |s| part::step(s, &TableContext::default()))
}

/// Carry out a plan on an image file.
pub fn apply_to(path: &Path, plan: &WritePlan) {
    let file = File::options().write(true).open(path).expect("image file");
    for step in plan.steps() {
        if let WriteStep::Write { offset, bytes } = step {
            file.write_all_at(bytes, *offset).expect("write to the image");
        }
    }
    file.sync_data().expect("sync of the image");
}

/// Overwrite a range of an image file with one byte.
pub fn damage_file(path: &Path, offset: u64, len: usize, byte: u8) {
    let file = File::options().write(true).open(path).expect("image file");
    file.write_all_at(&vec![byte; len], offset).expect("write to the image");
}

/// A tool on an image of `sector_size`: through a loop device where it is not 512.
pub fn run_on(path: &Path, sector_size: u32, tool: &str, args: &[&str], input: &str) -> String {
    let device = (sector_size != 512).then(|| Loop::new(path, sector_size));
    let file = path.display().to_string();
    let target = device.as_ref().map_or(file.as_str(), Loop::name);
    let args: Vec<&str> = args.iter().map(|arg| if *arg == "@" { target } else { *arg }).collect();
    run_with(tool, &args, input)
}

/// A part of an image file as media of its own, for a table inside a partition.
pub struct Window {
    pub file: File,
    pub offset: u64,
    pub len: u64,
}

impl Window {
    pub fn new(path: &Path, offset: u64, len: u64) -> Self {
        let file = File::options().read(true).write(true).open(path).expect("image file");
        Self { file, offset, len }
    }

    pub fn probe(&self, sector_size: u32, place: &TableContext) -> Result<Table, ProbeError> {
        let read = |offset, len: usize| {
            let mut bytes = vec![0; len];
            let at = self.offset + offset;
            self.file.read_exact_at(&mut bytes, at).ok().map(|()| bytes)
        };
        Sectors::new(sector_size, self.len).drive(read, |s| part::step(s, place))
    }

    pub fn apply(&self, plan: &WritePlan) {
        for step in plan.steps() {
            if let WriteStep::Write { offset, bytes } = step {
                self.file.write_all_at(bytes, self.offset + offset).expect("write to the image");
            }
        }
    }
}
