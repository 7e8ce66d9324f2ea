//! The console over Ethernet (CEC), for operators on the same wire, without a network.
//!
//! ```text
//!   discover -> offer "-1 NAME"
//!   inita -> initb -> initc: open
//!   data -> ack; each line that it ends is run, its output is sent as data
//!   data and initb are sent one at a time, four times 250 ms apart; a reset after that
//! ```
//! Invariants
//!  C1  Data is taken once, in order, although packets are repeated.
//!  C2  Lines of one connection run one after the other.
//!  C3  Connections, lines that wait and bytes that wait to be sent are bounded.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

use bio::Segs;
use geom::Local;
use reactor::{Link, Reactor};
use wire::aoe::Mac;
use wire::cec::{CEC_ETHERTYPE, CecFrame, CecKind};

use crate::notify::Notify;

/// Connections at a time; a further one takes the place of the one that is idle longest.
const CONNECTIONS_MAX: usize = 15;
/// How often data is sent, and the time between, ns.
const TRIES: u32 = 4;
/// See `TRIES`.
const AGAIN_NS: u64 = 250_000_000;
/// Bytes of data in a frame.
const DATA: usize = 250;
/// Longest line, bytes.
const LINE_MAX: usize = 4096;
/// Lines that wait for those before them. Data that would add another is not acknowledged.
const LINES_MAX: usize = 16;
/// Bytes that wait to be sent; what an answer has beyond is cut off.
const OUT_MAX: usize = 1 << 20;
/// Frames received before others get their turn.
const FRAMES: usize = 64;
/// How often an interface that disappeared is looked for, ns.
const LOOK_NS: u64 = 1_000_000_000;

const BROADCAST: Mac = Mac([0xff; 6]);
const ERASE: [u8; 2] = [0x08, 0x7f];
const KILL: u8 = 0x15;

/// Runs a line; what to show.
pub(super) type Run = Box<dyn Fn(String) -> Local<'static, String>>;

/// A frame that waits for its answer.
struct InflightFrame {
    frame: Vec<u8>,
    tries: u32,
    due: u64,
}

struct CecConnection {
    /// Of all that ever were.
    number: u64,
    peer: Mac,
    conn: u8,
    open: bool,
    /// Number of the last received data.
    last_rx_seq: Option<u8>,
    last_tx_seq: u8,
    inflight: Option<InflightFrame>,
    out: VecDeque<u8>,
    typed: Vec<u8>,
    lines: VecDeque<String>,
    running: bool,
    used: u64,
}

/// See the module.
pub(super) struct Cec {
    reactor: Reactor,
    name: String,
    run: Run,
    mac: Cell<Mac>,
    connections: RefCell<Vec<CecConnection>>,
    connections_total: Cell<u64>,
    notify: Notify,
}

/// An interface for the console; an error has the reason.
pub(super) fn link(reactor: &Reactor, interface: &str) -> io::Result<Link> {
    let link = reactor.link(interface, CEC_ETHERTYPE)?;
    link.facts().map(|_| link)
}

impl CecConnection {
    fn queue_text(&mut self, text: &str) {
        for c in text.bytes() {
            if self.out.len() >= OUT_MAX {
                return;
            }
            if c == b'\n' {
                self.out.push_back(b'\r');
            }
            self.out.push_back(c);
        }
    }

    /// Takes the last byte typed away.
    fn erase(&mut self) {
        if self.typed.pop().is_some() {
            self.queue_text("\u{8} \u{8}");
        }
    }

    /// Echoes typed bytes, as terminals in raw mode need it, and splits them into lines.
    fn receive_data(&mut self, data: &[u8]) {
        for c in data {
            match *c {
                b'\r' | b'\n' => {
                    let line = std::mem::take(&mut self.typed);
                    self.lines.push_back(String::from_utf8_lossy(&line).into_owned());
                    self.queue_text("\n");
                }
                c if ERASE.contains(&c) => self.erase(),
                KILL => {
                    self.typed.clear();
                    self.queue_text("^U\n");
                }
                c if (c >= b' ' || c == b'\t') && self.typed.len() < LINE_MAX => {
                    self.typed.push(c);
                    self.out.push_back(c);
                }
                _ => {}
            }
        }
    }

    fn frame(&self, from: Mac, kind: CecKind, seq: u8, data: &[u8]) -> Vec<u8> {
        CecFrame { to: self.peer, from, kind, conn: self.conn, seq, data }.encode()
    }

    /// The next data, if none is on its way.
    fn send_next(&mut self, from: Mac, now: u64) {
        if !self.open || self.inflight.is_some() || self.out.is_empty() {
            return;
        }
        let n = self.out.len().min(DATA);
        let data: Vec<u8> = self.out.drain(..n).collect();
        self.last_tx_seq = self.last_tx_seq.wrapping_add(1);
        let frame = self.frame(from, CecKind::Data, self.last_tx_seq, &data);
        self.inflight = Some(InflightFrame { frame, tries: TRIES, due: now });
    }
}

impl Cec {
    pub(super) fn new(reactor: &Reactor, name: &str, run: Run) -> Rc<Cec> {
        Rc::new(Cec {
            reactor: reactor.clone(),
            name: name.to_owned(),
            run,
            mac: Cell::new(Mac([0; 6])),
            connections: RefCell::default(),
            connections_total: Cell::new(0),
            notify: Notify::default(),
        })
    }

    /// Serves at an interface, for ever; one that disappeared is looked for.
    pub(super) async fn serve(self: Rc<Self>, link: Link) {
        let name = link.interface().to_owned();
        let mut open = Some(link);
        loop {
            if let Some(link) = open.take() {
                // It ends when the interface is down or removed.
                let _ = self.serve_link(&link).await;
            }
            self.reactor.sleep(LOOK_NS).await;
            open = self::link(&self.reactor, &name).ok();
        }
    }

    async fn serve_link(self: &Rc<Self>, link: &Link) -> io::Result<()> {
        self.mac.set(Mac(link.facts()?.mac));
        self.offer(link, BROADCAST);
        loop {
            let seen = self.notify.count();
            let wait = self.send_due(link)?;
            {
                let mut ready = pin!(link.ready());
                let mut notified = pin!(self.notify.after_or(&self.reactor, seen, wait));
                poll_fn(|cx| match ready.as_mut().poll(cx) {
                    Poll::Pending => notified.as_mut().poll(cx).map(Ok),
                    polled => polled,
                })
                .await?;
            }
            link.receive(FRAMES, &mut |frame| {
                if let Ok(frame) = CecFrame::decode(frame) {
                    self.receive_frame(link, &frame);
                }
            })?;
        }
    }

    fn send(&self, link: &Link, frame: &[u8]) {
        // A frame that the interface does not take is lost, as on a wire.
        let _ = link.send(frame, &Segs::default());
    }

    fn answer(&self, link: &Link, to: &CecFrame<'_>, kind: CecKind) {
        let (mac, conn, seq) = (self.mac.get(), to.conn, to.seq);
        let frame = CecFrame { to: to.from, from: mac, kind, conn, seq, data: &[] };
        self.send(link, &frame.encode());
    }

    fn offer(&self, link: &Link, to: Mac) {
        let text = format!("-1 {}", self.name);
        let data = text.as_bytes();
        let kind = CecKind::Offer;
        let frame = CecFrame { to, from: self.mac.get(), kind, conn: 0, seq: 0, data };
        self.send(link, &frame.encode());
    }

    /// Sends due frames; returns the time until the next one is due, ns.
    fn send_due(&self, link: &Link) -> io::Result<Option<u64>> {
        let (now, mac) = (self.reactor.now(), self.mac.get());
        let mut next: Option<u64> = None;
        self.connections.borrow_mut().retain_mut(|s| {
            s.send_next(mac, now);
            let Some(flight) = &mut s.inflight else { return true };
            if now >= flight.due {
                if flight.tries == 0 {
                    let frame = s.frame(mac, CecKind::Reset, 0, &[]);
                    self.send(link, &frame);
                    return false;
                }
                flight.tries -= 1;
                flight.due = now + AGAIN_NS;
                self.send(link, &flight.frame);
            }
            next = Some(next.map_or(flight.due, |n| n.min(flight.due)));
            true
        });
        link.flush()?;
        Ok(next.map(|due| due.saturating_sub(now)))
    }

    fn receive_frame(self: &Rc<Self>, link: &Link, frame: &CecFrame<'_>) {
        let is_ours = frame.to == self.mac.get() || frame.to == BROADCAST;
        // A sender is no group, and not this interface itself.
        if !is_ours || frame.from.0[0] & 1 == 1 || frame.from == self.mac.get() {
            return;
        }
        if frame.kind == CecKind::Discover {
            return self.offer(link, frame.from);
        }
        let mut sessions = self.connections.borrow_mut();
        let at = sessions.iter().position(|s| s.peer == frame.from && s.conn == frame.conn);
        if frame.kind == CecKind::InitA {
            let now = self.reactor.now();
            let known = at.and_then(|at| sessions.get_mut(at));
            // The same word twice is no new beginning.
            if let Some(s) = known.filter(|s| s.last_rx_seq.is_none() && now < s.used + AGAIN_NS) {
                let again = s.frame(self.mac.get(), CecKind::InitB, 0, &[]);
                return self.send(link, &again);
            }
            // A client that begins anew has forgotten its earlier connection.
            if let Some(at) = at {
                sessions.swap_remove(at);
            }
            return self.begin(&mut sessions, frame);
        }
        let Some(at) = at else {
            // It belongs to an earlier run of this server: the offer makes the client connect
            // again.
            if frame.kind == CecKind::Data {
                drop(sessions);
                self.offer(link, frame.from);
            }
            return;
        };
        let s = &mut sessions[at];
        s.used = self.reactor.now();
        match frame.kind {
            CecKind::InitC if !s.open => {
                (s.open, s.inflight) = (true, None);
                s.queue_text(&format!("{}: ", self.name));
            }
            CecKind::Data if s.open => {
                // A late duplicate was taken before.
                let again =
                    s.last_rx_seq.is_some_and(|h| frame.seq.wrapping_sub(h).cast_signed() <= 0);
                if !again && s.lines.len() >= LINES_MAX {
                    return;
                }
                self.answer(link, frame, CecKind::Ack);
                if !again {
                    s.last_rx_seq = Some(frame.seq);
                    s.receive_data(frame.data);
                    self.run_next_line(s);
                }
            }
            CecKind::Ack if s.open && frame.seq == s.last_tx_seq => s.inflight = None,
            CecKind::Reset => drop(sessions.swap_remove(at)),
            _ => {}
        }
    }

    fn begin(&self, sessions: &mut Vec<CecConnection>, frame: &CecFrame<'_>) {
        if sessions.len() >= CONNECTIONS_MAX {
            let idle = (0..sessions.len()).min_by_key(|i| sessions[*i].used);
            if let Some(idle) = idle {
                sessions.swap_remove(idle);
            }
        }
        let now = self.reactor.now();
        self.connections_total.set(self.connections_total.get() + 1);
        let mut s = CecConnection {
            number: self.connections_total.get(),
            peer: frame.from,
            conn: frame.conn,
            open: false,
            last_rx_seq: None,
            last_tx_seq: 0,
            inflight: None,
            out: VecDeque::new(),
            typed: Vec::new(),
            lines: VecDeque::new(),
            running: false,
            used: now,
        };
        let frame = s.frame(self.mac.get(), CecKind::InitB, 0, &[]);
        s.inflight = Some(InflightFrame { frame, tries: TRIES, due: now });
        sessions.push(s);
    }

    /// The next line, unless one is running.
    fn run_next_line(self: &Rc<Self>, s: &mut CecConnection) {
        if s.running {
            return;
        }
        let Some(line) = s.lines.pop_front() else { return };
        s.running = true;
        let (me, number) = (self.clone(), s.number);
        self.reactor.spawn("fs-cec-line", async move {
            let text = (me.run)(line).await;
            let mut sessions = me.connections.borrow_mut();
            // The client may have left.
            if let Some(s) = sessions.iter_mut().find(|s| s.number == number) {
                s.queue_text(&text);
                s.queue_text(&format!("{}: ", me.name));
                s.running = false;
                me.run_next_line(s);
            }
            drop(sessions);
            me.notify.notify_all();
        });
    }
}

#[cfg(test)]
mod tests;
