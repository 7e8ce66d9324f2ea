//! Verbs `pause` and `resume` of classes that rebuild members.

use geom::{At, Class, Deserialize, Error, GraphControl, JsonSchema, MessageAnswer, Verb};

pub(crate) trait RebuildingClass: Class + Sized + 'static {
    /// Its name.
    const REBUILDS_OF: &'static str;

    /// Pauses the rebuilds of a geom or resumes them; returns whether they were paused before.
    fn set_paused(control: &mut GraphControl, on: &str, paused: bool) -> Result<bool, Error>;
}

/// Pause the rebuilds and resyncs of a geom
///
/// A running rebuild stops after its present step, and later ones wait. Users' writes are still
/// sent to the members that are rebuilt. The pause lasts until `resume` or the next start of the
/// daemon; `ashlar status` shows it.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct Pause {
    /// Name of the geom, without the class
    name: String,
}

impl<C: RebuildingClass> Verb<C> for Pause {
    const NAME: &'static str = "pause";
    const EXAMPLE: &'static str = "pause data";
    type Answer = MessageAnswer;

    fn run(self, (_, control): At<'_, C>) -> Result<MessageAnswer, Error> {
        let (class, on) = (C::REBUILDS_OF, self.name.as_str());
        let was = C::set_paused(control, on, true)?;
        let are = if was { "were paused already" } else { "are paused" };
        let next = format!("`ashlar {class} resume {on}` continues them");
        Ok(MessageAnswer::new(format!("rebuilds of {on} {are}; {next}")))
    }
}

/// Resume the paused rebuilds and resyncs of a geom
///
/// They continue where they were paused.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct Resume {
    /// Name of the geom, without the class
    name: String,
}

impl<C: RebuildingClass> Verb<C> for Resume {
    const NAME: &'static str = "resume";
    const EXAMPLE: &'static str = "resume data";
    type Answer = MessageAnswer;

    fn run(self, (_, control): At<'_, C>) -> Result<MessageAnswer, Error> {
        let on = self.name.as_str();
        let message = match C::set_paused(control, on, false)? {
            true => format!("rebuilds of {on} continue"),
            false => format!("rebuilds of {on} were not paused"),
        };
        Ok(MessageAnswer::new(message))
    }
}
