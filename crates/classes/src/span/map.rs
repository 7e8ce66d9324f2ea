//! The data path of stripe and concat: a request becomes at most one child a member.
//!
//! Invariants
//!  M1  The pieces of a request cover it once, and each is whole on its member.
//!  M2  A request inside one member is sent down unchanged, except for its offset.
//!  M3  FLUSH is sent to every member; a member without a cache to flush is no failure.
//!  M4  DELETE is sent to members that support it; a request is refused if none of its members
//!      does. The value that was reported for deleted bytes at the start stays true: see `wipes`. A
//!      DELETE of several ranges also becomes one child per member, with the ranges that lie there.
//!  M5  The byte that a member's medium failed is reported as the byte of the request that is
//!      there.

use std::marker::PhantomData;
use std::ops::Range;

use bio::{Attr, Bio, Errno, Op, append_range};
use geom::{Back, Core, Edge, Flow, Layer};

use super::Span;
use crate::members::Divisor;

/// The part of a request that is on one member.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Piece {
    pub member: usize,
    /// First byte on the member.
    pub offset: u64,
    /// Bytes.
    pub length: u64,
}

/// The word of a Bio that was sent down whole is its offset; of one that was cut, this.
const CUT: u64 = u64::MAX;

/// See the module.
pub(crate) struct SpanLayer<S> {
    /// Strip size, bytes.
    pub(crate) strip: u64,
    /// The same, and the number of members, to divide by.
    pub(crate) divisors: (Divisor, Divisor),
    pub(crate) sizes: Box<[u64]>,
    /// Ways to the members.
    pub(crate) edges: Box<[Edge]>,
    /// Which members take DELETE.
    pub(crate) deletes: Box<[bool]>,
    /// Members whose deleted bytes would not read as zeroes, although the whole reported that they
    /// do: zeroes are written there.
    pub(crate) wipes: Box<[bool]>,
    pub(crate) of: PhantomData<fn() -> S>,
}

impl<S: Span> SpanLayer<S> {
    fn edge(&self, member: usize) -> Option<Edge> {
        self.edges.get(member).copied()
    }

    /// The one piece of a request, if there is but one.
    #[inline]
    fn only(&self, bio: &Bio) -> Option<Piece> {
        let (strip, count) = self.divisors;
        S::single_piece(strip, (&self.sizes, count), bio.offset, bio.length)
            .or_else(|| self.sole(bio))
    }

    #[cold]
    fn sole(&self, bio: &Bio) -> Option<Piece> {
        let (mut first, mut more) = (None, false);
        S::pieces(self.strip, &self.sizes, bio.offset, bio.length, &mut |piece| {
            more |= first.is_some();
            first.get_or_insert(piece);
        });
        first.filter(|_| !more)
    }

    /// M2 for a READ or WRITE, without a call; else [`Self::ranged`].
    #[inline(always)]
    fn pass(&self, bio: &mut Bio) -> Option<Flow> {
        let (strip, count) = self.divisors;
        let piece = S::single_piece(strip, (&self.sizes, count), bio.offset, bio.length)?;
        let edge = self.edge(piece.member)?;
        let was = std::mem::replace(&mut bio.offset, piece.offset);
        Some(Flow::Down(edge, was))
    }

    #[inline(never)]
    fn ranged(&self, bio: &mut Bio, core: &Core) -> Flow {
        if let Some(piece) = self.only(bio) {
            if bio.op == Op::Delete && self.wipes(piece.member) {
                return self.cut(bio, core);
            }
            if bio.op == Op::Delete && !self.takes_delete(piece.member) {
                return Flow::Done(Err(Errno::NotSup));
            }
            let Some(edge) = self.edge(piece.member) else {
                return Flow::Done(Err(Errno::NxIo));
            };
            let was = bio.offset;
            bio.offset = piece.offset;
            return Flow::Down(edge, was);
        }
        if bio.op == Op::Map {
            return self.map_first(bio, core);
        }
        self.cut(bio, core)
    }

    /// The failed byte of a READ or WRITE on a member, from the first byte of the request, if the
    /// member reports it.
    #[cold]
    fn bad_byte(&self, parent: &Bio, child: &Bio) -> Option<u64> {
        let Some(Attr::Int(bad)) = child.value.as_ref().filter(|_| parent.op.has_data()) else {
            return None;
        };
        let (request, mut found) = ((parent.offset, parent.length), None);
        S::pieces(self.strip, &self.sizes, request.0, request.1, &mut |piece| {
            if piece.member != child.mark as usize || piece.offset != child.offset {
                return;
            }
            let mut from = 0;
            S::gather(self.strip, &self.sizes, request, piece, &mut |at, len| {
                if (from..from + len).contains(bad) {
                    found = Some(at + (bad - from));
                }
                from += len;
            });
        });
        found
    }

    fn takes_delete(&self, member: usize) -> bool {
        self.deletes.get(member).copied().unwrap_or(false)
    }

    fn wipes(&self, member: usize) -> bool {
        self.wipes.get(member).copied().unwrap_or(false)
    }

    fn cut(&self, bio: &mut Bio, core: &Core) -> Flow {
        if bio.is_scattered() {
            return self.cut_list(bio, core);
        }
        let (op, request) = (bio.op, (bio.offset, bio.length));
        let mut sent = 0;
        let mut skipped = 0;
        let mut broken = false;
        S::pieces(self.strip, &self.sizes, bio.offset, bio.length, &mut |piece| {
            let wipes = op == Op::Delete && self.wipes(piece.member);
            if op == Op::Delete && !wipes && !self.takes_delete(piece.member) {
                skipped += piece.length;
                return;
            }
            let Some(edge) = self.edge(piece.member) else {
                broken = true;
                return;
            };
            core.fork_with(bio, edge, |bio, child| {
                child.mark = u32::try_from(piece.member).unwrap_or(u32::MAX);
                child.offset = piece.offset;
                child.length = piece.length;
                if op.has_data() {
                    S::gather(self.strip, &self.sizes, request, piece, &mut |at, len| {
                        let (at, len) = (at as usize, len as usize);
                        broken |= !bio.data.slice_into(at, len, &mut child.data);
                    });
                }
                if wipes {
                    child.op = Op::WriteZeroes;
                }
            });
            sent += 1;
        });
        match (broken, sent) {
            (true, _) => Flow::Done(Err(Errno::Inval)),
            (_, 0) => Flow::Done(Err(Errno::NotSup)),
            _ => {
                // M4: members that cannot delete count as done; DELETE promises nothing.
                bio.completed = skipped;
                Flow::Fork(CUT)
            }
        }
    }

    /// A DELETE of several ranges.
    #[cold]
    fn cut_list(&self, bio: &mut Bio, core: &Core) -> Flow {
        let mut lists: Vec<Vec<Range<u64>>> = vec![Vec::new(); self.edges.len()];
        for range in bio.ranges() {
            let length = range.end - range.start;
            S::pieces(self.strip, &self.sizes, range.start, length, &mut |piece| {
                let end = piece.offset.saturating_add(piece.length);
                let Some(list) = lists.get_mut(piece.member) else { return };
                append_range(list, piece.offset..end);
            });
        }
        let (mut sent, mut skipped, mut broken) = (0, 0, false);
        for (member, (list, edge)) in lists.iter().zip(&self.edges).enumerate() {
            let wipes = self.wipes(member);
            if list.is_empty() {
                continue;
            }
            if !wipes && !self.takes_delete(member) {
                skipped += list.iter().map(|r| r.end - r.start).sum::<u64>();
                continue;
            }
            core.fork_with(bio, *edge, |_, child| {
                broken |= !child.delete_ranges(list);
                if wipes {
                    child.op = Op::WriteZeroes;
                }
            });
            sent += 1;
        }
        match (broken, sent) {
            (true, _) => Flow::Done(Err(Errno::Inval)),
            (_, 0) => Flow::Done(Err(Errno::NotSup)),
            _ => {
                bio.completed = skipped;
                Flow::Fork(CUT)
            }
        }
    }

    /// A question about a range of which only the first piece is answered.
    fn map_first(&self, bio: &mut Bio, core: &Core) -> Flow {
        let mut first = None;
        S::pieces(self.strip, &self.sizes, bio.offset, bio.length, &mut |piece| {
            first.get_or_insert(piece);
        });
        let Some((piece, edge)) = first.and_then(|p| Some((p, self.edge(p.member)?))) else {
            return Flow::Done(Err(Errno::NxIo));
        };
        let mut run = None;
        let request = (bio.offset, bio.length);
        S::gather(self.strip, &self.sizes, request, piece, &mut |_, len| {
            run.get_or_insert(len);
        });
        core.fork(bio, edge, |child| {
            child.offset = piece.offset;
            child.length = run.unwrap_or(piece.length);
        });
        Flow::Fork(CUT)
    }

    fn all(&self, bio: &mut Bio, core: &Core) -> Flow {
        for edge in &self.edges {
            core.fork(bio, *edge, |_| ());
        }
        Flow::Fork(CUT)
    }
}

impl<S: Span> Layer for SpanLayer<S> {
    fn delete_ranges(&self) -> u32 {
        u32::MAX
    }

    fn start(&self, bio: &mut Bio, core: &Core) -> Flow {
        if bio.op.has_data()
            && let Some(flow) = self.pass(bio)
        {
            return flow;
        }
        match bio.op {
            op if op.has_range() => self.ranged(bio, core),
            Op::Flush => self.all(bio, core),
            // Attributes of the whole were answered from its own list.
            _ => Flow::Done(Err(Errno::NotSup)),
        }
    }

    fn child_done(&self, parent: &mut Bio, child: &mut Bio, _: &Core) {
        match child.status {
            Ok(()) => {
                parent.completed += child.completed;
                if let (Ok(()), Some(value)) = (parent.status, child.value.take()) {
                    parent.value = Some(value);
                }
            }
            // M3: nothing to flush there.
            Err(Errno::NotSup) if parent.op == Op::Flush => {}
            Err(e) => {
                if parent.status.is_ok() {
                    parent.value = self.bad_byte(parent, child).map(Attr::Int);
                }
                parent.fail(e);
            }
        }
    }

    fn done(&self, bio: &mut Bio, was: u64, _: &Core) -> Back {
        if was != CUT && bio.op.has_range() {
            bio.offset = was;
        }
        Back::Up
    }
}
