//! `now`: sends all queued deletes.

use std::time::Duration;

use geom::{Control, Deserialize, Error, JsonSchema, Verb};
use serde_json::{Value, json};

use super::queue;
use crate::trim::class::TrimClass;

/// How often `--wait` reports its progress.
const LOOK: Duration = Duration::from_millis(200);

/// Send all that was deleted and is not written again, as fstrim does
///
/// Short ranges too, and those that had been given up. The share of the device's time and the care
/// for others stay as they are. It goes on by itself: `trim list` shows how far it is, and --end
/// ends it, also for those who wait for it; what is left waits in the queue as before.
#[derive(Deserialize, JsonSchema)]
pub(super) struct Now {
    /// The queue: the name of its provider, such as d0.trim
    name: String,
    /// Return when the device was told of what is queued now; show how far it is
    #[schemars(extend("x-short" = "w"))]
    wait: bool,
    /// End the one that goes on
    end: bool,
    /// It was asked before, and has said how far it is
    #[schemars(extend("x-hidden" = true))]
    again: bool,
}

impl Verb<TrimClass> for Now {
    const NAME: &'static str = "now";
    const EXAMPLE: &'static str = "trim now d0.trim";
    type Answer = Value;

    /// With `wait` it answers from time to time how far it is, and is asked again: other verbs are
    /// carried out meanwhile, such as one that ends it.
    fn run(self, _: &TrimClass, control: &mut Control) -> Result<Value, Error> {
        let Now { name: on, wait, end, again } = self;
        let (_, shared) = queue(control, &on)?;
        if end {
            let was = shared.desk.end_all();
            let what = if was { "the full trim has ended" } else { "no full trim was going on" };
            return Ok(json!({ "message": format!("{on}: {what}"), "ended": was }));
        }
        if !again {
            shared.desk.all(control.now_ns());
        }
        let done = |_: &Control| shared.desk.fill().told;
        if wait && !control.wait_until(LOOK, done) {
            let (done, all) = shared.desk.fill().done;
            return Ok(json!({ "unfinished": {
                "what": format!("trim {on}"),
                "done": done,
                "total": all,
                "goes_on": format!("ashlar trim now {on} --end"),
                "again": { "name": on, "wait": true, "again": true },
            }}));
        }
        let fill = shared.desk.fill();
        let (ranges, bytes) = (fill.queued.0 + fill.in_flight.0, fill.queued.1 + fill.in_flight.1);
        let seen = if wait { "" } else { "; `trim list` shows how far it is" };
        Ok(json!({
            "message": format!("{on}: {bytes} bytes in {ranges} ranges wait{seen}"),
            "ranges": ranges,
            "bytes": bytes,
        }))
    }
}
