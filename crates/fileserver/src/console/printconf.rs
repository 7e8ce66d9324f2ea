//! The verb `printconf`: the configuration in the format of Plan 9.

use geom::{Deserialize, JsonSchema, Verb};

use super::{Call, FileServer, Running, Text};
use crate::config::{Filsys, Settings};

#[derive(Deserialize, JsonSchema)]
pub(super) struct Printconf {}

impl Verb<FileServer> for Printconf {
    const NAME: &'static str = "printconf";
    const DOC: &'static str = "Print the configuration in the format of Plan 9 file servers";
    const EXAMPLE: &'static str = "fs printconf main";
    type Answer = Text;

    fn run(self, Call { host, .. }: Call) -> Running<Text> {
        Box::pin(async move {
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
        })
    }
}
