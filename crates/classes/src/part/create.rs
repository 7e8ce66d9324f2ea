//! The verb `create`: a new, empty table, where nothing is lost by it.

use std::cell::Cell;

use bio::Errno;
use geom::{Access, Control, Error, GeomId, ProviderId};

use super::class::{NAME, describe, place, refusal};
use super::commit::commit;
use super::geom::PartGeom;
use super::request::Answer;
use super::verbs::{Change, answer, apply, with};
use super::{Media, Place, Scheme, Table, WritePlan, params, step};
use crate::conversation::drive;
use crate::probe::Sectors;
use crate::{registry, slice};

/// Bytes at the start of the media that are zeroed where another format is overwritten: all the
/// places where the formats known keep their first copy.
const WIPE_BYTES: u64 = 128 << 10;

/// Makes an empty table.
pub(super) fn create(
    control: &mut Control,
    name: &str,
    scheme: &str,
    entries: Option<u32>,
    overwrite: bool,
    now: bool,
) -> Result<Answer, Error> {
    let scheme = Scheme::by_name(scheme).ok_or_else(|| {
        let what = format!("no partition scheme is called {scheme:?}; use gpt, mbr, ebr or bsd");
        Error::new(Errno::Inval, what)
    })?;
    let on = control.topology.find(name).ok_or_else(|| {
        let what = format!("no provider is called {name}; `ashlar list` names them");
        Error::new(Errno::NoEnt, what)
    })?;
    let place = may_stand(control, name, on, scheme)?;
    let old = control.topology.find_geom(NAME, name);
    if let Some(geom) = old {
        may_replace(control, geom, name, overwrite)?;
    }
    let geom = match old {
        Some(geom) => geom,
        None => {
            let why = "made by hand";
            control.call(|topology| PartGeom::place(topology, on, why, place.depth))?
        }
    };
    let done = fill(control, geom, (name, on), (scheme, entries), overwrite, &place);
    let done = done.and_then(|()| if now { commit(control, geom) } else { Ok(()) });
    if let Err(error) = done {
        let empty = with(&mut control.topology, geom, |part, _| part.edits.is_none());
        if old.is_none() && empty.unwrap_or(false) {
            control.call(|topology| {
                PartGeom::abandon(topology, geom, Errno::NxIo);
                Ok(())
            })?;
        }
        return Err(error);
    }
    Ok(answer(control, name, format!("{name} created"), Vec::new()))
}

/// The schemes that may stand inside each other.
fn may_stand(
    control: &Control,
    name: &str,
    on: ProviderId,
    scheme: Scheme,
) -> Result<Place, Error> {
    let attr = |name: &str| control.topology.attr(on, name);
    let text = |name: &str| match attr(name) {
        Some(bio::Attr::Text(text)) => Some(text),
        _ => None,
    };
    let int = |name: &str| match attr(name) {
        Some(bio::Attr::Int(int)) => Some(int),
        _ => None,
    };
    let place = place(text, int)
        .map_err(|why| Error::new(Errno::NoDev, format!("{name}: {why}; use another provider")))?;
    let extended = place.kind.is_some_and(|kind| kind.alias() == Some("ebr"));
    let what = match (scheme, extended, place.scheme) {
        (Scheme::Ebr, false, _) => "logical partitions stand in an MBR partition of type ebr only",
        (Scheme::Gpt | Scheme::Mbr | Scheme::Bsd, true, _) => {
            "it is an extended partition; use scheme ebr"
        }
        (Scheme::Mbr, _, Some(Scheme::Mbr | Scheme::Ebr)) => {
            return Err(Error::new(
                Errno::Loop,
                format!("{name} is a partition of an MBR; an MBR does not stand there, use gpt"),
            ));
        }
        _ => return Ok(place),
    };
    Err(Error::new(Errno::NoDev, format!("{name}: {what}")))
}

fn may_replace(
    control: &mut Control,
    geom: GeomId,
    name: &str,
    overwrite: bool,
) -> Result<(), Error> {
    with(&mut control.topology, geom, |part, topology| {
        let Some(table) = &part.table else {
            return Ok(());
        };
        if !overwrite {
            let what = format!(
                "{name} carries a {}; `part destroy -F {name}` first, or create with overwrite",
                describe(table, name)
            );
            return Err(Error::new(Errno::Exist, what));
        }
        table.may_destroy(true, &part.open(topology)).map_err(refusal)
    })?
}

/// What the media holds, and sixteen bytes of chance.
struct Look {
    table: Option<String>,
    signs: Vec<String>,
    /// A range that could not be read: what is there is not known.
    unread: Option<(u64, Errno)>,
    random: [u8; 16],
}

fn look(control: &mut Control, geom: GeomId, media: Media, place: Place) -> Result<Look, Error> {
    let gone = || Error::new(Errno::NxIo, "the disk is gone");
    let consumer = *control.topology.consumers_of(geom).first().ok_or_else(gone)?;
    let edge = control.topology.edge(consumer);
    control.call(|topology| {
        slice::pass(topology, geom, Access::READ).map_err(|e| Error::of(e, "open to read"))
    })?;
    let seen = control.run_on_core("part: looking at the media", move |core| {
        Box::pin(async move {
            let bytes = media.sectors.saturating_mul(u64::from(media.sector_size));
            let mut sectors = Sectors::new(media.sector_size, bytes);
            let unread = Cell::new(None);
            let read = async |offset, len| {
                let done = core.read(edge, offset, len).await;
                done.inspect_err(|error| unread.set(Some((offset, *error))))
            };
            let table = drive(&mut sectors, &read, |s| step(s, &place)).await;
            let signs = drive(&mut sectors, &read, registry::signs).await;
            let mut random = [0; 16];
            core.reactor().fill_random(&mut random);
            let table = table.ok().map(|table| describe(&table, ""));
            let signs = signs.unwrap_or_default();
            Look { table, signs, unread: unread.get(), random }
        })
    });
    control.call(|topology| {
        slice::pass(topology, geom, Access::READ.inverse()).map_err(|e| Error::of(e, "close"))
    })?;
    seen
}

fn fill(
    control: &mut Control,
    geom: GeomId,
    (name, on): (&str, ProviderId),
    (scheme, entries): (Scheme, Option<u32>),
    overwrite: bool,
    place: &Place,
) -> Result<(), Error> {
    let gone = || Error::new(Errno::NxIo, format!("{name} is gone"));
    let limits = control.topology.limits(on).ok_or_else(gone)?;
    let (stripe_size, stripe_offset) = control.topology.stripe(on);
    let sectors = limits.media_bytes.checked_div(u64::from(limits.sector_bytes)).unwrap_or(0);
    let media = Media { sectors, sector_size: limits.sector_bytes, stripe_size, stripe_offset };
    let seen = look(control, geom, media, *place)?;
    let known = with(&mut control.topology, geom, |part, _| part.media.is_some())?;
    let mut there = seen.signs.clone();
    // A table of this geom was spoken about before.
    there.extend(seen.table.filter(|_| !known));
    if let Some((at, error)) = seen.unread
        && !overwrite
    {
        let what = format!(
            "{name} cannot be read at byte {at}, so what it holds is not known; create with \
             overwrite to lose it"
        );
        return Err(Error::new(error, what));
    }
    if !overwrite && !there.is_empty() {
        let what = format!("{name} holds {}; create with overwrite to lose it", there.join(", "));
        return Err(Error::new(Errno::Exist, what));
    }
    let spec = params::Create { scheme, entries };
    let table = Table::create(media, &spec, seen.random).map_err(refusal)?;
    let wipe = if seen.signs.is_empty() { WritePlan::default() } else { wipe(&media) };
    let said = format!("{name} created");
    apply(control, geom, Change { table: Some(table), touched: None, fresh: Some(wipe), said })
}

/// Zeroes over what another format had at the start and in the last sector.
fn wipe(media: &Media) -> WritePlan {
    let size = u64::from(media.sector_size).max(1);
    let head = WIPE_BYTES.div_ceil(size).min(media.sectors);
    let mut plan = WritePlan::default();
    let zeros = |sectors: u64| vec![0; usize::try_from(sectors * size).unwrap_or(0)];
    plan.write(0, zeros(head));
    plan.write(media.offset(media.sectors.saturating_sub(1)), zeros(1));
    plan.flush();
    plan
}
