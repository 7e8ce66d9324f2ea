//! export: the running configuration as a document.

use super::entry::{DaemonVerb, Verb};
use crate::api::Result;
use crate::config::{Config, write};
use crate::plant::Progress;
use crate::service::Control;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// See the module.
pub struct Export;

/// What `export` takes: nothing.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Params {}

/// What `export` answers.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Answer {
    /// Generation of the running configuration.
    pub generation: u64,
    /// The document, as `apply` takes it.
    pub document: String,
    /// The same as a value.
    pub config: Config,
}

impl Verb for Export {
    type Params = Params;
    type Answer = Answer;
    const NAME: &'static str = "export";
    const DOC: &'static str = "Print the running configuration as ashlar.toml";
    const DETAIL: &'static str = "The text can be given to plan and apply. Secrets are printed as \
        they stand in the configuration: as references, unless somebody wrote them out.";
    const EXAMPLES: &'static [&'static str] = &["ashlar export > ashlar.toml"];

    fn table(answer: &Answer) -> String {
        answer.document.clone()
    }
}

impl DaemonVerb for Export {
    fn run(control: &Control, _params: Params, _progress: &mut Progress<'_>) -> Result<Answer> {
        let (config, generation) = control.config();
        Ok(Answer { generation, document: write(&config), config })
    }
}
