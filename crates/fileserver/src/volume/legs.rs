//! Reads from the WORM: a slow, hanging or dead leg does not delay a read that another leg answers.
//!
//! ```text
//!   the first leg of the config string that is no laggard -> right: done
//!        |  an error, something else, or nothing for a while
//!        +-> the next one is asked beside it -> the first right answer is used
//! ```
//! How long a leg takes is known from its last reads. A laggard is asked last, and now and then
//! beside another one, so that it is noticed when it is quick again.

use std::cell::RefCell;
use std::rc::Rc;

use bio::Seg;

use super::Volume;
use crate::fault::{Addr, Fault};
use crate::notify::Notify;

/// A laggard takes so many times as long as the quickest leg, and so many ns more.
const LAG: (u64, u64) = (4, 1_000_000);
/// A leg has so many times as long as it usually takes before the next one is asked too; at least
/// and at most so many ns.
const PATIENCE: (u64, u64, u64) = (4, 20_000_000, 200_000_000);
/// An error, or no answer in time, counts as a read that took so long, ns.
const BAD_NS: u64 = 1_000_000_000;
/// How often a laggard is tried, ns.
const TRY_NS: u64 = 5_000_000_000;

/// How a leg answers reads.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pace {
    /// How long a read takes, ns; 0: none ended yet.
    pub usual: u64,
    /// When the last one began.
    asked: u64,
    /// Reads that have not ended.
    under_way: u32,
}

impl Pace {
    fn ended(&mut self, good: bool, took: u64) {
        self.under_way = self.under_way.saturating_sub(1);
        self.usual = match self.usual {
            _ if !good => BAD_NS,
            // Nothing was known, or it is another leg now.
            usual if usual == 0 || took < usual / 4 || usual >= BAD_NS => took.max(1),
            usual => (usual * 7 + took) / 8,
        };
    }

    fn patience(&self) -> u64 {
        self.usual.saturating_mul(PATIENCE.0).clamp(PATIENCE.1, PATIENCE.2)
    }
}

/// The answers of the legs that were asked.
#[derive(Default)]
struct Answers {
    came: RefCell<Vec<(usize, Result<Seg, Fault>)>>,
    notify: Notify,
}

impl Volume {
    /// Legs that have `addr`, in the order in which they are asked, and how many of them are no
    /// laggards.
    fn askable(&self, addr: Addr) -> (Vec<usize>, usize) {
        let have = (0..self.0.legs.len()).filter(|leg| self.on_leg(*leg, addr));
        let have: Vec<usize> = have.collect();
        let paces = self.0.paces.borrow();
        let usual = |leg: &usize| paces.get(*leg).map_or(0, |p| p.usual);
        let best = have.iter().map(usual).filter(|ns| *ns > 0).min().unwrap_or(0);
        let lags = |leg: &usize| usual(leg) > best.saturating_mul(LAG.0).saturating_add(LAG.1);
        let (late, mut order): (Vec<usize>, Vec<usize>) = have.into_iter().partition(lags);
        let quick = order.len();
        order.extend(late);
        (order, quick)
    }

    fn pace<T>(&self, leg: usize, f: impl FnOnce(&mut Pace) -> T) -> Option<T> {
        self.0.paces.borrow_mut().get_mut(leg).map(f)
    }

    async fn ask(&self, leg: usize, addr: Addr, to: &Rc<Answers>) -> Result<(), Fault> {
        let Some(medium) = self.0.legs.get(leg).cloned() else { return Ok(()) };
        let (seg, wide) = (self.memory().await?, self.block() as u64);
        let began = self.0.reactor.now();
        self.pace(leg, |p| (p.asked, p.under_way) = (began, p.under_way + 1));
        let (volume, to) = (self.clone(), to.clone());
        // The caller may not wait for its end.
        self.0.reactor.spawn("fs-read", async move {
            let done = medium.read(addr * wide, seg.clone().into()).await;
            volume.pace(leg, |p| p.ended(done.is_ok(), volume.0.reactor.now() - began));
            let told = |e| Fault::Io(e, format!("{}: block {addr}", medium.name()));
            to.came.borrow_mut().push((leg, done.map(|()| seg).map_err(told)));
            to.notify.notify_all();
        });
        Ok(())
    }

    /// A block of the WORM that `wrong` has nothing to say against, and the legs that hold
    /// something else.
    pub(super) async fn read_legs(
        &self,
        addr: Addr,
        wrong: impl Fn(&[u8]) -> Option<&'static str>,
    ) -> Result<(Seg, Vec<usize>), Fault> {
        let (order, quick) = self.askable(addr);
        let answers = Rc::new(Answers::default());
        self.try_laggards(&order[quick..], addr, quick > 0).await;
        let (mut left, mut waiting, mut due) = (order.iter(), Vec::new(), None);
        let (mut bad, mut why) = (Vec::new(), None);
        loop {
            let now = self.0.reactor.now();
            if waiting.is_empty() || due.is_some_and(|due| now >= due) {
                if let Some(silent) = waiting.last() {
                    self.pace(*silent, |p| p.usual = BAD_NS);
                }
                due = None;
                match left.next() {
                    Some(leg) => {
                        self.ask(*leg, addr, &answers).await?;
                        waiting.push(*leg);
                        let patience = self.pace(*leg, |p| p.patience()).unwrap_or(0);
                        due = Some(self.0.reactor.now() + patience);
                    }
                    None if waiting.is_empty() => break,
                    None => {}
                }
            }
            let seen = answers.notify.count();
            let came = answers.came.take();
            if came.is_empty() {
                let patience = due.map(|due| due.saturating_sub(self.0.reactor.now()));
                answers.notify.after_or(&self.0.reactor, seen, patience).await;
            }
            for (leg, done) in came {
                waiting.retain(|l| *l != leg);
                let name = self.0.legs.get(leg).map_or("", |m| m.name());
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

    /// Finds out whether laggards are quick again: one that has not answered is not asked more.
    async fn try_laggards(&self, late: &[usize], addr: Addr, others: bool) {
        let now = self.0.reactor.now();
        for leg in late.iter().copied().filter(|_| others) {
            let due = |p: &mut Pace| p.under_way == 0 && now >= p.asked + TRY_NS;
            if self.pace(leg, due) == Some(true) {
                // Only the duration of its answer is used.
                let _ = self.ask(leg, addr, &Rc::default()).await;
            }
        }
    }
}
