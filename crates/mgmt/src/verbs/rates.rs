//! rates: requests and latency of one object in the last hour.

use super::entry::CommandVerb;
use crate::api::{ObjectRates, OpSample, RateSample, Result};
use crate::config::units::{short, short_ns};
use crate::samples::find;
use crate::service::Control;
use crate::text;
use geom::{At, Verb};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Parameters of `rates`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct RatesParams {
    /// Identifier or name of a disk, geom, LUN, session, initiator or core.
    pub object: String,
    /// Also list the samples of the hour.
    #[serde(default)]
    #[schemars(extend("x-short" = "s"))]
    pub samples: bool,
}

/// Answer of `rates`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct RatesAnswer {
    /// Rates of the object. Without `samples`, only the whole hour.
    pub rates: ObjectRates,
}

fn number(value: f64) -> String {
    format!("{value:.1}")
}

/// Latency percentiles as texts; dashes without requests.
fn latency(op: &OpSample) -> [String; 4] {
    let time = |ns: Option<u64>| ns.map_or_else(|| "-".to_owned(), short_ns);
    let all = op.latency;
    [
        time(all.map(|l| l.p50_ns)),
        time(all.map(|l| l.p95_ns)),
        time(all.map(|l| l.p99_ns)),
        time(all.map(|l| l.max_ns)),
    ]
}

/// Columns of [`whole_rows`].
pub(crate) const WHOLE_COLUMNS: [&str; 9] =
    ["request", ">number", ">per second", ">bytes", ">errors", ">p50", ">p95", ">p99", ">max"];

/// The whole kept time, a row for each kind of request.
pub(crate) fn whole_rows(rates: &ObjectRates) -> Vec<Vec<String>> {
    let row = |(kind, op): (&str, &OpSample)| {
        let rate = number(rates.whole.per_second(op.ops));
        let (ops, bytes) = (op.ops.to_string(), short(op.bytes));
        let start = [kind.to_owned(), ops, rate, bytes, op.errors.to_string()];
        start.into_iter().chain(latency(op)).collect()
    };
    rates.whole.kinds().map(row).into()
}

fn sample_rows(rates: &ObjectRates) -> Vec<Vec<String>> {
    let row = |sample: &RateSample| {
        let age = short_ns(rates.at_ns.saturating_sub(sample.at_ns));
        let mut out = vec![age, short_ns(sample.span_ns)];
        for op in [&sample.read, &sample.write] {
            let [p50, _, p99, _] = latency(op);
            let bytes = short(sample.per_second(op.bytes) as u64);
            out.extend([number(sample.per_second(op.ops)), bytes, p50, p99]);
        }
        out.extend([sample.in_flight.to_string(), number(sample.busy_percent())]);
        out
    };
    rates.samples.iter().map(row).collect()
}

impl Verb<Control> for RatesParams {
    const NAME: &'static str = "rates";
    const DOC: &'static str = "Show rates and latency of an object in the last hour";
    const DETAIL: &'static str = "The daemon reads its counters every 10 seconds, less often if a \
        reading takes more than 0.1 s. An identifier is CLASS:NAME, lun:TARGET/GROUP/NUMBER, \
        session:TARGET/INITIATOR/ISID or core:NUMBER, as the page shows it. A plain name means \
        the lowest geom of this name, the geom of this provider, or the first session of this \
        initiator. Partitions of a table are counted together. All LUNs of a unit \
        have the rates of the unit. Latencies are upper bounds of histogram buckets, two to a \
        power of two; that of write includes deletes and flushes, and sessions have none. If many \
        objects are busy, samples are joined to longer ones; the percentiles of the hour stay \
        exact.";
    const POSITIONAL: &'static [&'static str] = &["object"];
    const EXAMPLE: &'static str = "rates d0";
    const MORE_EXAMPLES: &'static [&'static str] = &["rates --samples disk:d0"];
    type Answer = RatesAnswer;

    fn run(self, (control, _): At<'_, Control>) -> Result<RatesAnswer> {
        let object = find(&control.state()?, &self.object)?;
        let mut rates = control.samples().of(&object);
        if !self.samples {
            rates.samples.clear();
        }
        Ok(RatesAnswer { rates })
    }
}

impl CommandVerb<Control> for RatesParams {
    fn table(answer: &RatesAnswer) -> String {
        let rates = &answer.rates;
        let (span, busy) = (short_ns(rates.whole.span_ns), number(rates.whole.busy_percent()));
        let mut out = format!("{}: {span}, {busy}% busy\n", rates.object);
        out.push_str(&text::table(&WHOLE_COLUMNS, &whole_rows(rates)));
        if !rates.samples.is_empty() {
            let columns = [
                ">ago", ">length", ">r/s", ">bytes/s", ">p50", ">p99", ">w/s", ">bytes/s", ">p50",
                ">p99", ">queue", ">%busy",
            ];
            out.push('\n');
            out.push_str(&text::table(&columns, &sample_rows(rates)));
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{Bucket, Stats};

    #[test]
    fn table_has_the_hour_and_then_its_samples() {
        let mut stats = Stats { in_flight: 2, busy_ns: 5_000_000_000, ..Stats::default() };
        (stats.read.ops, stats.read.bytes) = (100, 409_600);
        stats.read.latency.buckets = vec![Bucket { upper_ns: 1_000_000, count: 100 }];
        let one = RateSample::of(60_000_000_000, 10_000_000_000, &stats);
        let whole = RateSample { span_ns: 50_000_000_000, ..one.clone() };
        let (object, at_ns) = ("disk:d0".to_owned(), 70_000_000_000);
        let rates = ObjectRates { object, at_ns, whole, samples: vec![one] };
        let table = RatesParams::table(&RatesAnswer { rates });
        assert!(table.starts_with("disk:d0: 50.0s, 10.0% busy\nrequest  number"), "{table}");
        assert!(table.contains("\nread        100         2.0   400K       0  1.0ms"), "{table}");
        assert!(table.contains("\n10.0s   10.0s  10.0  "), "{table}");
    }
}
