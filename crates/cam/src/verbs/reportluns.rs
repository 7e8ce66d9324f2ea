//! `reportluns`: the logical units of a target.

use std::fmt::Write;

use bio::Errno;
use geom::{At, Deferred, Error, JsonSchema, Verb};
use serde::{Deserialize, Serialize};
use wire::scsi::{Lun, LunError};

use super::verb_jobs::DeviceOnCore;
use super::{DiskName, one_of};
use crate::ccb::Command;
use crate::class::CamClass;
use crate::periph::Facts;
use crate::periph::pass::{Data, Request};

/// Most bytes of a list of units: 16,384 of them and the header.
const LUNS_LEN: u32 = 8 + 16_384 * 8;

/// Show the logical units of a disk's target
#[derive(Deserialize, JsonSchema)]
pub(super) struct Reportluns {
    name: DiskName,
    /// Show only the number of logical units
    #[schemars(extend("x-short" = "c"))]
    count: bool,
    /// Show only the logical units
    #[schemars(extend("x-short" = "l"))]
    luns: bool,
    /// Logical units to request
    #[serde(default)]
    #[schemars(extend("x-short" = "r"))]
    report: Report,
}

/// SELECT REPORT.
#[derive(Clone, Copy, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
enum Report {
    #[default]
    Default,
    WellKnown,
    All,
}

/// The logical units of a target.
#[derive(Serialize, JsonSchema)]
pub(super) struct ReportlunsAnswer {
    /// Result for people.
    text: String,
    /// Number of logical units that the target has.
    count: u32,
    /// The logical units that fit into the answer of the target.
    luns: Vec<ListedLun>,
}

/// A logical unit.
#[derive(PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[serde(untagged)]
enum ListedLun {
    /// Its number.
    Number(u32),
    /// Its eight bytes in hexadecimal, where it has no number of a single level.
    Bytes(String),
}

impl Verb<CamClass> for Reportluns {
    const NAME: &'static str = "reportluns";
    const EXAMPLE: &'static str = "reportluns da0";
    type Answer = Deferred<ReportlunsAnswer>;

    fn run(self, (class, control): At<'_, CamClass>) -> Result<Self::Answer, Error> {
        let on = self.name.0.clone();
        class.run_on_device(control, (Self::NAME, &on), |talk| {
            Box::pin(async move { self.units(&talk).await })
        })
    }
}

impl Reportluns {
    async fn units(&self, talk: &DeviceOnCore<'_>) -> Result<ReportlunsAnswer, Error> {
        let on = talk.name();
        if !matches!(talk.found.facts, Facts::Scsi(_)) {
            let what = format!("{on} speaks ATA, which has no logical units");
            return Err(Error::new(Errno::NotSup, what));
        }
        if self.count && self.luns {
            return Err(one_of("-c", "-l"));
        }
        let [a, b, c, d] = LUNS_LEN.to_be_bytes();
        let cdb = [0xa0, 0, self.report as u8, 0, 0, 0, a, b, c, d, 0, 0];
        let request = Request::with_recovery(Command::scsi(&cdb), Data::In(LUNS_LEN));
        let data = talk.send(request).await?.good(&format!("{on}: REPORT LUNS"))?;
        // LUN LIST LENGTH, and four bytes that mean nothing.
        let (length, list) = match data.as_slice() {
            [a, b, c, d, _, _, _, _, list @ ..] => (u32::from_be_bytes([*a, *b, *c, *d]), list),
            _ => {
                let what = format!("{on}: REPORT LUNS: the answer has {} bytes", data.len());
                return Err(Error::new(Errno::Io, what));
            }
        };
        let count = length / 8;
        let (luns, _) = list.as_chunks::<8>();
        let luns = luns.iter().take(usize::try_from(count).unwrap_or(usize::MAX));
        let luns: Vec<ListedLun> = luns.map(|lun| listed(*lun)).collect();
        let mut text = String::new();
        if !self.luns {
            let plural = if count > 1 { "s" } else { "" };
            let _ = writeln!(text, "{count} LUN{plural} found");
        }
        if !self.count {
            for lun in &luns {
                let _ = match lun {
                    ListedLun::Bytes(bytes) => writeln!(text, "{bytes}"),
                    ListedLun::Number(number) => writeln!(text, "{number}"),
                };
            }
        }
        Ok(ReportlunsAnswer { text, count, luns })
    }
}

/// A logical unit's eight bytes (SAM-5 4.7): its number where it is one of a single level.
fn listed(lun: [u8; 8]) -> ListedLun {
    match Lun::decode(lun) {
        Ok(lun) => ListedLun::Number(lun.number()),
        Err(LunError::WellKnown(number)) => ListedLun::Number(number.into()),
        Err(LunError::Unsupported) => ListedLun::Bytes(format!("{:#x}", u64::from_be_bytes(lun))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn luns_are_printed_as_numbers_for_known_addressing_methods() {
        for (lun, want) in [
            ([0, 7, 0, 0, 0, 0, 0, 0], ListedLun::Number(7)),
            ([0x41, 1, 0, 0, 0, 0, 0, 0], ListedLun::Number(257)),
            ([0xc1, 1, 0, 0, 0, 0, 0, 0], ListedLun::Number(1)),
            ([1, 2, 0, 3, 0, 0, 0, 0], ListedLun::Bytes("0x102000300000000".to_owned())),
        ] {
            assert_eq!(listed(lun), want);
        }
    }
}
