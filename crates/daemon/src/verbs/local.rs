//! Changes of the LUNs that are block devices of this machine: each is ordered from the thread that
//! attaches LUNs, and awaited.

use mgmt::api::{Error, Kind, Result};
use schemars::JsonSchema;
use serde::Serialize;

use crate::attach::{Attachments, LunKey, Ticket};
use crate::control_loop::ControlLoop;
use crate::exports::ATTACH_DEADLINE;

/// Answer of `local attach` and `local detach`.
#[derive(Serialize, JsonSchema)]
pub(super) struct Device {
    /// The block device; empty when there is none any more.
    device: String,
}

/// Orders a change of the LUN that `what` names and waits for its end. `next` is the advice when it
/// fails.
pub(super) fn change(
    control_loop: &mut ControlLoop,
    op: &str,
    (what, target): (&str, Option<&str>),
    order: impl FnOnce(&Attachments, LunKey) -> Ticket,
    next: &str,
) -> Result<Device> {
    let (control, exports) = (&mut control_loop.control, &control_loop.exports);
    let attachments = exports.attachments();
    let key = attachments.find(what, target)?;
    let ticket = order(attachments, key.clone());
    control.wait_until(ATTACH_DEADLINE, |_| ticket.result().is_some());
    let late = || Err("not finished in time; `ashlar list attached` shows the device".to_owned());
    if let Err(why) = ticket.result().unwrap_or_else(late) {
        return Err(Error::new(Kind::Busy, op, why).at(key.to_string()).next(next));
    }
    let mut view = attachments.view().into_iter();
    let found = view.find(|a| a.target == key.target && a.lun == key.lun);
    Ok(Device { device: found.map(|a| a.device).unwrap_or_default() })
}
