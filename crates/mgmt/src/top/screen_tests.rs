//! Snapshots of the screen with each tab, and the keys.

use super::*;
use crate::api::{Bucket, CoreState, Histogram, OpStats, SessionState, SystemState, TargetState};
use crate::fake::geom_state;
use crate::top::{csv_head, csv_line, json_line, lines, rates};
use crate::verbs::top::Sort;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

const HEAD: &str = "  L(q)  ops/s    r/s   kBps ms/r p50    p99    w/s   kBps \
    ms/w p50    p99  %busy last minute  Name";
const D0: &str = "     3    112     80    640      1.2    1.2     32   \
    4096    0.250  0.250   12.4            █ d0";
const D0P1: &str = "     0      0      0      0      0.0    0.0      0      \
    0      0.0    0.0    0.0              d0p1";
const UNIT: &str = "     1      7      0      0      0.0    0.0      7     \
    28    0.500  0.500    0.0            █ d0p1";
const INITIATOR: &str = "     2     64     64    256      0.0    0.0      0      \
    0      0.0    0.0    0.0            █ iqn.h:one 10.0.0.1 iqn.a:t";
const CORE0: &str = "     0      0      0      0      0.0    0.0      0      \
    0      0.0    0.0   25.0            █ core:0";
const CORE1: &str = "     0      0      0      0      0.0    0.0      0      \
    0      0.0    0.0    0.0              core:1";
const KEY_LINE: &str = "? keys  tab  s sort (graph)  r reverse  c columns  / filter  q quit";

fn op(ops: u64, bytes: u64, ns: u64) -> OpStats {
    let buckets = vec![Bucket { upper_ns: ns, count: ops }];
    let latency = Histogram { buckets, sum_ns: ops * ns };
    OpStats { ops, bytes, errors: 0, latency }
}

/// Two states one second apart.
fn two() -> (SystemState, SystemState) {
    let mut before = SystemState::default();
    before.daemon.uptime_ns = 5_000_000_000;
    before.geoms = vec![
        geom_state("disk", "d0", 1, &[], "d0"),
        geom_state("part", "d0", 2, &["d0"], "d0p1"),
        geom_state("lun", "d0p1", 3, &["d0p1"], "d0p1.lun"),
    ];
    before.geoms[2].providers.clear();
    before.geoms[0].providers[0].stats.read = op(10, 40_960, 1_000);
    let session = |port: u64| SessionState {
        initiator: "iqn.h:one".to_owned(),
        address: format!("10.0.0.1:{port}"),
        ..SessionState::default()
    };
    let (name, sessions) = ("iqn.a:t".to_owned(), vec![session(4000), session(4001)]);
    before.targets = vec![TargetState { name, sessions, ..TargetState::default() }];
    before.daemon.cores = vec![CoreState::default(), CoreState::default()];
    let mut now = before.clone();
    now.daemon.uptime_ns = 6_000_000_000;
    let stats = &mut now.geoms[0].providers[0].stats;
    stats.read = op(90, 640 * 1024 + 40_960, 1_200_000);
    stats.read.latency.buckets.insert(0, Bucket { upper_ns: 1_000, count: 10 });
    stats.write = op(32, 4 << 20, 250_000);
    stats.busy_ns = 124_000_000;
    stats.in_flight = 3;
    let unit = &mut now.geoms[2].consumers[0].stats;
    unit.write = op(7, 28 << 10, 500_000);
    unit.in_flight = 1;
    for session in &mut now.targets[0].sessions {
        (session.stats.read.ops, session.stats.read.bytes) = (32, 128 << 10);
        session.stats.in_flight = 1;
    }
    now.daemon.cores[0].busy_ns = 250_000_000;
    (before, now)
}

/// The lines of a screen of a view, without empty ones.
fn screen(view: &View) -> Vec<String> {
    let (before, now) = two();
    let mut minute = Minute::default();
    minute.record(&before);
    let mut later = now.clone();
    later.daemon.uptime_ns = 10_000_000_000;
    minute.record(&later);
    let rows = rates(&before, &now, view);
    let mut terminal = Terminal::new(TestBackend::new(130, 21)).expect("a screen in memory");
    let rows = (rows.as_slice(), &minute);
    let drawn = terminal.draw(|frame| draw(frame, 1_000_000_000, rows, view));
    drawn.expect("drawn");
    let buffer = terminal.backend().buffer();
    let line =
        |y: u16| -> String { (0..buffer.area.width).map(|x| buffer[(x, y)].symbol()).collect() };
    let all = (0..buffer.area.height).map(|y| line(y).trim_end().to_owned());
    all.filter(|line| !line.is_empty()).collect()
}

#[test]
fn each_tab_has_its_objects() {
    for (tab, first, rows) in [
        (Tab::All, "[1 all]  2 disks   3 layers   4 LUNs   5 initiators   6 cores", vec![D0, D0P1]),
        (Tab::Disks, " 1 all  [2 disks]  3 layers   4 LUNs   5 initiators   6 cores", vec![D0]),
        (Tab::Layers, " 1 all   2 disks  [3 layers]  4 LUNs   5 initiators   6 cores", vec![D0P1]),
        (Tab::Luns, " 1 all   2 disks   3 layers  [4 LUNs]  5 initiators   6 cores", vec![UNIT]),
        (
            Tab::Initiators,
            " 1 all   2 disks   3 layers   4 LUNs  [5 initiators]  6 cores",
            vec![INITIATOR],
        ),
        (
            Tab::Cores,
            " 1 all   2 disks   3 layers   4 LUNs   5 initiators  [6 cores]",
            vec![CORE0, CORE1],
        ),
    ] {
        let view = View { tab, ..View::default() };
        let expected = [first, "dT: 1.000s", HEAD].into_iter().chain(rows).chain([KEY_LINE]);
        assert_eq!(screen(&view), expected.collect::<Vec<_>>(), "{tab:?}");
    }
}

#[test]
fn filter_order_and_busy_rows_are_shown() {
    let (active, mode) = (true, Mode::Filter);
    let view = View { active, mode, filter: "d0".to_owned(), ..View::default() };
    let text = screen(&view);
    assert_eq!(text[1], "dT: 1.000s  filter: d0");
    assert_eq!(text[3..], [D0, "filter: d0_   enter: keep  esc: clear"], "d0p1 is idle");
    let (sort, reverse, paused) = (Sort::Ops, true, true);
    let text = screen(&View { sort, reverse, paused, ..View::default() });
    assert_eq!(text[3..5], [D0P1, D0]);
    assert!(text[5].contains("  s sort (ops, reversed)  ") && text[5].ends_with("  PAUSED"));
}

#[test]
fn columns_are_chosen_in_a_list() {
    let mut view = View::default();
    for code in [KeyCode::Char('c'), KeyCode::Down, KeyCode::Char(' ')] {
        assert!(!handle_key(KeyEvent::new(code, KeyModifiers::NONE), &mut view));
    }
    assert!(!view.has(Column::Ops) && view.has(Column::Queue));
    let text = screen(&view);
    assert!(text[2].starts_with("\u{250c}columns\u{2500}"), "{text:?}");
    assert!(text[3].contains(" [x] L(q)         requests in flight"), "{text:?}");
    assert!(text[4].contains(">[ ] ops/s        requests a second"), "{text:?}");
    assert!(text.last().is_some_and(|line| line.starts_with("up, down: select")), "{text:?}");
    // The last columns are in sight when the cursor is there.
    view.mode = Mode::Columns(Column::ALL.len() - 1);
    assert!(screen(&view).iter().any(|line| line.contains(">[x] last minute")));
    view.mode = Mode::Table;
    assert!(!screen(&view)[2].contains("ops/s"), "the column is hidden");
}

#[test]
fn list_of_keys_names_each_key() {
    let view = View { mode: Mode::Help, ..View::default() };
    let text = screen(&view).join("\n");
    for (key, effect) in KEYS {
        assert!(text.contains(&format!("{key:<16} {effect}")), "{key}\n{text}");
    }
}

#[test]
fn lines_csv_and_json_show_the_rows_of_the_screen() {
    let (before, now) = two();
    let view = View { filter: "*p1".to_owned(), ..View::default() };
    let rows = rates(&before, &now, &view);
    assert_eq!(rows.iter().map(|r| r.name.as_str()).collect::<Vec<_>>(), ["d0p1"]);
    let text = lines(1_000_000_000, &rows, &view);
    assert!(text.starts_with("dT: 1.000s  filter: *p1\nL(q)  ops/s  r/s  kBps"), "{text}");
    assert!(!text.contains("minute"), "{text}");
    let mut view = View::default();
    view.set_shown(Column::is_delete, true);
    let rows = rates(&before, &now, &view);
    let columns = csv_head(&view).split(',').count();
    assert_eq!(csv_line(7, &rows[0], &view).split(',').count(), columns);
    assert!(csv_line(7, &rows[0], &view).starts_with("7,d0,3,112.0,80.0,640.0,"));
    let line = json_line(7, 1_000_000_000, &rows);
    assert_eq!(line.lines().count(), 1);
    let value: serde_json::Value = serde_json::from_str(&line).expect("JSON");
    assert_eq!((&value["unix_s"], &value["rates"][0]["name"]), (&7.into(), &"d0".into()));
}

#[test]
fn rates_after_a_daemon_restart_start_from_zero() {
    let (mut before, now) = two();
    before.daemon.uptime_ns = 900_000_000_000;
    let rows = rates(&before, &now, &View::default());
    assert_eq!(rows[0].ops_per_s.round(), ((90.0 + 32.0) / 6.0_f64).round());
}

#[test]
fn initiator_whose_session_ended_has_no_negative_rate() {
    let (_, before) = two();
    let mut now = before.clone();
    now.daemon.uptime_ns = 7_000_000_000;
    now.targets[0].sessions.pop();
    let view = View { tab: Tab::Initiators, ..View::default() };
    let rows = rates(&before, &now, &view);
    assert_eq!((rows[0].queue, rows[0].ops_per_s), (1, 0.0));
}

#[test]
fn keys_change_the_view() {
    let mut view = View::default();
    let key = |code| KeyEvent::new(code, KeyModifiers::NONE);
    let letter = |c: char| key(KeyCode::Char(c));
    for c in ['a', 'd', ' ', 's', 'r', '/', 'q'] {
        assert!(!handle_key(letter(c), &mut view), "{c}: q is typed into the filter");
    }
    let typed = View {
        filter: "q".to_owned(),
        active: true,
        columns: Column::ALL.to_vec(),
        sort: Sort::Name,
        reverse: true,
        paused: true,
        mode: Mode::Filter,
        tab: Tab::All,
    };
    assert_eq!(view, typed);
    for code in [KeyCode::Enter, KeyCode::Tab, KeyCode::Tab, KeyCode::BackTab] {
        assert!(!handle_key(key(code), &mut view));
    }
    assert_eq!((view.tab, view.mode), (Tab::Disks, Mode::Table));
    for (c, tab) in [('6', Tab::Cores), ('4', Tab::Luns), ('1', Tab::All)] {
        assert!(!handle_key(letter(c), &mut view));
        assert_eq!(view.tab, tab);
    }
    handle_key(key(KeyCode::Left), &mut view);
    assert_eq!(view.tab, Tab::Cores, "the first tab follows the last one");
    for _ in 0..2 {
        handle_key(letter('S'), &mut view);
    }
    assert_eq!(view.sort, Sort::Busy, "the last order precedes the first one");
    assert!(!handle_key(letter('?'), &mut view) && view.mode == Mode::Help);
    assert!(!handle_key(letter('q'), &mut view) && view.mode == Mode::Table);
    assert!(!handle_key(key(KeyCode::Esc), &mut view), "the filter is cleared first");
    assert!(view.filter.is_empty() && handle_key(key(KeyCode::Esc), &mut view));
    assert!(handle_key(letter('q'), &mut view));
    assert!(handle_key(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL), &mut view));
}
