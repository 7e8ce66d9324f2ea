//! The commands of a queue that have not been answered.
//!
//! ```text
//!   FREE --put--> HUNGRY --R2T--> GATHERING --all data--> READY --issue--> ENGINE --respond-->
//!            |                       ^                      ^                 |    answered: FREE
//!            +-- in the capsule: COMING ----------------------+                |
//!            +-- no data -------------------------------->  +--- next, again -+
//! ```
//!
//! Invariants
//!  Q1  A place that is open is answered exactly once, or the connection ends.
//!  Q2  Write data is held until the command has ended: it can be sent to the engine again.
//!  Q3  H2CData is taken for a place that is GATHERING, by CID and transfer tag, in order, and
//!      within the requested range. Anything else ends the connection.

use std::collections::VecDeque;

use bio::Segs;
use wire::nvme::{Command, Data, Extent, Fault, Status, codes::fatal};

/// Most entries of a queue, which holds one command fewer; CAP.MQES reports it.
pub const DEPTH: u16 = 128;

/// Purpose of a SCSI command within an NVMe command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Work {
    #[default]
    Read,
    Write,
    /// VERIFY with the host's data.
    Compare,
    Verify,
    /// WRITE SAME; true when blocks may be freed.
    Zero(bool),
    /// UNMAP, one list after the other.
    Free,
    /// SYNCHRONIZE CACHE.
    Flush,
}

impl Work {
    /// It changes the medium.
    pub fn writes(self) -> bool {
        matches!(self, Work::Write | Work::Zero(_) | Work::Free)
    }
}

/// Where a command is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Stage {
    #[default]
    Free,
    /// Waits for memory, then its data is requested.
    MemoryWait,
    /// Its data is behind it in the capsule.
    CapsuleData,
    /// Its data is on its way, allowed since, ns; behind so many bytes, its own among them.
    Gathering { since: u64, ahead: usize },
    /// May be handed to the engine.
    Ready,
    /// There.
    Engine,
}

/// One place of the table; its number is the tag at the engine, and the transfer tag.
#[derive(Default)]
pub(crate) struct Task {
    pub stage: Stage,
    pub command: Command,
    pub lun: [u8; 8],
    pub work: Work,
    pub extent: Extent,
    /// Bytes of data from the host.
    pub wanted: u32,
    /// Bytes of them that are here.
    pub received: u32,
    /// They (Q2).
    pub data: Segs,
    /// Parameter lists of UNMAP; the first is under way.
    pub lists: VecDeque<Vec<u8>>,
    /// The fault in the data; reported when all of the data has arrived.
    pub failed: Option<Status>,
    pub then_flush: bool,
    pub aborted: bool,
    pub tries: u8,
}

/// The table.
#[derive(Default)]
pub(crate) struct Tasks {
    places: Vec<Task>,
    /// Identifiers of those that are open, by place: looked through for every command.
    ids: Vec<Option<u16>>,
    free: Vec<u32>,
    open: u16,
}

impl Tasks {
    /// Commands under way.
    pub fn open(&self) -> u16 {
        self.open
    }

    /// Takes a place; its lists are empty and keep their capacity.
    pub fn put(&mut self, new: Task) -> u32 {
        let tag = self.free.pop().unwrap_or_else(|| {
            self.places.push(Task::default());
            self.ids.push(None);
            u32::try_from(self.places.len() - 1).unwrap_or(u32::MAX)
        });
        self.open += 1;
        let at = usize::try_from(tag).unwrap_or(usize::MAX);
        if let (Some(task), Some(id)) = (self.places.get_mut(at), self.ids.get_mut(at)) {
            *id = Some(new.command.id);
            *task = new;
        }
        tag
    }

    fn place(&mut self, tag: u32) -> Option<&mut Task> {
        self.places.get_mut(usize::try_from(tag).ok()?)
    }

    /// A place that is open.
    pub fn get(&mut self, tag: u32) -> Option<&mut Task> {
        self.place(tag).filter(|t| t.stage != Stage::Free)
    }

    /// The place of a command that the host knows by that identifier.
    pub fn find(&self, id: u16) -> Option<u32> {
        let at = self.ids.iter().position(|i| *i == Some(id))?;
        u32::try_from(at).ok()
    }

    /// Frees a place and returns the memory that it held.
    pub fn free(&mut self, tag: u32) -> Segs {
        let Some(task) = self.get(tag) else { return Segs::new() };
        task.stage = Stage::Free;
        let data = std::mem::take(&mut task.data);
        task.lists.clear();
        if let Some(id) = usize::try_from(tag).ok().and_then(|at| self.ids.get_mut(at)) {
            *id = None;
        }
        self.open -= 1;
        self.free.push(tag);
        data
    }

    /// Tags of all that are open.
    pub fn tags(&self) -> Vec<u32> {
        let open = (0u32..).zip(&self.places).filter(|(_, t)| t.stage != Stage::Free);
        open.map(|(tag, _)| tag).collect()
    }

    /// Those whose data is on its way.
    pub fn gathering(&self) -> impl Iterator<Item = (u64, usize)> {
        self.places.iter().filter_map(|t| match t.stage {
            Stage::Gathering { since, ahead } => Some((since, ahead)),
            _ => None,
        })
    }

    /// Finds the place of an H2CData (Q3); `len` bytes arrived with it.
    pub fn admit(&mut self, pdu: &Data, len: usize, last: bool) -> Result<u32, Fault> {
        let tag = u32::from(pdu.tag);
        let gathers = |t: &&mut Task| {
            matches!(t.stage, Stage::Gathering { .. }) && t.command.id == pdu.command
        };
        let Some(task) = self.place(tag).filter(gathers) else {
            return Err(Fault::field(8, "CCCID, TTAG: no open R2T has these values"));
        };
        if usize::try_from(pdu.len).ok() != Some(len) {
            return Err(Fault::field(16, "DATAL: does not match PLEN"));
        }
        let end = pdu.at.checked_add(pdu.len).filter(|end| *end <= task.wanted);
        let Some(end) = end.filter(|_| pdu.at == task.received) else {
            let what = "DATAO, DATAL: out of order, or beyond the requested range";
            return Err(Fault::of(fatal::DATA_RANGE, what));
        };
        if last != (end == task.wanted) {
            return Err(Fault::field(1, "LAST: on data that is not the last, or not on the last"));
        }
        Ok(tag)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(id: u16, wanted: u32) -> Task {
        let command = Command { id, ..Command::default() };
        let stage = Stage::Gathering { since: 0, ahead: 0 };
        Task { stage, command, wanted, ..Task::default() }
    }

    #[test]
    fn q3_data_is_accepted_in_order_and_only_for_its_command() {
        let mut tasks = Tasks::default();
        let tag = tasks.put(task(7, 8192));
        let pdu = Data { command: 7, tag: 0, at: 0, len: 4096 };
        assert_eq!(tasks.admit(&pdu, 4096, false), Ok(tag));
        tasks.get(tag).unwrap().received = 4096;
        let next = Data { at: 4096, ..pdu };
        assert_eq!(tasks.admit(&next, 4096, true), Ok(tag));
        for (pdu, len, last, reason) in [
            (Data { tag: 1, ..next }, 4096, true, fatal::HEADER_FIELD),
            (Data { tag: u16::MAX, ..next }, 4096, true, fatal::HEADER_FIELD),
            (Data { command: 8, ..next }, 4096, true, fatal::HEADER_FIELD),
            (Data { len: 4092, ..next }, 4096, true, fatal::HEADER_FIELD),
            (Data { len: 4100, ..next }, 4100, true, fatal::DATA_RANGE),
            (Data { at: 0, ..next }, 4096, true, fatal::DATA_RANGE),
            // Their sum would wrap to something small.
            (Data { at: u32::MAX - 4095, ..next }, 4096, true, fatal::DATA_RANGE),
            (next, 4096, false, fatal::HEADER_FIELD),
            (Data { len: 4000, ..next }, 4000, true, fatal::HEADER_FIELD),
        ] {
            assert_eq!(tasks.admit(&pdu, len, last).unwrap_err().reason, reason, "{pdu:?}");
        }
    }

    #[test]
    fn q3_command_accepts_data_only_while_gathering() {
        for stage in
            [Stage::MemoryWait, Stage::CapsuleData, Stage::Ready, Stage::Engine, Stage::Free]
        {
            let mut tasks = Tasks::default();
            tasks.put(Task { stage, ..task(7, 4096) });
            let pdu = Data { command: 7, tag: 0, at: 0, len: 4096 };
            assert!(tasks.admit(&pdu, 4096, true).is_err(), "{stage:?}");
        }
    }

    #[test]
    fn freed_places_are_reused() {
        let mut tasks = Tasks::default();
        let (a, b) = (tasks.put(task(1, 1)), tasks.put(task(2, 1)));
        assert_eq!((tasks.open(), tasks.find(2), tasks.find(3)), (2, Some(b), None));
        tasks.free(a);
        tasks.free(a);
        assert_eq!((tasks.open(), tasks.find(1), tasks.tags()), (1, None, vec![b]));
        assert_eq!(tasks.put(task(3, 1)), a);
    }
}
