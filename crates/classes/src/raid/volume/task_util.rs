//! Helpers for tasks of the data path: memory, requests to members, sums of blocks.

use std::future::{Future, poll_fn};
use std::ops::Range;
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;

use bio::{Errno, Flags, Op, Origin, Pool, PoolConfig, Seg, Segs, Status, parity};
use geom::{Core, Edge};

use crate::members::BLANK;

/// Memory of a thread's own for when the pool is empty: it may be full of the very writes that
/// wait for parity. One piece of work takes no more than [`WINDOW`] of each member.
const RESERVE_BYTES: usize = 32 << 20;

/// Memory of a thread's own for rows that a member failed or may fail, up to three times [`WINDOW`]
/// each; more rows wait.
const MENDING_BYTES: usize = 4 << 20;

/// Bytes of each member that one piece of work on a row takes at once.
pub(crate) const WINDOW: u64 = BLANK;

thread_local! {
    static RESERVE: Pool = Pool::new(PoolConfig { limit_bytes: RESERVE_BYTES });
    static MENDING: Pool = Pool::new(PoolConfig { limit_bytes: MENDING_BYTES });
}

/// One buffer for each of `count` members, all or none; waits while there is no memory. The
/// contents are anything.
pub(crate) async fn blocks(core: &Rc<Core>, count: usize, len: usize) -> Vec<Segs> {
    let take = |pool: &Pool| {
        // Each allocation is separate: the contents of one buffer cannot be added to each other.
        (0..count).map(|_| Segs::alloc(pool, len)).collect::<Option<Vec<Segs>>>()
    };
    poll_fn(|cx| {
        if let Some(all) = take(core.pool()).or_else(|| RESERVE.with(take)) {
            return Poll::Ready(all);
        }
        RESERVE.with(|pool| pool.wake_on_free(cx.waker()));
        core.wake_on_free(cx.waker());
        Poll::Pending
    })
    .await
}

/// Buffers for putting a row right while other memory is held, all or none. Their holders wait for
/// no further memory, so they are freed eventually.
pub(crate) async fn more(count: usize, len: usize) -> Vec<Segs> {
    poll_fn(|cx| {
        MENDING.with(|pool| {
            let all = (0..count).map(|_| Segs::alloc(pool, len)).collect::<Option<Vec<Segs>>>();
            match all {
                Some(all) => Poll::Ready(all),
                None => {
                    pool.wake_on_free(cx.waker());
                    Poll::Pending
                }
            }
        })
    })
    .await
}

pub(crate) struct MemberRequest {
    pub(crate) slot: usize,
    pub(crate) edge: Edge,
    pub(crate) op: Op,
    pub(crate) at: u64,
    pub(crate) len: u64,
    pub(crate) data: Segs,
}

/// On whose behalf, and how.
#[derive(Clone, Copy, Default)]
pub(crate) struct RequestContext {
    pub(crate) flags: Flags,
    pub(crate) origin: Origin,
}

/// Several ranges of a DELETE for a member.
pub(crate) struct MemberDelete {
    pub(crate) slot: usize,
    pub(crate) edge: Edge,
    pub(crate) ranges: Vec<Range<u64>>,
}

/// All of some futures, in their order.
pub(crate) async fn join<T>(work: Vec<impl Future<Output = T>>) -> Vec<T> {
    enum JoinState<'a, T> {
        Runs(Pin<Box<dyn Future<Output = T> + 'a>>),
        Ended(Option<T>),
    }
    let mut all: Vec<JoinState<'_, T>> =
        work.into_iter().map(|f| JoinState::Runs(Box::pin(f))).collect();
    poll_fn(|cx| {
        let mut waits = false;
        for one in &mut all {
            if let JoinState::Runs(future) = one {
                match future.as_mut().poll(cx) {
                    Poll::Ready(value) => *one = JoinState::Ended(Some(value)),
                    Poll::Pending => waits = true,
                }
            }
        }
        if waits { Poll::Pending } else { Poll::Ready(()) }
    })
    .await;
    let ended = all.into_iter().filter_map(|one| match one {
        JoinState::Ended(value) => value,
        JoinState::Runs(_) => None,
    });
    ended.collect()
}

/// Sends all at once; answers by slot, in the order of the requests.
pub(crate) async fn send_all(
    core: &Rc<Core>,
    all: Vec<MemberRequest>,
    how: RequestContext,
) -> Vec<(usize, Status)> {
    let one = |request: MemberRequest| async move {
        let (slot, len) = (request.slot, request.len);
        let done = core
            .io(request.edge, |bio| {
                bio.op = request.op;
                bio.flags = how.flags;
                bio.origin = how.origin;
                bio.offset = request.at;
                bio.length = request.len;
                bio.data = request.data;
            })
            .await;
        let short = request.op.has_data() && done.completed != len;
        (slot, done.status.and(if short { Err(Errno::Io) } else { Ok(()) }))
    };
    join(all.into_iter().map(one).collect()).await
}

/// As [`ask`], DELETEs of several ranges.
pub(crate) async fn send_deletes(
    core: &Rc<Core>,
    all: Vec<MemberDelete>,
    how: RequestContext,
) -> Vec<(usize, Status)> {
    let one = |wipe: MemberDelete| async move {
        let mut named = false;
        let done = core
            .io(wipe.edge, |bio| {
                named = bio.delete_ranges(&wipe.ranges);
                (bio.flags, bio.origin) = (how.flags, how.origin);
            })
            .await;
        debug_assert!(named, "ranges of a member ascend as those of the volume do");
        (wipe.slot, done.status)
    };
    join(all.into_iter().map(one).collect()).await
}

/// Some bytes of a list, as a list.
pub(crate) fn part(of: &Segs, at: u64, len: u64) -> Segs {
    let mut out = Segs::new();
    let fits = of.slice_into(at as usize, len as usize, &mut out);
    debug_assert!(fits, "a part beyond the end");
    out
}

/// Calls `f` with equal runs of two lists.
fn pairs(to: &Segs, from: &Segs, mut f: impl FnMut(&mut [u8], &[u8])) {
    let (mut targets, mut sources) = (to.iter(), from.iter());
    let (mut t, mut s) = (targets.next(), sources.next());
    let (mut t_at, mut s_at) = (0, 0);
    while let (Some(into), Some(of)) = (t, s) {
        let n = (into.len() - t_at).min(of.len() - s_at);
        of.with(|of| {
            into.with_mut(|into| {
                let into = into.get_mut(t_at..t_at + n).unwrap_or_default();
                f(into, of.get(s_at..s_at + n).unwrap_or_default());
            });
        });
        (t_at, s_at) = (t_at + n, s_at + n);
        if t_at == into.len() {
            (t, t_at) = (targets.next(), 0);
        }
        if s_at == of.len() {
            (s, s_at) = (sources.next(), 0);
        }
    }
}

/// `to = from`.
pub(crate) fn copy(to: &Segs, from: &Segs) {
    pairs(to, from, <[u8]>::copy_from_slice);
}

/// `to += factor * from` in the field of [`parity`].
pub(crate) fn add(to: &Segs, from: &Segs, factor: u8) {
    pairs(to, from, |to, from| parity::add_multiple(to, from, factor));
}

/// Data that is looked at together, the last first.
struct Chain<'a> {
    bytes: &'a [u8],
    slot: usize,
    before: Option<&'a Chain<'a>>,
}

/// Calls `f` while all of some data is looked at.
fn with_chain(from: &[(Seg, usize)], before: Option<&Chain<'_>>, f: &mut dyn FnMut(&Chain<'_>)) {
    match from {
        [] => before.into_iter().for_each(f),
        [(seg, slot), rest @ ..] => {
            let slot = *slot;
            seg.with(|bytes| with_chain(rest, Some(&Chain { bytes, slot, before }), f));
        }
    }
}

/// The parities of a row's data, given with its slots: `p` the sum, `q` the sum with each
/// times `2 ^ slot`. All are of one length.
pub(crate) fn sums(p: Option<&Segs>, q: Option<&Segs>, from: &[(&Segs, usize)]) {
    let mut from = from.to_vec();
    // The largest exponent is wanted first, and a chain is processed from its end.
    from.sort_by_key(|(_, slot)| *slot);
    let [mut p, mut q] = [p, q].map(|sum| sum.map(Runs::of));
    let mut data: Vec<(Runs<'_>, usize)> =
        from.into_iter().map(|(segs, slot)| (Runs::of(segs), slot)).collect();
    loop {
        let all = data.iter().map(|(runs, _)| runs).chain(&p).chain(&q);
        let n = all.map(Runs::left).min().unwrap_or(0);
        if n == 0 {
            return;
        }
        let some: Vec<(Seg, usize)> =
            data.iter_mut().filter_map(|(runs, slot)| Some((runs.take(n)?, *slot))).collect();
        let [p, q] = [&mut p, &mut q].map(|sum| sum.as_mut().and_then(|runs| runs.take(n)));
        with_chain(&some, None, &mut |last| {
            let chain = std::iter::successors(Some(last), |one| one.before);
            let bytes: Vec<(&[u8], usize)> = chain.map(|one| (one.bytes, one.slot)).collect();
            match (&p, &q) {
                (Some(p), Some(q)) => p.with_mut(|p| {
                    q.with_mut(|q| parity::row(Some(p), Some(q), &bytes));
                }),
                (Some(p), None) => p.with_mut(|p| parity::row(Some(p), None, &bytes)),
                (None, Some(q)) => q.with_mut(|q| parity::row(None, Some(q), &bytes)),
                (None, None) => {}
            }
        });
    }
}

/// A list from some byte on.
struct Runs<'a> {
    segs: std::slice::Iter<'a, Seg>,
    now: Option<&'a Seg>,
    at: usize,
}

impl<'a> Runs<'a> {
    fn of(segs: &'a Segs) -> Runs<'a> {
        let mut segs = segs.iter();
        let now = segs.next();
        Runs { segs, now, at: 0 }
    }

    /// Bytes to the end of the segment.
    fn left(&self) -> usize {
        self.now.map_or(0, |seg| seg.len() - self.at)
    }

    /// The next bytes, no more than are left.
    fn take(&mut self, n: usize) -> Option<Seg> {
        let taken = self.now?.slice(self.at, n)?;
        self.at += n;
        if self.left() == 0 {
            (self.now, self.at) = (self.segs.next(), 0);
        }
        Some(taken)
    }
}

/// `of *= factor`.
pub(crate) fn scale(of: &Segs, factor: u8) {
    of.iter().for_each(|seg| seg.with_mut(|bytes| parity::scale(bytes, factor)));
}

/// True when both hold the same.
pub(crate) fn same(one: &Segs, other: &Segs) -> bool {
    let mut same = one.len() == other.len();
    pairs(one, other, |a, b| same &= a == b);
    same
}

/// A member's fault, rather than the request's.
pub(crate) fn is_members_fault(e: Errno) -> bool {
    matches!(e, Errno::Io | Errno::NxIo | Errno::TimedOut | Errno::RemoteIo)
}

pub(crate) fn bit(slot: usize) -> u64 {
    1_u64.checked_shl(slot as u32).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parity_equals_the_sum_of_its_parts_at_any_buffer_boundary() {
        let pool = Pool::new(PoolConfig { limit_bytes: 4 << 20 });
        let cut = |lens: &[usize], seed: u8| {
            let mut segs = Segs::new();
            for len in lens {
                assert!(segs.grow(&pool, *len));
            }
            let bytes: Vec<u8> = (0..segs.len()).map(|n| (n as u8).wrapping_mul(seed)).collect();
            segs.copy_from(0, &bytes);
            segs
        };
        let data = [cut(&[512, 1024], 3), cut(&[1000, 536], 5), cut(&[1536], 7)];
        let slots = [4, 0, 2];
        let from: Vec<(&Segs, usize)> = data.iter().zip(slots).collect();
        let (p, q) = (cut(&[7, 1529], 11), cut(&[1535, 1], 13));
        let (p_parts, q_parts) = (cut(&[1536], 0), cut(&[1536], 0));
        for (segs, slot) in &from {
            add(&p_parts, segs, 1);
            add(&q_parts, segs, parity::power(*slot));
        }
        sums(Some(&p), Some(&q), &from);
        assert!(same(&p, &p_parts) && same(&q, &q_parts));
        let (p, q) = (cut(&[1536], 1), cut(&[1536], 1));
        sums(Some(&p), None, &from);
        sums(None, Some(&q), &from);
        assert!(same(&p, &p_parts) && same(&q, &q_parts));
    }
}
