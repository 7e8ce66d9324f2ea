//! Effect of one setting: a daemon that has it beside one that has not, in turns.
//!
//! Both run the same binary. The figures of the daemon without the setting are those of the peer.

use crate::cpu_affinity::{Cores, two_cores};
use crate::error::Error;
use crate::iscsi::weigh_load;
use crate::load::{self, Order, Spec, Work};
use crate::nbd;
use crate::options::Options;
use crate::progress::Progress;
use crate::report::{Report, Series};
use crate::servers::{Backing, Keys, MEMORY_BYTES, Scratch, Server};
use crate::turns::{FIGURES, Round, Rounds, Turns, counters};

/// The name in tables of the daemon without the setting.
const WITHOUT: &str = "without";
/// Bytes of a request that fills a file.
const FILL_BYTES: u32 = 64 * 1024;

/// Backing store of the unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Store {
    /// Nothing.
    Null,
    /// An image file of [`MEMORY_BYTES`], filled before.
    File,
    /// An export with nothing behind it, of another daemon.
    Nbd,
    /// A stripe of two disks in memory.
    Stripe,
}

/// One setting under the load that shows its effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Case {
    pub name: &'static str,
    with: Keys,
    without: Keys,
    store: Store,
    write: bool,
    request_bytes: u32,
    depth: u32,
    sessions: u32,
    /// The load never sleeps, if it has a core of its own.
    spin: bool,
}

const NO_KEYS: Keys = Keys { daemon: "", disk: "", unit: "", stripe: "", target: "" };
const READ: Case = Case {
    name: "",
    with: NO_KEYS,
    without: NO_KEYS,
    store: Store::Null,
    write: false,
    request_bytes: 4096,
    depth: 32,
    sessions: 1,
    spin: true,
};
/// Spinning helps, if at all, initiators that sleep.
const SPIN: Case = Case { with: Keys { daemon: "spin_us = 50", ..NO_KEYS }, spin: false, ..READ };
const WRITE_64K: Case = Case { write: true, request_bytes: 65_536, depth: 8, ..READ };
const SOLICITED: Keys = Keys { target: "immediate_data = false", ..NO_KEYS };
const UNSOLICITED: Keys = Keys { target: "immediate_data = false\ninitial_r2t = false", ..NO_KEYS };
const SHORT_BURST: Keys = Keys {
    target: "immediate_data = false\ninitial_r2t = false\nfirst_burst_length = 65536",
    ..NO_KEYS
};

/// A request of 64 KiB is in one strip of the default size.
const STRIP_64K: Keys = Keys { stripe: "strip = 65536", ..NO_KEYS };

/// Every case, over iSCSI. Places are random within 256 MiB.
pub(crate) const CASES: [Case; 10] = [
    Case { name: "spin-us-50-d1", depth: 1, ..SPIN },
    Case { name: "spin-us-50-d32", ..SPIN },
    Case {
        name: "memory-16m",
        with: Keys { daemon: "memory = \"16MiB\"", ..NO_KEYS },
        depth: 32,
        sessions: 8,
        ..WRITE_64K
    },
    Case {
        name: "direct-no",
        with: Keys { disk: "direct = \"no\"", ..NO_KEYS },
        store: Store::File,
        ..READ
    },
    Case {
        name: "write-cache-off",
        with: Keys { unit: "write_cache = false", ..NO_KEYS },
        store: Store::File,
        write: true,
        ..READ
    },
    Case {
        name: "nbd-connections-1",
        with: Keys { disk: "connections = 1", ..NO_KEYS },
        store: Store::Nbd,
        sessions: 8,
        ..READ
    },
    Case {
        name: "strip-4k",
        with: Keys { stripe: "strip = 4096", ..NO_KEYS },
        without: STRIP_64K,
        store: Store::Stripe,
        request_bytes: 65_536,
        depth: 8,
        ..READ
    },
    Case { name: "immediate-data-off", with: SOLICITED, ..WRITE_64K },
    Case { name: "initial-r2t-off", with: UNSOLICITED, without: SOLICITED, ..WRITE_64K },
    Case {
        name: "first-burst-64k",
        with: SHORT_BURST,
        without: UNSOLICITED,
        request_bytes: 262_144,
        ..WRITE_64K
    },
];

pub(crate) fn measure(
    options: &Options,
    report: &mut Report,
    progress: &mut dyn FnMut(Progress),
) -> Result<(), Error> {
    let cases = options.choose(&CASES, |c| c.name);
    if cases.is_empty() {
        return Ok(());
    }
    let cores = two_cores(report);
    let counters = counters(options, report);
    let binary = options.binary()?;
    let mut turns = Turns { kind: "settings", options, progress, cases: cases.len(), done: 0 };
    for case in cases {
        let start =
            |keys: &Keys| Side::start(&binary, case, keys, cores).map_err(|e| e.within(case.name));
        let sides = [start(&case.with)?, start(&case.without)?];
        let rounds = turns.take(case.name, sides.len(), |n| {
            weigh_round(&sides[n].server, case, options, cores.1, counters)
        })?;
        rows(options, report, case, &rounds);
    }
    Ok(())
}

/// One of the two daemons, with the server or the file behind its unit. Fields end in this order.
struct Side {
    server: Server,
    _behind: Option<nbd::servers::Server>,
    _files: Scratch,
}

impl Side {
    fn start(
        binary: &str,
        case: &Case,
        keys: &Keys,
        (core, load_core): Cores,
    ) -> Result<Side, Error> {
        let files = Scratch::new("settings")?;
        let mut behind = None;
        let backings = match case.store {
            Store::Null => vec![Backing::Null],
            Store::File => vec![Backing::File(files.file("disk", MEMORY_BYTES)?)],
            Store::Stripe => vec![Backing::Memory, Backing::Memory],
            Store::Nbd => {
                let server = nbd::servers::ashlar(binary, None)?;
                let (address, export) = server.export(nbd::servers::Store::Null);
                behind = Some(server);
                vec![Backing::Nbd(address, export)]
            }
        };
        // A disk of kind `nbd` has at most one connection for each core.
        let core = core.filter(|_| case.store != Store::Nbd);
        let server = Server::with_keys(binary, core, &backings, keys)?;
        if case.store == Store::File {
            load::run(&Spec {
                core: load_core,
                depth: 8,
                request_bytes: FILL_BYTES,
                work: Work::Fill,
                order: Order::Sequential,
                requests: Some(MEMORY_BYTES / u64::from(FILL_BYTES)),
                ..unit_of(&server)
            })?;
        }
        Ok(Side { server, _behind: behind, _files: files })
    }
}

fn unit_of(server: &Server) -> Spec {
    Spec {
        luns: server.luns.clone(),
        span_bytes: Some(MEMORY_BYTES),
        ..Spec::new(server.portal, server.target.clone(), 0)
    }
}

fn weigh_round(
    server: &Server,
    case: &Case,
    options: &Options,
    core: Option<usize>,
    counters: bool,
) -> Result<Round, Error> {
    let spec = Spec {
        core,
        depth: case.depth,
        sessions: case.sessions,
        request_bytes: case.request_bytes,
        work: if case.write { Work::Write } else { Work::Read },
        spin: case.spin && core.is_some(),
        ..unit_of(server)
    };
    weigh_load(server, spec, options, counters)
}

fn rows(options: &Options, report: &mut Report, case: &Case, rounds: &Rounds) {
    for (n, figure) in FIGURES.into_iter().enumerate() {
        let series = Series { ours: rounds.of(0, n), theirs: rounds.of(1, n) };
        report.add(options, "settings", series.row(case.name, figure, Some(WITHOUT)), None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A case without a difference would measure nothing, and a command names one case.
    #[test]
    fn each_case_changes_a_setting_and_has_a_command_of_its_own() {
        let options = Options::default();
        for case in &CASES {
            assert_ne!(case.with, case.without, "{}", case.name);
            let named = Options { case: Some(case.name.to_owned()), ..Options::default() };
            let chosen = named.choose(&CASES, |c| c.name);
            assert_eq!(chosen, [case], "{}", case.name);
            let command = options.command("settings", case.name);
            let wanted =
                format!("ashlar-bench settings --case {} --rounds 5 --seconds 1", case.name);
            assert_eq!(command, wanted);
        }
    }

    /// The page names the command of each setting.
    #[test]
    fn performance_page_names_every_case() {
        let page = include_str!("../../../docs/cookbook/performance.md");
        for case in &CASES {
            let name = case.name.trim_end_matches("-d1").trim_end_matches("-d32");
            assert!(page.contains(&format!("ashlar-bench settings --case {name}`")), "{name}");
        }
    }
}
