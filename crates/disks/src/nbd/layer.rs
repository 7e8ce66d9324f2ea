//! Data path of an NBD disk: requests of the graph become requests of the protocol.
//!
//! Invariants
//!  N1  A request with FUA ends when its bytes are stable: by the server's own FUA, or by a FLUSH
//!      behind it.
//!  N2  WRITE ZEROES that the server cannot do is done by writing zeroes.
//!  N3  A FLUSH covers all requests that were acknowledged on any core. There is one connection, or
//!      the server reports that its connections share a cache (CAN_MULTI_CONN).
//!  N4  A FLUSH fails once when our own server has ended since the last one and something was
//!      written. Data that the server had acknowledged and not stored is lost, and nothing else
//!      reports that.
//!  N5  The number of a request is in its `value` until it ends.
//!  N6  A stop in order ends our own server only after a FLUSH of the disk itself has covered what
//!      the server acknowledged. An error of that FLUSH is reported by the next one of a user.

use std::sync::Arc;

use bio::{Attr, Bio, Errno, Flags, Op};
use geom::{Core, Flow, Layer};
use wire::nbd::codes::{command_flag, export_flag, kind};

use super::RANGE_BYTES_MAX;
use super::codec::NbdCommand;
use super::export::Export;
use crate::backing::{ZERO_PIECE_BYTES, zeroes};
use crate::remote::{Outcome, Remote};

pub(crate) struct NbdLayer {
    pub(crate) disk: Arc<Remote<Export>>,
}

impl NbdLayer {
    fn export(&self) -> &Export {
        &self.disk.protocol
    }

    fn send(&self, bio: &mut Bio, command: NbdCommand, core: &Core) -> Flow {
        match self.disk.send(bio, command, core) {
            Ok(number) => {
                bio.value = Some(Attr::Int(number));
                Flow::Wait
            }
            Err(error) => self.failed(bio, error),
        }
    }

    fn failed(&self, bio: &mut Bio, error: Errno) -> Flow {
        bio.value = None;
        bio.completed = 0;
        if bio.op == Op::WriteZeroes {
            bio.data.clear();
        }
        Flow::Done(Err(error))
    }

    fn command_for(&self, bio: &Bio) -> Option<NbdCommand> {
        // A request without extended headers has 32 bits.
        let len = if bio.op == Op::Map { bio.length.min(RANGE_BYTES_MAX) } else { bio.length };
        let mut command = NbdCommand::of(bio.op, bio.offset, len)?;
        let writes = matches!(bio.op, Op::Write | Op::WriteZeroes);
        if writes && bio.flags.has(Flags::FUA) && self.export().has(export_flag::SEND_FUA) {
            command.flags |= command_flag::FUA;
        }
        if bio.op == Op::WriteZeroes && bio.flags.has(Flags::NO_HOLE) {
            command.flags |= command_flag::NO_HOLE;
        }
        Some(command)
    }

    /// N2: the next piece; `completed` counts the bytes written.
    fn write_zeroes(&self, bio: &mut Bio, core: &Core) -> Flow {
        let len = ZERO_PIECE_BYTES.min(bio.length.saturating_sub(bio.completed));
        if !zeroes(bio, core, len as usize) {
            return self.failed(bio, Errno::NoMem);
        }
        let mut command =
            NbdCommand { kind: kind::WRITE, flags: 0, offset: bio.offset + bio.completed, len };
        if bio.flags.has(Flags::FUA) && self.export().has(export_flag::SEND_FUA) {
            command.flags |= command_flag::FUA;
        }
        self.send(bio, command, core)
    }

    /// N1: the data are written; answers a FLUSH where one is needed.
    fn settle(&self, bio: &mut Bio, core: &Core) -> Flow {
        bio.completed = bio.length;
        let durable = bio.flags.has(Flags::FUA) && !self.export().has(export_flag::SEND_FUA);
        match durable && self.export().has(export_flag::SEND_FLUSH) {
            true => self.send(bio, NbdCommand::FLUSH, core),
            false => Flow::Done(Ok(())),
        }
    }

    fn ended(&self, bio: &mut Bio, outcome: Outcome, core: &Core) -> Flow {
        bio.value = None;
        // Also a write that a FLUSH has overtaken, and data that a failed FLUSH should have
        // covered.
        if matches!(bio.op, Op::Write | Op::WriteZeroes | Op::Delete)
            || (bio.op == Op::Flush && outcome.status.is_err())
        {
            self.export().mark_dirty();
        }
        if let Err(error) = outcome.status {
            return self.failed(bio, error);
        }
        match bio.op {
            Op::Write if bio.completed < bio.length => self.settle(bio, core),
            Op::WriteZeroes if bio.completed < bio.length => {
                bio.completed += match bio.data.is_empty() {
                    true => bio.length,
                    false => bio.data.len() as u64,
                };
                if bio.completed < bio.length {
                    return self.write_zeroes(bio, core);
                }
                bio.data.clear();
                self.settle(bio, core)
            }
            Op::Flush => {
                // N4: the server may have ended during the request.
                let status = self.export().flush_ends(bio.completed);
                bio.completed = 0;
                Flow::Done(status)
            }
            Op::Map => {
                let (run, state) = outcome.run.unwrap_or((bio.length, bio::MAPPED));
                let unit = u64::from(self.disk.sector.max(1));
                // A sector that is a hole in part is mapped.
                let (run, state) = match run / unit * unit {
                    0 => (unit, bio::MAPPED),
                    aligned if state == bio::HOLE => (aligned, state),
                    _ => (run.next_multiple_of(unit), state),
                };
                bio.completed = run.min(bio.length);
                bio.value = Some(Attr::Int(state));
                Flow::Done(Ok(()))
            }
            _ => Flow::Done(Ok(())),
        }
    }
}

impl Layer for NbdLayer {
    fn start(&self, bio: &mut Bio, core: &Core) -> Flow {
        if matches!(bio.op, Op::Write | Op::WriteZeroes | Op::Delete) {
            self.export().mark_dirty();
        }
        let flag = match bio.op {
            Op::Flush if !self.export().has(export_flag::SEND_FLUSH) => return Flow::Done(Ok(())),
            Op::WriteZeroes if !self.export().has(export_flag::SEND_WRITE_ZEROES) => {
                bio.completed = 0;
                return self.write_zeroes(bio, core);
            }
            Op::Delete => self.export().has(export_flag::SEND_TRIM),
            Op::Map => self.export().maps,
            _ => true,
        };
        bio.completed = match bio.op {
            Op::Map => bio.completed,
            Op::Flush => match self.export().flush_begins() {
                Ok(deaths) => deaths,
                Err(error) => return Flow::Done(Err(error)),
            },
            _ => 0,
        };
        match self.command_for(bio) {
            Some(command) if flag => self.send(bio, command, core),
            Some(_) => Flow::Done(Err(Errno::NotSup)),
            None => Flow::Done(Err(Errno::NoAttr)),
        }
    }

    fn ready(&self, bio: &mut Bio, _: Result<u64, Errno>, core: &Core) -> Flow {
        let Some(Attr::Int(number)) = bio.value else { return self.failed(bio, Errno::NxIo) };
        match self.disk.take(number, bio, core) {
            Some(outcome) => self.ended(bio, outcome, core),
            None => self.failed(bio, Errno::NxIo),
        }
    }
}
