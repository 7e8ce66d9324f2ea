//! Users, connected clients, and their permissions.

use std::fmt::Write;
use std::rc::Rc;

use bio::Errno;
use geom::{Error, MessageAnswer};
use schemars::JsonSchema;
use serde::Deserialize;

use super::paths::{self, Contents};
use super::{FsVerb, Switch, about, answers};
use crate::files::{Change, Flags, Kind, New, ROOT, Served};
use crate::ninep::ClientInfo;
use crate::service::Host;
use crate::users::{ADM, Id, NONE, User, Users};
use crate::volume::View;

/// The users file: directory and name.
const FILE: (&str, &str) = ("adm", "users");
const PATH: &str = "/adm/users";
/// The contents of a new user's home: directories, and those in one of them.
const HOME: &[(&str, &[&str])] = &[("", &["bin", "lib", "tmp"]), ("bin", &["rc"])];
/// Largest one, bytes.
const FILE_MAX: u64 = 4 << 20;

/// Reads the users file when a file server opens. A new file server gets a users file, and the user
/// that all Linux clients are, if there is none of that name.
pub(crate) async fn load_users(host: &Rc<Host>) -> Result<(), Error> {
    let fs = host.files()?;
    let (mut users, exists) = match read(&fs, PATH).await? {
        Some(users) => (users, true),
        None => (Users::default(), false),
    };
    let (before, params) = (users.clone(), host.shared.params());
    let everybody = params.everybody.as_deref();
    add_missing(&mut users, everybody)?;
    if !exists || users != before {
        write(host, &fs, &users).await?;
    }
    if let (false, Some(name)) = (exists, everybody) {
        // The user of all Linux clients owns the root of a new file server.
        let owner = Change { uid: users.id(name), ..Change::default() };
        fs.run(|f| f.set(ROOT, &owner)).await.map_err(about("/"))?;
    }
    host.set_users(users);
    Ok(())
}

/// Adds the user that all Linux clients are, if there is none of that name.
fn add_missing(users: &mut Users, everybody: Option<&str>) -> Result<(), Error> {
    let Some(name) = everybody.filter(|name| users.id(name).is_none()) else { return Ok(()) };
    let edited = users.edit(name, None);
    edited.map(drop).map_err(|why| Error::inval(format!("`everybody`: {why}")))
}

/// The same in the users file, when a section that was edited names another user.
pub(crate) async fn add_everybody(host: &Rc<Host>, name: Option<&str>) -> Result<(), Error> {
    let Some(name) = name.filter(|name| host.server.users().id(name).is_none()) else {
        return Ok(());
    };
    let fs = host.files()?;
    let mut users = read(&fs, PATH).await?.unwrap_or_default();
    let before = users.clone();
    add_missing(&mut users, Some(name))?;
    if users != before {
        write(host, &fs, &users).await?;
    }
    host.set_users(users);
    Ok(())
}

async fn read(fs: &Served, path: &str) -> Result<Option<Users>, Error> {
    let found = paths::find(fs, View::Live, path).await.map_err(about(path))?;
    let Some(found) = found else { return Ok(None) };
    let bytes = paths::bytes(fs, &found, FILE_MAX).await.map_err(about(path))?;
    let text = bytes.and_then(|b| String::from_utf8(b).ok());
    let wrong = |why: &str| Error::inval(format!("{path}: {why}"));
    let text = text.ok_or_else(|| wrong("not the text of a users file"))?;
    Users::parse(&text).map(Some).map_err(|why| wrong(&why))
}

async fn write(host: &Rc<Host>, fs: &Served, users: &Users) -> Result<(), Error> {
    let dir = paths::ensure_dir(fs, FILE.0, 0o775).await?;
    let new = New { kind: Kind::File, flags: Flags(0), mode: 0o664, uid: ADM, gid: ADM };
    let text = users.text();
    let from = Contents::Bytes(text.as_bytes());
    paths::replace(host, fs, (dir, FILE.1), new, from).await.map_err(about(PATH))
}

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
    /// The new line of a user.
    Line {
        /// Result in one sentence.
        message: String,
        /// Home directory that was made; absent: none was made.
        #[serde(skip_serializing_if = "Option::is_none")]
        home: Option<String>,
    }
    /// The connected clients.
    Connected {
        /// Result for people.
        text: String,
        /// Each client.
        who: Vec<ClientInfo>,
    }
    /// The fids of the clients.
    Opened {
        /// Result in one sentence.
        message: String,
        /// Fids that are open.
        open: usize,
        /// Fids of all clients.
        fids: usize,
        /// Each client.
        clients: Vec<ClientInfo>,
    }
    /// Whether permissions are ignored.
    Allowed {
        /// Result in one sentence.
        message: String,
        /// True: permissions are not checked.
        allow: bool,
    }
    /// Whether clients can attach.
    Attachable {
        /// Result in one sentence.
        message: &'static str,
        /// True: clients can attach.
        attaches: bool,
    }
}

#[derive(Default, Deserialize, JsonSchema)]
#[serde(default)]
pub(super) struct ListUsers {
    /// Path of another users file from the root, or `default` [default: /adm/users]
    from: Option<String>,
}

impl FsVerb for ListUsers {
    const NAME: &'static str = "users";
    const DOC: &'static str = "Read /adm/users again, and list the users";
    const DETAIL: &'static str = "One line per user: number, name, leader, members. If /adm/users \
         is damaged, another file can be read instead, or `default` for the users of a new file \
         server; both last until the next start or `users`.";
    const POSITIONAL: &'static [&'static str] = &["from"];
    const EXAMPLE: &'static str = "fs users main";
    type Answer = Known;

    async fn run(self, host: &Rc<Host>, _: u64) -> Result<Known, Error> {
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

impl FsVerb for Newuser {
    const NAME: &'static str = "newuser";
    const DOC: &'static str = "Create, change or show a user or group";
    const DETAIL: &'static str = "Without WHAT, a user is created with the directory /usr/NAME, \
         and bin, bin/rc, lib and tmp in it. `:` creates a group; `?` shows its line in \
         /adm/users; `+NAME` and `-NAME` add and remove a member, `=NAME` sets the leader, `=` \
         makes all members leaders, another name renames it.";
    const POSITIONAL: &'static [&'static str] = &["user", "what"];
    const EXAMPLE: &'static str = "fs newuser main rob";
    const WRITES: bool = true;
    type Answer = Line;

    async fn run(self, host: &Rc<Host>, _: u64) -> Result<Line, Error> {
        let fs = host.files()?;
        let before = read(&fs, PATH).await?.unwrap_or_default();
        let mut users = before.clone();
        let name = self.user.as_str();
        let changes = self.what;
        let mut message = String::new();
        if changes.is_empty() {
            message = users.edit(name, None).map_err(Self::param_error)?;
        }
        for what in &changes {
            message = users.edit(name, Some(what)).map_err(Self::param_error)?;
        }
        if users != before {
            write(host, &fs, &users).await?;
        }
        host.set_users(users.clone());
        let mut home = None;
        if let (true, Some(id)) = (changes.is_empty(), users.id(name)) {
            let home_path = create_home(&fs, name, id).await?;
            message += &format!("\n{home_path} is there");
            home = Some(home_path);
        }
        Ok(Line { message, home })
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

#[derive(Default, Deserialize, JsonSchema)]
#[serde(default)]
pub(super) struct Who {
    /// List only these users [default: all users]
    user: Vec<String>,
}

impl FsVerb for Who {
    const NAME: &'static str = "who";
    const DOC: &'static str = "List connected clients";
    const POSITIONAL: &'static [&'static str] = &["user"];
    const EXAMPLE: &'static str = "fs who main";
    type Answer = Connected;

    async fn run(self, host: &Rc<Host>, _: u64) -> Result<Connected, Error> {
        host.files()?;
        let mut all = host.server.clients();
        all.retain(|p| self.user.is_empty() || p.users.iter().any(|u| self.user.contains(u)));
        let mut t = format!(
            "{:>4} {:<24} {:<16} {:>6} {:>6} {:>10}\n",
            "conn", "from", "users", "fids", "open", "requests"
        );
        for p in &all {
            let users = if p.users.is_empty() { "-".to_owned() } else { p.users.join(",") };
            let _ = writeln!(
                t,
                "{:>4} {:<24} {users:<16} {:>6} {:>6} {:>10}",
                p.number, p.peer, p.fids, p.open, p.requests
            );
        }
        if all.is_empty() {
            t = "no clients\n".to_owned();
        }
        Ok(Connected { text: t, who: all })
    }
}

#[derive(Deserialize, JsonSchema)]
pub(super) struct Files {}

impl FsVerb for Files {
    const NAME: &'static str = "files";
    const DOC: &'static str = "Count the files that clients have open";
    const EXAMPLE: &'static str = "fs files main";
    type Answer = Opened;

    async fn run(self, host: &Rc<Host>, _: u64) -> Result<Opened, Error> {
        host.files()?;
        let clients = host.server.clients();
        let (fids, open) = clients.iter().fold((0, 0), |(f, o), p| (f + p.fids, o + p.open));
        let message = format!("{open} open files, {fids} fids of {} clients", clients.len());
        Ok(Opened { message, open, fids, clients })
    }
}

#[derive(Deserialize, JsonSchema)]
pub(super) struct Hangup {
    /// Connection number, as in `fs who`
    connection: String,
}

impl FsVerb for Hangup {
    const NAME: &'static str = "hangup";
    const DOC: &'static str = "Close the connection of a client";
    const DETAIL: &'static str = "The files of the client are closed; data that it wrote is kept. \
         The client can connect again; `fs attaches NAME off` refuses all clients.";
    const POSITIONAL: &'static [&'static str] = &["connection"];
    const EXAMPLE: &'static str = "fs hangup main 3";
    type Answer = MessageAnswer;

    async fn run(self, host: &Rc<Host>, _: u64) -> Result<MessageAnswer, Error> {
        host.files()?;
        let number = self.connection.parse();
        let number: u64 = number.map_err(|_| Self::param_error("a connection is a number"))?;
        match host.server.hang_up(Some(number)) {
            0 => {
                let name = &host.shared.name;
                let what = format!("no connection {number}; `ashlar fs who {name}` lists them");
                Err(Error::new(Errno::NoEnt, what))
            }
            _ => Ok(MessageAnswer::new(format!("connection {number} closed"))),
        }
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

#[derive(Deserialize, JsonSchema)]
pub(super) struct Duallow {
    /// Name of the user; none: end the permission
    user: String,
}

impl FsVerb for Duallow {
    const NAME: &'static str = "duallow";
    const DOC: &'static str = "Allow one user to read and search every directory";
    const DETAIL: &'static str = "Lasts until `fs duallow NAME none`. For programs that count \
         space (du). Permissions for the contents of files do not change.";
    const POSITIONAL: &'static [&'static str] = &["user"];
    const EXAMPLE: &'static str = "fs duallow main sys";
    type Answer = MessageAnswer;

    async fn run(self, host: &Rc<Host>, _: u64) -> Result<MessageAnswer, Error> {
        host.files()?;
        let name = self.user.as_str();
        let id = host.server.users().id(name);
        let id = id.ok_or_else(|| Self::param_error(format!("there is no user {name}")))?;
        host.server.duallow.set((id != NONE).then_some(id));
        host.update_status();
        let text = match id {
            NONE => "no user reads directories without permission".to_owned(),
            _ => format!("{name} may read and search every directory"),
        };
        Ok(MessageAnswer::new(text))
    }
}

#[derive(Default, Deserialize, JsonSchema)]
#[serde(default)]
pub(super) struct Attaches {
    /// New state [default: show the state]
    what: Option<Switch>,
}

impl FsVerb for Attaches {
    const NAME: &'static str = "attaches";
    const DOC: &'static str = "Allow or refuse new attaches, or show the state";
    const DETAIL: &'static str = "The setting lasts until the next start; `noattach` in the \
         configuration makes it permanent. Attached clients stay, and the user none can still \
         attach (`nonone` refuses it). A standby accepts no clients before its main server is \
         down: to take over, use `recover`, `dumpctl on`, and then `attaches on`.";
    const POSITIONAL: &'static [&'static str] = &["what"];
    const EXAMPLE: &'static str = "fs attaches standby off";
    type Answer = Attachable;

    async fn run(self, host: &Rc<Host>, _: u64) -> Result<Attachable, Error> {
        host.files()?;
        if let Some(on) = self.what.map(Switch::is_on) {
            host.server.noattach.set(!on);
            host.update_status();
        }
        let attaches = !host.server.noattach.get();
        let message = if attaches { "clients can attach" } else { "only the user none can attach" };
        Ok(Attachable { message, attaches })
    }
}
