//! The commands of a session that have write data and have not been answered, by initiator task
//! tag, and the write data that is on its way.
//!
//! ```text
//!   write command -> UNSOLICITED --F--+--> all there --> handed to the engine
//!                                     |        ^
//!                  immediate only ----+--> R2T, Data-Out .. F --+
//!                                                  |
//!                    any error --> FAILED: the rest of open bursts is dropped, then reported
//! ```
//!
//! Invariants
//!  D1  Data is taken in order: `received` is a prefix of the command's data.
//!  D2  Every open burst has its own target transfer tag and counts its own DataSN.
//!  D3  A command that offers write data has a record here from before the engine receives it until
//!      the engine has answered or discarded it. Other commands have none.

use std::cell::Cell;
use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};
use std::rc::Rc;

use bio::Segs;
use engine::{DataError, PartialGrant};
use wire::iscsi::{DataOut, TAG_NONE};

/// A sequence of Data-Out that was allowed: unasked, or by one R2T.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Burst {
    /// Target transfer tag; [`TAG_NONE`] for unsolicited data.
    pub tag: u32,
    /// Offset of the next byte.
    pub at: u32,
    /// Offset after the last byte.
    pub end: u32,
    /// DataSN of the next PDU.
    pub data_sn: u32,
    /// When it was allowed, ns.
    pub since: u64,
    /// Bytes of write data that were on their way then, its own among them.
    pub ahead: usize,
}

/// Bytes of memory for write data on its way, counted while this lives.
#[derive(Default)]
pub(crate) struct Gathering {
    sum: Option<Rc<Cell<usize>>>,
    bytes: usize,
}

impl Gathering {
    /// Counts `bytes` in `sum`, in place of the number counted before.
    pub fn count(&mut self, sum: &Rc<Cell<usize>>, bytes: usize) {
        sum.set((sum.get() + bytes).saturating_sub(self.bytes));
        self.bytes = bytes;
        self.sum.get_or_insert_with(|| sum.clone());
    }
}

impl Drop for Gathering {
    fn drop(&mut self) {
        if let Some(sum) = &self.sum {
            sum.set(sum.get().saturating_sub(self.bytes));
        }
    }
}

/// Write data on its way.
#[derive(Default)]
pub(crate) struct Incoming {
    /// The memory; grows to `wanted`.
    pub data: Segs,
    /// Bytes that the command takes.
    pub wanted: u32,
    /// Offset up to which R2Ts were sent, or unsolicited data arrived.
    pub requested: u32,
    /// Bytes that are there (D1).
    pub received: u32,
    /// Open bursts, oldest first.
    pub bursts: VecDeque<Burst>,
    /// `data` is a part, and the rest is waited for.
    pub part: Option<PartialGrant>,
    /// Counts `data` in the session's total.
    pub gathering: Gathering,
    /// The error in the data; reported once the open bursts have ended.
    pub failed: Option<DataError>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DataOutAction {
    /// Store this many bytes at the offset; the rest of the PDU is beyond the wanted data.
    Store {
        /// Bytes to store.
        len: u32,
    },
    /// Its tag belongs to no open burst: Reject.
    UnknownTag,
    /// Drop its data.
    Discard,
}

impl Incoming {
    /// Checks a Data-Out PDU against the open bursts and counts it. Errors mark the command failed;
    /// they end the burst when no more of it can arrive.
    pub fn admit(&mut self, pdu: &DataOut) -> DataOutAction {
        let Some(place) = self.bursts.iter().position(|b| b.tag == pdu.target_tag) else {
            return DataOutAction::UnknownTag;
        };
        let Some(burst) = self.bursts.get_mut(place) else { return DataOutAction::UnknownTag };
        let end = pdu.offset.saturating_add(pdu.data_len);
        let solicited = burst.tag != TAG_NONE;
        let in_order = place == 0 && pdu.offset == burst.at && pdu.data_sn == burst.data_sn;
        let complete = end == burst.end;
        let shape = if solicited { pdu.last == complete } else { pdu.last || !complete };
        let fits = end <= burst.end;
        let good = in_order && fits && shape && self.failed.is_none();
        if good {
            burst.at = end;
            burst.data_sn = burst.data_sn.wrapping_add(1);
        } else if self.failed.is_none() {
            let too_much = !solicited && !fits;
            let why = if too_much { DataError::Unexpected } else { DataError::Sequence };
            self.failed = Some(why);
        }
        if good && pdu.last && !solicited && !complete {
            self.failed = Some(DataError::TooLittle);
        }
        if pdu.last || end >= burst.end {
            self.bursts.remove(place);
        }
        if !good {
            return DataOutAction::Discard;
        }
        if !solicited {
            self.requested = self.requested.max(end);
        }
        DataOutAction::Store { len: self.wanted.saturating_sub(pdu.offset).min(pdu.data_len) }
    }

    /// Notes that the bytes up to `end` are there.
    pub fn stored(&mut self, end: u32) {
        self.received = self.received.max(end.min(self.wanted));
    }

    /// Notes an error that is not the sequence's; the first one counts.
    pub fn fail(&mut self, why: DataError) {
        self.failed.get_or_insert(why);
    }

    /// The next burst to request, at most `burst_max` bytes, if another may be open now.
    pub fn next_burst(&mut self, open_max: u32, burst_max: u32) -> Option<(u32, u32)> {
        let open = u32::try_from(self.bursts.len()).unwrap_or(u32::MAX);
        let unsolicited = self.bursts.front().is_some_and(|b| b.tag == TAG_NONE);
        if self.failed.is_some() || unsolicited || open >= open_max || self.requested >= self.wanted
        {
            return None;
        }
        let len = (self.wanted - self.requested).min(burst_max.max(1));
        let from = self.requested;
        self.requested += len;
        Some((from, len))
    }

    /// How it ended, if it has.
    pub fn outcome(&self) -> Option<Result<(), DataError>> {
        if !self.bursts.is_empty() {
            return None;
        }
        match self.failed {
            Some(why) => Some(Err(why)),
            None => (self.received >= self.wanted).then_some(Ok(())),
        }
    }
}

/// One command that offers write data.
#[derive(Default)]
pub(crate) struct Task {
    /// Its LUN field, for R2Ts.
    pub lun: [u8; 8],
    /// R2Ts sent.
    pub r2ts: u32,
    /// Write data on its way; None when none is wanted or all was handed over. Boxed: the table of
    /// tasks stays small for commands without it.
    pub incoming: Option<Box<Incoming>>,
}

/// Tags are small numbers counted up by most initiators: one multiplication spreads them.
#[derive(Default)]
pub(crate) struct TagHasher(u64);

impl Hasher for TagHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for b in bytes {
            self.write_u32(u32::from(*b));
        }
    }

    fn write_u32(&mut self, tag: u32) {
        let mixed = (self.0 ^ u64::from(tag)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        self.0 = mixed ^ (mixed >> 32);
    }
}

/// The commands with write data by tag. An initiator chooses its own tags, and only its own
/// session's table holds them: colliding tags slow down no other session.
pub(crate) type Tasks = HashMap<u32, Task, BuildHasherDefault<TagHasher>>;

#[cfg(test)]
mod tests {
    use super::*;

    fn pdu(tag: u32, data_sn: u32, offset: u32, len: u32, last: bool) -> DataOut {
        DataOut { target_tag: tag, data_sn, offset, data_len: len, last, ..DataOut::default() }
    }

    fn requested(tag: u32, from: u32, end: u32, wanted: u32) -> Incoming {
        let mut i = Incoming { wanted, requested: end, received: from, ..Incoming::default() };
        i.bursts.push_back(Burst { tag, at: from, end, data_sn: 0, since: 0, ahead: 0 });
        i
    }

    /// D1.
    #[test]
    fn a_task_without_write_data_is_small() {
        assert!(size_of::<Task>() <= 32, "{}", size_of::<Task>());
    }

    #[test]
    fn a_burst_in_order_is_stored() {
        let mut i = requested(7, 0, 1000, 1000);
        assert_eq!(i.admit(&pdu(7, 0, 0, 600, false)), DataOutAction::Store { len: 600 });
        i.stored(600);
        assert_eq!(i.outcome(), None);
        assert_eq!(i.admit(&pdu(7, 1, 600, 400, true)), DataOutAction::Store { len: 400 });
        i.stored(1000);
        assert_eq!(i.outcome(), Some(Ok(())));
    }

    /// D1, D2.
    #[test]
    fn every_departure_from_the_sequence_fails_the_command() {
        for (first, why) in [
            (pdu(7, 1, 0, 600, false), DataError::Sequence),
            (pdu(7, 0, 4, 600, false), DataError::Sequence),
            (pdu(7, 0, 0, 600, true), DataError::Sequence),
            (pdu(7, 0, 0, 1000, false), DataError::Sequence),
            (pdu(7, 0, 0, 1004, true), DataError::Sequence),
        ] {
            let mut i = requested(7, 0, 1000, 1000);
            assert_eq!(i.admit(&first), DataOutAction::Discard, "{first:?}");
            if i.outcome().is_none() {
                // The initiator does not know yet and continues: dropped, up to its end.
                assert_eq!(i.admit(&pdu(7, 1, 600, 400, true)), DataOutAction::Discard);
            }
            assert_eq!(i.outcome(), Some(Err(why)), "{first:?}");
        }
        let mut i = requested(7, 0, 1000, 1000);
        assert_eq!(i.admit(&pdu(8, 0, 0, 1000, true)), DataOutAction::UnknownTag);
        assert_eq!(i.outcome(), None, "the right data can still come");
    }

    #[test]
    fn unsolicited_data_ends_with_f_and_not_before_its_limit() {
        let mut i = requested(TAG_NONE, 100, 1000, 5000);
        i.requested = 100;
        assert_eq!(i.next_burst(1, 1 << 20), None, "not while data comes unasked");
        assert_eq!(i.admit(&pdu(TAG_NONE, 0, 100, 900, true)), DataOutAction::Store { len: 900 });
        assert_eq!(i.next_burst(1, 3000), Some((1000, 3000)));
        let mut i = requested(TAG_NONE, 100, 1000, 5000);
        i.admit(&pdu(TAG_NONE, 0, 100, 300, true));
        assert_eq!(i.outcome(), Some(Err(DataError::TooLittle)));
        let mut i = requested(TAG_NONE, 100, 1000, 5000);
        assert_eq!(i.admit(&pdu(TAG_NONE, 0, 100, 901, true)), DataOutAction::Discard);
        assert_eq!(i.outcome(), Some(Err(DataError::Unexpected)));
    }

    /// D1, D2.
    #[test]
    fn several_bursts_are_open_and_answered_in_order() {
        let mut i = Incoming { wanted: 1000, ..Incoming::default() };
        let mut tags = 10;
        while let Some((from, len)) = i.next_burst(2, 400) {
            i.bursts.push_back(Burst {
                tag: tags,
                at: from,
                end: from + len,
                data_sn: 0,
                since: 0,
                ahead: 0,
            });
            tags += 1;
        }
        assert_eq!((i.bursts.len(), i.requested), (2, 800));
        assert_eq!(i.admit(&pdu(11, 0, 400, 400, true)), DataOutAction::Discard, "11 before 10");
        assert_eq!(i.admit(&pdu(10, 0, 0, 400, true)), DataOutAction::Discard);
        assert_eq!(i.outcome(), Some(Err(DataError::Sequence)));
    }

    #[test]
    fn data_beyond_the_transfer_length_is_not_stored() {
        let mut i = requested(TAG_NONE, 0, 1000, 512);
        assert_eq!(i.admit(&pdu(TAG_NONE, 0, 0, 500, false)), DataOutAction::Store { len: 500 });
        assert_eq!(i.admit(&pdu(TAG_NONE, 1, 500, 500, true)), DataOutAction::Store { len: 12 });
        i.stored(1000);
        assert_eq!(i.outcome(), Some(Ok(())));
    }
}
