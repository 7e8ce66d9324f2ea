//! `tags`: how many commands a disk gets at a time.

use std::fmt::Write;

use geom::{At, Deserialize, Error, JsonSchema, Verb};
use serde::Serialize;

use super::DiskName;
use crate::class::CamClass;
use crate::device::Shape;

/// Show or set the number of concurrent commands of a disk
///
/// An opening is one concurrent command. QUEUE FULL lowers the number of openings. 256 successful
/// commands with all openings in use raise it by one again, up to the set number.
#[derive(Deserialize, JsonSchema)]
pub(super) struct Tags {
    name: DiskName,
    /// New maximum number of openings [default: show the present number]
    #[schemars(extend("x-short" = "N"))]
    #[schemars(range(min = 1, max = 255))]
    number: Option<u8>,
    /// Print only the number
    #[schemars(extend("x-short" = "q"))]
    quiet: bool,
    /// Also show commands in use, queued and held back
    #[schemars(extend("x-short" = "v"))]
    verbose: bool,
}

/// The commands of a disk.
#[derive(Serialize, JsonSchema)]
pub(super) struct TagsAnswer {
    /// Result for people.
    text: String,
    /// Commands that the disk gets at a time.
    openings: u32,
    /// Commands that the disk has.
    active: u32,
    /// Commands in use.
    allocated: usize,
    /// Commands that wait for an opening.
    queued: usize,
    /// Commands that are held back until a recovery ends.
    held: u32,
    /// Minimum of `openings`.
    min: u32,
    /// Maximum of `openings`.
    max: u32,
}

impl Verb<CamClass> for Tags {
    const NAME: &'static str = "tags";
    const EXAMPLE: &'static str = "tags da0 -N 32";
    type Answer = TagsAnswer;

    fn run(self, (class, _): At<'_, CamClass>) -> Result<TagsAnswer, Error> {
        let found = class.disk(&self.name.0)?;
        if let Some(openings_max) = self.number.map(u32::from) {
            let shape = found.unit.inspect(|device| device.shape());
            let openings_min = shape.openings_min.min(openings_max);
            found.unit.limit(Shape { openings_min, openings_max, ..shape });
        }
        let path = found.unit.path();
        let ((openings, active), live, shape, held) =
            found.unit.inspect(|d| (d.openings(), d.live(), d.shape(), d.held()));
        let queued = live.saturating_sub(active as usize + held as usize);
        let sim = found.unit.sim().facts().name;
        let place = match self.quiet {
            true => String::new(),
            false => format!("({}:{sim}:0:{}:{}): ", found.pass_name(), path.target, path.lun),
        };
        let mut text = String::new();
        if self.number.is_some() && !self.quiet {
            let _ = writeln!(text, "{place}tagged openings now {openings}");
        }
        if self.verbose {
            let lines = [
                ("dev_openings", u64::from(openings.saturating_sub(active))),
                ("dev_active", u64::from(active)),
                ("allocated", live as u64),
                ("queued", queued as u64),
                ("held", u64::from(held)),
                ("mintags", u64::from(shape.openings_min)),
                ("maxtags", u64::from(shape.openings_max)),
            ];
            for (key, value) in lines {
                let _ = writeln!(text, "{place}{key:<13} {value}");
            }
        } else {
            let words = if self.quiet { "" } else { "device openings: " };
            let _ = writeln!(text, "{place}{words}{openings}");
        }
        let Shape { openings_min: min, openings_max: max, .. } = shape;
        Ok(TagsAnswer { text, openings, active, allocated: live, queued, held, min, max })
    }
}
