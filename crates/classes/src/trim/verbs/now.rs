//! `now`: sends all queued deletes.

use std::time::Duration;

use geom::{At, Deferred, Deserialize, Error, GraphControl, JsonSchema, Unfinished, Verb};
use serde::Serialize;
use serde_json::json;

use super::queue;
use crate::trim::class::TrimClass;

/// How often `--wait` reports its progress.
const LOOK: Duration = Duration::from_millis(200);

/// Send all queued deletes to the device now, as fstrim does
///
/// All ranges that were deleted and not written again are sent, including short and expired ones.
/// The limits on the device's time and the priority of other requests stay in force. The run
/// continues in the background: `trim list` shows its progress. --end ends it, also for clients
/// that wait for it. Remaining ranges stay in the queue.
#[derive(Deserialize, JsonSchema)]
pub(super) struct Now {
    /// The queue: the name of its provider, such as d0.trim
    name: String,
    /// Wait until the ranges queued now have been sent, and show the progress
    #[schemars(extend("x-short" = "w"))]
    wait: bool,
    /// End the current run
    end: bool,
    /// Repeated request that reports the progress
    #[schemars(extend("x-hidden" = true))]
    again: bool,
}

/// The begin or the end of a run.
#[derive(Serialize, JsonSchema)]
pub(super) struct NowAnswer {
    /// Result in one sentence.
    message: String,
    /// Whether a run was ended; absent: it was not to be ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    ended: Option<bool>,
    /// Ranges that wait or are being sent; absent with --end.
    #[serde(skip_serializing_if = "Option::is_none")]
    ranges: Option<usize>,
    /// Bytes of these ranges; absent with --end.
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<u64>,
}

impl Verb<TrimClass> for Now {
    const NAME: &'static str = "now";
    const EXAMPLE: &'static str = "trim now d0.trim";
    type Answer = Deferred<NowAnswer>;

    /// With `wait` it answers from time to time with its progress, and is called again. Other verbs
    /// are carried out meanwhile, such as one that ends it.
    fn run(self, (_, control): At<'_, TrimClass>) -> Result<Self::Answer, Error> {
        let of = "trim now";
        let Now { name: on, wait, end, again } = self;
        let (_, shared) = queue(control, &on)?;
        if end {
            let was = shared.delete_queue.end_send_all();
            let what = if was { "the full trim has ended" } else { "no full trim was going on" };
            let message = format!("{on}: {what}");
            let ended = NowAnswer { message, ended: Some(was), ranges: None, bytes: None };
            return Deferred::done(of, &ended);
        }
        if !again {
            shared.delete_queue.send_all(control.now_ns());
        }
        let done = |_: &GraphControl| shared.delete_queue.fill().all_sent;
        if wait && !control.wait_until(LOOK, done) {
            let (done, all) = shared.delete_queue.fill().done;
            return Ok(Deferred::unfinished(&Unfinished {
                what: format!("trim {on}"),
                done,
                total: all,
                every_ms: None,
                goes_on: Some(format!("ashlar trim now {on} --end")),
                again: json!({ "name": on, "wait": true, "again": true }),
            }));
        }
        let fill = shared.delete_queue.fill();
        let (ranges, bytes) = (fill.queued.0 + fill.in_flight.0, fill.queued.1 + fill.in_flight.1);
        let seen = if wait { "" } else { "; `trim list` shows how far it is" };
        let message = format!("{on}: {bytes} bytes in {ranges} ranges wait{seen}");
        let (ranges, bytes) = (Some(ranges), Some(bytes));
        Deferred::done(of, &NowAnswer { message, ended: None, ranges, bytes })
    }
}
