//! part backup: a partition table as text.

use super::entry::CommandVerb;
use crate::api::Result;
use crate::service::Control;
use classes::part::request::TableName;
use geom::{At, Verb};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

// The table to print. Without a comment of its own, it has the schema of the name.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Backup(TableName);

/// Answer of `part backup`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct BackupAnswer {
    /// The table in gpart's text format.
    pub text: String,
    /// The table in the form that `part restore` also reads: scheme, entries, partitions, ids.
    #[serde(flatten)]
    pub table: Map<String, Value>,
}

impl Verb<Control> for Backup {
    const NAME: &'static str = "part.backup";
    const DOC: &'static str = "Print a partition table as text that `part restore` reads";
    const DETAIL: &'static str = "The text has gpart's format: a line with the scheme and its \
        number of slots, then a line for each partition: index, type, first sector, sectors, \
        label, attributes. With --json it also has the unique ids and the usable range. It does \
        not contain the data of the partitions, boot code, tables inside partitions, or pending \
        changes; a damaged table is printed as `part recover` would write it.";
    const POSITIONAL: &'static [&'static str] = &["geom"];
    const EXAMPLE: &'static str = "part backup ada0 > ada0.part";
    const MORE_EXAMPLES: &'static [&'static str] = &["part backup ada0 --json > ada0.json"];
    type Answer = BackupAnswer;

    fn run(self, (control, progress): At<'_, Control>) -> Result<BackupAnswer> {
        control.verb(("part", "backup"), &json!({ "geom": self.0.geom }), progress)
    }
}

impl CommandVerb<Control> for Backup {
    fn table(answer: &BackupAnswer) -> String {
        answer.text.clone()
    }
}
