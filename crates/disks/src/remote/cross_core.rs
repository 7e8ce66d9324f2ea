//! Requests of a core without a connection: carried out by the core that has one.
//!
//! A request's memory never leaves its core, so data are copied here. It is the price of servers
//! that take one connection only.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use bio::{Bio, Errno, Op, Segs, Ticket};
use geom::{Core, Notifier};

use super::disk::Remote;
use super::protocol::{Job, Protocol, RequestOwner, Transfer};
use super::{Outcome, client};

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

/// A bit in the numbers of forwarded requests. Requests of a core's own connection do not have it.
const FORWARDED: u64 = 1 << 63;

/// Whether a number is that of a forwarded request. The number of connections may have changed
/// since the request was sent.
pub(super) fn is_forwarded(number: u64) -> bool {
    number & FORWARDED != 0
}

/// Sends a request to the core that has the connection; answers its number here.
pub(super) fn begin<P: Protocol>(
    disk: &Arc<Remote<P>>,
    bio: &Bio,
    command: P::Command,
    data: &Segs,
    core: &Core,
) -> u64 {
    let number = WAITING.with_borrow_mut(|all| {
        all.next += 1;
        let number = FORWARDED | all.next;
        all.entries.insert(number, Entry::Waits(bio.ticket()));
        number
    });
    let is_write = P::transfer(&command) == Transfer::ToServer;
    let bytes = if is_write { data.to_vec() } else { Vec::new() };
    let fail_fast = bio.flags.has(bio::Flags::FAIL_FAST);
    let at = core.id();
    let (home, disk) = ((at % disk.connection_cores()) as usize, disk.clone());
    let notifier = disk.notifier.clone();
    notifier.call(
        home,
        Box::new(move |core: &Rc<Core>| {
            let owner = RequestOwner::OtherCore { core: at, number };
            if let Err(error) = carry_out(&disk, owner, command, &bytes, fail_fast, core) {
                answer(&disk.notifier, at, number, Outcome::failed(error), Vec::new());
            }
        }),
    );
    number
}

fn carry_out<P: Protocol>(
    disk: &Arc<Remote<P>>,
    owner: RequestOwner,
    command: P::Command,
    bytes: &[u8],
    fail_fast: bool,
    core: &Rc<Core>,
) -> Result<(), Errno> {
    let client = client::of(disk, core).ok_or(Errno::NxIo)?;
    let len = match P::transfer(&command) {
        Transfer::None => 0,
        Transfer::ToServer => bytes.len(),
        Transfer::FromServer(len) => usize::try_from(len).unwrap_or(usize::MAX),
    };
    let data = Segs::alloc(core.pool(), len).ok_or(Errno::NoMem)?;
    data.copy_from(0, bytes);
    client.begin(Job::new(owner, command, data), fail_fast, core.now()).map(drop)
}

/// Hands a request that has ended back to its core, with the data that were read.
pub(super) fn answer(notifier: &Notifier, at: u32, number: u64, outcome: Outcome, data: Vec<u8>) {
    let back = move |core: &Rc<Core>| {
        let brought = Entry::Ended(ForwardedResult { outcome, data });
        let was = WAITING.with_borrow_mut(|all| all.entries.insert(number, brought));
        let woken = matches!(was, Some(Entry::Waits(ticket)) if core.restart(ticket));
        if !woken {
            WAITING.with_borrow_mut(|all| all.entries.remove(&number));
        }
    };
    notifier.call(at as usize, Box::new(back));
}

/// Takes the result of a request that was sent away; data that was read is copied to it.
pub(super) fn take(number: u64, bio: &Bio) -> Option<Outcome> {
    let entry = WAITING.with_borrow_mut(|all| all.entries.remove(&number));
    let Some(Entry::Ended(brought)) = entry else { return None };
    if bio.op == Op::Read && brought.outcome.status.is_ok() {
        bio.data.copy_from(0, &brought.data);
    }
    Some(brought.outcome)
}
