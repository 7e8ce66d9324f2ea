//! The verb `duallow`: access of one user to every directory.

use geom::{Deserialize, JsonSchema, MessageAnswer, Verb};

use super::{Call, FileServer, Running, param_error};
use crate::users::NONE;

#[derive(Deserialize, JsonSchema)]
pub(super) struct Duallow {
    /// Name of the user; none: end the permission
    user: String,
}

impl Verb<FileServer> for Duallow {
    const NAME: &'static str = "duallow";
    const DOC: &'static str = "Allow one user to read and search every directory";
    const DETAIL: &'static str = "Lasts until `fs duallow NAME none`. For programs that count \
         space (du). Permissions for the contents of files do not change.";
    const POSITIONAL: &'static [&'static str] = &["name", "user"];
    const EXAMPLE: &'static str = "fs duallow main sys";
    type Answer = MessageAnswer;

    fn run(self, Call { host, .. }: Call) -> Running<MessageAnswer> {
        Box::pin(async move {
            host.files()?;
            let name = self.user.as_str();
            let id = host.server.users().id(name);
            let id = id.ok_or_else(|| param_error::<Self>(format!("there is no user {name}")))?;
            host.server.duallow.set((id != NONE).then_some(id));
            host.update_status();
            let text = match id {
                NONE => "no user reads directories without permission".to_owned(),
                _ => format!("{name} may read and search every directory"),
            };
            Ok(MessageAnswer::new(text))
        })
    }
}
