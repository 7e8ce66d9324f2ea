//! The `restore` verb: writes the table of a backup.

use geom::{At, Error, Verb};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Edit, PartAnswer};
use crate::part::class::PartClass;
use crate::part::saved::restore;

/// The table of a backup, written to all of the providers or to none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Restore {
    /// Providers that receive the table.
    #[serde(default)]
    pub geoms: Vec<String>,
    /// Restore labels too.
    #[serde(default)]
    #[schemars(extend("x-short" = "l"))]
    pub labels: bool,
    /// Overwrite the existing partition table.
    #[serde(default)]
    #[schemars(extend("x-short" = "F"))]
    pub force: bool,
    /// Name of a provider whose label, file system or other contents may be lost.
    #[serde(default)]
    pub yes_destroy: Vec<String>,
    /// Restore unique ids too: for the original disk of the backup. Only a JSON backup has them.
    #[serde(default)]
    pub ids: bool,
    /// The backup, as text or JSON (the command reads its standard input).
    #[serde(default)]
    #[schemars(extend("x-hidden" = true))]
    pub backup: Option<String>,
}

impl Verb<PartClass> for Edit<Restore> {
    const NAME: &'static str = "restore";
    const DOC: &'static str = "Restore a partition table from a backup on standard input";
    const DETAIL: &'static str = "Reads the output of `part backup` or of gpart's backup, as text \
        or JSON. The table is created on all the named providers, or on none. If a line is wrong, \
        the error names it and nothing is written. An existing partition table is replaced only \
        with --force, and never while one of its partitions is in use; a label, file system or \
        other content is overwritten only with --yes-destroy and the provider's name. Disk and \
        partitions get new unique ids unless --ids is given.";
    const POSITIONAL: &'static [&'static str] = &["geoms"];
    const EXAMPLE: &'static str = "part restore ada1 < ada0.part";
    const MORE_EXAMPLES: &'static [&'static str] =
        &["part restore -l -F ada1 ada2 < ada0.part", "part restore -l --ids ada0 < ada0.json"];
    const WRITES: bool = true;
    type Answer = PartAnswer;

    fn run(self, (_, control): At<'_, PartClass>) -> Result<PartAnswer, Error> {
        let (of, at_once) = self.parts();
        restore(control, &of, at_once)
    }
}
