//! State of a unit's medium: whether commands may reach it, and which operation on the whole medium
//! is running.
//!
//! ```text
//!             eject                    format                 format_ended
//!   READY ------------> EMPTY   READY ------------> FORMATTING ------------> READY | CORRUPTED
//!     ^ <------------             |     sanitize                sanitize_ended
//!            load                 +------------> SANITIZING ------------> READY | FAILED
//!   STARTING --mounted--> READY | CORRUPTED   (a unit with protection information)
//! ```
//! Invariants
//!  C1  The state is one atomic, as the type of its field ensures: a command that needs the medium
//!      reads it once.
//!  C2  A change out of READY is made by [`Condition::enter`]: of two concurrent callers, the
//!      second gets the state that the first one set.
//! C3  A nexus that prevents removal is held by a weak reference, one entry for each nexus. The
//!      entry is removed when the nexus is lost, and a reset removes all entries.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU16, Ordering};
use std::sync::{Arc, Weak};

use bio::sync::{Mutex, MutexGuard};
use wire::scsi::{Asc, Key, MediaEvent, Sense, asc};

use crate::unit::Device;
use crate::unit::unit_attention::ItlNexus;

/// LOGICAL UNIT NOT READY, FORMAT IN PROGRESS.
const FORMATTING: Asc = Asc::new(Key::NotReady, 0x04, 0x04);
/// LOGICAL UNIT NOT READY, SANITIZE IN PROGRESS.
const SANITIZING: Asc = Asc::new(Key::NotReady, 0x04, 0x1b);
const SANITIZE_FAILED: Asc = Asc::new(Key::MediumError, 0x31, 0x03);
const FORMAT_CORRUPTED: Asc = Asc::new(Key::MediumError, 0x31, 0x00);
const TRAY_OPEN: Asc = Asc::new(Key::NotReady, 0x3a, 0x02);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum MediumState {
    /// Commands reach it.
    Ready = 0,
    /// It is out: a removable unit was ejected.
    Empty = 1,
    /// FORMAT UNIT runs.
    Formatting = 2,
    /// SANITIZE runs.
    Sanitizing = 3,
    /// SANITIZE has failed: the data on the medium must not be shown.
    SanitizeFailed = 4,
    /// FORMAT UNIT has failed or was interrupted: format it again.
    FormatCorrupted = 5,
    /// The area of its protection information is being checked.
    Starting = 6,
}

impl MediumState {
    const ALL: [MediumState; 7] = [
        MediumState::Ready,
        MediumState::Empty,
        MediumState::Formatting,
        MediumState::Sanitizing,
        MediumState::SanitizeFailed,
        MediumState::FormatCorrupted,
        MediumState::Starting,
    ];

    /// Sense code for a command that needs the medium.
    pub fn refusal(self) -> Option<Asc> {
        match self {
            MediumState::Ready => None,
            MediumState::Empty => Some(TRAY_OPEN),
            MediumState::Formatting => Some(FORMATTING),
            MediumState::Sanitizing => Some(SANITIZING),
            MediumState::SanitizeFailed => Some(SANITIZE_FAILED),
            MediumState::FormatCorrupted => Some(FORMAT_CORRUPTED),
            MediumState::Starting => Some(asc::BECOMING_READY),
        }
    }
}

/// The condition of one unit's medium, shared by all cores.
#[derive(Default)]
pub struct Condition {
    state: AtomicU8,
    /// Of 65536, while something runs.
    progress: AtomicU16,
    /// The SANITIZE that failed may be left without another one (AUSE).
    unrestricted: AtomicBool,
    /// The newest event that GET EVENT STATUS NOTIFICATION has not reported.
    event: AtomicU8,
    prevents: Mutex<Vec<Weak<ItlNexus>>>,
}

impl Condition {
    #[inline]
    pub fn state(&self) -> MediumState {
        let code = usize::from(self.state.load(Ordering::Acquire));
        MediumState::ALL.get(code).copied().unwrap_or(MediumState::Ready)
    }

    /// Sense data for a command that needs the medium, with the progress of a running operation.
    #[inline]
    pub fn refusal(&self) -> Option<Sense> {
        match self.state() {
            MediumState::Ready => None,
            state => self.refusal_of(state),
        }
    }

    #[cold]
    fn refusal_of(&self, state: MediumState) -> Option<Sense> {
        let sense = Sense::new(state.refusal()?);
        Some(match state {
            MediumState::Formatting | MediumState::Sanitizing => {
                Sense { progress: Some(self.progress.load(Ordering::Relaxed)), ..sense }
            }
            _ => sense,
        })
    }

    /// C2: from one of `from` to another state. The state that it is in, when it is none of them.
    pub fn enter(&self, from: &[MediumState], to: MediumState) -> Result<(), MediumState> {
        let step = |code: u8| from.iter().any(|state| *state as u8 == code).then_some(to as u8);
        let done = self.state.fetch_update(Ordering::AcqRel, Ordering::Acquire, step);
        self.progress.store(0, Ordering::Relaxed);
        done.map(drop).map_err(|_| self.state())
    }

    /// Sets the state, for the caller that entered it before.
    pub(crate) fn set(&self, state: MediumState) {
        self.state.store(state as u8, Ordering::Release);
    }

    /// Notes how much of `all` is done.
    pub(crate) fn note_progress(&self, done: u64, all: u64) {
        let part = u128::from(done) * 65_536 / u128::from(all.max(1));
        self.progress.store(u16::try_from(part).unwrap_or(u16::MAX), Ordering::Relaxed);
    }

    /// Whether a SANITIZE that failed may be left by EXIT FAILURE MODE.
    pub fn is_unrestricted(&self) -> bool {
        self.unrestricted.load(Ordering::Acquire)
    }

    pub(crate) fn set_unrestricted(&self, on: bool) {
        self.unrestricted.store(on, Ordering::Release);
    }

    fn preventing(&self) -> MutexGuard<'_, Vec<Weak<ItlNexus>>> {
        self.prevents.lock()
    }

    /// A nexus prevents removal, or allows it again (C3).
    pub fn prevent(&self, nexus: &Arc<ItlNexus>, on: bool) {
        let mut all = self.preventing();
        all.retain(|n| n.upgrade().is_some_and(|n| !Arc::ptr_eq(&n, nexus)));
        if on {
            all.push(Arc::downgrade(nexus));
        }
    }

    /// Removes the prevention of removal for all nexuses.
    pub(crate) fn allow_all(&self) {
        self.preventing().clear();
    }

    /// Whether any nexus prevents removal.
    pub fn is_prevented(&self) -> bool {
        self.preventing().iter().any(|n| n.strong_count() > 0)
    }

    pub(crate) fn note_event(&self, event: MediaEvent) {
        self.event.store(event as u8, Ordering::Release);
    }

    /// Takes the newest event that was not reported yet.
    pub fn take_event(&self) -> MediaEvent {
        match self.event.swap(0, Ordering::AcqRel) {
            1 => MediaEvent::EjectRequest,
            2 => MediaEvent::New,
            3 => MediaEvent::Removal,
            _ => MediaEvent::None,
        }
    }
}

/// Why a tray does not move.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TrayError {
    /// The unit's medium cannot be taken out.
    Fixed,
    /// A nexus prevents removal.
    Prevented,
    /// Something runs on the medium.
    Busy(MediumState),
}

impl TrayError {
    /// Sense data for the initiator.
    pub fn sense(self) -> Sense {
        match self {
            TrayError::Fixed => Sense::cdb_field(4, Some(1)),
            TrayError::Prevented => Sense::new(asc::REMOVAL_PREVENTED),
            TrayError::Busy(state) => Sense::new(state.refusal().unwrap_or(asc::NOT_READY)),
        }
    }
}

impl std::fmt::Display for TrayError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            TrayError::Fixed => write!(f, "the medium of this unit cannot be taken out"),
            TrayError::Prevented => write!(f, "an initiator prevents removal of the medium"),
            TrayError::Busy(state) => write!(f, "the medium is not ready ({state:?})"),
        }
    }
}

impl Device {
    /// Takes the medium out; commands that need it end NOT READY. Nothing changes when it is out
    /// already.
    pub fn eject(&self) -> Result<(), TrayError> {
        if !self.spec().removable {
            return Err(TrayError::Fixed);
        }
        if self.condition().is_prevented() {
            return Err(TrayError::Prevented);
        }
        match self.condition().enter(&[MediumState::Ready], MediumState::Empty) {
            Ok(()) => {
                self.condition().note_event(MediaEvent::Removal);
                Ok(())
            }
            Err(MediumState::Empty) => Ok(()),
            Err(state) => Err(TrayError::Busy(state)),
        }
    }

    /// Inserts the medium again; all nexuses but `except` receive NOT READY TO READY CHANGE.
    /// Nothing changes when it is already inserted.
    pub fn load(&self, except: Option<&Arc<ItlNexus>>) -> Result<(), TrayError> {
        if !self.spec().removable {
            return Err(TrayError::Fixed);
        }
        if self.condition().is_prevented() {
            return Err(TrayError::Prevented);
        }
        match self.condition().enter(&[MediumState::Empty], MediumState::Ready) {
            Ok(()) => {
                self.condition().note_event(MediaEvent::New);
                self.raise(asc::MEDIUM_CHANGED, except);
                Ok(())
            }
            Err(MediumState::Ready) => Ok(()),
            Err(state) => Err(TrayError::Busy(state)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c2_the_second_of_two_concurrent_state_changes_is_refused() {
        let c = Condition::default();
        assert_eq!(c.enter(&[MediumState::Ready], MediumState::Sanitizing), Ok(()));
        let second = c.enter(&[MediumState::Ready], MediumState::Formatting);
        assert_eq!(second, Err(MediumState::Sanitizing));
        c.note_progress(1, 4);
        let sense = c.refusal().unwrap();
        assert_eq!((sense.code, sense.progress), (SANITIZING, Some(0x4000)));
        c.note_progress(4, 4);
        assert_eq!(c.refusal().unwrap().progress, Some(u16::MAX));
        c.set(MediumState::Ready);
        assert_eq!(c.refusal(), None);
    }

    #[test]
    fn c3_prevention_of_removal_belongs_to_one_nexus_and_ends_with_it() {
        let c = Condition::default();
        let (a, b) = (Arc::new(ItlNexus::default()), Arc::new(ItlNexus::default()));
        c.prevent(&a, true);
        c.prevent(&b, true);
        c.prevent(&a, false);
        assert!(c.is_prevented());
        drop(b);
        assert!(!c.is_prevented());
        c.prevent(&a, true);
        c.allow_all();
        assert!(!c.is_prevented());
    }

    #[test]
    fn media_events_are_reported_once() {
        let c = Condition::default();
        c.note_event(MediaEvent::New);
        assert_eq!((c.take_event(), c.take_event()), (MediaEvent::New, MediaEvent::None));
    }
}
