//! `create`: paths that are named by hand.

use geom::{Class, Control, Create as Request, Deserialize, Error, JsonSchema, Verb};
use serde_json::{Value, json};

use super::mode;
use crate::members::{hand, known};
use crate::multipath::NAME;
use crate::multipath::class::MultipathClass;
use crate::words::Members;

/// Join paths without writing a record, until the daemon ends
///
/// It is not checked that the paths lead to the same disk.
#[derive(Deserialize, JsonSchema)]
pub(super) struct Create {
    /// Its name, without the class
    name: String,
    members: Members,
    /// Active/Active: everything goes by all good paths
    #[schemars(extend("x-short" = "A"))]
    active: bool,
    /// Active/Passive: everything goes by the active path; so it is without another word
    #[schemars(extend("x-short" = "P"))]
    passive: bool,
    /// Active/Read: reads go by all good paths, the rest by the active one
    #[schemars(extend("x-short" = "R"))]
    read: bool,
}

impl Verb<MultipathClass> for Create {
    const NAME: &'static str = "create";
    const EXAMPLE: &'static str = "multipath create data d0 d1";
    type Answer = Value;

    fn run(self, class: &MultipathClass, control: &mut Control) -> Result<Value, Error> {
        let (name, names) = (self.name.as_str(), &self.members.0);
        known::check_name(name)?;
        let members: Result<Vec<_>, Error> =
            names.iter().map(|member| hand::find(control, member)).collect();
        let members = members?;
        let mode = mode(self.active, self.passive, self.read)?.unwrap_or_default();
        let params = json!({ "mode": mode.key() });
        control.call(|t| class.create(t, &Request { name, members: &members, params: &params }))?;
        known::up(control, NAME, name, names)
    }
}
