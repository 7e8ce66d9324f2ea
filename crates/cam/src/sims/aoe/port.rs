//! Port: one core's part of a bus, with its sockets at the interfaces, and the protocol over them.
//!
//! Each core has sockets of its own, because a command's data never leave its core. All of them
//! receive every frame; tags identify the core and command of a frame.
//!
//! ```text
//!   frames --receive--> engine --ended commands--> CAM --> their owners, which make new requests
//!                                                                        |
//!   wire <---one call for all frames-- engine <--------------------------+
//! ```
//! The task that reads does all of that in one step, so that a fast target does not run out of
//! requests. Requests that are made elsewhere on the core leave before the next call to the kernel.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::task::{Poll, Waker};

use bio::Segs;
use geom::Core;
use reactor::{Link, Prepare, TaskHandle};
use wire::aoe::{ETHERTYPE, Mac, sectors_of_mtu};

use super::engine::{CommandReply, Engine, NoReply, Rules, Wire};
use super::{Aoe, Inner, address_of};
use crate::ccb::CamStatus;

/// Frames that are read before others of the core have their turn.
const FRAMES_A_TURN: usize = 64;
/// How often interfaces are looked at, ns.
const LOOK_NS: u64 = 1_000_000_000;
/// Time between the first two discoveries, ns. A question may be lost, as are all frames that are
/// sent while a link starts or a switch learns.
const SOON_NS: u64 = 1_000_000_000;
/// Duration of the queries for configured targets until the silent ones are reported, ns.
const ABSENT_NS: u64 = 5_000_000_000;
/// How often the config string of a target is requested, how often an answer is looked for each
/// time, and how long after each look, ns.
const MARK_TRIES: u32 = 3;
const MARK_LOOKS: u32 = 40;
const MARK_LOOK_NS: u64 = 5_000_000;
/// How soon a frame that an interface did not take is sent again, ns.
const FULL_NS: u64 = 50_000;
/// Time between two checks whether commands of removed targets have ended, ns.
const DRAIN_LOOK_NS: u64 = 5_000_000;

struct Interface {
    name: String,
    /// The configuration does not name it: it is as one that is down.
    removed: Cell<bool>,
    /// The task that reads its frames.
    reader: RefCell<Option<TaskHandle>>,
    link: RefCell<Option<Link>>,
    /// Most sectors of a frame; 0: it is down.
    sectors: Cell<u32>,
    mac: Cell<Mac>,
}

impl Interface {
    fn look(&self, core: &Core) {
        let mut link = self.link.borrow_mut();
        if self.removed.get() {
            self.sectors.set(0);
            *link = None;
            return;
        }
        if link.is_none() {
            *link = core.reactor().link(&self.name, ETHERTYPE).ok();
        }
        match link.as_ref().map(Link::facts) {
            Some(Ok(facts)) => {
                let mtu = usize::try_from(facts.mtu).unwrap_or(0);
                self.sectors.set(if facts.up { sectors_of_mtu(mtu).into() } else { 0 });
                self.mac.set(Mac(facts.mac));
            }
            _ => {
                self.sectors.set(0);
                *link = None;
            }
        }
    }

    fn stop_reading(&self) {
        self.reader.take().iter().for_each(TaskHandle::abort);
    }
}

/// The interfaces of a core.
#[derive(Default)]
struct Interfaces {
    /// By number.
    all: RefCell<Vec<Rc<Interface>>>,
    scratch: RefCell<Segs>,
}

impl Interfaces {
    /// The interface of a number, which is the next one if it is new.
    fn side(&self, at: usize, name: &str) -> Rc<Interface> {
        let mut all = self.all.borrow_mut();
        if let Some(side) = all.get(at) {
            return side.clone();
        }
        let side = Rc::new(Interface {
            name: name.to_owned(),
            removed: Cell::new(true),
            reader: RefCell::default(),
            link: RefCell::default(),
            sectors: Cell::default(),
            mac: Cell::default(),
        });
        all.push(side.clone());
        side
    }
}

impl Wire for &Interfaces {
    fn links(&self) -> usize {
        self.all.borrow().len()
    }

    fn sectors(&self, link: usize) -> u32 {
        self.all.borrow().get(link).map_or(0, |side| side.sectors.get())
    }

    fn mac(&self, link: usize) -> Mac {
        self.all.borrow().get(link).map_or(Mac::default(), |side| side.mac.get())
    }

    fn send(&mut self, link: usize, head: &[u8], data: Option<(&Segs, usize, usize)>) {
        let all = self.all.borrow();
        let Some(side) = all.get(link) else { return };
        let link = side.link.borrow();
        let Some(link) = link.as_ref() else { return };
        let mut rest = self.scratch.borrow_mut();
        rest.clear();
        if let Some((data, at, len)) = data {
            let _in_range = data.slice_into(at, len, &mut rest);
        }
        // A frame without space is lost, as on a wire.
        let _ = link.send(head, &rest);
        rest.clear();
    }
}

/// See the module.
pub(super) struct Port {
    core: std::rc::Weak<Core>,
    inner: Weak<Inner>,
    number: usize,
    interfaces: Interfaces,
    engine: RefCell<Engine>,
    /// There is something to send or to end. Unless the port is pumping, its pump is prepared.
    has_work: Cell<bool>,
    /// The port is pumping.
    is_pumping: Cell<bool>,
    clock: RefCell<Option<Waker>>,
    /// When the clock wakes at the latest, ns; 0: it is awake.
    armed_ns: Cell<u64>,
    /// Tasks that wait for orders to be settled: each looks for its own.
    settled: RefCell<Vec<Waker>>,
    tasks: RefCell<Vec<TaskHandle>>,
}

thread_local! {
    /// The ports of this thread, by bus and core.
    static PORTS: RefCell<HashMap<(u64, u32), Rc<Port>>> = RefCell::default();
}

pub(super) fn port(bus: u64, core: &Core) -> Option<Rc<Port>> {
    PORTS.with_borrow(|ports| ports.get(&(bus, core.id())).cloned())
}

/// Makes the port of a bus on this core.
pub(super) fn open(inner: &Arc<Inner>, core: &Rc<Core>) {
    let number = core.id() as usize;
    let engine = Engine::new(number, inner.rules().clone(), inner.shared.clone(), core.now());
    let port = Rc::new(Port {
        core: Rc::downgrade(core),
        inner: Arc::downgrade(inner),
        number,
        interfaces: Interfaces::default(),
        engine: RefCell::new(engine),
        has_work: Cell::default(),
        is_pumping: Cell::default(),
        clock: RefCell::default(),
        armed_ns: Cell::default(),
        settled: RefCell::default(),
        tasks: RefCell::default(),
    });
    port.update_interfaces(inner, core);
    PORTS.with_borrow_mut(|ports| ports.insert((inner.number, core.id()), port.clone()));
    let tasks = vec![
        core.reactor().spawn("aoe clock", clock(port.clone())),
        core.reactor().spawn("aoe look", look(port.clone())),
    ];
    *port.tasks.borrow_mut() = tasks;
}

/// The rules and interfaces of a bus are others. `is_of_places`: also which targets and interfaces
/// there are. Then removed targets end their commands, and the last core has the bus scanned.
pub(super) fn change(inner: &Arc<Inner>, rules: Rules, is_of_places: bool, core: &Rc<Core>) {
    let port = port(inner.number, core);
    if let Some(port) = &port {
        port.update_interfaces(inner, core);
        port.with(|engine, _| engine.set_rules(rules, core.now()));
    }
    if !is_of_places {
        return;
    }
    let (inner, core) = (inner.clone(), core.clone());
    drop(core.clone().reactor().spawn("aoe drain", async move {
        let drains = |port: &Rc<Port>| port.is_open() && port.engine.borrow_mut().is_draining();
        while port.as_ref().is_some_and(drains) {
            core.reactor().sleep(DRAIN_LOOK_NS).await;
        }
        if inner.shared.end_leaving() {
            inner.rescan();
        }
    }));
}

/// Ends the port of a bus on this core.
pub(super) fn close(bus: u64, core: &Core) {
    let port = PORTS.with_borrow_mut(|ports| ports.remove(&(bus, core.id())));
    let Some(port) = port else { return };
    port.tasks.take().iter().for_each(TaskHandle::abort);
    port.interfaces.all.borrow().iter().for_each(|side| side.stop_reading());
}

impl Port {
    /// A closed port has no tasks, and sends nothing.
    fn is_open(&self) -> bool {
        !self.tasks.borrow().is_empty()
    }

    /// Uses the interfaces that the configuration names.
    fn update_interfaces(self: &Rc<Self>, inner: &Inner, core: &Rc<Core>) {
        let numbers = inner.interfaces.lock();
        for at in 0..numbers.count() {
            let Some(name) = numbers.get(at) else { continue };
            let side = self.interfaces.side(at, name);
            let is_removed = !numbers.is_named(at);
            if side.removed.replace(is_removed) == is_removed {
                continue;
            }
            side.look(core);
            side.stop_reading();
            if !is_removed {
                let task = core.reactor().spawn("aoe link", read(self.clone(), side.clone(), at));
                *side.reader.borrow_mut() = Some(task);
            }
            self.with(|engine, _| engine.forget_paths(at, core.now()));
        }
    }

    /// Calls the protocol engine; the consequences are handled before the next call to the kernel.
    pub(super) fn with<R>(self: &Rc<Self>, f: impl FnOnce(&mut Engine, &mut dyn Wire) -> R) -> R {
        let out = f(&mut self.engine.borrow_mut(), &mut &self.interfaces);
        self.schedule_pump();
        out
    }

    fn schedule_pump(self: &Rc<Self>) {
        if !self.has_work.replace(true) && !self.is_pumping.get() {
            self.prepare_pump();
        }
    }

    fn prepare_pump(self: &Rc<Self>) {
        if let Some(core) = self.core.upgrade() {
            core.reactor().prepare(self.clone());
        }
    }

    /// Reports ended commands to their owners, and sends the frames that may be sent: those of
    /// requests that the owners make meanwhile leave in the same call.
    fn pump(self: &Rc<Self>) {
        let Some(core) = self.core.upgrade() else { return };
        self.is_pumping.set(true);
        self.report_to_cam(&core);
        self.has_work.set(false);
        let now = core.reactor().fresh_now();
        self.engine.borrow_mut().pump(&mut &self.interfaces, now);
        self.flush(now);
        // Commands that ended because they were due.
        self.report_to_cam(&core);
        self.is_pumping.set(false);
        if self.has_work.get() {
            self.prepare_pump();
        }
        if self.is_due_sooner() {
            let waker = self.clock.borrow_mut().take();
            waker.into_iter().for_each(Waker::wake);
        }
    }

    /// Whether something is due before the clock wakes.
    fn is_due_sooner(&self) -> bool {
        self.engine.borrow().due() < self.armed_ns.get()
    }

    fn flush(&self, now: u64) {
        for side in self.interfaces.all.borrow().iter() {
            let link = side.link.borrow();
            let Some(link) = link.as_ref() else { continue };
            if link.queued() > 0 && link.flush().is_err() {
                side.sectors.set(0);
            }
            if link.queued() > 0 {
                self.engine.borrow_mut().schedule(now + FULL_NS);
            }
        }
    }

    /// E6: reports silent targets to CAM, and learns which of them CAM trusts.
    fn report_doubted(self: &Rc<Self>, inner: &Inner, core: &Rc<Core>) {
        loop {
            let doubted = self.engine.borrow_mut().take_doubted();
            let Some(address) = doubted else { break };
            match inner.unit(address) {
                Some(unit) => unit.doubt(core),
                // The disk was exchanged, and may be back. Each core has found the old one.
                None => {
                    inner.rescan_if_missing(address);
                    self.engine.borrow_mut().accept_replacement(address, core.now());
                }
            }
        }
        let doubtful = self.engine.borrow().doubtful();
        for address in doubtful {
            let unit = inner.unit(address);
            if !unit.is_some_and(|unit| unit.inspect(|device| device.is_in_doubt())) {
                self.engine.borrow_mut().trust(address, core.now());
                self.schedule_pump();
            }
        }
    }

    fn report_to_cam(self: &Rc<Self>, core: &Rc<Core>) {
        let Some(inner) = self.inner.upgrade() else { return };
        self.report_doubted(&inner, core);
        loop {
            let ended = self.engine.borrow_mut().take_ended();
            let Some((id, address, outcome)) = ended else { break };
            if let Some(unit) = inner.unit(address) {
                unit.done(id, outcome, core);
            }
        }
        let (found, counts) = {
            let mut engine = self.engine.borrow_mut();
            while let Some(address) = engine.take_resized() {
                inner.rescan_target(address);
            }
            if engine.has_settled() {
                self.settled.take().into_iter().for_each(Waker::wake);
            }
            (engine.take_found(), engine.counts())
        };
        if found {
            // Each core detects losses by itself: another core may not have noticed them.
            inner.rescan();
            inner.shared.count(self.number, counts);
        }
    }
}

impl Prepare for Port {
    fn prepare(self: Rc<Self>) {
        if self.has_work.get() && self.is_open() {
            self.pump();
        }
    }
}

/// Pumps when something is due.
async fn clock(port: Rc<Port>) {
    loop {
        let Some(core) = port.core.upgrade() else { return };
        port.armed_ns.set(0);
        port.pump();
        let (due, now) = (port.engine.borrow().due(), core.reactor().fresh_now());
        port.armed_ns.set(due);
        let mut sleep = pin!(core.reactor().sleep(due.saturating_sub(now).min(LOOK_NS)));
        poll_fn(|cx| {
            if port.is_due_sooner() {
                return Poll::Ready(());
            }
            *port.clock.borrow_mut() = Some(cx.waker().clone());
            sleep.as_mut().poll(cx)
        })
        .await;
    }
}

/// Reads received frames of an interface.
async fn read(port: Rc<Port>, side: Rc<Interface>, at: usize) {
    loop {
        let Some(core) = port.core.upgrade() else { return };
        let link = side.link.borrow().clone();
        let Some(link) = link else {
            core.reactor().sleep(LOOK_NS).await;
            continue;
        };
        if link.ready().await.is_err() {
            side.sectors.set(0);
            core.reactor().sleep(LOOK_NS).await;
            side.look(&core);
            continue;
        }
        let now = core.reactor().fresh_now();
        let mut take = |frame: &[u8]| {
            port.engine.borrow_mut().receive(at, frame, &&port.interfaces, now);
        };
        if link.receive(FRAMES_A_TURN, &mut take).is_err() {
            side.sectors.set(0);
            core.reactor().sleep(LOOK_NS).await;
            side.look(&core);
        }
        port.pump();
    }
}

/// Watches the interfaces, and discovers targets at intervals. They are short at first, after an
/// edit and when an interface is up again, and then grow until `discovery_ns` are between two
/// discoveries.
async fn look(port: Rc<Port>) {
    let (mut next_ns, mut pause_ns, mut up) = (0, SOON_NS, 0);
    let (mut begun_ns, mut edits) = (0, None);
    loop {
        let Some(core) = port.core.upgrade() else { return };
        let edits_now = port.inner.upgrade().map(|inner| inner.edits.load(Ordering::Acquire));
        if edits.replace(edits_now) != Some(edits_now) {
            (begun_ns, next_ns, pause_ns) = (core.now(), 0, SOON_NS);
        }
        let discovery_ns =
            port.inner.upgrade().map_or(SOON_NS, |i| i.discovery_ns.load(Ordering::Relaxed));
        pause_ns = pause_ns.min(discovery_ns);
        port.interfaces.all.borrow().iter().for_each(|side| side.look(&core));
        let before = up;
        let is_up = |side: &&Rc<Interface>| side.sectors.get() > 0;
        up = port.interfaces.all.borrow().iter().filter(is_up).count();
        if up > before {
            (next_ns, pause_ns) = (0, SOON_NS.min(discovery_ns));
        }
        if let Some(inner) = port.inner.upgrade() {
            inner.shared.count(port.number, port.engine.borrow().counts());
            let ill = port.engine.borrow().unusable_paths(&&port.interfaces);
            let mut is_news = inner.shared.set_unusable_paths(port.number, ill);
            if port.number == 0 && core.now().saturating_sub(begun_ns) >= ABSENT_NS {
                is_news |= inner.shared.set_absent(&inner.rules().targets);
            }
            if is_news {
                inner.notify_troubles();
            }
        }
        let now = core.now();
        // It may be queried more often than it was.
        next_ns = next_ns.min(now.saturating_add(discovery_ns));
        if port.number == 0 && now >= next_ns {
            next_ns = now.saturating_add(pause_ns);
            pause_ns = pause_ns.saturating_mul(2).min(discovery_ns);
            port.with(|engine, wire| {
                engine.discover(wire);
                engine.query_sizes(wire, now);
            });
        }
        core.reactor().sleep(LOOK_NS).await;
    }
}

impl Aoe {
    /// Discovers targets, and waits a while for answers.
    pub(super) async fn discover(&self, core: &Rc<Core>) {
        if let Some(port) = port(self.inner.number, core) {
            port.with(|engine, wire| engine.discover(wire));
            core.reactor().sleep(self.inner.wait_ns).await;
        }
    }

    /// Reads the config string of a target; None: it did not answer.
    pub(super) async fn query_mark(&self, target: u64, core: &Rc<Core>) -> Option<String> {
        let (port, address) = (port(self.inner.number, core)?, address_of(target));
        for _ in 0..MARK_TRIES {
            let queried_ns = core.reactor().fresh_now();
            port.with(|engine, wire| engine.discover(wire));
            for _ in 0..MARK_LOOKS {
                core.reactor().sleep(MARK_LOOK_NS).await;
                if let Some(string) = self.inner.shared.mark(address, queried_ns) {
                    return Some(String::from_utf8_lossy(&string).into_owned());
                }
            }
        }
        None
    }

    /// Gives a target an order, and waits until no frame of it may exist any more.
    ///
    /// # Errors
    /// There is no answer.
    pub(crate) async fn execute_command(
        &self,
        target: u64,
        command: u8,
        body: Vec<u8>,
        core: &Rc<Core>,
    ) -> Result<CommandReply, CamStatus> {
        let port = port(self.inner.number, core).ok_or(CamStatus::Busy)?;
        let (to, now) = (address_of(target), core.now());
        let number = port.with(|engine, _| engine.begin_command(to, command, body, now));
        let number = number.map_err(NoReply::status)?;
        let settled = poll_fn(|cx| match port.engine.borrow_mut().take_reply(number) {
            Some(mark) => Poll::Ready(mark),
            None => {
                port.settled.borrow_mut().push(cx.waker().clone());
                Poll::Pending
            }
        });
        settled.await.map_err(NoReply::status)
    }

    /// Our own addresses, as a target knows them.
    pub(crate) fn own(&self, target: u64, core: &Core) -> Vec<Mac> {
        let port = port(self.inner.number, core);
        port.map(|port| port.with(|engine, wire| engine.own(address_of(target), wire)))
            .unwrap_or_default()
    }
}
