//! Scripted iSCSI initiator over a socket: a test decides each PDU, valid or invalid.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use rustix::net::{self, AddressFamily, SocketFlags, SocketType};
use wire::iscsi::{
    Bhs, ClientChap, ClientConfig, ClientError, ClientLogin, ClientStep, DataOut, DigestPolicy,
    Framer, LogoutRequest, Need, NopOut, Offer, PRE_LOGIN, Pdu, Reject, RejectReason, Response,
    ScsiCommand, ScsiResponse, SessionParams, TAG_NONE, TaskAnswer, TaskRequest, TextRequest,
};

use super::{numbers, pdu_bytes};

/// The target that [`LoginOptions::default`] names.
pub const IQN: &str = "iqn.2026-11.test.ashlar:disk";
/// Longest wait for a PDU.
const RECEIVE_TIMEOUT: Duration = Duration::from_secs(20);

/// Login parameters.
#[derive(Clone)]
pub struct LoginOptions {
    pub initiator: String,
    pub target: Option<String>,
    pub isid: u8,
    pub cmd_sn: u32,
    pub offer: Offer,
    pub chap: Option<ClientChap>,
    /// Bytes of each write to the socket; 0 sends whole PDUs.
    pub segment: usize,
}

impl Default for LoginOptions {
    fn default() -> LoginOptions {
        let params = SessionParams {
            recv_data_len_max: 65_536,
            max_burst: 262_144,
            initial_r2t: true,
            ..SessionParams::default()
        };
        LoginOptions {
            initiator: "iqn.2026-11.test.ashlar:raw".into(),
            target: Some(IQN.into()),
            isid: 1,
            cmd_sn: 1,
            offer: Offer {
                header_digest: DigestPolicy::Off,
                data_digest: DigestPolicy::Off,
                params,
                ..Offer::default()
            },
            chap: None,
            segment: 0,
        }
    }
}

impl LoginOptions {
    /// A normal session, whose tasks end with its connection.
    pub fn named(initiator: &str, target: &str) -> LoginOptions {
        let mut how = LoginOptions {
            initiator: initiator.into(),
            target: Some(target.into()),
            ..LoginOptions::default()
        };
        how.offer.params = SessionParams {
            recv_data_len_max: 262_144,
            time2retain_s: 0,
            ..SessionParams::default()
        };
        how
    }

    /// The first request of a login, as bytes.
    ///
    /// # Errors
    ///
    /// A name that no text can have.
    pub fn request(&self) -> Result<Vec<u8>, ClientError> {
        Ok(ClientLogin::start(self.config())?.1.to_bytes())
    }

    fn config(&self) -> ClientConfig {
        ClientConfig {
            initiator: self.initiator.clone(),
            target: self.target.clone(),
            isid: [0x80, 0, 0, 0, 0, self.isid],
            cid: 1,
            cmd_sn: self.cmd_sn,
            offer: self.offer,
            chap: self.chap.clone(),
        }
    }

    pub fn digests(mut self, header: bool, data: bool) -> LoginOptions {
        let of = |on| if on { DigestPolicy::Require } else { DigestPolicy::Off };
        (self.offer.header_digest, self.offer.data_digest) = (of(header), of(data));
        self
    }

    pub fn isid(self, isid: u8) -> LoginOptions {
        LoginOptions { isid, ..self }
    }
}

/// A PDU of the target with its data.
pub type ReceivedPdu = (Response, Vec<u8>);

/// A connection in its full feature phase.
pub struct Client {
    pub stream: TcpStream,
    pub params: SessionParams,
    pub cmd_sn: u32,
    pub max_cmd_sn: u32,
    pub exp_stat_sn: u32,
    pub tag: u32,
    /// The unit of [`Client::scsi`] and [`Client::must`]; 0 at first.
    pub lun: u8,
    pub segment: usize,
}

/// Result of a command.
#[derive(Debug)]
pub struct Ended {
    /// SCSI status.
    pub status: u8,
    /// Data for the initiator.
    pub data: Vec<u8>,
    /// Sense data; empty without.
    pub sense: Vec<u8>,
}

/// As [`connect`], to a target that may have ended or refuse.
///
/// # Errors
///
/// There is no connection, or the target has closed it already.
pub fn dial(at: SocketAddr) -> io::Result<TcpStream> {
    prepare(TcpStream::connect_timeout(&at, RECEIVE_TIMEOUT)?)
}

/// As [`dial`], from another address of this machine: for the target it is another peer.
///
/// # Errors
///
/// As those of [`dial`].
pub fn dial_from(source: Ipv4Addr, at: SocketAddr) -> io::Result<TcpStream> {
    let (family, kind) = (AddressFamily::INET, SocketType::STREAM);
    let socket = net::socket_with(family, kind, SocketFlags::CLOEXEC, None)?;
    net::bind(&socket, &SocketAddr::from((source, 0)))?;
    net::connect(&socket, &at)?;
    prepare(TcpStream::from(socket))
}

fn prepare(stream: TcpStream) -> io::Result<TcpStream> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(RECEIVE_TIMEOUT))?;
    stream.set_write_timeout(Some(RECEIVE_TIMEOUT))?;
    Ok(stream)
}

pub fn connect(at: SocketAddr) -> TcpStream {
    dial(at).unwrap()
}

fn pdu(stream: &mut TcpStream, framer: &Framer) -> io::Result<(Bhs, Vec<u8>)> {
    let mut bytes = Vec::new();
    let mut need = 48;
    let frame = loop {
        let mut more = vec![0; need - bytes.len()];
        stream.read_exact(&mut more)?;
        bytes.extend(more);
        match framer.header(&bytes).unwrap() {
            Need::Bytes(n) => need = n,
            Need::Header(frame) => break frame,
        }
    };
    let mut tail = vec![0; frame.tail_len()];
    stream.read_exact(&mut tail)?;
    let data = framer.data(&frame, &tail).unwrap().to_vec();
    Ok((*bytes.first_chunk().unwrap(), data))
}

/// Reads one PDU; `None` at the end of the stream (or after a reset).
pub fn read_pdu(stream: &mut TcpStream, framer: &Framer) -> Option<(Bhs, Vec<u8>)> {
    match pdu(stream, framer) {
        Ok(pdu) => Some(pdu),
        Err(e) if e.kind() == ErrorKind::WouldBlock => panic!("nothing arrives: {e}"),
        Err(_) => None,
    }
}

impl Client {
    pub fn login(at: SocketAddr, how: &LoginOptions) -> Client {
        Client::try_login(at, how).unwrap()
    }

    pub fn try_login(at: SocketAddr, how: &LoginOptions) -> Result<Client, ClientError> {
        Client::log_in(connect(at), how)
    }

    /// A normal session for [`Client::scsi`] with a target that may have ended.
    ///
    /// # Errors
    ///
    /// There is no connection, or the target refused.
    pub fn session(at: SocketAddr, initiator: &str, target: &str) -> io::Result<Client> {
        Client::log_in(dial(at)?, &LoginOptions::named(initiator, target)).map_err(io::Error::other)
    }

    /// A session over a connection.
    ///
    /// # Errors
    ///
    /// The target refused.
    pub fn log_in(mut stream: TcpStream, how: &LoginOptions) -> Result<Client, ClientError> {
        let (mut login, mut request) = ClientLogin::start(how.config())?;
        loop {
            let closed = |_| ClientError::Protocol("closed during login");
            put(&mut stream, &request.to_bytes(), how.segment).map_err(closed)?;
            let (bhs, data) = pdu(&mut stream, &PRE_LOGIN).map_err(closed)?;
            match login.response(&bhs, &data)? {
                ClientStep::Send(next) => request = next,
                ClientStep::Done(done) => {
                    return Ok(Client {
                        stream,
                        params: done.params,
                        cmd_sn: done.cmd_sn,
                        max_cmd_sn: done.max_cmd_sn,
                        exp_stat_sn: done.exp_stat_sn,
                        tag: 0x100,
                        lun: 0,
                        segment: how.segment,
                    });
                }
            }
        }
    }

    /// A PDU as bytes, with digests as agreed.
    pub fn bytes(&self, pdu: &impl Pdu, ahs: &[u8], data: &[u8]) -> Vec<u8> {
        pdu_bytes(&self.params, pdu, ahs, data)
    }

    pub fn send(&mut self, pdu: &impl Pdu, data: &[u8]) {
        let bytes = self.bytes(pdu, &[], data);
        self.raw(&bytes);
    }

    pub fn raw(&mut self, bytes: &[u8]) {
        put(&mut self.stream, bytes, self.segment).unwrap();
    }

    /// As `raw`, when the target may have closed already.
    pub fn try_raw(&mut self, bytes: &[u8]) -> bool {
        put(&mut self.stream, bytes, self.segment).is_ok()
    }

    /// The next PDU; `None` when the target has closed.
    pub fn receive(&mut self) -> Option<ReceivedPdu> {
        let framer = Framer::of(&self.params);
        let (bhs, data) = read_pdu(&mut self.stream, &framer)?;
        let response = Response::decode(&bhs).unwrap();
        self.note(&response);
        Some((response, data))
    }

    /// Like `hear`, with a target that may have ended.
    fn try_receive(&mut self) -> io::Result<ReceivedPdu> {
        let framer = Framer::of(&self.params);
        let (bhs, data) = pdu(&mut self.stream, &framer)?;
        let response = Response::decode(&bhs).unwrap();
        self.note(&response);
        Ok((response, data))
    }

    /// Like `hear`, when the session may be replaced at any time.
    pub fn receive_or_closed(&mut self) -> Option<ReceivedPdu> {
        self.stream.set_read_timeout(Some(Duration::from_millis(2))).unwrap();
        let mut byte = [0];
        match self.stream.peek(&mut byte) {
            Ok(n) if n > 0 => self.receive(),
            _ => None,
        }
    }

    /// Checks the conditions of every PDU.
    fn note(&mut self, response: &Response) {
        let (sn, counts) = numbers(response);
        if counts {
            assert_eq!(sn.stat_sn, self.exp_stat_sn, "StatSN of {response:?}");
            self.exp_stat_sn = self.exp_stat_sn.wrapping_add(1);
        }
        let moved = sn.max_cmd_sn.wrapping_sub(self.max_cmd_sn);
        assert!(moved < 1 << 31, "MaxCmdSN decreased: {response:?}");
        self.max_cmd_sn = sn.max_cmd_sn;
    }

    /// The next PDU that is no ping of the target's.
    pub fn expect(&mut self) -> ReceivedPdu {
        self.receive().expect("the target closed the connection")
    }

    pub fn closed(&mut self) {
        while let Some(response) = self.receive() {
            let last_words = matches!(response.0, Response::Reject(_) | Response::Async(_));
            assert!(last_words, "{response:?} instead of an end");
        }
    }

    pub fn next_tag(&mut self) -> u32 {
        self.tag = self.tag.wrapping_add(1);
        self.tag
    }

    /// A numbered command's header; the number is taken.
    pub fn command(&mut self, lun: u8, cdb: &[u8], read: u32, write: u32) -> ScsiCommand {
        let mut padded = [0; 16];
        padded[..cdb.len()].copy_from_slice(cdb);
        let header = ScsiCommand {
            last: true,
            read: read > 0,
            write: write > 0,
            lun: [0, lun, 0, 0, 0, 0, 0, 0],
            task_tag: self.next_tag(),
            transfer_len: read.max(write),
            cmd_sn: self.cmd_sn,
            exp_stat_sn: self.exp_stat_sn,
            cdb: padded,
            ..ScsiCommand::default()
        };
        self.cmd_sn = self.cmd_sn.wrapping_add(1);
        header
    }

    pub fn start(&mut self, lun: u8, cdb: &[u8], read: u32, write: u32) -> u32 {
        let header = self.command(lun, cdb, read, write);
        self.send(&header, &[]);
        header.task_tag
    }

    /// Takes the answer of a command: its data and its status.
    pub fn answer(&mut self, tag: u32) -> (Vec<u8>, ScsiResponse, Vec<u8>) {
        let (mut data, mut data_sn, mut burst) = (Vec::new(), 0, 0);
        loop {
            match self.expect() {
                (Response::DataIn(p), piece) if p.task_tag == tag => {
                    assert_eq!((p.data_sn, p.offset as usize), (data_sn, data.len()));
                    assert!(piece.len() <= self.params.recv_data_len_max as usize);
                    data_sn += 1;
                    burst += p.data_len;
                    assert!(burst <= self.params.max_burst, "a burst of {burst}");
                    if p.last {
                        burst = 0;
                    }
                    data.extend(piece);
                    if let Some((status, residual)) = p.status {
                        let end = ScsiResponse { status, residual, ..ScsiResponse::default() };
                        return (data, end, Vec::new());
                    }
                }
                (Response::Scsi(p), sense) if p.task_tag == tag => return (data, p, sense),
                (Response::NopIn(_), _) => {}
                other => panic!("{other:?} while waiting for {tag:#x}"),
            }
        }
    }

    /// Reads blocks of the unit and does not wait for them.
    ///
    /// # Errors
    ///
    /// The connection was closed.
    pub fn ask(&mut self, lba: u32, blocks: u16) -> io::Result<()> {
        let header = self.command(self.lun, &rw10(0x28, lba, blocks), u32::from(blocks) * 512, 0);
        let bytes = self.bytes(&header, &[], &[]);
        put(&mut self.stream, &bytes, self.segment)
    }

    /// A command to the unit, with at most the first burst of data out, sent with it; waits for its
    /// end.
    ///
    /// # Errors
    ///
    /// The connection was closed, or another PDU than the answer arrived.
    pub fn scsi(&mut self, cdb: &[u8], read: u32, data: &[u8]) -> io::Result<Ended> {
        let mut header = self.command(self.lun, cdb, read, data.len() as u32);
        header.data_len = data.len() as u32;
        let bytes = self.bytes(&header, &[], data);
        put(&mut self.stream, &bytes, self.segment)?;
        let mut got = Vec::new();
        loop {
            match self.try_receive()? {
                (Response::DataIn(p), piece) => {
                    got.extend(piece);
                    if let Some((status, _)) = p.status {
                        return Ok(Ended { status, data: got, sense: Vec::new() });
                    }
                }
                (Response::Scsi(p), mut segment) => {
                    let sense = segment.split_off(segment.len().min(2));
                    return Ok(Ended { status: p.status, data: got, sense });
                }
                (Response::NopIn(_), _) => {}
                (other, _) => return Err(io::Error::other(format!("{other:?}"))),
            }
        }
    }

    /// A command to the unit that must succeed, after the unit attentions before it. Its data.
    #[track_caller]
    pub fn must(&mut self, cdb: &[u8], read: u32) -> Vec<u8> {
        for _ in 0..16 {
            let ended = self.scsi(cdb, read, &[]).unwrap();
            match ended.status {
                0 => return ended.data,
                2 if ended.sense.get(2).is_some_and(|key| key & 0xf == 6) => {}
                other => panic!("status {other:02x}, sense {:02x?}", ended.sense),
            }
        }
        panic!("unit attentions without end");
    }

    /// Clears the unit attention of a new session.
    pub fn ready(&mut self, lun: u8) {
        for _ in 0..8 {
            let tag = self.start(lun, &[0; 6], 0, 0);
            if self.answer(tag).1.status == 0 {
                return;
            }
        }
        panic!("the unit does not become ready");
    }

    pub fn read(&mut self, lun: u8, lba: u32, blocks: u16) -> Vec<u8> {
        let tag = self.start(lun, &rw10(0x28, lba, blocks), u32::from(blocks) * 512, 0);
        let (data, end, _) = self.answer(tag);
        assert_eq!(end.status, 0);
        data
    }

    /// Writes as the agreed parameters require: immediate data, unsolicited data, then solicited
    /// data. `piece` bytes a PDU.
    pub fn write(&mut self, lba: u32, bytes: &[u8], piece: usize) -> ScsiResponse {
        let p = self.params;
        let len = bytes.len() as u32;
        let mut header = self.command(0, &rw10(0x2a, lba, (len / 512) as u16), 0, len);
        let unasked = (p.first_burst.min(len)) as usize;
        let first = if p.immediate_data { unasked.min(piece) } else { 0 };
        header.data_len = first as u32;
        header.last = p.initial_r2t || first == unasked;
        let tag = header.task_tag;
        self.send(&header, &bytes[..first]);
        if !header.last {
            self.burst(tag, TAG_NONE, bytes, first, unasked, piece);
        }
        loop {
            match self.expect() {
                (Response::R2t(r), _) => {
                    assert_eq!(r.task_tag, tag);
                    assert!(r.desired_len <= p.max_burst);
                    let (from, len) = (r.offset as usize, r.desired_len as usize);
                    self.burst(tag, r.target_tag, bytes, from, from + len, piece);
                }
                (Response::Scsi(end), _) => {
                    assert_eq!(end.task_tag, tag);
                    return end;
                }
                (Response::NopIn(_), _) => {}
                other => panic!("{other:?}"),
            }
        }
    }

    /// Data-Out PDUs for `from..end`.
    pub fn burst(
        &mut self,
        tag: u32,
        target_tag: u32,
        bytes: &[u8],
        from: usize,
        end: usize,
        piece: usize,
    ) {
        let (mut at, mut data_sn) = (from, 0);
        while at < end {
            let n = piece.min(end - at).min(self.params.send_data_len_max as usize);
            let last = at + n == end;
            self.data_out(tag, target_tag, data_sn, at, &bytes[at..at + n], last);
            (at, data_sn) = (at + n, data_sn + 1);
        }
    }

    pub fn data_out(
        &mut self,
        tag: u32,
        target_tag: u32,
        data_sn: u32,
        offset: usize,
        data: &[u8],
        last: bool,
    ) {
        let pdu = DataOut {
            last,
            task_tag: tag,
            target_tag,
            exp_stat_sn: self.exp_stat_sn,
            data_sn,
            offset: offset as u32,
            data_len: data.len() as u32,
            ..DataOut::default()
        };
        self.send(&pdu, data);
    }

    /// Starts a write without immediate data; answers its tag and the first R2T's tag.
    pub fn open_write(&mut self, lba: u32, len: u32) -> (u32, u32) {
        let tag = self.start(0, &rw10(0x2a, lba, (len / 512) as u16), 0, len);
        match self.expect() {
            (Response::R2t(r), _) => {
                assert_eq!((r.task_tag, r.offset, r.r2t_sn), (tag, 0, 0));
                (tag, r.target_tag)
            }
            other => panic!("{other:?} instead of an R2T"),
        }
    }

    pub fn function(&mut self, function: u8, of: u32, ref_cmd_sn: u32) -> TaskAnswer {
        let tag = self.next_tag();
        let pdu = TaskRequest {
            immediate: true,
            function,
            task_tag: tag,
            referenced_tag: of,
            ref_cmd_sn,
            cmd_sn: self.cmd_sn,
            exp_stat_sn: self.exp_stat_sn,
            ..TaskRequest::default()
        };
        self.send(&pdu, &[]);
        match self.expect() {
            (Response::Task(t), _) => {
                assert_eq!(t.task_tag, tag);
                t.answer
            }
            other => panic!("{other:?} instead of a task management response"),
        }
    }

    pub fn ping(&mut self, data: &[u8]) -> Vec<u8> {
        let tag = self.next_tag();
        let pdu = NopOut {
            immediate: true,
            task_tag: tag,
            target_tag: TAG_NONE,
            cmd_sn: self.cmd_sn,
            exp_stat_sn: self.exp_stat_sn,
            data_len: data.len() as u32,
            ..NopOut::default()
        };
        self.send(&pdu, data);
        match self.expect() {
            (Response::NopIn(p), echo) => {
                assert_eq!(p.task_tag, tag);
                echo
            }
            other => panic!("{other:?} instead of a ping's answer"),
        }
    }

    pub fn rejected(&mut self) -> (RejectReason, Vec<u8>) {
        match self.expect() {
            (Response::Reject(Reject { reason, .. }), header) => (reason, header),
            other => panic!("{other:?} instead of a Reject"),
        }
    }

    pub fn text(&mut self, data: &[u8], more: bool, target_tag: u32) -> ReceivedPdu {
        let pdu = TextRequest {
            immediate: true,
            last: !more,
            more,
            task_tag: 0x7e47,
            target_tag,
            cmd_sn: self.cmd_sn,
            exp_stat_sn: self.exp_stat_sn,
            data_len: data.len() as u32,
            ..TextRequest::default()
        };
        self.send(&pdu, data);
        self.expect()
    }

    pub fn logout(mut self) {
        let pdu = LogoutRequest {
            task_tag: self.next_tag(),
            cmd_sn: self.cmd_sn,
            exp_stat_sn: self.exp_stat_sn,
            ..LogoutRequest::default()
        };
        self.send(&pdu, &[]);
        match self.expect() {
            (Response::Logout(_), _) => assert!(self.receive().is_none(), "nothing after a logout"),
            other => panic!("{other:?} instead of a logout response"),
        }
    }

    pub fn cut(self) {
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}

fn put(stream: &mut TcpStream, bytes: &[u8], segment: usize) -> std::io::Result<()> {
    match segment {
        0 => stream.write_all(bytes),
        n => bytes.chunks(n).try_for_each(|piece| stream.write_all(piece)),
    }
}

pub fn rw10(opcode: u8, lba: u32, blocks: u16) -> [u8; 10] {
    let mut cdb = [0; 10];
    cdb[0] = opcode;
    cdb[2..6].copy_from_slice(&lba.to_be_bytes());
    cdb[7..9].copy_from_slice(&blocks.to_be_bytes());
    cdb
}

/// Sense key, ASC and ASCQ of a response's data.
pub fn sense(data: &[u8]) -> (u8, u8, u8) {
    let sense = wire::iscsi::sense_of_segment(data).unwrap();
    let code = wire::scsi::Sense::decode(sense).unwrap().code;
    (code.key as u8, code.asc, code.ascq)
}
