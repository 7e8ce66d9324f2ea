//! `release`: the end of a hang of a simulated disk.

use geom::{At, Deserialize, Error, JsonSchema, Verb};
use serde::Serialize;

use super::{wake_all, with_model};
use crate::class::DiskClass;

/// Release a simulated disk that hangs
#[derive(Deserialize, JsonSchema)]
pub(crate) struct Release {
    /// Name of the disk
    name: String,
}

/// The released requests.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Released {
    /// Number of released requests.
    released: usize,
    /// Result in one sentence.
    message: String,
}

impl Verb<DiskClass> for Release {
    const NAME: &'static str = "release";
    const EXAMPLE: &'static str = "disk release d0";
    type Answer = Released;

    fn run(self, (_, control): At<'_, DiskClass>) -> Result<Released, Error> {
        let asleep = with_model(control, &self.name, |state| Ok(state.release()))?;
        let released = asleep.len();
        wake_all(control, asleep)?;
        Ok(Released { released, message: format!("requests released: {released}") })
    }
}
