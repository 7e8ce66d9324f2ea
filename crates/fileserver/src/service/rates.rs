//! Rates over the last 10, 100 and 1000 seconds, as the first file servers show them.

use std::fmt::Write;

use schemars::JsonSchema;
use serde::Serialize;

/// Seconds after which a past rate counts for a third.
const WINDOWS: [u64; 3] = [10, 100, 1000];

/// Counters since any time; a counter that is smaller than before was restarted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Requests of clients.
    pub requests: u64,
    /// Bytes that they read, and wrote.
    pub read: u64,
    /// See `read`.
    pub written: u64,
    /// Blocks found in memory, and not.
    pub hits: u64,
    /// See `hits`.
    pub misses: u64,
    /// Blocks read ahead.
    pub ahead: u64,
}

impl Counts {
    fn list(&self) -> [u64; 6] {
        [self.requests, self.read, self.written, self.hits, self.misses, self.ahead]
    }
}

/// The rates over one window.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Rate {
    /// Length of the window, s; recent seconds count more.
    pub seconds: u64,
    /// Requests per second.
    pub requests: f64,
    /// Bytes read per second.
    pub read: f64,
    /// Bytes written per second.
    pub written: f64,
    /// Lookups per second of blocks that were found in memory.
    pub hits: f64,
    /// Lookups per second of blocks that were not in memory.
    pub misses: f64,
    /// Part of the lookups that found the block in memory, percent.
    pub hit_percent: f64,
    /// Blocks read ahead per second.
    pub ahead: f64,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Rates {
    last: Option<(u64, [u64; 6])>,
    /// A second, of each window.
    rates: [[f64; 6]; 3],
}

impl Rates {
    /// Takes the counters of a time, ns.
    pub fn update(&mut self, now: u64, counts: &Counts) {
        let counts = counts.list();
        let Some((before, had)) = self.last.replace((now, counts)) else { return };
        let seconds = now.saturating_sub(before) as f64 / 1e9;
        if seconds <= 0.0 {
            return;
        }
        for (window, rates) in WINDOWS.iter().zip(&mut self.rates) {
            let keeps = (-seconds / *window as f64).exp();
            for ((rate, n), had) in rates.iter_mut().zip(counts).zip(had) {
                let came = n.checked_sub(had).unwrap_or(n) as f64 / seconds;
                *rate = *rate * keeps + came * (1.0 - keeps);
            }
        }
    }

    fn hits(rates: &[f64; 6]) -> f64 {
        let looks = rates[3] + rates[4];
        if looks > 0.0 { rates[3] * 100.0 / looks } else { 0.0 }
    }

    /// A line each.
    pub fn text(&self) -> String {
        let mut out = String::new();
        for (window, r) in WINDOWS.iter().zip(&self.rates) {
            let (read, written, hits) = (r[1] / 1e6, r[2] / 1e6, Rates::hits(r));
            let head = format!("{window} s");
            let _ = writeln!(
                out,
                "{head:<9} {:.1} requests/s; {read:.2} MB/s read, {written:.2} written; {hits:.0}% \
                 found in memory; {:.1} blocks/s ahead",
                r[0], r[5]
            );
        }
        out
    }

    /// The same for programs.
    pub fn list(&self) -> Vec<Rate> {
        let one = |(window, rates): (&u64, &[f64; 6])| {
            let [requests, read, written, hits, misses, ahead] = *rates;
            let hit_percent = Rates::hits(rates);
            Rate { seconds: *window, requests, read, written, hits, misses, hit_percent, ahead }
        };
        WINDOWS.iter().zip(&self.rates).map(one).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shown_rates_follow_the_present_load_and_past_load_decays() {
        let (mut rates, mut counts) = (Rates::default(), Counts::default());
        let mut now = 0;
        let mut second = |rates: &mut Rates, requests: u64| {
            now += 1_000_000_000;
            counts.requests += requests;
            (counts.hits, counts.misses) = (counts.hits + 3 * requests, counts.misses + requests);
            rates.update(now, &counts);
        };
        (0..200).for_each(|_| second(&mut rates, 50));
        let report = rates.list();
        let near = |is: f64, wanted: f64| {
            assert!((is - wanted).abs() < wanted / 50.0, "{is} for {wanted}");
        };
        near(report[0].requests, 50.0);
        near(report[1].requests, 50.0 * (1.0 - (-2.0_f64).exp()));
        near(report[2].requests, 50.0 * (1.0 - (-0.2_f64).exp()));
        near(report[0].hit_percent, 75.0);
        (0..30).for_each(|_| second(&mut rates, 0));
        let report = rates.list();
        assert!(report[0].requests < 3.0, "{report:?}");
        assert!(report[1].requests > 30.0, "{report:?}");
        assert_eq!(rates.text().lines().count(), 3);
        // A client that left took its count along.
        rates.update(u64::MAX / 2, &Counts { requests: 1, ..Counts::default() });
        assert!(rates.list()[0].requests < 1.0);
    }
}
