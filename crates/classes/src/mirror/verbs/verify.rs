//! `verify`: compares members in the background.

use std::cmp::Reverse;

use bio::Errno;
use geom::{At, Deserialize, Error, JsonSchema, MessageAnswer, Verb};

use super::{slot, with};
use crate::mirror::class::MirrorClass;
use crate::mirror::geom::Job;
use crate::mirror::state::Role;
use crate::mirror::verify::VerifyOptions;
use crate::shared_args::{EndRun, VerifyRate};

/// Compare the members with each other
///
/// The comparison runs in the background while the mirror is in use. `ashlar mirror list` shows the
/// progress, the number of sectors that differ and the first of their addresses. Nothing is written
/// without --repair, which overwrites differing sectors from --member, or from the member with the
/// highest priority. Deleted sectors (DELETE, UNMAP) may differ without an error on members that do
/// not read them as zeroes.
#[derive(Deserialize, JsonSchema)]
pub(super) struct Verify {
    /// Name of the mirror, without the class
    name: String,
    /// Overwrite sectors that differ [default: only count them]
    repair: bool,
    /// Member with the correct contents [default: the one with the highest priority]
    member: Option<String>,
    rate: Option<VerifyRate>,
    end: EndRun,
}

impl Verb<MirrorClass> for Verify {
    const NAME: &'static str = "verify";
    const EXAMPLE: &'static str = "mirror verify data";
    const WRITES: bool = true;
    type Answer = MessageAnswer;

    fn run(self, (_, control): At<'_, MirrorClass>) -> Result<MessageAnswer, Error> {
        let on = self.name.as_str();
        let ended = with(control, on, |g, t, me| {
            if self.end.0 {
                return Ok(std::mem::take(&mut g.shared.verified().running));
            }
            if g.shared.verified().running {
                let what =
                    format!("{on} is being compared: `ashlar mirror verify {on} --end` ends it");
                return Err(Error::new(Errno::Busy, what));
            }
            let active = g.mirror.in_role(Role::Active);
            if active.len() < 2 {
                return Err(Error::inval(format!("{on} does not have two complete members")));
            }
            let right = match &self.member {
                Some(name) => slot(g, t, name)?,
                None => {
                    let priority = |slot: &usize| g.mirror.member(*slot).map(|m| m.record.priority);
                    let best = active.iter().max_by_key(|slot| (priority(slot), Reverse(**slot)));
                    best.copied().unwrap_or(0)
                }
            };
            if !active.contains(&right) {
                return Err(Error::inval("the member to compare with is not complete"));
            }
            let rate = self.rate.map_or_else(|| g.shared.throttle.rate(), |rate| rate.0);
            g.push(
                t,
                me,
                Job::Verify(VerifyOptions { repair: self.repair, reference_slot: right, rate }),
            );
            Ok(false)
        })?;
        let message = match (self.end.0, ended) {
            (true, true) => format!("{on} is no longer compared"),
            (true, false) => format!("{on} was not being compared"),
            (false, _) => {
                format!("{on} is compared; `ashlar mirror list {on}` shows how far it is")
            }
        };
        Ok(MessageAnswer { message })
    }
}
