//! The verb `disallow`: permission checks for all users again.

use geom::{Deserialize, JsonSchema, Verb};

use super::allow::Allowed;
use super::{Call, FileServer, Running};

#[derive(Deserialize, JsonSchema)]
pub(super) struct Disallow {}

impl Verb<FileServer> for Disallow {
    const NAME: &'static str = "disallow";
    const DOC: &'static str = "Switch permission checks on again for all users";
    const EXAMPLE: &'static str = "fs disallow main";
    type Answer = Allowed;

    fn run(self, Call { host, .. }: Call) -> Running<Allowed> {
        Box::pin(async move {
            host.files()?;
            host.server.allow.set(false);
            host.server.allow_one.set(None);
            host.update_status();
            Ok(Allowed { message: "permissions are checked".to_owned(), allow: false })
        })
    }
}
