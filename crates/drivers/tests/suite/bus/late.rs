//! Abort of a command whose time runs out before its turn: ABORT TASK alone takes it back. It is
//! never carried out, and other commands in flight are kept.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use bio::{Errno, Segs};
use cam::{ABORT_GRACE_NS, Ccb, Command as Cam, Ended, Flags, Owner, Priority, Unit};
use engine::{Command, Next, TaskAttribute};
use testkit::disk::{Mode, SLOW};

use crate::bus::{Scene, TURN_NS};

/// How long the command may take, ms.
const COMMAND_TIMEOUT_MS: u32 = 300;
/// Sector of the command.
const PLACE: u8 = 9;
const BLOCK_READ: [u8; 10] = [0x28, 0, 0, 0, 0, 30, 0, 0, 1, 0];
const WRITE: [u8; 10] = [0x2a, 0, 0, 0, 0, PLACE, 0, 0, 1, 0];

impl Scene {
    /// Sends a command on the first core; its end is sent to the returned receiver.
    fn send(&self, unit: &Arc<Unit>, cdb: &[u8], how: Ccb) -> Rc<RefCell<Option<Ended>>> {
        let data = Segs::alloc(self.cores[0].pool(), how.length as usize).unwrap();
        data.fill(0, data.len(), 0x77);
        let ccb = Ccb { command: Cam::scsi(cdb), ..how };
        let (unit, core) = (unit.clone(), self.cores[0].clone());
        let place = Rc::<RefCell<Option<Ended>>>::default();
        let end = place.clone();
        drop(self.cores[0].reactor().spawn("late", async move {
            let ended = unit.execute(&core, ccb, &data).await;
            *end.borrow_mut() = Some(ended);
        }));
        place
    }

    /// Lets time pass until something is so.
    fn until(&mut self, most_ns: u64, mut so: impl FnMut() -> bool) -> bool {
        let until = self.world.now() + most_ns;
        while !so() && self.world.now() < until {
            self.turn(TURN_NS);
        }
        so()
    }
}

fn ccb(flags: Flags, length: u32, timeout_ms: u32, retries: u8) -> Ccb {
    let (command, priority, owner) = (Cam::Reset, Priority::Normal, Owner::Task(0));
    let end_ns = u64::MAX;
    Ccb { command, flags, priority, timeout_ms, retries, end_ns, length, owner }
}

/// L2 of bus/mod.rs.
#[test]
fn command_that_times_out_before_its_turn_is_never_executed() {
    let mut scene = Scene::new(1);
    let bus = scene.cam.bus("loop0").unwrap();
    let (unit, ..) = bus.devices().into_iter().next().unwrap();
    let (session, remote) = scene.remote();
    let ask = |tag: u32, cdb: &[u8], expect_in: u32| {
        let (lun, attribute, expect_out) = ([0; 8], TaskAttribute::Simple, 0);
        let command = Command { tag, lun, cdb, attribute, expect_in, expect_out };
        assert_eq!(session.command(&command), Next::Started);
    };
    // Both report the power on.
    ask(1, &[0; 6], 0);
    let ready = scene.send(&unit, &[0; 6], ccb(Flags::NONE, 0, 10_000, 4));
    assert!(scene.until(1_000_000_000, || ready.borrow().is_some()));
    let (answers, good) = (remote.answers.get(), remote.good.get());

    // The other nexus' read is held by the disk, and ours waits for it.
    scene.disk.set(Mode::Stuck);
    ask(2, &BLOCK_READ, 512);
    let flags = Flags::OUT | Flags::ORDERED | Flags::RAW;
    let late = scene.send(&unit, &WRITE, ccb(flags, 512, COMMAND_TIMEOUT_MS, 0));
    scene.turn(TURN_NS);
    assert_eq!(unit.inspect(|d| d.openings().1), 1, "it is with the target");
    // A reset of the unit would end it as well, and the read of the other with it.
    let aborted = u64::from(COMMAND_TIMEOUT_MS) * 1_000_000 + ABORT_GRACE_NS / 2;
    assert!(scene.until(aborted, || late.borrow().is_some()), "it is not aborted");
    let ended = late.borrow_mut().take().unwrap();
    assert_eq!(ended.result, Err(Errno::TimedOut), "{ended:?}");

    scene.disk.set(SLOW);
    assert!(scene.until(1_000_000_000, || remote.answers.get() > answers));
    assert_eq!(remote.good.get(), good + 1, "the other's read ends as if nothing had been");
    // The sector is unchanged, and data that are written from now on stay.
    scene.submit(usize::from(PLACE), 1, None);
    scene.until_idle();
    scene.submit(usize::from(PLACE), 1, Some(5));
    scene.until_idle();
    scene.turn(2 * ABORT_GRACE_NS);
    scene.submit(usize::from(PLACE), 1, None);
    scene.until_idle();
    assert_eq!((scene.good, scene.failed), (3, 0));
    assert_eq!(scene.model[usize::from(PLACE)], [5]);
    scene.cores.iter().for_each(|core| drop(core.reactor().shutdown()));
}
