//! The verb `allow`: an end of permission checks for one user or for all.

use geom::{Deserialize, JsonSchema, Verb};

use super::{Call, FileServer, Running, answers, param_error};
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

impl Verb<FileServer> for Allow {
    const NAME: &'static str = "allow";
    const DOC: &'static str = "Switch permission checks off for one user or all users";
    const DETAIL: &'static str =
        "Lasts until `fs disallow`. For setup, and for repair of files without an owner.";
    const POSITIONAL: &'static [&'static str] = &["name", "user"];
    const EXAMPLE: &'static str = "fs allow main";
    type Answer = Allowed;

    fn run(self, Call { host, .. }: Call) -> Running<Allowed> {
        Box::pin(async move {
            host.files()?;
            let message = match self.user.as_slice() {
                [] => {
                    host.server.allow.set(true);
                    "all users may do everything".to_owned()
                }
                [name] => {
                    let id = host.server.users().id(name).filter(|id| *id != NONE);
                    let unknown = || param_error::<Self>(format!("there is no user {name}"));
                    let id = id.ok_or_else(unknown)?;
                    host.server.allow_one.set(Some(id));
                    format!("{name} may do everything")
                }
                _ => return Err(param_error::<Self>("give one user, or no name for all users")),
            };
            host.update_status();
            Ok(Allowed { message, allow: true })
        })
    }
}
