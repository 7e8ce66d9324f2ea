//! The task set of a unit: determines the order of its commands (SAM-5 section 8). This is pure
//! code: no clock, no lock, no messages; `task_set/cross_core.rs` has those.
//!
//! Nearly all commands are SIMPLE and touch blocks that no command claims exclusively. While there
//! are no others the set is PLAIN: it has no entries, commands run where they arrive, and the cores
//! share nothing. The first command that needs an order makes it STRICT: from then on every command
//! becomes an entry. The commands that run already are the crowd; each core waits for the end of
//! its own ones.
//!
//! ```text
//!          gather()                counted_out(), once a core
//!   PLAIN ----------> GATHERING -----------------------------> STRICT
//!     ^                                                          |
//!     +---------- calm(): nothing needs an order any more -------+
//!
//!   entry:  add() --> DORMANT --wake()--> ENABLED --leave()--> removed
//!             |          +----------------leave()-----------^
//!             +------------------------> ENABLED
//! ```
//!
//! Invariants
//!  O1  SIMPLE runs when no older ORDERED or HEAD OF QUEUE of its group is there. ORDERED runs when
//!      nothing older of its group is, HEAD OF QUEUE and ACA at once. The group is the unit (TST
//!      000b) or the nexus (TST 001b). Of HEAD OF QUEUE, too, only older ones are waited for (SAM-5
//!      8.6): later ones do not delay a waiting command.
//!  O2  An exclusive entry and one that touches the same blocks are never enabled at once,
//!      regardless of their groups and attributes.
//!  O3  Commands of one nexus that overlap, one of them writing, run in the order in which they
//!      arrived when QUEUE ALGORITHM MODIFIER of the unit is 0h.
//!  O4  ORDERED waits for the whole crowd, an exclusive entry for those of it that touch blocks.
//!  O5  `waits` of a dormant entry is the number of entries that it waits for. An entry that jumps
//!      the queue waits for enabled entries only, so there is no circular wait.
//!  O6  While an auto contingent allegiance of its group lasts, no dormant entry is enabled.
//!  O7  Numbers below `floor` belong to commands of an earlier strict time: they are crowd.

use crate::task::TaskAttribute;

/// Blocks that a command touches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Span {
    /// None: it looks at no block, or claims them itself ([`crate::handlers::Job::exclusive`]).
    Nothing,
    /// A run of blocks.
    Range {
        /// First.
        lba: u64,
        blocks: u64,
    },
    Whole,
}

impl Span {
    /// They have a block in common.
    pub(crate) fn meets(self, other: Span) -> bool {
        match (self, other) {
            (Span::Nothing, _) | (_, Span::Nothing) => false,
            (Span::Whole, Span::Whole) => true,
            (Span::Whole, Span::Range { blocks, .. })
            | (Span::Range { blocks, .. }, Span::Whole) => blocks > 0,
            (Span::Range { lba: a, blocks: n }, Span::Range { lba: b, blocks: m }) => {
                let apart = a.saturating_add(n) <= b || b.saturating_add(m) <= a;
                n > 0 && m > 0 && !apart
            }
        }
    }
}

/// A request to enter the task set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Request {
    /// Entries of one group are ordered among each other.
    pub group: u64,
    /// The nexus, regardless of the group.
    pub nexus: u64,
    pub attribute: TaskAttribute,
    /// Blocks that it touches.
    pub span: Span,
    /// No other entry may touch them meanwhile.
    pub exclusive: bool,
    /// It changes them.
    pub writes: bool,
    /// O3 holds for it.
    pub restricted: bool,
    /// Part of a command that runs: it is outside the order of commands.
    pub is_claim: bool,
}

impl Request {
    /// Could run in a plain set.
    pub fn is_plain(&self) -> bool {
        self.attribute == TaskAttribute::Simple
            && !self.exclusive
            && !self.restricted
            && !self.is_claim
    }

    /// Waits for enabled entries only (O5).
    fn jumps(&self) -> bool {
        self.is_claim || matches!(self.attribute, TaskAttribute::HeadOfQueue | TaskAttribute::Aca)
    }

    /// O2, O3.
    fn conflicts(&self, other: &Request) -> bool {
        let careful = self.restricted
            && other.restricted
            && self.nexus == other.nexus
            && (self.writes || other.writes);
        (self.exclusive || other.exclusive || careful) && self.span.meets(other.span)
    }

    fn is_head(&self) -> bool {
        !self.is_claim && self.attribute == TaskAttribute::HeadOfQueue
    }

    fn is_ordered(&self) -> bool {
        !self.is_claim && self.attribute == TaskAttribute::Ordered
    }

    fn is_simple(&self) -> bool {
        !self.is_claim && self.attribute == TaskAttribute::Simple
    }
}

struct Entry<O> {
    id: u64,
    request: Request,
    waits: u32,
    enabled: bool,
    owner: O,
}

impl<O> Entry<O> {
    /// Waits for an entry that was there before it (O1, O2).
    fn waits_for_older(&self, older: &Entry<O>) -> bool {
        let (me, it) = (&self.request, &older.request);
        let ordered = me.group == it.group
            && !it.is_claim
            && (me.is_ordered() || me.is_simple() && (it.is_ordered() || it.is_head()));
        ordered || me.conflicts(it) && (older.enabled || !me.jumps())
    }

    /// Being dormant, waits for an entry that arrived after it (O2).
    fn waits_for_newer(&self, newer: &Entry<O>) -> bool {
        newer.request.jumps() && self.request.conflicts(&newer.request)
    }
}

/// An auto contingent allegiance (SAM-5 5.10).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct EstablishedAca {
    group: u64,
    nexus: u64,
    /// A command of the ACA attribute is there.
    busy: bool,
}

/// Effect of a contingent allegiance on a new command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum AcaEffect {
    /// None concerns it.
    None,
    /// It established one, and this command has the ACA attribute: it runs.
    Runs,
    /// It established one: ACA ACTIVE.
    Own,
    /// Another nexus of its group established one: ACA ACTIVE when NACA is set, else BUSY.
    OtherNexus,
}

/// The commands of a unit that are in order.
pub(crate) struct TaskSet<O> {
    strict: bool,
    /// Cores that have commands of the crowd.
    draining_cores: u32,
    /// Cores that have commands of the crowd that touch blocks.
    draining_span_cores: u32,
    /// By growing number.
    entries: Vec<Entry<O>>,
    next: u64,
    first_ordered: u64,
    /// Something that needs an order arrived since the last look of [`TaskSet::calm`].
    touched: bool,
    acas: Vec<EstablishedAca>,
}

impl<O> Default for TaskSet<O> {
    fn default() -> TaskSet<O> {
        TaskSet {
            strict: false,
            draining_cores: 0,
            draining_span_cores: 0,
            entries: Vec::new(),
            next: 1,
            first_ordered: 1,
            touched: false,
            acas: Vec::new(),
        }
    }
}

impl<O: Clone> TaskSet<O> {
    /// Commands become entries.
    pub fn is_strict(&self) -> bool {
        self.strict
    }

    /// From now on the set is strict, and `cores` count their commands out: those without a number
    /// and those with one below the answer (O7).
    pub fn gather(&mut self, cores: u32) -> u64 {
        self.strict = true;
        (self.draining_cores, self.draining_span_cores) = (cores, cores);
        self.first_ordered
    }

    /// A core has no command of the crowd left; with `spans`, none that touches blocks.
    pub fn counted_out(&mut self, spans: bool, ready: &mut Vec<O>) {
        let count = if spans { &mut self.draining_span_cores } else { &mut self.draining_cores };
        *count = count.saturating_sub(1);
        if *count == 0 {
            self.wake(ready);
        }
    }

    /// O4, O6.
    fn may(&self, request: &Request) -> bool {
        let crowd = request.is_ordered() && self.draining_cores > 0
            || request.exclusive && self.draining_span_cores > 0;
        let held = !request.is_claim
            && request.attribute != TaskAttribute::Aca
            && self.acas.iter().any(|c| c.group == request.group);
        !crowd && !held
    }

    /// Lets a command in; its number, and whether it is enabled already. The set is strict.
    pub fn add(&mut self, request: Request, owner: O) -> (u64, bool) {
        let id = self.next;
        self.next += 1;
        self.touched |= !request.is_plain();
        let mut entry = Entry { id, request, waits: 0, enabled: false, owner };
        let waits = self.entries.iter().filter(|f| entry.waits_for_older(f)).count();
        entry.waits = u32::try_from(waits).unwrap_or(u32::MAX);
        for dormant in self.entries.iter_mut().filter(|g| !g.enabled) {
            dormant.waits += u32::from(dormant.waits_for_newer(&entry));
        }
        entry.enabled = waits == 0 && self.may(&request);
        let enabled = entry.enabled;
        self.entries.push(entry);
        (id, enabled)
    }

    /// An entry has ended, or is not wanted any more. `ready` gets those that are enabled by it.
    pub fn leave(&mut self, id: u64, ready: &mut Vec<O>) {
        let Ok(at) = self.entries.binary_search_by_key(&id, |e| e.id) else { return };
        let gone = self.entries.remove(at);
        for dormant in self.entries.iter_mut().filter(|g| !g.enabled) {
            let waited = match dormant.id > id {
                true => dormant.waits_for_older(&gone),
                false => dormant.waits_for_newer(&gone),
            };
            dormant.waits = dormant.waits.saturating_sub(u32::from(waited));
        }
        self.wake(ready);
    }

    fn wake(&mut self, ready: &mut Vec<O>) {
        for at in 0..self.entries.len() {
            let due = self
                .entries
                .get(at)
                .is_some_and(|e| !e.enabled && e.waits == 0 && self.may(&e.request));
            if due && let Some(entry) = self.entries.get_mut(at) {
                entry.enabled = true;
                ready.push(entry.owner.clone());
            }
        }
    }

    /// Looks whether the set may be plain again, and makes it so. Nothing that needs an order
    /// arrived since the last look, and all that runs could run in a plain set.
    pub fn try_relax(&mut self) -> bool {
        let touched = std::mem::take(&mut self.touched);
        let plain = |e: &Entry<O>| e.enabled && e.request.is_plain();
        if touched
            || self.draining_cores + self.draining_span_cores > 0
            || !self.entries.iter().all(plain)
        {
            return false;
        }
        self.entries.clear();
        self.first_ordered = self.next;
        self.strict = false;
        true
    }

    /// Establishes a contingent allegiance; false when the group has one.
    pub fn establish(&mut self, group: u64, nexus: u64) -> bool {
        if self.acas.iter().any(|c| c.group == group) {
            return false;
        }
        self.acas.push(EstablishedAca { group, nexus, busy: false });
        true
    }

    /// Ends those that `which` picks by the nexus that established them; true when there was one.
    pub fn end_acas(&mut self, which: impl Fn(u64) -> bool, ready: &mut Vec<O>) -> bool {
        let before = self.acas.len();
        self.acas.retain(|c| !which(c.nexus));
        let ended = self.acas.len() < before;
        if ended {
            self.wake(ready);
        }
        ended
    }

    /// Any contingent allegiance.
    pub fn has_aca(&self) -> bool {
        !self.acas.is_empty()
    }

    /// A command arrives. One of the ACA attribute that runs is alone until
    /// [`TaskSet::aca_ended`].
    pub fn aca_effect(&mut self, group: u64, nexus: u64, aca: bool) -> AcaEffect {
        let Some(c) = self.acas.iter_mut().find(|c| c.group == group) else {
            return AcaEffect::None;
        };
        if c.nexus != nexus {
            return AcaEffect::OtherNexus;
        }
        if !aca || c.busy {
            return AcaEffect::Own;
        }
        c.busy = true;
        AcaEffect::Runs
    }

    /// The command of the ACA attribute has ended.
    pub fn aca_ended(&mut self, nexus: u64) {
        self.acas.iter_mut().filter(|c| c.nexus == nexus).for_each(|c| c.busy = false);
    }
}

#[cfg(test)]
mod tests;
