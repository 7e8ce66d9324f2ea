//! The parameters of a local target.

use geom::Error;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::driver::TargetSpec;

/// Longest name of a target, bytes: a folder is called after it.
const NAME_MAX: usize = 100;

/// LUNs attached at one target; more are refused.
pub const ATTACH_MAX: usize = 256;

/// Method that makes a LUN a block device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum By {
    /// The kernel's network block device if available, else FUSE.
    #[default]
    Auto,
    /// The kernel's network block device: its module `nbd`.
    Nbd,
    /// A loop device on a file served by FUSE.
    Fuse,
}

/// Parameters of a local target besides its name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LocalParams {
    /// LUNs that are block devices of this machine while the daemon runs. A LUN that cannot be
    /// attached yet is tried again; `ashlar list attached` shows the reason.
    #[schemars(length(max = 256))]
    pub attach: Vec<u64>,
    /// Method that makes LUNs block devices; `ashlar attach --by` overrides it.
    pub by: By,
    /// Seconds that users of a network block device wait after the daemon has ended; then their
    /// requests fail. Meanwhile a new daemon can take the device over.
    #[schemars(range(min = 1, max = 86400))]
    pub reconnect: u32,
    /// Seconds after which the kernel sends an unanswered request of a network block device again.
    /// A request that a killed daemon did not answer waits this long, however early a new daemon
    /// starts. If a slow disk takes longer, the kernel gives up working sockets.
    #[schemars(range(min = 2, max = 600))]
    pub resend: u32,
}

/// As long as the kernel waits for other disks, seconds.
const RESEND_S: u32 = 30;

impl Default for LocalParams {
    fn default() -> LocalParams {
        LocalParams { attach: Vec::new(), by: By::Auto, reconnect: 120, resend: RESEND_S }
    }
}

/// Checks a target; an error names the remedy.
pub(crate) fn check(spec: &TargetSpec) -> Result<(String, LocalParams), Error> {
    let name = spec.name.clone();
    let bad = |what: String| Error::inval(format!("local target {name}: {what}"));
    let fits = |c: char| c.is_ascii_alphanumeric() || "-_.:".contains(c);
    if name.is_empty() || name.len() > NAME_MAX || name.starts_with('.') || !name.chars().all(fits)
    {
        let what = format!("a name has 1 to {NAME_MAX} letters, digits, or -_.: (no . at first)");
        return Err(bad(what));
    }
    if spec.chap.is_some() || spec.mutual_chap.is_some() || spec.discovery_chap.is_some() {
        return Err(bad("local targets need no authentication; leave CHAP out".into()));
    }
    if !spec.listen.is_empty() {
        return Err(bad("a local target has no portals; leave `listen` out".into()));
    }
    let params = match &spec.params {
        serde_json::Value::Null => LocalParams::default(),
        other => LocalParams::deserialize(other).map_err(|e| bad(e.to_string()))?,
    };
    if params.attach.len() > ATTACH_MAX {
        return Err(bad(format!("attach names more than {ATTACH_MAX} LUNs")));
    }
    if !(1..=86400).contains(&params.reconnect) {
        return Err(bad(format!("reconnect = {}: it must be 1 to 86400", params.reconnect)));
    }
    if !(2..=600).contains(&params.resend) {
        return Err(bad(format!("resend = {}: it must be 2 to 600", params.resend)));
    }
    Ok((spec.name.clone(), params))
}

/// JSON Schema of [`LocalParams`].
pub(crate) fn schema() -> serde_json::Value {
    geom::schema_of::<LocalParams>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::Account;
    use serde_json::json;

    #[test]
    fn invalid_parameters_are_refused_by_name() {
        let spec =
            |name: &str, params| TargetSpec { name: name.into(), params, ..Default::default() };
        for (name, params, word) in [
            ("", json!({}), "name"),
            ("a/b", json!({}), "name"),
            ("..", json!({}), "name"),
            ("a", json!({"atach": [1]}), "atach"),
            ("a", json!({"attach": vec![0; 300]}), "LUNs"),
            ("a", json!({"by": "magic"}), "magic"),
            ("a", json!({"reconnect": 0}), "reconnect"),
            ("a", json!({"resend": 1}), "resend"),
            ("a", json!({"resend": 601}), "resend"),
        ] {
            let error = check(&spec(name, params)).unwrap_err();
            assert!(error.message.contains(word), "{error}");
        }
        let (name, params) = check(&spec("here", json!({"attach": [0, 7]}))).unwrap();
        assert_eq!((name.as_str(), params.attach), ("here", vec![0, 7]));
        let chap = Some(Account { user: "u".into(), secret: vec![1] });
        let error = check(&TargetSpec { chap, ..spec("a", json!({})) }).unwrap_err();
        assert!(error.message.contains("CHAP"), "{error}");
    }
}
