//! The bare responder: the least that any iSCSI target must spend on this machine.
//!
//! It takes a header in and sends a header and the data out. It has one blocking thread a
//! connection, and one `read` and one `writev` for all the requests of a read. It does nothing else
//! that a real target has to do: no access rules, no order, no aborts, no limits, no errors. No
//! target should be faster; the figure is how close a target gets to it.
//!
//! Without a file, unit 0 answers from one buffer and unit 1 has a memory; with one, unit 0 is the
//! file. Linux takes them as disks.

mod answers;
mod unit;

use std::io::{IoSlice, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;

use wire::iscsi::{
    Access, Algorithms, Auth, BHS_LEN, Bhs, Challenge, DataIn, Grant, Login, LoginConfig,
    LogoutAnswer, LogoutRequest, LogoutResponse, NopIn, NopOut, Numbers, Offer, Pdu, R2t, Residual,
    ScsiCommand, ScsiResponse, SessionParams, Step, TAG_NONE, ahs_len_of, data_len_of, opcode,
    opcode_of,
};

use self::unit::{BLOCK, Unit};
use crate::error::{Error, Kind};

/// Commands that may be open: the command window.
const WINDOW: u32 = 256;
/// Bytes read at a time, at most.
const READ_BYTES: usize = 512 * 1024;
/// Received data moves to the front when less space than this is left behind it, bytes.
const INPUT_SPACE_MIN: usize = 160 * 1024;
/// Largest transfer of a command, bytes; a longer one ends the connection.
const TRANSFER_MAX: u32 = 8 << 20;
/// Most of an initiator's data in one PDU, and most that it may send unasked, bytes.
const BURST: u32 = 1 << 20;

/// Serves on `portal` until the process is killed: the file named, or nothing and a memory.
pub fn serve(portal: SocketAddr, file: Option<&str>) -> Result<(), Error> {
    let listener = TcpListener::bind(portal).map_err(|e| Error::system(portal, e))?;
    let units = match file {
        Some(path) => vec![Unit::file(path)?],
        None => vec![Unit::Null, Unit::memory()],
    };
    let units = Arc::new(units);
    for stream in listener.incoming() {
        let Ok(stream) = stream else { continue };
        let units = units.clone();
        std::thread::spawn(move || {
            if let Err(error) = Connection::new(stream, units).and_then(Connection::run) {
                println!("a connection ended: {}", error.message);
            }
        });
    }
    Ok(())
}

fn broken(what: &'static str) -> Error {
    Error::new(Kind::Protocol, what)
}

/// A write whose data is still coming.
struct Writing {
    command: ScsiCommand,
    received: u32,
    /// R2Ts sent.
    asked: u32,
}

struct Connection {
    stream: TcpStream,
    units: Arc<Vec<Unit>>,
    input: Vec<u8>,
    /// Where the next PDU begins, and the end of the received data.
    at: usize,
    have: usize,
    /// Headers of the answers of one turn, and data copied for them.
    out: Vec<u8>,
    /// Zeroes that a unit without a medium answers with.
    zeroes: Vec<u8>,
    /// Data read for the answers of one turn; kept, so that it is not cleared each time.
    data: Vec<u8>,
    data_len: usize,
    pieces: Vec<Piece>,
    writing: Vec<Writing>,
    sn: Numbers,
    send_max: u32,
}

enum Piece {
    /// A part of `out`.
    Out {
        from: usize,
        to: usize,
    },
    /// A part of `data`.
    Data {
        from: usize,
        to: usize,
    },
    Zeroes(usize),
}

impl Connection {
    fn new(stream: TcpStream, units: Arc<Vec<Unit>>) -> Result<Connection, Error> {
        stream.set_nodelay(true).map_err(|e| Error::system("TCP_NODELAY", e))?;
        Ok(Connection {
            stream,
            units,
            input: vec![0; READ_BYTES],
            at: 0,
            have: 0,
            out: Vec::new(),
            zeroes: vec![0; BURST as usize],
            data: Vec::new(),
            data_len: 0,
            pieces: Vec::new(),
            writing: Vec::new(),
            sn: Numbers::default(),
            send_max: 8192,
        })
    }

    fn run(mut self) -> Result<(), Error> {
        self.login()?;
        while self.fill()? {
            while let Some(len) = self.whole()? {
                if !self.pdu()? {
                    return self.send();
                }
                self.at += len;
            }
            self.send()?;
        }
        Ok(())
    }

    /// Receives data; false at the end.
    fn fill(&mut self) -> Result<bool, Error> {
        // A part of a PDU stays where it is while there is space: moving it is no part of the
        // floor.
        if self.at == self.have || self.input.len() - self.have < INPUT_SPACE_MIN {
            self.input.copy_within(self.at..self.have, 0);
            self.have -= std::mem::take(&mut self.at);
        }
        if self.have == self.input.len() {
            self.input.resize(self.have * 2, 0);
        }
        let room = self.input.get_mut(self.have..).unwrap_or(&mut []);
        let got = self.stream.read(room).map_err(|e| Error::system("read", e))?;
        self.have += got;
        Ok(got > 0)
    }

    fn header(&self) -> Option<Bhs> {
        self.input.get(self.at..self.have)?.first_chunk::<BHS_LEN>().copied()
    }

    /// Length of the first PDU when all of it is here.
    fn whole(&self) -> Result<Option<usize>, Error> {
        let Some(bhs) = self.header() else { return Ok(None) };
        let data = data_len_of(&bhs);
        if data > TRANSFER_MAX {
            return Err(broken("a data segment is too long"));
        }
        let len = BHS_LEN + ahs_len_of(&bhs) + (data as usize).next_multiple_of(4);
        Ok((len <= self.have - self.at).then_some(len))
    }

    fn login(&mut self) -> Result<(), Error> {
        let params = SessionParams {
            initial_r2t: false,
            first_burst: BURST,
            max_burst: BURST,
            recv_data_len_max: BURST,
            ..SessionParams::default()
        };
        let mut login = Login::new(LoginConfig {
            offer: Offer { params, ..Offer::default() },
            algorithms: Algorithms::default(),
            challenge: Challenge { id: 0, bytes: [0; wire::iscsi::CHALLENGE_LEN] },
            stat_sn: 1,
            command_window: WINDOW,
        });
        loop {
            let len = loop {
                match self.whole()? {
                    Some(len) => break len,
                    None if self.fill()? => {}
                    None => return Err(broken("the login was cut off")),
                }
            };
            let bhs = self.header().ok_or(broken("no header"))?;
            let from = self.at + BHS_LEN;
            let text = self.input.get(from..from + data_len_of(&bhs) as usize).unwrap_or(&[]);
            let mut step = login.request(&bhs, text);
            if let Step::NeedTarget(_) = step {
                let grant = Grant { auth: Auth::None, tsih: 1, portal_group: 1, alias: None };
                step = login.decide(Access::Allow(grant));
            }
            let (reply, done) = match step {
                Step::Reply(reply) => (reply, None),
                Step::FullFeature(done) => (done.reply.clone(), Some(done)),
                _ => return Err(broken("the login was refused")),
            };
            self.stream.write_all(&reply.to_bytes()).map_err(|e| Error::system("write", e))?;
            self.at += len;
            if let Some(done) = done {
                self.sn = Numbers {
                    stat_sn: done.stat_sn,
                    exp_cmd_sn: done.exp_cmd_sn,
                    max_cmd_sn: done.exp_cmd_sn.wrapping_add(WINDOW - 1),
                };
                self.send_max = done.params.send_data_len_max.max(512);
                return Ok(());
            }
        }
    }

    /// Takes the first PDU; false when the session is over.
    fn pdu(&mut self) -> Result<bool, Error> {
        let bhs = self.header().ok_or(broken("no header"))?;
        let from = self.at + BHS_LEN + ahs_len_of(&bhs);
        match opcode_of(&bhs) {
            opcode::SCSI_COMMAND => {
                let command = ScsiCommand::decode(&bhs).map_err(|_| broken("SCSI Command"))?;
                if !command.immediate {
                    self.sn.exp_cmd_sn = command.cmd_sn.wrapping_add(1);
                    self.sn.max_cmd_sn = command.cmd_sn.wrapping_add(WINDOW);
                }
                self.command(command, from)?;
            }
            opcode::DATA_OUT => self.data_out(&bhs, from)?,
            opcode::LOGOUT_REQUEST => {
                let asked = LogoutRequest::decode(&bhs).map_err(|_| broken("Logout"))?;
                let (task_tag, sn) = (asked.task_tag, self.next_sn());
                let answer = LogoutAnswer::Closed;
                let reply =
                    LogoutResponse { answer, task_tag, sn, time2wait_s: 0, time2retain_s: 0 };
                self.put(&reply);
                return Ok(false);
            }
            opcode::NOP_OUT => {
                let asked = NopOut::decode(&bhs).map_err(|_| broken("NOP-Out"))?;
                if asked.task_tag != TAG_NONE {
                    let (task_tag, sn) = (asked.task_tag, self.next_sn());
                    let (lun, target_tag) = (asked.lun, TAG_NONE);
                    self.put(&NopIn { lun, task_tag, target_tag, sn, data_len: 0 });
                }
            }
            _ => return Err(broken("a PDU that the load does not send")),
        }
        Ok(true)
    }

    fn command(&mut self, command: ScsiCommand, from: usize) -> Result<(), Error> {
        if command.transfer_len > TRANSFER_MAX {
            return Err(broken("a transfer is too long"));
        }
        if command.write {
            let come = command.data_len;
            self.store(&command, 0, from, come as usize)?;
            if come < command.transfer_len {
                self.writing.push(Writing { command, received: come, asked: 0 });
                if command.last {
                    self.ask(self.writing.len() - 1);
                }
            } else {
                self.good(command.task_tag);
            }
        } else if command.read {
            self.reply(&command)?;
        } else {
            if command.cdb.first() == Some(&0x35) {
                self.unit(&command)?.flush()?;
            }
            self.good(command.task_tag);
        }
        Ok(())
    }

    /// Requests the next data of a write.
    fn ask(&mut self, at: usize) {
        let Some(writing) = self.writing.get_mut(at) else { return };
        let (command, offset) = (writing.command, writing.received);
        let desired_len = (command.transfer_len - offset).min(BURST);
        let r2t_sn = writing.asked;
        writing.asked += 1;
        self.put(&R2t {
            lun: command.lun,
            task_tag: command.task_tag,
            target_tag: command.task_tag,
            sn: self.sn,
            r2t_sn,
            offset,
            desired_len,
        });
    }

    fn data_out(&mut self, bhs: &Bhs, from: usize) -> Result<(), Error> {
        let data = wire::iscsi::DataOut::decode(bhs).map_err(|_| broken("Data-Out"))?;
        let at = self.writing.iter().position(|w| w.command.task_tag == data.task_tag);
        let at = at.ok_or(broken("data of no command"))?;
        let Some(writing) = self.writing.get_mut(at) else { return Ok(()) };
        writing.received = writing.received.saturating_add(data.data_len);
        let (command, come) = (writing.command, writing.received);
        self.store(&command, data.offset, from, data.data_len as usize)?;
        if come >= command.transfer_len {
            self.writing.swap_remove(at);
            self.good(command.task_tag);
        } else if data.last {
            self.ask(at);
        }
        Ok(())
    }

    /// Byte where a READ or WRITE of 10 or 16 bytes begins.
    fn place(command: &ScsiCommand) -> Result<u64, Error> {
        let cdb = &command.cdb;
        let lba = match cdb.first() {
            Some(0x28 | 0x2a) => cdb
                .get(2..)
                .and_then(<[u8]>::first_chunk)
                .map(|b| u64::from(u32::from_be_bytes(*b))),
            Some(0x88 | 0x8a) => {
                cdb.get(2..).and_then(<[u8]>::first_chunk).map(|b| u64::from_be_bytes(*b))
            }
            _ => None,
        };
        lba.and_then(|lba| lba.checked_mul(BLOCK)).ok_or(broken("a command of other blocks"))
    }

    fn unit(&self, command: &ScsiCommand) -> Result<&Unit, Error> {
        let number = command.lun.get(1).copied().unwrap_or_default();
        self.units.get(usize::from(number)).ok_or(broken("a unit that does not exist"))
    }

    fn store(
        &mut self,
        command: &ScsiCommand,
        offset: u32,
        from: usize,
        len: usize,
    ) -> Result<(), Error> {
        let at = Connection::place(command)?.saturating_add(u64::from(offset));
        let data = self.input.get(from..from + len).unwrap_or(&[]);
        self.unit(command)?.write(at, data)
    }

    fn reply(&mut self, command: &ScsiCommand) -> Result<(), Error> {
        if !matches!(command.cdb.first(), Some(0x28 | 0x88)) {
            return self.answer_non_block(command);
        }
        let (place, end) = (Connection::place(command)?, command.transfer_len);
        let (units, lun) = (self.units.clone(), command.lun.get(1).copied().unwrap_or_default());
        let unit = units.get(usize::from(lun)).ok_or(broken("a unit that does not exist"))?;
        // All at once: cutting it into PDUs costs no more calls.
        let mut from = self.data_len;
        if !matches!(unit, Unit::Null) {
            self.data_len += end as usize;
            if self.data.len() < self.data_len {
                self.data.resize(self.data_len, 0);
            }
            unit.read(place, self.data.get_mut(from..self.data_len).unwrap_or(&mut []))?;
        }
        let (mut at, mut data_sn) = (0u32, 0);
        while at < end {
            let len = (end - at).min(self.send_max).min(BURST);
            self.data_in(command, (data_sn, at, len), (at + len == end).then_some(Residual::None));
            let to = from + len as usize;
            self.pieces.push(match unit {
                Unit::Null => Piece::Zeroes(len as usize),
                Unit::Memory(_) | Unit::File(..) => Piece::Data { from, to },
            });
            (from, at, data_sn) = (to, at + len, data_sn + 1);
        }
        Ok(())
    }

    fn answer_non_block(&mut self, command: &ScsiCommand) -> Result<(), Error> {
        let blocks = self.unit(command)?.blocks();
        let Some(mut data) = answers::answer(&command.cdb, blocks) else {
            self.refuse(command.task_tag);
            return Ok(());
        };
        data.truncate(command.transfer_len as usize);
        let len = u32::try_from(data.len()).unwrap_or(u32::MAX);
        let residual = match command.transfer_len - len {
            0 => Residual::None,
            left => Residual::Underflow(left),
        };
        self.data_in(command, (0, 0, len), Some(residual));
        self.put_bytes(&data);
        Ok(())
    }

    /// A part of a READ's data, with the command's status when it is the last.
    fn data_in(
        &mut self,
        command: &ScsiCommand,
        (data_sn, offset, data_len): (u32, u32, u32),
        last: Option<Residual>,
    ) {
        let sn = if last.is_some() { self.next_sn() } else { self.sn };
        self.put(&DataIn {
            last: last.is_some(),
            status: last.map(|residual| (0, residual)),
            task_tag: command.task_tag,
            target_tag: TAG_NONE,
            sn,
            data_sn,
            offset,
            data_len,
            ..DataIn::default()
        });
    }

    fn good(&mut self, task_tag: u32) {
        let sn = self.next_sn();
        self.put(&ScsiResponse { task_tag, sn, ..ScsiResponse::default() });
    }

    /// CHECK CONDITION: a field that the bare responder does not know.
    fn refuse(&mut self, task_tag: u32) {
        const CHECK_CONDITION: u8 = 2;
        let sn = self.next_sn();
        let (status, data_len) = (CHECK_CONDITION, 2 + answers::SENSE.len() as u32);
        self.put(&ScsiResponse { status, task_tag, sn, data_len, ..ScsiResponse::default() });
        self.put_bytes(&[&[0, answers::SENSE.len() as u8][..], &answers::SENSE].concat());
    }

    fn next_sn(&mut self) -> Numbers {
        let sn = self.sn;
        self.sn.stat_sn = sn.stat_sn.wrapping_add(1);
        sn
    }

    fn put(&mut self, pdu: &impl Pdu) {
        let mut bhs = [0; BHS_LEN];
        pdu.encode(&mut bhs);
        self.put_bytes(&bhs);
    }

    /// A header, or a data segment with its padding.
    fn put_bytes(&mut self, bytes: &[u8]) {
        let from = self.out.len();
        self.out.extend_from_slice(bytes);
        self.out.resize(from + bytes.len().next_multiple_of(4), 0);
        self.pieces.push(Piece::Out { from, to: self.out.len() });
    }

    /// One `writev` for all answers, as long as they are few enough for one.
    fn send(&mut self) -> Result<(), Error> {
        const SLICES: usize = 256;
        for pieces in self.pieces.chunks(SLICES) {
            let slice = |piece: &Piece| match *piece {
                Piece::Out { from, to } => self.out.get(from..to).unwrap_or(&[]),
                Piece::Data { from, to } => self.data.get(from..to).unwrap_or(&[]),
                Piece::Zeroes(len) => self.zeroes.get(..len).unwrap_or(&[]),
            };
            let mut list = [IoSlice::new(&[]); SLICES];
            for (to, piece) in list.iter_mut().zip(pieces) {
                *to = IoSlice::new(slice(piece));
            }
            let mut left = list.get_mut(..pieces.len()).unwrap_or(&mut []);
            while !left.is_empty() {
                let sent =
                    self.stream.write_vectored(left).map_err(|e| Error::system("write", e))?;
                if sent == 0 {
                    return Err(broken("the load has ended"));
                }
                IoSlice::advance_slices(&mut left, sent);
            }
        }
        self.out.clear();
        self.data_len = 0;
        self.pieces.clear();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::{self, Order, Spec, Work};
    use crate::servers::{MEMORY_BYTES, free_address};

    /// A responder that loses data would be no floor.
    #[test]
    fn bare_responder_stores_written_data() {
        let portal = free_address().unwrap();
        std::thread::spawn(move || serve(portal, None));
        while TcpStream::connect(portal).is_err() {
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        let small = Spec::new(portal, "iqn.2026-11.bench.ashlar:bare", 1);
        let mixed = Spec { sessions: 3, depth: 16, requests: Some(500), ..small.clone() };
        load::run(&Spec { work: Work::Verify, ..mixed }).unwrap();
        for request_bytes in [4096, 65536, 131_072] {
            let whole = Spec {
                depth: 8,
                request_bytes,
                order: Order::Sequential,
                requests: Some(MEMORY_BYTES / u64::from(request_bytes)),
                ..small.clone()
            };
            load::run(&Spec { work: Work::Fill, ..whole.clone() }).unwrap();
            load::run(&Spec { work: Work::Check, ..whole }).unwrap();
        }
    }
}
