//! Devices made of others, as the first file servers join them. All count in blocks.

use std::rc::Rc;

use bio::{Errno, Segs};
use geom::Local;

use super::Medium;

/// Where a range of a joined device is: member, its byte, length.
type MemberRange = (usize, u64, usize);

/// How members are put together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum JoinKind {
    /// One behind the other.
    Cat,
    /// A block of each in turn.
    Interleave,
}

/// `(ab)` and `[ab]`.
pub struct Joined {
    name: String,
    block: u64,
    kind: JoinKind,
    members: Vec<Rc<dyn Medium>>,
}

impl Joined {
    /// One behind the other: sizes add, each as many whole blocks as fit.
    pub fn cat(name: &str, block: u32, members: Vec<Rc<dyn Medium>>) -> Joined {
        Joined { name: name.into(), block: u64::from(block), kind: JoinKind::Cat, members }
    }

    /// Block b is block b div n of member b mod n; each counts as large as the smallest.
    pub fn interleave(name: &str, block: u32, members: Vec<Rc<dyn Medium>>) -> Joined {
        Joined { name: name.into(), block: u64::from(block), kind: JoinKind::Interleave, members }
    }

    fn blocks(&self, member: usize) -> u64 {
        self.members.get(member).map_or(0, |m| m.size() / self.block)
    }

    /// Pieces of a range, in its order. None: it is outside.
    fn split(&self, at: u64, len: usize) -> Result<Vec<MemberRange>, Errno> {
        if !at.is_multiple_of(self.block) || !(len as u64).is_multiple_of(self.block) {
            return Err(Errno::Inval);
        }
        let end = at.checked_add(len as u64).ok_or(Errno::Inval)?;
        if end > self.size() {
            return Err(Errno::Io);
        }
        let mut out: Vec<MemberRange> = Vec::new();
        for block in at / self.block..end / self.block {
            let (member, inside) = self.locate(block).ok_or(Errno::Io)?;
            let byte = inside * self.block;
            match out.last_mut() {
                Some((m, from, n)) if *m == member && *from + *n as u64 == byte => {
                    *n += self.block as usize;
                }
                _ => out.push((member, byte, self.block as usize)),
            }
        }
        Ok(out)
    }

    fn locate(&self, block: u64) -> Option<(usize, u64)> {
        let n = self.members.len() as u64;
        match self.kind {
            JoinKind::Interleave => Some(((block % n) as usize, block / n)),
            JoinKind::Cat => {
                let mut left = block;
                for member in 0..self.members.len() {
                    let blocks = self.blocks(member);
                    if left < blocks {
                        return Some((member, left));
                    }
                    left -= blocks;
                }
                None
            }
        }
    }

    async fn transfer(&self, at: u64, data: Segs, write: bool) -> Result<(), Errno> {
        let mut from = 0;
        for (member, byte, len) in self.split(at, data.len())? {
            let mut part = Segs::default();
            if !data.slice_into(from, len, &mut part) {
                return Err(Errno::Inval);
            }
            let Some(m) = self.members.get(member) else { return Err(Errno::Io) };
            if write {
                m.write(byte, part).await?
            } else {
                m.read(byte, part).await?
            }
            from += len;
        }
        Ok(())
    }
}

impl Medium for Joined {
    fn name(&self) -> &str {
        &self.name
    }

    fn size(&self) -> u64 {
        let blocks = (0..self.members.len()).map(|m| self.blocks(m));
        self.block
            * match self.kind {
                JoinKind::Cat => blocks.sum(),
                JoinKind::Interleave => blocks.min().unwrap_or(0) * self.members.len() as u64,
            }
    }

    fn read(&self, at: u64, into: Segs) -> Local<'_, Result<(), Errno>> {
        Box::pin(self.transfer(at, into, false))
    }

    fn write(&self, at: u64, from: Segs) -> Local<'_, Result<(), Errno>> {
        Box::pin(self.transfer(at, from, true))
    }

    fn flush(&self) -> Local<'_, Result<(), Errno>> {
        Box::pin(async move {
            for m in &self.members {
                m.flush().await?;
            }
            Ok(())
        })
    }
}

/// `{ab}` where it is not the WORM's own mirror: written from the last member to the first, read
/// from the first that answers. A write that one of them fails is an error, so that none ever holds
/// something older unnoticed.
pub struct LooseMirror {
    name: String,
    members: Vec<Rc<dyn Medium>>,
}

impl LooseMirror {
    /// Of these.
    pub fn new(name: &str, members: Vec<Rc<dyn Medium>>) -> LooseMirror {
        LooseMirror { name: name.into(), members }
    }
}

fn clone_segs(data: &Segs) -> Segs {
    data.iter().cloned().collect()
}

impl Medium for LooseMirror {
    fn name(&self) -> &str {
        &self.name
    }

    fn size(&self) -> u64 {
        self.members.iter().map(|m| m.size()).min().unwrap_or(0)
    }

    fn read(&self, at: u64, into: Segs) -> Local<'_, Result<(), Errno>> {
        Box::pin(async move {
            let mut why = Errno::NxIo;
            for m in &self.members {
                match m.read(at, clone_segs(&into)).await {
                    Ok(()) => return Ok(()),
                    Err(e) => why = e,
                }
            }
            Err(why)
        })
    }

    fn write(&self, at: u64, from: Segs) -> Local<'_, Result<(), Errno>> {
        Box::pin(async move {
            let mut done = Ok(());
            for m in self.members.iter().rev() {
                done = done.and(m.write(at, clone_segs(&from)).await);
            }
            done
        })
    }

    fn flush(&self) -> Local<'_, Result<(), Errno>> {
        Box::pin(async move {
            let mut done = Ok(());
            for m in &self.members {
                done = done.and(m.flush().await);
            }
            done
        })
    }
}

/// `pa50.1`: a part of another device.
pub struct Part {
    name: String,
    of: Rc<dyn Medium>,
    from: u64,
    len: u64,
}

impl Part {
    /// By the numbers of a config string: percent of `of` (base and size, both up to 100), or
    /// blocks (first and end). Percent round down to blocks, as they always did.
    pub fn new(
        name: &str,
        block: u32,
        of: Rc<dyn Medium>,
        first: u64,
        second: u64,
    ) -> Result<Part, String> {
        let (wide, blocks) = (u64::from(block), of.size() / u64::from(block));
        let share = |n: u64| (u128::from(n) * u128::from(blocks) / 100) as u64;
        let percent = first <= 100 && second <= 100;
        let (from, len) = if percent {
            (share(first), share(second))
        } else {
            (first, second.saturating_sub(first))
        };
        if len == 0 || from.checked_add(len).is_none_or(|end| end > blocks) {
            return Err(format!("{name}: a part of {blocks} blocks that does not fit"));
        }
        Ok(Part { name: name.into(), of, from: from * wide, len: len * wide })
    }

    fn at(&self, at: u64, len: usize) -> Result<u64, Errno> {
        let fits = at.checked_add(len as u64).is_some_and(|end| end <= self.len);
        if fits { Ok(self.from + at) } else { Err(Errno::Io) }
    }
}

impl Medium for Part {
    fn name(&self) -> &str {
        &self.name
    }

    fn size(&self) -> u64 {
        self.len
    }

    fn read(&self, at: u64, into: Segs) -> Local<'_, Result<(), Errno>> {
        Box::pin(async move { self.of.read(self.at(at, into.len())?, into).await })
    }

    fn write(&self, at: u64, from: Segs) -> Local<'_, Result<(), Errno>> {
        Box::pin(async move { self.of.write(self.at(at, from.len())?, from).await })
    }

    fn flush(&self) -> Local<'_, Result<(), Errno>> {
        self.of.flush()
    }
}
