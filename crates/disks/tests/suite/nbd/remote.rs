//! A simulated NBD server, in the clear or over TLS. It loses connections before and after it has
//! carried out a request, cuts replies short, falls silent, restarts, and always keeps acknowledged
//! data.
//!
//! A connection that its client has closed carries out nothing any more. NBD gives a client no way
//! to order a request of an old connection before one of a new connection.

use std::cell::{Cell, RefCell};
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::rc::Rc;

use bio::{Pool, Segs};
use reactor::sim::World;
use reactor::{Reactor, SeededRandom, Stream, TaskHandle};
use rustls::ServerConnection;
use tls::Keys;
use wire::nbd::chunk::{self, Extent};
use wire::nbd::codes::{chunk_kind, command_flag, export_flag, kind};
use wire::nbd::{
    Agreed, Export, Exports, Form, HEAD_MAX, Handshake, Head, Listed, Request, Settings, Step, Tls,
    Unavailable, request_len,
};

pub const FLAGS: u16 = export_flag::HAS_FLAGS
    | export_flag::SEND_FLUSH
    | export_flag::SEND_FUA
    | export_flag::SEND_WRITE_ZEROES
    | export_flag::CAN_MULTI_CONN;

/// The server.
pub struct Remote {
    pub data: RefCell<Vec<u8>>,
    pub flags: Cell<u16>,
    /// Faults of a thousand requests.
    pub faults: Cell<u64>,
    pub faults_made: Cell<u64>,
    pub writes: Cell<u64>,
    /// A request at this place ends its connection.
    pub poison: Cell<Option<u64>>,
    /// With them every client must use TLS.
    keys: Option<Keys>,
    random: RefCell<SeededRandom>,
    tasks: RefCell<Vec<TaskHandle>>,
    world: World,
    reactor: Reactor,
    pool: Pool,
    portal: SocketAddr,
}

/// The connection ends.
struct Over;

/// A connection, in the clear until it has begun TLS.
struct Line<'s> {
    stream: &'s Stream,
    tls: RefCell<Option<ServerConnection>>,
}

impl Line<'_> {
    /// Appends received bytes to `into`, decrypted.
    fn decrypt(&self, mut bytes: &[u8], into: &mut Vec<u8>) -> Result<(), Over> {
        let mut tls = self.tls.borrow_mut();
        let Some(tls) = tls.as_mut() else {
            into.extend_from_slice(bytes);
            return Ok(());
        };
        while !bytes.is_empty() {
            let taken = tls.read_tls(&mut bytes).map_err(|_| Over)?;
            let state = tls.process_new_packets().map_err(|_| Over)?;
            let from = into.len();
            into.resize(from + state.plaintext_bytes_to_read(), 0);
            tls.reader().read_exact(&mut into[from..]).map_err(|_| Over)?;
            if taken == 0 {
                return Err(Over);
            }
        }
        Ok(())
    }

    /// The bytes to send for `bytes`, with those that TLS sends of its own accord.
    fn encrypt(&self, bytes: &[u8]) -> Result<Vec<u8>, Over> {
        let mut tls = self.tls.borrow_mut();
        let Some(tls) = tls.as_mut() else { return Ok(bytes.to_vec()) };
        tls.writer().write_all(bytes).map_err(|_| Over)?;
        let mut out = Vec::new();
        while tls.wants_write() {
            tls.write_tls(&mut out).map_err(|_| Over)?;
        }
        Ok(out)
    }
}

impl Exports for &Remote {
    fn find(&mut self, name: &str, _: bool) -> Result<Export, Unavailable> {
        Ok(Export {
            name: name.to_owned(),
            description: String::new(),
            size: self.data.borrow().len() as u64,
            flags: self.flags.get(),
            block_sizes: [512, 4096, 1 << 25],
            unaligned: false,
        })
    }

    fn list(&mut self) -> Option<Vec<Listed>> {
        None
    }
}

impl Remote {
    pub fn new(
        world: &World,
        reactor: &Reactor,
        pool: &Pool,
        portal: SocketAddr,
        (bytes, keys): (usize, Option<Keys>),
    ) -> Rc<Remote> {
        Rc::new(Remote {
            data: RefCell::new(vec![0; bytes]),
            flags: Cell::new(FLAGS),
            faults: Cell::default(),
            faults_made: Cell::default(),
            writes: Cell::default(),
            poison: Cell::default(),
            keys,
            random: RefCell::new(SeededRandom::new(reactor.random())),
            tasks: RefCell::default(),
            world: world.clone(),
            reactor: reactor.clone(),
            pool: pool.clone(),
            portal,
        })
    }

    pub fn start(self: &Rc<Remote>) {
        let remote = self.clone();
        let listening = self.reactor.spawn("nbd remote", async move {
            let listener = remote.reactor.listen(remote.portal).unwrap();
            loop {
                let (stream, client) = listener.accept().await.unwrap();
                let own = remote.clone();
                let task = remote.reactor.spawn("nbd connection", async move {
                    let _over = own.serve(&stream, client).await;
                    stream.close();
                });
                remote.tasks.borrow_mut().push(task);
            }
        });
        self.tasks.borrow_mut().push(listening);
    }

    /// Ends at once, as by SIGKILL.
    pub fn stop(&self) {
        self.tasks.take().iter().for_each(TaskHandle::abort);
    }

    fn chance(&self, per_mille: u64) -> bool {
        let fault = per_mille > 0 && self.random.borrow_mut().below(1000) < per_mille;
        self.faults_made.set(self.faults_made.get() + u64::from(fault));
        fault
    }

    /// An error once the client has closed the connection, whether the server can see that or not.
    fn check_open(&self, client: SocketAddr) -> Result<(), Over> {
        let links = self.world.links();
        links.iter().any(|(_, from, _)| *from == client).then_some(()).ok_or(Over)
    }

    /// Receives at least a byte that is not TLS's own.
    async fn recv(&self, line: &Line<'_>, into: &mut Vec<u8>) -> Result<(), Over> {
        let seg = self.pool.get(16_384).and_then(|buf| buf.seg(0, 16_384)).ok_or(Over)?;
        let before = into.len();
        while into.len() == before {
            match line.stream.recv(&seg).await {
                Ok(n) if n > 0 => seg.with(|b| line.decrypt(&b[..n], into))?,
                _ => return Err(Over),
            }
            self.send(line, &[]).await?;
        }
        Ok(())
    }

    async fn send(&self, line: &Line<'_>, bytes: &[u8]) -> Result<(), Over> {
        let bytes = line.encrypt(bytes)?;
        if bytes.is_empty() {
            return Ok(());
        }
        let segs = Segs::alloc(&self.pool, bytes.len()).ok_or(Over)?;
        segs.copy_from(0, &bytes);
        line.stream.send(&mut segs.as_slice().to_vec()).await.map_err(|_| Over)
    }

    async fn serve(&self, stream: &Stream, client: SocketAddr) -> Result<(), Over> {
        let line = &Line { stream, tls: RefCell::default() };
        let (mut fresh, mut out) = (Vec::new(), Vec::new());
        let tls = if self.keys.is_some() { Tls::Require } else { Tls::Off };
        let mut handshake = Handshake::new(Settings { tls }, &mut out);
        let agreed: Agreed = loop {
            if !out.is_empty() {
                self.send(line, &std::mem::take(&mut out)).await?;
            }
            if self.chance(self.faults.get()) {
                return Err(Over);
            }
            let (used, step) = handshake.input(&fresh, &mut &*self, &mut out).map_err(|_| Over)?;
            fresh.drain(..used);
            match step {
                Step::More => self.recv(line, &mut fresh).await?,
                Step::Transmit(agreed) => break *agreed,
                Step::Answered => {}
                Step::StartTls => {
                    self.send(line, &std::mem::take(&mut out)).await?;
                    let begun =
                        self.keys.as_ref().and_then(|keys| keys.begin().ok()).ok_or(Over)?;
                    *line.tls.borrow_mut() = Some(begun);
                    handshake.secured();
                }
                Step::Abort => return Err(Over),
            }
        };
        self.send(line, &out).await?;
        let mut held = Vec::new();
        loop {
            let (request, bytes) = loop {
                let len = request_len(agreed.form);
                if let Some(head) = fresh.get(..len) {
                    let request = Request::decode(agreed.form, head).expect("a request");
                    let whole = len + request.payload_len(agreed.form) as usize;
                    if fresh.len() >= whole {
                        let bytes: Vec<u8> = fresh.drain(..whole).skip(len).collect();
                        break (request, bytes);
                    }
                }
                if !held.is_empty() {
                    self.send(line, &std::mem::take(&mut held)).await?;
                }
                self.recv(line, &mut fresh).await?;
            };
            self.hesitate(&request).await?;
            self.check_open(client)?;
            let reply = self.carry_out(&request, &bytes, agreed.form)?;
            // A later reply may overtake this one.
            match self.random.borrow_mut().below(3) {
                0 => held.extend(reply),
                1 => drop(held.splice(0..0, reply)),
                _ => held.extend(reply),
            }
            if self.random.borrow_mut().chance(500) {
                let out = std::mem::take(&mut held);
                if self.chance(self.faults.get()) {
                    self.send(line, &out[..out.len() / 2]).await?;
                    return Err(Over);
                }
                self.send(line, &out).await?;
            }
        }
    }

    /// Faults before a request is carried out, and its delay.
    async fn hesitate(&self, request: &Request) -> Result<(), Over> {
        let poison = self.poison.get() == Some(request.offset);
        if poison || self.chance(self.faults.get()) {
            return Err(Over);
        }
        if self.chance(self.faults.get() / 4) {
            std::future::pending::<()>().await;
        }
        if self.random.borrow_mut().chance(200) {
            let ns = self.random.borrow_mut().below(3_000_000);
            self.reactor.sleep(ns).await;
        }
        Ok(())
    }

    fn carry_out(&self, request: &Request, bytes: &[u8], form: Form) -> Result<Vec<u8>, Over> {
        let (from, len) = (request.offset as usize, request.len as usize);
        let mut out = Vec::new();
        let mut chunk = |flags: u16, kind: u16, body: &[u8]| {
            let mut head = [0; HEAD_MAX];
            let (cookie, offset, len) = (request.cookie, request.offset, body.len() as u64);
            let n = Head::Chunk { flags, kind, cookie, offset, len }.encode(form, &mut head);
            out.extend_from_slice(&head[..n]);
            out.extend_from_slice(body);
        };
        let mut data = self.data.borrow_mut();
        match request.kind {
            kind::READ => {
                let cut = (self.random.borrow_mut().below(len as u64 / 512 + 1) * 512) as usize;
                // The second part first.
                for (from, len) in [(from + cut, len - cut), (from, cut)] {
                    let part = &data[from..from + len];
                    if len > 0 && part.iter().all(|b| *b == 0) {
                        chunk(0, chunk_kind::OFFSET_HOLE, &chunk::hole(from as u64, len as u32));
                    } else if len > 0 {
                        let body = [&(from as u64).to_be_bytes()[..], part].concat();
                        chunk(0, chunk_kind::OFFSET_DATA, &body);
                    }
                }
                chunk(1, chunk_kind::NONE, &[]);
            }
            kind::WRITE => {
                assert_eq!(form == Form::Extended, request.has(command_flag::PAYLOAD_LEN));
                data[from..from + len].copy_from_slice(bytes);
                self.writes.set(self.writes.get() + 1);
                chunk(1, chunk_kind::NONE, &[]);
            }
            kind::WRITE_ZEROES => {
                assert!(self.flags.get() & export_flag::SEND_WRITE_ZEROES != 0, "not offered");
                data[from..from + len].fill(0);
                self.writes.set(self.writes.get() + 1);
                chunk(1, chunk_kind::NONE, &[]);
            }
            kind::FLUSH => chunk(1, chunk_kind::NONE, &[]),
            kind::BLOCK_STATUS => {
                let mut body = Vec::new();
                let extents = [Extent { len: request.len, flags: 0 }];
                chunk::block_status_ext(1, &extents, &mut body);
                chunk(1, chunk_kind::BLOCK_STATUS_EXT, &body);
            }
            _ => return Err(Over),
        }
        drop(data);
        if self.chance(self.faults.get()) {
            return Err(Over);
        }
        Ok(out)
    }
}
