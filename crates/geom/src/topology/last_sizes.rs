//! Former ends of providers that classes recognise by metadata in their last sectors.
//!
//! A class looks for such a label only at the end of a provider. The remains of a label in the
//! middle of a larger disk must not be believed. When a provider grows, its label moves. If the
//! power fails before that, or if the provider was not open, the label stays at the former end. The
//! array of this member would then start without it, with an older member. So the former ends of
//! each provider are recorded, and its class looks there too.
//!
//! ```text
//!   known by its end --------> that size is recorded, and no other
//!   opened to be written to -> its size too: its user may label it
//!   becomes larger ----------> the new size too, saved before consumers are notified
//!   tasted ------------------> the class gets the sizes at which it ended
//!                              (`Taster::former_sizes`); a label found there is carried to the end
//!                              (`label_migration`)
//! ```
//!
//! Invariants
//!  E1  The size that a provider gets by growing is saved before data that is written at that end
//!      may be the only durable copy. Any other size is saved when the events are done.
//!  E2  A class gets sizes of this provider only. A disk is known by its serial number, any other
//!      provider (and a disk that reports none) by its name.
//!  E3  A size that a keeper cannot save is known as long as the daemon runs.

use super::{ProviderId, Topology};
use bio::Attr;

/// Most that are kept; the one that was noted first gives way.
const ENDS_MAX: usize = 4096;
/// Most sizes of one; the oldest stays, and the newest ones.
const SIZES_MAX: usize = 8;

/// The former sizes of a provider.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FormerSizes {
    /// Name of the class that knows it by its end.
    pub class: String,
    pub provider: String,
    /// Its serial number; empty: it reports none.
    pub ident: String,
    /// It has no provider below.
    pub is_disk: bool,
    /// Its sizes, oldest first, bytes.
    pub bytes: Vec<u64>,
}

impl FormerSizes {
    /// E2
    fn is_of(&self, other: &FormerSizes) -> bool {
        let comparable = !self.ident.is_empty() && !other.ident.is_empty();
        match comparable && self.is_disk && other.is_disk {
            true => self.ident == other.ident,
            false => self.provider == other.provider && (!comparable || self.ident == other.ident),
        }
    }

    /// True when this is news.
    fn add(&mut self, bytes: u64) -> bool {
        if self.bytes.contains(&bytes) {
            return false;
        }
        if self.bytes.len() >= SIZES_MAX {
            self.bytes.remove(1);
        }
        self.bytes.push(bytes);
        true
    }
}

/// Keeps ends over a restart.
pub trait SizeKeeper: Send {
    /// These are all; returns when they are on stable storage, or cannot be.
    fn save(&mut self, ends: &[FormerSizes]);
}

/// See the module.
#[derive(Default)]
pub(super) struct LastSizes {
    all: Vec<FormerSizes>,
    keeper: Option<Box<dyn SizeKeeper>>,
    is_unsaved: bool,
}

impl LastSizes {
    fn of(&mut self, end: &FormerSizes) -> Option<&mut FormerSizes> {
        self.all.iter_mut().find(|known| known.class == end.class && known.is_of(end))
    }

    /// It was known by its end, and has no other.
    fn note(&mut self, end: FormerSizes) {
        if let Some(known) = self.of(&end) {
            let news = *known != end;
            *known = end;
            self.is_unsaved |= news;
            return;
        }
        self.begin(end);
    }

    /// It may be known by its end.
    fn add(&mut self, end: FormerSizes) {
        let Some(known) = self.of(&end) else { return self.begin(end) };
        let mut news = false;
        for bytes in &end.bytes {
            news |= known.add(*bytes);
        }
        self.is_unsaved |= news;
    }

    fn begin(&mut self, end: FormerSizes) {
        if self.all.len() >= ENDS_MAX {
            self.all.remove(0);
        }
        self.all.push(end);
        self.is_unsaved = true;
    }

    /// Sizes at which it ended that are smaller than the one it has, the newest first.
    fn smaller_sizes(&self, end: &FormerSizes, bytes: u64) -> Vec<u64> {
        let of = self.all.iter().filter(|known| known.class == end.class && known.is_of(end));
        of.flat_map(|known| known.bytes.iter().rev().copied()).filter(|was| *was < bytes).collect()
    }

    /// A provider has another name.
    pub(super) fn rename(&mut self, from: &str, to: &str) {
        for known in self.all.iter_mut().filter(|known| known.provider == from) {
            known.provider = to.to_owned();
            self.is_unsaved = true;
        }
    }

    /// E1
    pub(super) fn save(&mut self) {
        if std::mem::take(&mut self.is_unsaved)
            && let Some(keeper) = &mut self.keeper
        {
            keeper.save(&self.all);
        }
    }

    pub(super) fn is_unsaved(&self) -> bool {
        self.is_unsaved
    }
}

impl Topology {
    /// Sets the saved ends and their keeper. Must be called before any provider exists.
    pub fn set_size_keeper(&mut self, all: Vec<FormerSizes>, keeper: Box<dyn SizeKeeper>) {
        self.last_sizes = LastSizes { all, keeper: Some(keeper), is_unsaved: false };
    }

    /// The entry that a class would record for a provider of this size.
    fn size_entry(&self, class: usize, p: ProviderId, bytes: u64) -> Option<FormerSizes> {
        let (class, pp) = (self.classes.get(class)?, self.providers.get(p)?);
        if !class.has_end_metadata() {
            return None;
        }
        let ident = match self.attr(p, "GEOM::ident") {
            Some(Attr::Text(ident)) => ident,
            _ => String::new(),
        };
        Some(FormerSizes {
            class: class.name().to_owned(),
            provider: pp.name.clone(),
            ident,
            is_disk: self.geoms.get(pp.geom).is_some_and(|g| g.consumers.is_empty()),
            bytes: vec![bytes],
        })
    }

    /// Its former sizes, for a class that looks at it.
    pub(super) fn former_sizes(&self, class: usize, p: ProviderId) -> Vec<u64> {
        let bytes = self.providers.get(p).map_or(0, |pp| pp.limits.media_bytes);
        self.size_entry(class, p, bytes)
            .map_or(Vec::new(), |end| self.last_sizes.smaller_sizes(&end, bytes))
    }

    /// A class knew it by its end when it had so many bytes.
    pub(super) fn set_only_size(&mut self, class: usize, p: ProviderId, bytes: u64) {
        let Some(mut end) = self.size_entry(class, p, bytes) else { return };
        // It may have grown since.
        end.bytes.extend(self.providers.get(p).map(|pp| pp.limits.media_bytes));
        end.bytes.dedup();
        self.last_sizes.note(end);
    }

    /// A geom of a class has it open for writing.
    pub(super) fn add_current_size(&mut self, class: usize, p: ProviderId) {
        let bytes = self.providers.get(p).map_or(0, |pp| pp.limits.media_bytes);
        if let Some(end) = self.size_entry(class, p, bytes) {
            self.last_sizes.add(end);
        }
    }

    /// E1: it will have so many bytes, and the class that knows it by its end will write there.
    pub(super) fn add_new_size(&mut self, p: ProviderId, bytes: u64) {
        for class in 0..self.classes.len() {
            let Some(end) = self.size_entry(class, p, bytes) else { continue };
            let news = self.last_sizes.of(&end).is_some_and(|known| known.add(bytes));
            self.last_sizes.is_unsaved |= news;
        }
        self.last_sizes.save();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(provider: &str, ident: &str, is_disk: bool, bytes: &[u64]) -> FormerSizes {
        let (class, bytes) = ("mirror".to_owned(), bytes.to_vec());
        FormerSizes { class, provider: provider.into(), ident: ident.into(), is_disk, bytes }
    }

    fn with(all: &[FormerSizes]) -> LastSizes {
        let mut ends = LastSizes::default();
        all.iter().for_each(|end| ends.note(end.clone()));
        ends
    }

    #[test]
    fn e2_disk_is_identified_by_serial_and_other_providers_by_name() {
        let ends = with(&[end("da0", "X", true, &[100]), end("m.nop", "X", false, &[60])]);
        let before =
            |provider, ident, is_disk| ends.smaller_sizes(&end(provider, ident, is_disk, &[]), 200);
        assert_eq!(before("da7", "X", true), [100], "it has another name now");
        assert_eq!(before("da0", "Y", true), [0; 0], "another disk has its name");
        assert_eq!(before("da0", "", true), [100], "it does not say");
        assert_eq!(before("m.nop", "X", false), [60]);
        assert_eq!(before("da0p1", "X", false), [0; 0], "what stands on a disk is not the disk");
        let other = FormerSizes { class: "stripe".into(), ..end("da0", "X", true, &[]) };
        assert_eq!(ends.smaller_sizes(&other, 200), [0; 0]);
    }

    #[test]
    fn sizes_are_listed_newest_first_and_the_oldest_is_kept() {
        let mut ends = with(&[end("d0", "", true, &[100])]);
        let this = end("d0", "", true, &[]);
        for bytes in 101..120 {
            assert!(ends.of(&this).unwrap().add(bytes));
            assert!(!ends.of(&this).unwrap().add(bytes), "it is known");
        }
        assert_eq!(ends.smaller_sizes(&this, 119), [118, 117, 116, 115, 114, 113, 100]);
        ends.note(end("d0", "", true, &[119]));
        assert_eq!(ends.smaller_sizes(&this, 500), [119], "it was found there");
    }

    /// A keeper whose storage fails.
    struct FailedKeeper;

    impl SizeKeeper for FailedKeeper {
        fn save(&mut self, _: &[FormerSizes]) {}
    }

    #[test]
    fn e3_sizes_that_cannot_be_saved_are_known() {
        let keeper: Option<Box<dyn SizeKeeper>> = Some(Box::new(FailedKeeper));
        let mut ends = LastSizes { keeper, ..LastSizes::default() };
        ends.note(end("d0", "", true, &[100]));
        ends.save();
        assert_eq!(ends.smaller_sizes(&end("d0", "", true, &[]), 200), [100]);
    }

    #[test]
    fn only_new_sizes_are_saved_and_the_oldest_entries_evicted() {
        let mut ends = with(&[end("d0", "", true, &[1])]);
        ends.save();
        ends.note(end("d0", "", true, &[1]));
        assert!(!ends.is_unsaved());
        for n in 1..=ENDS_MAX {
            ends.note(end(&format!("d{n}"), "", true, &[1]));
        }
        assert!(ends.is_unsaved());
        assert_eq!(ends.smaller_sizes(&end("d0", "", true, &[]), 9), [0; 0]);
        assert_eq!(ends.smaller_sizes(&end("d1", "", true, &[]), 9), [1]);
    }
}
