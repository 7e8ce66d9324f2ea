//! Event loops, one thread per core, through which the data path reaches the kernel.
//!
//! * [`Reactor`]: the handle on a core's loop. [`Reactor::turn`] does prepared work ([`Prepare`]),
//!   gathers completions, reports them by [`Token`], fires timers and runs tasks.
//! * Data path: [`Reactor::read`], [`Reactor::write`] and their like on [`File`]s. No future and
//!   no allocation for each; memory lent to the kernel stays lent until the completion was reaped.
//! * Conversations: [`Reactor::spawn`], [`Listener`], [`Stream`], [`Mailbox`].
//! * [`Channel`]: whole messages of a descriptor through which the kernel sends requests.
//! * [`Link`]: whole Ethernet frames of one type at an interface.
//! * [`ScsiNode`]: commands to a SCSI device of this machine.
//! * [`clock`]: units of the clock.
//! * Ports: io_uring where the kernel lets us, epoll and a few threads where not, and [`sim`]: a
//!   seeded world with a virtual clock, links and disks ([`model`]) that fail on request.
//!
//! `unsafe` code is allowed in `backend/` only, where memory is shared with the kernel.

mod address;
mod backend;
mod channel;
pub mod clock;
mod closing;
mod file;
mod link;
mod mailbox;
pub mod model;
mod net;
mod ops;
mod prepare;
mod random;
mod reactor;
mod scsi;
mod signal;
pub mod sim;
mod socket;
mod tasks;
mod timers;
mod turn;
mod wakeup;

pub use address::{Address, INTERFACE_MAX, NoAddress, UNIX_PATH_MAX};
pub use backend::{PortChoice, PortKind, PortReport};
pub use channel::{Channel, ChannelEnd};
pub use closing::{close_elsewhere, is_closed_within, wait_closed};
pub use file::{File, FileFacts, Inline, OpenHow, Run};
pub use link::{
    ETHERNET_LEN, FRAME_MIN, FRAMES_QUEUED_MAX, Link, LinkCounts, LinkFacts, LinkMode,
    check_interface,
};
pub use mailbox::{MAILBOX_MESSAGES_MAX, Mailbox, Mailer, SendError};
pub use net::{Listener, Stream, UnixListener};
pub use ops::{IOVECS_MAX, OPS_MAX, Token};
pub use prepare::Prepare;
pub use random::SeededRandom;
pub use reactor::{Config, Reactor, clock as monotonic_ns};
pub use scsi::{
    BlockingScsiNode, SCSI_NODE_COMMANDS_MAX, SENSE_MAX, ScsiAnswer, ScsiNode, ScsiRequest,
    take_block_device,
};
pub use signal::Signal;
pub use socket::{Parcel, check_unix_path, has_unix_listener};
pub use tasks::{TASK_POLLS_PER_TURN, TaskHandle, running_task};
pub use timers::TimerId;
pub use turn::{LIGHT_TURN_NS, TIMERS_PER_TURN, TurnReport, WaitFor};
