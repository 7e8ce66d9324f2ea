//! Load of a real Linux kernel: a guest logs in to every server with open-iscsi and copies with
//! `dd`. A load generator of our own chooses its commands freely. A kernel's commands follow from
//! our limits pages and its own queues, so the commands of a MiB are counted too.
//!
//! The guest is emulated: its own rates are low. The server's CPU time is compared. The bare
//! responder, with a file of its own, is the floor.

use std::time::{Duration, Instant};

use rig::guest::{Boot, Image, Script, guest_portal, quote};
use rig::scenarios::{self, From, GO};

use crate::cpu_affinity::two_cores;
use crate::error::{Error, Kind};
use crate::options::Options;
use crate::process_costs;
use crate::progress::{Progress, check_stopped};
use crate::report::{Goal, Of, Report, Series};
use crate::servers::{Backing, Scratch, Server};
use crate::turns::or_note;

const INITIATOR: &str = "iqn.2026-11.bench.ashlar:kernel";
/// Bytes of each server's file.
const FILE_BYTES: u64 = 128 << 20;
/// Goal: our CPU time of a MiB over tgt's.
const TGT_RATIO: f64 = 1.0 / 3.0;
/// Longest boot with its logins; longest turn.
const BOOT_MAX: Duration = Duration::from_secs(90);
const TURN_MAX: Duration = Duration::from_secs(60);

/// One way to copy.
pub(crate) struct Case {
    pub name: &'static str,
    /// Into the disk, and not from it.
    write: bool,
    /// Bytes that `dd` requests at once.
    block_bytes: u64,
    /// MiB of a turn.
    mib: u64,
    /// Around the guest's page cache.
    direct: bool,
    /// Commands of a MiB that are not to be exceeded.
    commands_max: Option<f64>,
}

const LARGE: Case = Case {
    name: "kernel-read-1m",
    write: false,
    block_bytes: 1 << 20,
    mib: 64,
    direct: true,
    commands_max: Some(1.0),
};
const SMALL: Case = Case { block_bytes: 4096, mib: 8, commands_max: None, ..LARGE };

pub(crate) const CASES: [Case; 6] = [
    LARGE,
    Case { name: "kernel-write-1m", write: true, ..LARGE },
    Case { name: "kernel-read-4k", ..SMALL },
    Case { name: "kernel-write-4k", write: true, ..SMALL },
    Case { name: "kernel-read-cached", direct: false, commands_max: None, ..LARGE },
    Case { name: "kernel-write-cached", write: true, direct: false, commands_max: None, ..LARGE },
];

/// Measured figures, in the order of a [`RoundFigures`].
const FIGURES: [(&str, &str); 3] =
    [("server CPU a MiB", "us"), ("commands a MiB", ""), ("throughput", "MiB/s")];
type RoundFigures = [f64; FIGURES.len()];

pub(crate) fn measure(
    options: &Options,
    report: &mut Report,
    progress: &mut dyn FnMut(Progress),
) -> Result<(), Error> {
    let cases = options.choose(&CASES, |c| c.name);
    if cases.is_empty() {
        return Ok(());
    }
    let (server_core, load_core) = two_cores(report);
    let image = match Image::build() {
        Ok(image) => image,
        Err(error) => {
            report.notes.push(format!("kernel: no guest could be made: {error:#}"));
            return Ok(());
        }
    };
    let files = Scratch::new("kernel")?;
    let backing =
        |name: &str| -> Result<_, Error> { Ok([Backing::File(files.file(name, FILE_BYTES)?)]) };
    let mut servers = vec![Server::ashlar(&options.binary()?, server_core, &backing("ashlar")?)?];
    if let Some(binary) = &options.before {
        servers.push(Server::before(binary, server_core, &backing("before")?)?);
    }
    for &peer in options.peers() {
        let server = Server::peer(peer, server_core, &backing(peer.name())?);
        servers.extend(or_note(server, report)?);
    }
    let script = script(options, &cases, &servers);
    let turns = cases.len() * servers.len() * options.rounds as usize;
    let turns = u32::try_from(turns).unwrap_or(u32::MAX);
    let how = Boot { deadline: BOOT_MAX + TURN_MAX.saturating_mul(turns), core: load_core };
    let mut scale = Scale { servers: &servers, begun: None, turns: Vec::new() };
    let conversed = scenarios::converse(From::Kernel(&image), &script, how, &mut |asked| {
        if let Some((_, words)) = asked.strip_prefix("begin ").and_then(|w| w.split_once(' ')) {
            let done = u32::try_from(scale.turns.len()).unwrap_or(turns);
            progress(Progress { done, of: turns, step: format!("kernel: {words}") });
        }
        check_stopped().map_err(|e| anyhow::anyhow!(e.message))?;
        scale.on_guest_line(asked)?;
        Ok(GO.to_owned())
    });
    conversed.map_err(|e| Error::new(Kind::Server, format!("kernel: {e:#}")))?;
    let at = |name| servers.iter().position(|server| server.name == name);
    for (n, case) in cases.iter().enumerate() {
        if let (Some(tgt), Some(bare)) = (at("tgt"), at("bare")) {
            let work = "a command in, and its data in or out of a file";
            report.floor(case.name, work, &scale.cpu(n, bare), ("tgt", &scale.cpu(n, tgt)));
        }
        rows(options, report, case, &servers, |server, figure| {
            let mine = scale.turns.iter().filter(|(at, _)| *at == (n, server));
            mine.filter_map(|(_, turn)| turn.get(figure).copied()).collect()
        });
    }
    Ok(())
}

/// Measures the servers between the lines that the guest prints.
struct Scale<'a> {
    servers: &'a [Server],
    /// CPU time of the server, ns, and the time, when the turn began.
    begun: Option<(u64, Instant)>,
    /// Case, server, and the figures.
    turns: Vec<((usize, usize), RoundFigures)>,
}

impl Scale<'_> {
    /// CPU time of a MiB in each turn of a case at a server, us.
    fn cpu(&self, case: usize, server: usize) -> Vec<f64> {
        let mine = self.turns.iter().filter(|(at, _)| *at == (case, server));
        mine.map(|(_, turn)| turn[0]).collect()
    }

    /// `begin SERVER ...`, or `end CASE SERVER MIB COMMANDS`.
    fn on_guest_line(&mut self, words: &str) -> anyhow::Result<()> {
        let numbers: Vec<usize> = words.split(' ').filter_map(|word| word.parse().ok()).collect();
        let pid = |server: usize| Some(self.servers.get(server)?.pid());
        match (numbers.as_slice(), self.begun.take()) {
            (&[case, server, mib, commands], Some((cpu, begun))) => {
                let took = begun.elapsed().as_secs_f64();
                let pid = pid(server).ok_or_else(|| anyhow::anyhow!("no server {server}"))?;
                let cpu = process_costs::cpu_ns(pid)?.saturating_sub(cpu) as f64 / 1e3;
                let mib = mib as f64;
                self.turns.push(((case, server), [cpu / mib, commands as f64 / mib, mib / took]));
            }
            (&[server, ..], None) => {
                let pid = pid(server).ok_or_else(|| anyhow::anyhow!("no server {server}"))?;
                self.begun = Some((process_costs::cpu_ns(pid)?, Instant::now()));
            }
            _ => anyhow::bail!("out of turn"),
        }
        Ok(())
    }
}

/// Functions for the turns; `/rig/dev-N` has the disk of server N.
const HELPERS: &str = "\
dev() { cat /rig/dev-$1; }
# stat DEVICE FIELD: a number of the disk's statistics.
stat() { set -- $(cat /sys/block/${1##*/}/stat) $2; eval echo \\$$(eval echo \\${$#}); }
turn() {
    # CASE SERVER FIELD MIB NAME COMMAND...
    c=$1 s=$2 f=$3 m=$4 n=$5
    shift 5
    sync; echo 3 >/proc/sys/vm/drop_caches
    before=$(stat $(dev $s) $f)
    told begin $s $n
    \"$@\" 2>/tmp/dd || { cat /tmp/dd; return 1; }
    told end $c $s $m $(($(stat $(dev $s) $f) - before))
}
";

fn script(options: &Options, cases: &[&Case], servers: &[Server]) -> Script {
    let mut script = Script::new();
    script.step("start iscsid", format!("start_iscsid {INITIATOR}"));
    for (n, server) in servers.iter().enumerate() {
        let (iqn, portal) = (quote(&server.target), guest_portal(server.portal));
        let lun = server.luns.first().copied().unwrap_or_default();
        let steps = format!(
            "node {iqn} {portal}\n\
             iscsiadm -m node -T {iqn} -p {portal} --login >/dev/null\n\
             disk {iqn} {lun} >/rig/dev-{n}; d=$(cat /rig/dev-{n})\n\
             head -c 4194304 /dev/urandom >/tmp/data\n\
             dd if=/tmp/data of=$d bs=1M oflag=direct 2>/dev/null\n\
             dd if=$d bs=1M count=4 iflag=direct 2>/dev/null | cmp - /tmp/data\n\
             dd if=/dev/zero of=$d bs=1M count={} oflag=direct 2>/dev/null",
            FILE_BYTES >> 20
        );
        script.step(&format!("log in to {}", server.name), steps);
    }
    for (c, case) in cases.iter().enumerate() {
        for round in 0..options.rounds as usize {
            let mut steps = HELPERS.to_owned();
            for turn in 0..servers.len() {
                let s = (turn + round) % servers.len();
                let words = format!("{}, {}, round {}", case.name, servers[s].name, round + 1);
                steps.push_str(&case.turn(c, s, &words));
            }
            script.step(&format!("{} round {}", case.name, round + 1), steps);
        }
    }
    script
}

impl Case {
    /// The line of one turn.
    fn turn(&self, case: usize, server: usize, words: &str) -> String {
        let (disk, field) = (format!("$(dev {server})"), if self.write { 5 } else { 1 });
        let (from, to, flag) = match (self.write, self.direct) {
            (false, true) => (disk.as_str(), "/dev/null", "iflag=direct"),
            (false, false) => (disk.as_str(), "/dev/null", ""),
            (true, true) => ("/dev/zero", disk.as_str(), "oflag=direct"),
            (true, false) => ("/dev/zero", disk.as_str(), "conv=fsync"),
        };
        let count = (self.mib << 20) / self.block_bytes;
        format!(
            "turn {case} {server} {field} {} {} dd if={from} of={to} bs={} count={count} {flag}\n",
            self.mib,
            quote(words),
            self.block_bytes
        )
    }
}

fn rows(
    options: &Options,
    report: &mut Report,
    case: &Case,
    servers: &[Server],
    of: impl Fn(usize, usize) -> Vec<f64>,
) {
    let peers = 1..servers.len().max(2);
    for side in peers {
        for (n, &figure) in FIGURES.iter().enumerate() {
            let peer = servers.get(side).map(|server| server.name);
            let theirs = if peer.is_some() { of(side, n) } else { Vec::new() };
            let row = Series { ours: of(0, n), theirs }.row(case.name, figure, peer);
            let goal = match (n, peer) {
                (0, Some("tgt")) => Some(Goal { of: Of::Ratio, at_most: TGT_RATIO }),
                (1, _) if side == 1 => {
                    case.commands_max.map(|at_most| Goal { of: Of::Ours, at_most })
                }
                _ => None,
            };
            report.add(options, "kernel", row, goal);
        }
    }
}
