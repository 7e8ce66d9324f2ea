//! Replay of the logs of a volume that was left dirty, before the volume is read.
//!
//! ```text
//! the logs of all members in order are read --> one cannot be believed: all parity is made anew
//!   --> of each entry: data that was being written + partial parity --> the row's parity
//!   --> every member is flushed: parity is right everywhere
//! ```
//!
//! Invariants
//!  Y1  Parity is right when this succeeds: the logs mention all half-written rows, and in these
//!      each strip that was not being written keeps its data.
//!  Y2  An entry with a strip whose member is not in order is skipped: that strip was being
//!      written, and is defined by parity. If a disk is lost with the power, its data in several
//!      strips written at once cannot be recovered. The log keeps others' data, not theirs. The
//!      data of a disk that was lost before is known from the other members (L6 of `log`).
//!  Y3  It may be done again: nothing is written but parity, and the logs stay as they are.
//!  Y4  An entry that is not of the volume's shape spoils the log: nothing is written for any.

use std::ops::Range;
use std::rc::Rc;

use bio::{Errno, parity};
use geom::{Core, Edge, GeomId, Notifier};

use super::log::{LogLocation, area};
use super::map::Shape;
use crate::raid::geom::Message;
use crate::raid::imsm::ppl::{self, Entry, Purpose};

/// Bytes of each strip that are worked on at once.
const STEP: u64 = 64 << 10;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Replayed {
    /// Entries whose parity was made.
    pub(crate) done: usize,
    /// Entries of strips that are not there (Y2).
    pub(crate) skipped: usize,
    /// Entries that were being written when it ended: their rows had not begun.
    pub(crate) torn: usize,
}

/// A volume whose logs are to be replayed.
pub(crate) struct Replay {
    /// Its number among those of its geom.
    pub(crate) key: u32,
    /// Its provider's name.
    pub(crate) name: String,
    pub(crate) shape: Shape,
    pub(crate) sector: u64,
    pub(crate) place: LogLocation,
    /// Members in order by slot: the way to them, and where their part begins.
    pub(crate) members: Vec<Option<(Edge, u64)>>,
}

/// What an entry speaks of.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Rectangle {
    /// The row.
    number: u64,
    /// Bytes within the strips.
    range: Range<u64>,
    /// Slots of the strips that were written.
    slots: Vec<usize>,
}

impl Rectangle {
    /// That of an entry of the log in a slot, if it is one of the volume's.
    fn of(entry: &Entry, slot: usize, shape: &Shape, sector: u64) -> Option<Rectangle> {
        let (data, rest) = (u64::from(entry.data), u64::from(entry.parity));
        let (width, strip) = (shape.width() as u64, shape.strip);
        let first = entry.first.checked_mul(sector)?;
        let (count, len) = match rest {
            0 => (width, data.checked_div(width)?),
            _ => (data.checked_div(rest)?, rest),
        };
        let number = first.checked_div(shape.row_bytes())?;
        let within = first.checked_rem(shape.row_bytes())?;
        let (nth, from) = (within.checked_div(strip)?, within.checked_rem(strip)?);
        let (behind, to) = (nth.checked_add(count)?, from.checked_add(len)?);
        let last = first.checked_add(count.checked_sub(1)?.checked_mul(strip)?)?;
        let is_exact = count.checked_mul(len)? == data && len.checked_rem(sector)? == 0;
        let fits = len > 0 && to <= strip && behind <= width && (rest == 0 || count < width);
        let ends = last.checked_add(len)? <= shape.bytes;
        let row = shape.row(number);
        let ours = row.p == slot && usize::try_from(entry.slot).is_ok_and(|of| of == slot);
        if !(is_exact && fits && ends && ours) {
            return None;
        }
        let slots = (nth..behind).map(|nth| row.data(nth as usize)).collect();
        Some(Rectangle { number, range: from..to, slots })
    }
}

/// Replays; the end is reported to the geom.
pub(crate) fn start(notifier: &Notifier, geom: GeomId, replay: Replay) {
    let back = notifier.clone();
    notifier.call(
        0,
        Box::new(move |core| {
            let (on, core) = (core, core.clone());
            let name = replay.name.clone();
            on.spawn_for("raid replay", &name, async move {
                let result = replay.run(&core).await;
                back.post(geom, Box::new(Message::Replayed { volume: replay.key, result }));
            });
        }),
    );
}

fn failed(what: &str, slot: usize, error: Errno) -> String {
    format!("{what} member {slot} failed: {}", error.text())
}

impl Replay {
    /// The error is why the logs cannot be believed, or could not be replayed.
    async fn run(&self, core: &Rc<Core>) -> Result<Replayed, String> {
        let (mut replayed, mut todo) = (Replayed::default(), Vec::new());
        for (slot, member) in self.members.iter().enumerate() {
            let Some((edge, offset)) = member else { continue };
            let start = offset.saturating_add(self.place.at);
            let bytes = area(core, *edge, start, self.place.bytes).await;
            let bytes = bytes.map_err(|e| failed("reading the log of", slot, e))?;
            let log = ppl::Log::read(&bytes, self.place.signature);
            let log = log.map_err(|fault| format!("the log of member {slot}: {fault}"))?;
            for (entry, rest) in log.entries(&bytes) {
                match entry.purpose() {
                    Purpose::Nothing => {}
                    Purpose::Doubt => return Err("parity was not known to be right".into()),
                    Purpose::Rows if !entry.is_of(rest) => replayed.torn += 1,
                    Purpose::Rows => {
                        let of = Rectangle::of(&entry, slot, &self.shape, self.sector);
                        let Some(of) = of else {
                            let what = "has an entry that is no part of the volume";
                            return Err(format!("the log of member {slot} {what}"));
                        };
                        todo.push((slot, of, rest.to_vec()));
                    }
                }
            }
        }
        for (slot, of, rest) in todo {
            let is_present = |slot: &usize| self.members.get(*slot).is_some_and(Option::is_some);
            match of.slots.iter().all(is_present) {
                true => {
                    self.rebuild_parity(core, slot, &of, &rest).await?;
                    replayed.done += 1;
                }
                false => replayed.skipped += 1,
            }
        }
        for (slot, member) in self.members.iter().enumerate() {
            let Some((edge, _)) = member else { continue };
            match core.flush(*edge).await {
                Ok(()) | Err(Errno::NotSup) => {}
                Err(e) => return Err(failed("flushing", slot, e)),
            }
        }
        Ok(replayed)
    }

    /// Makes the parity of a rectangle.
    async fn rebuild_parity(
        &self,
        core: &Rc<Core>,
        parity_slot: usize,
        of: &Rectangle,
        rest: &[u8],
    ) -> Result<(), String> {
        let row = of.number.saturating_mul(self.shape.strip);
        let way = |slot: usize, at: u64| {
            let (edge, offset) = self.members.get(slot).copied().flatten()?;
            Some((edge, offset.saturating_add(row).saturating_add(at)))
        };
        let mut at = of.range.start;
        while at < of.range.end {
            let len = (of.range.end - at).min(STEP) as usize;
            let skip = (at - of.range.start) as usize;
            let mut sum = vec![0; len];
            if let Some(rest) = rest.get(skip..skip.saturating_add(len)) {
                sum.copy_from_slice(rest);
            }
            for slot in &of.slots {
                let Some((edge, on)) = way(*slot, at) else { continue };
                let read = core.read(edge, on, len).await;
                let read = read.map_err(|e| failed("reading", *slot, e))?;
                if read.len() != len {
                    return Err(failed("reading", *slot, Errno::Io));
                }
                parity::add(&mut sum, &read);
            }
            if let Some((edge, on)) = way(parity_slot, at) {
                let written = core.write(edge, on, &sum).await;
                written.map_err(|e| failed("writing", parity_slot, e))?;
            }
            at = at.saturating_add(len as u64);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::Rectangle;
    use crate::raid::imsm::ppl::Entry;
    use crate::raid::model::{Layout, Level, Member, SubdiskState, Volume};
    use crate::raid::volume::map::Shape;

    const STRIP: u64 = 8192;

    fn shape() -> Shape {
        let state = SubdiskState::Active;
        let member = |disk| Member { disk, offset: 0, bytes: 4 * STRIP, state };
        Shape::of(&Volume {
            name: "v".into(),
            id: [0; 24],
            level: Level::Raid5(Layout::LeftAsymmetric),
            strip: STRIP,
            bytes: 12 * STRIP,
            members: (0..4).map(member).collect(),
            dirty: false,
            migration: None,
            log: None,
        })
    }

    fn entry(first: u64, parity: u32, data: u32, slot: u32) -> Entry {
        Entry { first, parity, data, slot, checksum: 0 }
    }

    fn of(entry: &Entry, slot: usize) -> Option<Rectangle> {
        Rectangle::of(entry, slot, &shape(), 512)
    }

    #[test]
    fn log_entry_maps_to_a_row_its_strips_and_parity() {
        let row = of(&entry(48, 0, 3 * 8192, 2), 2).expect("row 1");
        assert_eq!(row, Rectangle { number: 1, range: 0..STRIP, slots: vec![0, 1, 3] });
        let part = of(&entry(16 + 2, 1024, 2048, 3), 3).expect("row 0");
        assert_eq!(part, Rectangle { number: 0, range: 1024..2048, slots: vec![1, 2] });
    }

    #[test]
    fn log_entry_that_does_not_fit_the_volume_is_refused() {
        assert_eq!(of(&entry(16, 1024, 2048, 3), 2), None, "another member's log");
        assert_eq!(of(&entry(16, 1024, 2048, 1), 3), None, "another slot");
        assert_eq!(of(&entry(16, 1024, 2049, 3), 3), None, "no rectangle");
        assert_eq!(of(&entry(16, 1000, 2000, 3), 3), None, "no sectors");
        assert_eq!(of(&entry(24, 8192, 8192, 3), 3), None, "beyond the strip");
        assert_eq!(of(&entry(32, 1024, 2048, 3), 3), None, "beyond the row");
        assert_eq!(of(&entry(0, 1024, 3072, 3), 3), None, "nothing is left to be summed");
        assert_eq!(of(&entry(u64::MAX, 1024, 1024, 3), 3), None, "far away");
        assert_eq!(of(&entry(12 * 16, 1024, 1024, 3), 3), None, "behind the end");
        assert_eq!(of(&entry(0, 0, 0, 3), 3), None, "nothing");
        assert_eq!(of(&entry(0, u32::MAX, u32::MAX, 3), 3), None, "too much");
    }
}
