//! Requests of a core without a connection: carried out by the core that has one.
//!
//! A request's memory never leaves its core, so data are copied here. It is the price of servers
//! that take one connection only.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use bio::{Bio, Errno, Op, Segs, Ticket};
use geom::Core;
use wire::nbd::codes::kind;

use super::client;
use super::disk::Disk;
use super::job::{Job, NbdCommand, RequestOwner};
use crate::remote::Outcome;

/// The result of a request.
struct ForwardedResult {
    outcome: Outcome,
    data: Vec<u8>,
}

enum Entry {
    Waits(Ticket),
    Ended(ForwardedResult),
}

#[derive(Default)]
struct ForwardedRequests {
    next: u64,
    entries: HashMap<u64, Entry>,
}

thread_local! {
    static WAITING: RefCell<ForwardedRequests> = RefCell::default();
}

/// Sends a request to the core that has the connection; answers its number here.
pub(crate) fn begin(
    disk: &Arc<Disk>,
    bio: &Bio,
    command: NbdCommand,
    data: &Segs,
    core: &Core,
) -> u64 {
    let number = WAITING.with_borrow_mut(|all| {
        all.next += 1;
        all.entries.insert(all.next, Entry::Waits(bio.ticket()));
        all.next
    });
    let bytes = if command.kind == kind::WRITE { data.to_vec() } else { Vec::new() };
    let fail_fast = bio.flags.has(bio::Flags::FAIL_FAST);
    let who = RequestOwner::OtherCore { core: core.id(), number };
    let (home, disk) = ((core.id() % disk.connection_cores) as usize, disk.clone());
    let notifier = disk.notifier.clone();
    notifier.call(
        home,
        Box::new(move |core: &Rc<Core>| {
            if let Err(error) = carry_out(&disk, who, command, &bytes, fail_fast, core) {
                let RequestOwner::OtherCore { core: at, number } = who else { return };
                let job = Job::new(who, command, Segs::new());
                answer(&disk, at, number, Outcome::failed(error), &job);
            }
        }),
    );
    number
}

fn carry_out(
    disk: &Arc<Disk>,
    who: RequestOwner,
    command: NbdCommand,
    bytes: &[u8],
    fail_fast: bool,
    core: &Rc<Core>,
) -> Result<(), Errno> {
    let client = client::of(disk, core).ok_or(Errno::NxIo)?;
    let len = match command.kind {
        kind::READ | kind::WRITE => usize::try_from(command.len).unwrap_or(usize::MAX),
        _ => 0,
    };
    let data = Segs::alloc(core.pool(), len).ok_or(Errno::NoMem)?;
    data.copy_from(0, bytes);
    client.begin(Job::new(who, command, data), fail_fast, core.now()).map(drop)
}

/// Hands a request that has ended back to the core that it came from.
pub(crate) fn answer(disk: &Disk, at: u32, number: u64, outcome: Outcome, job: &Job) {
    let is_read = job.command.kind == kind::READ && outcome.status.is_ok();
    let data = if is_read { job.data.to_vec() } else { Vec::new() };
    let back = move |core: &Rc<Core>| {
        let brought = Entry::Ended(ForwardedResult { outcome, data });
        let was = WAITING.with_borrow_mut(|all| all.entries.insert(number, brought));
        let woken = matches!(was, Some(Entry::Waits(ticket)) if core.restart(ticket));
        if !woken {
            WAITING.with_borrow_mut(|all| all.entries.remove(&number));
        }
    };
    disk.notifier.call(at as usize, Box::new(back));
}

/// Takes the result of a request that was sent away; data that was read is copied to it.
pub(crate) fn take(number: u64, bio: &Bio) -> Option<Outcome> {
    let entry = WAITING.with_borrow_mut(|all| all.entries.remove(&number));
    let Some(Entry::Ended(brought)) = entry else { return None };
    if bio.op == Op::Read && brought.outcome.status.is_ok() {
        bio.data.copy_from(0, &brought.data);
    }
    Some(brought.outcome)
}
