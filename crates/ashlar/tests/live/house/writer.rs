//! An initiator that writes blocks round after round, flushes each round, and logs in again when
//! the daemon was killed: acknowledged and flushed rounds are recorded, and checked at the end.
//!
//! Invariant W1: a block holds one whole round, no older than the last one that was flushed.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::IQN;
use testkit::iscsi::initiator::Client;

/// Blocks of 512 bytes that one writes, again and again.
pub const BLOCKS: u32 = 64;

/// Longest way back in after the daemon was killed.
const LOGIN_LIMIT: Duration = Duration::from_secs(60);

/// See the module.
pub struct Writer {
    stop: Arc<AtomicBool>,
    rounds: Arc<AtomicU32>,
    thread: JoinHandle<Kept>,
}

/// Data that is known to be on a writer's unit.
pub struct Kept {
    place: Place,
    /// For each block the last round that was acknowledged and flushed.
    kept: Vec<u32>,
    /// Rounds that were begun.
    pub rounds: u32,
    /// How often it logged in again.
    pub resumed: u32,
}

/// Where one writes.
#[derive(Clone, Copy)]
struct Place {
    portal: SocketAddr,
    lun: u8,
    /// Its first block.
    first: u32,
}

impl Writer {
    /// Starts on the blocks from `first` on of a unit.
    pub fn start(portal: SocketAddr, lun: u8, first: u32) -> Writer {
        let place = Place { portal, lun, first };
        let (stop, rounds) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU32::new(0)));
        let (stopped, counted) = (stop.clone(), rounds.clone());
        let thread = std::thread::spawn(move || write(place, &stopped, &counted));
        Writer { stop, rounds, thread }
    }

    /// Rounds that were begun so far.
    pub fn rounds(&self) -> u32 {
        self.rounds.load(Ordering::Relaxed)
    }

    /// It has ended: something went wrong.
    pub fn is_finished(&self) -> bool {
        self.thread.is_finished()
    }

    /// Ends it behind the round that it writes.
    pub fn finish(self) -> Kept {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}

impl Kept {
    /// Reads every block and compares (W1).
    #[track_caller]
    pub fn check(&self) {
        let lun = self.place.lun;
        let mut raw = self.place.login();
        for (block, least) in (0..BLOCKS).zip(&self.kept) {
            let data = raw.must(&self.place.cdb(0x28, block), 512);
            let round = u32::from_be_bytes(data[8..12].try_into().unwrap());
            assert!(
                (*least..=self.rounds).contains(&round),
                "LUN {lun}, block {block}: it holds round {round}, {least} was flushed"
            );
            assert!(data == self.place.stamp(block, round), "LUN {lun}, block {block}: torn");
        }
    }
}

impl Place {
    /// Contents of a block after a write.
    fn stamp(self, block: u32, round: u32) -> [u8; 512] {
        let mut bytes = [0; 512];
        for piece in bytes.chunks_exact_mut(16) {
            piece[..4].copy_from_slice(&u32::from(self.lun).to_be_bytes());
            piece[4..8].copy_from_slice(&block.to_be_bytes());
            piece[8..12].copy_from_slice(&round.to_be_bytes());
        }
        bytes
    }

    /// READ (10) or WRITE (10) of a block.
    fn cdb(self, code: u8, block: u32) -> [u8; 10] {
        let mut cdb = [0; 10];
        cdb[0] = code;
        cdb[2..6].copy_from_slice(&(self.first + block).to_be_bytes());
        cdb[8] = 1;
        cdb
    }

    /// Logs in as often as it takes.
    fn login(self) -> Client {
        let start = Instant::now();
        loop {
            let name = format!("iqn.2026-11.test:w{}", self.lun);
            if let Ok(mut raw) = Client::session(self.portal, &name, IQN) {
                raw.lun = self.lun;
                return raw;
            }
            assert!(start.elapsed() < LOGIN_LIMIT, "LUN {}: nobody lets it in", self.lun);
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Status of a command; `None` when the connection is gone. As hosts do, it sends a command again
/// that met a unit attention, or a unit that becomes ready.
fn status(raw: &mut Client, cdb: &[u8], data: &[u8]) -> Option<u8> {
    let start = Instant::now();
    loop {
        let ended = raw.scsi(cdb, 0, data).ok()?;
        let sense = |at: usize| ended.sense.get(at).copied().unwrap_or_default();
        match (ended.status, sense(2) & 0xf, sense(12), sense(13)) {
            (2, 6, ..) => {}
            (2, 2, 4, 1) if start.elapsed() < LOGIN_LIMIT => {
                std::thread::sleep(Duration::from_millis(20));
            }
            _ => return Some(ended.status),
        }
    }
}

/// Writes round after round until stopped.
fn write(place: Place, stop: &AtomicBool, rounds: &AtomicU32) -> Kept {
    let mut raw = place.login();
    let mut known = Kept { place, kept: vec![0; BLOCKS as usize], rounds: 0, resumed: 0 };
    while !stop.load(Ordering::Relaxed) {
        known.rounds += 1;
        rounds.store(known.rounds, Ordering::Relaxed);
        let mut flushed = true;
        for block in 0..=BLOCKS {
            let done = match block {
                BLOCKS => status(&mut raw, &[0x35, 0, 0, 0, 0, 0, 0, 0, 0, 0], &[]),
                _ => {
                    let data = place.stamp(block, known.rounds);
                    status(&mut raw, &place.cdb(0x2a, block), &data)
                }
            };
            match done {
                Some(0) => {}
                Some(other) => panic!("LUN {}, block {block}: status {other:02x}", place.lun),
                None => {
                    raw = place.login();
                    known.resumed += 1;
                    flushed = false;
                    break;
                }
            }
        }
        if flushed {
            known.kept.fill(known.rounds);
        }
    }
    known
}
