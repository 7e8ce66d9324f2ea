//! part: verbs of partition tables, whose parameters are those of the class. A change is written at
//! once unless `--no-commit` is given.

use super::entry::{DaemonVerb, Verb};
use super::part_show;
use crate::api::{Error, Kind, PartAnswer, PartEntry, Result};
use crate::plant::Progress;
use crate::service::Control;
use crate::text::shell_word;
use classes::part::request::{self, Attribute, TableName};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// A change, and whether it is written at once.
#[derive(Serialize, Deserialize, JsonSchema)]
pub struct Edit<P> {
    /// Parameters for the class.
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
    /// The change, and whether it is written at once: unless it is to wait, or gpart's flags have
    /// no C.
    pub fn parts(self) -> (P, bool) {
        let at_once = self.flags.is_none_or(|flags| flags.contains('C'));
        (self.of, at_once && !self.no_commit)
    }
}

/// A change that loses data.
#[derive(Serialize, Deserialize, JsonSchema)]
pub struct DestructiveEdit<P> {
    /// Parameters for the class.
    #[serde(flatten)]
    pub of: P,
    /// Name of the provider whose contents may be lost.
    #[serde(default)]
    pub yes_destroy: Vec<String>,
}

/// Parameters of `part set` and `part unset`.
#[derive(Serialize, Deserialize, JsonSchema)]
pub struct AttributeParams {
    /// Provider with the table.
    pub geom: String,
    /// Attribute, such as bootme or active.
    #[serde(default)]
    pub attribute: Option<String>,
    /// Attribute, given as an option instead of an argument.
    #[schemars(extend("x-short" = "a"))]
    #[serde(default)]
    pub attrib: Option<String>,
    /// Index of the partition, from 1 [default: the table itself]
    #[schemars(extend("x-short" = "i"))]
    #[serde(default)]
    pub index: Option<u32>,
}

impl AttributeParams {
    /// The attribute, given in one of two ways.
    fn attribute(self, op: &str) -> Result<Attribute> {
        let attribute = match (self.attribute, self.attrib) {
            (Some(one), None) | (None, Some(one)) => one,
            (None, None) => {
                return Err(Error::new(Kind::Usage, op, "which attribute?")
                    .next("Name one: -a bootme. `ashlar part set --help` has them all."));
            }
            (Some(_), Some(_)) => {
                return Err(Error::new(Kind::Usage, op, "the attribute is given twice"));
            }
        };
        Ok(Attribute { geom: self.geom, attribute, index: self.index })
    }
}

/// Has the class carry out a verb, whose name here is `part.VERB`.
pub(super) fn run_verb(
    control: &Control,
    name: &str,
    (params, commit): (impl Serialize, bool),
    progress: &mut Progress<'_>,
) -> Result<PartAnswer> {
    let mut value =
        serde_json::to_value(params).map_err(|e| Error::new(Kind::Internal, name, e))?;
    if let Value::Object(all) = &mut value {
        all.insert("commit".to_owned(), commit.into());
    }
    control.verb(("part", name.trim_start_matches("part.")), &value, progress)
}

/// The partition of that index.
pub(super) fn entry(control: &Control, op: &str, geom: &str, index: u32) -> Result<PartEntry> {
    let answer = control.verb(("part", "show"), &json!({ "geoms": [geom] }), &mut |_| {});
    // The error is that of the verb that was typed.
    let answer: PartAnswer = answer.map_err(|error| Error { op: op.to_owned(), ..error })?;
    let mut entries = answer.tables.into_iter().flat_map(|t| t.entries);
    entries.find(|e| e.index == index).ok_or_else(|| {
        Error::new(Kind::NotFound, op, format!("no partition with index {index}"))
            .at(geom.to_owned())
            .next("Run `ashlar part show` to see the indexes.")
    })
}

/// Data is lost only when its name was typed.
pub(super) fn check_consent(op: &str, name: &str, typed: &[String], what: &str) -> Result<()> {
    if typed.iter().any(|t| t == name) {
        return Ok(());
    }
    let word = shell_word(name);
    let next = format!("Repeat the command with --yes-destroy {word} once you are sure.");
    Err(Error::new(Kind::WouldDestroy, op, what).at(name).next(next))
}

/// One verb of the group: its help texts, and the request that it makes to the class.
macro_rules! part_verbs {
    ($($verb:ident($params:ty), $name:literal, $line:literal, $detail:literal,
        [$($example:literal),+], [$($place:literal),*],
        |$control:ident, $p:ident| $change:block;)*) => {$(
        pub struct $verb;

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
            fn run(
                control: &Control,
                params: $params,
                progress: &mut Progress<'_>,
            ) -> Result<PartAnswer> {
                fn change($control: &Control, $p: $params) -> Result<(impl Serialize, bool)> {
                    $change
                }
                run_verb(control, $name, change(control, params)?, progress)
            }
        }
    )*};
}

part_verbs! {
    Create(Edit<DestructiveEdit<request::Create>>), "part.create",
    "Create an empty partition table",
    "The contents of the provider become unreachable; if a table, label or file system is found \
     there, --yes-destroy PROVIDER is required.",
    ["ashlar part create ada0 --scheme gpt"], ["provider"],
    |control, p| {
        let (DestructiveEdit { of: mut create, yes_destroy }, now) = p.parts();
        create.overwrite = yes_destroy.contains(&create.provider);
        let state = control.state()?;
        // An export is not data: the daemon decides whether its provider may be changed. A label
        // only names content that the daemon finds there and reports.
        let on_it = state.geoms.iter().find(|g| {
            !["lun", "label"].contains(&g.class.as_str())
                && g.consumers.iter().any(|c| c.provider.as_ref() == Some(&create.provider))
        });
        if let Some(geom) = on_it {
            let what = format!("contains {} {}", geom.class, geom.name);
            check_consent("part create", &create.provider, &yes_destroy, &what)?;
        }
        Ok((create, now))
    };

    Add(Edit<request::Add>), "part.add", "Add a partition",
    "Missing values are filled in: the first gap, the whole gap, the first free index. Numbers are \
     sectors; numbers with a unit are bytes.",
    ["ashlar part add ada0 --type linux-data --size 10G --align 1M --label root"], ["geom"],
    |_control, p| { Ok(p.parts()) };

    Delete(Edit<DestructiveEdit<request::Delete>>), "part.delete",
    "Delete a partition; its data becomes unreachable",
    "Requires --yes-destroy with the name of the partition's provider: --yes-destroy ada0p1.",
    ["ashlar part delete ada0 --index 1 --yes-destroy ada0p1"], ["geom"],
    |control, p| {
        let (DestructiveEdit { of: delete, yes_destroy }, now) = p.parts();
        let entry = entry(control, "part delete", &delete.geom, delete.index)?;
        let what = format!("a partition of type {} is there", entry.kind);
        check_consent("part delete", &entry.name, &yes_destroy, &what)?;
        Ok((delete, now))
    };

    Modify(Edit<request::Modify>), "part.modify", "Change the label or type of a partition",
    "",
    ["ashlar part modify ada0 --index 2 --label home"], ["geom"],
    |_control, p| {
        if p.of.label.is_none() && p.of.kind.is_none() {
            return Err(Error::new(Kind::Usage, "part modify", "give --label or --type"));
        }
        Ok(p.parts())
    };

    Resize(Edit<request::Resize>), "part.resize", "Change the size of a partition",
    "Without --size the partition grows to the end of the gap behind it. A shrunk partition loses \
     the data behind its new end: shrink the file system first.",
    ["ashlar part resize ada0 --index 2 --size 20G"], ["geom"],
    |_control, p| { Ok(p.parts()) };

    Recover(Edit<TableName>), "part.recover",
    "Rewrite a damaged partition table from its good copy",
    "",
    ["ashlar part recover ada0"], ["geom"],
    |_control, p| { Ok(p.parts()) };

    Destroy(Edit<DestructiveEdit<request::Destroy>>), "part.destroy", "Destroy a partition table",
    "The partitions in the table are destroyed too, so --yes-destroy with the name of the provider \
     is required; --force replaces it. A table with a partition in use is never destroyed.",
    ["ashlar part destroy ada0 --yes-destroy ada0", "ashlar part destroy -F ada0"], ["geom"],
    |_control, p| {
        let (DestructiveEdit { of: mut destroy, yes_destroy }, now) = p.parts();
        if !destroy.force {
            let lost = "the partitions in the table would be destroyed";
            check_consent("part destroy", &destroy.geom, &yes_destroy, lost)?;
            destroy.force = true;
        }
        Ok((destroy, now))
    };

    Set(Edit<AttributeParams>), "part.set", "Set an attribute of a partition or table",
    "GPT: bootme, bootonce (also sets bootme), bootfailed, legacy-boot, required, no-block-io, \
     read-only, hidden, no-automount of a partition, active and lenovofix of the table. MBR, EBR: \
     active of a partition.",
    ["ashlar part set ada0 bootme --index 2", "ashlar part set -a bootonce -i 2 ada0"],
    ["geom", "attribute"],
    |_control, p| {
        let (named, now) = p.parts();
        Ok((named.attribute("part set")?, now))
    };

    Unset(Edit<AttributeParams>), "part.unset", "Unset an attribute of a partition or table",
    "Accepts the same attributes as `part set`; unsetting bootonce leaves bootme as it is.",
    ["ashlar part unset ada0 bootme --index 2", "ashlar part unset -a bootonce -i 2 ada0"],
    ["geom", "attribute"],
    |_control, p| {
        let (named, now) = p.parts();
        Ok((named.attribute("part unset")?, now))
    };

    Commit(TableName), "part.commit", "Write the pending changes of a partition table",
    "A verb with --no-commit leaves its change pending: its partitions exist, the disk is \
     unchanged, and no other user may write the table. `part show` lists the pending changes. A \
     verb without --no-commit writes them together with its own change. Pending changes are \
     discarded when the daemon stops.",
    ["ashlar part commit ada0"], ["geom"],
    |_control, p| { Ok((p, true)) };

    Undo(TableName), "part.undo", "Discard the pending changes of a partition table",
    "The table returns to the state on the disk. Refused while an open partition would be removed, \
     moved or shrunk. See `ashlar part commit`.",
    ["ashlar part undo ada0"], ["geom"],
    |_control, p| { Ok((p, true)) };
}
