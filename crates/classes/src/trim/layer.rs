//! The data path of a queue of trims.
//!
//! ```text
//!   READ, FLUSH, GETATTR, MAP ------------------------------------> down
//!   DELETE ---> queued ---> done
//!          \--> the queue takes none, or it is ORDERED ---> as a write
//!   WRITE, WRITE ZEROES ---> nothing is known of the bytes -------> down
//!          \--> taken out of the queue ---------------------------> down
//!          \--> in flight ---> wait --ended--> again
//! ```
//!
//! Invariants
//!  L1  A delete is acknowledged without being sent only where the content of deleted bytes is not
//!      guaranteed. There the provider reports that they do not read as zeroes.
//!  L2  FLUSH and reads never wait, and never look at the queue.
//!  L3  An ORDERED delete is sent down: it is a barrier for others.

use std::sync::Arc;

use bio::{Bio, Errno, Flags, Op};
use geom::{Back, Core, Flow, Layer};

use super::queue::{DeleteDecision, Entry};
use super::shared::TrimShared;

pub(super) struct TrimLayer(pub(super) Arc<TrimShared>);

impl TrimLayer {
    #[inline]
    fn down(&self, core: &Core) -> Flow {
        self.0.begins(core.id() as usize);
        Flow::Down(self.0.below, 0)
    }

    #[inline]
    fn write(&self, bio: &mut Bio, core: &Core) -> Flow {
        for range in bio.ranges() {
            if self.0.delete_queue.near(&range) {
                let entry = self.0.delete_queue.write(&range, core.id() as usize, || bio.ticket());
                if entry == Entry::Wait {
                    return Flow::Wait;
                }
            }
        }
        self.down(core)
    }
}

impl Layer for TrimLayer {
    fn delete_ranges(&self) -> u32 {
        u32::MAX
    }

    #[inline]
    fn start(&self, bio: &mut Bio, core: &Core) -> Flow {
        match bio.op {
            Op::Write | Op::WriteZeroes => self.write(bio, core),
            Op::Delete => {
                let defers = self.0.defers && !bio.flags.has(Flags::ORDERED);
                match defers
                    && self.0.delete_queue.delete(bio.ranges(), core.now())
                        == DeleteDecision::Queued
                {
                    true => Flow::Done(Ok(())),
                    false => self.write(bio, core),
                }
            }
            Op::Read | Op::Flush | Op::GetAttr | Op::Map => self.down(core),
        }
    }

    /// The command that blocked the request has ended.
    fn ready(&self, bio: &mut Bio, _: Result<u64, Errno>, core: &Core) -> Flow {
        self.write(bio, core)
    }

    #[inline]
    fn done(&self, _: &mut Bio, _: u64, core: &Core) -> Back {
        self.0.ends(core.id() as usize);
        Back::Up
    }
}
