//! One run: the requested measurements in order, into one report.

use std::fs;
use std::process::Command;

use crate::error::{Error, Kind};
use crate::layers::{BIOS, count, layers};
use crate::options::{Measurement, Options, Peer};
use crate::progress::{Progress, check_stopped};
use crate::report::{Goal, Of, Report, Series};
use crate::servers::free_address;
use crate::{
    aoe, bare, classes, cores, files, idle, iscsi, iscsi_initiator, kernel, luns, nbd, operate,
    seeds, settings,
};

/// Depths of the stacks measured.
const DEPTHS: [u32; 4] = [1, 3, 5, 10];
/// The stack whose allocations and system calls are counted.
const COUNTED: u32 = 5;
/// Goal: ns a layer.
const LAYER_NS: f64 = 15.0;
/// Goal for "none" a Bio: the remainder that a warm pool, a growing vector or the measurement
/// itself may leave.
const NONE: f64 = 0.001;

/// Runs the measurements of `options` into `report`, which keeps the rows measured so far when this
/// fails or is stopped. Children are started and ended on the way; none is left when this returns.
pub fn run(
    options: Options,
    report: &mut Report,
    progress: &mut dyn FnMut(Progress),
) -> Result<(), Error> {
    let options = options.settled();
    if let (Measurement::Bare, Some(interface)) = (options.what, &options.interface) {
        progress(Progress { done: 0, of: 1, step: format!("bare: AoE at {interface}") });
        return aoe::bare::serve(interface, options.file.as_deref());
    }
    if options.what == Measurement::Bare {
        let portal = options.listen.map_or_else(free_address, Ok)?;
        progress(Progress { done: 0, of: 1, step: format!("bare: listening on {portal}") });
        return bare::serve(portal, options.file.as_deref());
    }
    let wants = |what| options.what == Measurement::All || options.what == what;
    report.machine = machine(&options);
    if wants(Measurement::Layers) {
        check_stopped()?;
        measure_layers(&options, report, progress)?;
    }
    if wants(Measurement::Classes) {
        check_stopped()?;
        classes::measure(&options, report, progress)?;
    }
    if wants(Measurement::Iscsi) {
        check_stopped()?;
        iscsi::measure(&options, report, progress)?;
        iscsi_initiator::measure(&options, report, progress)?;
    }
    if wants(Measurement::Kernel) {
        check_stopped()?;
        kernel::measure(&options, report, progress)?;
    }
    if wants(Measurement::Nbd) {
        check_stopped()?;
        nbd::measure(&options, report, progress)?;
    }
    if wants(Measurement::Aoe) {
        check_stopped()?;
        aoe::measure(&options, report, progress)?;
    }
    if wants(Measurement::Files) {
        check_stopped()?;
        files::measure(&options, report, progress)?;
    }
    if wants(Measurement::Cores) {
        check_stopped()?;
        cores::measure(&options, report, progress)?;
    }
    if wants(Measurement::Luns) && options.wants(luns::CASE) {
        check_stopped()?;
        luns::measure(&options, report, progress)?;
    }
    if wants(Measurement::Operate) {
        check_stopped()?;
        operate::measure(&options, report, progress)?;
    }
    if options.what == Measurement::Settings {
        check_stopped()?;
        settings::measure(&options, report, progress)?;
    }
    if options.what == Measurement::Seeds {
        check_stopped()?;
        seeds::measure(&options, report, progress)?;
    }
    if wants(Measurement::Idle) {
        check_stopped()?;
        idle::measure(&options, report, progress)?;
    }
    if report.rows.is_empty() && report.notes.is_empty() {
        let what = format!(
            "no case is named like that; the cases are {}",
            case_names().collect::<Vec<_>>().join(", ")
        );
        return Err(Error::new(Kind::Options, what));
    }
    Ok(())
}

fn case_names() -> impl Iterator<Item = String> {
    let layers = DEPTHS.iter().map(|d| format!("layers-{d}"));
    let iscsi = iscsi::CASES.iter().map(|c| c.name.to_owned());
    let cores = cores::CASES.iter().map(|(name, ..)| (*name).to_owned());
    let nbd = nbd::CASES.iter().map(|c| c.name.to_owned());
    layers
        .chain(["layers-all".to_owned()])
        .chain(classes::CASES.iter().map(|c| (*c).to_owned()))
        .chain(iscsi)
        .chain([iscsi_initiator::CASE.to_owned()])
        .chain(kernel::CASES.iter().map(|c| c.name.to_owned()))
        .chain(nbd)
        .chain([nbd::copier::CASE.to_owned()])
        .chain(aoe::CASES.iter().map(|c| c.name.to_owned()))
        .chain(aoe::initiator::CASES.iter().map(|c| c.name.to_owned()))
        .chain(files::CASES.iter().map(|c| c.name.to_owned()))
        .chain(files::HALT_NAMES.map(str::to_owned))
        .chain(cores)
        .chain([luns::CASE.to_owned()])
        .chain(operate::CASES.iter().map(|c| c.name.to_owned()))
        .chain(settings::CASES.iter().map(|c| c.name.to_owned()))
        .chain(idle::CASES.iter().map(|c| c.name.to_owned()))
}

fn measure_layers(
    options: &Options,
    report: &mut Report,
    progress: &mut dyn FnMut(Progress),
) -> Result<(), Error> {
    let all = options.wants("layers-all");
    // Exactly, for layers-1 is a part of layers-10.
    let named = |d: &u32| options.case.as_deref() == Some(&format!("layers-{d}"));
    let exact: Vec<u32> = DEPTHS.into_iter().filter(|d| named(d)).collect();
    let depths = if all && exact.is_empty() { DEPTHS.to_vec() } else { exact };
    if depths.is_empty() {
        return Ok(());
    }
    progress(Progress { done: 0, of: 2, step: format!("layers: {depths:?} over null") });
    let bios = options.length().scaled(u64::from(BIOS)) as u32;
    let rows = layers(&depths, options.rounds, bios)?;
    for row in &rows {
        let case = format!("layers-{}", row.layers);
        let series = Series { ours: row.ns.clone(), theirs: vec![] };
        let row = series.row(&case, ("CPU of a Bio, down and up", "ns"), None);
        report.add(options, "layers", row, None);
    }
    if let (Some(first), Some(last)) = (rows.first(), rows.last())
        && first.layers < last.layers
    {
        let between = f64::from(last.layers - first.layers);
        let slope = first.ns.iter().zip(&last.ns).map(|(a, b)| (b - a) / between).collect();
        let series = Series { ours: slope, theirs: vec![] };
        let goal = Goal { of: Of::Ours, at_most: LAYER_NS };
        let row = series.row("layers-all", ("CPU of a layer, down and up", "ns"), None);
        report.add(options, "layers", row, Some(goal));
    }
    if options.no_counters || !(depths.contains(&COUNTED)) {
        return Ok(());
    }
    let case = format!("layers-{COUNTED}");
    progress(Progress { done: 1, of: 2, step: "layers: allocations and system calls".into() });
    let counts = count(&case)?;
    let counted =
        [("allocations a Bio", counts.allocations), ("system calls a Bio", counts.syscalls)];
    for (figure, counted) in counted {
        match counted {
            Ok(value) => {
                let series = Series { ours: vec![value], theirs: vec![] };
                let goal = Goal { of: Of::Ours, at_most: NONE };
                let row = series.row(&case, (figure, ""), None);
                report.add(options, "layers", row, Some(goal));
            }
            Err(error) => report.notes.push(format!("{figure} were not counted: {error}")),
        }
    }
    Ok(())
}

fn machine(options: &Options) -> Vec<String> {
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info.lines().find_map(|l| l.strip_prefix("model name")).unwrap_or("");
    let model = model.trim_start_matches(['\t', ' ', ':']);
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = load.split(' ').next().unwrap_or("").to_owned();
    let cores = crate::process_costs::cores().len();
    let mut lines =
        vec![format!("{model}, {cores} cores, Linux {}, load {load} before", kernel.trim())];
    let measures_peers = !matches!(
        options.what,
        Measurement::Layers
            | Measurement::Classes
            | Measurement::Cores
            | Measurement::Luns
            | Measurement::Operate
            | Measurement::Settings
            | Measurement::Seeds
    );
    for &peer in options.peers().iter().filter(|_| measures_peers) {
        if peer == Peer::Bare {
            continue;
        }
        let mut query = Command::new("dpkg-query");
        query.args(["-W", "-f", "${Version}", peer.name()]);
        let version = query.output().ok().filter(|o| o.status.success());
        let version = version.map(|o| String::from_utf8_lossy(&o.stdout).into_owned());
        lines.push(format!("{} {}", peer.name(), version.unwrap_or("(no package)".into())));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Few requests and nothing measured: a case that no longer runs is found without a benchmark.
    #[test]
    fn each_case_of_layers_and_classes_runs() {
        let mut report = Report::default();
        for what in [Measurement::Layers, Measurement::Classes] {
            let options = Options {
                what,
                rounds: 1,
                no_counters: true,
                requests_divisor: 1000,
                ..Options::default()
            };
            run(options, &mut report, &mut |_| {}).expect("every case runs");
        }
        let layers = DEPTHS.iter().map(|depth| format!("layers-{depth}"));
        for case in layers.chain(classes::CASES.iter().map(|case| (*case).to_owned())) {
            assert!(report.rows.iter().any(|row| row.case == case), "{case} has no row");
        }
    }
}
