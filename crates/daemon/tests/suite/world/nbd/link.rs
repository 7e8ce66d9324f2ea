//! One connection of a client: handshake, requests out, replies in. Requests are made by the codecs
//! of the wire; replies are taken apart here, by the protocol's document.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use bio::Pool;
use reactor::{Signal, Stream};
use testkit::iscsi::{RxBuffer, put};
use wire::nbd::codes::{info, option};
use wire::nbd::{Form, Request, dial};

const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
const SIMPLE: u32 = 0x6744_6698;
const STRUCTURED: u32 = 0x668e_33ef;
const EXTENDED: u32 = 0x6e8a_278c;
const ACK: u32 = 1;
const INFO: u32 = 3;
const META_CONTEXT: u32 = 4;
/// From here on replies to options are errors.
const ERRORS: u32 = 1 << 31;
const INFO_EXPORT: u16 = 0;
const CONTEXT: &str = "base:allocation";

/// The request of a client to enter an export.
#[derive(Clone, Debug)]
pub struct Wanted {
    pub name: String,
    pub form: Form,
    pub allocation: bool,
}

/// A piece of a reply.
#[derive(Debug)]
pub enum ReplyPiece {
    Simple { cookie: u64, error: u32, data: Vec<u8> },
    Chunk { flags: u16, kind: u16, cookie: u64, offset: u64, body: Vec<u8> },
}

/// How a handshake ended.
pub enum Entry {
    Entered(Rc<Link>),
    /// With that error.
    Refused(u32),
    Broken,
}

/// A connection in transmission. The reader and the writer are tasks.
pub struct Link {
    pub stream: Stream,
    pub form: Form,
    /// Number of the context that was agreed on.
    pub context: Option<u32>,
    pub size: u64,
    pub flags: u16,
    pub dead: Cell<bool>,
    /// The daemon reports its end.
    pub going: Cell<bool>,
    early: RefCell<Vec<u8>>,
    out: RefCell<VecDeque<Vec<u8>>>,
    more: Signal,
    pool: Pool,
}

pub fn u16_at(b: &[u8], at: usize) -> u16 {
    u16::from_be_bytes(b[at..at + 2].try_into().expect("two"))
}

pub fn u32_at(b: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(b[at..at + 4].try_into().expect("four"))
}

pub fn u64_at(b: &[u8], at: usize) -> u64 {
    u64::from_be_bytes(b[at..at + 8].try_into().expect("eight"))
}

/// The handshake under way.
struct Handshake {
    rx: RxBuffer,
    stream: Stream,
    pool: Pool,
}

type Replies = Vec<(u32, Vec<u8>)>;

impl Handshake {
    /// Replies to an option, up to ACK or an error. None: the connection is lost.
    async fn ask(&mut self, option: u32, payload: &[u8]) -> Option<Replies> {
        put(&self.stream, &self.pool, &dial::option(option, payload)).await?;
        let mut out = Vec::new();
        loop {
            let head = self.rx.take(20).await?;
            assert_eq!(u64_at(&head, 0), OPTION_REPLY_MAGIC);
            assert_eq!(u32_at(&head, 8), option, "an answer to another option");
            let kind = u32_at(&head, 12);
            let payload = self.rx.take(u32_at(&head, 16) as usize).await?;
            out.push((kind, payload));
            if kind == ACK || kind >= ERRORS {
                return Some(out);
            }
        }
    }
}

/// The error at the end of an option's replies.
fn error_of(replies: &Replies) -> Option<u32> {
    replies.last().map(|(kind, _)| *kind).filter(|kind| *kind >= ERRORS)
}

/// Carries out the handshake.
pub async fn enter(stream: Stream, pool: &Pool, wanted: &Wanted) -> Entry {
    enter_or_break(stream, pool, wanted).await.unwrap_or(Entry::Broken)
}

async fn enter_or_break(stream: Stream, pool: &Pool, wanted: &Wanted) -> Option<Entry> {
    let inlet = RxBuffer::new(&stream, pool, 4096);
    let mut hand = Handshake { rx: inlet, stream: stream.clone(), pool: pool.clone() };
    let greeting = hand.rx.take(18).await?;
    assert_eq!(&greeting[..16], b"NBDMAGICIHAVEOPT");
    assert_eq!(u16_at(&greeting, 16), 3, "fixed newstyle, no zeroes");
    put(&stream, pool, &dial::flags()).await?;
    let form_option = match wanted.form {
        Form::Simple => None,
        Form::Structured => Some(option::STRUCTURED_REPLY),
        Form::Extended => Some(option::EXTENDED_HEADERS),
    };
    if let Some(option) = form_option {
        let replies = hand.ask(option, &[]).await?;
        assert_eq!(replies, [(ACK, vec![])], "{:?}", wanted.form);
    }
    let mut context = None;
    if wanted.allocation {
        let asked = dial::contexts(&wanted.name, &[CONTEXT]);
        let replies = hand.ask(option::SET_META_CONTEXT, &asked).await?;
        if let Some(error) = error_of(&replies) {
            return Some(Entry::Refused(error));
        }
        for (kind, body) in &replies[..replies.len() - 1] {
            assert_eq!((*kind, &body[4..]), (META_CONTEXT, CONTEXT.as_bytes()));
            assert!(context.replace(u32_at(body, 0)).is_none(), "told twice");
        }
        assert!(context.is_some(), "not told of the context");
    }
    // It requests the block size: its requests of other sizes are to be refused.
    let asked = dial::info(&wanted.name, &[info::BLOCK_SIZE]);
    let replies = hand.ask(option::GO, &asked).await?;
    if let Some(error) = error_of(&replies) {
        return Some(Entry::Refused(error));
    }
    let is_export_info =
        |(kind, body): &&(u32, Vec<u8>)| *kind == INFO && u16_at(body, 0) == INFO_EXPORT;
    let (_, export) = replies.iter().find(is_export_info).expect("information about the export");
    assert_eq!(export.len(), 12);
    Some(Entry::Entered(Rc::new(Link {
        stream,
        form: wanted.form,
        context,
        size: u64_at(export, 2),
        flags: u16_at(export, 10),
        dead: Cell::new(false),
        going: Cell::new(false),
        early: RefCell::new(hand.rx.bytes),
        out: RefCell::default(),
        more: Signal::default(),
        pool: pool.clone(),
    })))
}

impl Link {
    /// Queues a request.
    pub fn send(&self, request: &Request, data: &[u8]) {
        let mut out = Vec::new();
        request.encode(self.form, &mut out);
        out.extend(data);
        self.out.borrow_mut().push_back(out);
        self.more.notify();
    }

    /// Sends queued data until the end.
    pub async fn write(self: Rc<Link>) {
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

    /// Hands every piece to `hear`, until the end; `len_of`: the bytes that a READ returns.
    pub async fn read(self: Rc<Link>, len_of: impl Fn(u64) -> usize, hear: impl Fn(ReplyPiece)) {
        let mut inlet = RxBuffer::new(&self.stream, &self.pool, 4096);
        inlet.bytes = self.early.take();
        while let Some(piece) = self.piece(&mut inlet, &len_of).await {
            hear(piece);
        }
        self.dead.set(true);
    }

    async fn piece(
        &self,
        inlet: &mut RxBuffer,
        len_of: &impl Fn(u64) -> usize,
    ) -> Option<ReplyPiece> {
        let magic = u32_at(&inlet.take(4).await?, 0);
        let right = match self.form {
            Form::Simple => magic == SIMPLE,
            Form::Structured => magic == SIMPLE || magic == STRUCTURED,
            Form::Extended => magic == EXTENDED,
        };
        assert!(right, "magic {magic:#x} with {:?}", self.form);
        if magic == SIMPLE {
            let head = inlet.take(12).await?;
            let (error, cookie) = (u32_at(&head, 0), u64_at(&head, 4));
            let len = if error == 0 { len_of(cookie) } else { 0 };
            let data = inlet.take(len).await?;
            return Some(ReplyPiece::Simple { cookie, error, data });
        }
        let wide = magic == EXTENDED;
        let head = inlet.take(if wide { 28 } else { 16 }).await?;
        let (flags, kind, cookie) = (u16_at(&head, 0), u16_at(&head, 2), u64_at(&head, 4));
        let (offset, len) = match wide {
            true => (u64_at(&head, 12), u64_at(&head, 20)),
            false => (0, u64::from(u32_at(&head, 12))),
        };
        let body = inlet.take(usize::try_from(len).expect("short")).await?;
        Some(ReplyPiece::Chunk { flags, kind, cookie, offset, body })
    }
}
