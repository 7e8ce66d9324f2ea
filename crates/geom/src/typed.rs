//! Typed interface of classes: parameters, claims and geoms as types; the graph sees [`Class`].
//!
//! ```text
//!   parameters, JSON ---> Params --.
//!   claim, Box<dyn Any> -> Claim ---> impl Typed  ==>  impl Class, once, here
//!   verbs, a list -------> Verb  --'
//! ```

use bio::Errno;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::class::{Claim, Class, Create, Local, Settings, TasteOutcome, Taster};
use crate::control::GraphControl;
use crate::error::Error;
use crate::topology::{GeomId, ProviderId, Topology};
use crate::verb::{ClassVerb, VerbSpec, call, read, schema_of, specs};
use crate::{Geom, Redeclare};

/// The parameters of a class that has none.
#[derive(
    Clone, Default, PartialEq, Eq, Debug, serde::Deserialize, serde::Serialize, JsonSchema,
)]
#[serde(deny_unknown_fields)]
pub struct NoParams {}

/// The claim of a class that does not taste.
pub type NoClaim = std::convert::Infallible;

/// A class with its types. Every method that is not written is as that of [`Class`].
pub trait Typed: Send + Sync + Sized + 'static {
    /// Name in lists, configuration and commands: lower case.
    const NAME: &'static str;
    /// One sentence.
    const DOC: &'static str;
    const VERBS: &'static [ClassVerb<Self>] = &[];
    /// It can be made by hand and declared.
    const CREATABLE: bool = true;
    /// See [`Class::tastes`].
    const TASTES: bool = false;
    /// See [`Class::only_shows`].
    const ONLY_SHOWS: bool = false;
    /// See [`Class::hides_refused`].
    const HIDES_REFUSED: bool = false;
    /// See [`Class::has_end_metadata`].
    const HAS_END_METADATA: bool = false;
    /// See [`Class::keeps_records`].
    const KEEPS_RECORDS: bool = false;
    /// See [`Class::is_named_after_provider`].
    const NAMED_AFTER_PROVIDER: bool = false;
    /// See [`Class::opens_members`].
    const OPENS_MEMBERS: bool = false;
    /// See [`Class::member_edits_last`].
    const MEMBER_EDITS_LAST: Option<&'static str> = None;
    /// See [`Class::passes_serial`].
    const PASSES_SERIAL: bool = false;
    /// See [`Class::shown_as`].
    const SHOWN_AS: &'static [(&'static str, &'static str)] = &[];
    /// See [`Class::listen_keys`].
    const LISTEN_KEYS: &'static [&'static str] = &[];
    /// See [`Class::edits`].
    const EDITS: &'static [(&'static str, &'static str)] = &[];
    /// See [`Class::member_limits`].
    const MEMBER_LIMITS: (usize, usize) = (0, usize::MAX);

    /// The parameters of a configuration section and of `create`, besides name and members.
    type Params: DeserializeOwned + JsonSchema;
    /// What tasting finds; [`NoClaim`] for a class that does not taste.
    type Claim: Send + 'static;
    type Geom: Geom;

    /// See [`Class::taste`].
    fn taste<'a>(&'a self, disk: &'a Taster) -> Local<'a, TasteOutcome<Self::Claim>> {
        let _ = disk;
        Box::pin(async { TasteOutcome::No("the class does not taste".into()) })
    }

    /// See [`Class::claim`].
    ///
    /// # Errors
    ///
    /// Its own: why no geom can be made of it, or it cannot be taken in.
    fn claim(
        &self,
        topology: &mut Topology,
        on: ProviderId,
        why: &str,
        claim: Self::Claim,
    ) -> Result<(), Error> {
        let _ = (topology, on, why, claim);
        let what = format!("class {} makes nothing by tasting", Self::NAME);
        Err(Error::new(Errno::NotSup, what))
    }

    /// See [`Class::create`].
    ///
    /// # Errors
    ///
    /// Its own: which parameter or member is refused, and why.
    fn create(
        &self,
        topology: &mut Topology,
        request: &Create<'_, Self::Params>,
    ) -> Result<GeomId, Error> {
        let _ = (topology, request);
        let what =
            format!("class {} cannot be created by hand; it is found by tasting", Self::NAME);
        Err(Error::new(Errno::NotSup, what))
    }

    /// See [`Class::stopped_geoms`].
    fn stopped_geoms(&self) -> Vec<(String, String)> {
        Vec::new()
    }

    /// See [`Class::missing`].
    fn missing(&self, topology: &Topology, params: &Self::Params) -> Option<String> {
        let _ = (topology, params);
        None
    }

    /// See [`Class::check_declare`].
    ///
    /// # Errors
    ///
    /// Why [`Typed::declare`] would refuse.
    fn check_declare(&self, control: &mut GraphControl, members: &[String]) -> Result<(), Error> {
        let _ = (control, members);
        Ok(())
    }

    /// See [`Class::declare`].
    ///
    /// # Errors
    ///
    /// As [`Typed::create`].
    fn declare(
        &self,
        control: &mut GraphControl,
        request: &Create<'_, Self::Params>,
        consent: &[String],
    ) -> Result<(), Error> {
        let _ = consent;
        control.call(|t| self.create(t, request)).map(drop)
    }

    /// See [`Class::settings`].
    ///
    /// # Errors
    ///
    /// Parameters that cannot be together, or that are beyond their limits.
    fn settings(&self, params: &Self::Params) -> Result<Settings, Error> {
        let _ = params;
        Ok(Settings::new())
    }

    /// See [`Class::apply_settings`].
    ///
    /// # Errors
    ///
    /// As [`Typed::settings`], or there is no such geom.
    fn apply_settings(
        &self,
        control: &mut GraphControl,
        name: &str,
        params: &Self::Params,
    ) -> Result<(), Error> {
        let _ = (control, params);
        let what = format!("{name}: its class has no settings to change");
        Err(Error::new(Errno::NotSup, what))
    }

    /// See [`Class::can_replace_members`].
    fn can_replace_members(&self, from: &[String], to: &[String]) -> bool {
        from == to
    }

    /// See [`Class::check_redeclare`].
    ///
    /// # Errors
    ///
    /// Why [`Typed::redeclare`] would refuse.
    fn check_redeclare(
        &self,
        control: &mut GraphControl,
        request: &Redeclare<'_, Self::Params>,
    ) -> Result<(), Error> {
        let _ = control;
        if request.from == request.to && !self.settings(request.params)?.is_empty() {
            return Ok(());
        }
        let what = format!("a geom of class {} does not change while it is used", Self::NAME);
        Err(Error::new(Errno::NotSup, what))
    }

    /// See [`Class::redeclare`].
    ///
    /// # Errors
    ///
    /// What [`Typed::check_redeclare`] and [`Typed::apply_settings`] refuse.
    fn redeclare(
        &self,
        control: &mut GraphControl,
        request: &Redeclare<'_, Self::Params>,
        consent: &[String],
    ) -> Result<(), Error> {
        let _ = consent;
        self.check_redeclare(control, request)?;
        self.apply_settings(control, request.name, request.params)
    }

    /// See [`Class::layout`].
    fn layout(&self, params: &Self::Params, bytes: &[u64]) -> Option<String> {
        let _ = (params, bytes);
        None
    }

    /// Takes a geom apart that may be: it is not open, or force was given.
    fn disassemble(&self, topology: &mut Topology, geom: GeomId) {
        topology.wither_geom(geom, Errno::NxIo);
    }

    /// See [`Class::verbs`].
    fn verbs() -> &'static [VerbSpec] {
        specs(Self::VERBS)
    }

    /// See [`Class::verb`].
    ///
    /// # Errors
    ///
    /// There is no such verb, a parameter is wrong, or the verb itself fails.
    fn verb(
        &self,
        control: &mut GraphControl,
        verb: &str,
        on: &str,
        params: &Value,
    ) -> Result<Value, Error> {
        call(Self::VERBS, self, control, (verb, on), params)
    }

    /// Parameters from a section or a verb.
    ///
    /// # Errors
    ///
    /// `Inval`: the key and the problem with it.
    fn read(params: &Value) -> Result<Self::Params, Error> {
        read(Self::NAME, params)
    }
}

impl<C: Typed> Class for C {
    fn name(&self) -> &'static str {
        C::NAME
    }

    fn doc(&self) -> &'static str {
        C::DOC
    }

    fn params(&self) -> Option<Value> {
        C::CREATABLE.then(schema_of::<C::Params>)
    }

    fn tastes(&self) -> bool {
        C::TASTES
    }

    fn only_shows(&self) -> bool {
        C::ONLY_SHOWS
    }

    fn hides_refused(&self) -> bool {
        C::HIDES_REFUSED
    }

    fn has_end_metadata(&self) -> bool {
        C::HAS_END_METADATA
    }

    fn stopped_geoms(&self) -> Vec<(String, String)> {
        Typed::stopped_geoms(self)
    }

    fn taste<'a>(&'a self, disk: &'a Taster) -> Local<'a, TasteOutcome> {
        Box::pin(async move { Typed::taste(self, disk).await.erased() })
    }

    fn claim(
        &self,
        topology: &mut Topology,
        on: ProviderId,
        why: &str,
        claim: Claim,
    ) -> Result<(), Error> {
        let Ok(claim) = claim.downcast::<C::Claim>() else {
            return Err(Error::inval(format!("the claim is not one of class {}", C::NAME)));
        };
        Typed::claim(self, topology, on, why, *claim)
    }

    fn create(&self, topology: &mut Topology, request: &Create<'_>) -> Result<GeomId, Error> {
        let Create { name, members, params } = *request;
        Typed::create(self, topology, &Create { name, members, params: &C::read(params)? })
    }

    fn missing(&self, topology: &Topology, params: &Value) -> Option<String> {
        Typed::missing(self, topology, &C::read(params).ok()?)
    }

    fn keeps_records(&self) -> bool {
        C::KEEPS_RECORDS
    }

    fn is_named_after_provider(&self) -> bool {
        C::NAMED_AFTER_PROVIDER
    }

    fn member_edits_last(&self) -> Option<&'static str> {
        C::MEMBER_EDITS_LAST
    }

    fn passes_serial(&self) -> bool {
        C::PASSES_SERIAL
    }

    fn shown_as(&self) -> &'static [(&'static str, &'static str)] {
        C::SHOWN_AS
    }

    fn listen_keys(&self) -> &'static [&'static str] {
        C::LISTEN_KEYS
    }

    fn edits(&self) -> &'static [(&'static str, &'static str)] {
        C::EDITS
    }

    fn member_limits(&self) -> (usize, usize) {
        C::MEMBER_LIMITS
    }

    fn opens_members(&self) -> bool {
        C::OPENS_MEMBERS
    }

    fn check_declare(&self, control: &mut GraphControl, members: &[String]) -> Result<(), Error> {
        Typed::check_declare(self, control, members)
    }

    fn declare(
        &self,
        control: &mut GraphControl,
        request: &Create<'_>,
        consent: &[String],
    ) -> Result<(), Error> {
        let Create { name, members, params } = *request;
        let request = Create { name, members, params: &C::read(params)? };
        Typed::declare(self, control, &request, consent)
    }

    fn settings(&self, params: &Value) -> Result<Settings, Error> {
        Typed::settings(self, &C::read(params)?)
    }

    fn apply_settings(
        &self,
        control: &mut GraphControl,
        name: &str,
        params: &Value,
    ) -> Result<(), Error> {
        Typed::apply_settings(self, control, name, &C::read(params)?)
    }

    fn can_replace_members(&self, from: &[String], to: &[String]) -> bool {
        Typed::can_replace_members(self, from, to)
    }

    fn check_redeclare(
        &self,
        control: &mut GraphControl,
        request: &Redeclare<'_>,
    ) -> Result<(), Error> {
        let Redeclare { name, from, to, params } = *request;
        let request = Redeclare { name, from, to, params: &C::read(params)? };
        Typed::check_redeclare(self, control, &request)
    }

    fn redeclare(
        &self,
        control: &mut GraphControl,
        request: &Redeclare<'_>,
        consent: &[String],
    ) -> Result<(), Error> {
        let Redeclare { name, from, to, params } = *request;
        let request = Redeclare { name, from, to, params: &C::read(params)? };
        Typed::redeclare(self, control, &request, consent)
    }

    fn layout(&self, params: &Value, bytes: &[u64]) -> Option<String> {
        Typed::layout(self, &C::read(params).ok()?, bytes)
    }

    fn destroy(&self, topology: &mut Topology, geom: GeomId, force: bool) -> Result<(), Error> {
        if !force && topology.geom_is_open(geom) {
            let name = topology.geom_name(geom);
            let what = format!("{name} is open; close what uses it, or use force");
            return Err(Error::new(Errno::Busy, what));
        }
        self.disassemble(topology, geom);
        Ok(())
    }

    fn verbs(&self) -> &'static [VerbSpec] {
        <C as Typed>::verbs()
    }

    fn verb(
        &self,
        control: &mut GraphControl,
        verb: &str,
        on: &str,
        params: &Value,
    ) -> Result<Value, Error> {
        Typed::verb(self, control, verb, on, params)
    }
}

/// A name of a geom without the class that may be before it.
pub fn bare_name<'a>(class: &str, on: &'a str) -> &'a str {
    on.strip_prefix(class).and_then(|rest| rest.strip_prefix('/')).unwrap_or(on)
}

/// A geom of a class by its name, with or without the class before it.
///
/// # Errors
///
/// `NoEnt`: there is none.
pub fn named(topology: &Topology, class: &str, on: &str) -> Result<GeomId, Error> {
    let name = bare_name(class, on);
    topology.find_geom(class, name).ok_or_else(|| {
        let what = format!("there is no {class} {name}; `ashlar {class} status` names them");
        Error::new(Errno::NoEnt, what)
    })
}

/// Runs `f` on a geom of the class by its name, as [`named`] takes it, and waits until the graph
/// is at rest.
///
/// # Errors
///
/// `NoEnt`: there is none. `NxIo`: it is going. The result of `f`.
pub fn with<C: Typed, R>(
    control: &mut GraphControl,
    on: &str,
    f: impl FnOnce(&mut C::Geom, &mut Topology, GeomId) -> Result<R, Error>,
) -> Result<R, Error> {
    let id = named(&control.topology, C::NAME, on)?;
    let (class, name) = (C::NAME, bare_name(C::NAME, on));
    let going = || Err(Error::new(Errno::NxIo, format!("{class} {name} is being removed")));
    control.call(|t| t.with(id, |geom: &mut C::Geom, t| f(geom, t, id)).unwrap_or_else(going))
}
