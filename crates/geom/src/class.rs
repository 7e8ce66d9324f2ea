//! Classes and geoms: the traits that a transformation implements.

use std::any::Any;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;

use bio::{Attr, Errno};

use crate::control::GraphControl;
use crate::core::Core;
use crate::error::Error;
use crate::health::Trouble;
use crate::layer::Edge;
use crate::measure::Measure;
use crate::notify::Notice;
use crate::served_client::ServedClient;
use crate::topology::{Access, ConsumerId, Deletes, FoundLabel, GeomId, ProviderId, Topology};
use crate::verb::VerbSpec;

/// The result of a class's tasting of a provider, committed in order.
pub type Claim = Box<dyn Any + Send>;

/// The outcome of one class tasting one provider.
pub enum TasteOutcome<C = Claim> {
    /// Not ours; why, in plain words.
    No(String),
    /// Ours; why, and the claim.
    Yes(String, C),
    /// Ours, by metadata at the end that the provider had when it was smaller
    /// ([`Taster::former_sizes`]); why, and how the metadata is moved to the present end.
    FormerEnd(String, FoundLabel),
    /// Ours, by metadata at a former end that has to stay there; why, and the claim.
    FormerEndKept(String, C),
}

impl<C: Send + 'static> TasteOutcome<C> {
    /// The same, with the claim as one of any class.
    pub(crate) fn erased(self) -> TasteOutcome {
        match self {
            TasteOutcome::No(why) => TasteOutcome::No(why),
            TasteOutcome::Yes(why, claim) => TasteOutcome::Yes(why, Box::new(claim)),
            TasteOutcome::FormerEnd(why, left) => TasteOutcome::FormerEnd(why, left),
            TasteOutcome::FormerEndKept(why, claim) => {
                TasteOutcome::FormerEndKept(why, Box::new(claim))
            }
        }
    }
}

/// A future of the core's executor.
pub type Local<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// A provider being tasted: open for reading, on a core, off the topology.
pub struct Taster {
    pub(crate) core: Rc<Core>,
    pub(crate) edge: Edge,
    /// Name of the provider.
    pub name: String,
    /// Size of the medium, bytes.
    pub media_bytes: u64,
    /// Sector size, bytes.
    pub sector_bytes: u32,
    /// Attributes as the provider answers them (`PART::scheme` and so on).
    pub attrs: Vec<(&'static str, Attr)>,
    /// The former ends at which the class that tastes now knew the provider, if it is larger now:
    /// the newest size first, bytes ([`Class::has_end_metadata`]).
    pub former_sizes: Vec<u64>,
}

impl Taster {
    /// Reads `len` bytes at `offset`, both multiples of the sector size. Fewer return at the
    /// end of the medium.
    pub async fn read(&self, offset: u64, len: usize) -> Result<Vec<u8>, Errno> {
        self.core.read(self.edge, offset, len).await
    }

    /// The attribute as text.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.attrs.iter().find(|(n, _)| *n == name).and_then(|(_, v)| match v {
            Attr::Text(t) => Some(t.as_str()),
            Attr::Int(_) => None,
        })
    }

    /// The attribute as a number.
    pub fn int(&self, name: &str) -> Option<u64> {
        self.attrs.iter().find(|(n, _)| *n == name).and_then(|(_, v)| match v {
            Attr::Int(i) => Some(*i),
            Attr::Text(_) => None,
        })
    }
}

/// A request to make a geom by hand.
#[derive(Clone, Copy)]
pub struct Create<'a, P = serde_json::Value> {
    /// Name of the geom and, for most classes, of its provider.
    pub name: &'a str,
    /// Providers below, in order.
    pub members: &'a [ProviderId],
    /// The class's own parameters, already checked against its schema.
    pub params: &'a P,
}

/// A geom that a configuration declared and now declares otherwise.
#[derive(Clone, Copy, Debug)]
pub struct Redeclare<'a, P = serde_json::Value> {
    /// Name of the geom.
    pub name: &'a str,
    /// Names of the members that were declared; none: the geom was not declared, but found.
    pub from: &'a [String],
    /// Names of the members that are declared now.
    pub to: &'a [String],
    /// The class's own parameters, as they are declared now.
    pub params: &'a P,
}

/// Settings by the keys of a section of the configuration. Null: the section has no such key.
pub type Settings = serde_json::Map<String, serde_json::Value>;

/// A setting that a verb changed until the next start and that no key of a section records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transient {
    /// The setting in words: "it rebuilds at 1048576 bytes a second".
    pub setting: String,
    /// The command that takes it back.
    pub undo: String,
}

/// Why a geom that a verb makes exists, without a record or a section: the next start has none.
pub const MADE_BY_VERB: &str = "made by hand";

/// A transformation. One value a class, registered once.
pub trait Class: Send + Sync + 'static {
    /// Name in lists, configuration and commands: lower case.
    fn name(&self) -> &'static str;

    /// One sentence.
    fn doc(&self) -> &'static str;

    /// JSON Schema of the parameters of `create`; `None` when it cannot be made by hand.
    fn params(&self) -> Option<serde_json::Value> {
        None
    }

    /// True when the class looks for its metadata on every new provider.
    fn tastes(&self) -> bool {
        false
    }

    /// True when it also wants to look at providers that are open for writing.
    fn tastes_written(&self) -> bool {
        false
    }

    /// Geoms that a verb stopped and tasting does not start again: the name of each, and the
    /// message about its members.
    fn stopped_geoms(&self) -> Vec<(String, String)> {
        Vec::new()
    }

    /// True when the class only shows its findings, and opens nothing before a consumer above does.
    /// Other classes hold the provider from the claim on, and may write to it.
    fn only_shows(&self) -> bool {
        false
    }

    /// True when a provider that the class recognises and then refuses is a member all the same: a
    /// stale or failed half. Classes that taste after it (those loaded before it) claim nothing
    /// there, because content that appears to be on such a half is on the whole. A refusal with
    /// `NoDev` hides nothing: the provider is not a member, and is not known by its end.
    fn hides_refused(&self) -> bool {
        false
    }

    /// True when the class recognises a provider by metadata at its end, and moves the metadata
    /// when the provider grows. The class receives the former end of a provider whose label was not
    /// moved.
    fn has_end_metadata(&self) -> bool {
        false
    }

    /// Reads the provider and decides whether it belongs to the class.
    fn taste<'a>(&'a self, disk: &'a Taster) -> Local<'a, TasteOutcome> {
        let _ = disk;
        Box::pin(async { TasteOutcome::No("the class does not taste".into()) })
    }

    /// Commits a claim: makes the geom. Runs on the topology; the provider was checked again.
    fn claim(
        &self,
        topology: &mut Topology,
        on: ProviderId,
        why: &str,
        claim: Claim,
    ) -> Result<(), Error> {
        let _ = (topology, on, why, claim);
        Err(Error::new(Errno::NotSup, format!("class {} makes nothing by tasting", self.name())))
    }

    /// The first disk that the parameters of `create` name besides its members and that is not in
    /// the graph, as they name it. Bad parameters miss nothing.
    fn missing(&self, topology: &Topology, params: &serde_json::Value) -> Option<String> {
        let _ = (topology, params);
        None
    }

    /// Least and most members of a geom that is declared.
    fn member_limits(&self) -> (usize, usize) {
        (0, usize::MAX)
    }

    /// True when a geom of the class opens its members exclusively as soon as it is made.
    fn opens_members(&self) -> bool {
        false
    }

    /// Reports a refusal of [`Class::declare`] beforehand, as far as the contents of members show
    /// it. `members`: those that are in the graph and that no earlier step of the plan replaces.
    fn check_declare(&self, control: &mut GraphControl, members: &[String]) -> Result<(), Error> {
        let _ = (control, members);
        Ok(())
    }

    /// Makes a geom by hand.
    fn create(&self, topology: &mut Topology, request: &Create<'_>) -> Result<GeomId, Error> {
        let _ = (topology, request);
        Err(Error::new(
            Errno::NotSup,
            format!("class {} cannot be created by hand; it is found by tasting", self.name()),
        ))
    }

    /// True for a class whose geoms are found by records on their members, also those that a
    /// configuration declares: [`Class::declare`] makes these.
    fn keeps_records(&self) -> bool {
        false
    }

    /// Sees to it that there is a geom as a configuration declares it. One that was found by its
    /// records is taken, with the settings that are declared; otherwise members get records.
    /// `consent` names members, or the geom for all of them, whose contents may be lost.
    fn declare(
        &self,
        control: &mut GraphControl,
        request: &Create<'_>,
        consent: &[String],
    ) -> Result<(), Error> {
        let _ = consent;
        control.call(|t| self.create(t, request)).map(drop)
    }

    /// The settings of a section that can change while its geom is used: all of them, each in one
    /// form only. An absent key has its default. Empty: nothing of the class can change.
    fn settings(&self, params: &serde_json::Value) -> Result<Settings, Error> {
        let _ = params;
        Ok(Settings::new())
    }

    /// Gives a geom that is used the settings of a section, as [`Class::settings`] reads them.
    fn apply_settings(
        &self,
        control: &mut GraphControl,
        name: &str,
        params: &serde_json::Value,
    ) -> Result<(), Error> {
        let _ = (control, params);
        Err(Error::new(Errno::NotSup, format!("{name}: its class has no settings to change")))
    }

    /// True when the members named `from` can become those named `to` while the geom is used. Only
    /// the names are compared here; [`Class::check_redeclare`] knows the geom.
    fn can_replace_members(&self, from: &[String], to: &[String]) -> bool {
        from == to
    }

    /// Reports a refusal of [`Class::redeclare`] beforehand, as far as it can be foreseen. Members
    /// that are not in the graph are left out: an earlier step of the plan makes them.
    fn check_redeclare(
        &self,
        control: &mut GraphControl,
        request: &Redeclare<'_>,
    ) -> Result<(), Error> {
        let _ = control;
        if request.from == request.to && !self.settings(request.params)?.is_empty() {
            return Ok(());
        }
        Err(Error::new(
            Errno::NotSup,
            format!("a geom of class {} does not change while it is used", self.name()),
        ))
    }

    /// Changes members and settings of a geom while it is used, as a configuration declares it now.
    /// A refusal of [`Class::check_redeclare`] precedes any change. `consent`: as in
    /// [`Class::declare`].
    fn redeclare(
        &self,
        control: &mut GraphControl,
        request: &Redeclare<'_>,
        consent: &[String],
    ) -> Result<(), Error> {
        let _ = consent;
        self.check_redeclare(control, request)?;
        self.apply_settings(control, request.name, request.params)
    }

    /// Describes the data layout of a geom with these parameters: all that determines it besides
    /// the members and their order. `bytes` are the sizes of the members. `None`: records on the
    /// members contain the layout, or the geom shows the member unchanged.
    fn layout(&self, params: &serde_json::Value, bytes: &[u64]) -> Option<String> {
        let _ = (params, bytes);
        None
    }

    /// How long members last that verbs added to a geom or removed from it, as the end of a
    /// sentence. `None`: no verb changes members.
    fn member_edits_last(&self) -> Option<&'static str> {
        None
    }

    /// True when the providers of a geom query the provider below for its serial number at each
    /// request of it, or when it has no providers.
    fn passes_serial(&self) -> bool {
        false
    }

    /// Keys of a section that [`Geom::show`] has by another name: each key with that name.
    fn shown_as(&self) -> &'static [(&'static str, &'static str)] {
        &[]
    }

    /// Keys of a section with lists of addresses at which its geom listens.
    fn listen_keys(&self) -> &'static [&'static str] {
        &[]
    }

    /// Effects of an edit of its settings on running hosts, for the reference. An edit of a setting
    /// that is not listed is live.
    fn edits(&self) -> &'static [(&'static str, &'static str)] {
        &[]
    }

    /// True when each geom of the class has the name of the provider below it. The names of its
    /// own providers begin with that name. They are renamed with it ([`Topology::rename`]).
    fn is_named_after_provider(&self) -> bool {
        false
    }

    /// Destroys a geom. `force` orphans open providers.
    fn destroy(&self, topology: &mut Topology, geom: GeomId, force: bool) -> Result<(), Error> {
        if !force && topology.geom_is_open(geom) {
            let name = topology.geom_name(geom);
            return Err(Error::new(Errno::Busy, format!("{name} is open; close it or use force")));
        }
        topology.wither_geom(geom, Errno::NxIo);
        Ok(())
    }

    /// The class's verbs, for the command line, its manual pages and its completions.
    fn verbs(&self) -> &'static [VerbSpec] {
        &[]
    }

    /// A verb of the class's own, such as `part add`. May run conversations on a core.
    fn verb(
        &self,
        control: &mut GraphControl,
        verb: &str,
        on: &str,
        params: &serde_json::Value,
    ) -> Result<serde_json::Value, Error> {
        let _ = (control, params);
        Err(Error::new(Errno::NotSup, format!("class {} has no verb {verb} ({on})", self.name())))
    }
}

/// An instance of a class. Called on the topology's thread, never with itself on the stack.
pub trait Geom: Send + Any {
    /// Changes the counts of an upper consumer on `provider`; the geom passes down the access that
    /// the class needs below. A pure close never fails. The default passes on the same access.
    fn access(
        &mut self,
        topology: &mut Topology,
        me: GeomId,
        provider: ProviderId,
        delta: Access,
    ) -> Result<(), Errno> {
        let _ = provider;
        topology.access_all_below(me, delta)
    }

    /// The provider under `consumer` is removed. The default leaves and withers.
    fn orphan(&mut self, topology: &mut Topology, me: GeomId, consumer: ConsumerId, error: Errno) {
        topology.leave(consumer);
        topology.wither_geom(me, error);
    }

    /// True when the geom refuses to open `provider` for writing. The default: a provider below
    /// does.
    fn is_read_only(&self, topology: &Topology, me: GeomId, provider: ProviderId) -> bool {
        let _ = provider;
        topology.is_read_only_below(me)
    }

    /// One of its providers was renamed to `to`; the geom updates the names that it remembers.
    fn renamed(&mut self, from: &str, to: &str) {
        let _ = (from, to);
    }

    /// The command that makes the geom release the provider under `consumer`, which it keeps open
    /// whether it is used or not. `None`: the geom releases it when it has no user.
    fn release_command(
        &self,
        topology: &Topology,
        me: GeomId,
        consumer: ConsumerId,
    ) -> Option<String> {
        let _ = (topology, me, consumer);
        None
    }

    /// The geom is about to be removed from under its users (`true`): it sends the requests that it
    /// holds back down now. `false`: it stays after all, and works as before.
    fn set_draining(&mut self, hurry: bool) {
        let _ = hurry;
    }

    /// Requests clean records on disk, so that the next start has nothing to repair. True
    /// once they are, or cannot become so; false while that continues: it is called again. Later
    /// writes make them dirty again.
    fn clean_records(&mut self, topology: &mut Topology, me: GeomId) -> bool {
        let _ = (topology, me);
        true
    }

    /// True when clean records are requested from the geom: a geom that has
    /// [`Geom::clean_records`]. The answer never changes.
    fn keeps_records(&self) -> bool {
        false
    }

    /// True when the geom must be removed when another consumer writes its provider.
    fn spoils(&self) -> bool {
        false
    }

    /// Another consumer opened the provider under `consumer` for writing. The default, for geoms
    /// that spoil, leaves and withers.
    fn spoiled(&mut self, topology: &mut Topology, me: GeomId, consumer: ConsumerId) {
        topology.leave(consumer);
        topology.wither_geom(me, Errno::NxIo);
    }

    /// True when [`Geom::resized`] copes with a provider that shrank.
    fn resizes(&self) -> bool {
        false
    }

    /// The provider under `consumer` has a new size.
    fn resized(&mut self, topology: &mut Topology, me: GeomId, consumer: ConsumerId) {
        let _ = (topology, me, consumer);
    }

    /// An attribute of the provider under `consumer` changed, or its medium (`GEOM::media`).
    fn attr_changed(
        &mut self,
        topology: &mut Topology,
        me: GeomId,
        consumer: ConsumerId,
        name: &str,
    ) {
        let _ = (topology, me, consumer, name);
    }

    /// Receives a message from one of the geom's own layers or tasks: see
    /// [`crate::Notifier::post`] and [`Topology::converse`].
    fn on_notice(&mut self, topology: &mut Topology, me: GeomId, notice: Notice) {
        let _ = (topology, me, notice);
    }

    /// Answers an attribute of `provider`. The default queries the first provider below.
    fn attr(
        &self,
        topology: &Topology,
        me: GeomId,
        provider: ProviderId,
        name: &str,
    ) -> Option<Attr> {
        let _ = provider;
        topology.attr_below(me, name)
    }

    /// The properties of DELETE over `provider`, for the present providers below. The default:
    /// those of the first provider below, which is right where requests are passed on unchanged.
    fn deletes(&self, topology: &Topology, me: GeomId, provider: ProviderId) -> Deletes {
        let _ = provider;
        topology.deletes_below(me)
    }

    /// True when the geom divides the provider below among its clients, and has to see all waiting
    /// requests for that. Layers above then hold no request back for the sake of other clients.
    fn schedules_clients(&self) -> bool {
        false
    }

    /// Lines for lists: state, counters, parameters.
    fn show(&self, topology: &Topology, me: GeomId) -> Vec<(&'static str, String)> {
        let _ = (topology, me);
        Vec::new()
    }

    /// The settings that it works with, as [`Class::settings`] gives those of a section.
    fn settings(&self, topology: &Topology, me: GeomId) -> Settings {
        let _ = (topology, me);
        Settings::new()
    }

    /// The changes that verbs made until the next start, besides the settings.
    fn transients(&self, topology: &Topology, me: GeomId) -> Vec<Transient> {
        let _ = (topology, me);
        Vec::new()
    }

    /// Numbers for monitors.
    fn measures(&self, topology: &Topology, me: GeomId) -> Vec<Measure> {
        let _ = (topology, me);
        Vec::new()
    }

    /// Clients that it serves itself, each once for a portal; a LUN's initiators are not among
    /// them.
    fn clients(&self, topology: &Topology, me: GeomId) -> Vec<ServedClient> {
        let _ = (topology, me);
        Vec::new()
    }

    /// Conditions that need attention, each with the action to take. Empty: the geom is healthy.
    fn troubles(&self, topology: &Topology, me: GeomId) -> Vec<Trouble> {
        let _ = (topology, me);
        Vec::new()
    }

    /// Lines for lists about one of its consumers: its state first.
    fn show_consumer(
        &self,
        topology: &Topology,
        me: GeomId,
        consumer: ConsumerId,
    ) -> Vec<(&'static str, String)> {
        let _ = (topology, me, consumer);
        Vec::new()
    }
}
