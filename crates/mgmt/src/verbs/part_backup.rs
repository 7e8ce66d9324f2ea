//! part backup, part restore: a partition table as text, and back.

use super::entry::CommandVerb;
use super::part::PartVerb;
use crate::api::{Error, Kind, Result};
use crate::service::Control;
use classes::part::request::{Edit, Restore, TableName};
use geom::{At, Verb};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::io::Read;

/// Bytes of a backup that are read: a GPT of 4096 slots has less than one of them. A longer one
/// is refused.
const BACKUP_BYTES_MAX: u64 = 4 << 20;

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

impl PartVerb for Edit<Restore> {
    const COMMAND: &'static str = "part.restore";
    const FROM_FILES: &'static [&'static str] = &["backup"];

    fn prepare(&mut self) -> Result<()> {
        let params = &mut self.of;
        if params.backup.is_some() {
            return Ok(());
        }
        if params.geoms.is_empty() {
            return Err(Error::new(Kind::Usage, "part restore", "no provider is named"));
        }
        let mut text = String::new();
        let fail = |e: std::io::Error| Error::new(Kind::System, "read standard input", e);
        let limit = BACKUP_BYTES_MAX.saturating_add(1);
        std::io::stdin().take(limit).read_to_string(&mut text).map_err(fail)?;
        if u64::try_from(text.len()).is_ok_and(|len| len > BACKUP_BYTES_MAX) {
            let why = format!("more than {BACKUP_BYTES_MAX} bytes, which no backup has");
            return Err(Error::new(Kind::Usage, "part restore", why));
        }
        params.backup = Some(text);
        Ok(())
    }

    fn check(&mut self, _control: &Control) -> Result<()> {
        if self.of.backup.is_none() {
            return Err(Error::new(Kind::Usage, "part restore", "`backup` is missing"));
        }
        Ok(())
    }
}
