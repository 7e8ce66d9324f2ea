//! The `create` verb: makes an empty table.

use geom::{At, Error, Verb};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Edit, PartAnswer};
use crate::part::class::PartClass;
use crate::part::create::create;

/// A new, empty table.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Create {
    /// Provider that receives the table.
    pub provider: String,
    /// Scheme: gpt, mbr, bsd (in an MBR partition of type freebsd), or ebr (in one of type ebr).
    #[schemars(extend("x-short" = "s"))]
    pub scheme: String,
    /// Number of slots of the table [default: that of the scheme]
    #[serde(default)]
    #[schemars(extend("x-short" = "n"))]
    pub entries: Option<u32>,
    /// Name of the provider whose contents may be lost.
    #[serde(default)]
    pub yes_destroy: Vec<String>,
}

impl Verb<PartClass> for Edit<Create> {
    const NAME: &'static str = "create";
    const DOC: &'static str = "Create an empty partition table";
    const DETAIL: &'static str = "The contents of the provider become unreachable; if a table, \
        label or file system is found there, --yes-destroy PROVIDER is required.";
    const POSITIONAL: &'static [&'static str] = &["provider"];
    const EXAMPLE: &'static str = "part create ada0 --scheme gpt";
    const WRITES: bool = true;
    type Answer = PartAnswer;

    fn run(self, (_, control): At<'_, PartClass>) -> Result<PartAnswer, Error> {
        let (of, at_once) = self.parts();
        create(control, &of, at_once)
    }
}
