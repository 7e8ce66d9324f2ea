//! Direct access of verbs to providers: open, read, write, and close, so that every class tastes
//! them again.

use bio::Errno;
use geom::{Access, Edge, Error, GraphControl, ProviderId};

use super::{PlaceholderGeom, frame};

/// A provider named in a verb.
pub(crate) fn find(control: &GraphControl, name: &str) -> Result<ProviderId, Error> {
    let missing = || {
        let what = format!("no provider is called {name}; `ashlar list` names them");
        Error::new(Errno::NoEnt, what)
    };
    control.topology.find(name).ok_or_else(missing)
}

pub(crate) fn taste_all_again(control: &mut GraphControl) -> Result<(), Error> {
    let all: Vec<ProviderId> = {
        let view = control.topology.view(0);
        view.iter().flat_map(|g| g.providers.iter().map(|p| p.id)).collect()
    };
    control.call(|t| {
        all.iter().for_each(|p| t.retaste(*p));
        Ok(())
    })
}

/// Sector size and size of a provider, bytes; zeroes when it was removed.
pub(crate) fn sizes(control: &GraphControl, on: ProviderId) -> (u32, u64) {
    control.topology.limits(on).map_or((0, 0), |l| (l.sector_bytes, l.media_bytes))
}

pub(super) fn busy(name: &str, e: Errno) -> Error {
    match e {
        Errno::Perm => Error::new(e, format!("{name} is in use; close what uses it first")),
        e => Error::new(e, format!("{name} cannot be opened: {}", e.text())),
    }
}

/// Attaches to a provider, runs `f` with the consumer, leaves.
fn with_consumer<R>(
    control: &mut GraphControl,
    class: &str,
    name: &str,
    f: impl FnOnce(&mut GraphControl, geom::ConsumerId) -> Result<R, Error>,
) -> Result<R, Error> {
    let on = find(control, name)?;
    let (geom, consumer) = control.call(|topology| {
        let hand = topology.new_geom(
            class,
            &format!("hand on {name}"),
            "a verb",
            Box::new(PlaceholderGeom),
        )?;
        topology.set_verb_access(hand);
        match topology.attach_new(hand, on) {
            Ok(consumer) => Ok((hand, consumer)),
            Err(e) => {
                topology.wither_geom(hand, Errno::NxIo);
                Err(busy(name, e))
            }
        }
    })?;
    let done = f(control, consumer);
    // The geom is withered first, so that classes that taste the provider again do not see it in
    // use.
    control.call(|topology| {
        topology.wither_geom(geom, Errno::NxIo);
        topology.leave(consumer);
        Ok(())
    })?;
    done
}

/// Opens a provider for reading, runs `f`, closes it. Other users are not disturbed.
pub(crate) fn with_read_access<R>(
    control: &mut GraphControl,
    class: &str,
    name: &str,
    f: impl FnOnce(&mut GraphControl, Edge) -> Result<R, Error>,
) -> Result<R, Error> {
    with_consumer(control, class, name, |control, consumer| {
        let edge = control.topology.edge(consumer);
        control.call(|t| t.access(consumer, Access::READ).map_err(|e| busy(name, e)))?;
        f(control, edge)
    })
}

/// Opens a provider for reading and runs `check`. If that succeeds, opens it for writing alone,
/// runs `f` and closes it, so that it is tasted again. A refusal does not disturb other users.
pub(crate) fn with_write_access<R>(
    control: &mut GraphControl,
    class: &str,
    name: &str,
    check: impl FnOnce(&mut GraphControl, Edge) -> Result<(), Error>,
    f: impl FnOnce(&mut GraphControl, Edge) -> Result<R, Error>,
) -> Result<R, Error> {
    with_consumer(control, class, name, |control, consumer| {
        let edge = control.topology.edge(consumer);
        let open = |control: &mut GraphControl, delta| {
            control.call(|t| t.access(consumer, delta).map_err(|e| busy(name, e)))
        };
        open(control, Access::READ)?;
        check(control, edge)?;
        open(control, Access { r: 0, w: 1, e: 1 })?;
        f(control, edge)
    })
}

pub(crate) fn read(
    control: &mut GraphControl,
    name: &str,
    edge: Edge,
    at: u64,
    len: usize,
) -> Result<Vec<u8>, Error> {
    let read = control.run_on_core("reading metadata", move |core| {
        Box::pin(async move { core.read(edge, at, len).await })
    })?;
    read.map_err(|e| Error::new(e, format!("{name}, byte {at}: {}", e.text())))
}

/// Writes bytes to an open provider, and has them on stable storage before it returns.
pub(crate) fn write(
    control: &mut GraphControl,
    name: &str,
    edge: Edge,
    at: u64,
    bytes: Vec<u8>,
) -> Result<(), Error> {
    let written = control.run_on_core("writing metadata", move |core| {
        Box::pin(async move {
            core.write(edge, at, &bytes).await?;
            core.flush(edge).await
        })
    })?;
    written.map_err(|e| Error::new(e, format!("{name}, byte {at}: {}", e.text())))
}

/// The last sector of an open provider and where it is.
pub(crate) fn read_last_sector(
    control: &mut GraphControl,
    name: &str,
    edge: Edge,
) -> Result<(u64, Vec<u8>), Error> {
    let on = find(control, name)?;
    let (sector, media) = sizes(control, on);
    let Some(at) = frame::last_sector(sector, media) else {
        let what = format!("{name} is too small to hold metadata");
        return Err(Error::inval(what));
    };
    Ok((at, read(control, name, edge, at, sector as usize)?))
}
