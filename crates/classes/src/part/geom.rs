//! The geom of one table: its partitions as providers, and the edits not yet written.
//!
//! Invariants
//!  G1  `parts` are the providers of the entries of `table`; [`PartGeom::sync`] makes it so
//!      after every change. A partition that an edit does not touch keeps its provider.
//!  G2  While `edits` exists the provider below is held r1w1e1 in addition to the needs of the
//!      partitions; [`super::verbs`] opens and closes it.
//!  G3  `media` is the table on the media, unless a commit failed half way (`edits.torn`).
//!  G4  Layers above are notified of a partition that becomes larger only when the media has the
//!      new table. Otherwise a label that moved to the new end would be beyond the end after a
//!      power cut or an undo.
//!
//! ```text
//!            add, delete, resize, ...              commit
//!   CLEAN ---------------------------> MODIFIED -----------> CLEAN
//!     ^                                  |   ^                 writing failed: MODIFIED, torn
//!     +------------- undo ---------------+   +-- the disk below has a new size (resized)
//! ```

use crate::write_plan::WritePlan;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bio::{Attr, Errno};
use geom::{
    Access, ConsumerId, Deletes, Error, Event, Geom, GeomId, NewProvider, ProviderId, Topology,
    Trouble,
};

use super::class::{NAME, damages};
use super::{DEPTH_MAX, Entry, Scheme, Table, show::human};
use crate::slice::{self, Slice};

/// Changes made since the last commit.
#[derive(Default)]
pub(super) struct Edits {
    /// The table after each edit, oldest first.
    pub(super) steps: Vec<Table>,
    /// A message for each of them: "ada0p3 added".
    pub(super) messages: Vec<String>,
    /// Indexes whose label, type, attributes or size were changed.
    pub(super) touched: BTreeSet<u32>,
    /// The disk has a new size; undoing means to look at the media again.
    pub(super) resized: bool,
    /// A commit failed half way: the media holds the old table or the new one.
    pub(super) torn: bool,
    /// The table is unrelated to the one on the media, which is removed first.
    pub(super) fresh: bool,
    /// Zeroes over other formats.
    pub(super) wipe: WritePlan,
    /// Boot code of partitions, at most one each.
    pub(super) code: Vec<super::PartCode>,
}

/// Location of the table that the providers are to follow.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum TableLocation {
    /// In memory, and it may be undone.
    InMemory,
    OnMedia,
}

/// One partition as a provider.
#[derive(Clone, PartialEq, Eq)]
struct Part {
    provider: ProviderId,
    name: String,
    /// First byte on the provider below.
    from: u64,
    /// Bytes.
    len: u64,
}

pub struct PartGeom {
    depth: u32,
    pub(super) media: Option<Table>,
    pub(super) table: Option<Table>,
    pub(super) edits: Option<Edits>,
    parts: BTreeMap<u32, Part>,
}

impl PartGeom {
    /// A geom without a table on a provider.
    pub(super) fn place(
        topology: &mut Topology,
        on: ProviderId,
        why: &str,
        depth: u32,
    ) -> Result<GeomId, Error> {
        let name = topology.provider_name(on).to_owned();
        let parts = BTreeMap::new();
        let ops = PartGeom { depth, media: None, table: None, edits: None, parts };
        let geom = topology.new_geom(NAME, &name, why, Box::new(ops))?;
        if let Err(e) = topology.attach_new(geom, on) {
            topology.wither_geom(geom, Errno::NxIo);
            return Err(Error::of(e, &format!("attach to {name}")));
        }
        Ok(geom)
    }

    /// The geom with all its partitions is removed; the media stays as it is.
    pub(super) fn abandon(topology: &mut Topology, geom: GeomId, error: Errno) {
        for consumer in topology.consumers_of(geom).to_vec() {
            topology.leave(consumer);
        }
        topology.wither_geom(geom, error);
    }

    /// Takes over the table that is on the media.
    pub(super) fn found(&mut self, table: Table) {
        self.media = Some(table.clone());
        self.table = Some(table);
    }

    /// Name of the provider of an entry.
    pub(super) fn name_of(&self, index: u32) -> Option<&str> {
        self.parts.get(&index).map(|part| part.name.as_str())
    }

    /// Indexes of the partitions that are open.
    pub(super) fn open(&self, topology: &Topology) -> BTreeSet<u32> {
        let open = |part: &Part| topology.counts(part.provider) != Access::NONE;
        self.parts.iter().filter(|(_, part)| open(part)).map(|(index, _)| *index).collect()
    }

    /// Indexes of the partitions that are open for writing, or kept from other writers.
    pub(super) fn written(&self, topology: &Topology) -> BTreeSet<u32> {
        let written = |part: &Part| {
            let counts = topology.counts(part.provider);
            counts.w > 0 || counts.e > 0
        };
        self.parts.iter().filter(|(_, part)| written(part)).map(|(index, _)| *index).collect()
    }

    fn wanted(&self, base: &str, table: &Table, entry: &Entry) -> Result<Part, Error> {
        let size = u64::from(table.media().sector_size);
        let bytes = |sectors: u64| sectors.checked_mul(size);
        let name = format!("{base}{}", table.suffix(entry));
        match (bytes(entry.data), bytes(entry.data_sectors())) {
            (Some(from), Some(len)) => {
                Ok(Part { provider: ProviderId::default(), name, from, len })
            }
            _ => Err(Error::inval(format!("{name}: beyond every disk"))),
        }
    }

    /// Why the providers cannot become those of `target`: a partition that is open would be
    /// removed, move, change its name or shrink, or a name is taken.
    pub(super) fn refuses(
        &self,
        topology: &Topology,
        me: GeomId,
        target: Option<&Table>,
    ) -> Result<(), Error> {
        let base = topology.geom_name(me);
        let mut names = BTreeMap::new();
        for entry in target.map(Table::entries).unwrap_or_default() {
            if let Some(table) = target {
                names.insert(entry.index, self.wanted(base, table, entry)?);
            }
        }
        for (index, part) in &self.parts {
            let kept = names.get(index).is_some_and(|new| {
                new.name == part.name && new.from == part.from && new.len >= part.len
            });
            if !kept && topology.counts(part.provider) != Access::NONE {
                let what = format!("{} is open; close what uses it first", part.name);
                return Err(Error::new(Errno::Busy, what));
            }
        }
        for new in names.values() {
            let own = self.parts.values().any(|part| part.name == new.name);
            if !own && topology.find(&new.name).is_some() {
                let what = format!("another provider is called {}; rename that first", new.name);
                return Err(Error::new(Errno::Exist, what));
            }
        }
        Ok(())
    }

    /// Makes the providers those of the table. What cannot be is refused before anything is
    /// changed.
    pub(super) fn sync(
        &mut self,
        topology: &mut Topology,
        me: GeomId,
        location: TableLocation,
    ) -> Result<(), Error> {
        let table = self.table.take();
        let done = self.sync_to(topology, me, table.as_ref(), location);
        self.table = table;
        done
    }

    fn sync_to(
        &mut self,
        topology: &mut Topology,
        me: GeomId,
        table: Option<&Table>,
        location: TableLocation,
    ) -> Result<(), Error> {
        self.refuses(topology, me, table)?;
        let base = topology.geom_name(me).to_owned();
        let mut wanted = BTreeMap::new();
        if let Some(table) = table {
            for entry in table.entries() {
                wanted.insert(entry.index, (self.wanted(&base, table, entry)?, table, entry));
            }
        }
        let stays = |index: &u32, part: &Part| {
            let new = wanted.get(index).map(|(new, ..)| new);
            new.is_some_and(|new| new.name == part.name && new.from == part.from)
        };
        let gone: Vec<u32> =
            self.parts.iter().filter(|(i, p)| !stays(i, p)).map(|(i, _)| *i).collect();
        for index in gone {
            if let Some(part) = self.parts.remove(&index) {
                topology.wither_provider(part.provider, Errno::NxIo);
            }
        }
        for (index, (new, table, entry)) in wanted {
            let attrs = self.attrs(topology, me, table, entry);
            match self.parts.get_mut(&index) {
                Some(part) => {
                    topology.set_attrs(part.provider, attrs);
                    // G4
                    if new.len < part.len
                        || new.len > part.len && location == TableLocation::OnMedia
                    {
                        part.len = new.len;
                        topology.post(Event::Resize(part.provider, new.len));
                    }
                }
                None => {
                    let provider = provide(topology, me, &new, attrs)?;
                    self.parts.insert(index, Part { provider, ..new });
                }
            }
        }
        Ok(())
    }

    /// Always all of them, so that none of the table below shines through.
    fn attrs(
        &self,
        topology: &Topology,
        me: GeomId,
        table: &Table,
        entry: &Entry,
    ) -> Vec<(&'static str, Attr)> {
        let uuid = table.disk_guid().map(|_| entry.guid.to_string());
        // A partition of a BSD disklabel cannot contain a table.
        let leaf = self.depth.saturating_add(1) >= DEPTH_MAX || table.scheme() == Scheme::Bsd;
        let mut attrs = vec![
            ("PART::scheme", Attr::Text(table.scheme().name().into())),
            ("PART::type", Attr::Text(entry.kind.to_string())),
            ("PART::label", Attr::Text(entry.label())),
            ("PART::uuid", Attr::Text(uuid.unwrap_or_default())),
            ("PART::depth", Attr::Int(u64::from(self.depth))),
            ("PART::isleaf", Attr::Int(u64::from(leaf))),
        ];
        if let Some(Attr::Text(path)) = topology.attr_below(me, "GEOM::physpath") {
            let path = format!("{path}/{}", table.suffix(entry));
            attrs.push(("GEOM::physpath", Attr::Text(path)));
        }
        attrs
    }

    pub(super) fn providers(&self, indexes: &BTreeSet<u32>) -> Vec<ProviderId> {
        indexes.iter().filter_map(|index| Some(self.parts.get(index)?.provider)).collect()
    }

    /// The name by which others know a logical partition: `ada0s5`.
    fn alias(&self, topology: &Topology, me: GeomId, table: &Table, entry: &Entry) -> String {
        let disk = slice::base(topology, me).and_then(|p| topology.geom_of(p));
        let number = table.logical_number(entry);
        match disk.zip(number) {
            Some((disk, number)) => format!(" alias {}s{number}", topology.geom_name(disk)),
            None => String::new(),
        }
    }

    fn line(&self, topology: &Topology, me: GeomId, table: &Table, entry: &Entry) -> String {
        let name = self.name_of(entry.index).unwrap_or("?");
        let bytes = entry.data_sectors().saturating_mul(u64::from(table.media().sector_size));
        let mut text = format!(
            "{name} index {} start {} end {} type {} ({})",
            entry.index,
            entry.start,
            entry.end,
            entry.kind,
            human(bytes)
        );
        if !entry.name.is_empty() {
            text += &format!(" label {:?}", entry.label());
        }
        if table.disk_guid().is_some() {
            text += &format!(" uuid {}", entry.guid);
        }
        let attributes = entry.attribute_names();
        if !attributes.is_empty() {
            text += &format!(" [{}]", attributes.join(","));
        }
        text + &self.alias(topology, me, table, entry)
    }

    /// The disk below has `sectors` now: the table follows in memory, when it can.
    fn resize_table(
        &mut self,
        topology: &mut Topology,
        me: GeomId,
        sectors: u64,
    ) -> Result<(), Error> {
        let Some(table) = &self.table else {
            return Ok(());
        };
        let next = table.media_resized(sectors).map_err(super::class::refusal)?;
        if self.edits.is_none() {
            slice::pass(topology, me, Access::EXCLUSIVE).map_err(|e| Error::of(e, "resize"))?;
        }
        let edits = self.edits.get_or_insert_default();
        edits.steps.push(next.clone());
        edits.resized = true;
        edits.messages.push(format!("the table follows the disk to {sectors} sectors"));
        self.table = Some(next);
        Ok(())
    }
}

fn provide(
    topology: &mut Topology,
    me: GeomId,
    part: &Part,
    attrs: Vec<(&'static str, Attr)>,
) -> Result<ProviderId, Error> {
    let gone = || Error::new(Errno::NxIo, format!("{}: the disk below was removed", part.name));
    let consumer = *topology.consumers_of(me).first().ok_or_else(gone)?;
    let below = topology.below(consumer).ok_or_else(gone)?;
    let numbers = topology.limits(below).ok_or_else(gone)?;
    let (stripe_bytes, stripe_offset) = slice::stripe(topology.stripe(below), part.from);
    topology.new_provider(
        me,
        NewProvider {
            name: part.name.clone(),
            layer: Arc::new(Slice { from: part.from, below: topology.edge(consumer) }),
            limits: slice::limits(numbers, part.len),
            stripe_bytes,
            stripe_offset,
            attrs,
        },
    )
}

impl Geom for PartGeom {
    fn renamed(&mut self, from: &str, to: &str) {
        for part in self.parts.values_mut().filter(|part| part.name == from) {
            part.name = to.to_owned();
        }
    }

    fn access(
        &mut self,
        topology: &mut Topology,
        me: GeomId,
        _: ProviderId,
        delta: Access,
    ) -> Result<(), Errno> {
        // The disk may be a part of a larger whole: nothing is written before it is recovered.
        if delta.w > 0 && self.table.as_ref().is_some_and(Table::is_of_larger_disk) {
            return Err(Errno::RoFs);
        }
        // A writer of a partition excludes other writers from the whole disk.
        slice::pass(topology, me, Access { e: delta.w.saturating_add(delta.e), ..delta })
    }

    fn is_read_only(&self, topology: &Topology, me: GeomId, _: ProviderId) -> bool {
        let is_larger = self.table.as_ref().is_some_and(Table::is_of_larger_disk);
        is_larger || topology.is_read_only_below(me)
    }

    fn spoils(&self) -> bool {
        true
    }

    fn resizes(&self) -> bool {
        true
    }

    fn resized(&mut self, topology: &mut Topology, me: GeomId, consumer: ConsumerId) {
        let limits = topology.below(consumer).and_then(|p| topology.limits(p));
        let Some(limits) = limits else { return };
        let sectors = limits.media_bytes.checked_div(u64::from(limits.sector_bytes)).unwrap_or(0);
        let followed = self.resize_table(topology, me, sectors);
        // A damaged table, one that no longer fits, or one whose disk others hold. The tasting that
        // ends the event looks at the media again.
        let fits = self.table.as_ref().is_some_and(|t| t.last() < sectors);
        let open = !self.open(topology).is_empty();
        if followed.is_err() && !(open && fits) {
            Self::abandon(topology, me, Errno::NxIo);
        }
    }

    fn attr_changed(&mut self, topology: &mut Topology, me: GeomId, _: ConsumerId, name: &str) {
        for entry in self.table.iter().flat_map(Table::entries) {
            if let (Some(part), Some(table)) = (self.parts.get(&entry.index), &self.table) {
                let attrs = self.attrs(topology, me, table, entry);
                topology.set_attrs(part.provider, attrs);
            }
        }
        topology.pass_up_attr(me, name);
    }

    fn attr(&self, topology: &Topology, me: GeomId, _: ProviderId, name: &str) -> Option<Attr> {
        // The free space of the disk is not known for a part of it.
        match name.starts_with("PART::") || name.starts_with("DISK::") {
            true => None,
            false => topology.attr_below(me, name),
        }
    }

    fn deletes(&self, topology: &Topology, me: GeomId, provider: ProviderId) -> Deletes {
        let from = self.parts.values().find(|part| part.provider == provider).map_or(0, |p| p.from);
        topology.deletes_below(me).moved(from)
    }

    fn show(&self, topology: &Topology, me: GeomId) -> Vec<(&'static str, String)> {
        let name = topology.geom_name(me);
        let mut lines = Vec::new();
        let Some(table) = &self.table else {
            lines.push(("modified", "true".into()));
            let hint = format!("the table is to be destroyed: `part commit {name}` or `part undo");
            lines.push(("note", format!("{hint} {name}`")));
            return lines;
        };
        lines.push(("scheme", table.scheme().name().into()));
        let state = if table.is_corrupt() { "CORRUPT" } else { "OK" };
        lines.push(("state", state.into()));
        if table.is_corrupt() {
            lines.push(("damage", damages(table)));
        }
        lines.push(("first", table.first().to_string()));
        lines.push(("last", table.last().to_string()));
        lines.push(("entries", table.capacity().to_string()));
        lines.push(("modified", self.edits.is_some().to_string()));
        if let Some(edits) = &self.edits {
            let what = match (edits.torn, edits.resized) {
                (true, _) => "writing failed half way",
                (_, true) => "the disk has a new size and the table follows it",
                _ => "changes are not written yet",
            };
            let note = format!("{what}: `part commit {name}` or `part undo {name}`");
            lines.push(("note", note));
            lines.extend(edits.messages.iter().map(|message| ("pending", message.clone())));
        }
        for entry in table.entries() {
            lines.push(("partition", self.line(topology, me, table, entry)));
        }
        lines
    }

    fn troubles(&self, topology: &Topology, me: GeomId) -> Vec<Trouble> {
        let damaged = self.table.as_ref().filter(|table| table.is_corrupt());
        let trouble = |table: &Table| {
            let name = topology.geom_name(me);
            let action = format!(
                "`ashlar part recover {name}` writes it anew from what is whole; `ashlar part show \
                 {name}` shows it."
            );
            Trouble::degraded(format!("its table is damaged: {}", damages(table)), action)
        };
        damaged.map(trouble).into_iter().collect()
    }
}
