//! The bare responder: the least that any AoE target must spend here on a frame.
//!
//! It takes a frame in and sends a header and the data out, with one thread and many frames a call.
//! It does nothing else that a real target has to do: no access rules, no order, no disk, no
//! durability. The data is in memory that the kernel copies from, so nothing is copied twice.
//! Nothing should be faster; the figure is how close a target or an initiator gets to it. Its
//! second slot reads and writes a file, one call each: the least that a target with its data in a
//! file must spend.

use std::cell::Cell;
use std::fs::File;
use std::os::unix::fs::FileExt;

use bio::{Pool, PoolConfig, Segs};
use reactor::{Config as Core, Link, PortChoice, Reactor, WaitFor};
use wire::aoe::{
    Address, Ata, BROADCAST, Config, ETHERTYPE, HEADER_LEN, Header, Mac, SECTOR, command,
    sectors_of_mtu,
};
use wire::ata::{Identify, command as op, error, status};

use crate::error::{Error, Kind};
use crate::servers::MEMORY_BYTES;

/// Shelf and slot of its memory, and of its file.
pub(crate) const ADDRESS: Address = Address { shelf: 2, slot: 0 };
pub(crate) const FILE_ADDRESS: Address = Address { shelf: 2, slot: 1 };

/// Frames that it claims to hold.
const BUFFERS: u16 = 64;
/// Frames that are read at a time.
const FRAMES: usize = 64;
/// Bytes of a piece of its memory.
const PIECE: usize = 64 * 1024;
/// Bytes before the data of an answer.
const HEAD: usize = HEADER_LEN + wire::aoe::ATA_LEN;

struct Bare {
    link: Link,
    mac: Mac,
    sectors: u8,
    memory: Vec<Segs>,
    /// As long as the memory, that carries its bytes.
    file: Option<File>,
}

/// Serves at an interface until the process is killed.
pub(crate) fn serve(interface: &str, file: Option<&str>) -> Result<(), Error> {
    let file = file.map(|path| {
        let file = File::options().read(true).write(true).open(path);
        file.map_err(|e| Error::system(path, e))
    });
    let file = file.transpose()?;
    let config = Core { name: "bare".into(), port: PortChoice::Poll, spin_ns: 0, cpu: None };
    let reactor = Reactor::start(config).map_err(|e| Error::system("start the responder", e))?;
    let link = reactor.link(interface, ETHERTYPE);
    let link = link.map_err(|e| Error::system(format_args!("listen at {interface}"), e))?;
    let facts = link.facts().map_err(|e| Error::system(interface, e))?;
    let bytes = MEMORY_BYTES as usize;
    let pool = Pool::new(PoolConfig { limit_bytes: bytes + bytes / 4 });
    let pieces = (0..bytes / PIECE).map(|_| {
        let piece = Segs::alloc(&pool, PIECE)?;
        piece.fill(0, PIECE, 0);
        Some(piece)
    });
    let memory: Option<Vec<Segs>> = pieces.collect();
    let memory = memory.ok_or(Error::new(Kind::System, "no memory"))?;
    let sectors = sectors_of_mtu(usize::try_from(facts.mtu).unwrap_or(0));
    let bare = Bare { link, mac: Mac(facts.mac), sectors, memory, file };
    let over = std::rc::Rc::new(Cell::new(false));
    let ended = over.clone();
    drop(reactor.spawn("bare", async move {
        bare.run().await;
        ended.set(true);
    }));
    while !over.get() {
        let _ = reactor.turn(WaitFor::Forever, &mut |_, _| ());
    }
    Err(Error::new(Kind::System, format!("{interface} has gone")))
}

impl Bare {
    async fn run(&self) {
        let mut rest = Segs::new();
        loop {
            if self.link.ready().await.is_err() {
                return;
            }
            if self.link.receive(FRAMES, &mut |frame| self.answer(frame, &mut rest)).is_err() {
                return;
            }
            while self.link.queued() > 0 {
                if self.link.flush().is_err() {
                    return;
                }
                if self.link.queued() > 0 && self.link.writable().await.is_err() {
                    return;
                }
            }
        }
    }

    fn answer(&self, frame: &[u8], rest: &mut Segs) {
        let Ok((header, body)) = Header::decode(frame) else { return };
        let mine = header.to == self.mac || header.to == BROADCAST;
        let here = match self.file {
            Some(_) if header.address == FILE_ADDRESS => FILE_ADDRESS,
            _ => ADDRESS,
        };
        if !mine || header.response || !header.address.reaches(here) {
            return;
        }
        rest.clear();
        let answer = header.answer(self.mac, here);
        if header.command == command::CONFIG {
            let config = Config::response(BUFFERS, 1, self.sectors, &[]);
            let head = [&answer.encode()[..], &config.encode()].concat();
            let _full = self.link.send(&head, rest);
            return;
        }
        let Ok((ata, data)) = Ata::decode(body) else { return };
        let file = self.file.as_ref().filter(|_| here == FILE_ADDRESS);
        let good = self.carry_out(file, &ata, data, rest);
        let (command, feature) = match good {
            Some(()) => (status::READY, 0),
            None => (status::READY | status::ERROR, error::ABORT),
        };
        let ata = Ata { command, feature, sectors: 0, write: false, ..ata };
        let mut head = [0; HEAD];
        let bytes = answer.encode().into_iter().chain(ata.encode());
        head.iter_mut().zip(bytes).for_each(|(to, from)| *to = from);
        // A frame without space is lost, as on a wire.
        let _full = self.link.send(&head, rest);
    }

    /// Carries out a command; None: it fails.
    fn carry_out(
        &self,
        file: Option<&File>,
        ata: &Ata,
        data: &[u8],
        rest: &mut Segs,
    ) -> Option<()> {
        let len = usize::from(ata.sectors) * SECTOR;
        let start = usize::try_from(ata.lba()).ok()?.checked_mul(SECTOR)?;
        let end = start.checked_add(len).filter(|end| *end <= self.memory.len() * PIECE)?;
        match ata.command {
            op::READ_EXT => {
                for (piece, from, to) in pieces(start, end) {
                    self.memory.get(piece)?.slice_into(from, to - from, rest).then_some(())?;
                }
                let mut at = start as u64;
                for seg in rest.iter().filter(|_| file.is_some()) {
                    seg.with_mut(|bytes| file?.read_exact_at(bytes, at).ok())?;
                    at += seg.len() as u64;
                }
            }
            op::WRITE_EXT if file.is_some() => {
                file?.write_all_at(data.get(..len)?, start as u64).ok()?;
            }
            op::WRITE_EXT => {
                let mut data = data.get(..len)?;
                for (piece, from, to) in pieces(start, end) {
                    let (now, later) = data.split_at_checked(to - from)?;
                    self.memory.get(piece)?.copy_from(from, now);
                    data = later;
                }
            }
            op::IDENTIFY => {
                let identify = Identify {
                    model: "bare".into(),
                    serial: "BARE1".into(),
                    firmware: "1".into(),
                    sectors: (self.memory.len() * PIECE / SECTOR) as u64,
                    sector_bytes: SECTOR as u32,
                    extended: true,
                    flush: true,
                    flush_ext: true,
                    queue_depth: 1,
                    ..Identify::default()
                };
                let pool = Pool::new(PoolConfig { limit_bytes: 1 << 20 });
                *rest = Segs::alloc(&pool, SECTOR)?;
                rest.copy_from(0, &identify.encode());
            }
            op::FLUSH | op::FLUSH_EXT => {}
            _ => return None,
        }
        Some(())
    }
}

/// The pieces of a range: which, and from where to where in it.
fn pieces(start: usize, end: usize) -> impl Iterator<Item = (usize, usize, usize)> {
    (start / PIECE..end.div_ceil(PIECE)).map(move |piece| {
        let at = piece * PIECE;
        (piece, start.max(at) - at, end.min(at + PIECE) - at)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn range_is_split_at_piece_boundaries() {
        let cut = |start, end| pieces(start, end).collect::<Vec<_>>();
        assert_eq!(cut(0, 512), [(0, 0, 512)]);
        assert_eq!(cut(PIECE - 512, PIECE), [(0, PIECE - 512, PIECE)]);
        assert_eq!(cut(PIECE - 512, PIECE + 1024), [(0, PIECE - 512, PIECE), (1, 0, 1024)]);
        assert_eq!(cut(512, 512), [(0, 512, 512)]);
    }
}
