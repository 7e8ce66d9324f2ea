//! `lun load`: insertion of a medium into a unit, as by a hand at the drive.

use geom::Verb;
use mgmt::api::{Level, Result};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::control_loop::ControlLoop;

/// Load a medium into a drive or removable unit
#[derive(Deserialize, JsonSchema)]
pub(super) struct Load {
    /// Name of the unit, as in `list luns`
    name: String,
    /// Provider to load [default: the ejected medium]
    provider: Option<String>,
}

impl Verb<ControlLoop> for Load {
    const NAME: &'static str = "load";
    const POSITIONAL: &'static [&'static str] = &["name", "provider"];
    const EXAMPLE: &'static str = "tray load cd0 disc2";
    type Answer = ();

    fn run(self, control_loop: &mut ControlLoop) -> Result<()> {
        let Load { name, provider } = self;
        let (control, exports) = (&mut control_loop.control, &mut control_loop.exports);
        exports.load(control, &name, provider.as_deref())?;
        let medium = provider.as_deref().unwrap_or("medium");
        control_loop.note(Level::Info, &name, format!("{medium} loaded by hand"));
        Ok(())
    }
}
