//! The verb `allow`: an end of permission checks for one user or for all.

use std::rc::Rc;

use geom::{Deserialize, Error, JsonSchema};

use super::{FsVerb, answers};
use crate::service::Host;
use crate::users::NONE;

answers! {
    /// Whether permissions are ignored.
    Allowed {
        /// Result in one sentence.
        message: String,
        /// True: permissions are not checked.
        allow: bool,
    }
}

#[derive(Default, Deserialize, JsonSchema)]
#[serde(default)]
pub(super) struct Allow {
    /// Only this user [default: all users]
    user: Vec<String>,
}

impl FsVerb for Allow {
    const NAME: &'static str = "allow";
    const DOC: &'static str = "Switch permission checks off for one user or all users";
    const DETAIL: &'static str =
        "Lasts until `fs disallow`. For setup, and for repair of files without an owner.";
    const POSITIONAL: &'static [&'static str] = &["user"];
    const EXAMPLE: &'static str = "fs allow main";
    type Answer = Allowed;

    async fn run(self, host: &Rc<Host>, _: u64) -> Result<Allowed, Error> {
        host.files()?;
        let message = match self.user.as_slice() {
            [] => {
                host.server.allow.set(true);
                "all users may do everything".to_owned()
            }
            [name] => {
                let id = host.server.users().id(name).filter(|id| *id != NONE);
                let id = id.ok_or_else(|| Self::param_error(format!("there is no user {name}")))?;
                host.server.allow_one.set(Some(id));
                format!("{name} may do everything")
            }
            _ => return Err(Self::param_error("give one user, or no name for all users")),
        };
        host.update_status();
        Ok(Allowed { message, allow: true })
    }
}
