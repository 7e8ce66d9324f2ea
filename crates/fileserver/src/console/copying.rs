//! The verb `copying`: the switch of copies to the WORM.

use geom::{Deserialize, JsonSchema, Verb};

use super::{Call, FileServer, Running, Switch, Switched};

#[derive(Default, Deserialize, JsonSchema)]
#[serde(default)]
pub(super) struct Copying {
    /// New state [default: show the state]
    what: Option<Switch>,
}

impl Verb<FileServer> for Copying {
    const NAME: &'static str = "copying";
    const DOC: &'static str = "Switch copying of dumps to the WORM, or show the state";
    const DETAIL: &'static str = "While copying is off, dumps can still be taken and stay on the \
         cache device, for example to free the network for other traffic. The setting lasts until \
         the next start.";
    const POSITIONAL: &'static [&'static str] = &["name", "what"];
    const EXAMPLE: &'static str = "fs copying main off";
    type Answer = Switched;

    fn run(self, Call { host, .. }: Call) -> Running<Switched> {
        Box::pin(async move {
            let (fs, switch) = (host.files()?, self.what.map(Switch::is_on));
            if let Some(on) = switch {
                fs.set_copying(on);
                host.update_status();
            }
            let on = fs.is_copying();
            let what = if on { "dumps are copied to the WORM" } else { "nothing is copied" };
            Ok(Switched { message: what, on })
        })
    }
}
