//! Verbs of simulated disks, a file each: they make a disk misbehave while it is in use.

mod delay;
mod fail;
mod hang;
mod heal;
mod lie;
mod power_cut;
mod release;

use std::any::Any;
use std::time::Duration;

use bio::{Errno, Ticket};
use geom::{Error, GraphControl, Message};
use reactor::SendError;

use crate::class::{DISK_CLASS, DiskGeom};
use crate::model::layer::ModelState;
use crate::model::unit::ModelUnit;

pub(crate) use delay::Delay;
pub(crate) use fail::Fail;
pub(crate) use hang::Hang;
pub(crate) use heal::Heal;
pub(crate) use lie::Lie;
pub(crate) use power_cut::PowerCut;
pub(crate) use release::Release;

/// Longest wait for space in a core's mailbox before it is tried again; after [`SEND_TRIES_MAX`] of
/// them the requests stay asleep and the verb reports that.
const SEND_WAIT: Duration = Duration::from_millis(10);
const SEND_TRIES_MAX: u32 = 100;

/// Runs `act` on the state of a simulated disk.
///
/// # Errors
/// There is no such disk, or it is not simulated; those of `act`.
fn with_model<R>(
    control: &mut GraphControl,
    on: &str,
    act: impl FnOnce(&mut ModelState) -> Result<R, Error>,
) -> Result<R, Error> {
    let geom = geom::named(&control.topology, DISK_CLASS, on)?;
    let done = control.topology.with(geom, |g: &mut DiskGeom, _| {
        let kind = g.kind;
        let unit: &mut dyn Any = g.unit.as_mut();
        let Some(unit) = unit.downcast_mut::<ModelUnit>() else {
            let what = format!(
                "{on}: a disk of kind {kind} is not simulated and has no faults; next: kind = \
                 \"model\""
            );
            return Err(Error::new(Errno::NotSup, what));
        };
        act(&mut unit.state.lock())
    });
    done.unwrap_or_else(|| Err(Error::new(Errno::NxIo, format!("{on} is being removed"))))
}

/// Has the layer called again for requests that hung, and waits until the graph is at rest.
fn wake_all(control: &mut GraphControl, asleep: Vec<(usize, Ticket)>) -> Result<(), Error> {
    for (core, ticket) in asleep {
        wake_on(control, core, ticket)?;
    }
    control.settle()
}

fn wake_on(control: &mut GraphControl, core: usize, ticket: Ticket) -> Result<(), Error> {
    let mut message = Message::Call(Box::new(move |core| core.wake(ticket, 0)));
    for _ in 0..SEND_TRIES_MAX {
        let Some(mailer) = control.core(core) else { return Ok(()) };
        match mailer.send(message) {
            Ok(()) | Err(SendError::Closed(_)) => return Ok(()),
            Err(SendError::Full(m)) => message = m,
        }
        control.wait_until(SEND_WAIT, |_| false);
    }
    Err(Error::new(Errno::TimedOut, format!("core {core} takes no messages; try again")))
}
