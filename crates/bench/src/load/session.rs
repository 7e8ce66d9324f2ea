//! One initiator session, without I/O: bytes are received, PDUs pile up in `line.out`.
//!
//! ```text
//!   Login --> Ready (TEST UNIT READY) --> Size (READ CAPACITY) --> Work --> Logout --> Over
//!               ^--(unit attention)--+        ^--(again)--+          +--> Linger --^
//! ```

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use wire::iscsi::{
    BHS_LEN, Bhs, ClientConfig, ClientLogin, ClientStep, DigestPolicy, Framer, Offer, Response,
    SessionParams, TAG_NONE, sense_of_segment,
};
use wire::scsi::{Key, Sense, parse_capacity16};

use super::intake::Taker;
use super::jobs::{Jobs, STATUS_BUSY};
use super::line::{Moves, SendSide};
use super::running::LoadShared;
use super::spec::Spec;
use crate::error::{Error, Kind};

/// Tag of commands before and after the work; slots have lower ones.
const TAG_OWN: u32 = 0xffff_0000;
/// How often a command before the work is tried: a target may report several unit attentions.
const TRIES_MAX: u32 = 8;
/// Largest data segment taken, bytes: the value of open-iscsi.
const RECV_BYTES_MAX: u32 = 256 * 1024;
/// Most unsolicited data offered, and most for one R2T, bytes: the values of open-iscsi.
const FIRST_BURST: u32 = 262_144;
const MAX_BURST: u32 = 16_776_192;
/// Most bytes kept of a response whose data is looked at; the rest is dropped.
const KEPT_BYTES_MAX: usize = 16 * 1024;
/// Bytes requested by READ CAPACITY (16).
const CAPACITY_BYTES: u32 = 32;

enum Stage {
    Login(Box<ClientLogin>),
    Ready(u32),
    Size(u32),
    Work,
    Linger,
    Logout,
    Over,
}

/// See the module.
pub(crate) struct LoadSession {
    spec: Spec,
    index: u32,
    shared: Arc<LoadShared>,
    stage: Stage,
    pub send_side: SendSide,
    /// None before the unit's size is known.
    pub jobs: Option<Jobs>,
    /// The clock when the bytes that are read now arrived, ns.
    pub now: u64,
    header: Bhs,
    /// None before the first header.
    current: Option<Response>,
    kept: Vec<u8>,
    /// Received bytes of the present Data-In.
    taken: u32,
}

impl LoadSession {
    /// A session that has its first request ready.
    pub fn start(
        spec: &Spec,
        index: u32,
        shared: Arc<LoadShared>,
        out: super::out::Out,
    ) -> Result<LoadSession, Error> {
        let nth = index as usize % spec.luns.len().max(1);
        let lun = spec.luns.get(nth).and_then(|&n| wire::scsi::Lun::new(n));
        let lun = lun.ok_or(Error::new(Kind::Options, "a LUN's number is too large"))?;
        let digest = if spec.digests { DigestPolicy::Require } else { DigestPolicy::Off };
        let number = spec.first.saturating_add(index);
        let [_, a, b, c] = number.saturating_add(1).to_be_bytes();
        let config = ClientConfig {
            initiator: format!("iqn.2026-11.bench.ashlar:load{number}"),
            target: Some(spec.target.clone()),
            isid: [0x80, a, b, c, 0, 0],
            cid: 0,
            cmd_sn: 1,
            offer: Offer {
                header_digest: digest,
                data_digest: digest,
                params: SessionParams {
                    initial_r2t: false,
                    recv_data_len_max: RECV_BYTES_MAX,
                    first_burst: FIRST_BURST,
                    max_burst: MAX_BURST,
                    ..SessionParams::default()
                },
                ..Offer::default()
            },
            chap: None,
        };
        let (login, first) = ClientLogin::start(config).map_err(refused)?;
        let mut line = SendSide::new(out, lun.encode());
        line.out.bytes(&first.to_bytes())?;
        Ok(LoadSession {
            spec: spec.clone(),
            index,
            shared,
            stage: Stage::Login(Box::new(login)),
            send_side: line,
            jobs: None,
            now: 0,
            header: [0; BHS_LEN],
            current: None,
            kept: Vec::new(),
            taken: 0,
        })
    }

    /// Logged out.
    pub fn is_over(&self) -> bool {
        matches!(self.stage, Stage::Over)
    }

    /// Done with its work, and waiting for the stop.
    pub fn lingers(&self) -> bool {
        matches!(self.stage, Stage::Linger)
    }

    /// All received bytes were read: sends more requests, or logs out.
    pub fn pump(&mut self) -> Result<(), Error> {
        let (Stage::Work, Some(jobs)) = (&self.stage, &mut self.jobs) else { return Ok(()) };
        jobs.stopping = self.shared.stop.load(Relaxed);
        jobs.pump(&mut self.send_side)?;
        if jobs.is_done() {
            if self.spec.linger && !jobs.stopping {
                self.stage = Stage::Linger;
            } else {
                self.stage = Stage::Logout;
                self.send_side.logout(TAG_OWN)?;
            }
        }
        Ok(())
    }

    fn ask(&mut self) -> Result<(), Error> {
        let mut cdb = [0; 16];
        if let Stage::Size(_) = self.stage {
            (cdb[0], cdb[1]) = (0x9e, 0x10); // READ CAPACITY (16)
            cdb[10..14].copy_from_slice(&CAPACITY_BYTES.to_be_bytes());
            return self.send_side.command(TAG_OWN, cdb, &Moves::In(CAPACITY_BYTES));
        }
        self.send_side.command(TAG_OWN, cdb, &Moves::Nothing)
    }

    fn login(&mut self) -> Result<Option<Framer>, Error> {
        let Stage::Login(login) = &mut self.stage else { return Err(unexpected("Login")) };
        match login.response(&self.header, &self.kept).map_err(refused)? {
            ClientStep::Send(request) => {
                self.send_side.out.bytes(&request.to_bytes())?;
                Ok(None)
            }
            ClientStep::Done(agreed) => {
                let got = agreed.params;
                if (got.header_digest, got.data_digest) != (self.spec.digests, self.spec.digests) {
                    return Err(Error::new(Kind::Login, "the target chose other digests"));
                }
                self.send_side.connected(&agreed);
                self.stage = Stage::Ready(0);
                self.ask()?;
                Ok(Some(self.send_side.framer))
            }
        }
    }

    /// A command ended with the sense data `sense`, if any.
    fn ended(&mut self, tag: u32, status: u8, sense: Option<Sense>) -> Result<(), Error> {
        let tries = match &mut self.stage {
            Stage::Ready(tries) | Stage::Size(tries) if tag == TAG_OWN => tries,
            _ => {
                let recording = self.shared.recording.load(Relaxed).then_some(self.now);
                let jobs = self.jobs.as_mut().ok_or_else(|| unexpected("status"))?;
                // A unit attention is not a failure: the same command is sent again.
                let news = sense.as_ref().is_some_and(|s| s.code.key == Key::UnitAttention);
                let status = if news { STATUS_BUSY } else { status };
                let well = jobs.ended(tag, status, recording).map_err(|e| with_sense(e, sense))?;
                self.shared.requests.fetch_add(u64::from(well), Relaxed);
                return Ok(());
            }
        };
        *tries += 1;
        if status != 0 {
            if *tries == TRIES_MAX {
                let what = format!("the unit is not ready: SCSI status {status:02x}");
                return Err(with_sense(Error::new(Kind::Status, what), sense));
            }
            return self.ask();
        }
        if let Stage::Ready(_) = self.stage {
            self.stage = Stage::Size(0);
            return self.ask();
        }
        let size = parse_capacity16(&self.kept)?;
        self.jobs = Some(Jobs::new(&self.spec, self.index, size.blocks, size.block_len)?);
        self.stage = Stage::Work;
        self.shared.ready.fetch_add(1, Relaxed);
        Ok(())
    }
}

impl Taker for LoadSession {
    fn header(&mut self, bhs: &Bhs) -> Result<(), Error> {
        self.header = *bhs;
        self.taken = 0;
        // The answer to READ CAPACITY is in a Data-In, its status perhaps in the next PDU.
        let response = Response::decode(bhs)?;
        if !matches!(response, Response::Scsi(_)) || !matches!(self.stage, Stage::Size(_)) {
            self.kept.clear();
        }
        self.current = Some(response);
        Ok(())
    }

    fn data(&mut self, bytes: &[u8]) -> Result<(), Error> {
        if let (Some(Response::DataIn(head)), Some(jobs)) = (&self.current, &mut self.jobs) {
            let offset = head.offset.saturating_add(self.taken);
            self.taken = self.taken.saturating_add(u32::try_from(bytes.len()).unwrap_or(u32::MAX));
            return jobs.data(head.task_tag, offset, bytes);
        }
        let room = KEPT_BYTES_MAX.saturating_sub(self.kept.len());
        self.kept.extend_from_slice(bytes.get(..room.min(bytes.len())).unwrap_or(&[]));
        Ok(())
    }

    fn end(&mut self) -> Result<Option<Framer>, Error> {
        let Some(response) = self.current.take() else { return Err(unexpected("data")) };
        match response {
            Response::Login(_) => return self.login(),
            Response::DataIn(data) => {
                self.send_side.update_numbers(&data.sn, data.status.is_some());
                if let Some((status, _)) = data.status {
                    self.ended(data.task_tag, status, None)?;
                }
            }
            Response::Scsi(end) => {
                self.send_side.update_numbers(&end.sn, true);
                if end.response != 0 {
                    return Err(Error::new(Kind::Protocol, "the target failed in a command"));
                }
                let sense = if end.data_len > 0 { sense_of_segment(&self.kept).ok() } else { None };
                let sense = sense.and_then(|bytes| Sense::decode(bytes).ok());
                self.ended(end.task_tag, end.status, sense)?;
            }
            Response::R2t(r2t) => {
                self.send_side.update_numbers(&r2t.sn, false);
                let jobs = self.jobs.as_ref().ok_or_else(|| unexpected("R2T"))?;
                self.send_side.answer(&r2t, jobs.data_of(r2t.task_tag)?)?;
            }
            Response::NopIn(nop) => {
                self.send_side.update_numbers(&nop.sn, nop.task_tag != TAG_NONE);
                self.send_side.pong(&nop)?;
            }
            Response::Logout(answer) => {
                self.send_side.update_numbers(&answer.sn, true);
                self.stage = Stage::Over;
            }
            Response::Async(event) => self.send_side.update_numbers(&event.sn, true),
            Response::Reject(reject) => {
                let what = format!("the target rejected a PDU: {:?}", reject.reason);
                return Err(Error::new(Kind::Protocol, what));
            }
            Response::Task(_) | Response::Text(_) => return Err(unexpected("Task or Text")),
        }
        Ok(None)
    }
}

fn refused(error: wire::iscsi::ClientError) -> Error {
    Error::new(Kind::Login, error.to_string())
}

fn unexpected(what: &str) -> Error {
    Error::new(Kind::Protocol, format!("unrequested {what} from the target"))
}

fn with_sense(error: Error, sense: Option<Sense>) -> Error {
    match sense {
        Some(sense) => Error { message: format!("{}: {}", error.message, sense.code), ..error },
        None => error,
    }
}
