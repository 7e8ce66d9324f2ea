//! The users file of Plan 9 (`/adm/users`), one line a user or group.
//!
//! ```text
//!   id:name:leader:member,member    a negative id is a group; without a leader all members lead
//! ```

use std::collections::BTreeMap;

/// A user's or group's number, as files keep it.
pub type Id = u32;

/// The unnamed user: has only the permissions of others.
pub const NONE: Id = 0;
/// Owns the administration's files.
pub const ADM: Id = -1_i32 as Id;
/// Its members do not have the permissions of others, except for searching directories.
const NOWORLD: Id = 9999;
/// Longest name, bytes.
const NAME_MAX: usize = 143;
/// Users in a file, at most.
pub const USERS_MAX: usize = 10_000;

/// A user or a group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct User {
    /// Its number; as a signed one negative for groups.
    pub id: Id,
    /// Its name.
    pub name: String,
    /// Its leader; `None`: every member leads.
    pub leader: Option<Id>,
    /// Its members beside itself.
    pub members: Vec<Id>,
}

/// All of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Users {
    by_id: BTreeMap<i32, User>,
    by_name: BTreeMap<String, Id>,
}

/// When there is no file.
const BUILT_IN: &str = "-1:adm:adm:\n0:none:adm:\n1:tor:tor:\n10000:sys::\n10001:map:map:\n\
10002:doc::\n10003:upas:upas:\n10004:font::\n10005:bootes:bootes:\n";

impl Default for Users {
    fn default() -> Users {
        let empty = Users { by_id: BTreeMap::new(), by_name: BTreeMap::new() };
        Users::parse(BUILT_IN).unwrap_or(empty)
    }
}

impl Users {
    /// From a users file. Ids are read first, then leaders and members, so a line may name a later
    /// one. The error names the wrong line.
    pub fn parse(text: &str) -> Result<Users, String> {
        let mut users = Users { by_id: BTreeMap::new(), by_name: BTreeMap::new() };
        let mut lines = Vec::new();
        for (n, line) in (1..).zip(text.lines()) {
            let line = line.split('#').next().unwrap_or("").trim();
            if line.is_empty() {
                continue;
            }
            let mut parts = line.split(':').map(str::trim);
            let mut part = || parts.next().unwrap_or("");
            let (id, name, leader, members) = (part(), part(), part(), part());
            let id: i32 = id.parse().map_err(|_| format!("line {n}: {id:?} is not a number"))?;
            if lines.len() == USERS_MAX {
                return Err(format!("line {n}: more than {USERS_MAX} users"));
            }
            legal(name).map_err(|why| format!("line {n}: {why}"))?;
            users.add(id as Id, name).map_err(|why| format!("line {n}: {why}"))?;
            lines.push((n, id, leader, members));
        }
        for (n, id, leader, members) in lines {
            let leader = match leader {
                "" => None,
                // As in the first file servers: an unknown leader is the user itself.
                name => Some(users.id(name).unwrap_or(id as Id)),
            };
            let named = members.split(',').map(str::trim).filter(|m| !m.is_empty());
            let members = named
                .map(|m| users.id(m).ok_or(format!("line {n}: member {m:?} is not a user")))
                .collect::<Result<_, _>>()?;
            if let Some(user) = users.by_id.get_mut(&id) {
                (user.leader, user.members) = (leader, members);
            }
        }
        Ok(users)
    }

    fn add(&mut self, id: Id, name: &str) -> Result<(), String> {
        if self.by_name.contains_key(name) {
            return Err(format!("{name} is listed twice"));
        }
        if let Some(other) = self.by_id.get(&(id as i32)) {
            return Err(format!("{} has the number {} already", other.name, id as i32));
        }
        self.by_name.insert(name.into(), id);
        let user = User { id, name: name.into(), leader: Some(id), members: Vec::new() };
        self.by_id.insert(id as i32, user);
        Ok(())
    }

    /// As a users file.
    pub fn text(&self) -> String {
        let name = |id: Id| self.name(id);
        let mut out = String::new();
        for u in self.by_id.values() {
            let members: Vec<String> = u.members.iter().map(|m| name(*m)).collect();
            let leader = u.leader.map(name).unwrap_or_default();
            out += &format!("{}:{}:{}:{}\n", u.id as i32, u.name, leader, members.join(","));
        }
        out
    }

    /// Number of a name.
    pub fn id(&self, name: &str) -> Option<Id> {
        self.by_name.get(name).copied()
    }

    /// Name of a number; of an unknown one, the number.
    pub fn name(&self, id: Id) -> String {
        self.by_id.get(&(id as i32)).map_or_else(|| (id as i32).to_string(), |u| u.name.clone())
    }

    /// All of them, by number.
    pub fn iter(&self) -> impl Iterator<Item = &User> {
        self.by_id.values()
    }

    /// May sign in by that name.
    pub fn can_attach(&self, name: &str) -> Option<Id> {
        self.id(name).filter(|id| *id as i32 >= 0)
    }

    /// Belongs to a group, or is it.
    pub fn is_in(&self, user: Id, group: Id) -> bool {
        user == group || self.has_member(group, user)
    }

    fn has_member(&self, group: Id, user: Id) -> bool {
        self.by_id.get(&(group as i32)).is_some_and(|g| g.members.contains(&user))
    }

    /// Leads a group.
    pub fn leads(&self, user: Id, group: Id) -> bool {
        if user == NONE {
            return false;
        }
        match self.by_id.get(&(group as i32)).map(|g| g.leader) {
            Some(Some(leader)) => leader == user,
            Some(None) => self.is_in(user, group),
            None => false,
        }
    }

    fn has_no_world(&self, user: Id) -> bool {
        user != NOWORLD && self.is_in(user, NOWORLD)
    }

    /// Permissions as Plan 9 grants them: the owner's bits to the owner, the group's to members,
    /// the bits of others to all. They add up, but POSIX takes the first that fits. `want` is a sum
    /// of 4 (read), 2 (write), 1 (execute).
    pub fn is_permitted(&self, user: Id, file: &Owned, want: u32) -> bool {
        let mut bits = file.mode & 7;
        if self.has_no_world(user) {
            bits &= if file.is_dir { 1 } else { 0 };
        }
        if user != NONE {
            if user == file.uid {
                bits |= file.mode >> 6 & 7;
            }
            if self.is_in(user, file.gid) {
                bits |= file.mode >> 3 & 7;
            }
        }
        bits & want == want
    }

    /// The command `newuser`: `name` makes a user, `name :` a group; `+member`, `-member`,
    /// `=leader`, `=` and another name change one. Answers the line of whom it was about.
    pub fn edit(&mut self, name: &str, what: Option<&str>) -> Result<String, String> {
        match (what, self.id(name)) {
            (Some("?"), Some(_)) => {}
            (None, Some(_)) => return Err(format!("{name} exists already")),
            (None, None) => {
                legal(name)?;
                let next = self.by_id.keys().max().map_or(1, |id| id.saturating_add(1).max(1));
                self.add(next as Id, name)?;
            }
            (Some(":"), None) => {
                legal(name)?;
                let next = self.by_id.keys().min().map_or(-1, |id| id.saturating_sub(1).min(-1));
                self.add(next as Id, name)?;
                self.change(next as Id, |g| g.leader = None);
            }
            (_, None) => return Err(format!("no user {name}")),
            (Some("="), Some(id)) => self.change(id, |u| u.leader = None),
            (Some(what), Some(id)) => self.edit_one(id, what)?,
        }
        let id = self.id(name).or_else(|| what.and_then(|w| self.id(w)));
        let line = |id: Id| {
            let text = self.text();
            let mut lines = text.lines();
            lines.find(|l| l.starts_with(&format!("{}:", id as i32))).map(str::to_owned)
        };
        id.and_then(line).ok_or(format!("no user {name}"))
    }

    fn edit_one(&mut self, id: Id, what: &str) -> Result<(), String> {
        let known = |name: &str| self.id(name).ok_or(format!("no user {name}"));
        match (what.get(..1), what.get(1..)) {
            (Some("+"), Some(m)) => {
                let member = known(m)?;
                if self.has_member(id, member) {
                    return Err(format!("{m} is a member of {} already", self.name(id)));
                }
                self.change(id, |u| u.members.push(member));
            }
            (Some("-"), Some(m)) => {
                let member = known(m)?;
                if !self.has_member(id, member) {
                    return Err(format!("{m} is not a member of {}", self.name(id)));
                }
                self.change(id, |u| u.members.retain(|x| *x != member));
            }
            (Some("="), Some(m)) => {
                let m = known(m)?;
                self.change(id, |u| u.leader = Some(m));
            }
            _ => {
                legal(what)?;
                if self.by_name.contains_key(what) {
                    return Err(format!("{what} exists already"));
                }
                let old = self.name(id);
                self.by_name.remove(&old);
                self.by_name.insert(what.into(), id);
                self.change(id, |u| u.name = what.into());
            }
        }
        Ok(())
    }

    fn change(&mut self, id: Id, f: impl FnOnce(&mut User)) {
        if let Some(user) = self.by_id.get_mut(&(id as i32)) {
            f(user);
        }
    }
}

/// The attributes that decide permissions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Owned {
    /// Permission bits.
    pub mode: u32,
    /// Owner.
    pub uid: Id,
    /// Group.
    pub gid: Id,
    /// A directory.
    pub is_dir: bool,
}

fn legal(name: &str) -> Result<(), String> {
    let bad = |c: char| c.is_control() || " :,#/?+=-".contains(c);
    if name.is_empty() || name.len() > NAME_MAX || name.contains(bad) {
        let what = "up to 143 bytes without blanks and :,#/?+=-";
        return Err(format!("{name:?} is not a valid user name: {what}"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_file_survives_parsing_and_printing() {
        let users = Users::default();
        assert_eq!(Users::parse(&users.text()), Ok(users.clone()));
        assert_eq!((users.id("bootes"), users.can_attach("adm")), (Some(10_005), None));
        assert_eq!(users.name(4711), "4711");
        let text = "# ours\n5:rob:rob:\n\n7:ken:\n20:sys::rob,ken # late\n-3:lab:ken:rob\n";
        let users = Users::parse(text).unwrap();
        assert_eq!(Users::parse(&users.text()), Ok(users.clone()));
        assert!(users.is_in(5, 20) && users.leads(7, 20) && users.leads(7, -3_i32 as Id));
        assert!(!users.leads(5, -3_i32 as Id) && !users.leads(NONE, 20));
        for (text, why) in [
            ("x:rob::", "line 1: \"x\" is not a number"),
            ("1:rob::\n1:ken::", "line 2: rob has the number 1 already"),
            ("1:rob::\n2:rob::", "line 2: rob is listed twice"),
            (
                "1:ro b::",
                "line 1: \"ro b\" is not a valid user name: up to 143 bytes without blanks and \
                 :,#/?+=-",
            ),
            ("1:rob::pike", "line 1: member \"pike\" is not a user"),
        ] {
            assert_eq!(Users::parse(text).unwrap_err(), why);
        }
    }

    #[test]
    fn permission_bits_of_owner_group_and_others_add_up() {
        let users = Users::parse("1:a::\n2:b::\n3:g::a,b\n9999:noworld::b\n").unwrap();
        let file = |mode| Owned { mode, uid: 1, gid: 3, is_dir: false };
        // An owner without bits has those of the group.
        assert!(users.is_permitted(1, &file(0o070), 7) && users.is_permitted(2, &file(0o040), 4));
        assert!(
            !users.is_permitted(2, &file(0o740), 2) && !users.is_permitted(NONE, &file(0o770), 4)
        );
        assert!(
            users.is_permitted(NONE, &file(0o004), 4) && !users.is_permitted(2, &file(0o004), 4)
        );
        let dir = Owned { is_dir: true, ..file(0o005) };
        assert!(users.is_permitted(2, &dir, 1) && !users.is_permitted(2, &dir, 4));
    }

    #[test]
    fn newuser_creates_and_edits_users() {
        let mut users = Users::parse("5:rob:rob:\n").unwrap();
        assert_eq!(users.edit("ken", None), Ok("6:ken:ken:".into()));
        assert_eq!(users.edit("lab", Some(":")), Ok("-1:lab::".into()));
        assert_eq!(users.edit("lab", Some("+ken")), Ok("-1:lab::ken".into()));
        assert_eq!(users.edit("lab", Some("=rob")), Ok("-1:lab:rob:ken".into()));
        assert_eq!(users.edit("ken", Some("dmr")), Ok("6:dmr:dmr:".into()));
        assert_eq!(users.edit("lab", Some("?")), Ok("-1:lab:rob:dmr".into()));
        assert_eq!(users.edit("lab", Some("-dmr")), Ok("-1:lab:rob:".into()));
        assert_eq!(users.edit("lab", Some("=")), Ok("-1:lab::".into()));
        assert!(users.edit("lab", Some("-dmr")).is_err_and(|e| e == "dmr is not a member of lab"));
        assert_eq!(users.edit("lab", Some("+rob")), Ok("-1:lab::rob".into()));
        assert!(users.edit("lab", Some("+rob")).is_err_and(|e| e.contains("already")));
        assert!(users.edit("ken", Some("+rob")).is_err() && users.edit("rob", None).is_err());
    }
}
