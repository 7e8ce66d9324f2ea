//! Who there is, who is connected, and what they may.

use std::fmt::Write;
use std::rc::Rc;

use bio::Errno;
use geom::{ArgKind, ArgSpec, Error, VerbSpec};
use serde_json::{Value, json};

use super::args::Args;
use super::paths::{self, Contents};
use super::{Command, NAME, about, dumps};
use crate::files::{Change, Flags, Kind, New, ROOT, Served};
use crate::ninep::Presence;
use crate::service::Host;
use crate::users::{ADM, Id, NONE, Users};
use crate::volume::View;

/// The users file: directory and name.
const FILE: (&str, &str) = ("adm", "users");
const PATH: &str = "/adm/users";
/// What a new user finds at home: directories, and those in one of them.
const HOME: &[(&str, &[&str])] = &[("", &["bin", "lib", "tmp"]), ("bin", &["rc"])];
/// Largest one, bytes.
const FILE_MAX: u64 = 4 << 20;

/// Reads who is who when a file server opens; a new one gets a users file, and the user that all
/// Linux clients are, if there is none of that name.
pub(crate) async fn settle(host: &Rc<Host>) -> Result<(), Error> {
    let fs = host.files()?;
    let (mut users, is_there) = match read(&fs, PATH).await? {
        Some(users) => (users, true),
        None => (Users::default(), false),
    };
    let missing = host.shared.params.everybody.as_ref().filter(|name| users.id(name).is_none());
    let before = users.clone();
    if let Some(name) = missing {
        let edited = users.edit(name, None);
        edited.map_err(|why| Error::inval(format!("everybody: {why}")))?;
    }
    if !is_there || users != before {
        write(host, &fs, &users).await?;
    }
    if let (false, Some(name)) = (is_there, &host.shared.params.everybody) {
        // Whoever mounts a new one from Linux begins at its root.
        let owner = Change { uid: users.id(name), ..Change::default() };
        fs.run(|f| f.set(ROOT, &owner)).await.map_err(about("/"))?;
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
    let text = text.ok_or_else(|| wrong("it is no text of a users file"))?;
    Users::parse(&text).map(Some).map_err(|why| wrong(&why))
}

async fn write(host: &Rc<Host>, fs: &Served, users: &Users) -> Result<(), Error> {
    let dir = paths::directory(fs, FILE.0, 0o775).await?;
    let new = New { kind: Kind::File, flags: Flags(0), mode: 0o664, uid: ADM, gid: ADM };
    let text = users.text();
    let from = Contents::Bytes(text.as_bytes());
    paths::replace(host, fs, (dir, FILE.1), new, from).await.map_err(about(PATH))
}

pub(super) const USERS: Command = Command {
    spec: VerbSpec {
        name: "users",
        doc: "Read /adm/users again, and list who there is",
        detail: "One line each: number, name, leader, members. Another file is read in its place, \
                 and `default` stands for the users that a new file server has, both until the \
                 next start or `users`: when /adm/users is spoilt.",
        args: &[
            NAME,
            ArgSpec {
                name: "from",
                short: None,
                kind: ArgKind::Maybe,
                doc: "Another file, from the root, or `default` [default: /adm/users]",
            },
        ],
        example: "fs users main",
        writes: false,
    },
    run: |host, args| {
        Box::pin(async move {
            let fs = host.files()?;
            let users = match args.text("from") {
                None => read(&fs, PATH).await?.unwrap_or_default(),
                Some("default") => Users::default(),
                Some(path) => {
                    let found = read(&fs, path).await?;
                    let none = || Error::new(Errno::NoEnt, format!("{path}: file not found"));
                    found.ok_or_else(none)?
                }
            };
            host.set_users(users.clone());
            let list: Vec<Value> = users
                .iter()
                .map(|u| {
                    let members: Vec<String> = u.members.iter().map(|m| users.name(*m)).collect();
                    json!({
                        "id": u.id as i32, "name": u.name, "members": members,
                        "leader": u.leader.map(|l| users.name(l)),
                    })
                })
                .collect();
            Ok(json!({ "text": users.text(), "users": list }))
        })
    },
};

pub(super) const NEWUSER: Command = Command {
    spec: VerbSpec {
        name: "newuser",
        doc: "Make a user or a group, or change or show one",
        detail: "Without WHAT a user with directories of its own: /usr/NAME, and bin, bin/rc, lib \
                 and tmp in it. `:` makes a group; `?` shows its line of /adm/users; `+NAME` and \
                 `-NAME` take members in and out, `=NAME` says who leads it, `=` that all members \
                 do, another name renames it.",
        args: &[
            NAME,
            ArgSpec {
                name: "user",
                short: None,
                kind: ArgKind::Name,
                doc: "The user's or group's name",
            },
            ArgSpec {
                name: "what",
                short: None,
                kind: ArgKind::Names(0),
                doc: "What to do: `:`, `?`, `+NAME`, `-NAME`, `=NAME`, `=`, or its new name",
            },
        ],
        example: "fs newuser main rob",
        writes: true,
    },
    run: |host, args| Box::pin(newuser(host, args)),
};

async fn newuser(host: Rc<Host>, args: Args) -> Result<Value, Error> {
    let fs = host.files()?;
    let before = read(&fs, PATH).await?.unwrap_or_default();
    let mut users = before.clone();
    let name = args.need("user");
    let changes = args.words("what");
    let wrong = |why: String| args.wrong(&why);
    let mut line = String::new();
    if changes.is_empty() {
        line = users.edit(name, None).map_err(wrong)?;
    }
    for what in &changes {
        line = users.edit(name, Some(what)).map_err(wrong)?;
    }
    if users != before {
        write(&host, &fs, &users).await?;
    }
    host.set_users(users.clone());
    let mut out = json!({ "message": line });
    if let (true, Some(id)) = (changes.is_empty(), users.id(name)) {
        let home = settle_in(&fs, name, id).await?;
        out = json!({ "message": format!("{line}\n{home} is there"), "home": home });
    }
    Ok(out)
}

/// A new user's directories; the path of the first. One that is there already stays as it is.
async fn settle_in(fs: &Served, name: &str, id: Id) -> Result<String, Error> {
    let usr = paths::directory(fs, "usr", 0o775).await?;
    let own = New { kind: Kind::Dir, mode: 0o755, uid: id, gid: id, ..New::default() };
    let home = format!("/usr/{name}");
    let made = fs.run(|f| {
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
    made.await.map_err(about(&home))?;
    Ok(home)
}

pub(super) const WHO: Command = Command {
    spec: VerbSpec {
        name: "who",
        doc: "List who is connected",
        detail: "",
        args: &[
            NAME,
            ArgSpec { name: "user", short: None, kind: ArgKind::Names(0), doc: "Only these users" },
        ],
        example: "fs who main",
        writes: false,
    },
    run: |host, args| Box::pin(async move { who(&host, &args) }),
};

fn shown(host: &Host, args: &Args) -> Result<Vec<Presence>, Error> {
    host.files()?;
    let only = args.words("user");
    let mut all = host.server.who();
    all.retain(|p| only.is_empty() || p.users.iter().any(|u| only.contains(&u.as_str())));
    Ok(all)
}

fn listed(all: &[Presence]) -> Vec<Value> {
    all.iter()
        .map(|p| {
            json!({
                "connection": p.number, "peer": p.peer, "users": p.users, "fids": p.fids,
                "open": p.open, "requests": p.requests, "read": p.read, "written": p.written,
            })
        })
        .collect()
}

fn who(host: &Host, args: &Args) -> Result<Value, Error> {
    let all = shown(host, args)?;
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
        t = "nobody\n".to_owned();
    }
    Ok(json!({ "text": t, "who": listed(&all) }))
}

pub(super) const FILES: Command = Command {
    spec: VerbSpec {
        name: "files",
        doc: "Count the files that clients have open",
        detail: "",
        args: &[NAME],
        example: "fs files main",
        writes: false,
    },
    run: |host, _| {
        Box::pin(async move {
            host.files()?;
            let all = host.server.who();
            let (fids, open) = all.iter().fold((0, 0), |(f, o), p| (f + p.fids, o + p.open));
            let text = format!("{open} open files, {fids} fids of {} clients", all.len());
            Ok(json!({ "message": text, "open": open, "fids": fids, "clients": listed(&all) }))
        })
    },
};

pub(super) const HANGUP: Command = Command {
    spec: VerbSpec {
        name: "hangup",
        doc: "Cut off a client",
        detail: "Its files are closed; what it wrote stays. It may come again: `fs attaches NAME \
                 off` keeps everybody out.",
        args: &[
            NAME,
            ArgSpec {
                name: "connection",
                short: None,
                kind: ArgKind::Name,
                doc: "Its number, as `fs who` shows it",
            },
        ],
        example: "fs hangup main 3",
        writes: false,
    },
    run: |host, args| {
        Box::pin(async move {
            host.files()?;
            let number = args.need("connection").parse();
            let number: u64 = number.map_err(|_| args.wrong("a connection is a number"))?;
            match host.server.hang_up(Some(number)) {
                0 => {
                    let name = &host.shared.name;
                    let what = format!("no connection {number}; `ashlar fs who {name}` lists them");
                    Err(Error::new(Errno::NoEnt, what))
                }
                _ => Ok(json!({ "message": format!("connection {number} is cut off") })),
            }
        })
    },
};

pub(super) const ALLOW: Command = Command {
    spec: VerbSpec {
        name: "allow",
        doc: "Let everybody, or one user, do everything, until `fs disallow`",
        detail: "Permissions are not looked at: for setting up, and for mending what nobody owns.",
        args: &[
            NAME,
            ArgSpec {
                name: "user",
                short: None,
                kind: ArgKind::Names(0),
                doc: "Only this one [default: everybody]",
            },
        ],
        example: "fs allow main",
        writes: false,
    },
    run: |host, args| Box::pin(async move { allow(&host, &args) }),
};

pub(super) const DISALLOW: Command = Command {
    spec: VerbSpec {
        name: "disallow",
        doc: "Look at everybody's permissions again",
        detail: "",
        args: &[NAME],
        example: "fs disallow main",
        writes: false,
    },
    run: |host, _| {
        Box::pin(async move {
            host.files()?;
            host.server.allow.set(false);
            host.server.allow_one.set(None);
            host.look();
            Ok(json!({ "message": "permissions are looked at", "allow": false }))
        })
    },
};

pub(super) const DUALLOW: Command = Command {
    spec: VerbSpec {
        name: "duallow",
        doc: "Let one user read and search every directory, until `fs duallow NAME none`",
        detail: "For whoever counts what there is (du): contents of files stay as they are.",
        args: &[
            NAME,
            ArgSpec { name: "user", short: None, kind: ArgKind::Name, doc: "The user, or none" },
        ],
        example: "fs duallow main sys",
        writes: false,
    },
    run: |host, args| {
        Box::pin(async move {
            host.files()?;
            let name = args.need("user");
            let id = host.server.users().id(name);
            let id = id.ok_or_else(|| args.wrong(&format!("there is no user {name}")))?;
            host.server.duallow.set((id != NONE).then_some(id));
            host.look();
            let text = match id {
                NONE => "nobody reads directories without permission".to_owned(),
                _ => format!("{name} may read and search every directory"),
            };
            Ok(json!({ "message": text }))
        })
    },
};

fn allow(host: &Host, args: &Args) -> Result<Value, Error> {
    host.files()?;
    let text = match args.words("user").as_slice() {
        [] => {
            host.server.allow.set(true);
            "everybody may do everything".to_owned()
        }
        [name] => {
            let id = host.server.users().id(name).filter(|id| *id != NONE);
            let id = id.ok_or_else(|| args.wrong(&format!("there is no user {name}")))?;
            host.server.allow_one.set(Some(id));
            format!("{name} may do everything")
        }
        _ => return Err(args.wrong("one user, or none of them named for everybody")),
    };
    host.look();
    Ok(json!({ "message": text, "allow": true }))
}

pub(super) const ATTACHES: Command = Command {
    spec: VerbSpec {
        name: "attaches",
        doc: "Say whether clients can attach",
        detail: "Until the next start; `noattach` of the configuration says it for good. Those \
                 that are there stay, and the user none can come still (`nonone` keeps it out). A \
                 standby takes no clients before its main server has gone: \
                 `recover`, `dumpctl on`, then this.",
        args: &[NAME, dumps::SWITCH],
        example: "fs attaches standby off",
        writes: false,
    },
    run: |host, args| {
        Box::pin(async move {
            host.files()?;
            if let Some(on) = dumps::on_off(&args)? {
                host.server.noattach.set(!on);
                host.look();
            }
            let on = !host.server.noattach.get();
            let text = if on { "clients can attach" } else { "nobody but none can attach" };
            Ok(json!({ "message": text, "attaches": on }))
        })
    },
};
