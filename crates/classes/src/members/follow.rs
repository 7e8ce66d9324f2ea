//! follow: the label of a provider that grew while nobody looked is brought to its new end.
//!
//! Labels stand in the last sector, and nobody looks elsewhere: what once was a label in the middle
//! of a larger disk is not to be believed unasked. So a provider that grows while its label is not
//! in use, or a power cut that comes before the label has moved, loses sight of it until somebody
//! says how large the provider was.
//!
//! ```text
//!   old place: a label that says the old size --> what goes with it, then the label, durable at
//!        the new end --> the old place cleared --> everybody looks again
//! ```
//!
//! A power cut before the new label is durable leaves the old one, and the verb is typed again.

use bio::Errno;
use geom::{ArgKind, ArgSpec, Control, Edge, Error, VerbSpec};
use serde_json::{Value, json};

use super::frame::{self, FrameError};
use super::hand;

/// How far before the end a label is looked for when nobody says where it was, bytes: what
/// `inspect` looks through too.
pub(crate) const SWEEP: u64 = 1 << 20;
/// Bytes of one read of it.
const CHUNK: u64 = 64 << 10;

/// A label that can be brought elsewhere.
pub(crate) struct Placed {
    /// Size of the provider that it was written for, bytes; zero: it does not say.
    pub(crate) provider_bytes: u64,
    /// Bytes right before its sector that go with it.
    pub(crate) ahead: u64,
    /// It stays where it is, though the provider has grown, and why.
    pub(crate) stays: Option<&'static str>,
    /// The same label for a provider of another size.
    pub(crate) renewed: Renew,
    /// The same, without what goes with it: absent where nothing does.
    pub(crate) alone: Option<Renew>,
}

/// A label for a provider of so many bytes.
pub(crate) type Renew = Box<dyn FnOnce(u64) -> Vec<u8>>;

/// Reads a label.
pub(crate) type Read = fn(&[u8]) -> Result<Placed, FrameError>;

/// What was asked for.
pub(crate) struct Ask<'a> {
    pub(crate) class: &'static str,
    pub(crate) member: &'a str,
    /// The size that the provider had, bytes.
    pub(crate) was: Option<u64>,
    pub(crate) force: bool,
    pub(crate) read: Read,
}

pub(crate) const MEMBER: ArgSpec =
    ArgSpec { name: "member", short: None, kind: ArgKind::Name, doc: "The provider that grew" };
pub(crate) const WAS: ArgSpec = ArgSpec {
    name: "was",
    short: None,
    kind: ArgKind::Bytes,
    doc: "The size that it had [default: the label is looked for in the last MiB]",
};

/// The verb, the same in every class with labels.
pub(crate) const FOLLOW: VerbSpec = VerbSpec {
    name: "follow",
    doc: "Bring the label of a provider that has grown to its new end",
    detail: "Labels stand in the last sector and are looked for nowhere else. While they are in \
             use they follow a provider that grows; of one that grew while nothing had it open, \
             or just before the power went, the label stays behind, and it is no longer seen. \
             This brings it along. It must say itself that it was written for a provider as large \
             as --was. Something else in the last sector is overwritten only with --force.",
    args: &[MEMBER, WAS, crate::span::words::FORCE],
    example: "follow d0 --was 10GiB",
    writes: true,
};

/// Carries the verb out.
pub(crate) fn follow(control: &mut Control, ask: &Ask<'_>) -> Result<Value, Error> {
    let on = hand::find(control, ask.member)?;
    let (sector, media) = hand::sizes(control, on);
    let to = frame::last_sector(sector, media).unwrap_or(0);
    let from = hand::reading(control, ask.class, ask.member, |control, edge| {
        check_end(control, edge, ask)?;
        search(control, edge, ask, (sector, media))
    })?;
    let agreed = |_: &mut Control, _: Edge| Ok(());
    hand::writing(control, ask.class, ask.member, agreed, |control, edge| {
        carry(control, edge, ask, (sector, media), from)
    })?;
    // The same disk may be seen by other paths.
    hand::look_again(control)?;
    control.settle()?;
    let message = format!("{}: its label was at byte {from} and is at byte {to} now", ask.member);
    Ok(json!({ "message": message, "from": from, "to": to }))
}

/// What stands at the end now must be nothing, or may be lost.
fn check_end(control: &mut Control, edge: Edge, ask: &Ask<'_>) -> Result<(), Error> {
    let (_, last) = hand::last(control, ask.member, edge)?;
    let name = ask.member;
    if let Ok(placed) = (ask.read)(&last) {
        let size = placed.provider_bytes;
        let what = format!("{name} has a label of {} at its end ({size} bytes)", ask.class);
        return Err(Error::new(Errno::Exist, what));
    }
    if ask.force || last.iter().all(|b| *b == 0) {
        return Ok(());
    }
    let what = format!(
        "the last sector of {name} holds something (`ashlar inspect {name}` says what); give \
         --force if it may be lost"
    );
    Err(Error::new(Errno::Exist, what))
}

/// Where the label is that was left behind.
fn search(
    control: &mut Control,
    edge: Edge,
    ask: &Ask<'_>,
    (sector, media): (u32, u64),
) -> Result<u64, Error> {
    let (name, class) = (ask.member, ask.class);
    let unit = u64::from(sector).max(1);
    let end = frame::last_sector(sector, media).unwrap_or(0);
    if let Some(was) = ask.was {
        let at = frame::last_sector(sector, was).filter(|at| *at < end).ok_or_else(|| {
            let what = format!("{name} has {media} bytes; --was is a smaller size");
            Error::new(Errno::Inval, what)
        })?;
        let bytes = hand::read(control, name, edge, at, sector as usize)?;
        let placed = (ask.read)(&bytes).map_err(|e| {
            let what = format!("{name}, where it ended when it had {was} bytes: {e}");
            Error::new(Errno::NoEnt, what)
        })?;
        return match frame::is_of_size(placed.provider_bytes, was) {
            true => Ok(at),
            false => {
                let size = placed.provider_bytes;
                let what = format!("the label there was written for a provider of {size} bytes");
                Err(Error::new(Errno::Inval, what))
            }
        };
    }
    let start = end.saturating_sub(SWEEP);
    let mut to = end;
    while to > start {
        let from = to.saturating_sub(CHUNK.max(unit)).max(start);
        let bytes = hand::read(control, name, edge, from, (to - from) as usize)?;
        for (number, bytes) in bytes.chunks(sector as usize).enumerate().rev() {
            let at = from + number as u64 * unit;
            let Ok(placed) = (ask.read)(bytes) else { continue };
            if is_left_behind(&placed, sector, at) {
                return Ok(at);
            }
        }
        to = from;
    }
    let what = format!(
        "no label of {class} was left behind in the last MiB of {name}; say with --was how large \
         it was"
    );
    Err(Error::new(Errno::NoEnt, what))
}

/// Whether a label at this byte says that it is in the last sector.
pub(crate) fn is_left_behind(placed: &Placed, sector: u32, at: u64) -> bool {
    frame::last_sector(sector, placed.provider_bytes) == Some(at)
}

fn carry(
    control: &mut Control,
    edge: Edge,
    ask: &Ask<'_>,
    (sector, media): (u32, u64),
    from: u64,
) -> Result<(), Error> {
    let name = ask.member;
    let (to, len) = (frame::last_sector(sector, media).unwrap_or(from), sector as usize);
    let old = hand::read(control, name, edge, from, len)?;
    let wrong = |e: FrameError| Error::new(Errno::Inval, format!("{name}: {e}"));
    let Placed { ahead, alone, renewed, stays, .. } = (ask.read)(&old).map_err(wrong)?;
    if let Some(why) = stays {
        let was = from + u64::from(sector);
        let what =
            format!("{name}: {why}; a nop on it with a size of {was} bytes shows it as it was");
        return Err(Error::new(Errno::Inval, what));
    }
    let mut under = false;
    if let (true, Some(was), Some(is)) = (ahead > 0, from.checked_sub(ahead), to.checked_sub(ahead))
    {
        let bytes = hand::read(control, name, edge, was, ahead as usize)?;
        // Its new place is where the label was: that is gone then, so there is another one before.
        under = (is..to).contains(&from);
        if let Some(alone) = alone.filter(|_| under) {
            let mut label = alone(media);
            label.resize(len, 0);
            hand::write(control, name, edge, to, label)?;
        }
        hand::write(control, name, edge, is, bytes)?;
    }
    let mut label = renewed(media);
    label.resize(len, 0);
    hand::write(control, name, edge, to, label)?;
    match under {
        true => Ok(()),
        false => hand::write(control, name, edge, from, vec![0; len]),
    }
}
