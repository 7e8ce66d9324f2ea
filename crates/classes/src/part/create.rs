//! The `create` verb: makes a new, empty table where it destroys nothing.

use std::cell::Cell;

use bio::Errno;
use geom::{Access, Error, GeomId, GraphControl, ProviderId};

use super::class::{NAME, describe, place, refusal};
use super::commit::commit;
use super::geom::PartGeom;
use super::request::{self, PartAnswer};
use super::verbs::{Change, answer, apply, with};
use super::{Entry, Media, PartError, Scheme, Table, TableContext, params, step};
use crate::inspect::{self, InspectReport};
use crate::probe::Sectors;
use crate::probe_io::drive;
use crate::write_plan::WritePlan;
use crate::{guard, slice};

/// Bytes at the start of the media that are zeroed where another format is overwritten: all the
/// places where the formats known keep their first copy.
const WIPE_BYTES: u64 = 128 << 10;

pub(super) struct NewTable<'a> {
    /// What kind.
    pub(super) scheme: Scheme,
    /// Whether a partition table that is there may be lost.
    pub(super) replace: bool,
    /// Whether all that is there may be lost.
    pub(super) overwrite: bool,
    /// The way to replace only a partition table, in the words of the user: "restore with --force".
    pub(super) replace_option: Option<&'static str>,
    /// Participle for the message at the end: "created".
    pub(super) done: &'static str,
    /// Blocks of chance that are wanted.
    pub(super) random_blocks: usize,
    /// Makes it, as the steps by which it is written.
    pub(super) tables: Tables<'a>,
}

/// Tables on media, of blocks of chance.
type Tables<'a> = &'a dyn Fn(Media, &[[u8; 16]]) -> Result<Vec<Table>, PartError>;

/// Makes an empty table.
pub(super) fn create(
    control: &mut GraphControl,
    request: &request::Create,
    now: bool,
) -> Result<PartAnswer, Error> {
    let request::Create { provider: name, scheme, entries, yes_destroy } = request;
    let (entries, overwrite) = (*entries, yes_destroy.contains(name));
    let scheme = Scheme::by_name(scheme).ok_or_else(|| {
        let what = format!("no partition scheme is called {scheme:?}; use gpt, mbr, ebr or bsd");
        Error::inval(what)
    })?;
    let tables = |media: Media, random: &[[u8; 16]]| {
        let random = random.first().copied().unwrap_or_default();
        Ok(vec![Table::create(media, &params::Create { scheme, entries }, random)?])
    };
    let making = NewTable {
        scheme,
        replace: overwrite,
        overwrite,
        replace_option: None,
        done: "created",
        random_blocks: 1,
        tables: &tables,
    };
    let geom = begin(control, name, &making)?;
    if now {
        finish(control, geom)?;
    }
    Ok(answer(control, name, format!("{name} created"), Vec::new()))
}

/// Commits a table just made. The geom of one that cannot be put on the media is removed again,
/// unless its edits wait for another try.
pub(super) fn finish(control: &mut GraphControl, geom: GeomId) -> Result<(), Error> {
    let done = commit(control, geom);
    if done.is_err() {
        drop_empty(control, geom)?;
    }
    done
}

/// A geom without a table and without edits is removed.
fn drop_empty(control: &mut GraphControl, geom: GeomId) -> Result<(), Error> {
    let empty = |part: &mut PartGeom, _: &mut geom::Topology| {
        part.edits.is_none() && part.table.is_none() && part.media.is_none()
    };
    if with(&mut control.topology, geom, empty).unwrap_or(false) {
        control.call(|topology| {
            PartGeom::abandon(topology, geom, Errno::NxIo);
            Ok(())
        })?;
    }
    Ok(())
}

/// Makes a table in memory.
pub(super) fn begin(
    control: &mut GraphControl,
    name: &str,
    making: &NewTable<'_>,
) -> Result<GeomId, Error> {
    let on = control.topology.find(name).ok_or_else(|| {
        let what = format!("no provider is called {name}; `ashlar list` names them");
        Error::new(Errno::NoEnt, what)
    })?;
    let place = check_allowed(control, name, on, making.scheme)?;
    let old = control.topology.find_geom(NAME, name);
    if let Some(geom) = old {
        may_replace(control, geom, name, making)?;
    }
    let geom = match old {
        Some(geom) => geom,
        None => {
            let why = "its table was made by `part`";
            control.call(|topology| PartGeom::place(topology, on, why, place.depth))?
        }
    };
    if let Err(error) = fill(control, geom, (name, on), making, &place) {
        drop_empty(control, geom)?;
        return Err(error);
    }
    Ok(geom)
}

/// Checks that a table of this scheme is allowed on the provider, and returns its place.
fn check_allowed(
    control: &GraphControl,
    name: &str,
    on: ProviderId,
    scheme: Scheme,
) -> Result<TableContext, Error> {
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
        (Scheme::Ebr, false, _) => {
            "logical partitions are possible only in an MBR partition of \
                                    type ebr"
        }
        (Scheme::Gpt | Scheme::Mbr | Scheme::Bsd, true, _) => {
            "it is an extended partition; use scheme ebr"
        }
        (Scheme::Mbr, _, Some(Scheme::Mbr | Scheme::Ebr)) => {
            return Err(Error::new(
                Errno::Loop,
                format!("{name} is a partition of an MBR and cannot contain another MBR; use gpt"),
            ));
        }
        _ => return Ok(place),
    };
    Err(Error::new(Errno::NoDev, format!("{name}: {what}")))
}

fn may_replace(
    control: &mut GraphControl,
    geom: GeomId,
    name: &str,
    making: &NewTable<'_>,
) -> Result<(), Error> {
    with(&mut control.topology, geom, |part, topology| {
        let Some(table) = &part.table else {
            return Ok(());
        };
        let held = describe(table, name);
        match (making.replace, making.replace_option) {
            (true, _) => table.may_destroy(&part.open(topology)).map_err(refusal),
            (false, None) => guard::require_consent(name, held, &[]),
            (false, Some(option)) => {
                let what =
                    format!("{name} carries a {held}; `part destroy -F {name}` first, or {option}");
                Err(Error::new(Errno::Exist, what))
            }
        }
    })?
}

/// The contents of the media, and random blocks of sixteen bytes.
struct MediaContents {
    table: Option<String>,
    report: InspectReport,
    /// A range that could not be read: its content is unknown.
    unread: Option<(u64, Errno)>,
    random: Vec<[u8; 16]>,
}

fn read_media(
    control: &mut GraphControl,
    geom: GeomId,
    media: Media,
    place: TableContext,
    chances: usize,
) -> Result<MediaContents, Error> {
    let gone = || Error::new(Errno::NxIo, "the disk was removed");
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
            let report = drive(&mut sectors, &read, |s| inspect::step(s, &place)).await;
            let mut random = vec![[0; 16]; chances];
            random.iter_mut().for_each(|block| core.reactor().fill_random(block));
            let table = table.ok().map(|table| describe(&table, ""));
            let report = report.unwrap_or_default();
            MediaContents { table, report, unread: unread.get(), random }
        })
    });
    control.call(|topology| {
        slice::pass(topology, geom, Access::READ.inverse()).map_err(|e| Error::of(e, "close"))
    })?;
    seen
}

fn fill(
    control: &mut GraphControl,
    geom: GeomId,
    (name, on): (&str, ProviderId),
    making: &NewTable<'_>,
    place: &TableContext,
) -> Result<(), Error> {
    let gone = || Error::new(Errno::NxIo, format!("{name} was removed"));
    let limits = control.topology.limits(on).ok_or_else(gone)?;
    let (stripe_size, stripe_offset) = control.topology.stripe(on);
    let sectors = limits.media_bytes.checked_div(u64::from(limits.sector_bytes)).unwrap_or(0);
    let media = Media { sectors, sector_size: limits.sector_bytes, stripe_size, stripe_offset };
    let seen = read_media(control, geom, media, *place, making.random_blocks)?;
    let known = with(&mut control.topology, geom, |part, _| part.media.is_some())?;
    // A table of this geom was spoken about before, or may be lost: its class does not count then.
    let spoken = known || making.replace;
    let class = if spoken { NAME } else { "" };
    let signs = guard::describe(&seen.report, guard::Requester { class, geom: name, force: false });
    let contents: Vec<String> = seen.table.filter(|_| !spoken).into_iter().chain(signs).collect();
    let is_foreign = seen.report.findings.iter().any(|f| f.class != NAME);
    if let Some((at, error)) = seen.unread
        && !making.overwrite
    {
        let what = format!("{name} cannot be read at byte {at}, so what it holds is not known");
        return Err(Error::new(error, what).destroying(vec![name.to_owned()]));
    }
    if !making.overwrite && !contents.is_empty() {
        guard::require_consent(name, contents.join(", "), &[])?;
    }
    let tables = (making.tables)(media, &seen.random).map_err(refusal)?;
    let entries = tables.last().map(Table::entries).unwrap_or_default();
    let wipe = match is_foreign {
        false => WritePlan::default(),
        true => wipe(&media, entries),
    };
    let (mut fresh, mut message) = (Some(wipe), format!("{name} {}", making.done));
    for table in tables {
        let fresh = fresh.take();
        apply(
            control,
            geom,
            Change { table: Some(table), touched: None, fresh, code: None, message },
        )?;
        message = String::new();
    }
    Ok(())
}

/// Zeroes over what another format had at the start and in the last sector, as far as no
/// partition of the new table has that.
fn wipe(media: &Media, entries: &[Entry]) -> WritePlan {
    let size = u64::from(media.sector_size).max(1);
    let free = entries.iter().map(|entry| entry.start).min().unwrap_or(media.sectors);
    let head = WIPE_BYTES.div_ceil(size).min(free);
    let mut plan = WritePlan::default();
    let zeros = |sectors: u64| vec![0; usize::try_from(sectors * size).unwrap_or(0)];
    plan.write(0, zeros(head));
    let last = media.sectors.saturating_sub(1);
    if entries.iter().all(|entry| entry.end < last) {
        plan.write(media.offset(last), zeros(1));
    }
    plan.flush();
    plan
}
