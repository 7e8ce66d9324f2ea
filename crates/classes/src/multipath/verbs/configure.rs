//! `configure`: how paths are used.

use geom::{Control, Deserialize, Error, JsonSchema, Said, Verb};

use super::{mode, seconds, work_as};
use crate::multipath::class::MultipathClass;
use crate::multipath::options::Options;

/// Change how paths are used
///
/// All of it is kept on a disk that is labelled: --checker, --failback and --queue behind the
/// record, where FreeBSD does not look; it clears them when it writes the record. Of one made by
/// hand it lasts until the daemon ends, or is in the configuration.
#[derive(Deserialize, JsonSchema)]
pub(super) struct Configure {
    /// Its name, without the class
    name: String,
    /// Active/Active: everything goes by all good paths
    #[schemars(extend("x-short" = "A"))]
    active: bool,
    /// Active/Passive: everything goes by the active path
    #[schemars(extend("x-short" = "P"))]
    passive: bool,
    /// Active/Read: reads go by all good paths, the rest by the active one
    #[schemars(extend("x-short" = "R"))]
    read: bool,
    /// Seconds between looks at failed paths, which restore those that answer, and at those with a
    /// worse access state, which tell when it is better; 0: none, as at first
    checker: Option<u64>,
    /// Seconds for which the preferred path (else the first) must be good again before it is made
    /// active; at first never
    failback: Option<u64>,
    /// The active path stays active until it fails
    no_failback: bool,
    /// Seconds that requests wait when there is no path, before they end with ENXIO; 0: not at all,
    /// as at first
    queue: Option<u64>,
}

impl Verb<MultipathClass> for Configure {
    const NAME: &'static str = "configure";
    const EXAMPLE: &'static str = "multipath configure -R data";
    const WRITES: bool = true;
    type Answer = Said;

    fn run(self, _: &MultipathClass, control: &mut Control) -> Result<Said, Error> {
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
        Ok(Said::new(format!("{} configured", self.name)))
    }
}
