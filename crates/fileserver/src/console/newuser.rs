//! The verb `newuser`: an edit of one user or group.

use geom::{Deserialize, Error, JsonSchema, Verb};

use super::paths;
use super::users::{PATH, read, write};
use super::{Call, FileServer, Running, about, answers, param_error};
use crate::files::{Kind, New, Served};
use crate::users::Id;
use crate::volume::View;

/// The contents of a new user's home: directories, and those in one of them.
const HOME: &[(&str, &[&str])] = &[("", &["bin", "lib", "tmp"]), ("bin", &["rc"])];

answers! {
    /// The new line of a user.
    Line {
        /// Result in one sentence.
        message: String,
        /// Home directory that was made; absent: none was made.
        #[serde(skip_serializing_if = "Option::is_none")]
        home: Option<String>,
    }
}

#[derive(Deserialize, JsonSchema)]
pub(super) struct Newuser {
    /// Name of the user or group
    user: String,
    /// Action: `:`, `?`, `+NAME`, `-NAME`, `=NAME`, `=`, or a new name
    #[serde(default)]
    what: Vec<String>,
}

impl Verb<FileServer> for Newuser {
    const NAME: &'static str = "newuser";
    const DOC: &'static str = "Create, change or show a user or group";
    const DETAIL: &'static str = "Without WHAT, a user is created with the directory /usr/NAME, \
         and bin, bin/rc, lib and tmp in it. `:` creates a group; `?` shows its line in \
         /adm/users; `+NAME` and `-NAME` add and remove a member, `=NAME` sets the leader, `=` \
         makes all members leaders, another name renames it.";
    const POSITIONAL: &'static [&'static str] = &["name", "user", "what"];
    const EXAMPLE: &'static str = "fs newuser main rob";
    const WRITES: bool = true;
    type Answer = Line;

    fn run(self, Call { host, .. }: Call) -> Running<Line> {
        Box::pin(async move {
            let fs = host.files()?;
            let before = read(&fs, PATH).await?.unwrap_or_default();
            let mut users = before.clone();
            let name = self.user.as_str();
            let changes = self.what;
            let mut message = String::new();
            if changes.is_empty() {
                message = users.edit(name, None).map_err(param_error::<Self>)?;
            }
            for what in &changes {
                message = users.edit(name, Some(what)).map_err(param_error::<Self>)?;
            }
            if users != before {
                write(&host, &fs, &users).await?;
            }
            host.set_users(users.clone());
            let mut home = None;
            if let (true, Some(id)) = (changes.is_empty(), users.id(name)) {
                let home_path = create_home(&fs, name, id).await?;
                message += &format!("\n{home_path} is there");
                home = Some(home_path);
            }
            Ok(Line { message, home })
        })
    }
}

/// A new user's directories; the path of the first. One that is there already stays as it is.
async fn create_home(fs: &Served, name: &str, id: Id) -> Result<String, Error> {
    let usr = paths::ensure_dir(fs, "usr", 0o775).await?;
    let own = New { kind: Kind::Dir, mode: 0o755, uid: id, gid: id, ..New::default() };
    let home = format!("/usr/{name}");
    let result = fs.run(|f| {
        let mut within = |dir, name: &str| match f.lookup(View::Live, dir, name.as_bytes())? {
            Some(ino) => Ok(ino),
            None => f.create(dir, name.as_bytes(), &own),
        };
        let at = within(usr, name)?;
        for (above, all) in HOME {
            let dir = if above.is_empty() { at } else { within(at, above)? };
            for one in *all {
                within(dir, one)?;
            }
        }
        Ok(())
    });
    result.await.map_err(about(&home))?;
    Ok(home)
}
