//! `fail`: requests of a simulated disk that fail.

use bio::{Errno, Extent};
use geom::{At, Bytes, Deserialize, Error, JsonSchema, MessageAnswer, Verb};
use reactor::model::{DiskOp, FAULTS_MAX, Fault};

use super::with_model;
use crate::class::DiskClass;
use crate::model::layer::{ModelState, Rate};

/// Errors at a rate set at once on one disk; further ones are refused.
const RATES_MAX: usize = 64;

/// Kind of the failing requests.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum FailOp {
    /// Reads. A write to the range heals it, as a disk remaps a bad sector.
    Read,
    /// Writes.
    Write,
    /// Flushes.
    Flush,
    /// Deletes.
    Delete,
    /// Zeroing commands.
    WriteZeroes,
}

/// The words of [`FailOp`].
const OPS: [&str; 5] = ["read", "write", "flush", "delete", "write_zeroes"];

/// Make requests of a simulated disk fail
///
/// They fail always, a number of times, or by chance. A write to a range whose reads fail heals it.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct Fail {
    /// Name of the disk
    name: String,
    /// Failing requests
    #[schemars(with = "String", extend("enum" = OPS))]
    op: FailOp,
    /// First byte of the bad range
    #[serde(default)]
    offset: Bytes,
    /// Bytes of the bad range [default: to the end of the disk]
    length: Option<Bytes>,
    /// Name of the error
    #[serde(default = "io_error")]
    error: String,
    /// Number of failures [default: until healed]
    #[schemars(range(min = 1))]
    times: Option<u32>,
    /// Share of the requests that fail, in percent, not together with --times [default: all]
    #[schemars(range(min = 1, max = 100))]
    percent: Option<u8>,
}

fn io_error() -> String {
    Errno::Io.name().to_owned()
}

impl Verb<DiskClass> for Fail {
    const NAME: &'static str = "fail";
    const POSITIONAL: &'static [&'static str] = &["name", "op"];
    const EXAMPLE: &'static str = "disk fail d0 read --offset 0 --length 4096 --times 1";
    type Answer = MessageAnswer;

    fn run(self, (_, control): At<'_, DiskClass>) -> Result<MessageAnswer, Error> {
        with_model(control, &self.name, |state| fail(state, &self))
    }
}

fn fail(state: &mut ModelState, p: &Fail) -> Result<MessageAnswer, Error> {
    let size = state.disk.size();
    let length = p.length.map_or(size.saturating_sub(p.offset.0), |length| length.0);
    let range = Extent::new(p.offset.0, length).filter(|r| r.end() <= size && !r.is_empty());
    let Some(range) = range else {
        return Err(Error::inval(format!("fail: the range is outside the disk's {size} bytes")));
    };
    let name = p.error.as_str();
    let known = |e: &&Errno| e.name().eq_ignore_ascii_case(name) && **e != Errno::NoMem;
    let Some(&error) = Errno::ALL.iter().find(known) else {
        return Err(Error::inval(format!("fail: no error {name} that a disk could give")));
    };
    let op = match p.op {
        FailOp::Read => DiskOp::Read,
        FailOp::Write => DiskOp::Write,
        FailOp::Flush => DiskOp::Flush,
        FailOp::Delete => DiskOp::Discard,
        FailOp::WriteZeroes => DiskOp::Zero,
    };
    match (p.percent, p.times) {
        (Some(_), Some(_)) => return Err(Error::inval("fail: either times or percent, not both")),
        (Some(1..=100), None) if state.rates.len() >= RATES_MAX => {
            let what = format!("fail: {RATES_MAX} rates are set already; heal first");
            return Err(Error::new(Errno::NoSpc, what));
        }
        (Some(percent @ 1..=100), None) => state.rates.push(Rate { op, range, percent, error }),
        (Some(_), None) => return Err(Error::inval("fail: percent must be 1 to 100")),
        (None, Some(0)) => return Err(Error::inval("fail: times must be at least 1")),
        (None, times) => state.disk.fail(Fault { range, op, error, times }).map_err(|_| {
            let what = format!("fail: {FAULTS_MAX} faults are set already; heal first");
            Error::new(Errno::NoSpc, what)
        })?,
    }
    let (from, to) = (range.start(), range.end());
    Ok(MessageAnswer::new(format!("{:?} of bytes {from} to {to} fails with {name}", p.op)))
}
