//! part: changes of partition tables, each written at once unless `--no-commit` is given.

use super::entry::{DaemonVerb, Verb};
use super::part_show;
use crate::api::{Amount, Error, Kind, PartAnswer, PartEntry, PartOrder, PartRequest, Result};
use crate::config::units;
use crate::plant::Progress;
use crate::service::Control;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A number of sectors, or with a unit of bytes.
fn amount(text: &str, op: &str) -> Result<Amount> {
    if let Ok(sectors) = text.trim().parse::<u64>() {
        return Ok(Amount::Sectors(sectors));
    }
    units::size(text).map(Amount::Bytes).map_err(|e| {
        let why = format!("`{text}` is neither a number of sectors nor a size: {e}");
        Error::new(Kind::Usage, op, why)
    })
}

fn amounts(text: &Option<String>, op: &str) -> Result<Option<Amount>> {
    text.as_deref().map(|t| amount(t, op)).transpose()
}

fn ask(control: &Control, order: &PartOrder) -> Result<PartAnswer> {
    control.change(|plant| plant.part(order))
}

/// The partition of that index.
pub(super) fn entry(control: &Control, op: &str, geom: &str, index: u32) -> Result<PartEntry> {
    let shown = ask(control, &PartRequest::Show { geoms: vec![geom.to_owned()] }.into())?;
    let mut entries = shown.tables.into_iter().flat_map(|t| t.entries);
    entries.find(|e| e.index == index).ok_or_else(|| {
        Error::new(Kind::NotFound, op, format!("no partition with index {index}"))
            .at(geom.to_owned())
            .next("Run `ashlar part show` to see the indexes.")
    })
}

/// Data is lost only when its name was typed.
pub(super) fn agreed(op: &str, name: &str, typed: &[String], what: &str) -> Result<()> {
    if typed.iter().any(|t| t == name) {
        return Ok(());
    }
    let next = format!("Repeat the command with --yes-destroy {name} once you are sure.");
    Err(Error::new(Kind::WouldDestroy, op, what).at(name).next(next))
}

/// The attribute, given in one of two ways.
fn one_of(op: &str, place: Option<String>, option: Option<String>) -> Result<String> {
    match (place, option) {
        (Some(one), None) | (None, Some(one)) => Ok(one),
        (None, None) => Err(Error::new(Kind::Usage, op, "which attribute?")
            .next("Name one: -a bootme. `ashlar part set --help` has them all.")),
        (Some(_), Some(_)) => Err(Error::new(Kind::Usage, op, "the attribute is given twice")),
    }
}

/// Whether a change is written at once: unless it is to wait, or gpart's flags have no C.
pub(super) fn at_once(no_commit: bool, flags: Option<&str>) -> bool {
    !no_commit && flags.is_none_or(|flags| flags.contains('C'))
}

/// One verb of the group: its struct, its words, and how its parameters become a request.
macro_rules! part_verbs {
    ($($(#[$doc:meta])* $verb:ident, $params:ident, $name:literal, $line:literal, $detail:literal,
        [$($example:literal),+], [$($place:literal),*],
        { $($(#[$field_doc:meta])* $field:ident: $type:ty,)* },
        |$control:ident, $p:ident| $request:block;)*) => {$(
        $(#[$doc])*
        pub struct $verb;

        $(#[$doc])*
        #[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
        pub struct $params {
            $($(#[$field_doc])* pub $field: $type,)*
            /// Keep the change in memory: `part commit` writes it, `part undo` forgets it.
            #[serde(default)]
            pub no_commit: bool,
            /// gpart's flags: without a C among them it is as with --no-commit.
            #[schemars(extend("x-short" = "f"))]
            #[serde(default)]
            pub flags: Option<String>,
        }

        impl Verb for $verb {
            type Params = $params;
            type Answer = PartAnswer;
            const NAME: &'static str = $name;
            const DOC: &'static str = $line;
            const DETAIL: &'static str = $detail;
            const EXAMPLES: &'static [&'static str] = &[$($example),+];
            const POSITIONAL: &'static [&'static str] = &[$($place),*];

            fn table(answer: &PartAnswer) -> String {
                part_show::answer(answer)
            }
        }

        impl DaemonVerb for $verb {
            fn run(control: &Control, params: $params, _: &mut Progress<'_>) -> Result<PartAnswer> {
                fn request($control: &Control, $p: $params) -> Result<PartRequest> {
                    $request
                }
                let commit = at_once(params.no_commit, params.flags.as_deref());
                ask(control, &PartOrder { request: request(control, params)?, commit })
            }
        }
    )*};
}

part_verbs! {
    /// A new, empty table.
    Create, CreateParams, "part.create", "Create an empty partition table",
    "What is on the provider becomes unreachable; when a table, label or file system was found \
     there, --yes-destroy NAME is asked for.",
    ["ashlar part create ada0 --scheme gpt"], ["provider"],
    {
        /// The provider.
        provider: String,
        /// gpt, mbr, bsd (on an MBR partition of type freebsd), or ebr (on one of type ebr).
        #[schemars(extend("x-short" = "s"))]
        scheme: String,
        /// Slots of the table.
        #[schemars(extend("x-short" = "n"))]
        #[serde(default)] entries: Option<u32>,
        /// Name of the provider, when what is on it may be lost.
        #[serde(default)] yes_destroy: Vec<String>,
    },
    |control, p| {
        let overwrite = p.yes_destroy.contains(&p.provider);
        let state = control.state();
        // An export is not data: whether it may be changed below is the daemon's to say. A label is
        // a name for what the daemon finds there, and says.
        let on_it = state.geoms.iter().find(|g| {
            !["lun", "label"].contains(&g.class.as_str())
                && g.consumers.iter().any(|c| c.provider.as_ref() == Some(&p.provider))
        });
        if let Some(geom) = on_it {
            let what = format!("{} {} is on it", geom.class, geom.name);
            agreed("part create", &p.provider, &p.yes_destroy, &what)?;
        }
        let CreateParams { provider, scheme, entries, .. } = p;
        Ok(PartRequest::Create { provider, scheme, entries, overwrite })
    };

    /// A new partition.
    Add, AddParams, "part.add", "Add a partition",
    "What is not given is filled in: the first gap, the whole gap, the first free index. Numbers \
     are sectors, with a unit bytes.",
    ["ashlar part add ada0 --type linux-data --size 10G --align 1M --label root"], ["geom"],
    {
        /// The provider with the table.
        geom: String,
        /// Type: an alias, !UUID or !NUMBER.
        #[schemars(extend("x-short" = "t"))]
        #[serde(rename = "type")] kind: String,
        /// Start and size are multiples of it.
        #[schemars(extend("x-short" = "a"))]
        #[serde(default)] align: Option<String>,
        /// Where it starts.
        #[schemars(extend("x-short" = "b"))]
        #[serde(default)] start: Option<String>,
        /// How long it is.
        #[schemars(extend("x-short" = "s"))]
        #[serde(default)] size: Option<String>,
        /// Its slot, from 1.
        #[schemars(extend("x-short" = "i"))]
        #[serde(default)] index: Option<u32>,
        /// Its label.
        #[schemars(extend("x-short" = "l"))]
        #[serde(default)] label: Option<String>,
    },
    |_control, p| {
        let op = "part add";
        Ok(PartRequest::Add {
            align: amounts(&p.align, op)?,
            start: amounts(&p.start, op)?,
            size: amounts(&p.size, op)?,
            geom: p.geom,
            kind: p.kind,
            index: p.index,
            label: p.label,
        })
    };

    /// Remove a partition.
    Delete, DeleteParams, "part.delete", "Delete a partition; its data becomes unreachable",
    "The name of the partition's provider must be typed: --yes-destroy ada0p1.",
    ["ashlar part delete ada0 --index 1 --yes-destroy ada0p1"], ["geom"],
    {
        /// The provider with the table.
        geom: String,
        /// Its slot.
        #[schemars(extend("x-short" = "i"))]
        index: u32,
        /// Name of the partition's provider.
        #[serde(default)] yes_destroy: Vec<String>,
    },
    |control, p| {
        let entry = entry(control, "part delete", &p.geom, p.index)?;
        let what = format!("a partition of type {} is there", entry.kind);
        agreed("part delete", &entry.name, &p.yes_destroy, &what)?;
        Ok(PartRequest::Delete { geom: p.geom, index: p.index })
    };

    /// Change label or type.
    Modify, ModifyParams, "part.modify", "Change the label or type of a partition", "",
    ["ashlar part modify ada0 --index 2 --label home"], ["geom"],
    {
        /// The provider with the table.
        geom: String,
        /// Its slot.
        #[schemars(extend("x-short" = "i"))]
        index: u32,
        /// New label.
        #[schemars(extend("x-short" = "l"))]
        #[serde(default)] label: Option<String>,
        /// New type.
        #[schemars(extend("x-short" = "t"))]
        #[serde(default, rename = "type")] kind: Option<String>,
    },
    |_control, p| {
        let ModifyParams { geom, index, label, kind, .. } = p;
        if label.is_none() && kind.is_none() {
            return Err(Error::new(Kind::Usage, "part modify", "give --label or --type"));
        }
        Ok(PartRequest::Modify { geom, index, label, kind })
    };

    /// Change the size.
    Resize, ResizeParams, "part.resize", "Change the size of a partition",
    "Without --size it grows to the end of the gap behind it. What a shorter partition cuts off \
     is lost to it: shrink the file system first.",
    ["ashlar part resize ada0 --index 2 --size 20G"], ["geom"],
    {
        /// The provider with the table.
        geom: String,
        /// Its slot.
        #[schemars(extend("x-short" = "i"))]
        index: u32,
        /// The new size is a multiple of it.
        #[schemars(extend("x-short" = "a"))]
        #[serde(default)] align: Option<String>,
        /// New size: sectors, with a unit bytes.
        #[schemars(extend("x-short" = "s"))]
        #[serde(default)] size: Option<String>,
    },
    |_control, p| {
        let (align, size) = (amounts(&p.align, "part resize")?, amounts(&p.size, "part resize")?);
        Ok(PartRequest::Resize { geom: p.geom, index: p.index, align, size })
    };

    /// Repair the copies.
    Recover, RecoverParams, "part.recover", "Write a damaged table anew from its good copy", "",
    ["ashlar part recover ada0"], ["geom"],
    {
        /// The provider with the table.
        geom: String,
    },
    |_control, p| { Ok(PartRequest::Recover { geom: p.geom }) };

    /// Remove the whole table.
    Destroy, DestroyParams, "part.destroy", "Destroy a partition table",
    "A table that still has partitions is destroyed only with --force, which is agreement enough; \
     without it the name of the provider must be typed. One with a partition in use is never \
     destroyed.",
    ["ashlar part destroy ada0 --yes-destroy ada0", "ashlar part destroy -F ada0"], ["geom"],
    {
        /// The provider with the table.
        geom: String,
        /// Also when it still has partitions.
        #[schemars(extend("x-short" = "F"))]
        #[serde(default)] force: bool,
        /// Name of the provider.
        #[serde(default)] yes_destroy: Vec<String>,
    },
    |_control, p| {
        if !p.force {
            agreed("part destroy", &p.geom, &p.yes_destroy, "its partitions would be gone")?;
        }
        Ok(PartRequest::Destroy { geom: p.geom, force: p.force })
    };

    /// Set an attribute.
    Set, SetParams, "part.set", "Set an attribute of a partition or table",
    "GPT: bootme, bootonce (which sets bootme too), bootfailed, legacy-boot, required, \
     no-block-io, read-only, hidden, no-automount of a partition, active and lenovofix of the \
     table. MBR, EBR: active of a partition.",
    ["ashlar part set ada0 bootme --index 2", "ashlar part set -a bootonce -i 2 ada0"],
    ["geom", "attribute"],
    {
        /// The provider with the table.
        geom: String,
        /// The attribute: bootme, active, ...
        #[serde(default)] attribute: Option<String>,
        /// The same, as an option.
        #[schemars(extend("x-short" = "a"))]
        #[serde(default)] attrib: Option<String>,
        /// Its slot; the table itself when absent.
        #[schemars(extend("x-short" = "i"))]
        #[serde(default)] index: Option<u32>,
    },
    |_control, p| {
        let attribute = one_of("part set", p.attribute, p.attrib)?;
        Ok(PartRequest::Set { geom: p.geom, attribute, index: p.index })
    };

    /// Unset an attribute.
    Unset, UnsetParams, "part.unset", "Unset an attribute of a partition or table",
    "The same attributes as `part set` has; unsetting bootonce leaves bootme as it is.",
    ["ashlar part unset ada0 bootme --index 2", "ashlar part unset -a bootonce -i 2 ada0"],
    ["geom", "attribute"],
    {
        /// The provider with the table.
        geom: String,
        /// The attribute: bootme, active, ...
        #[serde(default)] attribute: Option<String>,
        /// The same, as an option.
        #[schemars(extend("x-short" = "a"))]
        #[serde(default)] attrib: Option<String>,
        /// Its slot; the table itself when absent.
        #[schemars(extend("x-short" = "i"))]
        #[serde(default)] index: Option<u32>,
    },
    |_control, p| {
        let attribute = one_of("part unset", p.attribute, p.attrib)?;
        Ok(PartRequest::Unset { geom: p.geom, attribute, index: p.index })
    };
}
