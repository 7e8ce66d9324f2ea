//! The class: made by hand or slipped in, never found by tasting.

use std::sync::Arc;

use bio::Errno;
use geom::{Class, Control, Create, Error, GeomId, Limits, NewProvider, Topology, VerbSpec};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use super::clients::Classify;
use super::geom::SchedGeom;
use super::hub::Hub;
use super::layer::{SchedLayer, Shared, attend};
use super::options::{self, Options};
use super::{NAME, algorithms, hub, verbs};

/// The class.
pub struct SchedClass;

/// A scheduler over a disk.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SchedParams {
    /// rr, as, fifo, deadline or fair; absent: rr.
    pub algorithm: Option<String>,
    /// Options of the algorithm and of clients, KEY=VALUE with commas between them.
    pub options: Option<String>,
    /// What a client is: initiator, session, lun, process, task or none; absent: session.
    pub classify: Option<String>,
}

pub(super) fn inval(what: impl Into<String>) -> Error {
    Error::new(Errno::Inval, what)
}

pub(super) fn classify(word: Option<&str>) -> Result<Option<Classify>, Error> {
    let Some(word) = word else { return Ok(None) };
    let none = || inval(format!("classify by {word}: use {}", Classify::WORDS.join(" or ")));
    Classify::of(word).map(Some).ok_or_else(none)
}

impl Class for SchedClass {
    fn name(&self) -> &'static str {
        NAME
    }

    fn doc(&self) -> &'static str {
        "Decides whose request a disk gets next; slipped in and taken out under load."
    }

    fn params(&self) -> Option<Value> {
        serde_json::to_value(schemars::schema_for!(SchedParams)).ok()
    }

    fn verbs(&self) -> &'static [VerbSpec] {
        verbs::VERBS
    }

    fn create(&self, topology: &mut Topology, request: &Create<'_>) -> Result<GeomId, Error> {
        let params: SchedParams = match request.params {
            Value::Null => SchedParams::default(),
            given => {
                serde_json::from_value(given.clone()).map_err(|e| inval(format!("{NAME}: {e}")))?
            }
        };
        let &[below] = request.members else {
            return Err(inval("sched stands on exactly one provider"));
        };
        let Some(limits) = topology.limits(below) else {
            return Err(Error::new(Errno::NxIo, "the provider below is gone"));
        };
        let Options { knobs, shares } = options::read(params.options.as_deref())?;
        let name = params.algorithm.as_deref().unwrap_or(algorithms::DEFAULT);
        let made = hub::algorithm(name, &knobs)?;
        let classify = classify(params.classify.as_deref())?.unwrap_or_default();
        let board = topology.switchboard();
        let mut hub = Hub::new(made, classify, (board.cores(), topology.origins()));
        options::set_shares(&mut hub, &shares)?;
        let shared = Arc::new(Shared::new(hub, board.cores()));
        let geom = SchedGeom { shared: shared.clone(), inserted: false };
        let id = topology.new_geom(NAME, request.name, "created by hand", Box::new(geom))?;
        let (stripe_bytes, stripe_offset) = topology.stripe(below);
        let placed = match topology.attach_new(id, below) {
            Ok(consumer) => {
                let layer = SchedLayer { shared: shared.clone(), below: topology.edge(consumer) };
                // After the layer: it tells them when to end.
                attend(&shared, &board);
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

    fn verb(
        &self,
        control: &mut Control,
        verb: &str,
        on: &str,
        params: &Value,
    ) -> Result<Value, Error> {
        verbs::run(self, control, verb, on, params)
    }
}
