//! The verb `dumpctl`: the switch of daily dumps.

use geom::{Deserialize, JsonSchema, Verb};

use super::{Call, FileServer, Running, Switch, Switched};

#[derive(Default, Deserialize, JsonSchema)]
#[serde(default)]
pub(super) struct Dumpctl {
    /// New state [default: show the state]
    what: Option<Switch>,
}

impl Verb<FileServer> for Dumpctl {
    const NAME: &'static str = "dumpctl";
    const DOC: &'static str = "Switch daily dumps on or off, or show the state";
    const DETAIL: &'static str = "The setting lasts until the next start; `nodump` in the \
         configuration makes it permanent, and `dump_at` sets the time. `fs dump` does not depend \
         on this setting. A standby takes no daily dumps before it has taken over.";
    const POSITIONAL: &'static [&'static str] = &["name", "what"];
    const EXAMPLE: &'static str = "fs dumpctl main off";
    type Answer = Switched;

    fn run(self, Call { host, .. }: Call) -> Running<Switched> {
        Box::pin(async move {
            if let Some(on) = self.what.map(Switch::is_on) {
                host.dumps_on.set(on);
                host.update_status();
            }
            let on = host.dumps_on.get();
            let what = match (on, host.shared.params().dump_at()) {
                (true, Ok(None)) => {
                    "no dumps by the clock: `dump_at` of its configuration is never"
                }
                (true, _) => "dumps are taken by the clock",
                (false, _) => "no dumps by the clock",
            };
            Ok(Switched { message: what, on })
        })
    }
}
