//! `aoe` (the paper on the diskless file server): throughput of its near link, in virtual time. A
//! target and its readers are on a simulated segment of 10 Gb/s. The target answers after the same
//! time as the paper's. The readers are the paper's: one that reads block by block, two beside each
//! other on one processor, and one with as many frames outstanding as the target holds.
//!
//! Inputs are the round-trip time of a frame, 49 us with a sector and 79 us with 8 KiB. Further
//! ones are the rate of the wire, and a processor that all share. The rates of several frames at a
//! time follow.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use bio::Segs;
use reactor::sim::{Actor, Ended, Limits, Segment, SegmentShape, World};
use reactor::{Link, Reactor};
use wire::aoe::{ATA_LEN, Address, Ata, ETHERTYPE, HEADER_LEN, Header, Mac, SECTOR, command};
use wire::ata::command as op;

use crate::error::{Error, Kind};
use crate::options::Options;
use crate::progress::Progress;
use crate::report::{Goal, Of, Report, Series};

/// Payload of the paper's frames, bytes.
const BLOCK: u64 = 8192;
/// That of its smallest ones.
const SMALL: u64 = SECTOR as u64;
/// ns from a request to its answer: a sector, and a block.
const ROUND_NS: [(u64, u64); 2] = [(SMALL, 49_000), (BLOCK, 79_000)];
/// 10 Gb/s: thousandths of a ns a byte.
const WIRE_PS: u64 = 800;
/// Three turns of the simulated world, which a round trip takes: their mean, ns. Turns wait for
/// each other as processes on one processor do.
const TURNS_NS: u64 = 3 * 1_800;
/// Frames that the paper's target holds.
const OUTSTANDING: u64 = 24;
/// How far from the paper's figure the model may be, either way.
const NEAR: f64 = 1.05;
/// How long each case runs, virtual ns.
const SPAN_NS: u64 = 100_000_000;

const TARGET: Mac = Mac([2, 0, 0, 0, 1, 0]);
const SHELF: Address = Address { shelf: 565, slot: 0 };

/// A case: its name, readers and frames outstanding of each, bytes of a frame, and MB/s.
type Case = (&'static str, u64, u64, u64, f64);

const CASES: [Case; 4] = [
    ("aoe-one-reader", 1, 1, BLOCK, 103.0),
    ("aoe-two-readers", 2, 1, BLOCK, 201.0),
    ("aoe-small-frames", 1, 1, SMALL, 10.4),
    // The wire carries so much; 24 frames outstanding would be twice that.
    ("aoe-24-outstanding", 1, OUTSTANDING, BLOCK, 1240.0),
];

pub(super) fn measure(
    options: &Options,
    report: &mut Report,
    progress: &mut dyn FnMut(Progress),
) -> Result<(), Error> {
    for (done, case) in (0..).zip(CASES) {
        let (name, readers, depth, bytes, paper) = case;
        progress(Progress { done, of: 4, step: format!("seeds: {name}") });
        if !options.wants(name) {
            continue;
        }
        let ran: Result<Vec<Ran>, Error> =
            (0..options.rounds).map(|round| run(round.into(), case)).collect();
        let ran = ran?;
        let mut row = |figure, unit, ours: Vec<f64>, theirs: f64, of| {
            let theirs = vec![theirs; ours.len()];
            let row = Series { ours, theirs }.row(name, (figure, unit), Some("paper"));
            let goal = Some(Goal { of, at_most: NEAR });
            report.add(options, "seeds aoe", row, goal);
        };
        let rates = ran.iter().map(|r| r.rate(bytes)).collect();
        row("read", "MB/s", rates, paper, Of::Inverse);
        if depth > 1 {
            let most = ran.iter().map(|r| r.outstanding as f64).collect();
            row("frames outstanding", "", most, OUTSTANDING as f64, Of::Ratio);
        } else if readers == 1 {
            let us = ran.iter().map(|r| SPAN_NS as f64 / r.blocks.max(1) as f64 / 1e3);
            let paper = round_ns(bytes) as f64 / 1e3;
            row("a frame there and back", "us", us.collect(), paper, Of::Ratio);
        }
    }
    let note = "virtual time; what real frames cost on this machine, ours beside vblade's, \
                says `ashlar-bench aoe`";
    report.notes.push(note.to_owned());
    Ok(())
}

fn round_ns(bytes: u64) -> u64 {
    ROUND_NS.iter().find(|(b, _)| *b == bytes).map_or(0, |(_, ns)| *ns)
}

/// Result of a run.
struct Ran {
    blocks: u64,
    /// Most frames that the target held at a time.
    outstanding: u64,
}

impl Ran {
    fn rate(&self, bytes: u64) -> f64 {
        self.blocks as f64 * bytes as f64 / SPAN_NS as f64 * 1e3
    }
}

fn mac(station: u64) -> Mac {
    let [low, ..] = station.to_le_bytes();
    Mac([2, 0, 0, 0, 2, low])
}

fn refused(e: std::io::Error) -> Error {
    Error::system("a simulated segment", e)
}

/// A station with a reactor of its own.
fn station(
    world: &World,
    segment: &Segment,
    name: &str,
    mac: Mac,
) -> Result<(Reactor, Link), Error> {
    segment.plug(name, mac.0, 9000);
    let reactor = Reactor::simulated(world, name);
    let link = reactor.link(name, ETHERTYPE).map_err(refused)?;
    Ok((reactor, link))
}

fn run(seed: u64, (_, readers, depth, bytes, _): Case) -> Result<Ran, Error> {
    let world = World::new(seed);
    let segment = world.segment(SegmentShape {
        delay_ns_min: 0,
        delay_ns_max: 0,
        ps_per_byte: WIRE_PS,
        ..SegmentShape::default()
    });
    let (target, link) = station(&world, &segment, "target", TARGET)?;
    let held: Rc<Cell<(u64, u64)>> = Rc::default();
    drop(target.spawn("target", serve(target.clone(), link, bytes, held.clone())));
    let blocks = Rc::new(Cell::new(0));
    let mut reactors = vec![target];
    // Each outstanding frame has a station of its own: they share only the target's wire.
    for number in 0..readers * depth {
        let (reactor, link) = station(&world, &segment, &format!("r{number}"), mac(number))?;
        let task = read(link, mac(number), bytes, blocks.clone());
        drop(reactor.spawn("reader", task));
        reactors.push(reactor);
    }
    let mut actors: Vec<Actor<'_>> = reactors.iter().map(Actor::of_tasks).collect();
    let limits = Limits { ns: SPAN_NS, steps: 50_000_000 };
    let ended = world.run(&mut actors, limits, &mut || false);
    reactors.iter().for_each(|reactor| drop(reactor.shutdown()));
    match ended {
        Ended::TimeUp => Ok(Ran { blocks: blocks.get(), outstanding: held.get().1 }),
        other => Err(Error::new(Kind::Timeout, format!("the readers stopped: {other:?}"))),
    }
}

fn on_wire_ns(bytes: u64) -> u64 {
    let heads = (HEADER_LEN + ATA_LEN) as u64;
    (60 + heads + bytes) * WIRE_PS / 1000
}

/// The paper's target: the part of the round trip that is neither wire nor turns is its own. Frames
/// wait for each other only on its wire.
async fn serve(reactor: Reactor, link: Link, bytes: u64, held: Rc<Cell<(u64, u64)>>) {
    let own_ns = round_ns(bytes).saturating_sub(on_wire_ns(bytes) + TURNS_NS);
    while link.ready().await.is_ok() {
        let came: RefCell<Vec<Header>> = RefCell::default();
        let mut hear = |frame: &[u8]| {
            came.borrow_mut().extend(Header::decode(frame).map(|(header, _)| header));
        };
        if link.receive(1000, &mut hear).is_err() {
            return;
        }
        for asked in came.take() {
            let (now, most) = held.get();
            held.set((now + 1, most.max(now + 1)));
            let (own, link, held) = (reactor.clone(), link.clone(), held.clone());
            drop(reactor.spawn("answer", async move {
                own.sleep(own_ns).await;
                let (now, most) = held.get();
                held.set((now - 1, most));
                let mut frame = asked.answer(TARGET, SHELF).encode().to_vec();
                frame.resize(HEADER_LEN + ATA_LEN + bytes as usize, 0);
                // It always has space: it was given no more than the readers request.
                let _ = link.send(&frame, &Segs::new());
                let _ = link.flush();
            }));
        }
    }
}

/// Requests one block after the other.
async fn read(link: Link, own: Mac, bytes: u64, blocks: Rc<Cell<u64>>) {
    loop {
        let sectors = u8::try_from(bytes / SMALL).unwrap_or(1);
        let ata = Ata { extended: true, sectors, command: op::READ_EXT, ..Ata::default() };
        let header = Header::request(TARGET, own, SHELF, command::ATA, 1);
        let frame = [&header.encode()[..], &ata.encode()].concat();
        let sent = link.send(&frame, &Segs::new()).and_then(|()| link.flush());
        let frames = link.ready().await.and_then(|()| link.receive(1, &mut |_| ()));
        if sent.is_err() || !matches!(frames, Ok(1)) {
            return;
        }
        blocks.set(blocks.get() + 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn model_rates_match_the_published_figures() {
        for case in CASES {
            let ran = run(1, case).unwrap();
            let (name, _, depth, bytes, paper) = case;
            let ratio = ran.rate(bytes) / paper;
            assert!((1.0 / NEAR..=NEAR).contains(&ratio), "{name}: {} MB/s", ran.rate(bytes));
            assert!(ran.outstanding <= OUTSTANDING);
            assert!(depth == 1 || ran.outstanding == OUTSTANDING, "{name}");
        }
    }
}
