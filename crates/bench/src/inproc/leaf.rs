//! Disks that keep nothing and differ in the way to their answer.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use bio::sync::Mutex;
use bio::{Bio, Errno, Ticket};
use geom::{Class, Core, Flow, Geom, Layer};
use reactor::Mailer;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// At once, on the core.
    Direct,
    /// By a thread of the disk's own: two switches between threads for a command.
    Thread,
    /// At once, after one system call that does nothing.
    Call,
}

/// Mailboxes of the cores, by their numbers: where a disk's thread answers.
pub(crate) type Boxes = Arc<Mutex<BTreeMap<u32, Mailer<Ticket>>>>;

pub(crate) struct Leaf {
    way: Way,
    work: Sender<(u32, Ticket)>,
}

impl Leaf {
    /// A disk, with its thread when it needs one; the thread ends with the disk.
    pub fn new(way: Way, boxes: &Boxes) -> std::io::Result<(Leaf, Option<JoinHandle<()>>)> {
        let (work, asked) = channel();
        let thread = match way {
            Way::Thread => {
                let boxes = boxes.clone();
                let name = "bench-disk".to_owned();
                let thread = std::thread::Builder::new().name(name);
                Some(thread.spawn(move || answer(&asked, &boxes))?)
            }
            Way::Direct | Way::Call => None,
        };
        Ok((Leaf { way, work }, thread))
    }
}

fn answer(asked: &Receiver<(u32, Ticket)>, boxes: &Boxes) {
    while let Ok((core, ticket)) = asked.recv() {
        let to = boxes.lock().get(&core).cloned();
        // A core that has ended waits for nothing.
        let _ = to.map(|to| to.send(ticket));
    }
}

impl Layer for Leaf {
    fn start(&self, bio: &mut Bio, core: &Core) -> Flow {
        match self.way {
            Way::Direct => Flow::Done(Ok(())),
            Way::Call => {
                // The cheapest there is, and never answered from user space.
                let _ = rustix::process::getppid();
                Flow::Done(Ok(()))
            }
            Way::Thread => match self.work.send((core.id(), bio.ticket())) {
                Ok(()) => Flow::Wait,
                Err(_) => Flow::Done(Err(Errno::NxIo)),
            },
        }
    }

    fn ready(&self, _: &mut Bio, _: Result<u64, Errno>, _: &Core) -> Flow {
        Flow::Done(Ok(()))
    }
}

/// Holds a leaf; permits every open and close.
pub(crate) struct Plain;

impl Geom for Plain {}

pub(crate) const CLASS: &str = "bench-disk";

pub(crate) struct LeafClass;

impl Class for LeafClass {
    fn name(&self) -> &'static str {
        CLASS
    }

    fn doc(&self) -> &'static str {
        "Disks that keep nothing, to measure what is above them."
    }
}
