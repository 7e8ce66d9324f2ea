//! Layers over one provider that hand requests on: what all such classes have in common.
//!
//! A class that implements [`Filter`] decides the fate of a request. Sizes, stripes, attributes,
//! access counts and the granularity of DELETE are those of the provider below, seen through the
//! class's [`Window`]. One struct of parameters gives the section of the configuration, `create`,
//! `configure`, the lines of lists and the settings that a plan compares.
//!
//! ```text
//!   start() --Fate::Pass--------------> down
//!           --Fate::After(ns)--timer--> down      (later ones may overtake it)
//!           --Fate::Fail--------------> done(error)
//! ```
//! Invariants
//!  F1  A request is either failed without being handed on, or handed on exactly once.
//!  F2  A request comes back with the offset that it came with.
//!  F3  A change of settings is taken over as a whole or not at all.

use std::any::Any;
use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::sync::Arc;

use bio::sync::Mutex;
use bio::{Attr, Bio, Errno};
use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use crate::class::{Class, Create, Geom, MADE_BY_HAND, Settings};
use crate::control::Control;
use crate::core::Core;
use crate::error::Error;
use crate::layer::{Back, Edge, Flow, Layer};
use crate::snapshot::Limits;
use crate::topology::{
    Access, ConsumerId, Deletes, Event, GeomId, NewProvider, ProviderId, Topology,
};
use crate::verb::{ArgKind, ArgSpec, VerbSpec};

/// The fate of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    /// It is handed on.
    Pass,
    /// It is handed on after so many ns.
    After(u64),
    /// It ends here.
    Fail(Errno),
}

/// What a filter shows of the provider below.
#[derive(Clone, Debug, Default)]
pub struct Window {
    /// First byte, a multiple of the sector size.
    pub offset: u64,
    /// Bytes; `None`: all behind the offset, also when the provider grows.
    pub size: Option<u64>,
    /// Bytes of a sector; `None`: as below.
    pub sector: Option<u32>,
    /// Bytes of a stripe, and where the first begins; `None`: as below.
    pub stripe: Option<(u64, u64)>,
    /// Attributes that it answers itself.
    pub attrs: Vec<(&'static str, Attr)>,
}

/// A layer over one provider. One value a geom, used by the data path of all cores.
pub trait Filter: Send + Sync + Sized + 'static {
    /// Class name: lower case.
    const NAME: &'static str;
    /// What it does, in one sentence.
    const DOC: &'static str;
    /// A command line of its `configure` that works, without the program's name.
    const EXAMPLE: &'static str;
    /// Parameters that stay as they are while the geom lives.
    const FIXED: &'static [&'static str] = &[];

    /// Its parameters; defaults by `#[serde(default)]`, limits and units in the schema.
    type Params: Serialize + DeserializeOwned + JsonSchema + Clone + Send + Sync;

    /// Made with these parameters.
    ///
    /// # Errors
    ///
    /// `Inval`, with the parameter, its value and its limit.
    fn new(params: &Self::Params) -> Result<Self, Error>;

    /// Takes over other parameters while requests flow (F3).
    ///
    /// # Errors
    ///
    /// As [`Filter::new`].
    fn configure(&self, params: &Self::Params) -> Result<(), Error>;

    /// The fate of a request.
    fn start(&self, bio: &Bio, core: &Core) -> Fate;

    /// What it shows of the provider below. The default: all of it.
    fn window(params: &Self::Params) -> Window {
        let _ = params;
        Window::default()
    }

    /// Counters for lists, beside the parameters.
    fn counters(&self) -> Vec<(&'static str, String)> {
        Vec::new()
    }

    /// Sets the counters to zero.
    fn reset(&self) {}
}

/// The class of a filter, to be loaded.
pub fn class<F: Filter>() -> Arc<dyn Class> {
    Arc::new(FilterClass::<F>(PhantomData))
}

struct FilterLayer<F> {
    filter: Arc<F>,
    offset: u64,
    below: Edge,
}

impl<F: Filter> Layer for FilterLayer<F> {
    fn delete_ranges(&self) -> u32 {
        u32::MAX
    }

    fn start(&self, bio: &mut Bio, core: &Core) -> Flow {
        let fate = self.filter.start(bio, core);
        if let Fate::Fail(error) = fate {
            return Flow::Done(Err(error));
        }
        let was = bio.offset;
        if bio.op.has_range() {
            // The dispatcher has checked the range, and the window lies on the media below.
            bio.offset = was.saturating_add(self.offset);
        }
        let down = Flow::Down(self.below, was);
        if let Fate::After(ns) = fate {
            core.after(ns, bio.ticket(), down);
            return Flow::Wait;
        }
        down
    }

    fn done(&self, bio: &mut Bio, was: u64, _: &Core) -> Back {
        bio.offset = was;
        Back::Up
    }
}

struct FilterGeom<F: Filter> {
    filter: Arc<F>,
    params: F::Params,
    window: Window,
}

impl<F: Filter> FilterGeom<F> {
    /// Takes over parameters; those of [`Filter::FIXED`] have been compared.
    fn take_over(&mut self, params: F::Params) -> Result<(), Error> {
        self.filter.configure(&params)?;
        self.params = params;
        Ok(())
    }
}

impl<F: Filter> Geom for FilterGeom<F> {
    fn access(
        &mut self,
        topology: &mut Topology,
        me: GeomId,
        _: ProviderId,
        delta: Access,
    ) -> Result<(), Errno> {
        topology.access_all_below(me, delta)
    }

    fn resizes(&self) -> bool {
        true
    }

    fn resized(&mut self, topology: &mut Topology, me: GeomId, consumer: ConsumerId) {
        let below = topology.below(consumer).and_then(|p| topology.limits(p));
        let shown = below.and_then(|limits| self.window.over(&limits).ok());
        match (shown, topology.providers_of(me).first().copied()) {
            (Some(shown), Some(provider)) => {
                topology.post(Event::Resize(provider, shown.media_bytes));
            }
            _ => topology.wither_geom(me, Errno::NxIo),
        }
    }

    fn attr_changed(&mut self, topology: &mut Topology, me: GeomId, _: ConsumerId, name: &str) {
        topology.hand_on_attr(me, name);
    }

    fn attr(&self, topology: &Topology, me: GeomId, _: ProviderId, name: &str) -> Option<Attr> {
        let own = self.window.attrs.iter().find(|(own, _)| *own == name);
        own.map(|(_, value)| value.clone()).or_else(|| topology.attr_below(me, name))
    }

    fn deletes(&self, topology: &Topology, me: GeomId, _: ProviderId) -> Deletes {
        topology.deletes_below(me).moved(self.window.offset)
    }

    fn show(&self, _: &Topology, _: GeomId) -> Vec<(&'static str, String)> {
        let params = object(&self.params);
        let live = verbs::<F>().first().map_or(&[][..], |configure| configure.args);
        let keys = live.iter().map(|arg| arg.name).chain(F::FIXED.iter().copied());
        let shown = keys.filter_map(|key| match params.get(key)? {
            Value::String(text) => Some((key, text.clone())),
            Value::Null => None,
            other => Some((key, other.to_string())),
        });
        shown.chain(self.filter.counters()).collect()
    }

    fn settings(&self, _: &Topology, _: GeomId) -> Settings {
        live::<F>(&self.params)
    }

    fn as_any(&mut self) -> &mut dyn Any {
        self
    }
}

impl Window {
    /// What it shows of a provider with these numbers.
    ///
    /// # Errors
    ///
    /// `Inval`: which number does not fit.
    fn over(&self, below: &Limits) -> Result<Limits, Error> {
        let inval = |what: String| Err(Error::inval(what));
        let sector = self.sector.unwrap_or(below.sector_bytes);
        if sector == 0 || !sector.is_multiple_of(below.sector_bytes.max(1)) {
            return inval(format!("sector_size {sector} is no multiple of {}", below.sector_bytes));
        }
        let odd = |v: u64| !v.is_multiple_of(u64::from(sector));
        if odd(self.offset) || self.size.is_some_and(|s| odd(s) || s == 0) {
            return inval(format!("offset and size are multiples of the sector size, {sector}"));
        }
        if self.stripe.is_some_and(|(bytes, offset)| offset >= bytes) {
            return inval("stripe_offset lies inside a stripe: less than stripe_size".into());
        }
        let room = below.media_bytes.saturating_sub(self.offset);
        let whole = room - room % u64::from(sector);
        match self.size.unwrap_or(whole) {
            size if size > 0 && size <= room => Ok(Limits {
                media_bytes: size,
                sector_bytes: sector,
                io_max_bytes: 0,
                delete_max_bytes: 0,
            }),
            _ => inval(format!(
                "offset and size reach beyond the {} bytes below, or leave nothing",
                below.media_bytes
            )),
        }
    }

    /// Stripe size and offset over a provider with these, seen from where the window begins.
    fn stripe_over(&self, (bytes, offset): (u64, u64)) -> (u64, u64) {
        let moved = || offset.saturating_add(self.offset).checked_rem(bytes).unwrap_or(0);
        self.stripe.unwrap_or_else(|| (bytes, moved()))
    }
}

struct FilterClass<F>(PhantomData<fn() -> F>);

impl<F: Filter> Class for FilterClass<F> {
    fn name(&self) -> &'static str {
        F::NAME
    }

    fn doc(&self) -> &'static str {
        F::DOC
    }

    fn params(&self) -> Option<Value> {
        Some(schema::<F>())
    }

    fn create(&self, topology: &mut Topology, request: &Create<'_>) -> Result<GeomId, Error> {
        let params = parse::<F>(request.params)?;
        let filter = Arc::new(F::new(&params)?);
        let window = F::window(&params);
        let &[below] = request.members else {
            let what = format!("{} is made on exactly one provider", F::NAME);
            return Err(Error::inval(what));
        };
        let gone = || Error::new(Errno::NxIo, "the provider below is gone");
        let limits = window.over(&topology.limits(below).ok_or_else(gone)?)?;
        let (stripe_bytes, stripe_offset) = window.stripe_over(topology.stripe(below));
        let (offset, attrs) = (window.offset, window.attrs.clone());
        let geom = FilterGeom { filter: filter.clone(), params, window };
        let id = topology.new_geom(F::NAME, request.name, MADE_BY_HAND, Box::new(geom))?;
        let attached = topology.attach_new(id, below);
        let made = attached.map_err(|e| Error::of(e, "attach")).and_then(|consumer| {
            let below = topology.edge(consumer);
            let layer = Arc::new(FilterLayer { filter, offset, below });
            let name = request.name.into();
            topology.new_provider(
                id,
                NewProvider { name, layer, limits, stripe_bytes, stripe_offset, attrs },
            )
        });
        made.inspect_err(|_| topology.wither_geom(id, Errno::NxIo)).map(|_| id)
    }

    fn layout(&self, params: &Value, _: &[u64]) -> Option<String> {
        let offset = F::window(&parse::<F>(params).ok()?).offset;
        Some(format!("what is {offset} bytes behind the start of its member"))
    }

    fn settings(&self, params: &Value) -> Result<Settings, Error> {
        let params = parse::<F>(params)?;
        F::new(&params)?;
        Ok(live::<F>(&params))
    }

    fn work_as(&self, control: &mut Control, name: &str, params: &Value) -> Result<(), Error> {
        let params = parse::<F>(params)?;
        with::<F, _>(control, name, |geom| geom.take_over(params))
    }

    fn verbs(&self) -> &'static [VerbSpec] {
        verbs::<F>()
    }

    fn verb(
        &self,
        control: &mut Control,
        verb: &str,
        on: &str,
        params: &Value,
    ) -> Result<Value, Error> {
        match verb {
            "configure" => with::<F, _>(control, on, |geom| {
                geom.take_over(overlay::<F>(on, &geom.params, params)?)?;
                Ok(json!({ "message": format!("{on} configured") }))
            }),
            "reset" => with::<F, _>(control, on, |geom| {
                geom.filter.reset();
                Ok(json!({}))
            }),
            other => {
                let what = format!("{} has no verb {other}; configure, reset", F::NAME);
                Err(Error::new(Errno::NotSup, what))
            }
        }
    }
}

fn schema<F: Filter>() -> Value {
    schemars::schema_for!(F::Params).to_value()
}

fn parse<F: Filter>(value: &Value) -> Result<F::Params, Error> {
    let given = if value.is_null() { json!({}) } else { value.clone() };
    let fails = |value: Value| serde_json::from_value::<F::Params>(value).err();
    serde_json::from_value(given.clone()).map_err(|e| {
        // The first key that cannot be read by itself.
        let mut each = given.as_object().into_iter().flatten();
        let bad = each.find_map(|(key, value)| {
            fails(Value::Object([(key.clone(), value.clone())].into_iter().collect()))
                .map(|e| format!("{}: `{key}`: {e}", F::NAME))
        });
        Error::inval(bad.unwrap_or_else(|| format!("{}: {e}", F::NAME)))
    })
}

fn object(params: &impl Serialize) -> Map<String, Value> {
    let value = serde_json::to_value(params).unwrap_or_default();
    value.as_object().cloned().unwrap_or_default()
}

/// The parameters that can change.
fn live<F: Filter>(params: &F::Params) -> Settings {
    let mut all = object(params);
    all.retain(|key, _| !F::FIXED.contains(&key.as_str()));
    all
}

/// The parameters of a geom with those that are given; null gives one its default.
fn overlay<F: Filter>(on: &str, now: &F::Params, given: &Value) -> Result<F::Params, Error> {
    let mut all = object(now);
    for (key, value) in given.as_object().into_iter().flatten() {
        if F::FIXED.contains(&key.as_str()) {
            let what = format!(
                "{} {on}: `{key}` is fixed while the geom lives; destroy it and create it again",
                F::NAME
            );
            return Err(Error::new(Errno::NotSup, what));
        }
        match value {
            Value::Null => all.remove(key),
            value => all.insert(key.clone(), value.clone()),
        };
    }
    parse::<F>(&Value::Object(all))
}

/// Runs `f` on a geom of the class.
fn with<F: Filter, R>(
    control: &mut Control,
    on: &str,
    f: impl FnOnce(&mut FilterGeom<F>) -> Result<R, Error>,
) -> Result<R, Error> {
    let Some(id) = control.topology.find_geom(F::NAME, on) else {
        return Err(Error::new(Errno::NoEnt, format!("no {} {on}", F::NAME)));
    };
    let done = control.topology.with(id, |geom: &mut FilterGeom<F>, _| f(geom));
    done.unwrap_or_else(|| Err(Error::new(Errno::NxIo, format!("{} {on} is going", F::NAME))))
}

/// `configure` and `reset`, derived from the schema once for each class.
fn verbs<F: Filter>() -> &'static [VerbSpec] {
    static KNOWN: Mutex<BTreeMap<&'static str, &'static [VerbSpec]>> = Mutex::new(BTreeMap::new());
    let mut known = KNOWN.lock();
    known.entry(F::NAME).or_insert_with(|| {
        let schema = schema::<F>();
        let properties = schema.get("properties").and_then(Value::as_object);
        let live = properties.into_iter().flatten().filter(|(key, _)| {
            let key: &str = key;
            !F::FIXED.contains(&key)
        });
        let name = ArgSpec { name: "name", short: None, kind: ArgKind::Name, doc: "Its name" };
        let args: Vec<ArgSpec> =
            std::iter::once(name).chain(live.map(|(key, about)| argument(key, about))).collect();
        Vec::leak(vec![
            VerbSpec {
                name: "configure",
                doc: "Change settings while requests flow",
                detail: "What is not given stays as it is.",
                args: Vec::leak(args),
                example: F::EXAMPLE,
                writes: false,
            },
            VerbSpec {
                name: "reset",
                doc: "Set the counters to zero",
                detail: "",
                args: std::slice::from_ref(Box::leak(Box::new(name))),
                example: String::leak(format!("{} reset a", F::NAME)),
                writes: false,
            },
        ])
    })
}

/// The option of a parameter, with the default that the schema has.
fn argument(key: &str, about: &Value) -> ArgSpec {
    let kind = match about.get("type") {
        Some(Value::String(one)) => one.as_str(),
        // With null: it may be absent.
        Some(Value::Array(some)) => some.first().and_then(Value::as_str).unwrap_or("string"),
        _ => "string",
    };
    let words = about.get("enum").and_then(Value::as_array).map(|all| {
        let words = all
            .iter()
            .filter_map(Value::as_str)
            .map(|word| -> &'static str { String::leak(word.to_owned()) });
        words.collect::<Vec<_>>()
    });
    let kind = match (words, kind) {
        (Some(words), _) => ArgKind::Choice(Vec::leak(words)),
        (None, "integer" | "number") if key.contains("bytes") => ArgKind::Bytes,
        (None, "integer" | "number") => ArgKind::Number,
        (None, "boolean") => ArgKind::Flag,
        (None, _) => ArgKind::Text,
    };
    let text = about.get("description").and_then(Value::as_str).unwrap_or_default();
    let text = text.trim_end_matches('.').replace('\n', " ");
    let doc = match about.get("default") {
        None | Some(Value::Null) => text,
        Some(Value::String(default)) => format!("{text} [at first {default}]"),
        Some(default) => format!("{text} [at first {default}]"),
    };
    ArgSpec { name: String::leak(key.to_owned()), short: None, kind, doc: String::leak(doc) }
}
