//! An AoE target for tests that uses all freedom of the protocol: answers are late, in any order
//! and duplicated, and its disk is slow. A WRITE that the network duplicated is carried out once,
//! as Ashlar's own target does. An initiator can neither see such a copy nor wait for it.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;

use bio::Segs;
use geom::Core;
use reactor::{Link, SeededRandom};
use wire::aoe::{
    Address, Ata, BROADCAST, CONFIG_LEN, Config, ETHERTYPE, HEADER_LEN, Header, Mac, Reserve,
    SECTOR, VERSION, command, directive, reserve, sectors_of_mtu,
};
use wire::ata::{self, Identify, Trim, status};

/// Faults that the target injects.
#[derive(Clone, Copy, Default)]
pub struct Ways {
    /// Longest time of a command, ns.
    pub slow_ns: u64,
    /// Answers of a thousand that are sent twice.
    pub twice: u32,
    /// Of a thousand, answers from an unknown address, with another tag, or cut short.
    pub wrong: u32,
    /// Frames that it reports as its buffer count.
    pub buffers: u16,
    /// It receives nothing.
    pub deaf: bool,
}

/// See the module.
pub struct Shelf {
    /// Shelf and slot.
    pub address: Address,
    /// Contents of its disk.
    pub bytes: RefCell<Vec<u8>>,
    /// Serial number of its disk.
    pub serial: RefCell<String>,
    /// Its config string.
    pub mark: RefCell<String>,
    pub ways: RefCell<Ways>,
    /// Frames that are with it now, and the most that ever were.
    pub held: RefCell<(usize, usize)>,
    /// Reservation list: stored and reported, but no initiator is refused.
    pub reserved: RefCell<Vec<Mac>>,
    /// Received commands, copies among them.
    pub command_count: Cell<u64>,
    random: RefCell<SeededRandom>,
    /// Tags of received WRITEs and orders.
    seen: RefCell<BTreeSet<u32>>,
    links: RefCell<Vec<Link>>,
}

impl Shelf {
    /// A target that answers at these stations.
    pub fn start(
        core: &Rc<Core>,
        stations: &[&str],
        sectors: usize,
        seed: u64,
        ways: Ways,
    ) -> Rc<Shelf> {
        Shelf::start_at(1, core, stations, sectors, seed, ways)
    }

    /// The same in a slot.
    pub fn start_at(
        slot: u8,
        core: &Rc<Core>,
        stations: &[&str],
        sectors: usize,
        seed: u64,
        ways: Ways,
    ) -> Rc<Shelf> {
        let shelf = Rc::new(Shelf {
            address: Address { shelf: 565, slot },
            bytes: RefCell::new(vec![0; sectors * SECTOR]),
            serial: RefCell::new(format!("SHELF{slot}")),
            mark: RefCell::default(),
            ways: RefCell::new(ways),
            held: RefCell::default(),
            reserved: RefCell::default(),
            command_count: Cell::default(),
            random: RefCell::new(SeededRandom::new(seed)),
            seen: RefCell::default(),
            links: RefCell::default(),
        });
        for station in stations {
            let link = core.reactor().link(station, ETHERTYPE).unwrap();
            shelf.links.borrow_mut().push(link.clone());
            core.reactor().spawn("shelf", listen(shelf.clone(), core.clone(), link));
        }
        shelf
    }

    /// It announces itself without a request, as targets do that start.
    pub fn announce(&self) {
        for link in &*self.links.borrow() {
            let facts = link.facts().unwrap();
            let from = Mac(facts.mac);
            let header = Header {
                response: true,
                error: None,
                to: BROADCAST,
                from,
                address: self.address,
                command: command::CONFIG,
                tag: 0,
                version: VERSION,
            };
            let sectors = sectors_of_mtu(facts.mtu as usize);
            let config = Config::response(self.ways.borrow().buffers, 1, sectors, &[]);
            let bytes: [u8; CONFIG_LEN] = config.encode();
            let _ = link.send(&[&header.encode()[..], &bytes].concat(), &Segs::new());
            let _ = link.flush();
        }
    }

    fn chance(&self, of: impl Fn(&Ways) -> u32) -> bool {
        let rate = of(&self.ways.borrow());
        self.random.borrow_mut().chance(rate)
    }

    fn identify(&self) -> Vec<u8> {
        let identify = Identify {
            model: "shelf for tests".into(),
            serial: self.serial.borrow().clone(),
            firmware: "1".into(),
            sectors: (self.bytes.borrow().len() / SECTOR) as u64,
            sector_bytes: 512,
            extended: true,
            flush: true,
            flush_ext: true,
            trim: Some(Trim { blocks_max: 1, deterministic: true, zeroes: true }),
            rotation: 1,
            queue_depth: 1,
            ..Identify::default()
        };
        identify.encode().to_vec()
    }

    /// Carries a command out; status, error and data.
    fn carry_out(&self, ata: &Ata, data: &[u8]) -> (u8, u8, Vec<u8>) {
        let mut bytes = self.bytes.borrow_mut();
        let start = ata.lba() as usize * SECTOR;
        let len = usize::from(ata.sectors) * SECTOR;
        let failed = |error| (status::READY | status::ERROR, error, Vec::new());
        let (bad, gone) = (failed(ata::error::ABORT), failed(ata::error::NOT_FOUND));
        let good = |data| (status::READY, 0, data);
        match ata.command {
            ata::command::IDENTIFY => {
                drop(bytes);
                good(self.identify())
            }
            ata::command::READ_EXT => match bytes.get(start..start + len) {
                Some(read) => good(read.to_vec()),
                None => gone,
            },
            ata::command::WRITE_EXT => match (bytes.get_mut(start..start + len), data.get(..len)) {
                (Some(to), Some(from)) => {
                    to.copy_from_slice(from);
                    good(Vec::new())
                }
                _ => gone,
            },
            ata::command::DATA_SET_MANAGEMENT => {
                for (lba, sectors) in ata::trim_ranges(&data[..len]).unwrap() {
                    let (from, to) = (lba as usize * SECTOR, (lba + sectors) as usize * SECTOR);
                    bytes[from..to].fill(0);
                }
                good(Vec::new())
            }
            ata::command::FLUSH | ata::command::FLUSH_EXT => good(Vec::new()),
            _ => bad,
        }
    }
}

async fn listen(shelf: Rc<Shelf>, core: Rc<Core>, link: Link) {
    loop {
        if link.ready().await.is_err() {
            core.reactor().sleep(1_000_000).await;
            continue;
        }
        let mut came = Vec::new();
        let _ = link.receive(64, &mut |frame| came.push(frame.to_vec()));
        for frame in came {
            core.reactor()
                .spawn("command", answer(shelf.clone(), core.clone(), link.clone(), frame));
        }
    }
}

async fn answer(shelf: Rc<Shelf>, core: Rc<Core>, link: Link, frame: Vec<u8>) {
    let Ok((header, body)) = Header::decode(&frame) else { return };
    let facts = link.facts().unwrap();
    let own = Mac(facts.mac);
    let is_for_it = header.to == own || header.to == BROADCAST;
    let is_for_it = is_for_it && !shelf.ways.borrow().deaf;
    if header.response || !is_for_it || !header.address.reaches(shelf.address) {
        return;
    }
    let mut reply = header.answer(own, shelf.address);
    let (mut head, mut data) = (Vec::new(), Vec::new());
    match header.command {
        command::CONFIG => {
            let sectors = sectors_of_mtu(facts.mtu as usize);
            let Ok(query) = Config::decode(body) else { return };
            if query.directive == directive::FORCE {
                shelf.mark.replace(String::from_utf8_lossy(query.string).into_owned());
            }
            let mark = shelf.mark.borrow().clone();
            let config = Config::response(shelf.ways.borrow().buffers, 1, sectors, mark.as_bytes());
            let bytes: [u8; CONFIG_LEN] = config.encode();
            head.extend(bytes);
            head.extend(mark.as_bytes());
        }
        command::ATA => {
            let (ata, sent) = Ata::decode(body).unwrap();
            shelf.command_count.set(shelf.command_count.get() + 1);
            if ata.write && !shelf.seen.borrow_mut().insert(header.tag) {
                return;
            }
            {
                let mut held = shelf.held.borrow_mut();
                held.0 += 1;
                held.1 = held.1.max(held.0);
            }
            let slow = shelf.ways.borrow().slow_ns;
            let takes = shelf.random.borrow_mut().below(slow.max(1));
            core.reactor().sleep(takes).await;
            let (command, feature, read) = shelf.carry_out(&ata, sent);
            shelf.held.borrow_mut().0 -= 1;
            head.extend(Ata { command, feature, ..ata }.encode());
            data = read;
        }
        command::RESERVE => {
            let query = Reserve::decode(body).unwrap();
            shelf.command_count.set(shelf.command_count.get() + 1);
            if !shelf.seen.borrow_mut().insert(header.tag) {
                return;
            }
            let slow = shelf.ways.borrow().slow_ns;
            let takes = shelf.random.borrow_mut().below(slow.max(1));
            core.reactor().sleep(takes).await;
            if query.command != reserve::READ {
                *shelf.reserved.borrow_mut() = query.addresses().collect();
            }
            head.extend(Reserve::encode(query.command, &shelf.reserved.borrow()));
        }
        _ => return,
    }
    let tell = |reply: &Header, data: &[u8]| {
        let mut frame = reply.encode().to_vec();
        frame.extend(&head);
        frame.extend(data);
        let _ = link.send(&frame, &Segs::new());
    };
    if shelf.chance(|w| w.wrong) {
        let stranger = Header { from: Mac([2, 9, 9, 9, 9, 9]), ..reply };
        tell(&stranger, &vec![0xEE; data.len()]);
        let other = Header { tag: reply.tag ^ 1 << 20, ..reply };
        tell(&other, &vec![0xEE; data.len()]);
        let namesake = Header { address: Address { shelf: 565, slot: 2 }, ..reply };
        tell(&namesake, &vec![0xEE; data.len()]);
        if !data.is_empty() {
            tell(&reply, &data[..data.len() - 1]);
        }
        let _ = link.send(&reply.encode()[..HEADER_LEN - 5], &Segs::new());
    }
    tell(&reply, &data);
    if shelf.chance(|w| w.twice) {
        reply.error = None;
        tell(&reply, &data);
    }
    let _ = link.flush();
}
