//! A logical unit: the state that its nexuses on all cores share.
//!
//! Invariants
//!  V1  Numbers that the data path reads (capacity, mode bits, lost) need no lock, as the types of
//!      their fields ensure: they are single atomics.
//!  V2  A change of state that initiators may know raises the unit attention before the change is
//!      reported to its requester.
//!
//! ```text
//!   LIVE --lose(error)--> LOST (commands end NOT READY; sessions stay) --find(edge)--> LIVE
//! ```

pub mod alua;
pub(crate) mod copies;
pub(crate) mod counters;
pub(crate) mod ending;
pub(crate) mod events;
pub mod ids;
pub(crate) mod initiator_data;
pub(crate) mod kind;
pub(crate) mod loss;
pub(crate) mod lun_usage;
pub(crate) mod medium_state;
pub(crate) mod message;
pub(crate) mod owner;
pub(crate) mod protection;
pub mod provisioning;
pub mod space;
pub(crate) mod spec;
pub(crate) mod unit_attention;
pub(crate) mod unit_reservations;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use bio::Errno;
use bio::sync::{Mutex, MutexGuard, RwLock};
use geom::Edge;
use wire::scsi::{Asc, LogCounts, ProtectionType, SpaceCounts, asc};

use crate::flags;
use crate::load::{FlowView, Load};
use crate::task::set::TaskSet;
use crate::unit::copies::{Operations, Watch};
use crate::unit::counters::History;
use crate::unit::ids::LENGTH_MARK;
use crate::unit::initiator_data::InitiatorData;
use crate::unit::kind::UnitKind;
use crate::unit::loss::{Common, Loss};
use crate::unit::medium_state::Condition;
use crate::unit::owner::Owner;
use crate::unit::protection::{Layout, Protection, ProtectionSpec};
use crate::unit::provisioning::Provisioning;
use crate::unit::space::{FULL_PERCENTS, Space, SpaceUsage};
use crate::unit::spec::{DeviceSpec, Label};
use crate::unit::unit_attention::ItlNexus;
use crate::unit::unit_reservations::UnitReservations;

/// Largest transfer of one command, bytes; pools too small for it lower it. VPD page B0h reports
/// the limit, and a longer transfer is refused.
pub const TRANSFER_MAX: u32 = 32 << 20;

/// Bits of the mode pages that change how commands run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ModeBits(u32);

impl ModeBits {
    /// Caching page: write cache enable. Without it every write is durable before GOOD.
    pub const WCE: ModeBits = ModeBits(1);
    /// Control page: sense data in descriptor format.
    pub const D_SENSE: ModeBits = ModeBits(1 << 1);
    /// Control page: software write protect.
    pub const SWP: ModeBits = ModeBits(1 << 2);
    /// Control page: commands aborted by another nexus end with TASK ABORTED.
    pub const TAS: ModeBits = ModeBits(1 << 3);
    /// Control page: TST is 001b, every nexus has a task set of its own. Not set: 000b.
    pub const TST_EACH: ModeBits = ModeBits(1 << 4);
    /// Control page, low bit of QERR: a CHECK CONDITION aborts other commands.
    pub const QERR: ModeBits = ModeBits(1 << 5);
    /// Control page, high bit of QERR, with the low one: only those of the same nexus (11b).
    pub const QERR_OWN: ModeBits = ModeBits(1 << 6);
    /// Control page: QUEUE ALGORITHM MODIFIER is 1h, SIMPLE commands may be reordered freely. Not
    /// set: those that overlap run in the order of their arrival.
    pub const QAM: ModeBits = ModeBits(1 << 7);
    /// Control page: commands of the ACA attribute are refused, CLEAR ACA alone ends an ACA.
    pub const TMF_ONLY: ModeBits = ModeBits(1 << 8);
    /// Control page: protection information is not checked when RDPROTECT is zero.
    pub const DPICZ: ModeBits = ModeBits(1 << 9);
    /// Error recovery page: initiators are notified of thresholds.
    pub const LBPERE: ModeBits = ModeBits(1 << 10);
    /// Provisioning page: only one initiator is notified of a threshold.
    pub const SITUA: ModeBits = ModeBits(1 << 11);

    pub const NONE: ModeBits = ModeBits(0);

    /// The bits as a number, and back by [`ModeBits::from_bits`].
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// Inverse of [`ModeBits::bits`].
    pub const fn from_bits(bits: u32) -> ModeBits {
        ModeBits(bits)
    }

    /// True when every bit of `other` is set.
    pub const fn has(self, other: ModeBits) -> bool {
        self.0 & other.0 == other.0
    }

    /// With the bits of `other` when `on`, without them when not.
    pub const fn with(self, other: ModeBits, on: bool) -> ModeBits {
        ModeBits(if on { self.0 | other.0 } else { self.0 & !other.0 })
    }
}

#[derive(Default)]
struct Nexuses {
    all: Vec<Weak<ItlNexus>>,
    /// Bits of `flags` that are set in every nexus of the unit, later ones too.
    bits: u32,
}

/// A logical unit.
pub struct Device {
    number: u32,
    spec: DeviceSpec,
    label: RwLock<Arc<Label>>,
    kind: UnitKind,
    edge: AtomicU32,
    blocks: AtomicU64,
    mode: AtomicU32,
    /// Mode bits that hold after a reset: the defaults, or those that MODE SELECT saved.
    saved: AtomicU32,
    loss: Loss,
    condition: Condition,
    nexuses: Mutex<Nexuses>,
    /// Order of the commands (`task/set.rs`); locked before `nexuses`.
    order: Mutex<TaskSet<Owner>>,
    /// Entries of LUN maps that name it, by relative target port.
    ports: Mutex<BTreeMap<u16, u32>>,
    /// Number of its last reset (`Registry::next_reset`).
    reset_number: AtomicU64,
    operations: Operations,
    watch: Watch,
    common: Arc<Common>,
    reservations: UnitReservations,
    /// Held while MODE SELECT compares and replaces.
    pub(crate) mode_gate: Mutex<()>,
    /// A MODE SELECT is being saved.
    pub(crate) selecting: AtomicBool,
    initiator_data: InitiatorData,
    history: History,
    load: Load,
    protection: Option<Protection>,
    space: Option<Space>,
    provisioning: Mutex<Provisioning>,
}

/// The space for protection information; the caller has checked that there is enough.
fn protection_of(spec: &DeviceSpec) -> Option<Protection> {
    let first = match spec.protection {
        ProtectionSpec::Off => return None,
        ProtectionSpec::Unformatted => None,
        ProtectionSpec::Type(kind) => Some(kind),
    };
    let layout = Layout::new(spec.media_bytes, spec.sector_bytes)?;
    Some(Protection::new(layout, first))
}

impl Device {
    pub(crate) fn new(
        number: u32,
        spec: DeviceSpec,
        kind: UnitKind,
        common: Arc<Common>,
    ) -> Device {
        let sector = u64::from(spec.sector_bytes.max(1));
        let protection = protection_of(&spec);
        let blocks = match &protection {
            Some(protection) => protection.layout().blocks,
            None => spec.media_bytes / sector,
        };
        let usage = spec.space_usage.filter(|_| spec.can_delete);
        let device = Device {
            provisioning: Mutex::new(Provisioning {
                reads_zero: spec.delete_reads_zero,
                unit_bytes: spec.delete_unit_bytes,
                offset: spec.delete_offset,
                request_bytes: spec.delete_request_bytes,
            }),
            space: usage.map(|usage| Space::new(usage, &spec.full_percents)),
            number,
            edge: AtomicU32::new(spec.edge.0),
            blocks: AtomicU64::new(blocks),
            mode: AtomicU32::new(0),
            saved: AtomicU32::new(0),
            loss: Loss::default(),
            condition: Condition::default(),
            nexuses: Mutex::default(),
            order: Mutex::default(),
            ports: Mutex::default(),
            reset_number: AtomicU64::new(0),
            operations: Operations::default(),
            watch: Watch::default(),
            common,
            reservations: UnitReservations::default(),
            mode_gate: Mutex::new(()),
            selecting: AtomicBool::new(false),
            initiator_data: InitiatorData::default(),
            history: History::default(),
            load: Load::default(),
            protection,
            kind,
            label: RwLock::new(Arc::new(spec.label.clone())),
            spec,
        };
        device.restore_mode(device.default_mode());
        device
    }

    /// Number in this daemon; never reused.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Specification of the unit.
    pub fn spec(&self) -> &DeviceSpec {
        &self.spec
    }

    /// Name of the unit in lists and for hosts.
    pub fn label(&self) -> Arc<Label> {
        self.label.read().clone()
    }

    pub fn name(&self) -> String {
        self.label.read().name.clone()
    }

    /// Changes the label. Initiators receive INQUIRY DATA HAS CHANGED when the change is visible to
    /// them (V2); none of their commands ends.
    pub(crate) fn set_label(&self, to: Label) {
        let mut label = self.label.write();
        let was = std::mem::replace(&mut *label, Arc::new(to));
        let is_seen = Label { name: label.name.clone(), ..(*was).clone() } != **label;
        drop(label);
        if is_seen {
            self.raise(asc::INQUIRY_CHANGED, None);
        }
    }

    /// Current properties of freeing blocks.
    pub fn provisioning(&self) -> Provisioning {
        *self.provisioning.lock()
    }

    /// A layer was added or removed below it (F1).
    pub fn set_provisioning(&self, now: Provisioning) {
        let mut freeing = self.provisioning.lock();
        let was = std::mem::replace(&mut *freeing, now);
        drop(freeing);
        if was != now && self.spec.can_delete {
            self.raise(asc::INQUIRY_CHANGED, None);
        }
    }

    pub fn reservations(&self) -> &UnitReservations {
        &self.reservations
    }

    /// State of its medium.
    #[inline]
    pub fn condition(&self) -> &Condition {
        &self.condition
    }

    /// Its space for protection information.
    pub(crate) fn protection(&self) -> Option<&Protection> {
        self.protection.as_ref()
    }

    /// The type of protection that its medium is formatted with.
    #[inline]
    pub fn protection_type(&self) -> Option<ProtectionType> {
        self.protection.as_ref().and_then(Protection::kind)
    }

    /// Kind of the unit; the handler of that kind executes its commands.
    #[inline]
    pub fn kind(&self) -> UnitKind {
        self.kind
    }

    /// The way down.
    #[inline]
    pub fn edge(&self) -> Edge {
        Edge(self.edge.load(Ordering::Acquire))
    }

    /// Text that distinguishes the unit from others behind a LUN: its names and the length of its
    /// blocks. A host that continues with another length would write to other bytes.
    pub(crate) fn identity_text(&self) -> String {
        format!("{}{LENGTH_MARK}{}", self.spec().ids().identity_text(), self.block_bytes())
    }

    /// Logical block, bytes; never zero.
    #[inline]
    pub fn block_bytes(&self) -> u32 {
        self.spec.sector_bytes.max(1)
    }

    /// Capacity, in logical blocks.
    #[inline]
    pub fn blocks(&self) -> u64 {
        self.blocks.load(Ordering::Acquire)
    }

    /// Largest transfer of one command, bytes: [`TRANSFER_MAX`], or less when the pools are small.
    #[inline]
    pub fn transfer_max(&self) -> u32 {
        match self.common.transfer_max() {
            0 => TRANSFER_MAX,
            most => most.min(TRANSFER_MAX),
        }
    }

    /// Its copy manager's operations.
    pub(crate) fn operations(&self) -> &Operations {
        &self.operations
    }

    /// Who watches over its data.
    #[inline(always)]
    pub(crate) fn watch(&self) -> &Watch {
        &self.watch
    }

    #[inline]
    pub fn mode(&self) -> ModeBits {
        ModeBits(self.mode.load(Ordering::Acquire))
    }

    /// The mode bits after a reset.
    pub fn saved_mode(&self) -> ModeBits {
        ModeBits(self.saved.load(Ordering::Acquire))
    }

    pub(crate) fn set_saved_mode(&self, mode: ModeBits) {
        self.saved.store(mode.0, Ordering::Release);
    }

    /// Values saved before the unit was made are in effect from its first command on.
    pub(crate) fn restore_mode(&self, mode: ModeBits) {
        self.set_saved_mode(mode);
        self.set_mode(mode);
    }

    /// How many commands it has and takes (`qos/mod.rs`).
    pub(crate) fn traffic(&self) -> &Load {
        &self.load
    }

    /// Latency, rate and limit of its reads and writes, for lists.
    pub fn flow(&self) -> FlowView {
        self.load.view()
    }

    /// Counters for its log pages.
    pub(crate) fn history(&self) -> &History {
        &self.history
    }

    /// The counters of its log pages; `now_ns` is the cores' clock, which counts from when the
    /// machine was turned on.
    pub fn counts(&self, now_ns: u64) -> LogCounts {
        let minutes = u32::try_from(now_ns / 60_000_000_000).unwrap_or(u32::MAX);
        let counts = self.history.counts(&self.nexuses(), self.block_bytes(), minutes);
        LogCounts { space: self.space_counts(), ..counts }
    }

    /// Capacity of its medium in bytes, including the unit's own metadata.
    fn media_bytes(&self) -> u64 {
        let blocks = self.blocks().saturating_mul(u64::from(self.block_bytes()));
        blocks.max(self.spec.media_bytes)
    }

    /// Values of log page 0Ch; None without that page.
    pub(crate) fn space_counts(&self) -> Option<SpaceCounts> {
        self.space.as_ref().map(|space| space.counts(self.media_bytes()))
    }

    /// Its space and its thresholds, where its disk reports any.
    pub(crate) fn space(&self) -> Option<&Space> {
        self.space.as_ref()
    }

    /// Space that its disk reported last.
    pub fn space_usage(&self) -> Option<SpaceUsage> {
        self.space.as_ref().map(Space::usage)
    }

    /// The configuration sets other thresholds of use, percent. False when its disk does not report
    /// how full it is.
    pub fn configure_thresholds(&self, percents: Option<&[u8]>) -> bool {
        let Some(space) = &self.space else { return false };
        space.configure(percents.unwrap_or(&FULL_PERCENTS));
        true
    }

    /// Its disk has just reported its space. Raises a unit attention at a threshold (`space.rs`).
    pub fn update_space_usage(&self, usage: SpaceUsage) {
        let Some(space) = &self.space else { return };
        let tells = self.mode().has(ModeBits::LBPERE) && self.has_nexus();
        if space.note(usage, self.media_bytes(), tells) {
            self.raise(asc::THIN_SOFT_THRESHOLD, None);
        }
    }

    /// A nexus took the unit attention of a threshold: whether it is the one to be notified.
    pub(crate) fn claim_threshold_attention(&self) -> bool {
        let Some(space) = self.space.as_ref().filter(|_| self.mode().has(ModeBits::SITUA)) else {
            return true;
        };
        let first = space.take_unreported();
        if first {
            self.nexuses().iter().for_each(|n| n.forget(asc::THIN_SOFT_THRESHOLD));
        }
        first
    }

    /// LOG SELECT: the counters begin at zero again.
    pub(crate) fn reset_counts(&self) {
        self.history.reset(&self.nexuses());
    }

    /// Initiators' data that the unit stores.
    pub(crate) fn initiator_data(&self) -> &InitiatorData {
        &self.initiator_data
    }

    /// The mode bits of a unit for which nothing was saved.
    pub fn default_mode(&self) -> ModeBits {
        ModeBits::QAM
            .with(ModeBits::WCE, self.spec.write_cache)
            .with(ModeBits::LBPERE, self.space.is_some())
    }

    /// From now on commands run by these bits.
    pub(crate) fn set_mode(&self, mode: ModeBits) {
        let set = self.order();
        self.mode.store(mode.0, Ordering::Release);
        if !mode.has(ModeBits::QAM) {
            self.mark(flags::ORDER);
        } else if !set.is_strict() {
            self.unmark(flags::ORDER);
        }
    }

    pub(crate) fn order(&self) -> MutexGuard<'_, TaskSet<Owner>> {
        self.order.lock()
    }

    /// Takes the order back when nothing needs it any more.
    pub(crate) fn try_relax_order(&self) -> bool {
        let mut set = self.order();
        if set.is_strict() && !set.try_relax() {
            return false;
        }
        if self.mode().has(ModeBits::QAM) {
            self.unmark(flags::ORDER);
        }
        true
    }

    /// Sets bits in every nexus, later ones too.
    pub(crate) fn mark(&self, bits: u32) {
        let mut list = self.list();
        list.bits |= bits;
        list.all.iter().filter_map(Weak::upgrade).for_each(|n| n.set(bits));
    }

    /// Clears bits in every nexus.
    pub(crate) fn unmark(&self, bits: u32) {
        let mut list = self.list();
        list.bits &= !bits;
        list.all.iter().filter_map(Weak::upgrade).for_each(|n| n.clear(bits));
    }

    /// Why the unit was lost, if it was.
    #[inline]
    pub fn lost(&self) -> Option<Errno> {
        self.loss.error()
    }

    /// The provider below was lost: from now on commands end with sense data that reports it.
    pub fn lose(&self, error: Errno) {
        self.loss.set(Some(error), &self.common);
    }

    /// The registry lists the unit from now on, or does so no more.
    pub(crate) fn set_listed(&self, is_listed: bool) {
        self.loss.set_listed(is_listed, &self.common);
    }

    /// The provider is back, on another path: the unit is usable again and every nexus receives NOT
    /// READY TO READY CHANGE.
    pub fn find(&self, edge: Edge, media_bytes: u64) {
        self.watch.revoke_all();
        self.edge.store(edge.0, Ordering::Release);
        self.resize(media_bytes);
        self.raise(asc::MEDIUM_CHANGED, None);
        self.loss.set(None, &self.common);
    }

    /// The medium has a new size, bytes; every nexus receives CAPACITY DATA HAS CHANGED.
    pub fn resize(&self, media_bytes: u64) {
        let all = media_bytes / u64::from(self.block_bytes());
        self.set_blocks(self.protection.as_ref().map_or(all, |p| p.resized(all)));
    }

    /// The tail of protection information is elsewhere than it was: the capacity is another.
    pub(crate) fn refit(&self) {
        if let Some(protection) = &self.protection {
            self.set_blocks(protection.capacity());
        }
    }

    fn set_blocks(&self, blocks: u64) {
        if self.blocks.swap(blocks, Ordering::AcqRel) != blocks {
            self.raise(asc::CAPACITY_CHANGED, None);
        }
    }

    fn list(&self) -> MutexGuard<'_, Nexuses> {
        self.nexuses.lock()
    }

    /// Adds a nexus: it receives all conditions raised from now on.
    pub(crate) fn enlist(&self, nexus: &Arc<ItlNexus>) {
        let mut list = self.list();
        // When the list is full, dropped nexuses are removed; the list doubles when most are alive.
        if list.all.len() == list.all.capacity() {
            list.all.retain(|n| n.strong_count() > 0);
        }
        list.all.push(Arc::downgrade(nexus));
        nexus.set(list.bits);
    }

    /// True when some session has used it and is there still.
    pub(crate) fn has_nexus(&self) -> bool {
        self.list().all.iter().any(|n| n.strong_count() > 0)
    }

    fn ports_list(&self) -> MutexGuard<'_, BTreeMap<u16, u32>> {
        self.ports.lock()
    }

    /// Relative identifiers of the target ports through which it is mapped, by growing number.
    pub fn ports(&self) -> Vec<u16> {
        self.ports_list().keys().copied().collect()
    }

    /// An entry of a map of a port names it from now on, or does so no more.
    pub(crate) fn mapped(&self, port: u16, comes: bool) {
        let mut ports = self.ports_list();
        let count = ports.entry(port).or_default();
        *count = if comes { count.saturating_add(1) } else { count.saturating_sub(1) };
        if *count == 0 {
            ports.remove(&port);
        }
    }

    /// Number of its last reset; zero before the first.
    pub(crate) fn reset_number(&self) -> u64 {
        self.reset_number.load(Ordering::Acquire)
    }

    /// Its nexuses now, oldest first; one more may be added at any time (`Device::enlist`).
    pub fn nexuses(&self) -> Vec<Arc<ItlNexus>> {
        self.list().all.iter().filter_map(Weak::upgrade).collect()
    }

    /// Raises a condition for every nexus but `except`.
    pub fn raise(&self, attention: Asc, except: Option<&Arc<ItlNexus>>) {
        for nexus in self.nexuses() {
            if !except.is_some_and(|e| Arc::ptr_eq(e, &nexus)) {
                nexus.raise(attention);
            }
        }
    }

    /// LOGICAL UNIT RESET, of that number: restores the saved mode pages. The engines notify the
    /// nexuses.
    pub(crate) fn reset(&self, number: u64) {
        self.reset_number.fetch_max(number, Ordering::AcqRel);
        let _gate = self.mode_gate.lock();
        self.set_mode(self.saved_mode());
        if let Some(space) = &self.space {
            space.reset();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disk() -> Device {
        let spec = DeviceSpec::new("d", "s", Edge(0), 1 << 20, 512);
        Device::new(1, spec, UnitKind::Disk, Arc::default())
    }

    #[test]
    fn a_changed_size_is_reported_once_to_every_nexus() {
        let d = disk();
        let (a, b) = (Arc::new(ItlNexus::default()), Arc::new(ItlNexus::default()));
        d.enlist(&a);
        d.enlist(&b);
        d.resize(1 << 20);
        assert!(!a.is_pending());
        d.resize(1 << 21);
        assert_eq!((d.blocks(), a.waiting()), (4096, vec![asc::CAPACITY_CHANGED]));
        assert_eq!(b.waiting(), vec![asc::CAPACITY_CHANGED]);
        d.raise(asc::MODE_CHANGED, Some(&a));
        assert_eq!((a.waiting().len(), b.waiting().len()), (1, 2));
    }

    #[test]
    fn errors_of_a_lost_device_round_trip_through_the_shared_byte() {
        let d = disk();
        assert_eq!(d.lost(), None);
        for &e in Errno::ALL {
            d.lose(e);
            assert_eq!(d.lost(), Some(e));
        }
    }
}
