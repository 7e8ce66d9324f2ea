//! Reads from the WORM: a slow, hanging or dead leg does not delay a read that another leg answers.
//!
//! ```text
//!   the first leg of the config string that is no laggard -> right: done
//!        |  an error, something else, or nothing for a while
//!        +-> the next one is read beside it -> the first right answer is used
//! ```
//! How long a leg takes is known from its last reads. A laggard is read last, and now and then
//! beside another one, so that it is noticed when it is quick again.

use std::cell::RefCell;
use std::rc::Rc;

use bio::Seg;

use super::Volume;
use crate::fault::{Addr, Fault};
use crate::notify::Notify;

/// A laggard takes so many times as long as the quickest leg, and so many ns more.
const LAG: (u64, u64) = (4, 1_000_000);
/// A leg has so many times as long as it usually takes before the next one is read too; at least
/// and at most so many ns.
const READ_TIMEOUT: (u64, u64, u64) = (4, 20_000_000, 200_000_000);
/// An error, or no answer in time, counts as a read that took so long, ns.
const BAD_NS: u64 = 1_000_000_000;
/// How often a laggard is tried, ns.
const TRY_NS: u64 = 5_000_000_000;

/// How a leg answers reads.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ReadStats {
    /// How long a read takes, ns; 0: none ended yet.
    pub usual_ns: u64,
    /// When the last one began.
    begun_ns: u64,
    /// Reads that have not ended.
    inflight: u32,
}

impl ReadStats {
    fn ended(&mut self, good: bool, took: u64) {
        self.inflight = self.inflight.saturating_sub(1);
        self.usual_ns = match self.usual_ns {
            _ if !good => BAD_NS,
            // Nothing was known, or it is another leg now.
            usual if usual == 0 || took < usual / 4 || usual >= BAD_NS => took.max(1),
            usual => (usual * 7 + took) / 8,
        };
    }

    fn timeout(&self) -> u64 {
        self.usual_ns.saturating_mul(READ_TIMEOUT.0).clamp(READ_TIMEOUT.1, READ_TIMEOUT.2)
    }
}

/// The answers of the queried legs.
#[derive(Default)]
struct MemberReads {
    completed: RefCell<Vec<(usize, Result<Seg, Fault>)>>,
    notify: Notify,
}

impl Volume {
    /// Legs that have `addr`, in the order of the reads, and how many of them are no laggards.
    fn read_order(&self, addr: Addr) -> (Vec<usize>, usize) {
        let have = (0..self.0.members.len()).filter(|leg| self.is_on_member(*leg, addr));
        let have: Vec<usize> = have.collect();
        let paces = self.0.read_stats.borrow();
        let usual = |leg: &usize| paces.get(*leg).map_or(0, |p| p.usual_ns);
        let best = have.iter().map(usual).filter(|ns| *ns > 0).min().unwrap_or(0);
        let lags = |leg: &usize| usual(leg) > best.saturating_mul(LAG.0).saturating_add(LAG.1);
        let (late, mut order): (Vec<usize>, Vec<usize>) = have.into_iter().partition(lags);
        let quick = order.len();
        order.extend(late);
        (order, quick)
    }

    fn with_read_stats<T>(&self, leg: usize, f: impl FnOnce(&mut ReadStats) -> T) -> Option<T> {
        self.0.read_stats.borrow_mut().get_mut(leg).map(f)
    }

    async fn begin_read(&self, leg: usize, addr: Addr, to: &Rc<MemberReads>) -> Result<(), Fault> {
        let Some(medium) = self.0.members.get(leg).cloned() else { return Ok(()) };
        let (seg, wide) = (self.memory(addr).await?, self.block() as u64);
        let began = self.0.reactor.now();
        self.with_read_stats(leg, |p| (p.begun_ns, p.inflight) = (began, p.inflight + 1));
        let (volume, to) = (self.clone(), to.clone());
        // The caller may not wait for its end.
        self.0.reactor.spawn("fs-read", async move {
            let done = medium.read(addr * wide, seg.clone().into()).await;
            volume.with_read_stats(leg, |p| p.ended(done.is_ok(), volume.0.reactor.now() - began));
            let io_fault = |e| Fault::Io(e, format!("{}: block {addr}", medium.name()));
            to.completed.borrow_mut().push((leg, done.map(|()| seg).map_err(io_fault)));
            to.notify.notify_all();
        });
        Ok(())
    }

    /// A block of the WORM that `wrong` does not reject, and the legs that hold something else.
    pub(super) async fn read_members(
        &self,
        addr: Addr,
        wrong: impl Fn(&[u8]) -> Option<&'static str>,
    ) -> Result<(Seg, Vec<usize>), Fault> {
        let (order, quick) = self.read_order(addr);
        let answers = Rc::new(MemberReads::default());
        self.try_laggards(&order[quick..], addr, quick > 0).await;
        let (mut left, mut waiting, mut due) = (order.iter(), Vec::new(), None);
        let (mut bad, mut why) = (Vec::new(), None);
        loop {
            let now = self.0.reactor.now();
            if waiting.is_empty() || due.is_some_and(|due| now >= due) {
                if let Some(silent) = waiting.last() {
                    self.with_read_stats(*silent, |p| p.usual_ns = BAD_NS);
                }
                due = None;
                match left.next() {
                    Some(leg) => {
                        self.begin_read(*leg, addr, &answers).await?;
                        waiting.push(*leg);
                        let patience = self.with_read_stats(*leg, |p| p.timeout()).unwrap_or(0);
                        due = Some(self.0.reactor.now() + patience);
                    }
                    None if waiting.is_empty() => break,
                    None => {}
                }
            }
            let seen = answers.notify.count();
            let came = answers.completed.take();
            if came.is_empty() {
                let patience = due.map(|due| due.saturating_sub(self.0.reactor.now()));
                answers.notify.after_or(&self.0.reactor, seen, patience).await;
            }
            for (leg, done) in came {
                waiting.retain(|l| *l != leg);
                let name = self.0.members.get(leg).map_or("", |m| m.name());
                match done.map(|seg| (seg.with(&wrong), seg)) {
                    Ok((None, seg)) => return Ok((seg, bad)),
                    Ok((Some(text), _)) => {
                        bad.push(leg);
                        let text = format!("{name}: block {addr}: {text}");
                        why = Some(Fault::Corrupt(text));
                    }
                    Err(fault) => {
                        why.get_or_insert(fault);
                    }
                }
            }
        }
        Err(why.unwrap_or_else(|| {
            Fault::Corrupt(format!("block {addr} is on no device of the WORM that answers"))
        }))
    }

    /// Finds out whether laggards are quick again: one that has not answered is not read again.
    async fn try_laggards(&self, late: &[usize], addr: Addr, others: bool) {
        let now = self.0.reactor.now();
        for leg in late.iter().copied().filter(|_| others) {
            let due = |p: &mut ReadStats| p.inflight == 0 && now >= p.begun_ns + TRY_NS;
            if self.with_read_stats(leg, due) == Some(true) {
                // Only the duration of its answer is used.
                let _ = self.begin_read(leg, addr, &Rc::default()).await;
            }
        }
    }
}
