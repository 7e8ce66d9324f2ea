//! Issuer of a delete queue: one task on core 0 that sends the queued commands, one at a time.
//!
//! A command is one DELETE of several ranges. If the provider below takes fewer, the dispatcher
//! splits it. The queue knows the limits and makes no command that has to be split.

use std::rc::Rc;
use std::sync::Arc;

use bio::{Bio, Errno, Op};
use extents::trim::{Command, Outcome};
use geom::Core;

use super::queue::Step;
use super::shared::{Message, TrimShared};

/// Starts it; it ends when the delete queue is stopped.
pub(super) fn start(shared: &Arc<TrimShared>) {
    let (own, notifier) = (shared.clone(), shared.notifier.clone());
    notifier.call(
        0,
        Box::new(move |core| {
            let (on, core, name) = (core, core.clone(), own.name.clone());
            on.spawn_for("trim", &name, async move { issue(&core, &own).await });
        }),
    );
}

async fn issue(core: &Rc<Core>, shared: &TrimShared) {
    loop {
        let now = core.reactor().fresh_now();
        let step = shared.delete_queue.step(now, shared.load());
        if shared.delete_queue.drained() {
            shared.notifier.post(shared.geom, Box::new(Message::Drained));
        }
        match step {
            Step::Stop => return,
            Step::Rest => shared.wait_for_wakeup().await,
            Step::Until(at) => {
                // Either will do.
                let _ =
                    geom::deadline(core, at.saturating_sub(now), shared.wait_for_wakeup()).await;
            }
            Step::Send(command) => {
                let outcome = send(core, shared, &command).await;
                let now = core.reactor().fresh_now();
                shared.delete_queue.ended(command.number, outcome, now, shared.load());
            }
        }
    }
}

async fn send(core: &Rc<Core>, shared: &TrimShared, command: &Command) -> Outcome {
    let mut named = false;
    let prepare = |bio: &mut Bio| {
        bio.op = Op::Delete;
        named = bio.delete_ranges(&command.ranges);
    };
    let status = core.io(shared.below, prepare).await.status;
    match status {
        // Q3 guarantees that the ranges are in order. If they were not accepted, nothing was sent.
        _ if !named => Outcome::Failed,
        Ok(()) => Outcome::Done,
        Err(Errno::NotSup) => Outcome::Unsupported,
        Err(Errno::TimedOut) => Outcome::Unknown,
        Err(_) => Outcome::Failed,
    }
}
