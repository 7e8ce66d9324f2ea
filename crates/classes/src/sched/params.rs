//! Parameters of a scheduler: those of a section, of the verbs that place one, and of `configure`.

use geom::{ClassParams, Error, Settings};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::algorithms::{self, Algorithm};
use super::clients::Classify;
use super::options::Options;
use super::queue::{self, DiskQueue};

/// A scheduler above a disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SchedParams {
    /// Scheduling algorithm.
    #[schemars(extend("x-short" = "a", "enum" = algorithms::NAMES))]
    pub(super) algorithm: String,
    /// Options as KEY=VALUE, separated by commas, or as a table: options of the algorithm; weight,
    /// iops and kbps of every client; CLIENT.weight, CLIENT.iops, CLIENT.kbps and CLIENT.burst_ms
    /// of one client, or CLIENT=default, which removes them. CLIENT is a session or process (7), an
    /// initiator (iqn.x), a LUN of an initiator (iqn.x/3), or a background pass (mirror rebuild
    /// gm0).
    // The letter would be that of --output.
    #[serde(skip_serializing_if = "Options::is_empty")]
    pub(super) options: Options,
    /// Classification of requests into clients; process: by processes of this machine that use the
    /// FUSE file listed by `attach --list --json` (loop and NBD devices: the kernel).
    #[schemars(with = "String", extend("x-short" = "c", "enum" = Classify::KEYS))]
    pub(super) classify: Classify,
}

impl ClassParams for SchedParams {}

impl Default for SchedParams {
    fn default() -> SchedParams {
        SchedParams {
            algorithm: algorithms::DEFAULT.to_owned(),
            options: Options::default(),
            classify: Classify::default(),
        }
    }
}

impl SchedParams {
    /// Algorithm and classification of a queue, without its options.
    pub(super) fn without_options(queue: &DiskQueue) -> SchedParams {
        SchedParams {
            algorithm: queue.algorithm_name.to_owned(),
            options: Options::default(),
            classify: queue.classify,
        }
    }

    pub(super) fn algorithm(&self) -> Result<(&'static str, Box<dyn Algorithm>), Error> {
        queue::algorithm(&self.algorithm, &self.options.knobs)
    }
}

/// The settings of a scheduler, as a section has them. Options that have their defaults are left
/// out.
pub(super) fn settings(queue: &DiskQueue) -> Settings {
    let options = Options::of(queue);
    let options = if options.is_empty() { Value::Null } else { options.to_string().into() };
    let all = [
        ("algorithm", Value::from(queue.algorithm_name)),
        ("options", options),
        ("classify", queue.classify.as_str().into()),
    ];
    all.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}
