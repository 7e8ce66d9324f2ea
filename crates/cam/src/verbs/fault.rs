//! `fault`: faults of a disk of a virtual HBA, by hand.

use std::fmt::Write;
use std::sync::Arc;

use bio::{Errno, Extent};
use geom::{At, Change, ClassParams, Deserialize, Error, JsonSchema, Verb};
use reactor::model::{self, DiskOp};
use serde::Serialize;

use crate::class::CamClass;
use crate::sim::Sim;
use crate::sims::hba::{Faults, VirtualHba};
use crate::unit::Unit;

/// Show or set faults of a disk of a virtual bus
///
/// For tests of layers above a disk; disks of other buses have no injected faults. Each rate is in
/// percent of commands and stays until it is set again; without options the rates are shown.
/// --clear sets all rates to 0, but does not start a stopped disk or plug in a pulled one. A pulled
/// disk has no name: use its bus and target, as in mps0:3.
///
/// --bad creates bad blocks: they cannot be read until they are written, as on real disks. --forge
/// replaces the answer to a command, selected by its first byte, with the given bytes: 12=00,00,06
/// for INQUIRY, 12/83= for an empty answer to its page 83h only (ATA: FEATURES, as in b0/d0). Both
/// stay until --clear.
#[derive(Deserialize, JsonSchema)]
pub(super) struct Fault {
    /// Disk, or its bus and target: da0, mps0:3
    name: String,
    #[serde(flatten)]
    rates: Change<Faults>,
    /// Blocks to make unreadable: the first block, or the first block and a count, as in 100+8
    bad: Option<String>,
    /// Command and its forged answer: COMMAND[/PAGE]=BYTE,BYTE..., in hexadecimal
    forge: Option<String>,
    /// Clear all rates, bad blocks and forged answers
    clear: bool,
    /// Stop the motor; the disk must be started again
    stop: bool,
    /// Cut and restore power; unflushed writes may be lost
    cut_power: bool,
    /// Pull the disk out
    pull: bool,
    /// Plug the disk in again
    push: bool,
}

/// The rates of faults.
#[derive(Serialize, JsonSchema)]
pub(super) struct FaultAnswer {
    /// Result for people.
    text: String,
    #[serde(flatten)]
    rates: Faults,
}

impl Verb<CamClass> for Fault {
    const NAME: &'static str = "fault";
    const EXAMPLE: &'static str = "fault da0 --fails 1 --hangs 1";
    type Answer = FaultAnswer;

    fn run(self, (class, _): At<'_, CamClass>) -> Result<FaultAnswer, Error> {
        let on = self.name.as_str();
        let (sim, bay) = class.bay(on)?;
        let none = || {
            let what = format!("{on}: not a disk of a virtual bus; no faults can be injected");
            Error::new(Errno::NotSup, what)
        };
        let hba: &VirtualHba = sim.hba().ok_or_else(none)?;
        let empty = || Error::new(Errno::NoEnt, format!("there is no disk at {on}"));
        let faults = hba.faults(bay).ok_or_else(empty)?;
        if self.pull && self.push {
            return Err(Error::inval("pull or push, not both"));
        }
        let forged = self.forge.as_deref().map(forgery).transpose()?;
        let bad = self.bad.as_deref().map(|text| bad_blocks(hba, bay, text)).transpose()?;
        let before = if self.clear { Faults::default() } else { faults };
        let faults = self.rates.over("cam fault", &before)?;
        hba.set_faults(bay, faults);
        if self.clear {
            hba.clear_injected_faults(bay);
        }
        if let Some((command, page, bytes)) = forged {
            hba.forge(bay, command, page, &bytes);
        }
        if let Some(range) = bad {
            let fault = model::Fault { range, op: DiskOp::Read, error: Errno::Io, times: None };
            let full = || Error::new(Errno::NoSpc, format!("{on}: too many bad ranges"));
            hba.inject_medium_fault(bay, fault).ok_or_else(full)?;
        }
        if self.stop {
            hba.stop(bay);
        }
        if self.cut_power {
            hba.power_cut(bay);
        }
        if self.pull || self.push {
            hba.set_present(bay, self.push);
            hba.link_changed(bay);
        }
        let mut text = String::new();
        for (name, rate) in rates(&faults) {
            let _ = writeln!(text, "{on}: {name:<7}{rate:>3} of 100");
        }
        Ok(FaultAnswer { text, rates: faults })
    }
}

impl ClassParams for Faults {}

fn rates(f: &Faults) -> [(&'static str, u8); 9] {
    [
        ("fails", f.fails),
        ("lies", f.lies),
        ("hangs", f.hangs),
        ("echoes", f.echoes),
        ("full", f.full),
        ("deaf", f.deaf),
        ("mute", f.mute),
        ("dark", f.dark),
        ("quiet", f.quiet),
    ]
}

/// Lasting faults that were injected into a disk; `None` on a disk without one.
pub(crate) fn faults(unit: &Unit) -> Option<String> {
    let (hba, bay) = (unit.sim().hba()?, unit.path().target);
    let rates = rates(&hba.faults(bay)?)
        .into_iter()
        .filter(|(_, rate)| *rate > 0)
        .map(|(name, rate)| format!("{name} {rate}"));
    let (bad, forged) = hba.injected_faults(bay);
    let counts = [("bad places", bad), ("forged answers", forged)].into_iter();
    let counts = counts.filter(|(_, n)| *n > 0).map(|(what, n)| format!("{what} {n}"));
    let all: Vec<String> = rates.chain(counts).collect();
    (!all.is_empty()).then(|| all.join(", "))
}

/// `12/83=00,83`: a command's first byte, the page that is meant, and the answer.
fn forgery(text: &str) -> Result<(u8, Option<u8>, Vec<u8>), Error> {
    let byte = |text: &str| {
        let refuse = |_| {
            let what = format!(
                "forge={text}: a byte in hexadecimal is wanted: COMMAND[/PAGE]=BYTE,BYTE..."
            );
            Error::inval(what)
        };
        u8::from_str_radix(text.trim(), 16).map_err(refuse)
    };
    let (which, bytes) = text.split_once('=').unwrap_or((text, ""));
    let (command, page) = match which.split_once('/') {
        Some((command, page)) => (command, Some(byte(page)?)),
        None => (which, None),
    };
    let bytes = bytes.split([',', ' ']).filter(|word| !word.is_empty());
    Ok((byte(command)?, page, bytes.map(byte).collect::<Result<_, _>>()?))
}

/// `100+8`: blocks of a disk, as bytes of its medium.
fn bad_blocks(hba: &VirtualHba, bay: u64, text: &str) -> Result<Extent, Error> {
    let (first, count) = text.split_once('+').unwrap_or((text, "1"));
    let number = |text: &str| text.trim().parse::<u64>().ok();
    let (block, size) = hba.medium(bay).unwrap_or_default();
    let bytes = |blocks: u64| blocks.checked_mul(block);
    let range = number(first).and_then(bytes).zip(number(count).and_then(bytes));
    let range = range.and_then(|(at, len)| Extent::new(at, len));
    range.filter(|r| !r.is_empty() && r.end() <= size).ok_or_else(|| {
        let blocks = size.checked_div(block).unwrap_or(0);
        let what = format!("bad={text}: FIRST or FIRST+NUMBER, of the disk's {blocks} blocks");
        Error::inval(what)
    })
}

impl CamClass {
    /// The bus and the bay of a disk by its name or its place.
    fn bay(&self, on: &str) -> Result<(Arc<dyn Sim>, u64), Error> {
        if let Some((bus, target)) = on.split_once(':') {
            let bus = self.bus(bus).zip(target.parse().ok());
            return bus.map(|(bus, target)| (bus.sim().clone(), target)).ok_or_else(|| {
                let what = format!("there is no place {on}; name it as BUS:TARGET, as in mps0:3");
                Error::new(Errno::NoEnt, what)
            });
        }
        self.disk(on).map(|found| (found.unit.sim().clone(), found.unit.path().target))
    }
}
