//! Objects whose counters are sampled: disks, geoms, units of LUNs, sessions and cores.

use crate::api::{Error, GeomState, Kind, Result, Stats, SystemState};
use crate::object_id::{LUN_CLASS, core_id, geom_id, lun_id, session_id};
use std::borrow::Cow;

/// Counters of a geom: those of its providers together. Units of LUNs and geoms without a provider
/// are counted at the providers that they use.
fn counters(geom: &GeomState) -> Cow<'_, Stats> {
    let all: Vec<&Stats> = match geom.class == LUN_CLASS || geom.providers.is_empty() {
        true => geom.consumers.iter().map(|consumer| &consumer.stats).collect(),
        false => geom.providers.iter().map(|provider| &provider.stats).collect(),
    };
    match all.as_slice() {
        &[one] => Cow::Borrowed(one),
        several => Cow::Owned(several.iter().fold(Stats::default(), |sum, one| sum.plus(one))),
    }
}

/// Calls `visit` with the identifier and the counters of each object.
pub fn for_each(state: &SystemState, mut visit: impl FnMut(String, &Stats)) {
    for geom in state.geoms.iter().filter(|geom| !geom.withering) {
        visit(geom_id(geom), &counters(geom));
    }
    for (target, session) in state.sessions() {
        visit(session_id(target, session), &session.stats);
    }
    for (number, core) in state.daemon.cores.iter().enumerate() {
        visit(core_id(number), &Stats { busy_ns: core.busy_ns, ..Stats::default() });
    }
}

/// The geom that holds the unit of a LUN open, if `id` is that of a LUN.
fn unit_of(state: &SystemState, id: &str) -> Option<String> {
    let groups = state.targets.iter().flat_map(|t| t.groups.iter().map(move |g| (t, g)));
    let luns = groups.flat_map(|(t, g)| g.luns.iter().map(move |lun| (&t.name, &g.name, lun)));
    let mut own = luns.filter(|(target, group, lun)| lun_id(target, group, lun.lun) == id);
    let (_, _, lun) = own.next()?;
    let holds = |geom: &&GeomState| {
        let mut below = geom.consumers.iter().filter_map(|c| c.provider.as_deref());
        geom.class == LUN_CLASS && below.any(|name| name == lun.provider)
    };
    state.geoms.iter().find(holds).map(geom_id)
}

/// Identifier of the sampled object that `name` means: an identifier (`disk:d0`,
/// `lun:TARGET/GROUP/NUMBER`), or the name of a geom, of one of its providers, or of an initiator.
/// The lowest geom of a name is taken first. All LUNs of a unit have the samples of the unit.
///
/// # Errors
/// [`Kind::NotFound`].
pub fn find(state: &SystemState, name: &str) -> Result<String> {
    if let Some(unit) = unit_of(state, name) {
        return Ok(unit);
    }
    let geoms = || state.geoms.iter().filter(|geom| !geom.withering);
    let mut sessions = state.sessions();
    let exact = geoms().map(geom_id).find(|id| id == name);
    let exact = exact.or_else(|| {
        let mut ids = state.sessions().map(|(target, session)| session_id(target, session));
        ids.find(|id| id == name)
    });
    let exact = exact.or_else(|| {
        let mut ids = (0..state.daemon.cores.len()).map(core_id);
        ids.find(|id| id == name)
    });
    let named = || {
        let has = |geom: &&GeomState| {
            geom.name == name || geom.providers.iter().any(|provider| provider.name == name)
        };
        geoms().find(has).map(geom_id).or_else(|| {
            let own = sessions.find(|(_, session)| session.initiator == name);
            own.map(|(target, session)| session_id(target, session))
        })
    };
    exact.or_else(named).ok_or_else(|| {
        let next = "`ashlar tree` shows the names; an identifier is CLASS:NAME or core:NUMBER.";
        Error::new(Kind::NotFound, "rates", "no object has this name").at(name).next(next)
    })
}
