//! part: verbs of partition tables as commands. Parameters, texts and consent are those of the
//! class; here are the names of the commands.

use super::entry::CommandVerb;
use super::part_show;
use crate::App;
use crate::api::{Error, Kind, PartAnswer, Result};
use crate::service::Control;
use classes::part::PartClass;
use classes::part::request::{
    Add, Commit, Create, Delete, Destroy, Edit, Modify, Recover, Resize, Set, Undo, Unset,
};
use geom::{At, Verb};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A verb of the class that has a command.
pub trait PartVerb: Verb<PartClass, Answer = PartAnswer> + Serialize {
    /// Name of the command: the group, then the verb.
    const COMMAND: &'static str;
    /// See [`CommandVerb::FROM_FILES`].
    const FROM_FILES: &'static [&'static str] = &[];

    /// See [`CommandVerb::prepare`].
    ///
    /// # Errors
    /// Errors of the file system.
    fn prepare(&mut self) -> Result<()> {
        Ok(())
    }
}

// The command of a verb. Without a comment of its own, it has the schema of the verb.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Part<V>(V);

impl<V: PartVerb> Verb<Control> for Part<V> {
    const NAME: &'static str = V::COMMAND;
    const DOC: &'static str = V::DOC;
    const DETAIL: &'static str = V::DETAIL;
    const POSITIONAL: &'static [&'static str] = V::POSITIONAL;
    const EXAMPLE: &'static str = V::EXAMPLE;
    const MORE_EXAMPLES: &'static [&'static str] = V::MORE_EXAMPLES;
    type Answer = PartAnswer;

    fn run(self, (control, progress): At<'_, Control>) -> Result<PartAnswer> {
        let params = serde_json::to_value(&self.0);
        let params = params.map_err(|e| Error::new(Kind::Internal, V::COMMAND, e))?;
        control.verb(("part", V::NAME), &params, progress)
    }
}

impl<V: PartVerb> CommandVerb<Control> for Part<V> {
    const FROM_FILES: &'static [&'static str] = V::FROM_FILES;

    fn prepare(&mut self, _app: &App) -> Result<()> {
        self.0.prepare()
    }

    fn table(answer: &PartAnswer) -> String {
        part_show::answer(answer)
    }
}

impl PartVerb for Edit<Create> {
    const COMMAND: &'static str = "part.create";
}

impl PartVerb for Edit<Add> {
    const COMMAND: &'static str = "part.add";
}

impl PartVerb for Edit<Delete> {
    const COMMAND: &'static str = "part.delete";
}

impl PartVerb for Edit<Modify> {
    const COMMAND: &'static str = "part.modify";
}

impl PartVerb for Edit<Resize> {
    const COMMAND: &'static str = "part.resize";
}

impl PartVerb for Recover {
    const COMMAND: &'static str = "part.recover";
}

impl PartVerb for Edit<Destroy> {
    const COMMAND: &'static str = "part.destroy";
}

impl PartVerb for Set {
    const COMMAND: &'static str = "part.set";
}

impl PartVerb for Unset {
    const COMMAND: &'static str = "part.unset";
}

impl PartVerb for Commit {
    const COMMAND: &'static str = "part.commit";
}

impl PartVerb for Undo {
    const COMMAND: &'static str = "part.undo";
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verbs::find;
    use geom::Class;

    #[test]
    fn command_of_part_has_the_texts_of_the_verb_of_the_class() {
        // These two have parameters or answers of their own.
        let is_shared = |name: &&str| !["show", "backup"].contains(name);
        for spec in PartClass.verbs().iter().filter(|spec| is_shared(&spec.name)) {
            let entry = find(&format!("part.{}", spec.name)).expect(spec.name);
            let texts = (entry.doc, entry.detail, entry.example);
            assert_eq!(texts, (spec.doc, spec.detail, spec.example));
            let names: Vec<&str> = entry.args().iter().map(|arg| arg.name).collect();
            let own: Vec<&str> = spec.args.iter().map(|arg| arg.name).collect();
            assert_eq!(names, own, "{}", spec.name);
        }
    }
}
