//! Verbs that edit: an edit in memory, then, unless the caller says `commit: false`, the writing.
//!
//! Invariants
//!  V1  A refusal changes nothing: every check comes before the first change.
//!  V2  The disk is held r1w1e1 from the first edit to the commit or undo (geom.rs, G2).

use crate::write_plan::WritePlan;
use std::collections::BTreeSet;

use bio::Errno;
use geom::{Access, Error, GeomId, GraphControl, Topology};
use serde_json::Value;

use super::class::{NAME, damages, refusal};
use super::commit::{commit, undo};
use super::geom::{PartGeom, TableLocation};
use super::request::{
    Add, Attribute, Bootcode, Delete, Destroy, EntryView, Modify, PartAnswer, Request, Resize,
    TableName, TableView,
};
use super::{Table, bootcode, create, params, saved};
use crate::slice;

/// Carries out a verb. See [`Request`] for the parameters and [`Answer`] for the answer.
pub(super) fn run(
    control: &mut GraphControl,
    verb: &str,
    on: &str,
    given: &Value,
) -> Result<Value, Error> {
    let (request, now) = Request::parse(verb, on, given)?;
    let answer = match request {
        Request::Show(of) => show(control, &of.geoms)?,
        Request::Create(of) => create::create(control, &of, now)?,
        Request::Backup(of) => {
            let backup = saved::backup(control, &of.geom)?;
            return serde_json::to_value(backup).map_err(|e| Error::inval(e.to_string()));
        }
        Request::Restore(of) => saved::restore(control, &of, now)?,
        Request::Commit(TableName { geom }) => {
            let id = find(control, &geom)?;
            commit(control, id)?;
            answer(control, &geom, format!("{geom} committed"), Vec::new())
        }
        Request::Undo(TableName { geom }) => {
            let id = find(control, &geom)?;
            undo(control, id)?;
            answer(control, &geom, format!("{geom} undone"), Vec::new())
        }
        other => {
            if let Request::Bootcode(of) = &other {
                bootcode::may_write(control, of)?;
            }
            edit(control, other, now)?
        }
    };
    serde_json::to_value(answer).map_err(|e| Error::inval(e.to_string()))
}

/// The geom of the table on the provider of that name.
pub(super) fn find(control: &GraphControl, name: &str) -> Result<GeomId, Error> {
    if let Some(geom) = control.topology.find_geom(NAME, name) {
        return Ok(geom);
    }
    let Some(on) = control.topology.find(name) else {
        let what = format!("no provider is called {name}; `ashlar list` names them");
        return Err(Error::new(Errno::NoEnt, what));
    };
    let mut verdict = String::new();
    let view = control.topology.view(0);
    let seen = view.iter().flat_map(|g| &g.providers).find(|p| p.id == on);
    for (class, said) in seen.map(|p| p.taste_outcomes.as_slice()).unwrap_or_default() {
        if *class == NAME {
            verdict = format!(" ({said})");
        }
    }
    let what = format!("{name} carries no partition table{verdict}; `part create` makes one");
    Err(Error::new(Errno::NoEnt, what))
}

/// The geom's state; an error when it went away meanwhile.
pub(super) fn with<R>(
    topology: &mut Topology,
    geom: GeomId,
    f: impl FnOnce(&mut PartGeom, &mut Topology) -> R,
) -> Result<R, Error> {
    let live = topology.geom_is_live(geom);
    let gone = || Error::new(Errno::NxIo, "the disk went away; nothing more was changed");
    if live { topology.with::<PartGeom, R>(geom, f).ok_or_else(gone) } else { Err(gone()) }
}

/// What an edit makes of a table.
pub(super) struct Change {
    /// The table; none to destroy it.
    pub(super) table: Option<Table>,
    /// The partition that the change concerns, whose users are notified.
    pub(super) touched: Option<u32>,
    /// The table is a new one and unrelated to the one on the media.
    pub(super) fresh: Option<WritePlan>,
    /// Boot code of the partition.
    pub(super) code: Option<super::PartCode>,
    /// A message for each change, one per line: "ada0p3 added".
    pub(super) message: String,
}

/// Indexes of partitions that are in use.
struct Uses {
    /// In any way.
    open: BTreeSet<u32>,
    /// By users that write, or exclude writers.
    written: BTreeSet<u32>,
}

impl Change {
    fn of(table: Table, touched: Option<u32>, said: String) -> Change {
        Change { table: Some(table), touched, fresh: None, code: None, message: said }
    }
}

fn edit(control: &mut GraphControl, request: Request, now: bool) -> Result<PartAnswer, Error> {
    let name = match &request {
        Request::Add(of) => &of.geom,
        Request::Delete(of) => &of.geom,
        Request::Destroy(of) => &of.geom,
        Request::Modify(of) => &of.geom,
        Request::Resize(of) => &of.geom,
        Request::Recover(of) => &of.geom,
        Request::Set(of) | Request::Unset(of) => &of.geom,
        Request::Bootcode(of) => &of.geom,
        _ => return Err(Error::of(Errno::Inval, "part")),
    };
    let name = name.clone();
    let geom = find(control, &name)?;
    let (table, uses) = with(&mut control.topology, geom, |p, t| {
        (p.table.clone(), Uses { open: p.open(t), written: p.written(t) })
    })?;
    let Some(table) = table else {
        let what = format!("the table of {name} is to be destroyed; commit or undo that first");
        return Err(Error::new(Errno::Perm, what));
    };
    if matches!(request, Request::Recover(_)) && !table.is_corrupt() {
        let message = format!("{name} is whole: recovering is not needed");
        return Ok(answer(control, &name, message, Vec::new()));
    }
    let random = match request {
        Request::Add(_) => random(control)?,
        _ => [0; 16],
    };
    let change = changed(&name, &table, &uses, request, random)?;
    let warnings = change.table.as_ref().and_then(|t| misaligned(&name, t, &change));
    let done = change.message.clone();
    apply(control, geom, change)?;
    if now {
        commit(control, geom)?;
    }
    Ok(answer(control, &name, done, warnings.into_iter().collect()))
}

/// The edit itself, and its message.
fn changed(
    name: &str,
    table: &Table,
    uses: &Uses,
    request: Request,
    random: [u8; 16],
) -> Result<Change, Error> {
    let (size, open) = (table.media().sector_size, &uses.open);
    let amount = |a: Option<super::request::Amount>, what| a.map(|a| a.of(size, what)).transpose();
    let whole = |table: &Table, index: u32| match table.entry(index) {
        Some(entry) => format!("{name}{}", table.suffix(entry)),
        None => name.to_owned(),
    };
    let attribute = |Attribute { attribute: attrib, index, .. }: Attribute, on: bool| {
        let word = if on { "set on" } else { "unset on" };
        let at = index.map_or(name.to_owned(), |index| whole(table, index));
        let spec = params::Attribute { attrib, index };
        let next = table.attribute(&spec, on).map_err(refusal)?;
        Ok(Change::of(next, index, format!("{} {word} {at}", spec.attrib)))
    };
    match request {
        Request::Add(Add { kind, align, start, size, index, label, .. }) => {
            let (align, start) = (amount(align, "align")?, amount(start, "start")?);
            let spec =
                params::Add { kind, align, start, size: amount(size, "size")?, index, label };
            let (next, index) = table.add(&spec, random).map_err(refusal)?;
            let done = format!("{} added", whole(&next, index));
            Ok(Change::of(next, Some(index), done))
        }
        Request::Delete(Delete { index, .. }) => {
            let next = table.delete(index, open).map_err(refusal)?;
            Ok(Change::of(next, None, format!("{} deleted", whole(table, index))))
        }
        Request::Modify(Modify { index, label, kind, .. }) => {
            let next = table.modify(&params::Modify { index, kind, label }).map_err(refusal)?;
            let done = format!("{} modified", whole(&next, index));
            Ok(Change::of(next, Some(index), done))
        }
        Request::Resize(Resize { index, align, size, .. }) => {
            let (align, size) = (amount(align, "align")?, amount(size, "size")?);
            let spec = params::Resize { index, align, size };
            let next = table.resize(&spec, open).map_err(refusal)?;
            Ok(Change::of(next, Some(index), format!("{} resized", whole(table, index))))
        }
        Request::Recover(_) => {
            let next = table.recover().map_err(refusal)?;
            Ok(Change::of(next, None, format!("{name} recovered")))
        }
        Request::Destroy(Destroy { force, .. }) => {
            table.may_destroy(force, open).map_err(refusal)?;
            let said = format!("{name} destroyed");
            Ok(Change { table: None, touched: None, fresh: None, code: None, message: said })
        }
        Request::Set(of) => attribute(of, true),
        Request::Unset(of) => attribute(of, false),
        Request::Bootcode(Bootcode { bootcode, skip_serial, partcode, index, .. }) => {
            let code = partition_code(table, uses, partcode, index)?;
            let partition = code.as_ref().map(|code| whole(table, code.index()));
            let boot = bootcode.map(|text| binary("bootcode", &text)).transpose()?;
            let next = match (&boot, &code) {
                (Some(boot), _) => table.boot_code(boot, skip_serial, &uses.written),
                (None, Some(_)) if !skip_serial => Ok(table.clone()),
                (None, Some(_)) => return Err(lacks("skip_serial is for bootcode")),
                (None, None) => return Err(lacks("give bootcode, or partcode and index")),
            };
            let said = partition.map(|on| format!("partcode written to {on}"));
            let said = said.into_iter().chain(boot.map(|_| format!("bootcode written to {name}")));
            let said = said.collect::<Vec<_>>().join("\n");
            Ok(Change { code, ..Change::of(next.map_err(refusal)?, None, said) })
        }
        _ => Err(Error::of(Errno::Inval, "part")),
    }
}

fn lacks(what: &str) -> Error {
    Error::inval(what)
}

fn partition_code(
    table: &Table,
    uses: &Uses,
    text: Option<String>,
    index: Option<u32>,
) -> Result<Option<super::PartCode>, Error> {
    match (text, index) {
        (Some(text), Some(index)) => {
            let code = binary("partcode", &text)?;
            table.partition_code(index, &code, &uses.written).map(Some).map_err(refusal)
        }
        (Some(_), None) => {
            Err(lacks("index (-i) is missing: which partition is partcode (-p) for?"))
        }
        (None, Some(_)) => Err(lacks("index (-i) is for partcode (-p), which is missing")),
        (None, None) => Ok(None),
    }
}

/// A binary value in text, as iSCSI has it (RFC 7143 6.1).
fn binary(field: &str, text: &str) -> Result<Vec<u8>, Error> {
    let mut out = vec![0; text.len()];
    let len = match text {
        "0b" | "0x" => 0,
        _ => {
            let read = wire::iscsi::decode_binary(text, &mut out).map(<[u8]>::len);
            read.map_err(|_| lacks(&format!("{field} is neither 0b and base64 nor 0x and digits")))?
        }
    };
    out.truncate(len);
    Ok(out)
}

/// Takes an edit into memory, with the disk held and the providers as the table has them.
pub(super) fn apply(control: &mut GraphControl, geom: GeomId, change: Change) -> Result<(), Error> {
    let editing = with(&mut control.topology, geom, |part, topology| {
        part.refuses(topology, geom, change.table.as_ref())?;
        Ok(part.edits.is_some())
    })??;
    if !editing {
        hold(control, geom)?;
    }
    let done = control.call(|topology| {
        with(topology, geom, |part, topology| {
            let before = std::mem::replace(&mut part.table, change.table.clone());
            if let Err(error) = part.sync(topology, geom, TableLocation::InMemory) {
                part.table = before;
                return Err(error);
            }
            let edits = part.edits.get_or_insert_default();
            if let Some(wipe) = change.fresh {
                edits.steps.clear();
                edits.code.clear();
                edits.wipe = wipe;
                edits.fresh = true;
            }
            edits.steps.extend(change.table);
            edits.messages.extend(change.message.lines().map(str::to_owned));
            if let Some(code) = change.code {
                edits.touched.insert(code.index());
                edits.code.retain(|old| old.index() != code.index());
                edits.code.push(code);
            }
            edits.touched.extend(change.touched);
            Ok(())
        })?
    });
    if done.is_err() && !editing {
        control.call(|topology| {
            slice::pass(topology, geom, Access::EXCLUSIVE.inverse())
                .map_err(|e| Error::of(e, "close"))
        })?;
    }
    done
}

/// Opens the disk for editing.
fn hold(control: &mut GraphControl, geom: GeomId) -> Result<(), Error> {
    let name = control.topology.geom_name(geom).to_owned();
    control.call(|topology| {
        slice::pass(topology, geom, Access::EXCLUSIVE).map_err(|error| {
            let holders = holders(topology, &name);
            let what = match holders.is_empty() {
                true => format!("{name} cannot be opened for writing: {}", error.text()),
                false => format!("{name} is held by {holders}; close that first"),
            };
            Error::new(error, what)
        })
    })
}

/// The geoms that write a provider, or exclude others from it.
fn holders(topology: &Topology, name: &str) -> String {
    let mut all = Vec::new();
    for geom in topology.view(0) {
        for consumer in &geom.consumers {
            let counts = consumer.counts;
            if consumer.provider.as_deref() == Some(name) && (counts.w > 0 || counts.e > 0) {
                all.push(format!("{} {} ({counts})", geom.class, geom.name));
            }
        }
    }
    all.join(", ")
}

/// Sixteen bytes of chance for a unique id.
fn random(control: &mut GraphControl) -> Result<[u8; 16], Error> {
    control.run_on_core("part: a unique id", |core| {
        Box::pin(async move {
            let mut out = [0; 16];
            core.reactor().fill_random(&mut out);
            out
        })
    })
}

/// A warning when the partition does not begin where the disk below likes it.
fn misaligned(name: &str, table: &Table, change: &Change) -> Option<String> {
    let (media, entry) = (table.media(), table.entry(change.touched?)?);
    let at = media.offset(entry.data).checked_add(media.stripe_offset)?;
    let off = at.checked_rem(media.stripe_size)?;
    (off != 0).then(|| {
        format!(
            "{name}{} does not begin at a multiple of {} bytes; use an alignment of that",
            table.suffix(entry),
            media.stripe_size
        )
    })
}

/// The answer after a change, with the table as it is now.
pub(super) fn answer(
    control: &mut GraphControl,
    name: &str,
    message: String,
    warnings: Vec<String>,
) -> PartAnswer {
    let geom = control.topology.find_geom(NAME, name);
    let tables = geom.and_then(|geom| view(&mut control.topology, geom)).into_iter().collect();
    PartAnswer { message, warnings, tables }
}

fn show(control: &mut GraphControl, names: &[String]) -> Result<PartAnswer, Error> {
    let mut geoms = Vec::new();
    for name in names {
        geoms.push(find(control, name)?);
    }
    if names.is_empty() {
        geoms.extend(control.topology.class_view(NAME, 0).iter().map(|g| g.id));
    }
    let tables = geoms.into_iter().filter_map(|g| view(&mut control.topology, g)).collect();
    Ok(PartAnswer { tables, ..PartAnswer::default() })
}

fn view(topology: &mut Topology, geom: GeomId) -> Option<TableView> {
    let name = topology.geom_name(geom).to_owned();
    topology.with::<PartGeom, _>(geom, |part, _| {
        // One that is to be destroyed is shown without partitions until that is committed.
        let gone = part.table.is_none();
        let table = part.table.as_ref().or(part.media.as_ref())?;
        let entries = if gone { &[] } else { table.entries() };
        let mut entries: Vec<EntryView> = entries
            .iter()
            .map(|entry| EntryView {
                index: entry.index,
                name: part.name_of(entry.index).unwrap_or("").to_owned(),
                start: entry.start,
                count: entry.end.saturating_sub(entry.start).saturating_add(1),
                kind: entry.kind.to_string(),
                raw_kind: entry.kind.raw().trim_start_matches('!').to_owned(),
                label: entry.label(),
                attributes: entry.attribute_names().iter().map(|a| (*a).to_owned()).collect(),
            })
            .collect();
        entries.sort_by_key(|entry| entry.start);
        Some(TableView {
            geom: name,
            scheme: table.scheme().name().to_lowercase(),
            corrupt: table.is_corrupt(),
            why: damages(table),
            sector_bytes: table.media().sector_size,
            first: table.first(),
            last: table.last(),
            entries,
            modified: part.edits.is_some(),
            pending: part.edits.as_ref().map(|edits| edits.messages.clone()).unwrap_or_default(),
        })
    })?
}
