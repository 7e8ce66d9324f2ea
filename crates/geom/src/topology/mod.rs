//! Classes, geoms, providers and consumers, owned by one thread.
//!
//! The topology does no I/O and starts nothing: it consumes events and leaves [`Action`]s for its
//! driver. So the same code runs under the control thread and under simulation.
//!
//! Invariants
//!  T1  A provider's counts are the sums of its consumers' counts.
//!  T2  Events run one at a time, in order; orphans (the doorstep) before all others.
//!  T3  `rank` of a geom is 1 + the largest rank below it; there is no cycle.
//!  T4  A node or edge slot is reused only after every core has reported that nothing is in flight
//!      in it. The next tenant of an edge slot has another number.
//!  T5  A consumer marked ORPHAN starts no I/O; a provider with an error takes none.
//!  T6  Every provider that does not wither is found by its name. A layer that is inserted over a
//!      provider has that provider's name as long as the layer is there (`names.rs`).
//!  T7  The list of geoms with records has every geom that keeps records, and no other. A change is
//!      not followed by a question to each geom of the graph.
//!  T8  A geom of a class is among the names of its class, or among the geoms that wither, never in
//!      both. Readers of many geoms take them from there, in the order of their names.

mod access;
mod attach;
mod deletes;
mod events;
mod geom_ref;
mod inspect;
mod label_migration;
mod last_sizes;
mod lifetime;
mod names;
mod rename;
mod splice;
mod taste;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use bio::{Attr, Errno, ResolvedArc};
use slotmap::{SlotMap, new_key_type};

use crate::class::{Class, Geom};
use crate::error::Error;
use crate::health::{Listener, Remark, Severity};
use crate::layer::{Edge, Layer};
use crate::notify::{Notice, Notifier, Task};
use crate::origins::Origins;
use crate::snapshot::{Changes, EdgeState, Limits, NodeState};
use crate::stats::{Meter, Queue, Reading};

pub use access::Access;
pub use deletes::{DELETES, Deletes};
pub use events::Event;
pub use geom_ref::{ConsumerRef, GeomRef, ProviderRef};
pub use inspect::{ConsumerView, EdgeNames, GeomView, Holder, PHYSICAL_SECTOR, ProviderView};
pub use label_migration::{FoundLabel, WriteLabel};
pub use last_sizes::{FormerSizes, SizeKeeper};
pub use taste::{TasteClass, TasteJob, Tasted};

new_key_type! {
    pub struct GeomId;
    pub struct ProviderId;
    pub struct ConsumerId;
}

/// Providers that may exist at once; a further one is refused with ENOSPC.
pub const PROVIDERS_MAX: usize = 1 << 20;

/// Consumers that may exist at once; a further one is refused with ENOSPC.
pub const CONSUMERS_MAX: usize = Edge::SLOTS;

/// Longest name of a provider or geom, bytes; a longer one is refused.
pub const NAME_MAX: usize = 255;

/// An action for the driver of a topology; actions are carried out in order.
pub enum Action {
    /// Give every core this graph.
    Publish(Arc<Changes>),
    /// Taste a provider on a core and post the [`Event::Tasted`].
    Taste(TasteJob),
    /// Hold a geom's conversation on a core and post the [`Event::Conversed`].
    Converse(Conversation),
    /// Post the [`Event::Conversed`] when every core has processed the messages before this one.
    Barrier(Barrier),
    /// Make every core report when an edge is empty.
    Drain {
        /// Edge slot.
        edge: u32,
        /// For the answers.
        ticket: u64,
    },
}

/// A conversation of a geom, on its way to a core.
pub struct Conversation {
    pub(crate) geom: GeomId,
    pub(crate) name: String,
    pub(crate) purpose: &'static str,
    pub(crate) task: Task,
    pub(crate) number: u64,
}

/// A message for a geom, to be delivered when every core has the present graph.
pub struct Barrier {
    pub(crate) geom: GeomId,
    pub(crate) notice: Notice,
    pub(crate) number: u64,
}

/// Counts that a splice has already passed to the geom below, set off against the next change.
struct Credit {
    provider: ProviderId,
    counts: Access,
}

pub(crate) struct GeomObj {
    class: usize,
    name: String,
    why: String,
    rank: u32,
    wither: bool,
    /// It was inserted over this provider, which has exchanged names with its own.
    covers: Option<ProviderId>,
    ops: Option<Box<dyn Geom>>,
    /// The value of `ops.spoils()` before `ops` was pushed on the stack.
    spoils: bool,
    /// See [`Topology::set_verb_access`].
    is_verb_access: bool,
    consumers: Vec<ConsumerId>,
    providers: Vec<ProviderId>,
}

pub(crate) struct ProviderObj {
    geom: GeomId,
    name: String,
    consumers: Vec<ConsumerId>,
    counts: Access,
    limits: Limits,
    stripe_bytes: u64,
    stripe_offset: u64,
    wither: bool,
    orphan: bool,
    node: u32,
    layer: ResolvedArc<dyn Layer>,
    state: ResolvedArc<NodeState>,
    queues: Arc<[ResolvedArc<Queue>]>,
    /// Counters of consumers that were attached once.
    past: Reading,
    attrs: Arc<Vec<(&'static str, Attr)>>,
    taste_outcomes: Vec<(&'static str, String)>,
    taste_serial: u64,
    /// The newest requested tasting of each class: class, serial.
    requested_tastings: Vec<(usize, u64)>,
    /// Grows when the content may have changed under a taster.
    content: u64,
    /// A class that knows it for a member and refused it: classes that taste later leave it alone.
    hidden_by: Option<usize>,
    /// Results of carrying metadata that classes had left on it (carry C1).
    attempts: Vec<label_migration::Attempt>,
}

pub(crate) struct ConsumerObj {
    geom: GeomId,
    provider: Option<ProviderId>,
    counts: Access,
    spoiled: bool,
    orphan: bool,
    opened: bool,
    /// It leaves: no new request starts, and it receives no more events.
    detaching: bool,
    /// Ticket, and cores that have not reported the edge as empty; leaving waits for them.
    draining: Option<(u64, Vec<u32>)>,
    /// The idle barrier has waited long enough for it.
    late: bool,
    edge: Edge,
    state: ResolvedArc<EdgeState>,
    meters: Arc<[ResolvedArc<Meter>]>,
    /// Counters when it was attached where it is now.
    before: Reading,
}

/// A new provider's properties.
pub struct NewProvider {
    /// Name, unique in the topology.
    pub name: String,
    /// Its data path.
    pub layer: Arc<dyn Layer>,
    /// Its numbers.
    pub limits: Limits,
    /// Stripe size, bytes; zero when there is none.
    pub stripe_bytes: u64,
    /// Offset of the first byte inside a stripe.
    pub stripe_offset: u64,
    /// Attributes answered without asking the layer.
    pub attrs: Vec<(&'static str, Attr)>,
}

/// The graph of one daemon.
pub struct Topology {
    cores: usize,
    classes: Vec<Arc<dyn Class>>,
    geoms: SlotMap<GeomId, GeomObj>,
    providers: SlotMap<ProviderId, ProviderObj>,
    consumers: SlotMap<ConsumerId, ConsumerObj>,
    nodes: Vec<Option<ProviderId>>,
    edges: Vec<Option<ConsumerId>>,
    /// The number that the next tenant of each edge slot gets.
    next_edges: Vec<Edge>,
    doorstep: VecDeque<ProviderId>,
    events: VecDeque<Event>,
    actions: Vec<Action>,
    wash: bool,
    /// Slots that the cores do not know yet as they are.
    dirty_nodes: BTreeSet<u32>,
    dirty_edges: BTreeSet<u32>,
    /// Providers that do not wither, by name; looked up and never listed.
    names: HashMap<String, ProviderId>,
    /// Geoms that do not wither, by class and name.
    geom_names: Vec<BTreeMap<String, GeomId>>,
    /// Withering objects: all that the washer looks at.
    withering_providers: BTreeSet<ProviderId>,
    withering_geoms: BTreeSet<GeomId>,
    /// Geoms that keep records (T7).
    record_keepers: BTreeSet<GeomId>,
    /// Consumers that leave, by ticket.
    leaving: BTreeMap<u64, ConsumerId>,
    losses: u64,
    generation: u64,
    tickets: u64,
    tasting: usize,
    /// Conversations of geoms that have not ended, by number.
    conversing: BTreeMap<u64, (GeomId, &'static str)>,
    notifier: Notifier,
    origins: Arc<Origins>,
    listener: Option<Listener>,
    /// Names of providers that others write, or soon will ([`Topology::set_exported`]).
    exported: BTreeSet<String>,
    /// Former sizes of providers, and the metadata that is being carried to the end of one.
    last_sizes: last_sizes::LastSizes,
    migrations: Vec<label_migration::Migration>,
    shutting_down: bool,
    credit: Option<Credit>,
    /// Skips the checks of other openers on physical providers (docs/reference/geom.md 1.2, bit
    /// 0x10).
    pub foot_shooting: bool,
    /// Suppresses tasting altogether (`kern.geom.notaste`).
    pub no_taste: bool,
}

impl Topology {
    /// Empty, for `cores` cores.
    pub fn new(cores: usize) -> Topology {
        Topology {
            cores,
            classes: Vec::new(),
            geoms: SlotMap::with_key(),
            providers: SlotMap::with_key(),
            consumers: SlotMap::with_key(),
            nodes: Vec::new(),
            edges: Vec::new(),
            next_edges: Vec::new(),
            doorstep: VecDeque::new(),
            events: VecDeque::new(),
            actions: Vec::new(),
            wash: false,
            dirty_nodes: BTreeSet::new(),
            dirty_edges: BTreeSet::new(),
            names: HashMap::new(),
            geom_names: Vec::new(),
            withering_providers: BTreeSet::new(),
            withering_geoms: BTreeSet::new(),
            record_keepers: BTreeSet::new(),
            leaving: BTreeMap::new(),
            losses: 0,
            generation: 0,
            tickets: 0,
            tasting: 0,
            conversing: BTreeMap::new(),
            notifier: Notifier::default(),
            origins: Arc::default(),
            listener: None,
            exported: BTreeSet::new(),
            last_sizes: last_sizes::LastSizes::default(),
            migrations: Vec::new(),
            shutting_down: false,
            credit: None,
            foot_shooting: false,
            no_taste: false,
        }
    }

    /// Registers a class; it tastes every provider there is. A second one of the same name is
    /// refused.
    pub fn load(&mut self, class: Arc<dyn Class>) -> Result<(), Error> {
        if self.class(class.name()).is_some() {
            let what = format!("class {} is loaded already", class.name());
            return Err(Error::new(Errno::Exist, what));
        }
        self.classes.push(class);
        self.geom_names.push(BTreeMap::new());
        let index = self.classes.len() - 1;
        if self.classes[index].tastes() {
            let all: Vec<ProviderId> = self.providers.keys().collect();
            for p in all {
                self.post(Event::TasteOne { provider: p, class: index });
            }
        }
        Ok(())
    }

    /// A loaded class by name.
    pub fn class(&self, name: &str) -> Option<Arc<dyn Class>> {
        self.classes.iter().find(|c| c.name() == name).cloned()
    }

    /// The loaded classes, oldest first.
    pub fn classes(&self) -> &[Arc<dyn Class>] {
        &self.classes
    }

    /// From now on `listener` receives the events of geoms.
    pub fn set_listener(&mut self, listener: Listener) {
        self.listener = Some(listener);
    }

    /// Reports an event of a geom that an operator should know, for the journal.
    pub fn remark(&mut self, geom: GeomId, severity: Severity, text: &str) {
        let Some(g) = self.geoms.get(geom) else { return };
        let class = self.classes.get(g.class).map_or("taste", |c| c.name());
        if let Some(listener) = &mut self.listener {
            listener(&Remark { class, name: &g.name, severity, text });
        }
    }

    /// Sets the origin of a geom for lists.
    pub(crate) fn set_why(&mut self, geom: GeomId, why: String) {
        if let Some(geom) = self.geoms.get_mut(geom) {
            geom.why = why;
        }
    }

    /// A new geom without consumers or providers. `why` is for lists.
    pub fn new_geom(
        &mut self,
        class: &str,
        name: &str,
        why: &str,
        ops: Box<dyn Geom>,
    ) -> Result<GeomId, Error> {
        let Some(index) = self.classes.iter().position(|c| c.name() == class) else {
            return Err(Error::new(Errno::NoEnt, format!("no class {class}")));
        };
        if name.is_empty() || name.len() > NAME_MAX {
            return Err(Error::inval(format!("name {name:?} is empty or too long")));
        }
        if self.geom_names.get(index).is_some_and(|names| names.contains_key(name)) {
            return Err(Error::new(Errno::Exist, format!("{class} {name} exists already")));
        }
        let keeps_records = ops.keeps_records();
        let id = self.geoms.insert(GeomObj {
            class: index,
            name: name.into(),
            why: why.into(),
            rank: 1,
            wither: false,
            covers: None,
            spoils: ops.spoils(),
            is_verb_access: false,
            ops: Some(ops),
            consumers: Vec::new(),
            providers: Vec::new(),
        });
        if let Some(names) = self.geom_names.get_mut(index) {
            names.insert(name.into(), id);
        }
        if keeps_records {
            self.record_keepers.insert(id);
        }
        Ok(id)
    }

    /// Whether a provider is the geom's own, or is based on one that is.
    pub fn is_based_on(&self, p: ProviderId, geom: GeomId) -> bool {
        let Some(own) = self.geom_of(p) else { return false };
        let below = || self.consumers_of(own).iter().filter_map(|c| self.below(*c));
        own == geom || below().any(|below| self.is_based_on(below, geom))
    }

    /// Marks a geom as the hand of a verb, which looks at a provider and leaves. Its class tastes
    /// and claims that provider all the same.
    pub fn set_verb_access(&mut self, geom: GeomId) {
        if let Some(g) = self.geoms.get_mut(geom) {
            g.is_verb_access = true;
        }
    }

    /// Gives a geom its own state after it was made: for one that needs its number first.
    pub fn set_ops(&mut self, geom: GeomId, ops: Box<dyn Geom>) {
        let Some(g) = self.geoms.get_mut(geom) else { return };
        let keeps_records = ops.keeps_records();
        g.spoils = ops.spoils();
        g.ops = Some(ops);
        if keeps_records {
            self.record_keepers.insert(geom);
        } else {
            self.record_keepers.remove(&geom);
        }
    }

    /// Takes the actions for the driver: the newest graph first, then the actions that need it.
    pub fn take_actions(&mut self) -> Vec<Action> {
        let mut actions = std::mem::take(&mut self.actions);
        if self.is_dirty() {
            self.generation += 1;
            actions.insert(0, Action::Publish(Arc::new(self.changes())));
        }
        actions
    }

    fn is_dirty(&self) -> bool {
        !self.dirty_nodes.is_empty() || !self.dirty_edges.is_empty()
    }

    /// Number of reports of disks and classes that a provider was removed.
    pub fn losses(&self) -> u64 {
        self.losses
    }

    /// Number of the newest graph.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// True when no event waits and no tasting runs. Callers also wait for the cores.
    pub fn is_idle(&self) -> bool {
        self.events.is_empty()
            && self.doorstep.is_empty()
            && !self.wash
            && self.tasting == 0
            && self.conversing.is_empty()
            && self.actions.is_empty()
            && !self.is_dirty()
            && !self.leaving.values().any(|c| self.consumers.get(*c).is_some_and(|c| !c.late))
    }

    /// The idle barrier no longer waits for consumers that leave: all of them, or orphans only.
    pub(crate) fn stop_waiting(&mut self, orphans_only: bool) {
        for c in self.consumers.values_mut() {
            c.late |= c.draining.is_some() && (c.orphan || !orphans_only);
        }
    }

    /// The reason why [`Topology::is_idle`] is false, in words.
    pub(crate) fn waits_for(&self) -> String {
        let leaving = self.consumers.values().filter(|c| c.draining.is_some() && !c.late);
        let mut names: Vec<&str> =
            leaving.filter_map(|c| Some(self.provider_name(c.provider?))).collect();
        names.sort_unstable();
        names.dedup();
        if let Some((geom, what)) = self.conversing.values().next() {
            return format!("{}: {what}", self.geom_name(*geom));
        }
        match (names.as_slice(), self.tasting) {
            ([], 0) => "events that do not end".into(),
            ([], n) => format!("{n} tastings"),
            (names, 0) => format!("requests to {}", names.join(", ")),
            (names, n) => format!("requests to {} and {n} tastings", names.join(", ")),
        }
    }

    /// The path from layers and tasks to the topology and the cores.
    pub fn notifier(&self) -> Notifier {
        self.notifier.clone()
    }

    /// The originators of requests, by the numbers that requests carry.
    pub fn origins(&self) -> Arc<Origins> {
        self.origins.clone()
    }

    /// Replaces the registry of originators. The component that makes most of the numbers owns it,
    /// and sets it before the first look-up.
    pub fn set_origins(&mut self, origins: Arc<Origins>) {
        self.origins = origins;
    }

    pub(crate) fn connect(&mut self, notifier: Notifier) {
        self.notifier = notifier;
    }

    /// Holds a conversation of `geom` on core 0. The idle barrier waits for it; the geom receives
    /// its answer, or [`crate::Unanswered`]. Work that takes longer than a verb may is a task of
    /// its own, started with [`Notifier::call`].
    pub fn converse(&mut self, geom: GeomId, what: &'static str, task: Task) {
        self.tickets += 1;
        let number = self.tickets;
        self.conversing.insert(number, (geom, what));
        let name = self.geom_name(geom).to_owned();
        self.actions.push(Action::Converse(Conversation {
            geom,
            name,
            purpose: what,
            task,
            number,
        }));
    }

    /// Sends `notice` to `geom` when every core has the present graph. From then on a layer may use
    /// a consumer that was attached or opened before. The idle barrier waits for it.
    pub fn barrier(&mut self, geom: GeomId, notice: Notice) {
        self.tickets += 1;
        let number = self.tickets;
        self.conversing.insert(number, (geom, "a barrier"));
        self.actions.push(Action::Barrier(Barrier { geom, notice, number }));
    }

    /// From now on tasting, attribute, media and resize events do nothing (docs/reference/geom.md
    /// 1.3).
    pub fn shut_down(&mut self) {
        self.shutting_down = true;
    }

    /// The geoms that keep records (T7).
    pub(crate) fn record_keepers(&self) -> impl Iterator<Item = GeomId> {
        self.record_keepers.iter().copied()
    }

    /// Runs `f` with a geom's own state and the topology. `None` when the geom has been removed or
    /// is on the stack already.
    pub(crate) fn with_geom<R>(
        &mut self,
        geom: GeomId,
        f: impl FnOnce(&mut dyn Geom, &mut Topology) -> R,
    ) -> Option<R> {
        let object = self.geoms.get_mut(geom)?;
        let mut ops = object.ops.take()?;
        object.spoils = ops.spoils();
        let out = f(ops.as_mut(), self);
        if let Some(g) = self.geoms.get_mut(geom) {
            g.ops = Some(ops);
        }
        Some(out)
    }

    /// Runs `f` with a geom's state as its class's own type.
    pub fn with<G: Geom, R>(
        &mut self,
        geom: GeomId,
        f: impl FnOnce(&mut G, &mut Topology) -> R,
    ) -> Option<R> {
        self.with_geom(geom, |ops, t| {
            (ops as &mut dyn std::any::Any).downcast_mut::<G>().map(|g| f(g, t))
        })?
    }
}
