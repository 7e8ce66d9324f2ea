//! The verb `users`: the users file, read again and listed.

use bio::Errno;
use geom::{Deserialize, Error, JsonSchema, Verb};

use super::users::{PATH, read};
use super::{Call, FileServer, Running, answers};
use crate::users::{User, Users};

answers! {
    /// One user or group.
    OneUser {
        /// Number of the user.
        id: i32,
        /// Name of the user.
        name: String,
        /// Members of the group.
        members: Vec<String>,
        /// Leader of the group; null: all members are leaders.
        leader: Option<String>,
    }
    /// The users of the file server.
    Known {
        /// Result for people.
        text: String,
        /// Each user.
        users: Vec<OneUser>,
    }
}

#[derive(Default, Deserialize, JsonSchema)]
#[serde(default)]
pub(super) struct ListUsers {
    /// Path of another users file from the root, or `default` [default: /adm/users]
    from: Option<String>,
}

impl Verb<FileServer> for ListUsers {
    const NAME: &'static str = "users";
    const DOC: &'static str = "Read /adm/users again, and list the users";
    const DETAIL: &'static str = "One line per user: number, name, leader, members. If /adm/users \
         is damaged, another file can be read instead, or `default` for the users of a new file \
         server; both last until the next start or `users`.";
    const POSITIONAL: &'static [&'static str] = &["name", "from"];
    const EXAMPLE: &'static str = "fs users main";
    type Answer = Known;

    fn run(self, Call { host, .. }: Call) -> Running<Known> {
        Box::pin(async move {
            let fs = host.files()?;
            let users = match self.from.as_deref() {
                None => read(&fs, PATH).await?.unwrap_or_default(),
                Some("default") => Users::default(),
                Some(path) => {
                    let found = read(&fs, path).await?;
                    let none = || Error::new(Errno::NoEnt, format!("{path}: file not found"));
                    found.ok_or_else(none)?
                }
            };
            host.set_users(users.clone());
            let one = |u: &User| OneUser {
                id: u.id as i32,
                name: u.name.clone(),
                members: u.members.iter().map(|m| users.name(*m)).collect(),
                leader: u.leader.map(|l| users.name(l)),
            };
            Ok(Known { text: users.text(), users: users.iter().map(one).collect() })
        })
    }
}
