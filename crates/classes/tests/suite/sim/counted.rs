//! Members that were forgotten or replaced, beside one that failed later: they must not look like
//! the whole mirror, and start without the newest member.

use bio::{Errno, Op};
use geom::{Access, Measure};
use serde_json::json;

use super::disk::{Disk, SECTOR};
use super::life::MS;
use super::named::{Bench, DISK};

impl Bench {
    /// The next write that marks the members fails on this one, and the others continue with
    /// `value`.
    fn continues_without(&mut self, disk: &str, value: u8) {
        self.disks[disk].lock().once = Some((Op::Write, Errno::Io));
        self.fill(value, true);
        assert_eq!(self.state(disk), "-", "{disk} failed\n{}", self.life.dump_state());
    }

    /// Those two return first, and the newest a while later.
    fn check_stale_members(&mut self, old: [&str; 2], newest: &str, value: u8) {
        for order in [old, [old[1], old[0]]] {
            self.reboot(&order);
            self.plug(newest);
            self.up();
            assert_eq!(self.state(newest), "ACTIVE", "{}", self.life.dump_state());
            self.holds(value);
        }
    }
}

#[test]
fn a_forgotten_and_a_failed_member_do_not_form_a_complete_mirror() {
    let mut bench = Bench::of(2);
    bench.fill(1, true);
    bench.pull("d0");
    bench.life.verb("mirror", "forget", "m", json!({})).expect("forgotten");
    bench.disks.insert("d2".into(), Disk::new(DISK, 2));
    bench.plug("d2");
    bench.life.verb("mirror", "insert", "m", json!({ "members": ["d2"] })).expect("inserted");
    bench.life.pass(500 * MS);
    assert_eq!(bench.state("d2"), "ACTIVE");
    bench.continues_without("d1", 2);
    bench.check_stale_members(["d0", "d1"], "d2", 2);
}

/// M8 of mirror/state/mod.rs.
#[test]
fn a_replaced_and_a_failed_member_do_not_form_a_complete_mirror() {
    let mut bench = Bench::of(3);
    bench.fill(1, true);
    bench.pull("d0");
    bench.life.verb("mirror", "forget", "m", json!({})).expect("forgotten");
    bench.fill(2, true);
    // Without d2: d0 is rebuilt, and is one of two now.
    bench.reboot(&["d1"]);
    bench.up();
    bench.plug("d0");
    bench.life.pass(500 * MS);
    assert_eq!(bench.state("d0"), "ACTIVE", "{}", bench.life.dump_state());
    bench.continues_without("d1", 3);
    bench.check_stale_members(["d2", "d1"], "d0", 3);
}

/// No member is inserted in the place of one that the records still contain.
#[test]
fn forget_and_insert_fail_when_the_record_cannot_be_written() {
    let mut bench = Bench::of(2);
    bench.fill(1, true);
    bench.pull("d0");
    bench.disks.insert("d2".into(), Disk::new(DISK, 2));
    bench.plug("d2");
    let insert = json!({ "members": ["d2"] });
    bench.disks["d1"].lock().faults.push((Op::Write, 100, Errno::Io));
    let error = bench.life.verb("mirror", "forget", "m", json!({})).expect_err("no record");
    assert!(error.message.contains("cannot be written"), "{error}");
    let error = bench.life.verb("mirror", "insert", "m", insert.clone()).expect_err("no record");
    assert!(error.message.contains("cannot be written"), "{error}");
    bench.disks["d1"].lock().heal();
    bench.life.verb("mirror", "forget", "m", json!({})).expect("forgotten");
    bench.life.verb("mirror", "insert", "m", insert).expect("inserted");
    bench.life.pass(500 * MS);
    assert_eq!(bench.state("d2"), "ACTIVE");
    bench.holds(1);
}

/// d1 has failed, and only d0's record contains that yet: d0 stays active until another record
/// contains it.
#[test]
fn a_member_with_the_only_record_of_a_failure_is_not_rebuilt() {
    let mut bench = Bench::of(3);
    bench.fill(1, false);
    let genid = |bench: &Bench, disk: &str| bench.disks[disk].bytes(DISK - SECTOR, 49)[45];
    let (_, edge) = bench.life.open("mirror/m", Access::READ).expect("open");
    bench.disks["d2"].lock().hangs = true;
    bench.disks["d1"].lock().once = Some((Op::Read, Errno::Io));
    for _ in 0..3 {
        let own = bench.life.cores[0].clone();
        bench.life.cores[0].reactor().spawn("user", async move {
            let _ = own.read(edge, 0, SECTOR as usize).await;
        });
    }
    bench.life.pass(50 * MS);
    assert_eq!(bench.state("d1"), "-", "{}", bench.life.dump_state());
    assert_eq!(["d0", "d2"].map(|disk| genid(&bench, disk)), [1, 0]);
    let rebuild = bench.life.verb("mirror", "rebuild", "m", json!({ "members": ["d0"] }));
    assert_eq!(rebuild.expect_err("it hangs").kind, Errno::TimedOut);
    assert_eq!(bench.state("d0"), "ACTIVE", "{}", bench.life.dump_state());
    let hung = bench.disks["d2"].release();
    bench.life.wake(hung);
    bench.life.pass(500 * MS);
    assert_eq!(["d0", "d2"].map(|disk| genid(&bench, disk)), [1, 1]);
    assert_eq!(["d0", "d2"].map(|disk| bench.state(disk)), ["ACTIVE", "ACTIVE"]);
    bench.holds(1);
}

/// The only member that has everything can be read, and no longer be written: one that was inserted
/// takes over. One that was forgotten does not before that is on record, for another one may be
/// counted in its place.
#[test]
fn a_replacement_for_an_unwritable_member_is_counted() {
    for inserted in [true, false] {
        let mut bench = Bench::of(2);
        bench.fill(1, true);
        bench.pull("d0");
        bench.life.verb("mirror", "forget", "m", json!({})).expect("forgotten");
        bench.disks["d1"].lock().faults.push((Op::Write, 100, Errno::Io));
        if inserted {
            bench.disks.insert("d2".into(), Disk::new(DISK, 2));
            bench.plug("d2");
            let with = json!({ "members": ["d2"] });
            bench.life.verb("mirror", "insert", "m", with).expect("inserted");
            bench.life.pass(500 * MS);
            assert_eq!(["d1", "d2"].map(|disk| bench.state(disk)), ["-", "ACTIVE"]);
        } else {
            bench.plug("d0");
            bench.life.pass(3_500 * MS);
            let states = ["d0", "d1"].map(|disk| bench.state(disk));
            assert_eq!(states, ["SYNCHRONIZING", "ACTIVE"], "{}", bench.life.dump_state());
            let measures = bench.life.measures("mirror", "m");
            let [Measure::Rebuild(copy)] = measures.as_slice() else {
                panic!("{measures:?}");
            };
            assert!(copy.part == "d0" && copy.done_bytes <= copy.size_bytes, "{measures:?}");
            assert!(copy.size_bytes > 0 && copy.sources == ["d1"], "{measures:?}");
            bench.disks["d1"].lock().heal();
            bench.life.pass(2_500 * MS);
            let states = ["d0", "d1"].map(|disk| bench.state(disk));
            assert_eq!(states, ["ACTIVE", "ACTIVE"], "{}", bench.life.dump_state());
            assert_eq!(bench.life.measures("mirror", "m"), []);
        }
        bench.holds(1);
    }
}
