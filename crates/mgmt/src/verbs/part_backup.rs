//! part backup, part restore: a partition table as text, and back.

use super::entry::{DaemonVerb, Verb};
use super::part::{self, Edit};
use super::part_show;
use crate::api::{Error, Kind, PartAnswer, Result};
use crate::plant::Progress;
use crate::service::Control;
use classes::part::request::{self, TableName};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::io::Read;

/// Bytes of a backup that are read: a GPT of 4096 slots has less than one of them. A longer one
/// is refused.
const BACKUP_BYTES_MAX: u64 = 4 << 20;

/// Prints it.
pub struct Backup;

/// Reads it.
pub struct Restore;

/// Answer of `part backup`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct BackupAnswer {
    /// The table in gpart's text format.
    pub text: String,
    /// The table in the form that `part restore` also reads: scheme, entries, partitions, ids.
    #[serde(flatten)]
    pub table: Map<String, Value>,
}

impl Verb for Backup {
    type Params = TableName;
    type Answer = BackupAnswer;
    const NAME: &'static str = "part.backup";
    const DOC: &'static str = "Print a partition table as text that `part restore` reads";
    const DETAIL: &'static str = "The text has gpart's format: a line with the scheme and its \
        number of slots, then a line for each partition: index, type, first sector, sectors, \
        label, attributes. With --json it also has the unique ids and the usable range. It does \
        not contain the data of the partitions, boot code, tables inside partitions, or pending \
        changes; a damaged table is printed as `part recover` would write it.";
    const EXAMPLES: &'static [&'static str] =
        &["ashlar part backup ada0 > ada0.part", "ashlar part backup ada0 --json > ada0.json"];
    const POSITIONAL: &'static [&'static str] = &["geom"];

    fn table(answer: &BackupAnswer) -> String {
        answer.text.clone()
    }
}

impl DaemonVerb for Backup {
    fn run(
        control: &Control,
        params: TableName,
        progress: &mut Progress<'_>,
    ) -> Result<BackupAnswer> {
        let params = json!({ "geom": params.geom });
        control.verb(("part", "backup"), &params, progress)
    }
}

impl Verb for Restore {
    type Params = Edit<request::Restore>;
    type Answer = PartAnswer;
    const NAME: &'static str = "part.restore";
    const DOC: &'static str = "Restore a partition table from a backup on standard input";
    const DETAIL: &'static str = "Reads the output of `part backup` or of gpart's backup, as text \
        or JSON. The table is created on all the named providers, or on none. If a line is wrong, \
        the error names it and nothing is written. An existing partition table is replaced only \
        with --force, and never while one of its partitions is in use; a label, file system or \
        other content is overwritten only with --yes-destroy and the provider's name. Disk and \
        partitions get new unique ids unless --ids is given.";
    const EXAMPLES: &'static [&'static str] = &[
        "ashlar part restore ada1 < ada0.part",
        "ashlar part restore -l -F ada1 ada2 < ada0.part",
        "ashlar part restore -l --ids ada0 < ada0.json",
    ];
    const POSITIONAL: &'static [&'static str] = &["geoms"];
    const FROM_FILES: &'static [&'static str] = &["backup"];

    fn prepare(params: &mut Self::Params, _app: &crate::App) -> Result<()> {
        let params = &mut params.of;
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

    fn table(answer: &PartAnswer) -> String {
        part_show::answer(answer)
    }
}

impl DaemonVerb for Restore {
    fn run(
        control: &Control,
        params: Self::Params,
        progress: &mut Progress<'_>,
    ) -> Result<PartAnswer> {
        if params.of.backup.is_none() {
            return Err(Error::new(Kind::Usage, "part restore", "`backup` is missing"));
        }
        part::run_verb(control, Self::NAME, params.parts(), progress)
    }
}
