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
    const DOC: &'static str = "Restore a partition table from a backup";
    const POSITIONAL: &'static [&'static str] = &["geoms"];
    const EXAMPLE: &'static str = "part restore ada1";
    const WRITES: bool = true;
    type Answer = PartAnswer;

    fn run(self, (_, control): At<'_, PartClass>) -> Result<PartAnswer, Error> {
        let (of, at_once) = self.parts();
        restore(control, &of, at_once)
    }
}
