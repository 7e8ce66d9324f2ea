//! `destroy`: takes a queue away.

use bio::Errno;
use geom::{At, Deserialize, Error, GATE_DEADLINE, JsonSchema, MessageAnswer, Verb};

use super::queue;
use crate::trim::class::TrimClass;
use crate::trim::geom::TrimGeom;

/// Remove a TRIM queue without disturbing its users
///
/// Queued deletes are dropped: use `trim now --wait` first to send them. The command in progress on
/// the device is waited for; if it does not end in 10 seconds, the queue stays.
#[derive(Deserialize, JsonSchema)]
pub(super) struct Destroy {
    /// The queue: the name of its provider, such as d0.trim
    name: String,
}

impl Verb<TrimClass> for Destroy {
    const NAME: &'static str = "destroy";
    const EXAMPLE: &'static str = "trim destroy d0.trim";
    type Answer = MessageAnswer;

    fn run(self, (_, control): At<'_, TrimClass>) -> Result<MessageAnswer, Error> {
        let on = self.name.as_str();
        let (geom, shared) = queue(control, on)?;
        shared.delete_queue.set_open(false);
        let ended =
            control.wait_until(GATE_DEADLINE, |_| shared.delete_queue.fill().in_flight.0 == 0);
        let removed = match ended {
            true => control.remove(geom),
            false => {
                let what =
                    format!("{on}: the device does not answer a delete; nothing was changed");
                Err(Error::new(Errno::TimedOut, what))
            }
        };
        if let Err(e) = removed {
            let _ = control.topology.with(geom, |g: &mut TrimGeom, _| {
                g.shared.delete_queue.set_open(g.open.w > 0);
            });
            return Err(e);
        }
        Ok(MessageAnswer::new(format!("{on} destroyed")))
    }
}
