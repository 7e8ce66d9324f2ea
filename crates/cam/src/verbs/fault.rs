//! `fault`: what goes wrong with a disk of a virtual HBA, by hand.

use std::fmt::Write;
use std::sync::Arc;

use bio::{Errno, Extent};
use geom::{ArgKind, ArgSpec, Error, VerbSpec};
use reactor::model::{DiskOp, Fault};
use serde_json::{Value, json};

use super::verb;
use crate::class::CamClass;
use crate::sim::Sim;
use crate::sims::hba::{Faults, VirtualHba};
use crate::unit::Unit;

const fn hundredths(name: &'static str, doc: &'static str) -> ArgSpec {
    ArgSpec { name, short: None, kind: ArgKind::Number, doc }
}

const fn flag(name: &'static str, doc: &'static str) -> ArgSpec {
    ArgSpec { name, short: None, kind: ArgKind::Flag, doc }
}

pub(super) const FAULT: VerbSpec = VerbSpec {
    detail: "For trying out what stands on a disk; disks of other buses have no such thing. Each \
             rate is a number of commands of a hundred and stays until it is set again; without \
             options they are shown. --clear sets all to 0, and starts and plugs nothing in. A \
             disk that was pulled has no name any more: its place does, by the bus and the target, \
             as in mps0:3.\n\n\
             --bad gives the medium bad blocks: they cannot be read until they are written, as on \
             real disks. --forge has the device answer a command, by its first byte, with bytes of \
             one's own, whatever they are: 12=00,00,06 for INQUIRY, 12/83= for its page 83h alone, \
             with no bytes at all (ATA: FEATURES, as in b0/d0). Both stay until --clear.",
    ..verb(
        "fault",
        "Show or set what goes wrong with a disk of a virtual bus",
        &[
            ArgSpec {
                name: "name",
                short: None,
                kind: ArgKind::Name,
                doc: "A disk, or its place: da0, mps0:3",
            },
            hundredths("fails", "Answered with an error, not carried out"),
            hundredths("lies", "Answered with an error, and carried out all the same"),
            hundredths("hangs", "Not answered until aborted"),
            hundredths("echoes", "Answered twice"),
            hundredths("full", "Answered QUEUE FULL though there is room"),
            hundredths("deaf", "Aborts that are not heard"),
            hundredths("mute", "SATA: reads of the log that says which queued command failed"),
            hundredths("dark", "On a port multiplier: resets after which the link stays down"),
            hundredths("quiet", "A port multiplier: changes at its ports that it does not tell"),
            ArgSpec {
                name: "bad",
                short: None,
                kind: ArgKind::Text,
                doc: "Blocks that cannot be read: the first, or first and number, as in 100+8",
            },
            ArgSpec {
                name: "forge",
                short: None,
                kind: ArgKind::Text,
                doc: "A command, and what it is answered with: COMMAND[/PAGE]=BYTE,BYTE..., in \
                      hexadecimal",
            },
            flag("clear", "All rates are 0, no block is bad, and no answer forged"),
            flag("stop", "The motor stops: it must be started"),
            flag("cut_power", "Power goes and comes: what was not flushed may be lost"),
            flag("pull", "The disk is pulled out"),
            flag("push", "It is pushed in again"),
        ],
        "fault da0 --fails 1 --hangs 1",
    )
};

type Rate = (&'static str, fn(&mut Faults) -> &mut u8);

const RATES: [Rate; 9] = [
    ("fails", |f| &mut f.fails),
    ("lies", |f| &mut f.lies),
    ("hangs", |f| &mut f.hangs),
    ("echoes", |f| &mut f.echoes),
    ("full", |f| &mut f.full),
    ("deaf", |f| &mut f.deaf),
    ("mute", |f| &mut f.mute),
    ("dark", |f| &mut f.dark),
    ("quiet", |f| &mut f.quiet),
];

/// What was made to go wrong with a disk and stays so; `None` on a disk that is well.
pub(crate) fn faults(unit: &Unit) -> Option<String> {
    let (hba, bay) = (unit.sim().hba()?, unit.path().target);
    let mut now = hba.faults(bay)?;
    let rates = RATES.iter().map(|(name, rate)| (*name, *rate(&mut now)));
    let rates = rates.filter(|(_, rate)| *rate > 0).map(|(name, rate)| format!("{name} {rate}"));
    let (bad, forged) = hba.spoilt(bay);
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
                let what = format!("there is no place {on}; BUS:TARGET is one, as in mps0:3");
                Error::new(Errno::NoEnt, what)
            });
        }
        self.disk(on).map(|found| (found.unit.sim().clone(), found.unit.path().target))
    }

    pub(super) fn fault(&self, on: &str, params: &Value) -> Result<Value, Error> {
        let (sim, bay) = self.bay(on)?;
        let none = || {
            let what = format!("{on} is no disk of a virtual bus: it fails when it likes");
            Error::new(Errno::NotSup, what)
        };
        let hba: &VirtualHba = sim.hba().ok_or_else(none)?;
        let is = |flag: &str| params[flag].as_bool().unwrap_or(false);
        let empty = || Error::new(Errno::NoEnt, format!("there is no disk at {on}"));
        let mut faults = hba.faults(bay).ok_or_else(empty)?;
        if is("pull") && is("push") {
            return Err(Error::inval("pull or push, not both"));
        }
        let forged = params["forge"].as_str().map(forgery).transpose()?;
        let bad = params["bad"].as_str().map(|text| bad_blocks(hba, bay, text)).transpose()?;
        if is("clear") {
            faults = Faults::default();
        }
        for (name, rate) in RATES {
            let Some(wanted) = params[name].as_u64() else { continue };
            let wanted = u8::try_from(wanted).ok().filter(|n| *n <= 100);
            *rate(&mut faults) = wanted.ok_or_else(|| {
                let what = format!("{name}={}: from 0 to 100 of a hundred", params[name]);
                Error::inval(what)
            })?;
        }
        hba.set_faults(bay, faults);
        if is("clear") {
            hba.mend(bay);
        }
        if let Some((command, page, bytes)) = forged {
            hba.forge(bay, command, page, &bytes);
        }
        if let Some(range) = bad {
            let fault = Fault { range, op: DiskOp::Read, error: Errno::Io, times: None };
            let full = || Error::new(Errno::NoSpc, format!("{on} has too many bad places"));
            hba.spoil(bay, fault).ok_or_else(full)?;
        }
        if is("stop") {
            hba.stop(bay);
        }
        if is("cut_power") {
            hba.power_cut(bay);
        }
        if is("pull") || is("push") {
            hba.set_present(bay, is("push"));
            hba.link_changed(bay);
        }
        let (mut text, mut value) = (String::new(), json!({}));
        for (name, rate) in RATES {
            let rate = *rate(&mut faults);
            let _ = writeln!(text, "{on}: {name:<7}{rate:>3} of 100");
            value[name] = rate.into();
        }
        value["text"] = text.into();
        Ok(value)
    }
}
