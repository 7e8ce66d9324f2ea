//! What tasks of the data path have in common: memory, requests to members, sums of blocks.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;

use bio::{Errno, Flags, Op, Origin, Pool, PoolConfig, Segs, Status, parity};
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
        // Each by itself: what lies in one buffer cannot be added to what lies in the same.
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

/// Buffers for whoever puts a row right with other memory in hand, all or none: who holds some
/// waits for no further memory, so they are free some day.
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

/// A request to a member.
pub(crate) struct Ask {
    pub(crate) slot: usize,
    pub(crate) edge: Edge,
    pub(crate) op: Op,
    pub(crate) at: u64,
    pub(crate) len: u64,
    pub(crate) data: Segs,
}

/// On whose behalf, and how.
#[derive(Clone, Copy, Default)]
pub(crate) struct Manner {
    pub(crate) flags: Flags,
    pub(crate) origin: Origin,
}

/// All of some futures, in their order.
pub(crate) async fn join<T>(work: Vec<impl Future<Output = T>>) -> Vec<T> {
    enum One<'a, T> {
        Runs(Pin<Box<dyn Future<Output = T> + 'a>>),
        Ended(Option<T>),
    }
    let mut all: Vec<One<'_, T>> = work.into_iter().map(|f| One::Runs(Box::pin(f))).collect();
    poll_fn(|cx| {
        let mut waits = false;
        for one in &mut all {
            if let One::Runs(future) = one {
                match future.as_mut().poll(cx) {
                    Poll::Ready(value) => *one = One::Ended(Some(value)),
                    Poll::Pending => waits = true,
                }
            }
        }
        if waits { Poll::Pending } else { Poll::Ready(()) }
    })
    .await;
    let ended = all.into_iter().filter_map(|one| match one {
        One::Ended(value) => value,
        One::Runs(_) => None,
    });
    ended.collect()
}

/// Sends all at once; answers by slot, in the order asked.
pub(crate) async fn ask(core: &Rc<Core>, all: Vec<Ask>, how: Manner) -> Vec<(usize, Status)> {
    let one = |ask: Ask| async move {
        let (slot, len) = (ask.slot, ask.len);
        let done = core
            .io(ask.edge, |bio| {
                bio.op = ask.op;
                bio.flags = how.flags;
                bio.origin = how.origin;
                bio.offset = ask.at;
                bio.length = ask.len;
                bio.data = ask.data;
            })
            .await;
        let short = ask.op.has_data() && done.completed != len;
        (slot, done.status.and(if short { Err(Errno::Io) } else { Ok(()) }))
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
    let (mut here, mut there) = (to.iter(), from.iter());
    let (mut t, mut s) = (here.next(), there.next());
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
            (t, t_at) = (here.next(), 0);
        }
        if s_at == of.len() {
            (s, s_at) = (there.next(), 0);
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

/// `of *= factor`.
pub(crate) fn scale(of: &Segs, factor: u8) {
    of.iter().for_each(|seg| seg.with_mut(|bytes| parity::scale(bytes, factor)));
}

/// All zeroes.
pub(crate) fn clear(of: &Segs) {
    of.fill(0, of.len(), 0);
}

/// True when both hold the same.
pub(crate) fn same(one: &Segs, other: &Segs) -> bool {
    let mut same = one.len() == other.len();
    pairs(one, other, |a, b| same &= a == b);
    same
}

/// A member's fault, rather than the request's.
pub(crate) fn is_members_fault(e: Errno) -> bool {
    matches!(e, Errno::Io | Errno::NxIo | Errno::TimedOut)
}

/// A slot's bit.
pub(crate) fn bit(slot: usize) -> u64 {
    1_u64.checked_shl(slot as u32).unwrap_or(0)
}
