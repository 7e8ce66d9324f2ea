//! part: verbs of partition tables as commands. Parameters and texts are those of the class; here
//! are the names of the commands and the checks that need consent.

use super::entry::CommandVerb;
use super::part_show;
use crate::App;
use crate::api::{Error, Kind, PartAnswer, PartEntry, Result};
use crate::service::Control;
use crate::text::shell_word;
use classes::part::PartClass;
use classes::part::request::{
    Add, Commit, Create, Delete, Destroy, Edit, Modify, Recover, Resize, Set, Undo, Unset,
};
use geom::{At, Verb};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

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

    /// Refuses a loss of data without consent.
    ///
    /// # Errors
    /// [`Kind::WouldDestroy`] with the name to type.
    fn check(&mut self, _control: &Control) -> Result<()> {
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
        let mut verb = self.0;
        verb.check(control)?;
        let params = serde_json::to_value(&verb);
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

/// The partition of that index.
pub(super) fn entry(control: &Control, op: &str, geom: &str, index: u32) -> Result<PartEntry> {
    let answer = control.verb(("part", "show"), &json!({ "geoms": [geom] }), &mut |_| {});
    // The error is that of the verb that was typed.
    let answer: PartAnswer = answer.map_err(|error| Error { op: op.to_owned(), ..error })?;
    let mut entries = answer.tables.into_iter().flat_map(|t| t.entries);
    entries.find(|e| e.index == index).ok_or_else(|| {
        Error::new(Kind::NotFound, op, format!("no partition with index {index}"))
            .at(geom.to_owned())
            .next("Run `ashlar part show` to see the indexes.")
    })
}

/// Data is lost only when its name was typed.
pub(super) fn check_consent(op: &str, name: &str, typed: &[String], what: &str) -> Result<()> {
    if typed.iter().any(|t| t == name) {
        return Ok(());
    }
    let word = shell_word(name);
    let next = format!("Repeat the command with --yes-destroy {word} once you are sure.");
    Err(Error::new(Kind::WouldDestroy, op, what).at(name).next(next))
}

impl PartVerb for Edit<Create> {
    const COMMAND: &'static str = "part.create";

    fn check(&mut self, control: &Control) -> Result<()> {
        let Create { provider, overwrite, yes_destroy, .. } = &mut self.of;
        // Only the name is consent.
        *overwrite = false;
        let state = control.state()?;
        // An export is not data: the daemon decides whether its provider may be changed. A label
        // only names content that the daemon finds there and reports.
        let on_it = state.geoms.iter().find(|g| {
            !["lun", "label"].contains(&g.class.as_str())
                && g.consumers.iter().any(|c| c.provider.as_ref() == Some(&*provider))
        });
        let Some(geom) = on_it else { return Ok(()) };
        let what = format!("contains {} {}", geom.class, geom.name);
        check_consent("part create", provider, yes_destroy, &what)
    }
}

impl PartVerb for Edit<Add> {
    const COMMAND: &'static str = "part.add";
}

impl PartVerb for Edit<Delete> {
    const COMMAND: &'static str = "part.delete";

    fn check(&mut self, control: &Control) -> Result<()> {
        let Delete { geom, index, yes_destroy } = &self.of;
        let entry = entry(control, "part delete", geom, *index)?;
        let what = format!("a partition of type {} is there", entry.kind);
        check_consent("part delete", &entry.name, yes_destroy, &what)
    }
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

    fn check(&mut self, _control: &Control) -> Result<()> {
        let Destroy { geom, force, yes_destroy } = &self.of;
        if *force {
            return Ok(());
        }
        let lost = "the partitions in the table would be destroyed";
        check_consent("part destroy", geom, yes_destroy, lost)
    }
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
