//! Control of a modelled disk while it is in use.

use std::sync::Arc;

use bio::sync::Mutex;
use bio::{Errno, Extent};
use geom::Error;
use reactor::model::{DiskOp, FAULTS_MAX, Fault};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::Latency;
use super::layer::{ModelState, Rate};
use crate::kind::{Unit, VerbAnswer};

/// Errors at a rate set at once on one disk; further ones are refused.
const RATES_MAX: usize = 64;

/// Kind of the failing requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FailOp {
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

/// Makes requests fail.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FailParams {
    /// Failing requests: `read`, `write`, `flush`, `delete` or `write_zeroes`.
    pub op: FailOp,
    /// First byte of the bad range.
    #[serde(default)]
    pub offset: u64,
    /// Bytes of the bad range; absent: to the end of the disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub length: Option<u64>,
    /// Name of the error; absent: EIO.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Number of failures; absent: until healed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub times: Option<u32>,
    /// Share of the requests that fail, in percent; absent: all. Not together with `times`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100))]
    pub percent: Option<u8>,
}

/// Makes every request take longer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DelayParams {
    /// Added time in ms; zero ends the delay.
    #[schemars(range(max = 3_600_000))]
    pub delay_ms: u32,
}

/// Makes flushes succeed without writing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LieParams {
    /// Whether flushes are ignored from now on.
    pub lies: bool,
}

pub(super) struct ModelUnit {
    pub(super) state: Arc<Mutex<ModelState>>,
    pub(super) latency: Latency,
}

fn read<P: DeserializeOwned>(verb: &str, params: &Value) -> Result<P, Error> {
    let object = if params.is_null() { json!({}) } else { params.clone() };
    serde_json::from_value(object).map_err(|e| Error::inval(format!("{verb}: {e}")))
}

fn fail(state: &mut ModelState, p: &FailParams) -> Result<VerbAnswer, Error> {
    let size = state.disk.size();
    let length = p.length.unwrap_or(size.saturating_sub(p.offset));
    let range = Extent::new(p.offset, length).filter(|r| r.end() <= size && !r.is_empty());
    let Some(range) = range else {
        return Err(Error::inval(format!("fail: the range is outside the disk's {size} bytes")));
    };
    let name = p.error.as_deref().unwrap_or("EIO");
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
    Ok(VerbAnswer::message(format!("{:?} of bytes {from} to {to} fails with {name}", p.op)))
}

impl Unit for ModelUnit {
    fn size(&mut self) -> Result<u64, Errno> {
        Ok(self.state.lock().disk.size())
    }

    fn show(&self) -> Vec<(&'static str, String)> {
        let state = self.state.lock();
        let (used, dirty) = state.disk.used_and_dirty();
        let latency = match self.latency {
            Latency::Flash => "flash",
            Latency::Spinning => "spinning",
            Latency::Between => "between",
            Latency::None => "none",
        };
        let cache = if state.disk.shape().volatile_cache { "volatile" } else { "none" };
        vec![
            ("latency", latency.to_string()),
            ("extra delay", format!("{} ms", state.extra_ns / 1_000_000)),
            ("write cache", cache.to_string()),
            ("sectors used", used.to_string()),
            ("sectors not flushed", dirty.to_string()),
            ("under way", state.under_way().to_string()),
            ("hangs", if state.hangs { "yes" } else { "no" }.to_string()),
            ("power cuts", state.disk.power_cuts().to_string()),
        ]
    }

    fn verbs(&self) -> &'static [(&'static str, &'static str)] {
        &[
            ("power-cut", "The power goes and comes back: what was not flushed may be lost."),
            ("fail", "Requests of one kind, in a range, fail: always, so often, or by chance."),
            ("heal", "Nothing fails any more, by `fail`, `delay` or `lie`."),
            ("hang", "Nothing ends any more."),
            ("release", "What hangs goes on."),
            ("delay", "Every request takes longer."),
            ("lie", "Flushes and durable writes answer without doing."),
        ]
    }

    fn verb(&mut self, verb: &str, params: &Value) -> Result<VerbAnswer, Error> {
        let mut state = self.state.lock();
        match verb {
            "power-cut" => {
                let under_way = state.under_way();
                let wake = state.power_cut();
                let message = format!(
                    "the power was cut and restored; requests ended: \
                                       {under_way}"
                );
                let value = json!({ "ended": under_way, "message": message });
                Ok(VerbAnswer { value, wake })
            }
            "fail" => fail(&mut state, &read(verb, params)?),
            "heal" => {
                state.disk.clear_faults();
                state.disk.set_ignores_flushes(false);
                state.rates.clear();
                state.extra_ns = 0;
                Ok(VerbAnswer::message("healed"))
            }
            "hang" => {
                state.hangs = true;
                Ok(VerbAnswer::message("requests hang until release or power-cut"))
            }
            "release" => {
                let wake = state.release();
                let message = format!("requests released: {}", wake.len());
                Ok(VerbAnswer {
                    value: json!({ "released": wake.len(), "message": message }),
                    wake,
                })
            }
            "delay" => {
                let p: DelayParams = read(verb, params)?;
                state.extra_ns = u64::from(p.delay_ms) * 1_000_000;
                Ok(VerbAnswer::message(format!("every request now takes {} ms more", p.delay_ms)))
            }
            "lie" => {
                let p: LieParams = read(verb, params)?;
                state.disk.set_ignores_flushes(p.lies);
                Ok(VerbAnswer::message(if p.lies {
                    "flushes succeed without being carried out"
                } else {
                    "flushes \
                                                    are carried out"
                }))
            }
            other => Err(Error::new(Errno::NotSup, format!("no verb {other}"))),
        }
    }
}
