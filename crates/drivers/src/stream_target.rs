//! Common part of the drivers whose initiators reach targets over byte streams, above the
//! connection framework.
//!
//! Such a driver is a [`transport::Protocol`], a checked target and this trait; [`Driver`] follows.

use std::io;
use std::rc::Rc;
use std::sync::Arc;

use engine::Engine;
use geom::{Error, Local};
use reactor::Address;
use transport::{ConnectionCounts, GlobalState, PerCore, Protocol};
use wire::pattern::Naming;

use crate::driver::{Driver, TargetSpec};
use crate::targets::{Target, Targets};

/// A driver over the connection framework.
pub(crate) trait StreamTarget: Send + Sync + 'static {
    /// Its connections.
    type Protocol: Protocol;
    type Target: Target;
    /// See [`Driver::doc`].
    const DOC: &'static str;
    /// See [`Driver::naming`].
    const NAMING: Naming;
    /// See [`Driver::has_unit_names`].
    const HAS_UNIT_NAMES: bool = false;
    /// See [`Driver::edits`].
    const EDITS: &'static [(&'static str, &'static str)] = &[];

    fn shared(&self) -> &Arc<GlobalState<Self::Protocol>>;

    fn targets(&self) -> &Targets<Self::Target>;

    /// The state of one core.
    fn per_core(engine: &Rc<Engine>) -> <Self::Protocol as Protocol>::PerCore;

    /// The name under which a target is kept.
    fn normal_name(name: &str) -> String {
        name.to_owned()
    }

    /// A target was made or replaced.
    fn target_set(&self, _target: &Self::Target) -> Result<(), Error> {
        Ok(())
    }
}

pub(crate) fn install<P: Protocol>(
    shared: &Arc<GlobalState<P>>,
    engine: &Rc<Engine>,
    own: P::PerCore,
) -> Rc<PerCore<P>> {
    let core = engine.core();
    PerCore::install(shared, (core.id(), core.reactor(), core.pool()), own)
}

impl<D: StreamTarget> Driver for D {
    fn name(&self) -> &'static str {
        D::Target::DRIVER
    }

    fn doc(&self) -> &'static str {
        D::DOC
    }

    fn schema(&self) -> serde_json::Value {
        D::Target::schema()
    }

    fn check_target(&self, spec: TargetSpec) -> Result<(), Error> {
        D::Target::check(spec).map(drop)
    }

    fn set_target(&self, spec: TargetSpec) -> Result<(), Error> {
        let target = self.targets().set(D::Target::check(spec)?)?;
        self.target_set(&target)
    }

    fn remove_target(&self, name: &str) {
        self.targets().remove(&D::normal_name(name));
    }

    fn install(self: Arc<Self>, engine: &Rc<Engine>) {
        install(self.shared(), engine, D::per_core(engine));
    }

    fn open_portal(
        self: Arc<Self>,
        engine: Rc<Engine>,
        at: Address,
    ) -> Local<'static, io::Result<Address>> {
        Box::pin(async move {
            let core = PerCore::find(self.shared(), engine.core().id()).ok_or_else(|| {
                io::Error::other(format!("{} was not installed on this core", self.name()))
            })?;
            core.open_portal(at)
        })
    }

    fn close_portal(&self, engine: &Rc<Engine>, at: Address) {
        if let Some(core) = PerCore::find(self.shared(), engine.core().id()) {
            core.close_portal(&at);
        }
        self.targets().portal_closed(&at);
    }

    fn connections(&self) -> Option<ConnectionCounts> {
        Some(self.shared().connection_counts())
    }

    fn naming(&self) -> Naming {
        D::NAMING
    }

    fn has_unit_names(&self) -> bool {
        D::HAS_UNIT_NAMES
    }

    fn edits(&self) -> &'static [(&'static str, &'static str)] {
        D::EDITS
    }
}
