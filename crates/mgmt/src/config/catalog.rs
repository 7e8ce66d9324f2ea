//! Catalog of configurable things: every disk kind, class and driver with the schema of its
//! parameters. The binary fills it from the registries.

use super::types::{Config, GeomConfig, TargetConfig};
use crate::api::Result;
use crate::cli::ClassVerbs;
use geom::Class;
use schemars::JsonSchema;
use serde_json::{Map, Value};
use wire::pattern::Naming;

/// One disk kind, class or driver.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The word written in `kind`, `class` or `driver`.
    pub name: String,
    /// One sentence.
    pub doc: String,
    /// Schema of its parameters: an object. Keys of the section itself are not in it.
    pub schema: Value,
    /// Its data is lost when it is removed (memory, modelled disks). Without data it is false.
    pub volatile: bool,
    /// Keys that an open bus or disk of the kind takes over; none of other entries.
    pub live_keys: &'static [&'static str],
    /// Effects of an edit of its keys on running hosts; `*` is any other key.
    pub edits: &'static [(&'static str, &'static str)],
    /// Keys of a disk kind that are without effect on a medium that exists and has its size.
    pub size_keys: &'static [&'static str],
    /// Facts about a disk kind; the defaults of other entries.
    pub disk: DiskFacts,
    /// Facts about a driver; the defaults of other entries.
    pub driver: DriverFacts,
    /// It may be used in `[[geom]]`; otherwise only tasting makes it.
    pub configurable: bool,
    /// A section that can be pasted into `ashlar.toml`; empty when there is none.
    pub example: String,
}

impl Entry {
    /// An entry whose parameters are the fields of `P`.
    pub fn of<P: JsonSchema>(name: &str, doc: &str) -> Entry {
        Entry::new(name, doc, geom::schema_of::<P>())
    }

    /// An entry with only a schema: its data lasts, and all of its keys have the usual effects.
    pub fn new(name: &str, doc: &str, schema: Value) -> Entry {
        Entry {
            name: name.to_owned(),
            doc: doc.to_owned(),
            schema,
            volatile: false,
            live_keys: &[],
            edits: &[],
            size_keys: &[],
            disk: DiskFacts::default(),
            driver: DriverFacts::default(),
            configurable: true,
            example: String::new(),
        }
    }

    /// The same, with contents that are lost when it is removed.
    pub fn volatile(mut self) -> Entry {
        self.volatile = true;
        self
    }

    /// The same, made by tasting alone.
    pub fn tasted_only(mut self) -> Entry {
        self.configurable = false;
        self
    }

    /// The same, with these keys that give a new medium its size.
    pub fn sized_by(mut self, keys: &'static [&'static str]) -> Entry {
        self.size_keys = keys;
        self
    }

    /// The same, of a disk kind.
    pub fn disk(mut self, facts: DiskFacts) -> Entry {
        self.disk = facts;
        self
    }

    /// The same, of a driver.
    pub fn driver(mut self, facts: DriverFacts) -> Entry {
        self.driver = facts;
        self
    }

    /// The same, with an example.
    pub fn example(mut self, example: &str) -> Entry {
        self.example = example.to_owned();
        self
    }
}

/// Everything that a configuration may name.
#[derive(Clone, Debug, Default)]
pub struct Catalog {
    /// Kinds of `[[bus]]`.
    pub buses: Vec<Entry>,
    /// Kinds of `[[disk]]`.
    pub disks: Vec<Entry>,
    /// Classes, those of `[[geom]]` and those that only tasting makes.
    pub classes: Vec<Entry>,
    /// Drivers of `[[target]]`.
    pub drivers: Vec<Entry>,
    /// Whether the driver of a target would take it, with the files that it names.
    pub check_target: Option<CheckTarget>,
    /// Why a daemon that runs nothing could not make buses, disks and geoms.
    pub check_start: Option<CheckStart>,
    /// The settings of a section that can change while its geom is used, all of them; none for a
    /// section that its class refuses.
    pub settings: Option<SettingsOf>,
    /// Whether a geom with the members of the first section can get those of the second while it
    /// is used.
    pub may_become: Option<MayBecome>,
    /// Facts about a class by its name, also of those that no section may name.
    pub class_facts: Option<FactsOf>,
    /// The classes whose verbs are called by `geom`.
    pub class_verbs: Option<VerbsOfClasses>,
}

/// Facts about a disk kind that plans and checks need.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DiskFacts {
    /// Its `path` names a device.
    pub is_device: bool,
    /// A disk without `sector_size` has the sectors of its medium.
    pub has_sectors_of_medium: bool,
}

/// Facts about a driver that checks of a configuration and its reference need.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DriverFacts {
    /// Its targets have no portals: the initiator is this machine.
    pub is_local: bool,
    /// The names of its initiators.
    pub naming: Naming,
    /// Its clients request units by name.
    pub has_unit_names: bool,
}

/// Facts about a class that plans need.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ClassFacts {
    /// See [`Class::tastes`].
    pub tastes: bool,
    /// See [`Class::member_limits`].
    pub member_limits: (usize, usize),
    /// See [`Class::opens_members`].
    pub opens_members: bool,
    /// See [`Class::keeps_records`].
    pub keeps_records: bool,
    /// A section may list several members.
    pub lists_members: bool,
    /// See [`Class::member_edits_last`].
    pub member_edits_last: Option<&'static str>,
    /// See [`Class::passes_serial`].
    pub passes_serial: bool,
    /// See [`Class::shown_as`].
    pub shown_as: &'static [(&'static str, &'static str)],
    /// See [`Class::listen_keys`].
    pub listen_keys: &'static [&'static str],
}

impl ClassFacts {
    /// Those of a class.
    pub fn of(class: &dyn Class) -> ClassFacts {
        ClassFacts {
            tastes: class.tastes(),
            member_limits: class.member_limits(),
            opens_members: class.opens_members(),
            keeps_records: class.keeps_records(),
            lists_members: class.member_limits().1 > 1,
            member_edits_last: class.member_edits_last(),
            passes_serial: class.passes_serial(),
            shown_as: class.shown_as(),
            listen_keys: class.listen_keys(),
        }
    }
}

/// See [`Catalog::check_target`].
pub type CheckTarget = fn(&TargetConfig) -> Result<()>;

/// See [`Catalog::check_start`].
pub type CheckStart = fn(&Config) -> Vec<String>;

/// See [`Catalog::settings`].
pub type SettingsOf = fn(&GeomConfig) -> Map<String, Value>;

/// See [`Catalog::may_become`].
pub type MayBecome = fn(&GeomConfig, &GeomConfig) -> bool;

/// See [`Catalog::class_facts`].
pub type FactsOf = fn(&str) -> ClassFacts;

/// See [`Catalog::class_verbs`].
pub type VerbsOfClasses = fn() -> Vec<ClassVerbs>;

impl Catalog {
    /// Whether the removal of a disk of that kind loses its data.
    pub fn volatile(&self, kind: &str) -> bool {
        self.disks.iter().any(|e| e.name == kind && e.volatile)
    }

    /// Whether the removal of a bus of that kind loses the data on its disks.
    pub fn volatile_bus(&self, kind: &str) -> bool {
        self.buses.iter().any(|e| e.name == kind && e.volatile)
    }

    /// Keys that an open bus of a kind takes over.
    pub fn live_keys(&self, kind: &str) -> &'static [&'static str] {
        let of = self.buses.iter().find(|e| e.name == kind);
        of.map(|e| e.live_keys).unwrap_or_default()
    }

    /// Keys that an open disk of a kind takes over.
    pub fn live_disk_keys(&self, kind: &str) -> &'static [&'static str] {
        let of = self.disks.iter().find(|e| e.name == kind);
        of.map(|e| e.live_keys).unwrap_or_default()
    }

    /// Keys that are without effect on the medium of a disk of that kind that exists and has its
    /// size.
    pub fn size_keys(&self, kind: &str) -> &'static [&'static str] {
        let of = self.disks.iter().find(|e| e.name == kind);
        of.map(|e| e.size_keys).unwrap_or_default()
    }

    /// The settings that a section gives its geom, by its keys; null: it needs no such key.
    pub fn settings(&self, geom: &GeomConfig) -> Map<String, Value> {
        self.settings.map_or_else(Map::new, |of| of(geom))
    }

    /// Whether a geom can get the members of another section of its class while it is used.
    pub fn may_become(&self, from: &GeomConfig, to: &GeomConfig) -> bool {
        self.may_become.is_some_and(|may| may(from, to))
    }

    /// Facts about a class; of an unknown one, the defaults.
    pub fn facts(&self, class: &str) -> ClassFacts {
        self.class_facts.map_or_else(ClassFacts::default, |of| of(class))
    }

    /// Facts about a disk kind; of an unknown one, the defaults.
    pub fn disk(&self, kind: &str) -> DiskFacts {
        let entry = self.disks.iter().find(|e| e.name == kind);
        entry.map(|e| e.disk).unwrap_or_default()
    }

    /// Facts about a driver; of an unknown one, the defaults.
    pub fn driver(&self, name: &str) -> DriverFacts {
        let entry = self.drivers.iter().find(|e| e.name == name);
        entry.map(|e| e.driver).unwrap_or_default()
    }

    /// The classes whose verbs are called by `geom`.
    pub fn class_verbs(&self) -> Vec<ClassVerbs> {
        self.class_verbs.map_or_else(Vec::new, |all| all())
    }

    /// All entries, each with the word of its section.
    pub fn all(&self) -> impl Iterator<Item = (&'static str, &Entry)> {
        let buses = self.buses.iter().map(|e| ("bus", e));
        let disks = self.disks.iter().map(|e| ("disk", e));
        let classes = self.classes.iter().map(|e| ("geom", e));
        buses.chain(disks).chain(classes).chain(self.drivers.iter().map(|e| ("target", e)))
    }
}
