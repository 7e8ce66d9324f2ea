//! The `verify` verb: compares copies and parity in the background.

use bio::Errno;
use geom::{At, Deserialize, Error, JsonSchema, Verb};
use serde::Serialize;

use super::{ArrayName, VolumeName, selected_volumes, with};
use crate::members::ComparisonReport;
use crate::raid::class::RaidClass;
use crate::raid::model::VolumeState;
use crate::raid::show::state_str;
use crate::raid::volume::verify::{VerifyOptions, begin};
use crate::raid::volumes::RunningVolume;
use crate::shared_args::{EndRun, VerifyRate};

/// Compare copies or parity of volumes in the background
///
/// As `check` of Linux, or `repair` with --repair: copies are compared with each other, and parity
/// with its row, row after row, while the volume is in use. `list` shows the progress, the number
/// of sectors that differ and the first addresses; --end ends the comparison and reports the same.
/// Only an OPTIMAL volume is compared. --repair computes parity again from its row, uses the first
/// copy as the correct one, and rewrites unreadable sectors. With RAID6 the two parities identify
/// the wrong strip of a row if only one strip is wrong. Its disk is named, and --repair rewrites
/// that strip, data or parity. If more than one strip is wrong, this is reported, and nothing is
/// written there. `raid fail`, `clear` and `insert` of a disk that is known to be bad rebuild it
/// from the others. With --force parity is computed for the present data.
#[derive(Deserialize, JsonSchema)]
pub(super) struct Verify {
    name: ArrayName,
    #[serde(default)]
    volume: VolumeName,
    /// Compute differing parity again, and overwrite differing copies with the first; with RAID6,
    /// rewrite the wrong strip [default: only count differences]
    repair: bool,
    /// With --repair: RAID6 computes parity for the present data even if the wrong strips cannot be
    /// identified
    force: bool,
    rate: Option<VerifyRate>,
    end: EndRun,
}

/// The begin or the end of comparisons.
#[derive(Serialize, JsonSchema)]
pub(super) struct VerifyAnswer {
    /// Result in one sentence.
    message: String,
    /// Results of the ended comparisons; absent: they began.
    #[serde(skip_serializing_if = "Option::is_none")]
    reports: Option<Vec<VolumeReport>>,
}

/// Result of the comparison of a volume.
#[derive(Serialize, JsonSchema)]
struct VolumeReport {
    /// Name of the volume's provider, without the class.
    volume: String,
    #[serde(flatten)]
    report: ComparisonReport,
}

impl Verb<RaidClass> for Verify {
    const NAME: &'static str = "verify";
    const POSITIONAL: &'static [&'static str] = &["name", "volume"];
    const EXAMPLE: &'static str = "raid verify Intel-1234abcd";
    const WRITES: bool = true;
    type Answer = VerifyAnswer;

    fn run(self, (_, control): At<'_, RaidClass>) -> Result<VerifyAnswer, Error> {
        let on = self.name.0.as_str();
        let (repair, force, rate) = (self.repair, self.force, self.rate.map(|rate| rate.0));
        let wish = VerifyOptions { repair, force, rate };
        let (words, reports) = with(control, on, |g, _, _| {
            let mut chosen = Vec::new();
            for at in selected_volumes(g, on, self.volume.0.as_deref())? {
                chosen.extend(g.comparable(at, self.volume.0.is_some())?);
            }
            if chosen.is_empty() {
                return Err(Error::inval(format!(
                    "{on} has no volume with copies or parity that is up"
                )));
            }
            let names: Vec<&str> = chosen.iter().map(|(_, up, _)| up.name.as_str()).collect();
            let mut ended = false;
            for (_, up, state) in &chosen {
                if self.end.0 {
                    ended |= std::mem::take(&mut up.shared.verified().running);
                } else if up.shared.verified().running {
                    let what = format!("{} is being compared: --end ends it", up.name);
                    return Err(Error::new(Errno::Busy, what));
                } else if *state != VolumeState::Optimal {
                    let what = format!(
                        "{} is {}: only a volume in order can be compared; `ashlar raid list {}` \
                         shows why",
                        up.name,
                        state_str(*state),
                        g.id.name()
                    );
                    return Err(Error::new(Errno::Busy, what));
                }
            }
            let (names, set) = (names.join(", "), g.id.name());
            if self.end.0 {
                let report = |(at, up, _): &(usize, &RunningVolume, _)| VolumeReport {
                    volume: up.name.clone(),
                    report: up.shared.verified().report(|slot| g.member_name(*at, slot)),
                };
                let reports: Vec<VolumeReport> = chosen.iter().map(report).collect();
                let words = if ended { "no longer compared" } else { "not being compared" };
                return Ok((format!("{names}: {words}"), Some(reports)));
            }
            for (_, up, _) in &chosen {
                begin(&up.shared, wish);
            }
            let how = format!("{names}: compared; `ashlar raid list {set}` shows how far that is");
            Ok((how, None))
        })?;
        Ok(VerifyAnswer { message: words, reports })
    }
}
