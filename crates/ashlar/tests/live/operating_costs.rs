//! `ashlar-bench operate` against this daemon, short and with few LUNs: its clients of the API
//! receive answers, and each case has its rows. No figure is judged.

use bench::{Measurement, Options, Report, run};

use crate::fixture::Fixture;

/// 10 LUNs instead of 1,000, and 40 ms instead of 4 s.
const DIVISOR: u64 = 100;

#[test]
fn each_case_of_the_operating_costs_runs() {
    // For its turn on the machine: the daemons are children of the benchmark.
    let _fixture = Fixture::new("operating-costs");
    let options = Options {
        what: Measurement::Operate,
        rounds: 1,
        ashlar: Some(env!("CARGO_BIN_EXE_ashlar").to_owned()),
        requests_divisor: DIVISOR,
        ..Options::default()
    };
    let mut report = Report::default();
    run(options, &mut report, &mut |_| {}).unwrap();
    let has = |case: &str, figure: &str| {
        let found = report.rows.iter().find(|row| row.case == case && row.figure == figure);
        let found = found.unwrap_or_else(|| panic!("{case}: no {figure} in {report:?}"));
        found.ours >= 0.0
    };
    for (case, figure) in [
        ("operate-page", "server CPU a request"),
        ("operate-page", "requests"),
        ("operate-trace", "server CPU a request"),
        ("operate-scrape", "time of a scrape"),
        ("operate-scrape", "longest scrape"),
        ("operate-scrape", "delay of a request by a scrape"),
        ("operate-samples", "CPU of the control thread in 10 s"),
        ("operate-start", "longest wait for status"),
    ] {
        assert!(has(case, figure), "{case}: {figure}");
    }
    // A kernel without Landlock has a note instead.
    let is_noted = report.notes.iter().any(|note| note.starts_with("operate-sandbox"));
    assert!(is_noted || has("operate-sandbox", "requests"));
}
