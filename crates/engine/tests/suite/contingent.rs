//! An auto contingent allegiance combined with flow control: one command fails while windows are
//! small and most commands wait for their turn. New commands and waiting commands are answered.

use engine::{TaskAttribute, TmFunction, TmOutcome, WINDOW_MIN};
use reactor::SeededRandom;
use testkit::Seeds;
use testkit::clock::MS;

use crate::world::*;

const NACA: u8 = 4;
const ACA_ACTIVE: u8 = 0x30;
const BUSY: u8 = 0x08;

/// Commands that each initiator keeps open, regardless of its window.
const OPEN: usize = 100;

struct Peer {
    host: Host,
    open: Vec<u32>,
    served: usize,
}

impl Peer {
    fn fill(&mut self, random: &mut SeededRandom) {
        while self.open.len() < OPEN {
            let lba = random.below(4000);
            let (attribute, write) = match random.below(40) {
                0 => (TaskAttribute::Ordered, false),
                1 => (TaskAttribute::HeadOfQueue, false),
                2..8 => (TaskAttribute::Simple, true),
                _ => (TaskAttribute::Simple, false),
            };
            self.host.attribute.set(attribute);
            let tag = match write {
                true => self.host.send(0, &write16(lba, 8), 0, &[7; 4096]),
                false => self.host.send(0, &read16(lba, 8), 4096, &[]),
            };
            self.open.push(tag);
        }
        self.host.attribute.set(TaskAttribute::Simple);
    }

    fn take_answers(&mut self) {
        let before = self.open.len();
        let host = &self.host;
        self.open.retain(|tag| match host.answer(*tag) {
            Some(answer) => {
                assert_eq!(answer.status, 0, "{answer:?}");
                false
            }
            None => !host.discarded(*tag),
        });
        self.served += before - self.open.len();
    }
}

fn soon(w: &World, h: &Host, cdb: &[u8], expect: u32) -> CommandResult {
    let tag = h.send(0, cdb, expect, &[]);
    for _ in 0..500 {
        if let Some(answer) = h.answer(tag) {
            return answer;
        }
        w.pass(2 * MS);
    }
    panic!("{cdb:02x?} is not answered in a second");
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    Cleared,
    Reset,
    NexusGone,
}

#[test]
fn commands_continue_after_an_aca_ends_while_windows_are_small() {
    for seed in Seeds::of(12) {
        let mut random = SeededRandom::new(seed);
        let end = [End::Cleared, End::Reset, End::NexusGone][(seed % 3) as usize];
        let w = World::simple(seed, 4096);
        w.disks[0].1.set_pace(2, 4 * MS);
        let mut peers: Vec<Peer> = [(0, "i1"), (1, "i2"), (1, "i3")]
            .map(|(core, name)| w.calm(core, name, &[0]))
            .map(|host| Peer { host, open: Vec::new(), served: 0 })
            .into();
        // The one that will fail is a member of a crowd: the disk is slow, the windows shrink.
        let until = w.sim.now() + (2000 + random.below(1000)) * MS;
        while w.sim.now() < until {
            for peer in &mut peers {
                peer.fill(&mut random);
                peer.take_answers();
            }
            w.pass(5 * MS);
        }
        let windows: Vec<u32> = peers.iter().map(|p| p.host.session.depth_hint()).collect();
        let small = |window: &u32| (WINDOW_MIN..OPEN as u32).contains(window);
        assert!(windows.iter().all(small), "seed {seed}: {windows:?}");
        let mut beyond = read16(4096, 1);
        beyond[15] = NACA;
        let a = &peers[0].host;
        // It arrives behind all that is there; HEAD OF QUEUE now and then.
        a.attribute
            .set([TaskAttribute::Simple, TaskAttribute::HeadOfQueue][random.below(2) as usize]);
        assert_eq!(soon(&w, a, &beyond, 512).asc(), (5, 0x21, 0), "seed {seed}");
        a.attribute.set(TaskAttribute::Simple);
        assert_eq!(soon(&w, a, &TUR, 0).status, ACA_ACTIVE);
        assert_eq!(soon(&w, &peers[1].host, &read16(0, 8), 4096).status, BUSY);
        // Its own of the ACA attribute reach the medium although the window is full.
        a.attribute.set(TaskAttribute::Aca);
        for _ in 0..3 {
            soon(&w, a, &read16(random.below(4000), 8), 4096).good();
        }
        a.attribute.set(TaskAttribute::Simple);
        w.pass(random.below(400) * MS);
        match end {
            End::Cleared => {
                let tm = a.manage(TmFunction::ClearAca, 0, None);
                w.pass(MS);
                assert_eq!(a.outcome(tm), Some(TmOutcome::Complete));
            }
            End::Reset => {
                let tm = peers[2].host.manage(TmFunction::LunReset, 0, None);
                w.pass(1000 * MS);
                assert_eq!(peers[2].host.outcome(tm), Some(TmOutcome::Complete), "seed {seed}");
            }
            End::NexusGone => a.session.close(),
        }
        w.pass(8000 * MS);
        for (i, peer) in peers.iter_mut().enumerate() {
            if end == End::NexusGone && i == 0 {
                assert!(peer.host.ended(), "seed {seed}");
                continue;
            }
            peer.take_answers();
            assert!(peer.open.is_empty(), "seed {seed}: {end:?} left {:?} of {i}", peer.open);
            assert!(peer.served > OPEN, "seed {seed}: {}", peer.served);
            while soon(&w, &peer.host, &TUR, 0).asc().0 == 6 {}
            soon(&w, &peer.host, &read16(1, 8), 4096).good();
        }
        w.check_empty();
    }
}

/// TST 000b: a session that always has HEAD OF QUEUE commands open lets others continue.
#[test]
fn a_flood_of_head_of_queue_starves_no_other_nexus() {
    let w = World::simple(1, 4096);
    w.disks[0].1.set_pace(4, MS);
    let (flood, other) = (w.calm(0, "i1", &[0]), w.calm(1, "i2", &[0]));
    flood.attribute.set(TaskAttribute::HeadOfQueue);
    let (mut open, mut mine, mut times) = (Vec::new(), None, Vec::new());
    let until = w.sim.now() + 2000 * MS;
    while w.sim.now() < until {
        while open.len() < 32 {
            open.push(flood.send(0, &read16(open.len() as u64 * 8, 8), 4096, &[]));
        }
        let (tag, since) =
            *mine.get_or_insert_with(|| (other.send(0, &read16(9, 8), 4096, &[]), w.sim.now()));
        w.pass(MS / 2);
        open.retain(|tag| flood.answer(*tag).is_none());
        assert!(!open.is_empty(), "there is always one");
        if let Some(answer) = other.answer(tag) {
            answer.good();
            times.push(w.sim.now() - since);
            mine = None;
        }
    }
    // Those that were there before it took their time: 32 on four servers.
    let worst = times.iter().max().unwrap();
    assert!(times.len() > 20 && *worst < 100 * MS, "{} reads, {} ms", times.len(), worst / MS);
}
