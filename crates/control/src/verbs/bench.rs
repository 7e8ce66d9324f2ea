//! bench: measurements that anyone can repeat.

use super::entry::{Local, LocalVerb, Verb};
use crate::api::{Error, Exit, Kind, Result};
use bench::{Options, Report};

/// See the module.
pub struct Bench;

impl Verb for Bench {
    type Params = Options;
    type Answer = Report;
    const NAME: &'static str = "bench";
    const DOC: &'static str = "Measure layers, iSCSI and idleness beside the peers";
    const DETAIL: &'static str = "Starts daemons of its own and, from Debian's packages, a peer's; \
        server on one processor, load on the other, rounds in turn, medians. Exit code 3 when a \
        goal was missed. Every row names the command that repeats it alone.";
    const EXAMPLES: &'static [&'static str] = &[
        "ashlar bench",
        "ashlar bench layers --rounds 9",
        "ashlar bench iscsi --no-peers --json",
        "ashlar bench nbd --no-peers --before /usr/bin/ashlar",
        "ashlar bench kernel",
        "ashlar bench aoe --no-counters",
        "ashlar bench seeds aoe",
        "ashlar bench seeds sched",
        "ashlar bench seeds scst",
        "ashlar bench seeds fileserver",
        "ashlar bench seeds trim",
    ];
    const POSITIONAL: &'static [&'static str] = &["what", "seed"];

    fn table(report: &Report) -> String {
        report.table()
    }

    fn exit(report: &Report) -> Exit {
        let missed = report.rows.iter().any(|row| row.met() == Some(false));
        if missed { Exit::Degraded } else { Exit::Done }
    }
}

impl LocalVerb for Bench {
    fn run(_: &mut Local<'_>, options: Options) -> Result<Report> {
        let mut show = |p: bench::Progress| eprintln!("[{}/{}] {}", p.done, p.of, p.what);
        bench::run(options, &mut show).map_err(|e| {
            let kind = match e.kind {
                bench::Kind::Options => Kind::Usage,
                bench::Kind::Missing | bench::Kind::System => Kind::System,
                bench::Kind::Timeout => Kind::Timeout,
                _ => Kind::Device,
            };
            let next = match e.kind {
                bench::Kind::Options => "`ashlar bench --help` shows what there is.",
                bench::Kind::Missing => "`make bench` installs what it needs.",
                bench::Kind::System => "Is `ulimit -n` above 4096, and the disk not full?",
                _ => "Repeat it alone with `--case`; the daemon's lines above may say why.",
            };
            Error::new(kind, "bench", e.what).next(next)
        })
    }
}
