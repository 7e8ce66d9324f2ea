//! part commit, part undo: changes of partition tables that wait in memory.

use super::entry::{DaemonVerb, Verb};
use super::part_show;
use crate::api::{PartAnswer, PartRequest, Result};
use crate::plant::Progress;
use crate::service::Control;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Writes them.
pub struct Commit;

/// Forgets them.
pub struct Undo;

/// What both take.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Params {
    /// The provider with the table.
    pub geom: String,
}

impl Verb for Commit {
    type Params = Params;
    type Answer = PartAnswer;
    const NAME: &'static str = "part.commit";
    const DOC: &'static str = "Write the changes of a partition table that wait";
    const DETAIL: &'static str = "Verbs with --no-commit leave their change waiting: its \
        partitions are there, the disk is as it was, and nobody else may write the table. `part \
        show` lists what waits. A verb without --no-commit writes what waits with its own change. \
        What waits when the daemon stops is forgotten.";
    const EXAMPLES: &'static [&'static str] = &["ashlar part commit ada0"];
    const POSITIONAL: &'static [&'static str] = &["geom"];

    fn table(answer: &PartAnswer) -> String {
        part_show::answer(answer)
    }
}

impl DaemonVerb for Commit {
    fn run(control: &Control, params: Params, _: &mut Progress<'_>) -> Result<PartAnswer> {
        let request = PartRequest::Commit { geom: params.geom };
        control.change(|plant| plant.part(&request.into()))
    }
}

impl Verb for Undo {
    type Params = Params;
    type Answer = PartAnswer;
    const NAME: &'static str = "part.undo";
    const DOC: &'static str = "Forget the changes of a partition table that wait";
    const DETAIL: &'static str = "The table is again as the disk has it. Refused while a partition \
        is open that would go, move or shrink. See `ashlar part commit`.";
    const EXAMPLES: &'static [&'static str] = &["ashlar part undo ada0"];
    const POSITIONAL: &'static [&'static str] = &["geom"];

    fn table(answer: &PartAnswer) -> String {
        part_show::answer(answer)
    }
}

impl DaemonVerb for Undo {
    fn run(control: &Control, params: Params, _: &mut Progress<'_>) -> Result<PartAnswer> {
        let request = PartRequest::Undo { geom: params.geom };
        control.change(|plant| plant.part(&request.into()))
    }
}
