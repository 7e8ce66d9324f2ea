//! The parameters of an AoE target.

use geom::Error;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::driver::TargetSpec;

/// Longest name of a target, bytes.
const NAME_MAX: usize = 223;

/// Parameters of an AoE target besides its name and interfaces.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AoeParams {
    /// Number of the shelf; the LUNs 0 to 254 of an initiator's group are its slots.
    #[schemars(range(max = 65534))]
    pub shelf: u16,
    /// Limit of outstanding requests of one initiator at one slot; further requests are dropped,
    /// and initiators send them again. The limit is reported to initiators. Linux starts with half
    /// of it.
    #[schemars(range(min = 2, max = 1024))]
    pub buffers: u16,
    /// Announce a device that becomes available: to the initiators named in its group, or, if the
    /// group has a pattern, to the whole segment.
    pub announce: bool,
}

impl Default for AoeParams {
    fn default() -> AoeParams {
        AoeParams { shelf: 0, buffers: 64, announce: true }
    }
}

/// A target, checked.
pub(crate) struct Checked {
    /// As it was given.
    pub spec: TargetSpec,
    /// Its parameters.
    pub params: AoeParams,
}

impl Checked {
    /// Checks a target; an error names the remedy.
    pub fn new(spec: TargetSpec) -> Result<Checked, Error> {
        let name = spec.name.clone();
        let bad = |what: String| Error::inval(format!("aoe target {name}: {what}"));
        if name.is_empty() || name.len() > NAME_MAX || name.contains(|c: char| c.is_control()) {
            return Err(bad(format!("a name has 1 to {NAME_MAX} bytes, printable")));
        }
        if spec.chap.is_some() || spec.mutual_chap.is_some() || spec.discovery_chap.is_some() {
            return Err(bad("AoE has no CHAP: hosts on the segment are not authenticated; use \
                            initiators = [\"mac:...\"] and a segment of its own"
                .into()));
        }
        if let Some(at) = spec.listen.iter().find(|at| at.ether().is_none()) {
            return Err(bad(format!(
                "listen {at}: AoE listens on interfaces, as in \
                                    \"ether:eth0\""
            )));
        }
        let params = match &spec.params {
            serde_json::Value::Null => AoeParams::default(),
            other => AoeParams::deserialize(other).map_err(|e| bad(e.to_string()))?,
        };
        if params.shelf == u16::MAX {
            return Err(bad("shelf = 65535 means all shelves: it must be 0 to 65534".into()));
        }
        if !(2..=1024).contains(&params.buffers) {
            return Err(bad(format!("buffers = {}: it must be 2 to 1024", params.buffers)));
        }
        Ok(Checked { spec, params })
    }
}

/// JSON Schema of [`AoeParams`].
pub(crate) fn schema() -> serde_json::Value {
    geom::schema_of::<AoeParams>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::Account;
    use serde_json::json;

    #[test]
    fn invalid_parameters_are_refused_by_name() {
        let spec = |params| TargetSpec { name: "e1".into(), params, ..TargetSpec::default() };
        for (params, word) in [
            (json!({"shlf": 1}), "shlf"),
            (json!({"shelf": 65535}), "shelf"),
            (json!({"shelf": 65536}), "65536"),
            (json!({"buffers": 1}), "buffers"),
            (json!({"buffers": 1025}), "buffers"),
        ] {
            let error = Checked::new(spec(params)).err().unwrap();
            assert!(error.message.contains(word), "{error}");
        }
        assert!(Checked::new(spec(serde_json::Value::Null)).is_ok());
        let tcp = "127.0.0.1:1".parse().unwrap();
        let error = Checked::new(TargetSpec { listen: vec![tcp], ..spec(json!({})) });
        assert!(error.err().unwrap().message.contains("ether:"));
        let chap = Some(Account { user: "u".into(), secret: vec![1] });
        let error = Checked::new(TargetSpec { chap, ..spec(json!({})) });
        assert!(error.err().unwrap().message.contains("CHAP"));
    }
}
