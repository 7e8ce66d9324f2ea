//! The issuer: one task on core 0 that sends what the queue has, one command at a time.
//!
//! No disk takes several ranges in one request so far, so a command is one DELETE.

use std::rc::Rc;
use std::sync::Arc;

use bio::{Bio, Errno, Op};
use geom::Core;
use space::trim::{Command, Outcome};

use super::desk::Step;
use super::shared::{Shared, Told};

/// Starts it; it ends when the desk is stopped.
pub(super) fn start(shared: &Arc<Shared>) {
    let (own, board) = (shared.clone(), shared.board.clone());
    board.call(
        0,
        Box::new(move |core| {
            let core = core.clone();
            core.reactor().clone().spawn("trim", async move { issue(&core, &own).await });
        }),
    );
}

async fn issue(core: &Rc<Core>, shared: &Shared) {
    loop {
        let now = core.reactor().fresh_now();
        let step = shared.desk.step(now, shared.load());
        if shared.desk.drained() {
            shared.board.tell(shared.geom, Box::new(Told::Drained));
        }
        match step {
            Step::Stop => return,
            Step::Rest => shared.heard().await,
            Step::Until(at) => {
                // Either will do.
                let _ = geom::deadline(core, at.saturating_sub(now), shared.heard()).await;
            }
            Step::Send(command) => {
                let outcome = send(core, shared, &command).await;
                let now = core.reactor().fresh_now();
                shared.desk.ended(command.number, outcome, now, shared.load());
            }
        }
    }
}

async fn send(core: &Rc<Core>, shared: &Shared, command: &Command) -> Outcome {
    for range in &command.ranges {
        let ask = |bio: &mut Bio| {
            (bio.op, bio.offset) = (Op::Delete, range.start);
            bio.length = range.end.saturating_sub(range.start);
        };
        match core.io(shared.below, ask).await.status {
            Ok(()) => {}
            Err(Errno::NotSup) => return Outcome::Unsupported,
            Err(Errno::TimedOut) => return Outcome::Unknown,
            Err(_) => return Outcome::Failed,
        }
    }
    Outcome::Done
}
