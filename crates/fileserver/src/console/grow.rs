//! The verb `grow`: the new space of grown devices.

use geom::{Deserialize, JsonSchema, Verb};

use super::{Call, FileServer, Running, answers, error};
use crate::files::Served;

answers! {
    /// Sizes after the devices grew.
    Grown {
        /// Result in one sentence.
        message: String,
        /// Blocks of the cache device.
        slots: u64,
        /// Blocks more than before.
        came: u64,
        /// Blocks of the WORM.
        worm: u64,
    }
}

#[derive(Deserialize, JsonSchema)]
pub(super) struct Grow {}

impl Verb<FileServer> for Grow {
    const NAME: &'static str = "grow";
    const DOC: &'static str = "Use the new space of grown devices";
    const DETAIL: &'static str = "New space is also noticed within seconds without this command. A \
         cache device can grow to four times its original size; the WORM has the size of its \
         smallest device. The cache device of an image keeps the size in its header: `recover` \
         creates a larger one from the WORM.";
    const EXAMPLE: &'static str = "fs grow main";
    const WRITES: bool = true;
    type Answer = Grown;

    fn run(self, Call { host, .. }: Call) -> Running<Grown> {
        Box::pin(async move {
            let fs = host.files()?;
            let came = fs.grow().await.map_err(|f| error(&f))?;
            host.update_status();
            let kept = fs.cache_keeps_its_size();
            if came == 0
                && let Some(why) = &kept
            {
                return Err(error(why));
            }
            let f = fs.facts();
            let message = match fs {
                Served::Volume(_) => format!(
                    "the cache device has {} blocks, {came} more than before; the WORM has {}",
                    f.slots, f.worm
                ),
                Served::Image(_) => {
                    let kept = kept.map(|why| format!("; {why}")).unwrap_or_default();
                    format!("the WORM has {} blocks, {came} more than before{kept}", f.worm)
                }
            };
            Ok(Grown { message, slots: f.slots, came, worm: f.worm })
        })
    }
}
