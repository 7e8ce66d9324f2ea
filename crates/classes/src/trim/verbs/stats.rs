//! `stats`: the totals of a queue.

use geom::{At, Deserialize, Error, JsonSchema, Verb};

use super::queue;
use crate::trim::class::TrimClass;
use crate::trim::show::{self, StatsAnswer};

/// Show the statistics of a TRIM queue
#[derive(Deserialize, JsonSchema)]
pub(super) struct Stats {
    /// The queue: the name of its provider, such as d0.trim
    name: String,
    /// Reset the counters afterwards
    #[schemars(extend("x-short" = "r"))]
    reset: bool,
}

impl Verb<TrimClass> for Stats {
    const NAME: &'static str = "stats";
    const EXAMPLE: &'static str = "trim stats d0.trim";
    type Answer = StatsAnswer;

    fn run(self, (_, control): At<'_, TrimClass>) -> Result<StatsAnswer, Error> {
        Ok(show::stats(&queue(control, &self.name)?.1, self.reset))
    }
}
