//! The `configure` verb: changes the settings of an array.

use geom::{At, Deserialize, Error, JsonSchema, MessageAnswer, Verb};

use super::{ArrayName, with};
use crate::raid::class::RaidClass;
use crate::shared_args::SyncRate;

/// Change the settings of an array
#[derive(Deserialize, JsonSchema)]
pub(super) struct Configure {
    name: ArrayName,
    sync_rate: Option<SyncRate>,
}

impl Verb<RaidClass> for Configure {
    const NAME: &'static str = "configure";
    const EXAMPLE: &'static str = "raid configure --sync-rate 50MiB Intel-1234abcd";
    type Answer = MessageAnswer;

    fn run(self, (_, control): At<'_, RaidClass>) -> Result<MessageAnswer, Error> {
        let on = self.name.0.as_str();
        with(control, on, |g, _, _| {
            if let Some(SyncRate(rate)) = self.sync_rate {
                g.throttle.set_rate(rate);
            }
            Ok(())
        })?;
        Ok(MessageAnswer::new(format!("{on} configured")))
    }
}
