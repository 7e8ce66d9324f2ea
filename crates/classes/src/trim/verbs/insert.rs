//! The verb `insert`: a queue under the users of a provider.

use bio::Errno;
use geom::{At, Create as Request, Error, Given, JsonSchema, Verb};
use serde::{Deserialize, Serialize};

use crate::members::provider_access;
use crate::trim::NAME;
use crate::trim::class::{TrimClass, is_set};
use crate::trim::params::TrimParams;

/// Arguments of `insert` and `create`.
#[derive(Deserialize, JsonSchema)]
#[schemars(inline)]
pub(super) struct InsertParams {
    /// Provider below the queue
    pub(super) name: String,
    /// Name of the queue [default: name of the provider, followed by .trim]
    #[serde(default, rename = "as")]
    called: Option<String>,
    #[serde(flatten)]
    pub(super) given: Given<TrimParams>,
}

impl InsertParams {
    /// The queue's name.
    pub(super) fn called(&self) -> String {
        self.called.clone().unwrap_or_else(|| format!("{}.trim", self.name))
    }
}

/// The provider with the queue.
#[derive(Serialize, JsonSchema)]
pub(super) struct InsertAnswer {
    /// Result in one sentence.
    pub(super) message: String,
    /// Name of the provider with the queue.
    pub(super) provider: String,
}

/// Insert a TRIM queue under the users of a provider
///
/// The users stay open and mounted. Deletes are acknowledged at once and sent to the device later,
/// so deleted bytes no longer read as zeroes. If the provider promises that they do, --zeroes is
/// required, because layers above may have passed this promise on to initiators. While the queue is
/// inserted, it has the name of the provider, and the provider the name of the queue. The queue is
/// not stored on disk: after the next start it and its waiting deletes are removed, without loss of
/// data. A permanent queue is part of the configuration.
#[derive(Deserialize, JsonSchema)]
#[serde(transparent)]
pub(super) struct Insert(InsertParams);

impl Verb<TrimClass> for Insert {
    const NAME: &'static str = "insert";
    const EXAMPLE: &'static str = "trim insert d0 --zeroes drop";
    type Answer = InsertAnswer;

    fn run(self, (_, control): At<'_, TrimClass>) -> Result<InsertAnswer, Error> {
        let (InsertParams { name: on, given, .. }, name) = (&self.0, self.0.called());
        let below = provider_access::find(control, on)?;
        let t = &control.topology;
        if !is_set(t, below, "GEOM::candelete") {
            let what = format!(
                "{on} takes no deletes, so there is nothing to queue: choose another provider"
            );
            return Err(Error::new(Errno::NotSup, what));
        }
        if is_set(t, below, "GEOM::deletereadszero") && !given.names("zeroes") {
            let what = format!(
                "it promises that deleted bytes read as zeroes, which those above may have passed \
                 on; a queue cannot keep that. `ashlar trim insert {on} --zeroes drop` if none of \
                 them relies on it, `--zeroes keep` to have deletes go down as they come"
            );
            return Err(Error::inval(what));
        }
        let params = serde_json::to_value(&given.params).unwrap_or_default();
        control.insert(NAME, below, &Request { name: &name, members: &[], params: &params })?;
        Ok(InsertAnswer { message: format!("{name} inserted over {on}"), provider: on.clone() })
    }
}
