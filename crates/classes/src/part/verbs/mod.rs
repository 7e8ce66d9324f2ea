//! Verbs of the class, a file each. An edit is made in memory and then written, unless it is to be
//! kept there. One that loses partitions requires consent (U3 of [`crate::guard`]).
//!
//! Invariants
//!  V1  A refusal changes nothing: every check precedes the first change.
//!  V2  The disk is held r1w1e1 from the first edit to the commit or undo (geom.rs, G2).

mod add;
mod backup;
mod bootcode;
mod commit;
mod create;
mod delete;
mod destroy;
mod modify;
mod recover;
mod resize;
mod restore;
mod set;
mod show;
mod undo;
mod unset;

use std::collections::BTreeSet;

use bio::Errno;
use geom::{Access, ClassVerb, Error, GeomId, GraphControl, JsonSchema, Topology};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::class::{NAME, PartClass, damages};
use super::commit::commit;
use super::geom::{PartGeom, TableLocation};
use super::request::{Amount, EntryView, PartAnswer, TableView};
use super::{PartCode, Table, params};
use crate::write_plan::WritePlan;
use crate::{guard, slice};

pub use add::Add;
pub use bootcode::Bootcode;
pub use commit::Commit;
pub use create::Create;
pub use delete::Delete;
pub use destroy::Destroy;
pub use modify::Modify;
pub use recover::Recover;
pub use resize::Resize;
pub use restore::Restore;
pub use set::{Attribute, Set};
pub use show::Show;
pub use undo::Undo;
pub use unset::Unset;

pub(super) const VERBS: &[ClassVerb<PartClass>] = &[
    ClassVerb::of::<Show>(),
    ClassVerb::of::<Edit<Create>>(),
    ClassVerb::of::<Edit<Add>>(),
    ClassVerb::of::<Edit<Delete>>(),
    ClassVerb::of::<Edit<Modify>>(),
    ClassVerb::of::<Edit<Resize>>(),
    ClassVerb::of::<Recover>(),
    ClassVerb::of::<Edit<Destroy>>(),
    ClassVerb::of::<Set>(),
    ClassVerb::of::<Unset>(),
    ClassVerb::of::<Edit<Bootcode>>(),
    ClassVerb::of::<backup::Backup>(),
    ClassVerb::of::<Edit<Restore>>(),
    ClassVerb::of::<Commit>(),
    ClassVerb::of::<Undo>(),
];

/// A change, and whether it is written at once.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Edit<P> {
    /// Parameters of the change.
    #[serde(flatten)]
    pub of: P,
    /// Keep the change in memory: `part commit` writes it, `part undo` discards it [default: write
    /// the change at once]
    #[serde(default)]
    pub no_commit: bool,
    /// Flags of gpart: without the letter C, the same as --no-commit [default: C]
    #[schemars(extend("x-short" = "f"))]
    #[serde(default)]
    pub flags: Option<String>,
}

impl<P> Edit<P> {
    /// The parameters, and whether the change is written at once.
    fn parts(self) -> (P, bool) {
        let is_kept = is_kept_in_memory(self.no_commit, self.flags.as_deref());
        (self.of, !is_kept)
    }
}

/// Whether a change with these parameters is not written at once.
pub fn is_kept_in_memory(no_commit: bool, flags: Option<&str>) -> bool {
    no_commit || flags.is_some_and(|flags| !flags.contains('C'))
}

/// Parameters as the verbs take them: `on` is the field that names the table, and `kind` another
/// word for `type`.
pub(super) fn normalised(verb: &str, on: &str, given: &Value) -> Result<Value, Error> {
    let mut all = match given {
        Value::Object(all) => all.clone(),
        Value::Null => Map::new(),
        _ => return Err(Error::inval(format!("part {verb}: the parameters are not an object"))),
    };
    if !all.contains_key("type")
        && let Some(kind) = all.remove("kind")
    {
        all.insert("type".to_owned(), kind);
    }
    if !on.is_empty() {
        let (key, named) = match verb {
            "create" => ("provider", Value::from(on)),
            "show" | "restore" => ("geoms", Value::from(vec![on])),
            _ => ("geom", Value::from(on)),
        };
        all.entry(key).or_insert(named);
    }
    Ok(Value::Object(all))
}

/// The geom of the table on the provider of that name.
pub(super) fn find(control: &GraphControl, name: &str) -> Result<GeomId, Error> {
    if let Some(geom) = control.topology.find_geom(NAME, name) {
        return Ok(geom);
    }
    let reason = taste_result(control, name)?.map(|why| format!(" ({why})")).unwrap_or_default();
    let what = format!("{name} carries no partition table{reason}; `part create` makes one");
    Err(Error::new(Errno::NoEnt, what))
}

/// The reason why the provider of that name was found to have no table; `None`: it was not searched
/// for one.
fn taste_result(control: &GraphControl, name: &str) -> Result<Option<String>, Error> {
    let Some(on) = control.topology.find(name) else {
        let what = format!("no provider is called {name}; `ashlar list` names them");
        return Err(Error::new(Errno::NoEnt, what));
    };
    let view = control.topology.view(0);
    let seen = view.into_iter().flat_map(|g| g.providers).find(|p| p.id == on);
    let mut outcomes = seen.into_iter().flat_map(|p| p.taste_outcomes);
    Ok(outcomes.find(|(class, _)| *class == NAME).map(|(_, why)| why))
}

/// The geom's state; an error when it disappeared meanwhile.
pub(super) fn with<R>(
    topology: &mut Topology,
    geom: GeomId,
    f: impl FnOnce(&mut PartGeom, &mut Topology) -> R,
) -> Result<R, Error> {
    let live = topology.geom_is_live(geom);
    let gone = || Error::new(Errno::NxIo, "the disk disappeared; nothing more was changed");
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
    pub(super) code: Option<PartCode>,
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
    fn of(table: Table, touched: Option<u32>, message: String) -> Change {
        Change { table: Some(table), touched, fresh: None, code: None, message }
    }
}

/// A table before an edit.
struct TableBefore<'t> {
    name: &'t str,
    table: &'t Table,
    uses: &'t Uses,
    /// A new unique id, if the edit needs one.
    id: [u8; 16],
}

impl TableBefore<'_> {
    /// The name of a partition's provider in the table before or after the edit.
    fn part_name(&self, table: &Table, index: u32) -> String {
        match table.entry(index) {
            Some(entry) => format!("{}{}", self.name, table.suffix(entry)),
            None => self.name.to_owned(),
        }
    }

    /// Refuses the loss of a partition whose name is not in `consent`.
    fn require_consent(&self, index: u32, consent: &[String]) -> Result<(), Error> {
        let Some(entry) = self.table.entry(index) else { return Ok(()) };
        let held = format!("a partition of type {}", entry.kind);
        guard::require_consent(&self.part_name(self.table, index), held, consent)
    }

    /// An amount in the terms of the table; `what` is its parameter.
    fn amount(&self, amount: Option<Amount>, what: &str) -> Result<Option<params::Amount>, Error> {
        let size = self.table.media().sector_size;
        amount.map(|amount| amount.of(size, what)).transpose()
    }
}

trait TableEdit {
    /// Whether it needs a new unique id.
    const NEEDS_ID: bool = false;

    fn geom(&self) -> &str;

    /// The table after the edit, and its message.
    fn change(self, before: &TableBefore<'_>) -> Result<Change, Error>;
}

fn edit<E: TableEdit>(
    control: &mut GraphControl,
    of: E,
    at_once: bool,
) -> Result<PartAnswer, Error> {
    let name = of.geom().to_owned();
    let geom = find(control, &name)?;
    let (table, uses) = with(&mut control.topology, geom, |p, t| {
        (p.table.clone(), Uses { open: p.open(t), written: p.written(t) })
    })?;
    let Some(table) = table else {
        let what = format!("the table of {name} is to be destroyed; commit or undo that first");
        return Err(Error::new(Errno::Perm, what));
    };
    let id = if E::NEEDS_ID { random(control)? } else { [0; 16] };
    let change = of.change(&TableBefore { name: &name, table: &table, uses: &uses, id })?;
    let warnings = change.table.as_ref().and_then(|t| misaligned(&name, t, &change));
    let done = change.message.clone();
    apply(control, geom, change)?;
    if at_once {
        commit(control, geom)?;
    }
    Ok(answer(control, &name, done, warnings.into_iter().collect()))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::part::request::TableName;
    use serde_json::json;

    #[test]
    fn change_is_kept_in_memory_on_request_or_by_flags_without_c() {
        let of = TableName { geom: "ada0".into() };
        for (given, at_once) in [
            (json!({}), true),
            (json!({ "flags": "C" }), true),
            (json!({ "flags": "x" }), false),
            (json!({ "no_commit": true }), false),
            (json!({ "no_commit": true, "flags": "C" }), false),
        ] {
            let params = normalised("recover", "ada0", &given).expect("an object");
            let edit: Edit<TableName> =
                geom::parse_params("part recover", &params).expect("well-formed");
            assert_eq!(edit.parts(), (of.clone(), at_once), "{given}");
        }
    }
}
