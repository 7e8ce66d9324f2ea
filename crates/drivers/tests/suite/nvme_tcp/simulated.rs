//! Links that cut bytes anywhere and break, hosts that return, and a model of what each sector
//! may hold.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use bio::Pool;
use reactor::sim::World;
use reactor::{Reactor, SeededRandom};
use wire::nvme::Extent;
use wire::nvme::codes::io;

use crate::common::connection_cuts::ConnectionCuts;
use crate::common::players::{Players, net_shape};
use crate::nvme_tcp::host::{Broken, CommandResult, Host, SUBSYSTEM};
use crate::nvme_tcp::stage::{admin, build, portal};
use testkit::Seeds;

const HOSTS: u64 = 3;
/// Sectors of each host.
const AREA: u64 = 96;
const ROUNDS: u32 = 40;
/// Until a target has noticed a lost connection.
const GRACE_NS: u64 = 20_000_000;

struct Player {
    number: u64,
    random: SeededRandom,
    reactor: Reactor,
    pool: Pool,
    /// What each sector may hold: one value, or more after writes that were not answered.
    model: Vec<Vec<u8>>,
    entries: u32,
}

impl Player {
    async fn enter(&mut self) -> Result<(Host, Host), Broken> {
        let digests = (self.random.chance(500), self.random.chance(500));
        let mut dialled = Host::dial(&self.reactor, &self.pool, &portal()).await?;
        dialled.name = format!("nqn.2026-11.test.ashlar:host{}", self.number);
        dialled.host_id = [1 + self.number as u8; 16];
        let admin = admin(dialled, digests, 0).await?;
        let mut queue = Host::dial(&self.reactor, &self.pool, &portal()).await?;
        (queue.name, queue.host_id) = (admin.name.clone(), admin.host_id);
        queue.initialize(digests).await?;
        queue.controller = admin.controller;
        let end = queue.connect(SUBSYSTEM, 1, 0).await?;
        // The admin queue may have been cut meanwhile.
        if !end.status.is_good() {
            return Err(Broken);
        }
        self.entries += 1;
        Ok((admin, queue))
    }

    async fn run(mut self, rounds: Rc<Cell<u32>>, report: Rc<RefCell<Vec<u32>>>) {
        let mut done = 0;
        while done < ROUNDS {
            if let Ok((_admin, mut queue)) = self.enter().await {
                while done < ROUNDS && self.round(&mut queue).await.is_ok() {
                    done += 1;
                    rounds.set(rounds.get() + 1);
                }
                queue.close();
                _admin.close();
            }
            self.reactor.sleep(GRACE_NS).await;
        }
        report.borrow_mut().push(self.entries);
    }

    async fn round(&mut self, queue: &mut Host) -> Result<(), Broken> {
        let sector = self.random.below(AREA);
        let blocks = 1 + self.random.below((AREA - sector).min(40)) as u32;
        let range = sector as usize..sector as usize + blocks as usize;
        let extent = Extent {
            lba: self.number * AREA + sector,
            blocks,
            fua: self.random.chance(300),
            deallocate: self.random.chance(500),
        };
        let len = blocks as usize * 512;
        let (kind, value) = (self.random.below(4), 1 + self.random.below(255) as u8);
        match kind {
            0 | 1 => {
                let plain = Extent { deallocate: false, ..extent };
                let command = queue.command(io::READ, 1, plain.dwords());
                let answer = queue.ask(command, len as u32).await?;
                self.learn(sector, answer);
            }
            2 => {
                self.model[range.clone()].iter_mut().for_each(|s| s.push(0));
                let command = queue.command(io::WRITE_ZEROES, 1, extent.dwords());
                queue.ask(command, 0).await?.good();
                self.model[range].iter_mut().for_each(|s| *s = vec![0]);
            }
            _ => {
                self.model[range.clone()].iter_mut().for_each(|s| s.push(value));
                let plain = Extent { deallocate: false, ..extent };
                let command = queue.command(io::WRITE, 1, plain.dwords());
                let data = vec![value; len];
                let piece = 4 * (1 + self.random.below(2048) as usize);
                let answer = match len <= 8192 && self.random.chance(700) {
                    true => queue.run_in_capsule(command, &data).await?,
                    false => queue.give(command, &data, piece).await?,
                };
                answer.good();
                self.model[range].iter_mut().for_each(|s| *s = vec![value]);
            }
        }
        Ok(())
    }

    fn learn(&mut self, sector: u64, answer: CommandResult) {
        for (i, bytes) in answer.good().chunks(512).enumerate() {
            let may = &mut self.model[sector as usize + i];
            assert!(bytes.iter().all(|b| *b == bytes[0]), "a torn sector");
            assert!(may.contains(&bytes[0]), "{} is none of {may:?}", bytes[0]);
            *may = vec![bytes[0]];
        }
    }
}

/// Runs one seed; answers its trace and how often hosts entered.
fn play(seed: u64) -> (u64, u32) {
    let world = World::new(seed);
    let mut random = SeededRandom::new(seed ^ 0x4420);
    world.set_net(net_shape(&mut random, &[7, 100, 1460, 16 * 1024]));
    let plant = build(&world, HOSTS * AREA);
    let players = Players::new(&world);
    for number in 0..HOSTS {
        let player = Player {
            number,
            random: SeededRandom::new(seed * 31 + number),
            reactor: players.reactor.clone(),
            pool: players.pool.clone(),
            model: vec![vec![0]; AREA as usize],
            entries: 0,
        };
        let run = player.run(players.rounds.clone(), players.logins.clone());
        drop(players.reactor.spawn("host", run));
    }
    let cuts = ConnectionCuts::new(random.below(8) as u32, HOSTS as u32 * ROUNDS);
    players.run(&world, plant, HOSTS, cuts)
}

/// T2 of nvme_tcp/queue.rs, Q1 of nvme_tcp/tasks.rs.
/// S2 of nvme_tcp/controllers.rs.
#[test]
fn data_is_correct_over_links_that_cut_and_break() {
    let played = Seeds::of(16).each(play);
    let entries: u32 = played.iter().map(|(_, entries)| entries).sum();
    assert!(u64::from(entries) > played.len() as u64 * HOSTS, "nothing was ever cut");
}

#[test]
fn a_seed_plays_the_same_twice() {
    assert_eq!(play(3), play(3));
}
