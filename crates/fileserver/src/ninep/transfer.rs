//! Reading and writing.

use bio::Seg;
use wire::ninep::{R, open};

use super::node::Node;
use super::refusal::Refusal;
use super::session::{ClientSession, Reply};
use crate::fault::Fault;
use crate::files::{Flags, Kind};
use crate::users::Users;
use crate::volume::View;

/// Entries of a directory looked at together.
const ENTRIES: usize = 64;

impl ClientSession {
    pub(super) async fn read(&self, fid: u32, offset: u64, count: u32) -> Result<Reply, Refusal> {
        let count = count.min(self.iounit());
        let (export, node, access, excl, at) = self.fid(fid, |f| {
            let o = f.open.as_ref().ok_or(Refusal::BadUse)?;
            Ok::<_, Refusal>((f.export.clone(), f.node, o.access, o.excl, (o.cursor, o.reader)))
        })??;
        let (cursor, mut reader) = at;
        if access == open::WRITE {
            return Err(Refusal::BadUse);
        }
        if offset > i64::MAX as u64 {
            return Err(Refusal::BadOffset);
        }
        self.touch(node, fid, excl)?;
        let Node::File(view, ino) = node else {
            return self.entries(fid, offset, count, cursor).await;
        };
        let mut segs = Vec::new();
        let read = export
            .files
            .run(|f| {
                segs.clear();
                let inode = f.inode(view, ino)?;
                if inode.kind == Kind::Dir {
                    return Ok(None);
                }
                let range = (offset, count as usize);
                f.read_on(view, ino, range, &mut reader, &mut segs).map(Some)
            })
            .await?;
        let Some(n) = read else { return self.entries(fid, offset, count, cursor).await };
        self.fid(fid, |f| {
            if let Some(o) = &mut f.open {
                o.reader = reader;
            }
        })?;
        self.read.set(self.read.get() + n as u64);
        Ok(Reply::Data(export.share.keep(segs, n)))
    }

    fn touch(&self, node: Node, fid: u32, excl: bool) -> Result<(), Refusal> {
        let Node::File(View::Live, ino) = node else { return Ok(()) };
        let now = self.server.reactor.now();
        if excl && !self.server.locks.touch(ino, (self.number, fid), now) {
            return Err(Refusal::LockBroken);
        }
        Ok(())
    }

    /// Whole entries, as many as fit. A directory is read from its beginning or where the last read
    /// ended.
    async fn entries(
        &self,
        fid: u32,
        offset: u64,
        count: u32,
        cursor: (u64, u64),
    ) -> Result<Reply, Refusal> {
        let (export, node) = self.fid(fid, |f| (f.export.clone(), f.node))?;
        let mut after = match offset {
            0 => 0,
            o if o == cursor.0 => cursor.1,
            _ => return Err(Refusal::BadOffset),
        };
        let users = self.server.users();
        let mut out = Vec::new();
        loop {
            let some = export.files.run(|f| listed(f, node, after, &users)).await?;
            let (last, mut full) = (some.len() < ENTRIES, false);
            for (cookie, entry) in some {
                if out.len() + entry.len() > count as usize {
                    full = true;
                    break;
                }
                out.extend_from_slice(&entry);
                after = cookie;
            }
            if full && out.is_empty() {
                return Err(Refusal::ShortRead);
            }
            if full || last {
                break;
            }
        }
        let next = offset + out.len() as u64;
        self.fid(fid, |f| {
            if let Some(o) = &mut f.open {
                o.cursor = (next, after);
            }
        })?;
        Ok(Reply::Entries(out))
    }

    pub(super) async fn write(
        &self,
        fid: u32,
        offset: u64,
        data: &[Seg],
    ) -> Result<Reply, Refusal> {
        let (export, node, user, access, excl) = self.fid(fid, |f| {
            let o = f.open.as_ref().ok_or(Refusal::BadUse)?;
            Ok::<_, Refusal>((f.export.clone(), f.node, f.user, o.access, o.excl))
        })??;
        if !matches!(access, open::WRITE | open::RDWR) {
            return Err(Refusal::BadUse);
        }
        let ino = node.live()?;
        self.touch(node, fid, excl)?;
        let n = export
            .files
            .run(|f| {
                if f.inode(View::Live, ino)?.flags.has(Flags::APPEND) {
                    return f.append(ino, data, user).map(|(_, n)| n);
                }
                f.write(ino, offset, data, user)
            })
            .await?;
        self.written.set(self.written.get() + n as u64);
        Ok(Reply::R(R::Write { count: n as u32 }))
    }
}

type Entries = Vec<(u64, Vec<u8>)>;

fn listed(
    f: &mut crate::files::Files<'_, '_>,
    node: Node,
    after: u64,
    users: &Users,
) -> Result<Entries, crate::Stop> {
    let mut out = Vec::new();
    for (cookie, child) in node.children(f, after, ENTRIES)? {
        let facts = match child.facts(f) {
            Ok(facts) => facts,
            Err(crate::Stop::Fail(Fault::NotFound)) => continue,
            Err(stop) => return Err(stop),
        };
        let mut entry = Vec::new();
        facts.encode(users, &mut entry);
        out.push((cookie, entry));
    }
    Ok(out)
}
