//! `power-cut`: a simulated disk that loses its power.

use geom::{At, Deserialize, Error, JsonSchema, Verb};
use serde::Serialize;

use super::{wake_all, with_model};
use crate::class::DiskClass;

/// Cut and restore the power of a simulated disk
///
/// Data that was not flushed may be lost.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct PowerCut {
    /// Name of the disk
    name: String,
}

/// The requests that ended with an error.
#[derive(Serialize, JsonSchema)]
pub(crate) struct PowerWasCut {
    /// Number of requests that ended with an error.
    ended: usize,
    /// Result in one sentence.
    message: String,
}

impl Verb<DiskClass> for PowerCut {
    const NAME: &'static str = "power-cut";
    const EXAMPLE: &'static str = "disk power-cut d0";
    type Answer = PowerWasCut;

    fn run(self, (_, control): At<'_, DiskClass>) -> Result<PowerWasCut, Error> {
        let (ended, asleep) =
            with_model(control, &self.name, |state| Ok((state.under_way(), state.power_cut())))?;
        wake_all(control, asleep)?;
        let message = format!("the power was cut and restored; requests ended: {ended}");
        Ok(PowerWasCut { ended, message })
    }
}
