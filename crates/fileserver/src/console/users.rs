//! The users file of a file server: read when the server opens, and written with each change.

use std::rc::Rc;

use geom::Error;

use super::about;
use super::paths::{self, Contents};
use crate::files::{Change, Flags, Kind, New, ROOT, Served};
use crate::service::Host;
use crate::users::{ADM, Users};
use crate::volume::View;

/// The users file: directory and name.
const FILE: (&str, &str) = ("adm", "users");

pub(super) const PATH: &str = "/adm/users";

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

pub(super) async fn read(fs: &Served, path: &str) -> Result<Option<Users>, Error> {
    let found = paths::find(fs, View::Live, path).await.map_err(about(path))?;
    let Some(found) = found else { return Ok(None) };
    let bytes = paths::bytes(fs, &found, FILE_MAX).await.map_err(about(path))?;
    let text = bytes.and_then(|b| String::from_utf8(b).ok());
    let wrong = |why: &str| Error::inval(format!("{path}: {why}"));
    let text = text.ok_or_else(|| wrong("not the text of a users file"))?;
    Users::parse(&text).map(Some).map_err(|why| wrong(&why))
}

pub(super) async fn write(host: &Rc<Host>, fs: &Served, users: &Users) -> Result<(), Error> {
    let dir = paths::ensure_dir(fs, FILE.0, 0o775).await?;
    let new = New { kind: Kind::File, flags: Flags(0), mode: 0o664, uid: ADM, gid: ADM };
    let text = users.text();
    let from = Contents::Bytes(text.as_bytes());
    paths::replace(host, fs, (dir, FILE.1), new, from).await.map_err(about(PATH))
}
