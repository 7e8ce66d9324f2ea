//! `insert`, `create`: a queue over a provider.

use bio::Errno;
use geom::{Class, Control, Create as Request, Error, JsonSchema, Verb};
use serde::{Deserialize, Serialize};

use crate::members::hand;
use crate::trim::NAME;
use crate::trim::class::{TrimClass, says};
use crate::trim::params::TrimParams;

/// What both take.
#[derive(Deserialize, JsonSchema)]
#[schemars(inline)]
struct Place {
    /// The provider over which it is put
    name: String,
    /// Its name; absent: that of the provider with .trim behind it
    #[serde(default, rename = "as")]
    called: Option<String>,
    #[serde(flatten)]
    params: TrimParams,
}

impl Place {
    /// The queue's name.
    fn called(&self) -> String {
        self.called.clone().unwrap_or_else(|| format!("{}.trim", self.name))
    }
}

/// The provider with the queue.
#[derive(Serialize)]
pub(super) struct Placed {
    message: String,
    provider: String,
}

/// Put a queue of deletes under all who use a provider, while they work
///
/// Deletes are acknowledged at once and sent to the device later, so deleted bytes do not read as
/// zeroes any more. Where the provider promises that they do, those above may have passed the
/// promise on to initiators: then --zeroes must be given. The queue has the provider's name
/// meanwhile, and the provider the queue's. Nothing of the queue is kept on the disk: at the next
/// start it is gone with what waited in it, and no data are lost by that. One that is to stay is in
/// the configuration.
#[derive(Deserialize, JsonSchema)]
#[serde(transparent)]
pub(super) struct Insert(Place);

impl Verb<TrimClass> for Insert {
    const NAME: &'static str = "insert";
    const EXAMPLE: &'static str = "trim insert d0 --zeroes drop";
    type Answer = Placed;

    fn run(self, _: &TrimClass, control: &mut Control) -> Result<Placed, Error> {
        let (Place { name: on, params, .. }, name) = (&self.0, self.0.called());
        let below = hand::find(control, on)?;
        let t = &control.topology;
        if !says(t, below, "GEOM::candelete") {
            let what = format!(
                "{on} takes no deletes, so there is nothing to queue: choose another provider"
            );
            return Err(Error::new(Errno::NotSup, what));
        }
        if says(t, below, "GEOM::deletereadszero") && params.zeroes.is_none() {
            let what = format!(
                "it promises that deleted bytes read as zeroes, which those above may have passed \
                 on; a queue cannot keep that. `ashlar trim insert {on} --zeroes drop` if none of \
                 them relies on it, `--zeroes keep` to have deletes go down as they come"
            );
            return Err(Error::inval(what));
        }
        let params = serde_json::to_value(params).unwrap_or_default();
        control.insert(NAME, below, &Request { name: &name, members: &[], params: &params })?;
        Ok(Placed { message: format!("{name} inserted over {on}"), provider: on.clone() })
    }
}

/// Make a provider with a queue of deletes over another
///
/// Those who use the provider below go on using it. The new one says that deleted bytes do not read
/// as zeroes, unless --zeroes keep is given.
#[derive(Deserialize, JsonSchema)]
#[serde(transparent)]
pub(super) struct Create(Place);

impl Verb<TrimClass> for Create {
    const NAME: &'static str = "create";
    const EXAMPLE: &'static str = "trim create d0";
    type Answer = Placed;

    fn run(self, class: &TrimClass, control: &mut Control) -> Result<Placed, Error> {
        let (Place { name: on, params, .. }, name) = (&self.0, self.0.called());
        let below = hand::find(control, on)?;
        let params = serde_json::to_value(params).unwrap_or_default();
        let request = Request { name: &name, members: &[below], params: &params };
        control.call(|t| class.create(t, &request))?;
        Ok(Placed { message: format!("{name} is there"), provider: name })
    }
}
