//! A session: one initiator port logged in to one target port.
//!
//! ```text
//!   begin() --> OPEN --close()--> CLOSING (commands aborted) --last one ended--> ended()
//!                 ^  ask_to_close(): the transport has to call close()
//! ```
//!
//! Invariants
//!  N1  Its paths keep the invariants of `nexus/paths.rs`.
//!  N2  While a transport or a layer below is called, no cell of the session is borrowed.

pub(crate) mod buffers;
pub(crate) mod engine;
pub(crate) mod origin;
pub(crate) mod paths;
pub(crate) mod pending_tms;
pub(crate) mod slots;
pub(crate) mod transport;

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bio::Origin;
use bio::sync::Mutex;
use geom::Entry;
use wire::scsi::TransportId;

use crate::nexus::engine::Engine;
use crate::nexus::origin::LocalProcesses;
use crate::nexus::paths::{LastPath, Paths};
use crate::nexus::slots::{Slot, Slots, slot_id_of};
use crate::nexus::transport::{Login, TmOutcome, Transport};
use crate::qos::QosClient;
use crate::registry::access::Decision;
use crate::registry::{
    CloseReason, FlowNotes, LunMap, LunMapView, SessionCounters, SessionFacts, TargetPort,
};
use crate::reservations::Identity;
use crate::task::{AbortHow, CommandState};
use crate::unit::Device;
use crate::unit::events::end_counts;
use crate::unit::unit_attention::{ItlNexus, Port};

/// One I_T_L nexus on its core.
pub struct Path {
    lun: u64,
    device: Arc<Device>,
    nexus: Arc<ItlNexus>,
    pub(crate) read_only: Cell<bool>,
    qos_client: Rc<QosClient>,
    origin_entry: Entry,
}

/// Commands that end after the nexus are counted too.
impl Drop for Path {
    fn drop(&mut self) {
        end_counts(&self.device, &self.nexus);
    }
}

impl Path {
    pub(crate) fn new(
        lun: u64,
        device: Arc<Device>,
        nexus: Arc<ItlNexus>,
        read_only: bool,
        (seat, entry): (Rc<QosClient>, Entry),
    ) -> Path {
        let read_only = Cell::new(read_only);
        Path { lun, device, nexus, read_only, qos_client: seat, origin_entry: entry }
    }

    /// Origin of its commands' requests.
    #[inline]
    pub(crate) fn origin(&self) -> Origin {
        self.origin_entry.origin()
    }

    /// Its seat in the flow of requests to the unit.
    #[inline]
    pub(crate) fn qos_client(&self) -> &Rc<QosClient> {
        &self.qos_client
    }

    /// The number under which the initiator sees the unit.
    pub fn lun(&self) -> u64 {
        self.lun
    }

    /// The unit.
    pub fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// Its unit attentions.
    pub fn nexus(&self) -> &Arc<ItlNexus> {
        &self.nexus
    }

    /// The group grants no writes.
    pub fn is_read_only(&self) -> bool {
        self.read_only.get()
    }
}

/// A session of this core.
pub struct ItNexus {
    weak_self: Weak<ItNexus>,
    engine: Rc<Engine>,
    target: Arc<TargetPort>,
    port: Arc<Port>,
    pub(crate) facts: Arc<SessionFacts>,
    transport: RefCell<Option<Rc<dyn Transport>>>,
    pub(crate) sink: Cell<u32>,
    /// The initiator's view, and the generation of it that was last read.
    pub(crate) view: RefCell<Arc<LunMapView>>,
    pub(crate) seen: Cell<u64>,
    pub(crate) map: RefCell<Arc<LunMap>>,
    pub(crate) paths: RefCell<Paths>,
    /// Bits as those of [`ItlNexus::flags`], for every path.
    pub(crate) bits: Cell<u32>,
    /// It took the place of a session of the same initiator port.
    pub(crate) reinstates: bool,
    /// Resets of units before the login.
    pub(crate) began: u64,
    pub(crate) slots: RefCell<Slots>,
    pub(crate) outstanding: Cell<u32>,
    /// Places taken, those being answered included.
    pub(crate) held: Cell<u32>,
    /// Bytes of buffers of commands that read, and of write data.
    pub(crate) buffer_bytes: Cell<usize>,
    /// The path of the last command, and how long the session counts as one that uses several.
    pub(crate) last_path: RefCell<Option<LastPath>>,
    pub(crate) mixed_until: Cell<u64>,
    pub(crate) local_processes: LocalProcesses,
    closing: Cell<bool>,
    gone: Cell<bool>,
}

impl ItNexus {
    pub(crate) fn begin(
        engine: Rc<Engine>,
        login: Login,
        decision: Decision,
        transport: Rc<dyn Transport>,
    ) -> Rc<ItNexus> {
        let core = engine.core().clone();
        let registry = engine.registry().clone();
        let facts = Arc::new(SessionFacts {
            number: registry.next_session(),
            core: core.id(),
            driver: login.target.driver.clone(),
            target: login.target.name.clone(),
            initiator: login.initiator,
            port_id: login.port_id,
            portal: login.portal,
            from: login.from,
            labels: login.labels,
            since_ns: core.now(),
            group: Mutex::new(decision.group.unwrap_or_default()),
            closing: AtomicBool::new(false),
            session_counters: SessionCounters::default(),
            flow: FlowNotes::default(),
            command_entries: SessionFacts::new_command_entries(),
        });
        let scsi = TransportId::decode(&login.transport_id).map(|(port, _)| port);
        let port = Arc::new(Port {
            initiator: facts.initiator.clone(),
            port_id: facts.port_id.clone(),
            transport_id: login.transport_id,
            driver: facts.driver.clone(),
            target: facts.target.clone(),
            relative_port: login.target.port,
            identity: scsi.map(|port| Identity { port, target: login.target.port }),
            session: facts.number,
        });
        let session = Rc::new_cyclic(|me| ItNexus {
            weak_self: me.clone(),
            // A change between the decision and this line is seen by the first command.
            seen: Cell::new(0),
            view: RefCell::new(decision.view),
            bits: Cell::new(0),
            reinstates: login.reinstates,
            began: registry.resets(),
            target: login.target,
            port,
            transport: RefCell::new(Some(transport)),
            sink: Cell::new(0),
            map: RefCell::new(decision.luns),
            paths: RefCell::default(),
            slots: RefCell::new(Slots::new()),
            outstanding: Cell::new(0),
            held: Cell::new(0),
            buffer_bytes: Cell::new(0),
            last_path: RefCell::default(),
            mixed_until: Cell::new(0),
            local_processes: LocalProcesses::default(),
            closing: Cell::new(false),
            gone: Cell::new(false),
            facts: facts.clone(),
            engine,
        });
        session.update_access_state();
        session.sink.set(core.add_sink(session.clone()));
        registry.session_began(&facts, session.reinstates);
        session
    }

    /// Number in this daemon.
    pub fn number(&self) -> u64 {
        self.facts.number
    }

    /// Facts for lists.
    pub fn facts(&self) -> &Arc<SessionFacts> {
        &self.facts
    }

    pub fn target(&self) -> &Arc<TargetPort> {
        &self.target
    }

    /// The initiator port.
    pub fn port(&self) -> &Arc<Port> {
        &self.port
    }

    pub fn engine(&self) -> &Rc<Engine> {
        &self.engine
    }

    /// Commands that have not ended.
    pub fn outstanding(&self) -> usize {
        self.outstanding.get() as usize
    }

    /// Commands that the session takes at once, for the transport's window:
    /// [`crate::DEPTH_MAX`], or what its share of a slow unit allows.
    pub fn depth_hint(&self) -> u32 {
        self.window()
    }

    /// True after [`ItNexus::close`].
    pub fn is_closing(&self) -> bool {
        self.closing.get()
    }

    /// Bytes that it keeps from others: read and not sent yet, and write data.
    pub(crate) fn holds(&self) -> usize {
        let unsent = self.transport.borrow().as_ref().map_or(0, |t| t.unsent());
        self.buffer_bytes.get().saturating_add(unsent)
    }

    pub(crate) fn handle(&self) -> Option<Rc<ItNexus>> {
        self.weak_self.upgrade()
    }

    pub(crate) fn transport(&self) -> Option<Rc<dyn Transport>> {
        self.transport.borrow().clone()
    }

    /// LUN map of the initiator; a change of its group takes effect within a moment.
    pub fn map(&self) -> Arc<LunMap> {
        self.map.borrow().clone()
    }

    pub(crate) fn commands_at(&self, wanted: impl Fn(&Rc<Path>) -> bool) -> Vec<u64> {
        let of_it = |s: &Slot| {
            s.state != Some(CommandState::Responding) && s.path.as_ref().is_some_and(&wanted)
        };
        self.slots.borrow().select(of_it)
    }

    pub(crate) fn count(&self, state: CommandState) -> usize {
        self.slots.borrow().select(|s| s.state == Some(state)).len()
    }

    /// True while a command that was not answered has the tag.
    pub fn has_command(&self, tag: u32) -> bool {
        self.slots.borrow().find(tag).is_some()
    }

    /// The command of a tag.
    pub(crate) fn find(&self, tag: Option<u32>) -> Option<u64> {
        let slots = self.slots.borrow();
        let place = slots.find(tag?)?;
        Some(slot_id_of(place, slots.get(place)?.generation))
    }

    pub(crate) fn tm_answer(&self, tag: u32, outcome: TmOutcome) {
        if let Some(transport) = self.transport() {
            transport.task_management_done(tag, outcome);
        }
    }

    pub(crate) fn request_close(&self, why: CloseReason) {
        if self.closing.get() {
            return;
        }
        if let Some(transport) = self.transport() {
            transport.close(why);
        }
    }

    /// Logout, nexus loss, reinstatement: aborts every command in silence. When the last one can
    /// no longer touch the medium, [`Transport::ended`] is called, maybe from inside this call.
    /// Later commands are discarded.
    pub fn close(&self) {
        if self.closing.replace(true) {
            return;
        }
        self.facts.closing.store(true, Ordering::Relaxed);
        let all = self.slots.borrow().select(|s| s.state != Some(CommandState::Responding));
        self.mark_for_abort(&all, AbortHow::Silent);
        for word in all {
            self.abort(word, AbortHow::Silent, None);
        }
        self.end_if_idle();
    }

    pub(crate) fn end_if_idle(&self) {
        if !self.closing.get() || self.held.get() > 0 || self.gone.replace(true) {
            return;
        }
        let me = self.handle();
        self.engine.core().remove_sink(self.sink.get());
        self.engine.forget(self.number());
        let transport = self.transport.take();
        self.drop_paths();
        self.local_processes.forget();
        if let Some(transport) = transport {
            transport.ended();
        }
        drop(me);
    }

    /// The core ends without notifying the peer: releases the session's resources and the
    /// references to it.
    pub(crate) fn drop_references(&self) {
        self.engine.core().remove_sink(self.sink.get());
        self.drop_paths();
        self.local_processes.forget();
        drop((self.transport.take(), self.slots.replace(Slots::new())));
    }
}
