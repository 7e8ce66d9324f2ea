//! Initialisation of a member's log (L3 of [`super`]).

use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::task::Poll;

use bio::{Errno, Flags, Op, Pool, PoolConfig, Segs};
use geom::{Core, Edge};

use super::super::shared::{Path, VolumeShared};
use super::super::task_util::{MemberRequest, RequestContext, part, send_all};
use super::{Log, LogPosition};
use crate::raid::imsm::ppl::{self, HEADER};

/// Memory of a thread's own for units; if none is free, a row waits for a unit being written.
const UNITS_BYTES: usize = 1 << 20;

/// Bytes that are read of a log, or cleared, at once.
const STEP: usize = 64 << 10;

thread_local! {
    static UNITS: Pool = Pool::new(PoolConfig { limit_bytes: UNITS_BYTES });
}
/// How a member's log is made ready.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Begin {
    /// Its present content is of no use.
    Anew,
    /// It continues behind the replayed unit.
    Behind,
    /// It continues, and speaks of no row any more.
    Over,
}
impl Log {
    /// A request to a place in a member's log.
    pub(super) async fn io(
        &self,
        core: &Rc<Core>,
        path: &Path,
        op: Op,
        at: u64,
        data: Segs,
        flags: Flags,
    ) -> Result<(), Errno> {
        let at = path.offset.saturating_add(self.place.at).saturating_add(at);
        let (slot, edge, len) = (0, path.edge, data.len() as u64);
        let how = RequestContext { flags, ..RequestContext::default() };
        let ended =
            send_all(core, vec![MemberRequest { slot, edge, op, at, len, data }], how).await;
        ended.into_iter().try_for_each(|(_, status)| status)
    }

    /// Makes a member's log ready for use.
    pub(super) async fn begin(
        &self,
        core: &Rc<Core>,
        slot: usize,
        path: &Path,
        how: Begin,
    ) -> Result<(), Errno> {
        let start = path.offset.saturating_add(self.place.at);
        let log = match how {
            Begin::Anew => None,
            Begin::Behind | Begin::Over => {
                let area = area(core, path.edge, start, self.place.bytes).await?;
                ppl::Log::read(&area, self.place.signature).ok()
            }
        };
        let edge = path.edge;
        let mut next = LogPosition { edge, at: 0, generation: 1 };
        if let Some(ppl::Log::Unit { header, at }) = log {
            next.at = at.saturating_add(header.unit_bytes());
            next.generation = header.generation.saturating_add(1);
            if how == Begin::Behind && !self.is_in_doubt() {
                self.set_next(slot, next);
                return Ok(());
            }
        } else {
            // The start of the log is kept until a header is written there. It may hold an
            // incomplete unit, which means that there is nothing to replay.
            let mut at = HEADER as u64;
            while at < self.place.bytes {
                let len = (self.place.bytes - at).min(STEP as u64);
                let zeroes = memory(len as usize).await;
                zeroes.fill(0, zeroes.len(), 0);
                self.io(core, path, Op::Write, at, zeroes, Flags::default()).await?;
                at += len;
            }
            match core.flush(edge).await {
                Ok(()) | Err(Errno::NotSup) => {}
                Err(error) => return Err(error),
            }
        }
        let next = self.put(core, path, next, Vec::new(), &[]).await?;
        self.set_next(slot, next);
        Ok(())
    }
    /// L3: the logs of all members in order are begun. The error is the slots of those that
    /// failed it, and why.
    pub(crate) async fn ready(
        &self,
        core: &Rc<Core>,
        shared: &VolumeShared,
    ) -> Vec<(usize, Errno)> {
        let table = shared.table(core.id());
        let mut failed = Vec::new();
        for slot in 0..self.slots.len() {
            let Some(path) = table.good(slot).filter(|path| !self.is_ready(slot, path.edge)) else {
                continue;
            };
            let how = if self.replayed.load(SeqCst) { Begin::Behind } else { Begin::Over };
            if let Err(error) = self.begin(core, slot, path, how).await {
                failed.push((slot, error));
            }
        }
        failed
    }

    /// L3: the log of a member that is to be filled.
    pub(in crate::raid::volume) async fn anew(
        &self,
        core: &Rc<Core>,
        slot: usize,
        path: &Path,
    ) -> Result<(), Errno> {
        self.begin(core, slot, path, Begin::Anew).await
    }

    /// Writes the present state of the doubt to all logs that are in use, as soon as possible.
    pub(crate) fn write_doubt(shared: &Arc<VolumeShared>) {
        let shared = shared.clone();
        let notifier = shared.notifier.clone();
        notifier.call(
            0,
            Box::new(move |core| {
                let (on, core) = (core, core.clone());
                let name = shared.name.clone();
                on.spawn_for("raid log", &name, async move {
                    let Some(log) = shared.log() else { return };
                    let table = shared.table(core.id());
                    for slot in 0..log.slots.len() {
                        let ready = |path: &&Path| log.is_ready(slot, path.edge);
                        if table.good(slot).filter(ready).is_none() {
                            continue;
                        }
                        if log.enter(&core, &shared, slot, &[], &[]).await.is_ok() {
                            log.leave(slot);
                        }
                    }
                });
            }),
        );
    }
}

/// Memory for a unit. A holder writes it and waits for nothing else.
pub(super) async fn memory(len: usize) -> Segs {
    poll_fn(|cx| {
        UNITS.with(|pool| match Segs::alloc(pool, len) {
            Some(memory) => Poll::Ready(memory),
            None => {
                pool.wake_on_free(cx.waker());
                Poll::Pending
            }
        })
    })
    .await
}

/// All bytes of a log.
pub(in crate::raid::volume) async fn area(
    core: &Rc<Core>,
    edge: Edge,
    start: u64,
    bytes: u64,
) -> Result<Vec<u8>, Errno> {
    let mut all = Vec::new();
    while (all.len() as u64) < bytes {
        let len = (bytes - all.len() as u64).min(STEP as u64);
        let at = start.saturating_add(all.len() as u64);
        let into = memory(len as usize).await;
        let (slot, op, data) = (0, Op::Read, part(&into, 0, len));
        for (_, status) in send_all(
            core,
            vec![MemberRequest { slot, edge, op, at, len, data }],
            RequestContext::default(),
        )
        .await
        {
            status?;
        }
        all.extend_from_slice(&into.to_vec());
    }
    Ok(all)
}
