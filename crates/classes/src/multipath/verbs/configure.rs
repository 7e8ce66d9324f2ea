//! `configure`: how paths are used.

use geom::{At, Change, Deserialize, Error, JsonSchema, MessageAnswer, Verb};

use super::{mode, work_as};
use crate::multipath::class::{MultipathClass, MultipathParams, declared};
use crate::multipath::options::Options;

/// Change the use of the paths
///
/// The settings are stored on a labelled disk: --checker, --failback and --queue after the FreeBSD
/// fields of the label. FreeBSD ignores them, and clears them when it writes the label. Without a
/// label the settings last until the daemon stops, unless they are in the configuration.
#[derive(Deserialize, JsonSchema)]
pub(super) struct Configure {
    /// Name of the multipath geom, without the class
    name: String,
    /// Active/Active: all requests use all good paths
    #[schemars(extend("x-short" = "A"))]
    active: bool,
    /// Active/Passive: all requests use the active path
    #[schemars(extend("x-short" = "P"))]
    passive: bool,
    /// Active/Read: reads use all good paths, other requests the active path
    #[schemars(extend("x-short" = "R"))]
    read: bool,
    #[serde(flatten)]
    change: Change<MultipathParams>,
    /// Keep the active path until it fails
    no_failback: bool,
}

impl Verb<MultipathClass> for Configure {
    const NAME: &'static str = "configure";
    const EXAMPLE: &'static str = "multipath configure -R data";
    const WRITES: bool = true;
    type Answer = MessageAnswer;

    fn run(self, (_, control): At<'_, MultipathClass>) -> Result<MessageAnswer, Error> {
        let mode = mode(self.active, self.passive, self.read)?;
        work_as(control, &self.name, mode.is_some(), |(was, before)| {
            let now = MultipathParams::of(mode.unwrap_or(was), before);
            let of = format!("multipath {}", self.name);
            let (mode, options) = declared(&self.change.over(&of, &now)?)?;
            let failback_ns = options.failback_ns.filter(|_| !self.no_failback);
            Ok((mode, Options { failback_ns, ..options }))
        })?;
        Ok(MessageAnswer::new(format!("{} configured", self.name)))
    }
}
