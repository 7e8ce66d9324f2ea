//! Simulated connections: two pipes each, with segments, delays, bounded buffers, and ends.
//!
//! Invariants
//!  L1  Bytes arrive in the order in which they were sent, each once, or never (cut, half open).
//!  L2  A pipe holds at most `buffer_bytes`: a peer that does not read stops the sender.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;

use crate::ops::SlotId;
use crate::sim::{Event, WorldState};

/// Connections that wait at a listener; a further one is refused.
const BACKLOG_MAX: usize = 1024;

/// First port given to clients and to listeners that accept any.
const PORT_FIRST: u16 = 20_000;

const ECONNRESET: i64 = 104;
const ECONNREFUSED: i64 = 111;
const EPIPE: i64 = 32;
pub(crate) const EAGAIN: i64 = 11;

/// How links behave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NetShape {
    /// A segment travels at least so long, in ns.
    pub delay_ns_min: u64,
    /// And at most, in ns; segments do not overtake each other.
    pub delay_ns_max: u64,
    /// Longest segment in bytes; 1 makes every byte travel alone.
    pub segment_max: usize,
    /// Bytes on the way and unread before the sender has to wait.
    pub buffer_bytes: usize,
    /// Segments of a million that reset the connection instead of arriving.
    pub resets_per_million: u32,
}

impl Default for NetShape {
    fn default() -> Self {
        NetShape {
            delay_ns_min: 5_000,
            delay_ns_max: 100_000,
            segment_max: 16 * 1024,
            buffer_bytes: 256 * 1024,
            resets_per_million: 0,
        }
    }
}

/// Names a connection of a world.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LinkId(pub(crate) u32);

pub(crate) type Waiters = Vec<(usize, SlotId)>;

/// One direction.
#[derive(Default)]
struct Pipe {
    /// Due, and the bytes; None is the end of the stream.
    in_transit: VecDeque<(u64, Option<Vec<u8>>)>,
    arrived: VecDeque<u8>,
    held: usize,
    last_due: u64,
    end_sent: bool,
    end_arrived: bool,
    readers: Waiters,
    writers: Waiters,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Connecting,
    Open,
    /// Ended with this errno.
    Failed(i64),
    /// Our own socket was dropped.
    Closed,
}

struct Link {
    addr: [SocketAddr; 2],
    phase: [Phase; 2],
    /// `pipes[s]` carries the bytes sent by side `s`.
    pipes: [Pipe; 2],
    silent: bool,
}

struct SimListener {
    owners: usize,
    queue: VecDeque<u32>,
    waiters: Waiters,
}

#[derive(Default)]
pub(crate) struct Net {
    pub(crate) shape: NetShape,
    listeners: BTreeMap<SocketAddr, SimListener>,
    links: Vec<Link>,
    next_port: u16,
}

impl Net {
    fn link(&mut self, link: u32) -> Option<&mut Link> {
        self.links.get_mut(link as usize)
    }

    fn free_port(&mut self) -> u16 {
        self.next_port = self.next_port.wrapping_add(1).max(PORT_FIRST);
        self.next_port
    }

    pub(crate) fn addr(&mut self, link: u32, side: usize) -> Option<SocketAddr> {
        self.link(link).map(|l| l.addr[side])
    }

    /// None: another process listens there already and will not share.
    pub(crate) fn listen(&mut self, mut addr: SocketAddr, share: bool) -> Option<SocketAddr> {
        while addr.port() == 0 {
            let port = self.free_port();
            let free = SocketAddr::new(addr.ip(), port);
            if !self.listeners.contains_key(&free) {
                addr = free;
            }
        }
        if !share && self.listeners.contains_key(&addr) {
            return None;
        }
        let listener = self.listeners.entry(addr).or_insert_with(|| SimListener {
            owners: 0,
            queue: VecDeque::new(),
            waiters: Vec::new(),
        });
        listener.owners += 1;
        Some(addr)
    }

    pub(crate) fn accept(&mut self, addr: SocketAddr) -> Option<u32> {
        self.listeners.get_mut(&addr)?.queue.pop_front()
    }

    pub(crate) fn alive(&self) -> Vec<(LinkId, SocketAddr, SocketAddr)> {
        (0u32..)
            .zip(&self.links)
            .filter(|(_, l)| l.phase == [Phase::Open; 2])
            .map(|(i, l)| (LinkId(i), l.addr[0], l.addr[1]))
            .collect()
    }

    pub(crate) fn silence(&mut self, link: LinkId) {
        if let Some(l) = self.link(link.0) {
            l.silent = true;
        }
    }
}

impl WorldState {
    pub(crate) fn wake(&mut self, waiters: Waiters) {
        for (port, id) in waiters {
            self.make_ready(port, id);
        }
    }

    fn delay(&mut self) -> u64 {
        let shape = self.net.shape;
        let more = shape.delay_ns_max.saturating_sub(shape.delay_ns_min);
        shape.delay_ns_min + self.random.below(more.saturating_add(1))
    }

    /// Begins a connection; its first end is the client's.
    pub(crate) fn connect(&mut self, to: SocketAddr) -> u32 {
        let from = SocketAddr::new(to.ip(), self.net.free_port());
        let link = self.net.links.len() as u32;
        self.net.links.push(Link {
            addr: [from, to],
            phase: [Phase::Connecting; 2],
            pipes: Default::default(),
            silent: false,
        });
        let due = self.now + self.delay();
        self.at(due, Event::Connect { link });
        link
    }

    pub(crate) fn connect_arrives(&mut self, link: u32) {
        let Some(l) = self.net.links.get_mut(link as usize) else {
            return;
        };
        if l.phase[0] != Phase::Connecting {
            return; // given up meanwhile
        }
        let listener = self.net.listeners.get_mut(&l.addr[1]);
        let waiters = match listener.filter(|d| d.queue.len() < BACKLOG_MAX) {
            Some(listener) => {
                l.phase = [Phase::Open; 2];
                listener.queue.push_back(link);
                std::mem::take(&mut listener.waiters)
            }
            None => {
                l.phase = [Phase::Failed(ECONNREFUSED); 2];
                Vec::new()
            }
        };
        let client = std::mem::take(&mut l.pipes[0].writers);
        self.wake(waiters);
        self.wake(client);
    }

    /// Ok: connected; else a negative errno, `-EAGAIN` for not yet.
    pub(crate) fn is_connected(&mut self, link: u32, side: usize) -> i64 {
        match self.net.link(link).map(|l| l.phase[side]) {
            Some(Phase::Open) => 0,
            Some(Phase::Connecting) => -EAGAIN,
            Some(Phase::Failed(e)) => -e,
            _ => -EPIPE,
        }
    }

    pub(crate) fn arrive(&mut self, link: u32, side: usize) {
        let now = self.now;
        let Some(l) = self.net.link(link) else { return };
        if l.silent {
            return;
        }
        let receiver_gone = l.phase[1 - side] == Phase::Closed;
        let pipe = &mut l.pipes[side];
        let mut refused = false;
        while pipe.in_transit.front().is_some_and(|(due, _)| *due <= now) {
            match pipe.in_transit.pop_front() {
                Some((_, Some(bytes))) => {
                    refused |= receiver_gone;
                    pipe.arrived.extend(bytes);
                }
                _ => pipe.end_arrived = true,
            }
        }
        let readers = std::mem::take(&mut pipe.readers);
        self.wake(readers);
        if refused {
            let due = now + self.delay();
            self.at(due, Event::Reset { link, side });
        }
    }

    /// The end `side` learns that the connection is no more.
    pub(crate) fn reset_arrives(&mut self, link: u32, side: usize) {
        let Some(l) = self.net.link(link) else { return };
        if l.silent {
            return;
        }
        if matches!(l.phase[side], Phase::Open | Phase::Connecting) {
            l.phase[side] = Phase::Failed(ECONNRESET);
        }
        self.wake_side(link, side);
    }

    fn wake_side(&mut self, link: u32, side: usize) {
        let Some(l) = self.net.link(link) else { return };
        let writers = std::mem::take(&mut l.pipes[side].writers);
        let readers = std::mem::take(&mut l.pipes[1 - side].readers);
        self.wake(writers);
        self.wake(readers);
    }

    pub(crate) fn cut(&mut self, link: LinkId) {
        if let Some(l) = self.net.link(link.0) {
            l.pipes.iter_mut().for_each(|p| p.in_transit.clear());
            l.silent = false;
        }
        self.reset_arrives(link.0, 0);
        self.reset_arrives(link.0, 1);
    }

    /// Takes up to `most` bytes that have arrived at `side`, or a negative errno.
    pub(crate) fn take(&mut self, link: u32, side: usize, most: usize) -> Result<Vec<u8>, i64> {
        let shorter = self.random.chance(250);
        let Some(l) = self.net.links.get_mut(link as usize) else {
            return Err(-EPIPE);
        };
        if let Phase::Failed(e) = l.phase[side] {
            return Err(-e);
        }
        let pipe = &mut l.pipes[1 - side];
        let mut n = pipe.arrived.len().min(most);
        if n == 0 {
            return if pipe.end_arrived { Ok(Vec::new()) } else { Err(-EAGAIN) };
        }
        if shorter {
            n = 1 + self.random.below(n as u64) as usize;
        }
        pipe.held -= n;
        // By slices, not byte by byte: simulations spend a tenth of their time here otherwise.
        let (front, back) = pipe.arrived.as_slices();
        let cut = n.min(front.len());
        let bytes = [&front[..cut], &back[..n - cut]].concat();
        drop(pipe.arrived.drain(..n));
        let writers = std::mem::take(&mut pipe.writers);
        self.wake(writers);
        Ok(bytes)
    }

    /// [`Self::take`] would not have to wait.
    pub(crate) fn has_bytes(&self, link: u32, side: usize) -> bool {
        let Some(l) = self.net.links.get(link as usize) else { return true };
        let pipe = &l.pipes[1 - side];
        matches!(l.phase[side], Phase::Failed(_)) || !pipe.arrived.is_empty() || pipe.end_arrived
    }

    /// Bytes that `side` may send now; a negative errno when it may not, `-EAGAIN` for not yet.
    pub(crate) fn send_space(&mut self, link: u32, side: usize) -> Result<usize, i64> {
        let limit = self.net.shape.buffer_bytes.max(1);
        let Some(l) = self.net.link(link) else {
            return Err(-EPIPE);
        };
        match l.phase[side] {
            Phase::Failed(e) => return Err(-e),
            Phase::Closed => return Err(-EPIPE),
            Phase::Connecting => return Err(-EAGAIN),
            Phase::Open if l.pipes[side].end_sent => return Err(-EPIPE),
            Phase::Open => {}
        }
        match limit.saturating_sub(l.pipes[side].held) {
            0 => Err(-EAGAIN),
            free => Ok(free),
        }
    }

    /// Sends bytes for which there is space, cut into segments.
    pub(crate) fn put(&mut self, link: u32, side: usize, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let longest = self.net.shape.segment_max.clamp(1, bytes.len());
            let n = match self.random.below(4) {
                0 => 1 + self.random.below(longest as u64) as usize,
                _ => longest,
            };
            let (segment, rest) = bytes.split_at(n);
            bytes = rest;
            if self.random.below(1_000_000) < u64::from(self.net.shape.resets_per_million) {
                return self.cut(LinkId(link));
            }
            self.send_segment(link, side, Some(segment));
        }
    }

    /// `segment` None is the end of the stream.
    fn send_segment(&mut self, link: u32, side: usize, segment: Option<&[u8]>) {
        let due = self.now + self.delay();
        let Some(l) = self.net.link(link) else { return };
        let pipe = &mut l.pipes[side];
        let due = due.max(pipe.last_due);
        pipe.last_due = due;
        match segment {
            Some(bytes) => pipe.held += bytes.len(),
            None => pipe.end_sent = true,
        }
        // Segments do not overtake each other, so most have the due time of a slower one before
        // them. They share its event, which delivers all that is due.
        if let (Some((last, Some(before))), Some(bytes)) = (pipe.in_transit.back_mut(), segment)
            && *last == due
        {
            return before.extend_from_slice(bytes);
        }
        pipe.in_transit.push_back((due, segment.map(<[u8]>::to_vec)));
        self.at(due, Event::Arrive { link, side });
    }

    /// Ends the sending direction of `side`.
    pub(crate) fn finish(&mut self, link: u32, side: usize) {
        let open = self
            .net
            .link(link)
            .is_some_and(|l| matches!(l.phase[side], Phase::Open) && !l.pipes[side].end_sent);
        if open {
            self.send_segment(link, side, None);
        }
    }

    /// Ends both directions for `side`, whose operations under way end too.
    pub(crate) fn close_both(&mut self, link: u32, side: usize) {
        self.finish(link, side);
        if let Some(l) = self.net.link(link) {
            l.pipes[1 - side].end_arrived = true;
        }
        self.wake_side(link, side);
    }

    /// The socket of `side` was dropped: an end for the peer, or a reset when it had bytes unread.
    pub(crate) fn hang_up(&mut self, link: u32, side: usize, reset: bool) {
        let unread = self.net.link(link).is_some_and(|l| !l.pipes[1 - side].arrived.is_empty());
        if reset || unread {
            let due = self.now + self.delay();
            self.at(due, Event::Reset { link, side: 1 - side });
        } else {
            self.finish(link, side);
        }
        if let Some(l) = self.net.link(link) {
            l.phase[side] = Phase::Closed;
            l.pipes[1 - side].arrived = VecDeque::new();
        }
    }

    /// One listener at `addr` fewer; with the last of them its waiting connections end.
    pub(crate) fn unlisten(&mut self, addr: SocketAddr) {
        let Some(listener) = self.net.listeners.get_mut(&addr) else {
            return;
        };
        listener.owners -= 1;
        if listener.owners == 0 {
            let queue = std::mem::take(&mut listener.queue);
            self.net.listeners.remove(&addr);
            for link in queue {
                self.hang_up(link, 1, true);
            }
        }
    }

    /// Something to accept at `addr`?
    pub(crate) fn has_caller(&self, addr: SocketAddr) -> bool {
        let listener = self.net.listeners.get(&addr);
        listener.is_some_and(|d| !d.queue.is_empty())
    }

    /// Where an operation of this end (or listener) waits.
    pub(crate) fn waiters(
        &mut self,
        key: crate::sim::SocketKey,
        out: bool,
    ) -> Option<&mut Waiters> {
        use crate::sim::SocketKey;
        match key {
            SocketKey::Listener(addr) => Some(&mut self.net.listeners.get_mut(&addr)?.waiters),
            SocketKey::Tap(tap) => self.ether.waiters(tap),
            SocketKey::End { link, side } => {
                let l = self.net.link(link)?;
                Some(match out {
                    true => &mut l.pipes[side].writers,
                    false => &mut l.pipes[1 - side].readers,
                })
            }
        }
    }

    /// Forgets that an operation waits, or was about to be looked at.
    pub(crate) fn unwait(&mut self, key: crate::sim::SocketKey, port: usize, id: SlotId) -> bool {
        let mut found = false;
        for out in [false, true] {
            if let Some(w) = self.waiters(key, out) {
                let before = w.len();
                w.retain(|e| *e != (port, id));
                found |= before != w.len();
            }
        }
        if let Some(queue) = self.ready.get_mut(port) {
            let before = queue.len();
            queue.retain(|e| *e != id);
            found |= before != queue.len();
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::World;

    #[test]
    fn segments_with_one_due_time_share_an_event() {
        let world = World::new(1);
        let (delay_ns_min, delay_ns_max) = (1_000, 1_000);
        let shape = NetShape { delay_ns_min, delay_ns_max, segment_max: 7, ..NetShape::default() };
        world.set_net(shape);
        let mut state = world.state.borrow_mut();
        let at = SocketAddr::from(([10, 0, 0, 1], 9));
        assert_eq!(state.net.listen(at, false), Some(at));
        let link = state.connect(at);
        let sent: Vec<u8> = (0..=255).cycle().take(1000).collect();
        state.put(link, 0, &sent);
        assert_eq!(state.events.len(), 2, "the connection and its bytes");
        state.now += 1_000;
        state.deliver();
        let pipe = &state.net.links[link as usize].pipes[0];
        assert!(pipe.arrived.iter().eq(&sent) && pipe.in_transit.is_empty());
        state.put(link, 0, &sent);
        assert_eq!(state.events.len(), 1, "what has arrived takes no more");
    }
}
