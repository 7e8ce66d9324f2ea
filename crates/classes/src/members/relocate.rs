//! Label move (`relocate`): restores the label of a provider that grew while the label was not in
//! use.
//!
//! Labels are stored in the last sector, and no other sector is searched. An old label in the
//! middle of a larger disk must not be trusted without a request. A provider that grows while its
//! label is not in use therefore loses its label. So does one whose power fails before the label
//! has moved. If this daemon has seen the old end of the provider, it searches there itself
//! ([`left`]). If only another machine has, the verb gets the old size as an argument.
//!
//! ```text
//!   old place: a label with the old size --> data that belongs to it, then the label, durable at
//!        the new end --> the old place cleared, by the verb --> the provider is tasted again
//! ```
//!
//! A power cut before the new label is durable leaves the old label, and the move is repeated.

use bio::Errno;
use geom::{Edge, Error, FoundLabel, GraphControl, TasteOutcome, Taster, WriteLabel};
use schemars::JsonSchema;
use serde::Serialize;

use super::frame::{self, FrameError};
use super::provider_access;
use crate::inspect;
use crate::probe_io::carry_out;
use crate::write_plan::WritePlan;

/// Bytes before the end that are searched for a label when no old size is given: the same that
/// `inspect` searches.
pub(crate) const SWEEP: u64 = 1 << 20;
/// Bytes of one read of it.
const CHUNK: u64 = 64 << 10;

/// A label that can be moved.
pub(crate) struct MovableLabel {
    /// Size of the provider that it was written for, bytes; zero if the label has no size.
    pub(crate) provider_bytes: u64,
    /// Bytes right before its sector that are moved with it.
    pub(crate) leading_bytes: u64,
    /// It stays where it is, though the provider has grown, and why.
    pub(crate) fixed_reason: Option<&'static str>,
    /// The same label for a provider of another size.
    pub(crate) rewrite: RewriteLabel,
    /// The same, without the data that belongs to the label. Absent if there is no such data.
    pub(crate) rewrite_alone: Option<RewriteLabel>,
}

/// A label for a provider of so many bytes.
pub(crate) type RewriteLabel = Box<dyn FnOnce(u64) -> Vec<u8>>;

/// Reads a label.
pub(crate) type DecodeLabel = fn(&[u8]) -> Result<MovableLabel, FrameError>;

/// The arguments of the verb.
pub(crate) struct RelocateParams<'a> {
    pub(crate) class: &'static str,
    pub(crate) member: &'a str,
    /// The size that the provider had, bytes.
    pub(crate) old_bytes: Option<u64>,
    pub(crate) force: bool,
    pub(crate) read: DecodeLabel,
}

/// The move of a label.
#[derive(Serialize, JsonSchema)]
pub(crate) struct RelocateAnswer {
    /// Result in one sentence.
    message: String,
    /// Former place of the label, byte of the provider.
    from: u64,
    /// Place of the label, byte of the provider.
    to: u64,
}

/// Carries the verb out.
pub(crate) fn relocate(
    control: &mut GraphControl,
    params: &RelocateParams<'_>,
) -> Result<RelocateAnswer, Error> {
    let RelocateParams { class, member, .. } = *params;
    let on = provider_access::find(control, member)?;
    let (sector, media) = provider_access::sizes(control, on);
    let to = frame::last_sector(sector, media).unwrap_or(0);
    let from = provider_access::with_read_access(control, class, member, |control, edge| {
        check_end(control, edge, params)?;
        search(control, edge, params, (sector, media))
    })?;
    let agreed = |_: &mut GraphControl, _: Edge| Ok(());
    provider_access::with_write_access(control, class, member, agreed, |control, edge| {
        move_label(control, edge, params, (sector, media), from)
    })?;
    // The same disk may be seen by other paths.
    provider_access::taste_all_again(control)?;
    control.settle()?;
    let message = format!("{member}: its label was at byte {from} and is at byte {to} now");
    Ok(RelocateAnswer { message, from, to })
}

/// Checks that the current last sector is empty or may be overwritten.
fn check_end(
    control: &mut GraphControl,
    edge: Edge,
    params: &RelocateParams<'_>,
) -> Result<(), Error> {
    let (_, last) = provider_access::read_last_sector(control, params.member, edge)?;
    let name = params.member;
    if let Ok(placed) = (params.read)(&last) {
        let size = placed.provider_bytes;
        let what = format!("{name} has a label of {} at its end ({size} bytes)", params.class);
        return Err(Error::new(Errno::Exist, what));
    }
    if params.force || last.iter().all(|b| *b == 0) {
        return Ok(());
    }
    let what = format!(
        "the last sector of {name} holds something (`ashlar inspect {name}` shows it); give \
         --force if it may be lost"
    );
    Err(Error::new(Errno::Exist, what))
}

/// Where the label is that was left behind.
fn search(
    control: &mut GraphControl,
    edge: Edge,
    params: &RelocateParams<'_>,
    (sector, media): (u32, u64),
) -> Result<u64, Error> {
    let (name, class) = (params.member, params.class);
    let unit = u64::from(sector).max(1);
    let end = frame::last_sector(sector, media).unwrap_or(0);
    if let Some(was) = params.old_bytes {
        let at = frame::last_sector(sector, was).filter(|at| *at < end).ok_or_else(|| {
            let what =
                format!("{name}: --was must be smaller than the present size ({media} bytes)");
            Error::inval(what)
        })?;
        let bytes = provider_access::read(control, name, edge, at, sector as usize)?;
        let placed = (params.read)(&bytes).map_err(|e| {
            let what = format!("{name}: at its former end ({was} bytes): {e}");
            Error::new(Errno::NoEnt, what)
        })?;
        return match frame::is_of_size(placed.provider_bytes, was) {
            true => Ok(at),
            false => {
                let size = placed.provider_bytes;
                let what = format!(
                    "{name}: the label at the former end was written for another \
                                    size ({size} bytes)"
                );
                Err(Error::inval(what))
            }
        };
    }
    let start = end.saturating_sub(SWEEP);
    let mut to = end;
    while to > start {
        let from = to.saturating_sub(CHUNK.max(unit)).max(start);
        let bytes = provider_access::read(control, name, edge, from, (to - from) as usize)?;
        for (number, bytes) in bytes.chunks(sector as usize).enumerate().rev() {
            let at = from + number as u64 * unit;
            let Ok(placed) = (params.read)(bytes) else { continue };
            if is_at_old_end(&placed, sector, at) {
                return Ok(at);
            }
        }
        to = from;
    }
    let what =
        format!("{name}: no old label of {class} in the last MiB; give the former size with --was");
    Err(Error::new(Errno::NoEnt, what))
}

/// Whether the label at this byte was written for a provider whose last sector is here.
pub(crate) fn is_at_old_end(placed: &MovableLabel, sector: u32, at: u64) -> bool {
    frame::last_sector(sector, placed.provider_bytes) == Some(at)
}

fn move_label(
    control: &mut GraphControl,
    edge: Edge,
    params: &RelocateParams<'_>,
    (sector, media): (u32, u64),
    from: u64,
) -> Result<(), Error> {
    let (name, len) = (params.member, sector as usize);
    let old = provider_access::read(control, name, edge, from, len)?;
    let wrong = |e: FrameError| Error::inval(format!("{name}: {e}"));
    let placed = (params.read)(&old).map_err(wrong)?;
    if let Some(why) = placed.fixed_reason {
        let was = from + u64::from(sector);
        return Err(Error::inval(format!("{name}: {}", old_size_hint(why, was))));
    }
    let leading = match placed.leading_offset(from) {
        Some(at) => provider_access::read(control, name, edge, at, placed.leading_bytes as usize)?,
        None => Vec::new(),
    };
    let (mut plan, is_over) = placed.plan((sector, media), from, leading);
    if !is_over {
        plan.write(from, vec![0; len]);
        plan.flush();
    }
    let done = control.run_on_core("moving a label", move |core| {
        Box::pin(async move { carry_out(core, edge, &plan).await })
    })?;
    done.map_err(|e| Error::new(e, format!("{name}: {}", e.text())))
}

fn old_size_hint(why: &str, was: u64) -> String {
    format!("{why}; a nop of {was} bytes on the provider shows its former contents")
}

impl MovableLabel {
    /// The byte at which the data of a label at byte `from` begins; `None` when there is no such
    /// data.
    fn leading_offset(&self, from: u64) -> Option<u64> {
        from.checked_sub(self.leading_bytes).filter(|_| self.leading_bytes > 0)
    }

    /// The writes that move the label at `from` to the end of a provider of this size, and whether
    /// they overwrite its old place.
    fn plan(self, (sector, media): (u32, u64), from: u64, leading: Vec<u8>) -> (WritePlan, bool) {
        let to = frame::last_sector(sector, media).unwrap_or(from);
        let padded = |mut label: Vec<u8>| {
            label.resize(sector as usize, 0);
            label
        };
        let mut plan = WritePlan::default();
        let mut put = |at, bytes| {
            plan.write(at, bytes);
            plan.flush();
        };
        let place = to.checked_sub(leading.len() as u64).filter(|_| !leading.is_empty());
        // The data of the label overwrites the label's old place. The label is therefore written to
        // its new place first, without the data.
        let is_over = place.is_some_and(|place| (place..to).contains(&from));
        if let Some(alone) = self.rewrite_alone.filter(|_| is_over) {
            put(to, padded(alone(media)));
        }
        if let Some(place) = place {
            put(place, leading);
        }
        put(to, padded((self.rewrite)(media)));
        (plan, is_over)
    }
}

/// A label that is where a provider ended that is known by it ([`Taster::ended`]).
pub(crate) struct OldLabel {
    /// The size that the provider had, bytes.
    old_bytes: u64,
    /// Byte offset of the old label, its sector, and its decoded content.
    from: u64,
    pub(crate) label: Vec<u8>,
    placed: MovableLabel,
    /// The content of the last sector, and its byte offset.
    last: Vec<u8>,
    to: u64,
}

/// Looks where a provider ended, if its end can be read and has no label that is its own.
pub(crate) async fn find_old_label(disk: &Taster, read: DecodeLabel) -> Option<OldLabel> {
    let len = disk.sector_bytes as usize;
    let end = |bytes| frame::last_sector(disk.sector_bytes, bytes);
    let to = end(disk.media_bytes).filter(|_| !disk.former_sizes.is_empty())?;
    let last = disk.read(to, len).await.ok()?;
    // The sector can hold a label for another size: one that was left on a member of this provider
    // as that member grew.
    if read(&last).is_ok_and(|placed| frame::is_of_size(placed.provider_bytes, disk.media_bytes)) {
        return None;
    }
    for was in disk.former_sizes.iter().copied() {
        let Some(from) = end(was).filter(|from| *from < to) else { continue };
        // Two identical labels mean that one is a copy, and it is unknown which one is valid.
        let Some(label) = disk.read(from, len).await.ok().filter(|label| *label != last) else {
            continue;
        };
        if let Some(placed) = read(&label).ok().filter(|p| p.provider_bytes == was) {
            return Some(OldLabel { old_bytes: was, from, label, placed, last, to });
        }
    }
    None
}

/// The taste outcome of a class for a provider without a label of the class in its last sector
/// (`why`). If the class left a label at a former end, that label is moved to the current end
/// instead.
pub(crate) async fn taste_old_end<C>(
    disk: &Taster,
    class: &str,
    read: DecodeLabel,
    why: String,
) -> TasteOutcome<C> {
    match find_old_label(disk, read).await {
        Some(behind) => behind.move_to_end(disk, class).await,
        None => TasteOutcome::No(why),
    }
}

impl OldLabel {
    /// Why it stays where it is, if it does.
    pub(crate) fn fixed_reason(&self) -> Option<&'static str> {
        self.placed.fixed_reason
    }

    /// In words.
    pub(crate) fn describe(&self) -> String {
        format!("its label is at its former end ({} bytes)", self.old_bytes)
    }

    /// Moves the label to the end, unless data there must not be lost.
    pub(crate) async fn move_to_end<C>(self, disk: &Taster, class: &str) -> TasteOutcome<C> {
        let (words, was) = (self.describe(), self.old_bytes);
        let OldLabel { from, label, placed, last, to, .. } = self;
        let (key, by_hand) = (label.clone(), relocate_command(class, &disk.name, was));
        if let Some(what) = inspect::leftover(&last, class, disk.media_bytes) {
            let carry = Err(occupied(what, &by_hand));
            return TasteOutcome::FormerEnd(
                words,
                FoundLabel {
                    former_bytes: was,
                    identity: key,
                    write: carry,
                    manual_command: by_hand,
                },
            );
        }
        let leading = match placed.leading_offset(from) {
            Some(at) => disk.read(at, placed.leading_bytes as usize).await,
            None => Ok(Vec::new()),
        };
        let leading = match leading {
            Ok(leading) => leading,
            Err(e) => {
                return TasteOutcome::No(format!(
                    "{words}; the data before the label cannot be \
                                                 read: {}",
                    e.text()
                ));
            }
        };
        let (plan, _) = placed.plan((disk.sector_bytes, disk.media_bytes), from, leading);
        let carry = Ok(carry_if_unchanged(plan, vec![(to, last), (from, label)]));
        TasteOutcome::FormerEnd(
            words,
            FoundLabel { former_bytes: was, identity: key, write: carry, manual_command: by_hand },
        )
    }
}

/// The command that moves a label.
pub(crate) fn relocate_command(class: &str, provider: &str, was: u64) -> String {
    format!("`ashlar {class} relocate {provider} --was {was}`")
}

/// Why a label is not moved to an end that holds other data.
pub(crate) fn occupied(what: &str, by_hand: &str) -> String {
    let forced = by_hand.trim_end_matches('`');
    format!("and at its end is a {what}; if that may be lost, {forced} --force`")
}

/// Carries a plan out if all this is still there.
pub(crate) fn carry_if_unchanged(plan: WritePlan, seen: Vec<(u64, Vec<u8>)>) -> WriteLabel {
    Box::new(move |core, edge| {
        Box::pin(async move {
            let failed = |e: Errno| e.text().to_owned();
            for (at, bytes) in &seen {
                if core.read(edge, *at, bytes.len()).await.map_err(failed)? != *bytes {
                    return Err("the provider was written meanwhile".into());
                }
            }
            carry_out(core, edge, &plan).await.map_err(failed)
        })
    })
}
