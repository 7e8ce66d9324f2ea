//! Twstat: all requested changes are made, or none.

use reactor::clock::S;
use wire::ninep::{R, Stat, mode, open};

use super::node::{Facts, Node, split_mode};
use super::refusal::Refusal;
use super::session::{ClientSession, Reply};
use crate::fault::{Fault, Stop};
use crate::files::{Change, Files};
use crate::users::Id;
use crate::volume::View;

/// The author of a change.
#[derive(Clone, Copy)]
struct Author {
    user: Id,
    /// The fid allows a change of length in any mode of the file.
    may_truncate: bool,
}

impl ClientSession {
    pub(super) async fn wstat(&self, fid: u32, stat: &Stat<'_>) -> Result<Reply, Refusal> {
        let (export, node, user, access) = self
            .fid(fid, |f| (f.export.clone(), f.node, f.user, f.open.as_ref().map(|o| o.access)))?;
        // POSIX: ftruncate checks the open mode of the descriptor, not the present mode of the
        // file.
        let is_open = matches!(access, Some(open::WRITE | open::RDWR));
        let by = Author { user, may_truncate: is_open && self.is_lenient() };
        let muid = if self.is_lenient() { "" } else { stat.muid };
        if (Stat { muid, ..*stat }) == Stat::KEEP {
            // It requests stable storage.
            export.files.sync().await?;
            return Ok(Reply::R(R::Wstat));
        }
        let ino = node.live()?;
        export.files.run(|f| self.change(f, ino, by, stat)).await??;
        Ok(Reply::R(R::Wstat))
    }

    fn change(
        &self,
        f: &mut Files<'_, '_>,
        ino: u64,
        by: Author,
        stat: &Stat<'_>,
    ) -> Result<Result<(), Refusal>, Stop> {
        let user = by.user;
        let facts = Node::File(View::Live, ino).facts(f)?;
        let mut change = Change { by: user, ..Change::default() };
        if let Err(why) = self.attributes(&facts, by, stat, &mut change) {
            return Ok(Err(why));
        }
        if !stat.name.is_empty() && stat.name.as_bytes() != facts.name {
            let (dir, name) = match self.writable_parent(f, ino, user)? {
                Ok(place) => place,
                Err(why) => return Ok(Err(why)),
            };
            if stat.name.chars().any(char::is_control) && !self.is_lenient() {
                return Ok(Err(Fault::BadName("it has control characters").into()));
            }
            f.rename(dir, &name, dir, stat.name.as_bytes(), self.is_lenient(), user)?;
        }
        f.set(ino, &change)?;
        Ok(Ok(()))
    }

    /// The rules of each field, by the manual (stat(5)); nothing is changed.
    fn attributes(
        &self,
        facts: &Facts,
        by: Author,
        stat: &Stat<'_>,
        change: &mut Change,
    ) -> Result<(), Refusal> {
        let user = by.user;
        let (users, inode, keep) = (self.server.users(), &facts.inode, Stat::KEEP);
        let god = self.server.allows(user);
        let owner = god || user == inode.uid || users.leads(user, inode.gid);
        for (given, kept, is, what) in [
            (u64::from(stat.kind), u64::from(keep.kind), 0, "type"),
            (u64::from(stat.dev), u64::from(keep.dev), 0, "dev"),
            (stat.qid.path, keep.qid.path, facts.qid.path, "qid.path"),
            (
                u64::from(stat.qid.version),
                u64::from(keep.qid.version),
                u64::from(facts.qid.version),
                "qid.vers",
            ),
        ] {
            if given != kept && given != is {
                return Err(Refusal::BadStat(what));
            }
        }
        if stat.mode != keep.mode {
            if !owner {
                return Err(Refusal::NotOwner);
            }
            if (stat.mode ^ facts.mode()) & mode::DIR != 0 || stat.mode & !mode::KNOWN != 0 {
                return Err(Refusal::BadStat("mode"));
            }
            let top = (stat.mode >> 24) as u8;
            if stat.qid.kind != keep.qid.kind && stat.qid.kind != top {
                return Err(Refusal::BadStat("qid.type"));
            }
            let (bits, flags) = split_mode(stat.mode);
            (change.mode, change.flags) = (Some(bits), Some(flags));
        } else if stat.qid.kind != keep.qid.kind && stat.qid.kind != facts.qid.kind {
            return Err(Refusal::BadStat("qid.type"));
        }
        if stat.length != keep.length {
            let may = god || by.may_truncate || users.is_permitted(user, &facts.owned(), 2);
            if !may {
                return Err(Refusal::Permission);
            }
            if stat.length > i64::MAX as u64 {
                return Err(Refusal::BadStat("length"));
            }
            change.size = Some(stat.length);
        }
        if stat.mtime != keep.mtime {
            // A user who may cut a file also sets the time, as Linux does with O_TRUNC.
            let cuts = change.size.is_some() && self.is_lenient();
            if !owner && !cuts {
                return Err(Refusal::NotOwner);
            }
            change.mtime_ns = Some(u64::from(stat.mtime) * S);
        }
        if stat.atime != keep.atime && self.is_lenient() && owner {
            change.atime_ns = Some(u64::from(stat.atime) * S);
        }
        self.owners(facts, user, stat, change)
    }

    fn owners(
        &self,
        facts: &Facts,
        user: Id,
        stat: &Stat<'_>,
        change: &mut Change,
    ) -> Result<(), Refusal> {
        let (users, inode) = (self.server.users(), &facts.inode);
        let god = self.server.allows(user);
        if !stat.uid.is_empty() && users.id(stat.uid) != Some(inode.uid) {
            if !god {
                return Err(Refusal::BadStat("uid"));
            }
            change.uid = Some(users.id(stat.uid).ok_or(Refusal::UnknownUser)?);
        }
        if !stat.gid.is_empty() && users.id(stat.gid) != Some(inode.gid) {
            let gid = users.id(stat.gid).ok_or(Refusal::UnknownUser)?;
            let own = user == inode.uid && users.is_in(user, gid);
            let leads = users.leads(user, inode.gid) && users.leads(user, gid);
            if !(god || own || leads) {
                return Err(Refusal::NotMember);
            }
            change.gid = Some(gid);
        }
        // Linux sends the renaming user as muid; lenient listeners ignore it.
        let muid = stat.muid.is_empty() || users.id(stat.muid) == Some(inode.muid);
        if !muid && !self.is_lenient() {
            return Err(Refusal::BadStat("muid"));
        }
        Ok(())
    }
}
