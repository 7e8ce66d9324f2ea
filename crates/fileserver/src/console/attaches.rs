//! The verb `attaches`: the switch of new attaches.

use geom::{Deserialize, JsonSchema, Verb};

use super::{Call, FileServer, Running, Switch, answers};

answers! {
    /// Whether clients can attach.
    Attachable {
        /// Result in one sentence.
        message: &'static str,
        /// True: clients can attach.
        attaches: bool,
    }
}

#[derive(Default, Deserialize, JsonSchema)]
#[serde(default)]
pub(super) struct Attaches {
    /// New state [default: show the state]
    what: Option<Switch>,
}

impl Verb<FileServer> for Attaches {
    const NAME: &'static str = "attaches";
    const DOC: &'static str = "Allow or refuse new attaches, or show the state";
    const DETAIL: &'static str = "The setting lasts until the next start; `noattach` in the \
         configuration makes it permanent. Attached clients stay, and the user none can still \
         attach (`nonone` refuses it). A standby accepts no clients before its main server is \
         down: to take over, use `recover`, `dumpctl on`, and then `attaches on`.";
    const POSITIONAL: &'static [&'static str] = &["name", "what"];
    const EXAMPLE: &'static str = "fs attaches standby off";
    type Answer = Attachable;

    fn run(self, Call { host, .. }: Call) -> Running<Attachable> {
        Box::pin(async move {
            host.files()?;
            if let Some(on) = self.what.map(Switch::is_on) {
                host.server.noattach.set(!on);
                host.update_status();
            }
            let attaches = !host.server.noattach.get();
            let message =
                if attaches { "clients can attach" } else { "only the user none can attach" };
            Ok(Attachable { message, attaches })
        })
    }
}
