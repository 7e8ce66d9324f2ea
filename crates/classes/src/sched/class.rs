//! Class of schedulers: created or inserted by hand, never found by tasting.

use std::sync::Arc;

use bio::Errno;
use geom::{
    ClassVerb, Create, Error, GeomId, GraphControl, Limits, MADE_BY_VERB, NewProvider, NoClaim,
    Settings, Topology, Typed,
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use super::algorithms::Algorithm;
use super::clients::Classify;
use super::geom::SchedGeom;
use super::layer::{SchedLayer, SchedShared, start_tasks};
use super::options::{self, Options, ShareOption};
use super::queue::DiskQueue;
use super::{NAME, algorithms, queue, verbs};

pub struct SchedClass;

/// A scheduler above a disk.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SchedParams {
    /// rr, as, fifo, deadline or fair; absent: rr.
    pub algorithm: Option<String>,
    /// Options of the algorithm and of clients: KEY=VALUE, separated by commas.
    pub options: Option<String>,
    /// Classification of requests into clients: initiator, session, lun, process, task or none;
    /// absent: session.
    pub classify: Option<String>,
}

pub(super) fn classify(word: Option<&str>) -> Result<Option<Classify>, Error> {
    let Some(word) = word else { return Ok(None) };
    let none = || Error::inval(format!("classify by {word}: use {}", Classify::KEYS.join(" or ")));
    Classify::of(word).map(Some).ok_or_else(none)
}

/// The parsed parameters of a section.
struct Declared {
    algorithm: (&'static str, Box<dyn Algorithm>),
    classify: Classify,
    shares: Vec<ShareOption>,
}

fn declared(params: &SchedParams) -> Result<Declared, Error> {
    let Options { knobs, shares } = options::read(params.options.as_deref())?;
    let name = params.algorithm.as_deref().unwrap_or(algorithms::DEFAULT);
    let algorithm = queue::algorithm(name, &knobs)?;
    let classify = classify(params.classify.as_deref())?.unwrap_or_default();
    Ok(Declared { algorithm, classify, shares })
}

/// The settings of a scheduler, as a section has them. Options that have their defaults are left
/// out.
pub(super) fn settings(hub: &DiskQueue) -> Settings {
    let all = [
        ("algorithm", Value::from(hub.algorithm_name)),
        ("options", options::text(hub).map_or(Value::Null, Value::from)),
        ("classify", hub.classify.as_str().into()),
    ];
    all.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}

impl Typed for SchedClass {
    const NAME: &'static str = NAME;
    const DOC: &'static str = "I/O scheduler that shares a disk between clients.";
    const VERBS: &'static [ClassVerb<SchedClass>] = verbs::VERBS;
    const MEMBER_LIMITS: (usize, usize) = (1, 1);
    type Params = SchedParams;
    type Claim = NoClaim;
    type Geom = SchedGeom;

    fn settings(&self, params: &SchedParams) -> Result<Settings, Error> {
        let Declared { algorithm, classify, shares } = declared(params)?;
        let mut hub = DiskQueue::new(algorithm, classify, (1, Arc::default()));
        options::set_shares(&mut hub, &shares)?;
        Ok(settings(&hub))
    }

    fn apply_settings(
        &self,
        control: &mut GraphControl,
        name: &str,
        params: &SchedParams,
    ) -> Result<(), Error> {
        let Declared { algorithm, classify, shares } = declared(params)?;
        let worked = verbs::work_as(control, name, |hub, now| {
            if hub.algorithm_name == algorithm.0 {
                let knobs: Vec<_> = algorithm.1.knobs().all().collect();
                hub.configure(|algorithm, _| {
                    let set =
                        |(key, value)| algorithm.knobs_mut().set(key, value).map_err(Error::inval);
                    knobs.into_iter().try_for_each(set)
                })?;
            } else {
                hub.change(algorithm, now);
            }
            hub.set_classify(classify);
            options::only_shares(hub, &shares)
        });
        worked.map(drop)
    }

    fn create(
        &self,
        topology: &mut Topology,
        request: &Create<'_, SchedParams>,
    ) -> Result<GeomId, Error> {
        let Declared { algorithm, classify, shares } = declared(request.params)?;
        let &[below] = request.members else {
            return Err(Error::inval("sched needs exactly one provider"));
        };
        let Some(limits) = topology.limits(below) else {
            return Err(Error::new(Errno::NxIo, "the provider below was removed"));
        };
        let notifier = topology.notifier();
        let mut hub = DiskQueue::new(algorithm, classify, (notifier.cores(), topology.origins()));
        options::set_shares(&mut hub, &shares)?;
        let shared = Arc::new(SchedShared::new(hub, notifier.cores()));
        let geom = SchedGeom { shared: shared.clone(), inserted: false };
        let id = topology.new_geom(NAME, request.name, MADE_BY_VERB, Box::new(geom))?;
        let (stripe_bytes, stripe_offset) = topology.stripe(below);
        let placed = match topology.attach_new(id, below) {
            Ok(consumer) => {
                let layer = SchedLayer { shared: shared.clone(), below: topology.edge(consumer) };
                // Started after the layer, which ends these tasks.
                start_tasks(&shared, &notifier);
                topology.new_provider(
                    id,
                    NewProvider {
                        name: request.name.into(),
                        layer: Arc::new(layer),
                        // Cut below, where the limits are.
                        limits: Limits { io_max_bytes: 0, delete_max_bytes: 0, ..limits },
                        stripe_bytes,
                        stripe_offset,
                        attrs: Vec::new(),
                    },
                )
            }
            Err(e) => Err(Error::of(e, "attach sched")),
        };
        placed.inspect_err(|_| topology.wither_geom(id, Errno::NxIo)).map(|_| id)
    }
}
