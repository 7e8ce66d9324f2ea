//! `defects`: defects of a disk's medium.

use std::fmt::Write;

use bio::Errno;
use geom::{At, Deferred, Error, JsonSchema, Verb};
use serde::{Deserialize, Serialize};
use wire::scsi::{Defect, DefectFormat, Defects};

use super::Device;
use super::verb_jobs::DeviceOnCore;
use crate::ccb::Command;
use crate::class::CamClass;
use crate::periph::pass::{Data, Request};

/// Most bytes of a defect list that are requested; a longer list is only counted.
const DEFECT_LEN: u32 = 65_536;

/// List the defects of a SCSI disk's medium
///
/// Defects are shown as blocks, cylinder:head:sector or bytes from index, in the format of the
/// disk's answer. Replace a disk whose grown list gets longer.
#[derive(Deserialize, JsonSchema)]
pub(super) struct DefectList {
    name: Device,
    /// Format of the addresses
    #[serde(default)]
    #[schemars(extend("x-short" = "f"))]
    format: Format,
    /// Show primary defects, recorded at the factory [default: both lists]
    #[schemars(extend("x-short" = "P"))]
    primary: bool,
    /// Show grown defects, found in use [default: both lists]
    #[schemars(extend("x-short" = "G"))]
    grown: bool,
    /// Print only the number of defects
    #[schemars(extend("x-short" = "s"))]
    summary: bool,
    /// With -s: print only the number
    #[schemars(extend("x-short" = "q"))]
    quiet: bool,
    /// Index of the first listed defect
    #[serde(default)]
    #[schemars(extend("x-short" = "S"), range(max = u32::MAX))]
    offset: u32,
    /// Print addresses in hexadecimal
    #[schemars(extend("x-short" = "X"))]
    hex: bool,
}

#[derive(Clone, Copy, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
enum Format {
    Block = DefectFormat::Block as isize,
    #[default]
    LongBlock = DefectFormat::LongBlock as isize,
    Bfi = DefectFormat::BytesFromIndex as isize,
    Phys = DefectFormat::PhysicalSector as isize,
}

/// The defects of a medium.
#[derive(Serialize, JsonSchema)]
pub(super) struct DefectsAnswer {
    /// Result for people.
    text: String,
    /// Number of defects.
    count: usize,
    /// Whether primary defects are among them.
    primary: bool,
    /// Whether grown defects are among them.
    grown: bool,
    /// Addresses of the defects that fit into the answer of the disk.
    defects: Vec<String>,
}

impl Verb<CamClass> for DefectList {
    const NAME: &'static str = "defects";
    const EXAMPLE: &'static str = "defects da0 -G";
    type Answer = Deferred<DefectsAnswer>;

    fn run(self, (class, control): At<'_, CamClass>) -> Result<Self::Answer, Error> {
        let on = self.name.0.clone();
        class.run_on_device(control, (Self::NAME, &on), |talk| {
            Box::pin(async move { self.answer(&talk).await })
        })
    }
}

impl DefectList {
    async fn answer(&self, talk: &DeviceOnCore<'_>) -> Result<DefectsAnswer, Error> {
        talk.require_scsi("defect lists that can be read")?;
        let format = self.format as u8;
        let (primary, grown) = (self.primary || !self.grown, self.grown || !self.primary);
        let wanted = u8::from(primary) << 4 | u8::from(grown) << 3 | format;
        let offset = self.offset;
        let [[a, b, c, d], [e, f, g, h]] = [DEFECT_LEN, offset].map(u32::to_be_bytes);
        let cdb = [0xb7, wanted, e, f, g, h, a, b, c, d, 0, 0];
        let request = Request::with_recovery(Command::scsi(&cdb), Data::In(DEFECT_LEN));
        let asking = format!("{}: READ DEFECT DATA", talk.name());
        let answer = talk.send(request).await?;
        let (twelve, data) = match answer.ended.result {
            // The short command is older, and begins at the first.
            Err(Errno::Inval) if offset == 0 => {
                let cdb = [0x37, 0, wanted, 0, 0, 0, 0, 0xff, 0xfc, 0];
                let request = Request::with_recovery(Command::scsi(&cdb), Data::In(0xfffc));
                (false, talk.send(request).await?.good(&asking)?)
            }
            _ => (true, answer.good(&asking)?),
        };
        let defects = Defects::decode(twelve, &data)
            .map_err(|e| Error::new(Errno::Io, format!("{asking}: the answer's {e}")))?;
        Ok(self.report(&defects))
    }

    fn report(&self, defects: &Defects) -> DefectsAnswer {
        let DefectList { summary, quiet, hex, offset, .. } = *self;
        let number = |n: u64| if hex { format!("{n:#x}") } else { n.to_string() };
        let one = |defect: &Defect| match *defect {
            Defect::Block(lba) => number(lba),
            Defect::Place(cylinder, head, at) => {
                // All ones: the whole track.
                let at = if at == u32::MAX { "-1".to_owned() } else { number(u64::from(at)) };
                format!("{}:{}:{at}", number(u64::from(cylinder)), number(u64::from(head)))
            }
        };
        let list: Vec<String> = defects.list.iter().map(one).collect();
        let plural = if defects.count == 1 { "" } else { "s" };
        let end = if summary || defects.count == 0 { "." } else { ":" };
        let mut text = match summary && quiet {
            true => format!("{}\n", defects.count),
            false => format!("Got {} defect{plural}{end}\n", defects.count),
        };
        if !summary {
            list.iter().for_each(|line| text.extend([line, "\n"]));
            let left = defects.count - defects.list.len();
            if left > 0 {
                let _ = writeln!(
                    text,
                    "... and {left} more, from -S {} on",
                    u64::from(offset) + list.len() as u64
                );
            }
        }
        let Defects { count, primary, grown, .. } = *defects;
        DefectsAnswer { text, count, primary, grown, defects: list }
    }
}
