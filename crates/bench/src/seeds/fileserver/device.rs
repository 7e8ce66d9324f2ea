//! The paper's devices, in virtual time. There is a target that answers from its memory or fetches
//! units from a spindle, a link of so many bytes a second, a disk with seeks.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

use bio::{Errno, Segs};
use fileserver::medium::Medium;
use geom::Local;
use reactor::Reactor;

/// Contents are kept in pages; one that holds the same byte everywhere costs nothing.
const PAGE: usize = 4096;
/// A turn of the simulated world, which each answer takes: its mean, ns.
pub const TURN_NS: u64 = 1_800;

enum Page {
    Fill(u8),
    Bytes(Box<[u8]>),
}

/// How long a device takes.
#[derive(Clone, Copy, Default)]
pub struct Shape {
    /// From a request to its answer, beside everything else, ns.
    pub round_ns: u64,
    /// Reads are done in units of so many bytes, each fetched once, in so many ns; any number of
    /// them at a time.
    pub fetch: Option<(u64, u64)>,
    /// One request at a time: ps a byte.
    pub ps_per_byte: u64,
    /// One request at a time: ns when it begins elsewhere than the last one ended, and ps a byte
    /// then.
    pub seek: Option<(u64, u64)>,
}

/// Outlives the volumes on it.
pub struct Device {
    name: &'static str,
    size: u64,
    clock: Reactor,
    pub shape: Cell<Shape>,
    pages: RefCell<HashMap<u64, Page>>,
    fetched: RefCell<HashMap<u64, u64>>,
    /// When the requests so far will have ended, and the position of the head.
    free_at: Cell<u64>,
    head: Cell<u64>,
    /// Time that it was at work, ns, and bytes of blocks that were written.
    pub busy: Cell<u64>,
    pub written: Cell<u64>,
}

impl Device {
    pub fn new(clock: &Reactor, name: &'static str, size: u64, shape: Shape) -> Rc<Device> {
        Rc::new(Device {
            name,
            size,
            clock: clock.clone(),
            shape: Cell::new(shape),
            pages: RefCell::default(),
            fetched: RefCell::default(),
            free_at: Cell::new(0),
            head: Cell::new(0),
            busy: Cell::new(0),
            written: Cell::new(0),
        })
    }

    /// Nothing is in its memory any more.
    pub fn cool(&self) {
        self.fetched.borrow_mut().clear();
    }

    /// Until it answers.
    async fn takes(&self, at: u64, len: u64, reads: bool) {
        let (now, shape) = (self.clock.now(), self.shape.get());
        let mut begun = now;
        let moves = shape.seek.filter(|_| at != self.head.get());
        let (seek_ns, ps) = moves.unwrap_or((0, shape.ps_per_byte));
        let work = seek_ns + len * ps / 1000;
        if work > 0 {
            begun = now.max(self.free_at.get()) + work;
            self.free_at.set(begun);
            self.busy.set(self.busy.get() + work);
        }
        self.head.set(at + len);
        if let (Some((unit, ns)), true) = (shape.fetch, reads) {
            let mut fetched = self.fetched.borrow_mut();
            for n in at / unit..(at + len).div_ceil(unit) {
                begun = begun.max(*fetched.entry(n).or_insert(now + ns));
            }
        }
        let end = begun + shape.round_ns.saturating_sub(TURN_NS);
        self.clock.sleep(end.saturating_sub(now)).await;
    }

    fn keep(&self, at: u64, bytes: &[u8]) {
        let mut pages = self.pages.borrow_mut();
        for (n, some) in (at / PAGE as u64..).zip(bytes.chunks(PAGE)) {
            let first = some.first().copied().unwrap_or(0);
            let page = if some.iter().all(|b| *b == first) {
                Page::Fill(first)
            } else {
                Page::Bytes(some.into())
            };
            pages.insert(n, page);
        }
    }

    fn find(&self, at: u64, into: &mut [u8]) {
        let pages = self.pages.borrow();
        for (n, some) in (at / PAGE as u64..).zip(into.chunks_mut(PAGE)) {
            match pages.get(&n) {
                None => some.fill(0),
                Some(Page::Fill(byte)) => some.fill(*byte),
                Some(Page::Bytes(bytes)) => some.copy_from_slice(&bytes[..some.len()]),
            }
        }
    }
}

/// A device as volumes reach it.
pub struct Plugged(pub Rc<Device>);

impl Medium for Plugged {
    fn name(&self) -> &str {
        self.0.name
    }

    fn size(&self) -> u64 {
        self.0.size
    }

    fn read(&self, at: u64, into: Segs) -> Local<'_, Result<(), Errno>> {
        Box::pin(async move {
            self.0.takes(at, into.len() as u64, true).await;
            let mut out = vec![0; into.len()];
            self.0.find(at, &mut out);
            into.copy_from(0, &out);
            Ok(())
        })
    }

    fn write(&self, at: u64, from: Segs) -> Local<'_, Result<(), Errno>> {
        Box::pin(async move {
            self.0.takes(at, from.len() as u64, false).await;
            self.0.keep(at, &from.to_vec());
            self.0.written.set(self.0.written.get() + from.len() as u64);
            Ok(())
        })
    }

    fn flush(&self) -> Local<'_, Result<(), Errno>> {
        Box::pin(async move { Ok(()) })
    }
}
