//! A modelled disk as a medium: it takes time, loses unflushed data, fails and hangs.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use bio::{Errno, Segs};
use fileserver::medium::Medium;
use geom::Local;
use reactor::model::{DiskModel, DiskOp, DiskShape, Timing};
use reactor::{Reactor, SeededRandom};

/// Bytes of a block of [`Disk::durable`].
const WIDE: u64 = 16 << 10;

/// Outlives the servers that use it.
pub struct Disk {
    name: String,
    model: RefCell<DiskModel>,
    under_way: RefCell<BTreeMap<u64, (u64, Vec<u8>)>>,
    next: Cell<u64>,
    random: RefCell<SeededRandom>,
    /// Reads under way, and most of them at a time.
    reads: Cell<(u32, u32)>,
    /// Reads that were begun.
    read: Cell<u64>,
    /// Answers nothing while set.
    pub hangs: Cell<bool>,
    /// Of a thousand operations so many fail.
    pub failing: Cell<u32>,
    /// Reads fail.
    pub unreadable: Cell<bool>,
    /// It shows so many bytes of itself, until it grows; 0: all.
    pub shows: Cell<u64>,
    /// Takes so much longer.
    pub slow_ns: Cell<u64>,
    /// What blocks of 16 KiB were before they were written since the last flush, if that is wanted.
    older: RefCell<Option<BTreeMap<u64, Vec<u8>>>>,
    /// Sees every write when it begins: where, and what.
    pub seen: RefCell<Option<Box<dyn Fn(u64, &[u8])>>>,
    /// Operations until the power of all disks fails; none for never.
    pub fuse: RefCell<Option<Rc<Cell<i64>>>>,
}

impl Disk {
    pub fn new(name: &str, size: u64, seed: u64) -> Rc<Disk> {
        let timing = Timing::Between { min_ns: 20_000, max_ns: 400_000 };
        let shape = DiskShape { size, timing, ..DiskShape::default() };
        Rc::new(Disk {
            name: name.into(),
            model: RefCell::new(DiskModel::new(shape, seed).unwrap()),
            under_way: RefCell::default(),
            next: Cell::new(0),
            random: RefCell::new(SeededRandom::new(seed ^ 0x5eed)),
            reads: Cell::default(),
            read: Cell::new(0),
            hangs: Cell::new(false),
            failing: Cell::new(0),
            unreadable: Cell::new(false),
            shows: Cell::new(0),
            slow_ns: Cell::new(0),
            older: RefCell::default(),
            seen: RefCell::default(),
            fuse: RefCell::default(),
        })
    }

    /// From now on [`Disk::durable`] can be called.
    pub fn remember(&self) {
        *self.older.borrow_mut() = Some(BTreeMap::new());
    }

    /// A block of 16 KiB as it would be found if no unflushed data survived.
    pub fn durable(&self, block: u64) -> Vec<u8> {
        if let Some(old) = self.older.borrow().as_ref().and_then(|o| o.get(&block)) {
            return old.clone();
        }
        let mut now = vec![0; WIDE as usize];
        self.model.borrow_mut().read(block * WIDE, &mut now).unwrap();
        now
    }

    fn keep_older(&self, at: u64, len: usize) {
        let blocks = at / WIDE..(at + len as u64).div_ceil(WIDE);
        for block in blocks.filter(|_| self.older.borrow().is_some()) {
            let old = self.durable(block);
            if let Some(older) = &mut *self.older.borrow_mut() {
                older.entry(block).or_insert(old);
            }
        }
    }

    fn forget_older(&self) {
        if let Some(older) = &mut *self.older.borrow_mut() {
            older.clear();
        }
    }

    /// The power fails: writes in flight may have arrived in part.
    pub fn power_cut(&self) {
        let mut model = self.model.borrow_mut();
        for (_, (at, data)) in std::mem::take(&mut *self.under_way.borrow_mut()) {
            model.tear(at, &data);
        }
        model.power_cut();
        self.forget_older();
        self.hangs.set(false);
    }

    /// Everything on it becomes zeros.
    pub fn wipe(&self) {
        let size = self.model.borrow().size();
        let mut model = self.model.borrow_mut();
        model.zero(0, size).unwrap();
        model.flush().unwrap();
    }

    /// Writes so far.
    pub fn writes(&self) -> u64 {
        self.next.get()
    }

    /// Reads so far.
    pub fn reads(&self) -> u64 {
        self.read.get()
    }

    /// Most reads that were under way at a time since the last call.
    pub fn most_reads(&self) -> u32 {
        let (now, most) = self.reads.get();
        self.reads.set((now, now));
        most
    }

    /// Changes bytes without the server's knowledge.
    pub fn with<R>(&self, f: impl FnOnce(&mut DiskModel) -> R) -> R {
        f(&mut self.model.borrow_mut())
    }

    fn burn(&self) -> bool {
        let fuse = self.fuse.borrow();
        let Some(fuse) = &*fuse else { return false };
        fuse.set(fuse.get() - 1);
        fuse.get() <= 0
    }

    async fn takes(&self, reactor: &Reactor, op: DiskOp, at: u64, len: u64) -> Result<(), Errno> {
        if self.burn() {
            // Nothing is answered any more.
            std::future::pending::<()>().await;
        }
        let end = self.model.borrow_mut().begin(reactor.now(), op, at, len) + self.slow_ns.get();
        reactor.sleep(end.saturating_sub(reactor.now())).await;
        while self.hangs.get() {
            reactor.sleep(5_000_000).await;
        }
        // A leg that lags may not have what another cannot read: reads are another test's.
        if op == DiskOp::Read && self.unreadable.get() {
            return Err(Errno::Io);
        }
        let fails = op != DiskOp::Read && self.random.borrow_mut().chance(self.failing.get());
        if fails { Err(Errno::Io) } else { Ok(()) }
    }
}

/// A disk as a server's reactor reaches it.
pub struct Plugged(pub Rc<Disk>, pub Reactor);

impl Medium for Plugged {
    fn name(&self) -> &str {
        &self.0.name
    }

    fn size(&self) -> u64 {
        let all = self.0.model.borrow().size();
        match self.0.shows.get() {
            0 => all,
            some => some.min(all),
        }
    }

    fn read(&self, at: u64, into: Segs) -> Local<'_, Result<(), Errno>> {
        Box::pin(async move {
            let (now, most) = self.0.reads.get();
            self.0.reads.set((now + 1, most.max(now + 1)));
            self.0.read.set(self.0.read.get() + 1);
            let done = self.0.takes(&self.1, DiskOp::Read, at, into.len() as u64).await;
            let (now, most) = self.0.reads.get();
            self.0.reads.set((now - 1, most));
            done?;
            let mut out = vec![0; into.len()];
            let n = self.0.model.borrow_mut().read(at, &mut out)?;
            if n < out.len() {
                return Err(Errno::Io);
            }
            into.copy_from(0, &out);
            Ok(())
        })
    }

    fn write(&self, at: u64, from: Segs) -> Local<'_, Result<(), Errno>> {
        Box::pin(async move {
            if let Some(seen) = &*self.0.seen.borrow() {
                seen(at, &from.to_vec());
            }
            let id = self.0.next.replace(self.0.next.get() + 1);
            self.0.under_way.borrow_mut().insert(id, (at, from.to_vec()));
            let done = self.0.takes(&self.1, DiskOp::Write, at, from.len() as u64).await;
            // Memory that was lent for the write must not have changed meanwhile.
            let sent = self.0.under_way.borrow_mut().remove(&id);
            let Some((_, sent)) = sent else { return Err(Errno::Io) };
            assert!(sent == from.to_vec(), "memory of a write under way was changed");
            done?;
            self.0.keep_older(at, sent.len());
            self.0.model.borrow_mut().write(at, &sent, false)
        })
    }

    fn flush(&self) -> Local<'_, Result<(), Errno>> {
        Box::pin(async move {
            self.0.takes(&self.1, DiskOp::Flush, 0, 0).await?;
            self.0.forget_older();
            self.0.model.borrow_mut().flush()
        })
    }
}
