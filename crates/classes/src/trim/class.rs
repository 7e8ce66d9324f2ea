//! The class.

use std::sync::Arc;

use bio::{Attr, Errno};
use extents::trim::Queue;
use geom::{
    Access, ClassParams, ClassVerb, Create, Error, GeomId, GraphControl, Limits, MADE_BY_VERB,
    NewProvider, NoClaim, ProviderId, Settings, Topology, Typed,
};

use super::geom::TrimGeom;
use super::layer::TrimLayer;
use super::params::{TrimParams, Zeroes};
use super::shared::TrimShared;
use super::{NAME, issuer, verbs};
use crate::members::PlaceholderGeom;

pub struct TrimClass;

pub(super) fn is_set(t: &Topology, provider: ProviderId, name: &str) -> bool {
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
        return Err(Error::new(Errno::NxIo, "the provider below was removed"));
    };
    let stripe = t.stripe(below);
    let queue = Queue::new(params.limits(&limits, t.deletes(below))?, params.policy());
    let defers = is_set(t, below, "GEOM::candelete") && params.zeroes != Zeroes::Keep;
    let consumer = t.attach_new(me, below).map_err(|e| Error::of(e, "attach trim"))?;
    let place = (t.notifier(), me, t.edge(consumer));
    let shared = TrimShared::new(name, place, limits.media_bytes, queue, params.pacing(), defers);
    let ops =
        TrimGeom { shared: shared.clone(), consumer, params, open: Access::NONE, holds: false };
    t.set_ops(me, Box::new(ops));
    let attrs = match defers {
        // Deletes that wait in the queue do not change what reads return.
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

impl Typed for TrimClass {
    const NAME: &'static str = NAME;
    const DOC: &'static str = "Queue that merges deletes and sends them to an idle disk.";
    const VERBS: &'static [ClassVerb<TrimClass>] = verbs::VERBS;
    const MEMBER_LIMITS: (usize, usize) = (1, 1);
    type Params = TrimParams;
    type Claim = NoClaim;
    type Geom = TrimGeom;

    fn create(&self, t: &mut Topology, request: &Create<'_, TrimParams>) -> Result<GeomId, Error> {
        request.params.check()?;
        let &[below] = request.members else {
            return Err(Error::inval("trim needs exactly one provider"));
        };
        let me = t.new_geom(NAME, request.name, MADE_BY_VERB, Box::new(PlaceholderGeom))?;
        match build(t, me, request.name, below, request.params.clone()) {
            Ok(()) => Ok(me),
            Err(e) => {
                t.wither_geom(me, Errno::NxIo);
                Err(e)
            }
        }
    }

    fn settings(&self, params: &TrimParams) -> Result<Settings, Error> {
        params.check()?;
        Ok(params.settings())
    }

    fn apply_settings(
        &self,
        control: &mut GraphControl,
        name: &str,
        params: &TrimParams,
    ) -> Result<(), Error> {
        params.check()?;
        verbs::work_as(control, name, |now| {
            // The parameters fixed at creation stay.
            let TrimParams { granule, zeroes, .. } = *now;
            Ok(TrimParams { granule, zeroes, ..params.clone() })
        })
    }
}
