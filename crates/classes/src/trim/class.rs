//! The class.

use std::sync::Arc;

use bio::{Attr, Errno};
use geom::{
    Access, Class, Control, Create, Error, Geom, GeomId, Limits, MADE_BY_HAND, NewProvider, Params,
    ProviderId, Settings, Topology, VerbSpec,
};
use serde_json::Value;
use space::trim::Queue;

use super::geom::TrimGeom;
use super::layer::TrimLayer;
use super::params::{TrimParams, Zeroes};
use super::shared::Shared;
use super::{NAME, issuer, verbs};

/// The class.
pub struct TrimClass;

/// Stands for a geom that has no number yet.
struct Unmade;

impl Geom for Unmade {
    fn access(
        &mut self,
        _: &mut Topology,
        _: GeomId,
        _: ProviderId,
        _: Access,
    ) -> Result<(), Errno> {
        Err(Errno::NxIo)
    }
}

fn params_of(value: &Value) -> Result<TrimParams, Error> {
    let params: TrimParams = geom::read(NAME, value)?;
    params.check()?;
    Ok(params)
}

pub(super) fn says(t: &Topology, provider: ProviderId, name: &str) -> bool {
    t.attr(provider, name) == Some(Attr::Int(1))
}

fn build(
    t: &mut Topology,
    me: GeomId,
    name: &str,
    below: ProviderId,
    params: TrimParams,
) -> Result<(), Error> {
    let Some(limits) = t.limits(below) else {
        return Err(Error::new(Errno::NxIo, "the provider below is gone"));
    };
    let stripe = t.stripe(below);
    let queue = Queue::new(params.limits(&limits, t.deletes(below))?, params.policy());
    let defers = says(t, below, "GEOM::candelete") && params.zeroes != Some(Zeroes::Keep);
    let consumer = t.attach_new(me, below).map_err(|e| Error::of(e, "attach trim"))?;
    let place = (t.switchboard(), me, t.edge(consumer));
    let shared = Shared::new(name, place, limits.media_bytes, queue, params.pacing(), defers);
    let ops =
        TrimGeom { shared: shared.clone(), consumer, params, open: Access::NONE, holds: false };
    t.set_ops(me, Box::new(ops));
    let attrs = match defers {
        // What waits in the queue reads as it did.
        true => vec![("GEOM::deletereadszero", Attr::Int(0))],
        false => Vec::new(),
    };
    t.new_provider(
        me,
        NewProvider {
            name: name.into(),
            layer: Arc::new(TrimLayer(shared.clone())),
            limits: Limits { delete_max_bytes: 0, ..limits },
            stripe_bytes: stripe.0,
            stripe_offset: stripe.1,
            attrs,
        },
    )?;
    issuer::start(&shared);
    Ok(())
}

impl Class for TrimClass {
    fn name(&self) -> &'static str {
        NAME
    }

    fn doc(&self) -> &'static str {
        "Acknowledges deletes at once, merges them and sends them when they cost nobody anything."
    }

    fn params(&self) -> Option<Value> {
        Some(schemars::schema_for!(TrimParams).to_value())
    }

    fn create(&self, t: &mut Topology, request: &Create<'_>) -> Result<GeomId, Error> {
        let params = params_of(request.params)?;
        let &[below] = request.members else {
            return Err(Error::inval("trim is made on exactly one provider"));
        };
        let me = t.new_geom(NAME, request.name, MADE_BY_HAND, Box::new(Unmade))?;
        match build(t, me, request.name, below, params) {
            Ok(()) => Ok(me),
            Err(e) => {
                t.wither_geom(me, Errno::NxIo);
                Err(e)
            }
        }
    }

    fn settings(&self, params: &Value) -> Result<Settings, Error> {
        params_of(params).map(|params| params.settings())
    }

    fn work_as(&self, control: &mut Control, name: &str, params: &Value) -> Result<(), Error> {
        let params = params_of(params)?;
        verbs::work_as(control, name, |now| {
            // What a queue is made with stays.
            let TrimParams { granule, zeroes, .. } = *now;
            Ok(TrimParams { granule, zeroes, ..params })
        })
    }

    fn verbs(&self) -> &'static [VerbSpec] {
        geom::specs(verbs::VERBS)
    }

    fn verb(
        &self,
        control: &mut Control,
        verb: &str,
        on: &str,
        params: &Value,
    ) -> Result<Value, Error> {
        geom::call(verbs::VERBS, self, control, (verb, on), params)
    }
}
