//! Class of schedulers: created or inserted by hand, never found by tasting.

use std::sync::Arc;

use bio::Errno;
use geom::{
    ClassVerb, Create, Error, GeomId, GraphControl, Limits, MADE_BY_VERB, NewProvider, NoClaim,
    Settings, Topology, Typed,
};

use super::geom::SchedGeom;
use super::layer::{SchedLayer, SchedShared, start_tasks};
use super::options;
use super::params::{SchedParams, settings};
use super::queue::DiskQueue;
use super::{NAME, verbs};

pub struct SchedClass;

impl Typed for SchedClass {
    const NAME: &'static str = NAME;
    const DOC: &'static str = "I/O scheduler that shares a disk between clients.";
    const VERBS: &'static [ClassVerb<SchedClass>] = verbs::VERBS;
    const MEMBER_LIMITS: (usize, usize) = (1, 1);
    type Params = SchedParams;
    type Claim = NoClaim;
    type Geom = SchedGeom;

    fn settings(&self, params: &SchedParams) -> Result<Settings, Error> {
        let mut hub = DiskQueue::new(params.algorithm()?, params.classify, (1, Arc::default()));
        options::set_shares(&mut hub, &params.options.shares)?;
        Ok(settings(&hub))
    }

    fn apply_settings(
        &self,
        control: &mut GraphControl,
        name: &str,
        params: &SchedParams,
    ) -> Result<(), Error> {
        let algorithm = params.algorithm()?;
        let worked = verbs::work_as(control, name, |hub, now| {
            if hub.algorithm_name == algorithm.0 {
                options::set_knobs(hub, algorithm.1.knobs().all())?;
            } else {
                hub.change(algorithm, now);
            }
            hub.set_classify(params.classify);
            options::only_shares(hub, &params.options.shares)
        });
        worked.map(drop)
    }

    fn create(
        &self,
        topology: &mut Topology,
        request: &Create<'_, SchedParams>,
    ) -> Result<GeomId, Error> {
        let (params, algorithm) = (request.params, request.params.algorithm()?);
        let &[below] = request.members else {
            return Err(Error::inval("sched needs exactly one provider"));
        };
        let Some(limits) = topology.limits(below) else {
            return Err(Error::new(Errno::NxIo, "the provider below was removed"));
        };
        let notifier = topology.notifier();
        let mut hub =
            DiskQueue::new(algorithm, params.classify, (notifier.cores(), topology.origins()));
        options::set_shares(&mut hub, &params.options.shares)?;
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
