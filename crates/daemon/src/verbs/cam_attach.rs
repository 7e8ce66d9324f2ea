//! `cam attach`: a bus that exists until the daemon stops.

use cam::AttachAnswer;
use geom::{Deferred, Verb};
use mgmt::api::{Error, Kind, Level, Result};
use mgmt::config::{self, BusConfig};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::buses;
use crate::catalog::catalog;
use crate::control_loop::ControlLoop;

/// Attach a bus with its disks
///
/// The parameters are those of [[bus]] in ashlar.toml. The bus exists until the daemon stops; a
/// [[bus]] section in ashlar.toml makes it permanent. The contents of virtual disks are lost with
/// their bus.
#[derive(Deserialize, JsonSchema)]
pub(super) struct CamAttach {
    /// Name of the bus, such as mps0
    name: String,
    /// kind=virtual (the default) and its parameters: disks=4 size=1GiB
    #[serde(default)]
    params: Vec<String>,
    /// Number of an attach that was unfinished
    #[serde(default)]
    #[schemars(extend("x-hidden" = true))]
    ticket: Option<u64>,
}

impl Verb<ControlLoop> for CamAttach {
    const NAME: &'static str = "attach";
    const POSITIONAL: &'static [&'static str] = &["name", "params"];
    const EXAMPLE: &'static str = "cam attach mps0 transport=sas disks=4 size=1GiB";
    type Answer = Deferred<AttachAnswer>;

    fn run(self, control_loop: &mut ControlLoop) -> Result<Self::Answer> {
        let name = self.name.as_str();
        let done = match self.ticket {
            Some(ticket) => {
                let again = json!({ "name": name, "ticket": ticket });
                control_loop.call_verb(cam::CAM_CLASS, Self::NAME, name, &again)?
            }
            None => buses::open(control_loop, &self.bus()?)?,
        };
        // Without a message it is unfinished.
        if let Some(message) = done["message"].as_str() {
            control_loop.note(Level::Info, name, format!("cam attach: {message}"));
        }
        Ok(Deferred::stored(done))
    }
}

impl CamAttach {
    /// The bus of these words, which are read like a section of the configuration.
    fn bus(&self) -> Result<BusConfig> {
        let (name, words) = (self.name.as_str(), &self.params);
        let kind = words.iter().find_map(|word| word.strip_prefix("kind=")).unwrap_or("virtual");
        let text = section(name, words)?;
        // The user did not type that section: errors refer to the words.
        let read = config::read_arguments(&text, "cam attach", &catalog()).map_err(|e| {
            let next = format!(
                "Add KEY=VALUE after {name}; `ashlar schema {kind}` lists the keys. Nothing was \
                 changed."
            );
            e.at(name).next(next)
        })?;
        read.bus.into_iter().next().ok_or_else(|| {
            let why = "one bus is attached at a time";
            Error::new(Kind::Usage, "cam attach", why).at(name)
        })
    }
}

/// The bus that `cam attach` would open with these parameters; None: it continues an attach.
pub fn bus_of_attach(params: &Value) -> Option<Result<BusConfig>> {
    // Wrong parameters are refused when the verb runs.
    let attach = CamAttach::deserialize(params).ok()?;
    attach.ticket.is_none().then(|| attach.bus())
}

/// The words as a section of the configuration: a word that is no value of TOML is a text.
fn section(name: &str, words: &[String]) -> Result<String> {
    let mut fields = vec![("name", quoted(name))];
    for word in words {
        let (key, value) = word.split_once('=').ok_or_else(|| {
            let why = format!("`{word}` is not KEY=VALUE (disks=4)");
            Error::new(Kind::Usage, "cam attach", why).at(name)
        })?;
        if !key.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') || key.is_empty() {
            let why = format!("`{key}` is not a key");
            return Err(Error::new(Kind::Usage, "cam attach", why).at(name));
        }
        fields.push((key, if config::is_value(value) { value.to_owned() } else { quoted(value) }));
    }
    if fields.iter().all(|(key, _)| *key != "kind") {
        fields.push(("kind", quoted("virtual")));
    }
    let lines = fields.iter().map(|(key, value)| format!("{key} = {value}\n"));
    Ok(format!("[[bus]]\n{}", lines.collect::<String>()))
}

/// A text as TOML writes it: JSON's escapes are among its own.
fn quoted(text: &str) -> String {
    Value::String(text.to_owned()).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_of_attach_are_read_as_a_section() {
        let bus = |words: &[&str]| {
            bus_of_attach(&json!({ "name": "b", "params": words })).expect("a new bus")
        };
        let read = bus(&["kind=virtual", "disks=2"]).expect("a section");
        assert_eq!((read.name.as_str(), read.kind.as_str()), ("b", "virtual"));
        let refused = bus(&["disks"]).expect_err("no value");
        assert!(refused.kind == Kind::Usage && refused.at == "b", "{refused}");
    }
}
