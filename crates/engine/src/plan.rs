//! The plan of a command: the resources and data that it needs, and how it is executed. The unit's
//! handler makes it (`handlers/mod.rs`).

use bio::Op;

use crate::task::set::Span;

/// A run of blocks to read or write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Blocks {
    /// `Op::Read` or `Op::Write`.
    pub op: Op,
    pub lba: u64,
    /// Blocks; the range was checked, the length is within [`crate::TRANSFER_MAX`].
    pub blocks: u32,
    /// On stable storage before GOOD, or from stable storage.
    pub fua: bool,
}

/// How a command is executed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Run {
    /// [`crate::handlers::Handler::now`].
    Now,
    /// One request below.
    Blocks(Blocks),
    /// [`crate::handlers::Handler::task`].
    Task,
}

/// Resources and data that a command needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Plan {
    /// Bytes that the command takes from the initiator.
    pub out: u32,
    /// The initiator must send exactly `out` bytes: the length determines the command's meaning.
    pub exact: bool,
    /// `out` is the most that is taken; less is as good, down to so many bytes.
    pub up_to: Option<u32>,
    /// Bytes that the command may send: allocation length, or the blocks' bytes.
    pub reply: u32,
    /// The unit must be there.
    pub medium: bool,
    /// The medium or its state changes: refused when write protected.
    pub writes: bool,
    /// How it is executed.
    pub run: Run,
    /// Blocks that it touches; `None`: those of [`Run::Blocks`], else all when it needs the medium.
    /// [`Span::Nothing`] for one that claims blocks itself ([`crate::handlers::Job::exclusive`]).
    pub span: Option<Span>,
    /// No other command touches those blocks while it runs, on any core and nexus.
    pub exclusive: bool,
}

impl Plan {
    /// Executed at once, without data.
    pub const NOTHING: Plan = Plan {
        out: 0,
        exact: false,
        up_to: None,
        reply: 0,
        medium: false,
        writes: false,
        run: Run::Now,
        span: None,
        exclusive: false,
    };

    /// Answered at once with at most `reply` bytes.
    pub const fn reply(reply: u32) -> Plan {
        Plan { reply, ..Plan::NOTHING }
    }

    /// A conversation that takes `out` bytes.
    pub const fn task(out: u32) -> Plan {
        Plan { out, medium: true, run: Run::Task, ..Plan::NOTHING }
    }

    /// The same, touching these blocks only.
    pub const fn at(self, lba: u64, blocks: u64) -> Plan {
        Plan { span: Some(Span::Range { lba, blocks }), ..self }
    }

    /// The same; it claims the blocks that it touches when it runs
    /// ([`crate::handlers::Job::exclusive`]).
    pub const fn claiming(self) -> Plan {
        Plan { span: Some(Span::Nothing), ..self }
    }

    /// The same, alone with the blocks that it touches.
    pub const fn alone(self) -> Plan {
        Plan { exclusive: true, ..self }
    }

    /// Bytes that the initiator must send at least.
    pub(crate) fn least_out(&self) -> u32 {
        self.up_to.unwrap_or(self.out)
    }

    /// Blocks that it touches.
    pub(crate) fn span(&self) -> Span {
        match (self.span, self.run) {
            (Some(span), _) => span,
            (None, Run::Blocks(b)) => Span::Range { lba: b.lba, blocks: u64::from(b.blocks) },
            (None, _) if self.medium => Span::Whole,
            (None, _) => Span::Nothing,
        }
    }

    /// The same, for a command that changes the medium.
    pub const fn writing(self) -> Plan {
        Plan { writes: true, ..self }
    }
}
