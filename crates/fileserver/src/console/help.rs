//! The verb `help`: the verbs of the console.

use std::fmt::Write;

use geom::{ArgKind, Deserialize, JsonSchema, Verb, VerbSpec};

use super::parser::console_args;
use super::{Call, FileServer, Running, Text, param_error, specs};

#[derive(Default, Deserialize, JsonSchema)]
#[serde(default)]
pub(super) struct Help {
    /// Commands to describe
    verb: Vec<String>,
}

impl Verb<FileServer> for Help {
    const NAME: &'static str = "help";
    const DOC: &'static str = "List the commands of the console, or describe some";
    const POSITIONAL: &'static [&'static str] = &["name", "verb"];
    const EXAMPLE: &'static str = "fs help main";
    type Answer = Text;

    fn run(self, _: Call) -> Running<Text> {
        Box::pin(async move {
            let mut text = String::new();
            let wanted = self.verb;
            for spec in
                specs().iter().filter(|s| wanted.is_empty() || wanted.iter().any(|w| w == s.name))
            {
                let _ = writeln!(text, "{:<44} {}", usage(spec), spec.doc);
                if !wanted.is_empty() {
                    for a in console_args(spec) {
                        let _ = writeln!(text, "  {:<12} {}", a.name, a.doc);
                    }
                    if !spec.detail.is_empty() {
                        let _ = writeln!(text, "  {}", spec.detail);
                    }
                }
            }
            match text.is_empty() {
                true => Err(param_error::<Self>("no such command")),
                false => Ok(Text { text }),
            }
        })
    }
}

fn usage(spec: &VerbSpec) -> String {
    let mut out = spec.name.to_owned();
    for a in console_args(spec) {
        let long = a.name.replace('_', "-");
        let _ = match a.kind {
            ArgKind::Name => write!(out, " {}", a.name.to_uppercase()),
            ArgKind::OptionalName => write!(out, " [{}]", a.name.to_uppercase()),
            ArgKind::Names(0) => write!(out, " [{}...]", a.name.to_uppercase()),
            ArgKind::Names(_) => write!(out, " {}...", a.name.to_uppercase()),
            ArgKind::Flag => write!(out, " [--{long}]"),
            _ => write!(out, " [--{long} {}]", a.name.to_uppercase()),
        };
    }
    out
}
