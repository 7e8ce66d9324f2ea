//! The verb `printconf`: the configuration in the format of Plan 9.

use std::rc::Rc;

use geom::{Deserialize, Error, JsonSchema};

use super::{FsVerb, Text};
use crate::config::{Filsys, Settings};
use crate::service::Host;

#[derive(Deserialize, JsonSchema)]
pub(super) struct Printconf {}

impl FsVerb for Printconf {
    const NAME: &'static str = "printconf";
    const DOC: &'static str = "Print the configuration in the format of Plan 9 file servers";
    const EXAMPLE: &'static str = "fs printconf main";
    type Answer = Text;

    async fn run(self, host: &Rc<Host>, _: u64) -> Result<Text, Error> {
        let params = host.shared.params();
        let main = Filsys { name: "main".into(), device: host.shared.device.clone() };
        let settings = Settings {
            service: host.shared.name.clone(),
            filsys: vec![main],
            nodump: !host.dumps_on.get(),
            noattach: host.server.noattach.get(),
            nonone: params.nonone,
            noauth: true,
            ..Settings::default()
        };
        Ok(Text { text: settings.to_string() })
    }
}
