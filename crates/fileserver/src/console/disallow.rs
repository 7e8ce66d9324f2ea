//! The verb `disallow`: permission checks for all users again.

use std::rc::Rc;

use geom::{Deserialize, Error, JsonSchema};

use super::FsVerb;
use super::allow::Allowed;
use crate::service::Host;

#[derive(Deserialize, JsonSchema)]
pub(super) struct Disallow {}

impl FsVerb for Disallow {
    const NAME: &'static str = "disallow";
    const DOC: &'static str = "Switch permission checks on again for all users";
    const EXAMPLE: &'static str = "fs disallow main";
    type Answer = Allowed;

    async fn run(self, host: &Rc<Host>, _: u64) -> Result<Allowed, Error> {
        host.files()?;
        host.server.allow.set(false);
        host.server.allow_one.set(None);
        host.update_status();
        Ok(Allowed { message: "permissions are checked".to_owned(), allow: false })
    }
}
