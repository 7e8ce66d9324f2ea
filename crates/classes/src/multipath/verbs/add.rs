//! `add`: a further path.

use geom::{At, Deserialize, Error, GraphControl, JsonSchema, MessageAnswer, Verb};

use super::path::Path;
use super::with;
use crate::members::provider_access;
use crate::multipath::NAME;
use crate::multipath::class::MultipathClass;
use crate::multipath::metadata::Metadata;

/// Add a path
///
/// If the disk is labelled, the path must show the label.
#[derive(Deserialize, JsonSchema)]
#[serde(transparent)]
pub(super) struct Add(Path);

impl Verb<MultipathClass> for Add {
    const NAME: &'static str = "add";
    const POSITIONAL: &'static [&'static str] = &["name", "member"];
    const EXAMPLE: &'static str = "multipath add data d1";
    type Answer = MessageAnswer;

    fn run(self, (_, control): At<'_, MultipathClass>) -> Result<MessageAnswer, Error> {
        let Path { name: on, member } = &self.0;
        add(control, on, member)?;
        Ok(MessageAnswer::new(format!("{member} added to {on}")))
    }
}

/// Adds a path, after a check that it shows the label of a labelled disk.
pub(super) fn add(control: &mut GraphControl, on: &str, member: &str) -> Result<(), Error> {
    let new = provider_access::find(control, member)?;
    let uuid = with(control, on, |g, _, _| Ok(g.identity.uuid.clone()))?;
    if let Some(uuid) = uuid {
        let sector = provider_access::with_read_access(control, NAME, member, |control, edge| {
            Ok(provider_access::read_last_sector(control, member, edge)?.1)
        })?;
        if Metadata::decode(&sector).ok().is_none_or(|record| record.uuid != uuid) {
            return Err(Error::inval(format!(
                "{member} does not show the label of {on} in its last sector: it is another \
                 disk"
            )));
        }
    }
    with(control, on, |g, t, me| g.take_in(t, me, new))
}
