//! Two cores that share one disk: each request completes on its own core, and none is lost.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bio::{Bio, End, Errno, Flags, Op, Segs};
use cam::sims::hba::{DiskSpec, Faults, Transport, VirtualHba};
use cam::{CamClass, Names, Path};
use geom::{Access, Core, GraphControl, Inbox, Sink};
use reactor::{SeededRandom, Token, sim};
use testkit::Seeds;

type List = Vec<(u64, Result<(), Errno>, Vec<u8>)>;

#[derive(Default)]
struct Endings(RefCell<List>);

impl Sink for Endings {
    fn done(&self, tag: u64, bio: &mut Bio, _: &Core) {
        self.0.borrow_mut().push((tag, bio.status, bio.data.to_vec()));
    }
}

fn turn(cores: &[Rc<Core>], world: &sim::World, most: u64) {
    for core in cores {
        core.reactor().after(most, Token::default());
    }
    let limits = sim::Limits { ns: most, ..sim::Limits::default() };
    world.run(&mut testkit::cores::actors(cores), limits, &mut || false);
}

/// Each core writes and reads sectors of its own, all at once.
fn both_cores(seed: u64) -> (u64, u64) {
    let world = sim::World::new(seed);
    let (cores, mailers, inbox) = testkit::cores::start(&world, 2, 16 << 20);
    let (all, w, clock) = (cores.clone(), world.clone(), cores[0].reactor().clone());
    let wait = move |_: &Inbox, most: Duration| {
        turn(&all, &w, (most.as_nanos() as u64).min(2_000_000));
    };
    let now = Box::new(move || clock.fresh_now());
    let mut control = GraphControl::new(mailers, inbox.clone(), Box::new(wait), now);
    let cam = Arc::new(CamClass::new(inbox, Vec::new(), 2));
    control.topology.load(cam.clone()).unwrap();
    let hba = VirtualHba::new("mps0", Transport::Sas, 1);
    let mut spec = DiskSpec { depth: 3, ..DiskSpec::default() };
    spec.shape.size = 1 << 20;
    hba.plug(0, spec, seed).unwrap();
    let bus = cam.add_bus(hba.clone(), Names::default(), control.topology.notifier());
    let on = bus.clone();
    let changes = control
        .run_on_core("a scan", move |core| Box::pin(async move { on.scan(core).await }))
        .unwrap();
    control.call(|t| cam.commit(t, &bus, changes)).unwrap();
    let (_, edge) = testkit::user::open(&mut control, "da0", Access::WRITE).unwrap();
    hba.set_faults(0, Faults { fails: 5, hangs: 1, echoes: 10, full: 10, ..Faults::default() });
    let mut random = SeededRandom::new(seed);
    let sinks: Vec<(Rc<Endings>, u32)> = cores
        .iter()
        .map(|core| {
            let endings = Rc::new(Endings::default());
            (endings.clone(), core.add_sink(endings))
        })
        .collect();
    let mut wrote = [[None::<u8>; 64]; 2];
    let (mut sent, mut failed) = (0u64, 0u64);
    for round in 0..20u64 {
        let mut waits = [0usize; 2];
        let mut in_flight = [[None; 64]; 2];
        for _ in 0..20 {
            let n = random.below(2) as usize;
            let slot = random.below(64) as usize;
            if in_flight[n][slot].is_some() {
                continue;
            }
            let write = random.below(2) == 0;
            let flags = if random.below(8) == 0 { Flags::ORDERED } else { Flags::NONE };
            let (core, at) = (&cores[n], (n as u64 * 64 + slot as u64) * 512);
            let data = Segs::alloc(core.pool(), 512).unwrap();
            data.fill(0, 512, if write { round as u8 + 1 } else { 0xee });
            core.submit(edge, End::Sink { sink: sinks[n].1, tag: slot as u64 }, |bio| {
                bio.op = if write { Op::Write } else { Op::Read };
                (bio.offset, bio.length, bio.flags) = (at, 512, flags);
                bio.data = data;
            });
            in_flight[n][slot] = Some(write);
            (waits[n], sent) = (waits[n] + 1, sent + 1);
        }
        let end = cores[0].reactor().fresh_now() + 3_600_000_000_000;
        for n in 0..2 {
            let mut ended = 0;
            while ended < waits[n] {
                assert!(cores[0].reactor().fresh_now() < end, "seed {seed}: it hangs");
                turn(&cores, &world, 50_000_000);
                control.pump();
                for (slot, status, bytes) in std::mem::take(&mut *sinks[n].0.0.borrow_mut()) {
                    ended += 1;
                    let slot = slot as usize;
                    match (in_flight[n][slot], status) {
                        (Some(true), Ok(())) => wrote[n][slot] = Some(round as u8 + 1),
                        (Some(false), Ok(())) => {
                            let found = wrote[n][slot].is_none_or(|v| bytes == [v; 512]);
                            assert!(found, "seed {seed}: core {n}, sector {slot}: {}", bytes[0]);
                        }
                        // The slot's content is unknown now.
                        (_, Err(_)) => (wrote[n][slot], failed) = (None, failed + 1),
                        (None, _) => panic!("seed {seed}: it ended twice"),
                    }
                }
            }
        }
    }
    let unit = bus.unit(Path::new(0, 0, 0)).unwrap();
    unit.inspect(|device| {
        let (made, released) = device.freezes();
        assert_eq!((made, device.live()), (released, 0), "seed {seed}");
    });
    (sent, failed)
}

#[test]
fn a_disk_serves_two_cores_at_once() {
    let (mut sent, mut failed, seeds) = (0, 0, Seeds::of(150));
    for seed in seeds.clone() {
        let (s, f) = both_cores(seed);
        (sent, failed) = (sent + s, failed + f);
    }
    assert!(failed < sent / 10 || !seeds.are_enough(), "{failed} of {sent}");
}
