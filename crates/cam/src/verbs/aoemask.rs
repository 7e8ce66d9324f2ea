//! `aoemask`: the addresses that may reach an AoE target.

use geom::{At, Deferred, Deserialize, Error, JsonSchema, Verb};
use serde::Serialize;
use wire::aoe::{Mac, mask};

use super::DiskName;
use super::aoe::{Addresses, list_text, names, refuse};
use super::verb_jobs::DeviceOnCore;
use crate::class::CamClass;

/// Show or edit the access list of an AoE target
///
/// A target with an empty list answers all machines; a target with addresses in its list answers
/// only these and is invisible to others. A list that would exclude this machine is refused without
/// --force. On a target of Ashlar the list applies in addition to the access groups, and is kept.
#[derive(Deserialize, JsonSchema)]
pub(super) struct AoeMask {
    name: DiskName,
    addresses: Addresses,
    /// Add these addresses
    add: bool,
    /// Remove these addresses
    delete: bool,
    /// Edit the list even if it excludes this machine
    force: bool,
}

/// The access list of a target.
#[derive(Serialize, JsonSchema)]
pub(super) struct AoeMaskAnswer {
    /// Result for people.
    text: String,
    /// Addresses that may reach the target; empty: all may.
    masks: Vec<String>,
}

impl Verb<CamClass> for AoeMask {
    const NAME: &'static str = "aoemask";
    const POSITIONAL: &'static [&'static str] = &["name", "addresses"];
    const EXAMPLE: &'static str = "aoemask ada0 02:00:00:00:00:01 02:00:00:00:00:02 --add";
    type Answer = Deferred<AoeMaskAnswer>;

    fn run(self, (class, control): At<'_, CamClass>) -> Result<Self::Answer, Error> {
        let on = self.name.0.clone();
        class.run_on_device(control, (Self::NAME, &on), |talk| {
            Box::pin(async move { self.answer(&talk).await })
        })
    }
}

impl AoeMask {
    async fn answer(&self, talk: &DeviceOnCore<'_>) -> Result<AoeMaskAnswer, Error> {
        let on = talk.name();
        let list = self.addresses.list()?;
        let how = match (self.add, self.delete, list.is_empty()) {
            (true, false, false) => Some(mask::ADD),
            (false, true, false) => Some(mask::DELETE),
            (false, false, true) => None,
            (true, true, _) => return Err(refuse("add or delete, not both")),
            (_, _, true) => return Err(refuse("which addresses?")),
            _ => return Err(refuse("addresses need --add or --delete")),
        };
        let mut now = talk.masks(mask::READ, &[]).await?;
        if let Some(how) = how {
            let after: Vec<Mac> = match how {
                mask::ADD => now.iter().chain(&list).copied().collect(),
                _ => now.iter().filter(|mac| !list.contains(mac)).copied().collect(),
            };
            let own = talk.own()?;
            if !after.is_empty() && !own.iter().all(|mac| after.contains(mac)) {
                let what = format!(
                    "{on} would not answer this machine any more: its own addresses there are {}; \
                     add them, or --force",
                    names(&own).join(", ")
                );
                if !self.force {
                    return Err(Error::inval(what));
                }
            }
            let directives: Vec<(u8, Mac)> = list.iter().map(|mac| (how, *mac)).collect();
            now = talk.masks(mask::EDIT, &directives).await?;
        }
        let text = list_text(on, &now, "all machines may reach it");
        Ok(AoeMaskAnswer { text, masks: names(&now) })
    }
}
