//! The `backup` verb: a table as values that `restore` reads.

use geom::{At, Deserialize, Error, JsonSchema, Verb};

use crate::part::class::PartClass;
use crate::part::{backup, saved};

/// Print a partition table as text that `part restore` reads
#[derive(Deserialize, JsonSchema)]
pub(super) struct Backup {
    /// Provider with the table
    geom: String,
}

impl Verb<PartClass> for Backup {
    const NAME: &'static str = "backup";
    const POSITIONAL: &'static [&'static str] = &["geom"];
    const EXAMPLE: &'static str = "part backup ada0";
    type Answer = backup::Backup;

    fn run(self, (_, control): At<'_, PartClass>) -> Result<backup::Backup, Error> {
        saved::backup(control, &self.geom)
    }
}
