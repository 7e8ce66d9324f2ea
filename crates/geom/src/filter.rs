//! Common code of classes with a layer over one provider that passes requests on.
//!
//! A class that implements [`Filter`] decides the fate of a request. Sizes, stripes, attributes,
//! access counts and the granularity of DELETE are those of the provider below, seen through the
//! class's [`Window`]. One struct of parameters gives the section of the configuration, `create`,
//! `configure`, the lines of lists and the settings that a plan compares.
//!
//! ```text
//!   start() --FilterAction::Pass--------------> down
//!           --FilterAction::After(ns)--timer--> down      (later ones may overtake it)
//!           --FilterAction::Fail--------------> done(error)
//! ```
//! Invariants
//!  F1  A request is either failed without being handed on, or handed on exactly once.
//!  F2  A request returns with the offset with which it arrived.
//!  F3  A change of settings is taken over as a whole or not at all.

use std::marker::PhantomData;
use std::sync::Arc;

use bio::{Attr, Bio, Errno};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use crate::class::{Class, Create, Geom, MADE_BY_VERB, Settings};
use crate::control::GraphControl;
use crate::core::Core;
use crate::error::Error;
use crate::layer::{Back, Edge, Flow, Layer};
use crate::snapshot::Limits;
use crate::topology::{ConsumerId, Deletes, Event, GeomId, NewProvider, ProviderId, Topology};
use crate::typed::{NoClaim, Typed, with};
use crate::verb::{At, Change, ClassParams, ClassVerb, MessageAnswer, Verb, specs};

/// The fate of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FilterAction {
    /// It is handed on.
    Pass,
    /// It is handed on after so many ns.
    After(u64),
    /// It ends here.
    Fail(Errno),
}

/// The part of the provider below that a filter shows.
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
    /// Its function, in one sentence.
    const DOC: &'static str;
    /// A command line of its `configure` that works, without the program's name.
    const EXAMPLE: &'static str;

    /// Its parameters.
    type Params: ClassParams;

    /// Made with these parameters, whose numbers are within the limits of the schema.
    ///
    /// # Errors
    ///
    /// `Inval`, with the parameter, its value and what is wrong with it.
    fn new(params: &Self::Params) -> Result<Self, Error>;

    /// Takes over other parameters while requests flow (F3).
    ///
    /// # Errors
    ///
    /// As [`Filter::new`].
    fn configure(&self, params: &Self::Params) -> Result<(), Error>;

    /// The fate of a request.
    fn start(&self, bio: &Bio, core: &Core) -> FilterAction;

    /// The part of the provider below that it shows. The default: all of it.
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
        if let FilterAction::Fail(error) = fate {
            return Flow::Done(Err(error));
        }
        let was = bio.offset;
        if bio.op.has_range() {
            // The dispatcher has checked the range, and the window is on the media below.
            bio.offset = was.saturating_add(self.offset);
        }
        let down = Flow::Down(self.below, was);
        if let FilterAction::After(ns) = fate {
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
    /// Takes over parameters; those of [`Params::FIXED`] are the same.
    fn apply_params(&mut self, params: F::Params) -> Result<(), Error> {
        params.check_limits(F::NAME)?;
        self.filter.configure(&params)?;
        self.params = params;
        Ok(())
    }
}

impl<F: Filter> Geom for FilterGeom<F> {
    fn resizes(&self) -> bool {
        true
    }

    fn resized(&mut self, topology: &mut Topology, me: GeomId, consumer: ConsumerId) {
        let below = topology.below(consumer).and_then(|p| topology.limits(p));
        let resized = below.and_then(|limits| self.window.limits_over(&limits).ok());
        match (resized, topology.providers_of(me).first().copied()) {
            (Some(resized), Some(provider)) => {
                topology.post(Event::Resize(provider, resized.media_bytes));
            }
            _ => topology.wither_geom(me, Errno::NxIo),
        }
    }

    fn attr_changed(&mut self, topology: &mut Topology, me: GeomId, _: ConsumerId, name: &str) {
        topology.pass_up_attr(me, name);
    }

    fn attr(&self, topology: &Topology, me: GeomId, _: ProviderId, name: &str) -> Option<Attr> {
        let own = self.window.attrs.iter().find(|(own, _)| *own == name);
        own.map(|(_, value)| value.clone()).or_else(|| topology.attr_below(me, name))
    }

    fn deletes(&self, topology: &Topology, me: GeomId, _: ProviderId) -> Deletes {
        topology.deletes_below(me).moved(self.window.offset)
    }

    fn show(&self, _: &Topology, _: GeomId) -> Vec<(&'static str, String)> {
        let params = serde_json::to_value(&self.params).unwrap_or_default();
        // Its name is the first.
        let live = specs(FilterClass::<F>::VERBS).first().and_then(|spec| spec.args.get(1..));
        let live = live.unwrap_or_default().iter().map(|arg| arg.name);
        let keys = live.chain(F::Params::FIXED.iter().copied());
        let fields = keys.filter_map(|key| match params.get(key)? {
            Value::String(text) => Some((key, text.clone())),
            Value::Null => None,
            other => Some((key, other.to_string())),
        });
        fields.chain(self.filter.counters()).collect()
    }

    fn settings(&self, _: &Topology, _: GeomId) -> Settings {
        self.params.settings()
    }
}

impl Window {
    /// The limits of the window over a provider with the limits `below`.
    ///
    /// # Errors
    ///
    /// `Inval`: which number does not fit.
    fn limits_over(&self, below: &Limits) -> Result<Limits, Error> {
        let inval = |what: String| Err(Error::inval(what));
        let sector = self.sector.unwrap_or(below.sector_bytes);
        if sector == 0 || !sector.is_multiple_of(below.sector_bytes.max(1)) {
            return inval(format!("sector_size {sector} is no multiple of {}", below.sector_bytes));
        }
        let odd = |v: u64| !v.is_multiple_of(u64::from(sector));
        if odd(self.offset) || self.size.is_some_and(|s| odd(s) || s == 0) {
            return inval(format!(
                "offset and size must be multiples of the sector size ({sector})"
            ));
        }
        if self.stripe.is_some_and(|(bytes, offset)| offset >= bytes) {
            return inval("stripe_offset must be less than stripe_size".into());
        }
        let left = below.media_bytes.saturating_sub(self.offset);
        let sectors = left - left % u64::from(sector);
        match self.size.unwrap_or(sectors) {
            size if size > 0 && size <= left => Ok(Limits {
                media_bytes: size,
                sector_bytes: sector,
                io_max_bytes: 0,
                delete_max_bytes: 0,
            }),
            _ => inval(format!(
                "offset and size are outside the {} bytes below, or leave no data",
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

impl<F: Filter> Typed for FilterClass<F> {
    const NAME: &'static str = F::NAME;
    const DOC: &'static str = F::DOC;
    const VERBS: &'static [ClassVerb<FilterClass<F>>] =
        &[ClassVerb::of::<Configure<F>>(), ClassVerb::of::<Reset>()];
    const MEMBER_LIMITS: (usize, usize) = (1, 1);
    type Params = F::Params;
    type Claim = NoClaim;
    type Geom = FilterGeom<F>;

    fn create(
        &self,
        topology: &mut Topology,
        request: &Create<'_, F::Params>,
    ) -> Result<GeomId, Error> {
        let params = request.params.clone();
        params.check_limits(F::NAME)?;
        let filter = Arc::new(F::new(&params)?);
        let window = F::window(&params);
        let &[below] = request.members else {
            let what = format!("{} needs exactly one provider", F::NAME);
            return Err(Error::inval(what));
        };
        let gone = || Error::new(Errno::NxIo, "the provider below was removed");
        let limits = window.limits_over(&topology.limits(below).ok_or_else(gone)?)?;
        let (stripe_bytes, stripe_offset) = window.stripe_over(topology.stripe(below));
        let (offset, attrs) = (window.offset, window.attrs.clone());
        let geom = FilterGeom { filter: filter.clone(), params, window };
        let id = topology.new_geom(F::NAME, request.name, MADE_BY_VERB, Box::new(geom))?;
        let attached = topology.attach_new(id, below);
        let result = attached.map_err(|e| Error::of(e, "attach")).and_then(|consumer| {
            let below = topology.edge(consumer);
            let layer = Arc::new(FilterLayer { filter, offset, below });
            let name = request.name.into();
            topology.new_provider(
                id,
                NewProvider { name, layer, limits, stripe_bytes, stripe_offset, attrs },
            )
        });
        result.inspect_err(|_| topology.wither_geom(id, Errno::NxIo)).map(|_| id)
    }

    fn layout(&self, params: &F::Params, _: &[u64]) -> Option<String> {
        let offset = F::window(params).offset;
        Some(format!("what is {offset} bytes behind the start of its member"))
    }

    fn settings(&self, params: &F::Params) -> Result<Settings, Error> {
        params.check_limits(F::NAME)?;
        F::new(params)?;
        Ok(params.settings())
    }

    fn apply_settings(
        &self,
        control: &mut GraphControl,
        name: &str,
        params: &F::Params,
    ) -> Result<(), Error> {
        with::<Self, _>(control, name, |geom, _, _| geom.apply_params(params.clone()))
    }
}

/// Change the settings of a layer while requests flow
///
/// Settings that are not given stay unchanged.
#[derive(Deserialize, JsonSchema)]
#[serde(bound = "")]
#[schemars(bound = "F: Filter")]
struct Configure<F: Filter> {
    /// Name of the layer
    name: String,
    #[serde(flatten)]
    change: Change<F::Params>,
}

impl<F: Filter> Verb<FilterClass<F>> for Configure<F> {
    const NAME: &'static str = "configure";
    const EXAMPLE: &'static str = F::EXAMPLE;
    type Answer = MessageAnswer;

    fn run(self, (_, control): At<'_, FilterClass<F>>) -> Result<MessageAnswer, Error> {
        let Configure { name, change } = self;
        with::<FilterClass<F>, _>(control, &name, |geom, _, _| {
            geom.apply_params(change.over(&format!("{} {name}", F::NAME), &geom.params)?)?;
            Ok(MessageAnswer::new(format!("{name} configured")))
        })
    }
}

/// Reset the counters of a layer
#[derive(Deserialize, JsonSchema)]
struct Reset {
    /// Name of the layer
    name: String,
}

impl<F: Filter> Verb<FilterClass<F>> for Reset {
    const NAME: &'static str = "reset";
    const EXAMPLE: &'static str = "reset a";
    type Answer = MessageAnswer;

    fn run(self, (_, control): At<'_, FilterClass<F>>) -> Result<MessageAnswer, Error> {
        with::<FilterClass<F>, _>(control, &self.name, |geom, _, _| {
            geom.filter.reset();
            Ok(MessageAnswer::new(format!("{}: counters reset", self.name)))
        })
    }
}
