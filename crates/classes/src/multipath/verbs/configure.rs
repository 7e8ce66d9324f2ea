//! `configure`: how paths are used.

use geom::{Deserialize, Error, GraphControl, JsonSchema, MessageAnswer, Verb};

use super::{mode, seconds, work_as};
use crate::multipath::class::MultipathClass;
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
    /// Seconds between path checks, which restore failed paths that answer and detect improved
    /// access states; 0: no checks [initial: 0]
    checker: Option<u64>,
    /// Seconds for which the preferred path (else the first) must be good again before it becomes
    /// active [initial: --no-failback]
    failback: Option<u64>,
    /// Keep the active path until it fails
    no_failback: bool,
    /// Seconds for which requests wait without a path before they fail with ENXIO; 0: no wait
    /// [initial: 0]
    queue: Option<u64>,
}

impl Verb<MultipathClass> for Configure {
    const NAME: &'static str = "configure";
    const EXAMPLE: &'static str = "multipath configure -R data";
    const WRITES: bool = true;
    type Answer = MessageAnswer;

    fn run(self, _: &MultipathClass, control: &mut GraphControl) -> Result<MessageAnswer, Error> {
        let mode = mode(self.active, self.passive, self.read)?;
        let checker = self.checker.map(seconds).transpose()?;
        let failback = self.failback.map(seconds).transpose()?;
        let queue = self.queue.map(seconds).transpose()?;
        work_as(control, &self.name, mode.is_some(), |(was, before)| {
            let options = Options {
                checker_ns: checker.unwrap_or(before.checker_ns),
                queue_ns: queue.unwrap_or(before.queue_ns),
                failback_ns: match self.no_failback {
                    true => None,
                    false => failback.or(before.failback_ns),
                },
            };
            (mode.unwrap_or(was), options)
        })?;
        Ok(MessageAnswer::new(format!("{} configured", self.name)))
    }
}
