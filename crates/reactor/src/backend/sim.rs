//! The simulated port: the world plays the kernel.
//!
//! Like a kernel it moves bytes through the addresses it was given, when the operation ends and
//! not before (O1, O2).

use crate::backend::Reaped;
use crate::ops::{IoVec, On, Op, Slot, SlotId, Slots, raw};
use crate::sim::{Event, SocketKey, World};

const EAGAIN: i64 = 11;

pub(crate) struct SimPort {
    world: World,
    port: usize,
    /// Ended, to be reported by the next `gather`.
    ready: Reaped,
}

/// Copies out of the ranges, at most `space` bytes.
fn collect(iov: &[IoVec], space: usize) -> Vec<u8> {
    let mut out = Vec::new();
    for v in iov {
        let n = v.len.min(space - out.len());
        // SAFETY: the range is part of a loan of the started slot (O1), which is not written
        // meanwhile.
        out.extend_from_slice(unsafe { std::slice::from_raw_parts(v.base, n) });
    }
    out
}

/// Copies into the ranges.
fn spread(iov: &[IoVec], mut bytes: &[u8]) {
    for v in iov {
        let (now, rest) = bytes.split_at(v.len.min(bytes.len()));
        // SAFETY: the range is part of a loan of the started slot (O1), which is not read meanwhile
        // (B3).
        unsafe { std::ptr::copy_nonoverlapping(now.as_ptr(), v.base, now.len()) };
        bytes = rest;
    }
}

fn bytes_of(slot: &Slot) -> usize {
    slot.iov.iter().map(|v| v.len).sum()
}

impl SimPort {
    pub(crate) fn new(world: &World, port: usize) -> SimPort {
        SimPort { world: world.clone(), port, ready: Reaped::new() }
    }

    pub(crate) fn has_news(&self) -> bool {
        !self.ready.is_empty() || self.world.has_ready(self.port)
    }

    pub(crate) fn start(&mut self, slots: &mut Slots, id: SlotId) {
        let Some(slot) = slots.get(id) else { return };
        match &slot.on {
            On::Nothing => self.ready.push((id, 0)),
            On::Socket(_) => self.try_socket(slot, id),
            On::File(file) => {
                let Some(disk) = file.sim_disk() else {
                    self.ready.push((id, -raw::EINVAL));
                    return;
                };
                let (data, len) = match slot.op {
                    Op::Write { .. } => (collect(&slot.iov, bytes_of(slot)), 0),
                    _ => (Vec::new(), bytes_of(slot) as u64),
                };
                // The disk receives the offset of this call, not that of the whole operation.
                let op = match slot.op {
                    Op::Read { .. } => Op::Read { offset: slot.offset_now() },
                    Op::Write { durable, .. } => Op::Write { offset: slot.offset_now(), durable },
                    other => other,
                };
                let now = self.world.now();
                if let Some(due) = disk.begin(now, self.port, id, op, data, len) {
                    let event = Event::Op { port: self.port, id };
                    self.world.state.borrow_mut().at(due, event);
                }
            }
        }
    }

    fn try_socket(&mut self, slot: &Slot, id: SlotId) {
        let On::Socket(socket) = &slot.on else { return };
        let Some(key) = socket.sim_key() else {
            self.ready.push((id, -raw::EINVAL));
            return;
        };
        let result = self.attempt(slot, key);
        if result != -EAGAIN {
            self.ready.push((id, result));
            return;
        }
        let out = matches!(slot.op, Op::Send { .. } | Op::Ready { out: true });
        let mut state = self.world.state.borrow_mut();
        match state.waiters(key, out) {
            Some(waiters) => waiters.push((self.port, id)),
            None => self.ready.push((id, -raw::EPIPE)),
        }
    }

    fn attempt(&self, slot: &Slot, key: SocketKey) -> i64 {
        let mut state = self.world.state.borrow_mut();
        match (slot.op, key) {
            (Op::Ready { out: false }, SocketKey::Listener(addr)) => match state.has_caller(addr) {
                true => 1,
                false => -EAGAIN,
            },
            (Op::Ready { out: false }, SocketKey::Tap(tap)) => match state.ether.has_news(tap) {
                true => 1,
                false => -EAGAIN,
            },
            (Op::Ready { out: true }, SocketKey::End { link, side }) => {
                match state.is_connected(link, side) {
                    e if e == -EAGAIN => e,
                    _ => 1, // the result is requested afterwards, as on a kernel
                }
            }
            (Op::Ready { out: false }, SocketKey::End { link, side }) => {
                match state.has_bytes(link, side) {
                    true => 1,
                    false => -EAGAIN,
                }
            }
            (Op::Recv { .. }, SocketKey::End { link, side }) => {
                match state.take(link, side, bytes_of(slot)) {
                    Ok(bytes) => {
                        spread(&slot.iov, &bytes);
                        bytes.len() as i64
                    }
                    Err(e) => e,
                }
            }
            (Op::Send { .. }, SocketKey::End { link, side }) => {
                match state.send_space(link, side) {
                    Ok(space) => {
                        let bytes = collect(&slot.iov, space);
                        state.put(link, side, &bytes);
                        bytes.len() as i64
                    }
                    Err(e) => e,
                }
            }
            _ => -raw::EINVAL,
        }
    }

    pub(crate) fn cancel(&mut self, slots: &mut Slots, id: SlotId) {
        let Some(slot) = slots.get(id) else { return };
        // Operations on files are not cancelled: they end in their time, as on most kernels.
        let On::Socket(socket) = &slot.on else { return };
        let Some(key) = socket.sim_key() else { return };
        if self.world.state.borrow_mut().unwait(key, self.port, id) {
            self.ready.push((id, -raw::ECANCELED));
        }
    }

    pub(crate) fn gather(&mut self, slots: &mut Slots, out: &mut Reaped) {
        while let Some(id) = self.world.take_ready(self.port) {
            let Some(slot) = slots.get(id) else { continue };
            let disk = match &slot.on {
                On::File(file) => file.sim_disk().cloned(),
                _ => None,
            };
            let Some(disk) = disk else {
                self.try_socket(slot, id);
                continue;
            };
            let mut read = match slot.op {
                Op::Read { .. } => vec![0; bytes_of(slot)],
                _ => Vec::new(),
            };
            let result = disk.finish(self.port, id, slot.offset_now(), &mut read);
            if let (Op::Read { .. }, Ok(n)) = (slot.op, usize::try_from(result)) {
                spread(&slot.iov, read.get(..n).unwrap_or_default());
            }
            self.ready.push((id, result));
        }
        out.append(&mut self.ready);
    }

    /// The reactor ends: sockets hang up, writes under way are carried out.
    pub(crate) fn close(&mut self, slots: &mut Slots) -> bool {
        for id in slots.started() {
            let Some(slot) = slots.get(id) else { continue };
            match &slot.on {
                On::File(file) => {
                    if let Some(disk) = file.sim_disk() {
                        disk.orphan(self.port, id, slot.offset_now());
                    }
                }
                On::Socket(socket) => {
                    if let Some(key) = socket.sim_key() {
                        self.world.state.borrow_mut().unwait(key, self.port, id);
                    }
                }
                On::Nothing => {}
            }
            slots.free(id);
        }
        self.ready.clear();
        while self.world.take_ready(self.port).is_some() {}
        true
    }
}
