//! FreeBSD's tests of mirror with fail points (docs/reference/geom.md 6: mirror 9 to 13,
//! sync_error), on disks that fail the next request of a kind. EIO is the member's fault: the genid
//! grows, and it is locked out. ENXIO is not: the syncid grows, and it may return and is
//! rebuilt.

use bio::{Errno, Op};
use geom::Access;
use serde_json::json;

use super::disk::SECTOR;
use super::life::MS;
use super::named::{Bench, DISK};

impl Bench {
    /// Genid and syncid in the record on a disk.
    fn ids(&self, disk: &str) -> (u32, u32) {
        let record = self.disks[disk].bytes(DISK - SECTOR, SECTOR as usize);
        let word = |at: usize| u32::from_le_bytes(record[at..at + 4].try_into().expect("four"));
        assert!(record.starts_with(b"GEOM::MIRROR"), "{disk}");
        (word(45), word(49))
    }

    /// The next request of a kind to a disk fails.
    fn fails(&self, disk: &str, op: Op, error: Errno) {
        self.disks[disk].lock().once = Some((op, error));
    }

    fn has_failed(&self, disk: &str) -> bool {
        self.disks[disk].lock().once.is_none()
    }

    /// Reads until the request that fails was made; the data read is right all the same.
    fn reads(&mut self, value: u8) {
        let (user, edge) = self.life.open("mirror/m", Access::READ).expect("open");
        for at in (0..100).flat_map(|at| [at; 3]) {
            let bytes = self.life.read(edge, at * SECTOR, SECTOR as usize).expect("read");
            assert!(bytes.iter().all(|b| *b == value), "sector {at}: {}", bytes[0]);
        }
        self.life.close(user);
        self.life.pass(100 * MS);
    }

    /// A write of data fails, when the members are already marked dirty.
    fn fails_amid_writes(&mut self, disk: &str, error: Errno) {
        let (user, edge) = self.life.open("mirror/m", Access::WRITE).expect("open");
        self.life.write(edge, 0, vec![3; SECTOR as usize]).expect("written");
        self.fails(disk, Op::Write, error);
        self.life.write(edge, 0, vec![4; SECTOR as usize]).expect("on the other");
        assert!(self.has_failed(disk));
        self.life.close(user);
        self.life.pass(100 * MS);
        let (user, edge) = self.life.open("mirror/m", Access::READ).expect("open");
        let bytes = self.life.read(edge, 0, SECTOR as usize).expect("read");
        assert_eq!(bytes, [4; SECTOR as usize]);
        self.life.close(user);
    }

    fn again(&mut self, disk: &str) {
        self.pull(disk);
        self.plug(disk);
        self.life.pass(500 * MS);
    }

    /// All of the mirror's data, as one member has it.
    fn is_on(&self, disk: &str, value: u8) -> bool {
        self.disks[disk].bytes(0, 100 * SECTOR as usize).iter().all(|b| *b == value)
    }
}

#[test]
fn mirror_9_forget_insert_stop_activate_after_a_failed_record_write() {
    let mut bench = Bench::of(3);
    bench.fill(1, true);
    let (genid, _) = bench.ids("d1");
    // The first write there is marks the members dirty.
    bench.fails("d0", Op::Write, Errno::Io);
    bench.fill(2, true);
    assert!(bench.has_failed("d0"));
    assert_eq!((bench.state("d0").as_str(), bench.ids("d1").0), ("-", genid + 1));
    bench.life.verb("mirror", "forget", "m", json!({})).expect("forgotten");
    bench.life.verb("mirror", "insert", "m", json!({ "members": ["d0"] })).expect("inserted");
    bench.life.pass(500 * MS);
    bench.life.verb("mirror", "deactivate", "m", json!({ "members": ["d0"] })).expect("out");
    bench.life.verb("mirror", "stop", "m", json!({})).expect("stopped");
    // It waits for the member that was deactivated, and starts without it.
    let waits = bench.life.verb("mirror", "start", "m", json!({})).expect_err("not at once");
    assert!(waits.message.contains("waiting for members: 2 of 3 are present"), "{waits}");
    bench.up();
    assert_eq!(bench.state("d0"), "-", "deactivated");
    bench.life.verb("mirror", "activate", "m", json!({ "members": ["d0"] })).expect("in");
    bench.life.pass(500 * MS);
    for disk in ["d0", "d1", "d2"] {
        assert_eq!(bench.state(disk), "ACTIVE", "{disk}");
        assert!(bench.is_on(disk, 2), "{disk}");
    }
    bench.holds(2);
}

#[test]
fn mirror_10_eio_on_read() {
    let mut bench = Bench::of(2);
    bench.fill(1, true);
    let (genid, _) = bench.ids("d1");
    bench.fails("d0", Op::Read, Errno::Io);
    bench.reads(1);
    assert!(bench.has_failed("d0"));
    assert_eq!((bench.state("d0").as_str(), bench.state("d1").as_str()), ("-", "ACTIVE"));
    assert_eq!((bench.ids("d0").0, bench.ids("d1").0), (genid, genid + 1));
    bench.again("d0");
    assert_eq!(bench.state("d0"), "-", "it is locked out");
}

#[test]
fn mirror_11_enxio_on_read() {
    let mut bench = Bench::of(2);
    bench.fill(1, true);
    let (genid, syncid) = bench.ids("d1");
    bench.fails("d0", Op::Read, Errno::NxIo);
    bench.reads(1);
    assert!(bench.has_failed("d0"));
    // It was released and tasted again: it is there, and lacks nothing.
    assert_eq!(bench.ids("d1").0, genid, "nobody failed");
    bench.pull("d0");
    // The syncid grows with the next write, and not before: else it may return as it is.
    assert_eq!(bench.ids("d1"), (genid, syncid));
    bench.fill(2, true);
    assert_eq!(bench.ids("d1"), (genid, syncid + 1));
    bench.again("d0");
    assert_eq!(bench.state("d0"), "ACTIVE", "it may come back");
    assert!(bench.is_on("d0", 2), "and was rebuilt");
    bench.holds(2);
}

/// M3 of mirror/state/mod.rs.
#[test]
fn mirror_12_eio_on_write() {
    let mut bench = Bench::of(2);
    bench.fill(1, true);
    let (genid, _) = bench.ids("d1");
    bench.fails_amid_writes("d0", Errno::Io);
    assert_eq!((bench.state("d0").as_str(), bench.ids("d1").0), ("-", genid + 1));
    bench.fill(2, true);
    bench.again("d0");
    assert_eq!(bench.state("d0"), "-", "it is locked out");
    bench.holds(2);
}

/// M3 of mirror/state/mod.rs.
#[test]
fn mirror_13_enxio_on_write() {
    let mut bench = Bench::of(2);
    bench.fill(1, true);
    let (genid, syncid) = bench.ids("d1");
    bench.fails_amid_writes("d0", Errno::NxIo);
    let now = bench.ids("d1");
    assert_eq!(now.0, genid, "nobody failed");
    assert!(now.1 > syncid, "and it missed a write");
    bench.fill(2, true);
    bench.again("d0");
    assert_eq!(bench.state("d0"), "ACTIVE", "it may come back");
    assert!(bench.is_on("d0", 2), "and was rebuilt");
    bench.holds(2);
}

/// With one ACTIVE member that cannot be read, the one that is being rebuilt is dropped.
/// M4 of mirror/state/mod.rs.
#[test]
fn sync_error_the_only_source_cannot_be_read() {
    let mut bench = Bench::of(2);
    bench.fill(1, true);
    bench.pull("d1");
    bench.fill(2, true);
    bench.disks["d0"].lock().faults.push((Op::Read, 100, Errno::Io));
    bench.plug("d1");
    bench.life.pass(500 * MS);
    let states = ["d0", "d1"].map(|disk| bench.state(disk));
    assert_eq!(states, ["ACTIVE", "-"], "the last one stays");
    bench.disks["d0"].lock().heal();
    bench.holds(2);
    bench.life.verb("mirror", "forget", "m", json!({})).expect("forgotten");
    bench.life.verb("mirror", "insert", "m", json!({ "members": ["d1"] })).expect("inserted");
    bench.life.pass(500 * MS);
    assert_eq!(bench.state("d1"), "ACTIVE");
    assert!(bench.is_on("d1", 2));
}

/// With two, the read is sent to the other, the member that failed it is dropped, and the rebuild
/// continues.
#[test]
fn sync_error_one_of_two_sources_cannot_be_read() {
    let mut bench = Bench::of(3);
    bench.fill(1, true);
    bench.pull("d2");
    bench.fill(2, true);
    let (genid, _) = bench.ids("d1");
    bench.fails("d0", Op::Read, Errno::Io);
    bench.plug("d2");
    bench.life.pass(500 * MS);
    assert!(bench.has_failed("d0"), "{}", bench.life.dump_state());
    let states = ["d0", "d1", "d2"].map(|disk| bench.state(disk));
    assert_eq!(states, ["-", "ACTIVE", "ACTIVE"]);
    assert_eq!(bench.ids("d1").0, genid + 1);
    assert!(bench.is_on("d2", 2));
    bench.holds(2);
}

/// FreeBSD has no such test: the one that is being rebuilt fails a write.
#[test]
fn sync_error_the_target_cannot_be_written() {
    let mut bench = Bench::of(2);
    bench.fill(1, true);
    bench.pull("d1");
    bench.fill(2, true);
    let (genid, _) = bench.ids("d0");
    bench.disks["d1"].lock().faults.push((Op::Write, 100, Errno::Io));
    bench.plug("d1");
    bench.life.pass(500 * MS);
    let states = ["d0", "d1"].map(|disk| bench.state(disk));
    assert_eq!(states, ["ACTIVE", "-"]);
    assert_eq!(bench.ids("d0").0, genid + 1, "it failed");
    bench.disks["d1"].lock().heal();
    bench.again("d1");
    assert_eq!(bench.state("d1"), "-", "and is locked out");
    bench.holds(2);
    bench.reboot(&["d1", "d0"]);
    bench.up();
    bench.holds(2);
}
