//! Commands on their way to the engine, their write data, and R2Ts.

use std::rc::Rc;

use bio::Segs;
use engine::{Command, DataError, Next, TaskAttribute};
use wire::iscsi::{
    Attribute, Bhs, CDB_LEN_MAX, DataOut, Frame, R2t, RejectReason, Residual, ScsiResponse,
    TAG_NONE,
};

use super::close_reason::CloseReason;
use super::pdu_reader::PduReader;
use super::receive::{ImmediateDataError, ReceivedCommand};
use super::session::IscsiSession;
use super::tasks::{Burst, DataOutAction, Incoming, Task};

/// Immediate commands beyond the depth of the session; a further one is rejected.
const IMMEDIATE_MAX: usize = 32;

/// SCSI status BUSY: try again later.
const BUSY: u8 = 0x08;

/// SCSI status TASK SET FULL: try again when one of the others has ended.
const TASK_SET_FULL: u8 = 0x28;

fn attribute(a: Attribute) -> TaskAttribute {
    match a {
        Attribute::Untagged | Attribute::Simple => TaskAttribute::Simple,
        Attribute::Ordered => TaskAttribute::Ordered,
        Attribute::HeadOfQueue => TaskAttribute::HeadOfQueue,
        Attribute::Aca => TaskAttribute::Aca,
    }
}

impl IscsiSession {
    /// Hands a command to the engine and sees to its write data.
    pub fn command(&self, arrived: &mut ReceivedCommand) -> Result<(), CloseReason> {
        let header = &arrived.header;
        let tag = header.task_tag;
        let Some(nexus) = self.nexus() else {
            return self.reject_command(RejectReason::Protocol, header);
        };
        // W4
        if nexus.has_command(tag) || self.functions.borrow().contains(&tag) {
            self.conn.warn(format_args!("tag {tag:#x} is in use already"));
            return self.reject_command(RejectReason::TaskInProgress, header);
        }
        let open = nexus.outstanding();
        if header.immediate && open >= usize::try_from(self.depth()).unwrap_or(0) + IMMEDIATE_MAX {
            return self.reject_command(RejectReason::TooManyImmediate, header);
        }
        if arrived.lost == Some(ImmediateDataError::NoMemory) {
            self.full(tag, open, arrived.expect_in.max(arrived.expect_out));
            return Ok(());
        }
        if arrived.expect_out > 0 {
            // D3
            let task = Task { lun: header.lun, ..Task::default() };
            self.tasks.borrow_mut().insert(tag, task);
        }
        let mut long;
        let cdb = match arrived.cdb_rest.is_empty() {
            true => header.cdb.as_slice(),
            // The place is cleared for a long CDB only.
            false => {
                long = [0; CDB_LEN_MAX];
                whole_cdb(&header.cdb, &arrived.cdb_rest, &mut long)
            }
        };
        let next = nexus.command(&Command {
            tag,
            lun: header.lun,
            cdb,
            attribute: attribute(header.attribute),
            expect_in: arrived.expect_in,
            expect_out: arrived.expect_out,
        });
        if let Next::Data { wanted } = next {
            let incoming = self.begin_data(arrived, wanted);
            if let Some(task) = self.tasks.borrow_mut().get_mut(&tag) {
                task.incoming = Some(incoming);
            }
            self.progress(tag);
        }
        Ok(())
    }

    /// The command ends without having reached the engine: there was no memory for its data.
    fn full(&self, tag: u32, open: usize, expected: u32) {
        let pdu = ScsiResponse {
            status: if open > 0 { TASK_SET_FULL } else { BUSY },
            task_tag: tag,
            sn: self.numbers(true),
            residual: Residual::Underflow(expected),
            ..ScsiResponse::default()
        };
        self.send(&pdu, &[]);
    }

    /// Sets up the reception of a command's immediate and unsolicited data.
    fn begin_data(&self, arrived: &mut ReceivedCommand, wanted: u32) -> Box<Incoming> {
        let p = self.params.get();
        let immediate = arrived.immediate;
        let limit = p.first_burst.min(arrived.expect_out);
        let mut incoming = self.conn.core.own.incoming.borrow_mut().take();
        incoming.data = std::mem::take(&mut arrived.data);
        incoming.part = arrived.part.take();
        incoming.gathering = std::mem::take(&mut arrived.gathering);
        incoming.wanted = wanted;
        incoming.data.truncate(usize::try_from(wanted).unwrap_or(usize::MAX));
        incoming.received = immediate.min(wanted);
        incoming.requested = immediate;
        if let Some(ImmediateDataError::Error(why)) = arrived.lost {
            incoming.fail(why);
        }
        if immediate > 0 && (!p.immediate_data || immediate > limit) {
            incoming.fail(DataError::Unexpected);
        }
        if !arrived.header.last {
            if p.initial_r2t {
                incoming.fail(DataError::Unexpected);
            }
            if immediate < limit {
                incoming.bursts.push_back(Burst {
                    tag: TAG_NONE,
                    at: immediate,
                    end: limit,
                    data_sn: 0,
                    since: self.conn.core.reactor.now(),
                    ahead: self.gathering.get(),
                });
            } else {
                incoming.fail(DataError::Sequence);
            }
        }
        incoming
    }

    /// Continues with a command's write data: hands it over when it is complete, requests more when
    /// it is not.
    pub fn progress(&self, tag: u32) {
        let ended = {
            let mut tasks = self.tasks.borrow_mut();
            let Some(task) = tasks.get_mut(&tag) else { return };
            let result = task.incoming.as_deref().and_then(Incoming::outcome);
            result.and_then(|r| task.incoming.take().map(|i| (r, i)))
        };
        let Some((result, mut incoming)) = ended else {
            if !self.send_r2ts(tag, false)
                && let Some(me) = self.handle()
            {
                self.conn.core.own.engine.enqueue_memory_waiter(me, u64::from(tag));
            }
            return;
        };
        let mut data = std::mem::take(&mut incoming.data);
        match (result, self.nexus()) {
            (Ok(()), Some(nexus)) => nexus.data(tag, &mut data),
            (Err(why), Some(nexus)) => {
                data.clear();
                self.conn.warn(format_args!("write data of tag {tag:#x}: {why:?}"));
                nexus.data_failed(tag, why);
            }
            (_, None) => {}
        }
        self.conn.core.segs.put(data);
        self.conn.core.own.incoming.borrow_mut().put(incoming);
    }

    /// Write data that waited for memory too long: the command ends BUSY.
    pub fn fail_without_memory(&self, tag: u32) {
        let taken = {
            let mut tasks = self.tasks.borrow_mut();
            let incoming = tasks.get_mut(&tag).map(|t| &mut t.incoming);
            incoming.and_then(|i| i.take_if(|i| i.bursts.is_empty()))
        };
        if let (Some(_), Some(nexus)) = (taken, self.nexus()) {
            nexus.data_failed(tag, DataError::NoMemory);
        }
    }

    /// Sends the R2Ts that may be sent now; false when there is no memory for the data. `fed` when
    /// it is the first of those that wait for it.
    pub fn send_r2ts(&self, tag: u32, fed: bool) -> bool {
        let p = self.params.get();
        loop {
            let r2t = {
                let mut tasks = self.tasks.borrow_mut();
                let Some(task) = tasks.get_mut(&tag) else { return true };
                let Some(incoming) = &mut task.incoming else { return true };
                if incoming.requested >= incoming.wanted || incoming.failed.is_some() {
                    return true;
                }
                if incoming.bursts.front().is_some_and(|b| b.tag == TAG_NONE) {
                    return true;
                }
                if !self.grow_write_data(incoming, fed) {
                    return false;
                }
                let Some((from, len)) = incoming.next_burst(p.max_outstanding_r2t, p.max_burst)
                else {
                    return true;
                };
                let target_tag = self.next_transfer_tag();
                let end = from.saturating_add(len);
                let since = self.conn.core.reactor.now();
                let ahead = self.gathering.get();
                let burst = Burst { tag: target_tag, at: from, end, data_sn: 0, since, ahead };
                incoming.bursts.push_back(burst);
                let r2t_sn = task.r2ts;
                task.r2ts = r2t_sn.wrapping_add(1);
                R2t {
                    lun: task.lun,
                    task_tag: tag,
                    target_tag,
                    sn: Default::default(),
                    r2t_sn,
                    offset: from,
                    desired_len: len,
                }
            };
            self.send(&R2t { sn: self.numbers(false), ..r2t }, &[]);
        }
    }
}

fn whole_cdb<'a>(first: &'a [u8; 16], rest: &[u8], long: &'a mut [u8; CDB_LEN_MAX]) -> &'a [u8] {
    if rest.is_empty() {
        return first;
    }
    let bytes = first.iter().chain(rest);
    let len = long.iter_mut().zip(bytes).map(|(to, from)| *to = *from).count();
    long.get(..len).unwrap_or(first)
}

pub(crate) async fn data_out(
    session: &Rc<IscsiSession>,
    reader: &mut PduReader,
    frame: &Frame,
    bhs: &Bhs,
    pdu: &DataOut,
) -> Result<(), CloseReason> {
    let tag = pdu.task_tag;
    let verdict = {
        let mut tasks = session.tasks.borrow_mut();
        let incoming = tasks.get_mut(&tag).and_then(|t| t.incoming.as_mut());
        // Data of a command that has ended, was aborted or refused: on its way when that happened.
        incoming.map_or(DataOutAction::Discard, |i| i.admit(pdu))
    };
    match verdict {
        DataOutAction::UnknownTag => {
            reader.drop_data(frame).await?;
            session.complain_of(bhs, "target transfer tag of no open R2T");
            return session.reject(RejectReason::Protocol, bhs);
        }
        DataOutAction::Discard => reader.drop_data(frame).await?,
        DataOutAction::Store { len } => {
            let Some(place) = session.place_for(pdu, len) else {
                reader.drop_data(frame).await?;
                session.progress(tag);
                return Ok(());
            };
            let good = session.conn.within(frame.data_len, reader.data(frame, &place)).await?;
            session.conn.core.segs.put(place);
            let mut tasks = session.tasks.borrow_mut();
            let incoming = tasks.get_mut(&tag).and_then(|t| t.incoming.as_mut());
            match incoming {
                Some(i) if good => i.stored(pdu.offset.saturating_add(len)),
                Some(i) => i.fail(DataError::Digest),
                None => {}
            }
            drop(tasks);
            if !good {
                session.complain_of(bhs, "the data digest does not agree");
                session.reject(RejectReason::DataDigest, bhs)?;
            }
        }
    }
    session.progress(tag);
    Ok(())
}

impl IscsiSession {
    /// The place of `len` bytes of a Data-Out PDU. It was made when the data was requested, or when
    /// the command arrived; a command whose data has none fails.
    fn place_for(&self, pdu: &DataOut, len: u32) -> Option<Segs> {
        let mut tasks = self.tasks.borrow_mut();
        let incoming = tasks.get_mut(&pdu.task_tag).and_then(|t| t.incoming.as_mut())?;
        let at = usize::try_from(pdu.offset).unwrap_or(usize::MAX);
        let mut place = self.conn.core.segs.take();
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        if !incoming.data.slice_into(at, len, &mut place) {
            incoming.fail(DataError::NoMemory);
            return None;
        }
        Some(place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_cdb_is_joined_with_its_extension() {
        let first = [7; 16];
        let mut long = [0; CDB_LEN_MAX];
        assert_eq!(whole_cdb(&first, &[], &mut long), &first);
        let mut long = [0; CDB_LEN_MAX];
        let whole = whole_cdb(&first, &[1, 2, 3], &mut long);
        assert_eq!(whole.len(), 19);
        assert_eq!(whole.get(16..), Some(&[1, 2, 3][..]));
    }
}
