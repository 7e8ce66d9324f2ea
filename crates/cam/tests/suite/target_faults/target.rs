//! A target with one disk that reports an identity, is exchanged for another disk, and behaves
//! oddly.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::rc::Rc;

use geom::Core;
use wire::iscsi::{Auth, ScsiCommand};
use wire::scsi::{Identity, Lun, inquiry_data, no_lun_inquiry, report_luns};

use crate::iscsi::peer::{Odd, Peer, SECTOR, Ways, sense_of};

/// A disk.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Disk {
    pub vendor: &'static str,
    pub revision: &'static str,
    /// Page 80h; empty: there is none.
    pub serial: &'static str,
    /// Page 83h; 0: there is none.
    pub naa: u64,
    pub sectors: usize,
    /// PERIPHERAL QUALIFIER and DEVICE TYPE.
    pub kind: u8,
}

pub const OWN: Disk = Disk {
    vendor: "peer",
    revision: "1",
    serial: "OWN",
    naa: 0x5000_0000_0000_0001,
    sectors: 64,
    kind: 0,
};

/// A disk of the same make with other names.
pub const OTHER: Disk = Disk { serial: "OTHER", naa: 0x5000_0000_0000_0002, ..OWN };

/// As a status: it never answers.
pub const MUTE: u8 = 0xff;
/// As a status: the answer is [`Reply::odd`].
pub const ODD: u8 = 0xfe;

/// Answer in place of the usual one, to commands of an operation code, so many times.
#[derive(Clone)]
pub struct Reply {
    pub opcode: u8,
    /// Page of an INQUIRY, first sector of a READ or WRITE; None: any.
    pub page: Option<u8>,
    pub times: u32,
    pub status: u8,
    pub sense: (u8, u8, u8),
    /// Made for each command, with [`ODD`].
    pub odd: fn() -> Odd,
}

#[derive(Default)]
struct TargetState {
    disk: Option<Disk>,
    attentions: VecDeque<(u8, u8)>,
    replies: Vec<Reply>,
    /// Number of logical units in REPORT LUNS, where there are more than one.
    luns: u32,
    /// There is no logical unit.
    is_away: bool,
    /// READ CAPACITY(16) data in place of the usual ones.
    capacity: Option<Vec<u8>>,
    /// Blocks that can be neither read nor written.
    lost: Vec<u64>,
    /// Operation codes that arrived.
    received_opcodes: Vec<u8>,
}

/// See the module.
pub struct Target {
    pub peer: Rc<Peer>,
    state: Rc<RefCell<TargetState>>,
}

impl Target {
    /// Of one disk.
    pub fn start(core: &Rc<Core>, at: SocketAddr, disk: Disk, seed: u64, ways: Ways) -> Target {
        let peer = Peer::start(core, &[at], disk.sectors, seed, (ways, Auth::None));
        peer.idle_ns.set(200_000);
        let state =
            Rc::new(RefCell::new(TargetState { disk: Some(disk), ..TargetState::default() }));
        let own = state.clone();
        *peer.odd.borrow_mut() = Some(Box::new(move |command| own.borrow_mut().look(command)));
        Target { peer, state }
    }

    /// Puts a disk behind its LUN; the bytes of the one that was there.
    pub fn exchange(&self, disk: Disk, bytes: Vec<u8>) -> Vec<u8> {
        assert_eq!(bytes.len(), disk.sectors * SECTOR);
        self.state.borrow_mut().disk = Some(disk);
        std::mem::replace(&mut self.peer.bytes.borrow_mut(), bytes)
    }

    /// The next command that takes attentions meets this one.
    pub fn attention(&self, asc: u8, ascq: u8) {
        self.state.borrow_mut().attentions.push_back((asc, ascq));
    }

    /// It has so many logical units, all alike.
    pub fn has_luns(&self, count: u32) {
        self.state.borrow_mut().luns = count;
    }

    /// Its logical unit is taken away, as an orderly stop does, or is there again.
    pub fn is_away(&self, is_away: bool) {
        self.state.borrow_mut().is_away = is_away;
    }

    /// Commands of these blocks end with MEDIUM ERROR, which names the first of them.
    pub fn loses(&self, blocks: Vec<u64>) {
        self.state.borrow_mut().lost = blocks;
    }

    /// READ CAPACITY(16) data from now on.
    pub fn capacity(&self, data: Option<Vec<u8>>) {
        self.state.borrow_mut().capacity = data;
    }

    pub fn reply(&self, reply: Reply) {
        self.state.borrow_mut().replies.push(reply);
    }

    /// It answers as usual again.
    pub fn calm(&self) {
        self.state.borrow_mut().replies.clear();
    }

    /// How many commands of an operation code arrived since the last call for any.
    pub fn take_received(&self, opcode: u8) -> usize {
        std::mem::take(&mut self.state.borrow_mut().received_opcodes)
            .iter()
            .filter(|c| **c == opcode)
            .count()
    }

    /// It ends with all its connections, and nothing that it had is carried out; it accepts no
    /// login until [`Target::open`].
    pub fn stop(&self) {
        self.peer.shut.set(true);
        self.peer.kill();
    }

    pub fn open(&self) {
        self.peer.shut.set(false);
    }
}

/// Fixed sense data of a medium error at a block.
fn sense_at(is_read: bool, block: u64) -> Vec<u8> {
    let mut bytes = sense_of(3, if is_read { 0x11 } else { 0x0c }, 0);
    bytes[2] |= 0x80;
    bytes[5..9].copy_from_slice(&(block as u32).to_be_bytes());
    bytes
}

impl TargetState {
    /// The first lost block of a READ(10) or WRITE(10).
    fn lost_by(&self, cdb: &[u8; 16]) -> Option<u64> {
        let from = u64::from(u32::from_be_bytes([cdb[2], cdb[3], cdb[4], cdb[5]]));
        let count = u64::from(u16::from_be_bytes([cdb[7], cdb[8]]));
        let mut lost = self.lost.iter().filter(|_| matches!(cdb[0], 0x28 | 0x2a));
        lost.find(|block| (from..from + count).contains(*block)).copied()
    }

    fn look(&mut self, command: &ScsiCommand) -> Odd {
        let cdb = &command.cdb;
        self.received_opcodes.push(cdb[0]);
        let meant = |r: &&mut Reply| {
            let page = r.page.is_none_or(|page| match cdb[0] {
                0x28 | 0x2a => cdb[5] == page,
                _ => cdb[1] & 1 == 1 && cdb[2] == page,
            });
            r.times > 0 && r.opcode == cdb[0] && page
        };
        if let Some(reply) = self.replies.iter_mut().find(meant) {
            reply.times -= 1;
            match reply.status {
                MUTE => return Odd::Mute,
                ODD => return (reply.odd)(),
                _ => {}
            }
            let (key, asc, ascq) = reply.sense;
            let sense = if reply.status == 2 { sense_of(key, asc, ascq) } else { Vec::new() };
            return Odd::Status(reply.status, sense);
        }
        let Some(disk) = &self.disk else { return Odd::Mute };
        if self.is_away {
            return match cdb[0] {
                0x12 => Odd::Data(no_lun_inquiry()),
                _ => Odd::Status(2, sense_of(5, 0x25, 0)),
            };
        }
        if !matches!(cdb[0], 0x12 | 0xa0)
            && let Some((asc, ascq)) = self.attentions.pop_front()
        {
            return Odd::Status(2, sense_of(6, asc, ascq));
        }
        if let Some(lost) = self.lost_by(cdb) {
            return Odd::Status(2, sense_at(cdb[0] == 0x28, lost));
        }
        match (cdb[0], cdb[1] & 1, cdb[2]) {
            (0x12, 0, _) => {
                let inquiry = inquiry_data(&Identity {
                    vendor: disk.vendor.into(),
                    product: "disk for tests".into(),
                    revision: disk.revision.into(),
                    ..Identity::default()
                });
                Odd::Data([&[disk.kind], &inquiry[1..]].concat())
            }
            (0x9e, ..) if self.capacity.is_some() => {
                Odd::Data(self.capacity.clone().unwrap_or_default())
            }
            (0xa0, ..) if self.luns > 0 => {
                Odd::Data(report_luns((0..self.luns).filter_map(Lun::new)))
            }
            (0x12, 1, 0) => {
                let has = [(0x80, !disk.serial.is_empty()), (0x83, disk.naa != 0)];
                let pages = has.iter().filter(|(_, has)| *has).map(|(page, _)| *page);
                let pages: Vec<u8> = [0].into_iter().chain(pages).collect();
                Odd::Data([&[0, 0, 0, pages.len() as u8], &pages[..]].concat())
            }
            (0x12, 1, 0x80) if !disk.serial.is_empty() => {
                let serial = disk.serial.as_bytes();
                Odd::Data([&[0, 0x80, 0, serial.len() as u8], serial].concat())
            }
            (0x12, 1, 0x83) if disk.naa != 0 => {
                let naa = disk.naa.to_be_bytes();
                Odd::Data([&[0, 0x83, 0, 12, 1, 3, 0, 8], &naa[..]].concat())
            }
            (0x12, 1, _) => Odd::Status(2, sense_of(5, 0x24, 0)),
            _ => Odd::Usual,
        }
    }
}
