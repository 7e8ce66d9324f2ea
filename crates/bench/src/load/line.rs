//! One connection in full feature phase: numbers, window, and the PDUs an initiator sends.

use bio::Segs;
use wire::iscsi::{
    Attribute, BHS_LEN, DataOut, Framer, LogoutReason, LogoutRequest, NopIn, NopOut, Numbers,
    PRE_LOGIN, Pdu, R2t, ScsiCommand, SessionParams, TAG_NONE,
};

use super::out::Out;
use crate::error::{Error, Kind};

/// Data transfer of a command.
pub(crate) enum Moves<'a> {
    Nothing,
    /// This many bytes from the target.
    In(u32),
    /// These bytes to the target.
    Out(&'a Segs),
}

pub(crate) struct SendSide {
    /// PDUs to be sent next.
    pub out: Out,
    /// Digests of sent PDUs; the same as those of received PDUs.
    pub framer: Framer,
    params: SessionParams,
    lun: [u8; 8],
    cmd_sn: u32,
    exp_stat_sn: u32,
    max_cmd_sn: u32,
}

impl SendSide {
    pub fn new(out: Out, lun: [u8; 8]) -> SendSide {
        SendSide {
            out,
            framer: PRE_LOGIN,
            params: SessionParams::default(),
            lun,
            cmd_sn: 0,
            exp_stat_sn: 0,
            max_cmd_sn: 0,
        }
    }

    /// The login is over.
    pub fn connected(&mut self, agreed: &wire::iscsi::Connected) {
        self.params = agreed.params;
        self.cmd_sn = agreed.cmd_sn;
        self.max_cmd_sn = agreed.max_cmd_sn;
        self.exp_stat_sn = agreed.exp_stat_sn;
        self.framer = Framer::of(&agreed.params);
    }

    /// Whether the target takes another command now (RFC 7143 section 4.2.2.1).
    pub fn is_open(&self) -> bool {
        self.max_cmd_sn.wrapping_sub(self.cmd_sn).cast_signed() >= 0
    }

    /// Takes the numbers of a PDU; `counts` when it consumed a StatSN.
    pub fn update_numbers(&mut self, sn: &Numbers, counts: bool) {
        if counts {
            self.exp_stat_sn = sn.stat_sn.wrapping_add(1);
        }
        if sn.max_cmd_sn.wrapping_sub(self.max_cmd_sn).cast_signed() > 0 {
            self.max_cmd_sn = sn.max_cmd_sn;
        }
    }

    /// Sends a command, with as much of its data as may be sent without R2T.
    pub fn command(&mut self, tag: u32, cdb: [u8; 16], moves: &Moves<'_>) -> Result<(), Error> {
        let (len, data) = match moves {
            Moves::Nothing => (0, None),
            Moves::In(len) => (*len, None),
            Moves::Out(data) => (length(data)?, Some(*data)),
        };
        let (immediate, unasked) = if data.is_some() { self.unasked(len) } else { (0, 0) };
        let command = ScsiCommand {
            last: unasked == immediate,
            read: matches!(moves, Moves::In(_)),
            write: data.is_some(),
            attribute: Attribute::Simple,
            lun: self.lun,
            task_tag: tag,
            transfer_len: len,
            cmd_sn: self.cmd_sn,
            exp_stat_sn: self.exp_stat_sn,
            cdb,
            data_len: immediate,
            ..ScsiCommand::default()
        };
        self.cmd_sn = self.cmd_sn.wrapping_add(1);
        let mut bhs = [0; BHS_LEN];
        command.encode(&mut bhs);
        let Some(data) = data else { return self.out.header(&bhs, &self.framer) };
        self.out.pdu(&bhs, &self.framer, (data, 0, immediate as usize))?;
        self.data_out(tag, TAG_NONE, data, (immediate, unasked))
    }

    /// How much of `len` bytes is sent with the command, and how much before the first R2T.
    fn unasked(&self, len: u32) -> (u32, u32) {
        let p = &self.params;
        let first = len.min(p.first_burst);
        let immediate = if p.immediate_data { first.min(p.send_data_len_max) } else { 0 };
        (immediate, if p.initial_r2t { immediate } else { first })
    }

    /// Sends the data that the target requested.
    pub fn answer(&mut self, r2t: &R2t, data: &Segs) -> Result<(), Error> {
        let end = r2t.offset.checked_add(r2t.desired_len);
        let end = end.filter(|&end| end <= length(data).unwrap_or(0));
        let end = end.ok_or(Error::new(Kind::Protocol, "R2T beyond the command's data"))?;
        self.data_out(r2t.task_tag, r2t.target_tag, data, (r2t.offset, end))
    }

    /// Sends the bytes from `at` to `end` as one sequence.
    fn data_out(
        &mut self,
        tag: u32,
        target_tag: u32,
        data: &Segs,
        (mut at, end): (u32, u32),
    ) -> Result<(), Error> {
        let mut data_sn = 0;
        while at < end {
            let len = (end - at).min(self.params.send_data_len_max.max(1));
            let pdu = DataOut {
                last: at + len == end,
                lun: if target_tag == TAG_NONE { [0; 8] } else { self.lun },
                task_tag: tag,
                target_tag,
                exp_stat_sn: self.exp_stat_sn,
                data_sn,
                offset: at,
                data_len: len,
            };
            let mut bhs = [0; BHS_LEN];
            pdu.encode(&mut bhs);
            self.out.pdu(&bhs, &self.framer, (data, at as usize, len as usize))?;
            (at, data_sn) = (at + len, data_sn + 1);
        }
        Ok(())
    }

    /// Answers a ping of the target, if it wants an answer.
    pub fn pong(&mut self, ping: &NopIn) -> Result<(), Error> {
        if ping.target_tag == TAG_NONE {
            return Ok(());
        }
        let nop = NopOut {
            immediate: true,
            lun: ping.lun,
            task_tag: TAG_NONE,
            target_tag: ping.target_tag,
            cmd_sn: self.cmd_sn,
            exp_stat_sn: self.exp_stat_sn,
            data_len: 0,
        };
        let mut bhs = [0; BHS_LEN];
        nop.encode(&mut bhs);
        self.out.header(&bhs, &self.framer)
    }

    /// Logs the session out.
    pub fn logout(&mut self, tag: u32) -> Result<(), Error> {
        let request = LogoutRequest {
            immediate: true,
            reason: LogoutReason::Session,
            task_tag: tag,
            cid: 0,
            cmd_sn: self.cmd_sn,
            exp_stat_sn: self.exp_stat_sn,
        };
        let mut bhs = [0; BHS_LEN];
        request.encode(&mut bhs);
        self.out.header(&bhs, &self.framer)
    }
}

fn length(data: &Segs) -> Result<u32, Error> {
    u32::try_from(data.len()).map_err(|_| Error::new(Kind::Options, "a request is too long"))
}
