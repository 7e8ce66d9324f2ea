//! Snapshots of the screen, and the keys.

use super::*;
use crate::api::{Bucket, Histogram, OpStats, SystemState};
use crate::fake::geom_state;
use crate::top::{csv_head, csv_line, lines, rates};
use ratatui::Terminal;
use ratatui::backend::TestBackend;

fn op(ops: u64, bytes: u64, ns: u64) -> OpStats {
    let buckets = vec![Bucket { upper_ns: ns, count: ops }];
    let latency = Histogram { buckets, sum_ns: ops * ns };
    OpStats { ops, bytes, errors: 0, latency }
}

/// Two states one second apart.
fn two() -> (SystemState, SystemState) {
    let mut before = SystemState::default();
    before.daemon.uptime_ns = 5_000_000_000;
    before.geoms =
        vec![geom_state("disk", "d0", 1, &[], "d0"), geom_state("part", "d0", 2, &["d0"], "d0p1")];
    before.geoms[0].providers[0].stats.read = op(10, 40_960, 1_000);
    let mut now = before.clone();
    now.daemon.uptime_ns = 6_000_000_000;
    let stats = &mut now.geoms[0].providers[0].stats;
    stats.read = op(90, 640 * 1024 + 40_960, 1_200_000);
    stats.read.latency.buckets.insert(0, Bucket { upper_ns: 1_000, count: 10 });
    stats.write = op(32, 4 << 20, 250_000);
    stats.busy_ns = 124_000_000;
    stats.in_flight = 3;
    (before, now)
}

fn screen(rows: &[Rate], view: &View) -> String {
    let mut terminal = Terminal::new(TestBackend::new(90, 5)).expect("a screen in memory");
    terminal.draw(|frame| draw(frame, 1_000_000_000, rows, view)).expect("drawn");
    let buffer = terminal.backend().buffer();
    let line =
        |y: u16| -> String { (0..buffer.area.width).map(|x| buffer[(x, y)].symbol()).collect() };
    (0..buffer.area.height).map(|y| line(y).trim_end().to_owned() + "\n").collect()
}

#[test]
fn screen_matches_the_expected_text() {
    let (before, now) = two();
    let view = View::default();
    let rows = rates(&before, &now, &view);
    assert_eq!(
        screen(&rows, &view),
        "dT: 1.000s\n  \
         L(q)  ops/s    r/s   kBps ms/r p50    p99    w/s   kBps ms/w p50    p99  %busy Name\n     \
         3    112     80    640      1.2    1.2     32   4096    0.250  0.250   12.4 d0\n     \
         0      0      0      0      0.0    0.0      0      0      0.0    0.0    0.0 d0p1\n\
         q quit  s sort (graph)  a active  d deletes  / filter  space pause\n"
    );
    let view = View { active: true, typing: true, filter: "d0".to_owned(), ..view };
    let text = screen(&rates(&before, &now, &view), &view);
    assert!(text.starts_with("dT: 1.000s  filter: d0\n") && !text.contains("d0p1"), "{text}");
    assert!(text.ends_with("filter: d0_   enter: keep  esc: clear\n"), "{text}");
}

#[test]
fn lines_and_csv_show_the_rows_of_the_screen() {
    let (before, now) = two();
    let view = View { filter: "*p1".to_owned(), ..View::default() };
    let rows = rates(&before, &now, &view);
    assert_eq!(rows.iter().map(|r| r.name.as_str()).collect::<Vec<_>>(), ["d0p1"]);
    let text = lines(1_000_000_000, &rows, &view);
    assert!(text.starts_with("dT: 1.000s  filter: *p1\nL(q)  ops/s  r/s  kBps"), "{text}");
    let view = View { deletes: true, ..View::default() };
    let rows = rates(&before, &now, &view);
    let columns = csv_head(&view).split(',').count();
    assert_eq!(csv_line(7, &rows[0], &view).split(',').count(), columns);
    assert!(csv_line(7, &rows[0], &view).starts_with("7,d0,3,112.0,80.0,640.0,"));
}

#[test]
fn rates_after_a_daemon_restart_start_from_zero() {
    let (mut before, now) = two();
    before.daemon.uptime_ns = 900_000_000_000;
    let rows = rates(&before, &now, &View::default());
    assert_eq!(rows[0].ops_per_s.round(), ((90.0 + 32.0) / 6.0_f64).round());
}

#[test]
fn keys_change_the_view() {
    let mut view = View::default();
    let key = |c: char| KeyEvent::new(KeyCode::Char(c), KeyModifiers::NONE);
    for c in ['a', 'd', ' ', 's', '/', 'q'] {
        assert!(!handle_key(key(c), &mut view), "{c}: q is typed into the filter");
    }
    let typed = View {
        filter: "q".to_owned(),
        active: true,
        deletes: true,
        sort: Sort::Name,
        paused: true,
        typing: true,
    };
    assert_eq!(view, typed);
    assert!(!handle_key(KeyEvent::new(KeyCode::Enter, KeyModifiers::NONE), &mut view));
    assert!(handle_key(key('q'), &mut view));
    assert!(handle_key(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL), &mut view));
}
