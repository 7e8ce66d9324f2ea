//! An NVMe over TCP host for tests.

use bio::Pool;
use reactor::{Address, Reactor, Stream};
use testkit::iscsi::{RxBuffer, put};
use wire::iscsi::crc32c;
use wire::nvme::codes::{admin, fabrics, pdu, pdu_flag, property};
use wire::nvme::*;

pub const SUBSYSTEM: &str = "nqn.2026-11.test.ashlar:stage";

/// The connection broke.
#[derive(Debug, PartialEq, Eq)]
pub struct Broken;

/// A PDU of the controller.
#[derive(Clone, Debug)]
pub struct ReceivedPdu {
    pub frame: Frame,
    pub header: Vec<u8>,
    pub data: Vec<u8>,
}

impl ReceivedPdu {
    pub fn kind(&self) -> u8 {
        self.frame.common.kind
    }

    pub fn completion(&self) -> Completion {
        assert_eq!(self.kind(), pdu::RESPONSE, "{self:x?}");
        Completion::decode(self.header[8..].first_chunk().unwrap())
    }

    pub fn terminate(&self) -> Terminate {
        assert_eq!(self.kind(), pdu::CONTROLLER_TERMINATES, "{self:x?}");
        Terminate::decode(&[&self.header[..], &self.data].concat()).unwrap()
    }

    pub fn part(&self) -> Data {
        Data::decode(self.header.first_chunk().unwrap())
    }
}

pub struct Host {
    pub pool: Pool,
    stream: Stream,
    rx: RxBuffer,
    pub digests: (bool, bool),
    id: u16,
    /// CNTLID, once it is known.
    pub controller: u16,
    pub name: String,
    pub host_id: [u8; 16],
}

impl Host {
    /// Connected, and nothing sent.
    pub async fn dial(reactor: &Reactor, pool: &Pool, at: &Address) -> Result<Host, Broken> {
        let stream = reactor.connect(at.inet().unwrap()).await.map_err(|_| Broken)?;
        Ok(Host {
            pool: pool.clone(),
            rx: RxBuffer::new(&stream, pool, 65_536),
            stream,
            digests: (false, false),
            id: 0,
            controller: DYNAMIC_CONTROLLER,
            name: "nqn.2026-11.test.ashlar:host".into(),
            host_id: [7; 16],
        })
    }

    pub async fn send(&self, bytes: &[u8]) -> Result<(), Broken> {
        put(&self.stream, &self.pool, bytes).await.ok_or(Broken)
    }

    async fn take(&mut self, len: usize) -> Result<Vec<u8>, Broken> {
        self.rx.take(len).await.ok_or(Broken)
    }

    /// The next PDU, whole, its digests right.
    pub async fn receive(&mut self) -> Result<ReceivedPdu, Broken> {
        let mut header = self.take(COMMON_LEN).await?;
        let (header_digest, data_digest) = self.digests;
        let framer = Framer { from_controller: true, header_digest, data_digest };
        let frame = framer.frame(header.first_chunk().unwrap()).unwrap();
        header.extend(self.take(frame.header_len - COMMON_LEN).await?);
        framer.check(&frame, &header).unwrap();
        self.take(frame.pad_len).await?;
        let data = self.take(frame.data_len).await?;
        if frame.digest_len > 0 {
            assert_eq!(self.take(4).await?, crc32c(&data).to_le_bytes());
        }
        Ok(ReceivedPdu { frame, header, data })
    }

    /// True when the controller closes and sends nothing before.
    pub async fn is_closed(&mut self) -> bool {
        self.take(1).await.is_err()
    }

    pub fn close(&self) {
        self.stream.close();
    }

    /// ICReq and ICResp.
    pub async fn initialize(&mut self, digests: (bool, bool)) -> Result<Initialize, Broken> {
        let (header_digest, data_digest) = digests;
        let wish = Initialize { header_digest, data_digest, ..Initialize::default() };
        self.send(&wish.encode()).await?;
        let pdu = self.receive().await?;
        self.digests = digests;
        Ok(Initialize::decode(pdu.header.first_chunk().unwrap()).unwrap())
    }

    pub fn next_id(&mut self) -> u16 {
        self.id = self.id.wrapping_add(1);
        self.id
    }

    pub fn flags(&self) -> u8 {
        if self.digests.0 { pdu_flag::HEADER_DIGEST } else { 0 }
    }

    /// A header with its digest, and data with its own.
    pub fn pdu(&self, header: &[u8], data: &[u8]) -> Vec<u8> {
        let mut out = header.to_vec();
        if self.digests.0 {
            out.extend(crc32c(header).to_le_bytes());
        }
        out.extend(data);
        if self.digests.1 && !data.is_empty() {
            out.extend(crc32c(data).to_le_bytes());
        }
        out
    }

    pub fn capsule(&self, command: &Command, data: &[u8]) -> Vec<u8> {
        let digest = self.digests.1 && !data.is_empty();
        let flags = self.flags() | if digest { pdu_flag::DATA_DIGEST } else { 0 };
        self.pdu(&command_capsule(command, flags, data.len() as u32), data)
    }

    /// An H2CData.
    pub fn host_data(&self, part: &Data, last: bool, data: &[u8]) -> Vec<u8> {
        let head = 24 + if self.digests.0 { 4 } else { 0 };
        let (digest, tail) = if self.digests.1 { (pdu_flag::DATA_DIGEST, 4) } else { (0, 0) };
        let flags = self.flags() | digest | if last { pdu_flag::LAST } else { 0 };
        let len = u32::from(head) + data.len() as u32 + tail;
        let kind = pdu::HOST_DATA;
        self.pdu(&part.encode(&Common { kind, flags, header_len: 24, data_at: head, len }), data)
    }

    pub fn command(&mut self, opcode: u8, nsid: u32, dwords: [u32; 6]) -> Command {
        let sgl = Sgl { kind: Sgl::TRANSPORT, ..Sgl::default() };
        Command { opcode, flags: 0x40, id: self.next_id(), nsid, sgl, dwords }
    }

    /// A command without data, or with data for the host of that length, and its end.
    pub async fn ask(&mut self, mut command: Command, len: u32) -> Result<CommandResult, Broken> {
        command.sgl.len = len;
        self.send(&self.capsule(&command, &[])).await?;
        self.answer(command.id).await
    }

    /// A command with data in its capsule.
    pub async fn run_in_capsule(
        &mut self,
        mut command: Command,
        data: &[u8],
    ) -> Result<CommandResult, Broken> {
        command.sgl = Sgl { address: 0, len: data.len() as u32, kind: Sgl::IN_CAPSULE };
        self.send(&self.capsule(&command, data)).await?;
        self.answer(command.id).await
    }

    /// A command whose data is requested, sent `piece` bytes at a time.
    pub async fn give(
        &mut self,
        mut command: Command,
        data: &[u8],
        piece: usize,
    ) -> Result<CommandResult, Broken> {
        command.sgl.len = data.len() as u32;
        self.send(&self.capsule(&command, &[])).await?;
        let pdu = self.receive().await?;
        if pdu.kind() != pdu::READY {
            return Ok(CommandResult { end: pdu.completion(), data: vec![] });
        }
        let part = pdu.part();
        assert_eq!((part.command, part.at, part.len as usize), (command.id, 0, data.len()));
        for (i, bytes) in data.chunks(piece).enumerate() {
            let at = (i * piece) as u32;
            let one = Data { at, len: bytes.len() as u32, ..part };
            let last = at as usize + bytes.len() == data.len();
            self.send(&self.host_data(&one, last, bytes)).await?;
        }
        self.answer(command.id).await
    }

    /// Data and end of the only command under way.
    pub async fn answer(&mut self, id: u16) -> Result<CommandResult, Broken> {
        let mut data = Vec::new();
        loop {
            let pdu = self.receive().await?;
            if pdu.kind() == pdu::CONTROLLER_DATA {
                assert_eq!((pdu.part().command, pdu.part().at as usize), (id, data.len()));
                data.extend(pdu.data);
                continue;
            }
            let end = pdu.completion();
            assert_eq!(end.id, id);
            return Ok(CommandResult { end, data });
        }
    }

    /// Connect, to any subsystem.
    pub async fn connect(
        &mut self,
        subsystem: &str,
        queue: u16,
        keep_alive_ms: u32,
    ) -> Result<Completion, Broken> {
        let wish = Connect { queue, size: 31, keep_alive_ms, ..Connect::default() };
        let data = ConnectData {
            host_id: self.host_id,
            controller: self.controller,
            subsystem: subsystem.into(),
            host: self.name.clone(),
        };
        let command = self.command(admin::FABRICS, fabrics::CONNECT.into(), wish.dwords());
        let end = self.run_in_capsule(command, &data.encode()).await?.end;
        if end.status.is_good() && queue == 0 {
            self.controller = end.result as u16;
        }
        Ok(end)
    }

    /// Sets CC.
    pub async fn configure(&mut self, new: Configuration) -> Result<Completion, Broken> {
        let at = property::CONFIGURATION;
        let wish = Property { long: false, at, value: new.0.into() };
        let command = self.command(admin::FABRICS, fabrics::PROPERTY_SET.into(), wish.dwords());
        Ok(self.ask(command, 0).await?.end)
    }
}

/// The completion of a command and the data that it returned.
#[derive(Debug)]
pub struct CommandResult {
    pub end: Completion,
    pub data: Vec<u8>,
}

impl CommandResult {
    /// It ended well; its data.
    #[track_caller]
    pub fn good(self) -> Vec<u8> {
        assert!(self.end.status.is_good(), "{:x?}", self.end);
        self.data
    }

    #[track_caller]
    pub fn ends(self, status: Status) {
        assert_eq!(self.end.status, status, "{:x?}", self.end);
    }
}
