//! Requests of the last minute of every object, as sparklines.

use super::tab::Tab;
use crate::api::{Stats, SystemState};
use std::collections::{HashMap, VecDeque};

/// Length of a sparkline, in characters.
pub const POINTS: usize = 12;

/// Least time between two points, in nanoseconds.
const PAUSE_NS: u64 = 5_000_000_000;

/// Tabs that together have every object once.
const TABS: [Tab; 4] = [Tab::All, Tab::Luns, Tab::Initiators, Tab::Cores];

/// Heights of a sparkline, from none to the greatest.
const HEIGHTS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// See the module. A point is a time and a counter: requests, or CPU time of a core.
#[derive(Default)]
pub struct Minute {
    at_ns: Option<u64>,
    points: HashMap<(Tab, String), VecDeque<(u64, u64)>>,
}

fn counter(tab: Tab, stats: &Stats) -> u64 {
    if tab == Tab::Cores { stats.busy_ns } else { stats.ops() }
}

impl Minute {
    /// Adds a point of each object, unless the last one is too new. Vanished objects are dropped.
    pub fn record(&mut self, state: &SystemState) {
        let now_ns = state.daemon.uptime_ns;
        if self.at_ns.is_some_and(|at| now_ns > at && now_ns - at < PAUSE_NS) {
            return;
        }
        let restarted = self.at_ns.is_some_and(|at| now_ns < at);
        if restarted {
            self.points.clear();
        }
        self.at_ns = Some(now_ns);
        for tab in TABS {
            for object in tab.objects(state) {
                let key = (tab, object.name.into_owned());
                let own = self.points.entry(key).or_default();
                own.push_back((now_ns, counter(tab, &object.stats)));
                if own.len() > POINTS + 1 {
                    own.pop_front();
                }
            }
        }
        self.points.retain(|_, own| own.back().is_some_and(|(at, _)| *at == now_ns));
    }

    /// The sparkline of an object: the newest point is at the right.
    pub fn sparkline(&self, tab: Tab, name: &str) -> String {
        let Some(own) = self.points.get(&(tab.widest(), name.to_owned())) else {
            return " ".repeat(POINTS);
        };
        let rate = |((from, before), (to, now)): (&(u64, u64), &(u64, u64))| {
            now.saturating_sub(*before) as f64 / to.saturating_sub(*from).max(1) as f64
        };
        let rates: Vec<f64> = own.iter().zip(own.iter().skip(1)).map(rate).collect();
        let top = rates.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
        let last = (HEIGHTS.len() - 1) as f64;
        // Every load above zero is seen.
        let height = |rate: &f64| HEIGHTS.get((rate / top * last).ceil() as usize).copied();
        let drawn: String = rates.iter().filter_map(height).collect();
        format!("{drawn:>POINTS$}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::geom_state;

    fn state(second: u64, ops: u64) -> SystemState {
        let mut state = SystemState::default();
        state.daemon.uptime_ns = second * 1_000_000_000;
        state.geoms = vec![geom_state("disk", "d0", 1, &[], "d0")];
        state.geoms[0].providers[0].stats.read.ops = ops;
        state
    }

    #[test]
    fn sparkline_has_the_rates_of_the_last_minute() {
        let mut minute = Minute::default();
        for (second, ops) in [(10, 0), (11, 1), (15, 80), (20, 80), (25, 81), (35, 161)] {
            minute.record(&state(second, ops));
        }
        assert_eq!(minute.sparkline(Tab::Disks, "d0"), "        █ ▁▄", "16, 0, 0.2 and 8");
        assert_eq!(minute.sparkline(Tab::Luns, "d0"), " ".repeat(POINTS));
        for second in 8..28 {
            minute.record(&state(second * 5, 161));
        }
        assert_eq!(minute.sparkline(Tab::All, "d0"), " ".repeat(POINTS), "a minute later");
    }

    #[test]
    fn vanished_objects_and_a_restart_drop_points() {
        let mut minute = Minute::default();
        minute.record(&state(10, 5));
        minute.record(&SystemState::default());
        assert!(minute.points.is_empty());
        minute.record(&state(5, 9));
        minute.record(&state(10, 19));
        assert_eq!(minute.sparkline(Tab::All, "d0").trim(), "█");
    }
}
