//! What was given with a verb.

use geom::{ArgKind, Error, VerbSpec};
use serde_json::{Map, Value};

/// See the module.
pub(super) struct Args {
    /// Number of the answer.
    pub number: u64,
    verb: &'static str,
    all: Map<String, Value>,
}

impl Args {
    /// Refuses what the verb does not know: a switch that is mistyped is no switch.
    pub fn new(number: u64, params: &Value, spec: &VerbSpec) -> Result<Args, Error> {
        let all = params.as_object().cloned().unwrap_or_default();
        if let Some(other) = all.keys().find(|k| !spec.args.iter().any(|a| a.name == **k)) {
            let known: Vec<&str> = spec.args.iter().map(|a| a.name).skip(1).collect();
            let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            let what = format!("{}: no argument `{other}`; it takes {known}", spec.name);
            return Err(Error::inval(what));
        }
        let args = Args { number, verb: spec.name, all };
        for a in spec.args.iter().skip(1) {
            let missing = match a.kind {
                ArgKind::Name => args.text(a.name).is_none(),
                ArgKind::Names(least) => args.words(a.name).len() < usize::from(least),
                _ => false,
            };
            if missing {
                return Err(args.wrong(&format!("{} is missing: {}", a.name, a.doc)));
            }
        }
        Ok(args)
    }

    /// A refusal.
    pub fn wrong(&self, why: &str) -> Error {
        Error::inval(format!("{}: {why}", self.verb))
    }

    pub fn text(&self, key: &str) -> Option<&str> {
        self.all.get(key).and_then(Value::as_str)
    }

    /// One that the verb needs: it was looked at before.
    pub fn need(&self, key: &str) -> &str {
        self.text(key).unwrap_or("")
    }

    pub fn flag(&self, key: &str) -> bool {
        self.all.get(key).and_then(Value::as_bool).unwrap_or(false)
    }

    pub fn number(&self, key: &str) -> Option<u64> {
        self.all.get(key).and_then(Value::as_u64)
    }

    pub fn words(&self, key: &str) -> Vec<&str> {
        let all = self.all.get(key).and_then(Value::as_array);
        all.into_iter().flatten().filter_map(Value::as_str).collect()
    }
}
