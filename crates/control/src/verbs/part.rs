//! part: verbs of partition tables, whose parameters are those of the class. A change is written at
//! once unless `--no-commit` is given.

use super::entry::{DaemonVerb, Verb};
use super::part_show;
use crate::api::{Error, Kind, PartAnswer, PartEntry, Result};
use crate::plant::Progress;
use crate::service::Control;
use classes::part::request::{self, Attribute, One};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// A change, and when it is written.
#[derive(Serialize, Deserialize, JsonSchema)]
pub struct Edit<P> {
    /// What the class is asked for.
    #[serde(flatten)]
    pub of: P,
    /// Keep the change in memory: `part commit` writes it, `part undo` forgets it.
    #[serde(default)]
    pub no_commit: bool,
    /// gpart's flags: without a C among them it is as with --no-commit.
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
pub struct Losing<P> {
    /// What the class is asked for.
    #[serde(flatten)]
    pub of: P,
    /// Name of the provider whose contents may be lost.
    #[serde(default)]
    pub yes_destroy: Vec<String>,
}

/// What `part set` and `part unset` take.
#[derive(Serialize, Deserialize, JsonSchema)]
pub struct Named {
    /// The provider with the table.
    pub geom: String,
    /// The attribute: bootme, active, ...
    #[serde(default)]
    pub attribute: Option<String>,
    /// The same, as an option.
    #[schemars(extend("x-short" = "a"))]
    #[serde(default)]
    pub attrib: Option<String>,
    /// Its slot; the table itself when absent.
    #[schemars(extend("x-short" = "i"))]
    #[serde(default)]
    pub index: Option<u32>,
}

impl Named {
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
pub(super) fn ask(
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
    let shown: PartAnswer =
        control.verb(("part", "show"), &json!({ "geoms": [geom] }), &mut |_| {})?;
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
                ask(control, $name, change(control, params)?, progress)
            }
        }
    )*};
}

part_verbs! {
    Create(Edit<Losing<request::Create>>), "part.create", "Create an empty partition table",
    "What is on the provider becomes unreachable; when a table, label or file system was found \
     there, --yes-destroy NAME is asked for.",
    ["ashlar part create ada0 --scheme gpt"], ["provider"],
    |control, p| {
        let (Losing { of: mut create, yes_destroy }, now) = p.parts();
        create.overwrite = yes_destroy.contains(&create.provider);
        let state = control.state();
        // An export is not data: the daemon decides whether its provider may be changed. A label
        // only names content that the daemon finds there and reports.
        let on_it = state.geoms.iter().find(|g| {
            !["lun", "label"].contains(&g.class.as_str())
                && g.consumers.iter().any(|c| c.provider.as_ref() == Some(&create.provider))
        });
        if let Some(geom) = on_it {
            let what = format!("{} {} is on it", geom.class, geom.name);
            agreed("part create", &create.provider, &yes_destroy, &what)?;
        }
        Ok((create, now))
    };

    Add(Edit<request::Add>), "part.add", "Add a partition",
    "What is not given is filled in: the first gap, the whole gap, the first free index. Numbers \
     are sectors, with a unit bytes.",
    ["ashlar part add ada0 --type linux-data --size 10G --align 1M --label root"], ["geom"],
    |_control, p| { Ok(p.parts()) };

    Delete(Edit<Losing<request::Delete>>), "part.delete",
    "Delete a partition; its data becomes unreachable",
    "The name of the partition's provider must be typed: --yes-destroy ada0p1.",
    ["ashlar part delete ada0 --index 1 --yes-destroy ada0p1"], ["geom"],
    |control, p| {
        let (Losing { of: delete, yes_destroy }, now) = p.parts();
        let entry = entry(control, "part delete", &delete.geom, delete.index)?;
        let what = format!("a partition of type {} is there", entry.kind);
        agreed("part delete", &entry.name, &yes_destroy, &what)?;
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
    "Without --size it grows to the end of the gap behind it. What a shorter partition cuts off \
     is lost to it: shrink the file system first.",
    ["ashlar part resize ada0 --index 2 --size 20G"], ["geom"],
    |_control, p| { Ok(p.parts()) };

    Recover(Edit<One>), "part.recover", "Write a damaged table anew from its good copy",
    "",
    ["ashlar part recover ada0"], ["geom"],
    |_control, p| { Ok(p.parts()) };

    Destroy(Edit<Losing<request::Destroy>>), "part.destroy", "Destroy a partition table",
    "The partitions in the table go with it, so the name of the provider must be typed; --force \
     is agreement enough. A table with a partition in use is never destroyed.",
    ["ashlar part destroy ada0 --yes-destroy ada0", "ashlar part destroy -F ada0"], ["geom"],
    |_control, p| {
        let (Losing { of: mut destroy, yes_destroy }, now) = p.parts();
        if !destroy.force {
            agreed("part destroy", &destroy.geom, &yes_destroy, "its partitions would be gone")?;
            destroy.force = true;
        }
        Ok((destroy, now))
    };

    Set(Edit<Named>), "part.set", "Set an attribute of a partition or table",
    "GPT: bootme, bootonce (which sets bootme too), bootfailed, legacy-boot, required, \
     no-block-io, read-only, hidden, no-automount of a partition, active and lenovofix of the \
     table. MBR, EBR: active of a partition.",
    ["ashlar part set ada0 bootme --index 2", "ashlar part set -a bootonce -i 2 ada0"],
    ["geom", "attribute"],
    |_control, p| {
        let (named, now) = p.parts();
        Ok((named.attribute("part set")?, now))
    };

    Unset(Edit<Named>), "part.unset", "Unset an attribute of a partition or table",
    "The same attributes as `part set` has; unsetting bootonce leaves bootme as it is.",
    ["ashlar part unset ada0 bootme --index 2", "ashlar part unset -a bootonce -i 2 ada0"],
    ["geom", "attribute"],
    |_control, p| {
        let (named, now) = p.parts();
        Ok((named.attribute("part unset")?, now))
    };

    Commit(One), "part.commit", "Write the changes of a partition table that wait",
    "Verbs with --no-commit leave their change waiting: its partitions are there, the disk is as \
     it was, and nobody else may write the table. `part show` lists what waits. A verb without \
     --no-commit writes what waits with its own change. What waits when the daemon stops is \
     forgotten.",
    ["ashlar part commit ada0"], ["geom"],
    |_control, p| { Ok((p, true)) };

    Undo(One), "part.undo", "Forget the changes of a partition table that wait",
    "The table is again as the disk has it. Refused while a partition is open that would go, move \
     or shrink. See `ashlar part commit`.",
    ["ashlar part undo ada0"], ["geom"],
    |_control, p| { Ok((p, true)) };
}
