//! Disk in memory whose answers a test scripts.

use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bio::{Bio, Errno, Flags, Op, Status, Ticket};
use geom::{Core, Flow, Layer};

use super::Media;

/// How often a request looks whether the disk is still [`Mode::Stuck`], ns.
const LOOK_NS: u64 = 3_000_000;

/// Within 3 ms, in any order.
pub const SLOW: Mode = Mode::Within(3_000_000);

/// When and how a disk answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Mode {
    /// At once.
    #[default]
    Now,
    /// After so many ns.
    After(u64),
    /// After a time by chance, less than so many ns: in any order.
    Within(u64),
    /// When [`Disk::release`] is called.
    Hold,
    /// When another mode was set, a few ms later.
    Stuck,
    /// At once with this error.
    Fail(Errno),
    /// So often NoMem, then at once.
    NoMem(u32),
}

/// A request that a disk received.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Asked {
    pub op: Op,
    /// Where, bytes.
    pub offset: u64,
    /// How many bytes.
    pub length: u64,
    /// How.
    pub flags: Flags,
}

#[derive(Default)]
struct Inside {
    media: Media,
    mode: Mode,
    failing: u64,
    requests: Vec<Asked>,
    held: Vec<(u32, Ticket)>,
}

/// See the module.
#[derive(Default)]
pub struct Disk(Mutex<Inside>);

impl Disk {
    /// Of so many bytes of zeroes.
    pub fn new(bytes: u64) -> Arc<Disk> {
        let media = Media::zeroed(usize::try_from(bytes).expect("a disk that fits memory"));
        Arc::new(Disk(Mutex::new(Inside { media, ..Inside::default() })))
    }

    /// A [`SLOW`] one.
    pub fn slow(bytes: u64) -> Arc<Disk> {
        let disk = Disk::new(bytes);
        disk.set(SLOW);
        disk
    }

    fn inside(&self) -> MutexGuard<'_, Inside> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the mode of later answers.
    pub fn set(&self, mode: Mode) {
        self.inside().mode = mode;
    }

    /// So many requests of a thousand fail from now on; half of them are carried out.
    pub fn set_failing(&self, permille: u64) {
        self.inside().failing = permille;
    }

    /// Whether requests may fail by chance.
    pub fn is_failing(&self) -> bool {
        self.inside().failing > 0
    }

    /// Requests received since the last call.
    pub fn take_requests(&self) -> Vec<Asked> {
        std::mem::take(&mut self.inside().requests)
    }

    /// Bytes as they read.
    pub fn bytes(&self, at: usize, len: usize) -> Vec<u8> {
        self.inside().media.bytes[at..at + len].to_vec()
    }

    /// Changes the contents without a request.
    pub fn put(&self, at: usize, bytes: &[u8]) {
        self.inside().media.bytes[at..at + bytes.len()].copy_from_slice(bytes);
    }

    /// Resizes the medium; added bytes read as zeroes.
    pub fn resize(&self, bytes: usize) {
        self.inside().media.bytes.resize(bytes, 0);
    }

    /// Calls `f` with the medium and returns its result.
    pub fn with_media<R>(&self, f: impl FnOnce(&mut Media) -> R) -> R {
        f(&mut self.inside().media)
    }

    /// Requests that wait for [`Disk::release`].
    pub fn held(&self) -> usize {
        self.inside().held.len()
    }

    /// These, by core; the caller releases them.
    pub fn take_held(&self) -> Vec<(u32, Ticket)> {
        std::mem::take(&mut self.inside().held)
    }

    /// The first of these.
    pub fn take_first_held(&self) -> Option<Ticket> {
        let held = &mut self.inside().held;
        (!held.is_empty()).then(|| held.remove(0).1)
    }

    /// Lets all that is held end, in order; answers how many.
    pub fn release(&self, cores: &[Rc<Core>]) -> usize {
        let held = self.take_held();
        for (core, ticket) in &held {
            cores[*core as usize].wake(*ticket, 0);
        }
        held.len()
    }
}

impl Inside {
    fn answer(&mut self, bio: &mut Bio, core: &Core) -> Status {
        if self.failing == 0 || core.reactor().random() % 1000 >= self.failing {
            return self.media.carry_out(bio);
        }
        if !core.reactor().random().is_multiple_of(2) {
            self.media.carry_out(bio)?;
        }
        Err(Errno::Io)
    }
}

impl Layer for Disk {
    fn delete_ranges(&self) -> u32 {
        u32::MAX
    }

    fn start(&self, bio: &mut Bio, core: &Core) -> Flow {
        let inside = &mut *self.inside();
        if let Mode::NoMem(left) = &mut inside.mode
            && *left > 0
        {
            *left -= 1;
            return Flow::Done(Err(Errno::NoMem));
        }
        let Bio { op, offset, length, flags, .. } = *bio;
        inside.requests.push(Asked { op, offset, length, flags });
        match inside.mode {
            Mode::Now | Mode::NoMem(_) => return Flow::Done(inside.answer(bio, core)),
            Mode::Fail(error) => return Flow::Done(Err(error)),
            Mode::After(ns) => core.wake(bio.ticket(), ns),
            Mode::Within(ns) => core.wake(bio.ticket(), core.reactor().random() % ns.max(1)),
            Mode::Stuck => core.wake(bio.ticket(), LOOK_NS),
            Mode::Hold => inside.held.push((core.id(), bio.ticket())),
        }
        Flow::Wait
    }

    fn ready(&self, bio: &mut Bio, _: Result<u64, Errno>, core: &Core) -> Flow {
        let inside = &mut *self.inside();
        if inside.mode == Mode::Stuck {
            core.wake(bio.ticket(), LOOK_NS);
            return Flow::Wait;
        }
        Flow::Done(inside.answer(bio, core))
    }
}
