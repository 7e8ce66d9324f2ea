//! Used and free space of a thin unit, and the thresholds at which its initiators are notified
//! (SBC-4 4.7.3.7).
//!
//! [`crate::lun::poll_space_usage`] periodically records the values that the disks report; log page
//! 0Ch shows the last ones.
//!
//! Invariants
//!  H1  A threshold is reported once each time it is crossed. It is reported again only after the
//!      value was back on the other side of the range around it. A reset or a new threshold reports
//!      it again, too.
//!  H2  Nothing is reported without a nexus or while LBPERE is off. A threshold in percent is not
//!      reported while there is space for every block that the unit could still request.
//!  H3  With SITUA only one initiator is notified: the first that sends a command.
//!
//! ```text
//!   armed --beyond--> reported --back--> armed    (reset, MODE SELECT: armed)
//! ```

use bio::sync::{Mutex, MutexGuard};

use wire::scsi::{SpaceCounts, THRESHOLDS, Threshold, ThresholdKind};

/// Bytes of a threshold set; a power of two, and more than a block.
const SET_BYTES: u64 = 1 << 20;

/// Default percentages of used space at which initiators are notified.
pub const FULL_PERCENTS: [u8; 2] = [80, 90];

/// Configured thresholds of one unit; further ones are refused.
pub const FULL_PERCENTS_MAX: usize = 2;

/// Space of a disk as it reports it, bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpaceUsage {
    /// It takes so much.
    pub used: u64,
    /// It could take so much more.
    pub free: u64,
    /// Others can take that, too.
    pub is_shared: bool,
}

impl SpaceUsage {
    /// How much of the space is taken, percent, rounded down.
    pub fn percent_full(&self) -> u8 {
        let all = u128::from(self.used) + u128::from(self.free);
        let percent = (u128::from(self.used) * 100).checked_div(all).unwrap_or(0);
        u8::try_from(percent).unwrap_or(100)
    }

    /// True when there is space for every block of a medium of so many bytes.
    pub fn is_enough(&self, media_bytes: u64) -> bool {
        self.free >= media_bytes.saturating_sub(self.used)
    }

    /// Values of log page 0Ch.
    fn counts(&self, media_bytes: u64) -> SpaceCounts {
        let sets = |bytes: u64| u32::try_from(bytes / SET_BYTES).unwrap_or(u32::MAX);
        SpaceCounts {
            available: sets(self.free.min(media_bytes.saturating_sub(self.used))),
            used: sets(self.used.next_multiple_of(SET_BYTES)),
            percent: u16::from(100 - self.percent_full().min(100)),
            shared: self.is_shared,
        }
    }
}

/// The thresholds of the mode page.
pub(crate) type Thresholds = [Threshold; THRESHOLDS];

/// Position of a value relative to a threshold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ThresholdPosition {
    /// It is crossed.
    Beyond,
    /// Within the range around it.
    Within,
    /// It is not.
    Back,
}

/// All numbers are halves, for the range is one unit wide with the threshold in its middle.
fn threshold_position(
    one: &Threshold,
    reported: &SpaceUsage,
    media_bytes: u64,
) -> ThresholdPosition {
    let middle = u64::from(one.count) * 2;
    let halves = |bytes: u64| bytes / (SET_BYTES / 2);
    let (value, grows) = match one.kind {
        ThresholdKind::Percent if reported.is_enough(media_bytes) => {
            return ThresholdPosition::Back;
        }
        ThresholdKind::Percent => {
            let all = u128::from(reported.used) + u128::from(reported.free);
            let halves = (u128::from(reported.free) * 200).checked_div(all).unwrap_or(200);
            (u64::try_from(halves).unwrap_or(200), false)
        }
        ThresholdKind::Available => {
            (halves(reported.free.min(media_bytes.saturating_sub(reported.used))), false)
        }
        ThresholdKind::Used => (halves(reported.used), true),
    };
    match (value < middle.saturating_sub(1), value > middle.saturating_add(1)) {
        (true, _) => {
            if grows {
                ThresholdPosition::Back
            } else {
                ThresholdPosition::Beyond
            }
        }
        (_, true) => {
            if grows {
                ThresholdPosition::Beyond
            } else {
                ThresholdPosition::Back
            }
        }
        _ => ThresholdPosition::Within,
    }
}

struct SpaceState {
    usage: SpaceUsage,
    /// As configured.
    first: Thresholds,
    current: Thresholds,
    saved: Thresholds,
    /// H1.
    armed: [bool; THRESHOLDS],
    /// H3: it was raised, and no initiator has received it yet.
    unreported: bool,
    /// The threshold that was crossed last.
    crossed: usize,
}

/// The space and the thresholds of one unit.
pub(crate) struct Space {
    state: Mutex<SpaceState>,
}

impl Space {
    /// For a unit whose disk reported `room` when it was opened; `percents` are the thresholds of
    /// used space.
    pub fn new(reported: SpaceUsage, percents: &[u8]) -> Space {
        let first = configured(percents);
        let armed = [true; THRESHOLDS];
        let (current, saved) = (first, first);
        let state = SpaceState {
            usage: reported,
            first,
            current,
            saved,
            armed,
            unreported: false,
            crossed: 0,
        };
        Space { state: Mutex::new(state) }
    }

    /// THRESHOLD EXPONENT for blocks of that many bytes.
    pub fn exponent(block_bytes: u32) -> u8 {
        let blocks = (SET_BYTES / u64::from(block_bytes.max(1))).max(2);
        u8::try_from(blocks.ilog2()).unwrap_or(1)
    }

    fn state(&self) -> MutexGuard<'_, SpaceState> {
        self.state.lock()
    }

    /// The last reported values.
    pub fn usage(&self) -> SpaceUsage {
        self.state().usage
    }

    /// Values for log page 0Ch.
    pub fn counts(&self, media_bytes: u64) -> SpaceCounts {
        self.state().usage.counts(media_bytes)
    }

    /// Thresholds as the unit was made with.
    pub fn first(&self) -> Thresholds {
        self.state().first
    }

    pub fn current(&self) -> Thresholds {
        self.state().current
    }

    /// Thresholds after a reset.
    pub fn saved(&self) -> Thresholds {
        self.state().saved
    }

    /// The configuration has other percentages now: they hold where initiators have not set
    /// others.
    pub fn configure(&self, percents: &[u8]) {
        let to = configured(percents);
        let (was, current) = {
            let mut s = self.state();
            let was = std::mem::replace(&mut s.first, to);
            if s.saved == was {
                s.saved = to;
            }
            (was, s.current)
        };
        if current == was {
            self.set(to);
        }
    }

    /// They hold from now on; those that differ from before are armed.
    pub fn set(&self, thresholds: Thresholds) {
        let mut s = self.state();
        let pairs = s.current.into_iter().zip(thresholds);
        let differ: Vec<bool> = pairs.map(|(old, new)| old != new).collect();
        s.armed.iter_mut().zip(differ).for_each(|(armed, differs)| *armed |= differs);
        s.current = thresholds;
    }

    /// They hold after a reset.
    pub fn save(&self, thresholds: Thresholds) {
        self.state().saved = thresholds;
    }

    /// A reset: those that were saved, and all are armed.
    pub fn reset(&self) {
        let mut s = self.state();
        s.current = s.saved;
        s.armed = [true; THRESHOLDS];
        s.unreported = false;
    }

    /// Records the values that the disk reports. True when notification is on and a threshold was
    /// crossed.
    pub fn note(&self, reported: SpaceUsage, media_bytes: u64, tells: bool) -> bool {
        let s = &mut *self.state();
        s.usage = reported;
        if !tells {
            return false;
        }
        let mut crossed = false;
        for (i, (one, armed)) in s.current.iter().zip(&mut s.armed).enumerate() {
            match threshold_position(one, &reported, media_bytes) {
                ThresholdPosition::Beyond if *armed && one.enabled => {
                    (*armed, crossed) = (false, true);
                    s.crossed = i;
                }
                ThresholdPosition::Back => *armed = true,
                _ => {}
            }
        }
        s.unreported |= crossed;
        crossed
    }

    /// INFORMATION of the unit attention: offset of the threshold in its page.
    pub fn information(&self) -> u64 {
        Threshold::offset(self.state().crossed)
    }

    /// H3: true for the first initiator that is notified.
    pub fn take_unreported(&self) -> bool {
        std::mem::take(&mut self.state().unreported)
    }
}

/// The mode page's thresholds for percentages of use.
fn configured(percents: &[u8]) -> Thresholds {
    let mut first = Thresholds::default();
    for (place, percent) in first.iter_mut().zip(percents).take(FULL_PERCENTS_MAX) {
        let count = u32::from(100 - (*percent).min(100));
        *place = Threshold { enabled: true, kind: ThresholdKind::Percent, count };
    }
    if let Some(last) = first.last_mut() {
        last.kind = ThresholdKind::Used;
    }
    first
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_percentages_apply_at_once_unless_an_initiator_set_thresholds() {
        let space = Space::new(usage(0, 100), &[80]);
        assert!(space.note(usage(85, 15), MEDIA, true), "80 are crossed");
        space.configure(&[50]);
        assert!(space.note(usage(85, 15), MEDIA, true), "50 are, too, and have not been told");
        let one = Threshold { enabled: true, kind: ThresholdKind::Used, count: 10 };
        let own = [one, Threshold::default(), Threshold::default()];
        space.set(own);
        space.configure(&[60]);
        assert_eq!(space.current(), own);
        assert_ne!(space.saved(), own);
    }

    const MIB: u64 = 1 << 20;
    const MEDIA: u64 = 1000 * MIB;

    fn usage(used: u64, free: u64) -> SpaceUsage {
        SpaceUsage { used: used * MIB, free: free * MIB, is_shared: true }
    }

    #[test]
    fn h1_each_threshold_crossing_is_reported_once() {
        let space = Space::new(usage(0, 100), &[80, 90]);
        let note = |used: u64| space.note(usage(used, 100 - used), MEDIA, true);
        assert!(!note(50) && !note(80));
        assert!(note(81) && space.information() == 16);
        assert!(!note(81) && !note(85) && !note(80));
        // Back, and again.
        assert!(!note(70) && note(82) && !note(82));
        assert!(note(95) && space.information() == 24);
        assert!(!note(100));
        space.reset();
        assert!(note(100) && !note(100));
    }

    #[test]
    fn h2_thresholds_are_silent_without_a_nexus_or_with_enough_space() {
        let space = Space::new(usage(0, 100), &[80]);
        // Space for all that is not written yet.
        assert!(!space.note(usage(950, 60), MEDIA, true));
        assert!(!space.note(usage(900, 60), MEDIA, false), "nobody to tell");
        assert!(space.note(usage(900, 60), MEDIA, true));
        let off = Space::new(usage(0, 100), &[]);
        assert!(!off.note(usage(100, 0), MEDIA, true));
    }

    #[test]
    fn thresholds_of_used_and_available_counts_are_reported() {
        let space = Space::new(usage(0, 100), &[]);
        let one = |kind, count| Threshold { enabled: true, kind, count };
        let (used, left) = (one(ThresholdKind::Used, 10), one(ThresholdKind::Available, 50));
        space.set([used, left, Threshold::default()]);
        let note = |used: u64| space.note(usage(used, 100 - used), MEDIA, true);
        assert!(!note(10) && note(11) && space.information() == 16 && !note(30));
        assert!(!note(50) && note(51) && space.information() == 24);
        assert!(!note(52) && !note(5) && note(11));
        // Writing an unchanged threshold does not report it again; a new one is reported.
        space.set([used, left, Threshold::default()]);
        assert!(!note(12));
        space.set([one(ThresholdKind::Used, 11), left, Threshold::default()]);
        assert!(note(13));
    }

    #[test]
    fn log_page_counts_are_computed_from_used_and_free_space() {
        let counts = usage(250, 100).counts(MEDIA);
        let want = SpaceCounts { available: 100, used: 250, percent: 29, shared: true };
        assert_eq!(counts, want);
        // No more than the unit could take.
        assert_eq!(usage(990, 100).counts(MEDIA).available, 10);
        assert_eq!(SpaceUsage::default().counts(0).percent, 100);
        let huge = SpaceUsage { used: u64::MAX / 2, free: u64::MAX / 2, is_shared: false };
        assert_eq!((huge.percent_full(), huge.counts(u64::MAX).used), (50, u32::MAX));
        assert_eq!((Space::exponent(512), Space::exponent(4096)), (11, 8));
    }
}
