//! One connection of an iSCSI initiator in a simulated world: login, PDUs in and out. Over a
//! socket: [`initiator`].

pub mod initiator;

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use bio::{Pool, Segs};
use reactor::{Reactor, Signal, Stream};
use wire::iscsi::{
    Algorithms, Bhs, ChapUser, ClientChap, ClientConfig, ClientLogin, ClientStep, Crc32c,
    DigestPolicy, Framer, Need, Numbers, Offer, PRE_LOGIN, Pdu, Response, SessionParams, TAG_NONE,
    crc32c,
};

/// Login parameters.
#[derive(Clone)]
pub struct LoginOptions {
    pub initiator: String,
    pub target: String,
    pub isid: u8,
    /// The name and the secret that it proves.
    pub chap: Option<ChapUser>,
    pub header_digest: bool,
    pub data_digest: bool,
    pub params: SessionParams,
}

impl LoginOptions {
    /// The initiator's part of the session's name.
    pub fn isid_bytes(&self) -> [u8; 6] {
        [0x80, 0, 0, 0, 0, self.isid]
    }
}

/// A connection in its full feature phase. The reader and the writer are tasks.
pub struct Conn {
    pub stream: Stream,
    pub params: SessionParams,
    pub cmd_sn: Cell<u32>,
    pub max_cmd_sn: Cell<u32>,
    pub exp_stat_sn: Cell<u32>,
    pub dead: Cell<bool>,
    pub last_received_ns: Cell<u64>,
    /// Data received directly behind the login.
    early: RefCell<Vec<u8>>,
    out: RefCell<VecDeque<Vec<u8>>>,
    more: Signal,
    pool: Pool,
}

/// Bytes that arrived and were not looked at yet.
pub struct RxBuffer {
    stream: Stream,
    pool: Pool,
    piece: usize,
    /// Input that was not taken.
    pub bytes: Vec<u8>,
}

impl RxBuffer {
    /// Nothing has arrived. At most `piece` bytes are received at a time.
    pub fn new(stream: &Stream, pool: &Pool, piece: usize) -> RxBuffer {
        RxBuffer { stream: stream.clone(), pool: pool.clone(), piece, bytes: Vec::new() }
    }

    /// The next `len` bytes; None at the end.
    pub async fn take(&mut self, len: usize) -> Option<Vec<u8>> {
        self.fill(len).await?;
        Some(self.bytes.drain(..len).collect())
    }

    /// Receives until `need` bytes are there; None at the end.
    pub async fn fill(&mut self, need: usize) -> Option<()> {
        while self.bytes.len() < need {
            let seg = self.pool.get(self.piece)?.seg(0, self.piece)?;
            let n = self.stream.recv(&seg).await.ok()?;
            if n == 0 {
                return None;
            }
            seg.with(|b| self.bytes.extend_from_slice(&b[..n]));
        }
        Some(())
    }

    /// The next PDU with its data; None at the end. A wrong digest fails the test.
    pub async fn pdu(&mut self, framer: &Framer) -> Option<(Bhs, Vec<u8>)> {
        let mut need = 48;
        let frame = loop {
            self.fill(need).await?;
            match framer.header(&self.bytes).expect("a right header") {
                Need::Bytes(n) => need = n,
                Need::Header(frame) => break frame,
            }
        };
        self.fill(frame.total_len()).await?;
        let tail = &self.bytes[frame.header_len..frame.total_len()];
        let data = framer.data(&frame, tail).expect("right data").to_vec();
        let bhs = *self.bytes.first_chunk().expect("48 bytes");
        self.bytes.drain(..frame.total_len());
        Some((bhs, data))
    }
}

/// Sends bytes; None when the connection was closed.
pub async fn put(stream: &Stream, pool: &Pool, bytes: &[u8]) -> Option<()> {
    let segs = Segs::alloc(pool, bytes.len())?;
    segs.copy_from(0, bytes);
    let mut list: Vec<_> = segs.iter().cloned().collect();
    stream.send(&mut list).await.ok()
}

/// A PDU as bytes, with digests as agreed.
pub fn pdu_bytes(params: &SessionParams, pdu: &impl Pdu, ahs: &[u8], data: &[u8]) -> Vec<u8> {
    let mut bhs = [0; 48];
    pdu.encode(&mut bhs);
    let mut out = [&bhs[..], ahs].concat();
    if params.header_digest {
        out.extend(crc32c(&out).to_le_bytes());
    }
    let start = out.len();
    out.extend(data);
    out.resize(start + data.len().next_multiple_of(4), 0);
    if params.data_digest && !data.is_empty() {
        let mut crc = Crc32c::new();
        crc.update(&out[start..]);
        out.extend(crc.wire());
    }
    out
}

/// The numbers of a response, and whether it takes a StatSN.
fn numbers(response: &Response) -> (Numbers, bool) {
    match response {
        Response::Scsi(p) => (p.sn, true),
        Response::DataIn(p) => (p.sn, p.status.is_some()),
        Response::R2t(p) => (p.sn, false),
        Response::NopIn(p) => (p.sn, p.task_tag != TAG_NONE),
        Response::Task(p) => (p.sn, true),
        Response::Text(p) => (p.sn, true),
        Response::Logout(p) => (p.sn, true),
        Response::Async(p) => (p.sn, true),
        Response::Reject(p) => (p.sn, true),
        Response::Login(_) => panic!("a login response in the full feature phase"),
    }
}

/// Logs in; why not, in words.
pub async fn login(
    reactor: &Reactor,
    pool: &Pool,
    stream: Stream,
    how: &LoginOptions,
) -> Result<Rc<Conn>, String> {
    let policy = |on| if on { DigestPolicy::Require } else { DigestPolicy::Off };
    let chap = |user| ClientChap { user, algorithms: Algorithms::default(), mutual: None };
    let config = ClientConfig {
        initiator: how.initiator.clone(),
        target: Some(how.target.clone()),
        isid: how.isid_bytes(),
        cid: 1,
        cmd_sn: reactor.random() as u32,
        offer: Offer {
            header_digest: policy(how.header_digest),
            data_digest: policy(how.data_digest),
            params: how.params,
            ..Offer::default()
        },
        chap: how.chap.clone().map(chap),
    };
    let mut inlet = RxBuffer::new(&stream, pool, 4096);
    let (mut login, mut request) = ClientLogin::start(config).map_err(|e| e.to_string())?;
    loop {
        put(&stream, pool, &request.to_bytes()).await.ok_or("not sent")?;
        let (bhs, data) = inlet.pdu(&PRE_LOGIN).await.ok_or("closed")?;
        match login.response(&bhs, &data).map_err(|e| e.to_string())? {
            ClientStep::Send(next) => request = next,
            ClientStep::Done(done) => {
                return Ok(Rc::new(Conn {
                    stream,
                    params: done.params,
                    cmd_sn: Cell::new(done.cmd_sn),
                    max_cmd_sn: Cell::new(done.max_cmd_sn),
                    exp_stat_sn: Cell::new(done.exp_stat_sn),
                    dead: Cell::new(false),
                    last_received_ns: Cell::new(reactor.now()),
                    early: RefCell::new(inlet.bytes),
                    out: RefCell::default(),
                    more: Signal::default(),
                    pool: pool.clone(),
                }));
            }
        }
    }
}

impl Conn {
    /// Sends queued data, until the end.
    pub async fn write(self: Rc<Conn>) {
        loop {
            let next = self.out.borrow_mut().pop_front();
            let Some(bytes) = next else {
                self.more.wait().await;
                continue;
            };
            if put(&self.stream, &self.pool, &bytes).await.is_none() {
                return self.dead.set(true);
            }
        }
    }

    /// Passes every PDU to `hear`, with its header as received, until the end.
    pub async fn read(self: Rc<Conn>, reactor: Reactor, hear: impl Fn(&Bhs, Response, Vec<u8>)) {
        let framer = Framer::of(&self.params);
        let mut inlet = RxBuffer::new(&self.stream, &self.pool, 4096);
        inlet.bytes = self.early.take();
        while let Some((bhs, data)) = inlet.pdu(&framer).await {
            let response = Response::decode(&bhs).expect("a right response");
            self.last_received_ns.set(reactor.now());
            self.note(&response);
            hear(&bhs, response, data);
        }
        self.dead.set(true);
    }

    /// Checks the conditions of every PDU.
    fn note(&self, response: &Response) {
        assert!(!matches!(response, Response::Reject(_)), "rejected: {response:?}");
        let (sn, counts) = numbers(response);
        if counts {
            assert_eq!(sn.stat_sn, self.exp_stat_sn.get(), "StatSN of {response:?}");
            self.exp_stat_sn.set(sn.stat_sn.wrapping_add(1));
        }
        let moved = sn.max_cmd_sn.wrapping_sub(self.max_cmd_sn.get());
        assert!(moved < 1 << 31, "MaxCmdSN decreased: {response:?}");
        self.max_cmd_sn.set(sn.max_cmd_sn);
    }

    /// True while the window takes another command.
    pub fn may_send(&self) -> bool {
        self.max_cmd_sn.get().wrapping_sub(self.cmd_sn.get()) < 1 << 31
    }

    /// The number of a command that is not immediate; it is taken.
    pub fn take_cmd_sn(&self) -> u32 {
        let n = self.cmd_sn.get();
        self.cmd_sn.set(n.wrapping_add(1));
        n
    }

    /// Queues a PDU, with digests as agreed.
    pub fn send(&self, pdu: &impl Pdu, data: &[u8]) {
        self.out.borrow_mut().push_back(pdu_bytes(&self.params, pdu, &[], data));
        self.more.notify();
    }
}
