//! Repeated resets of disks while initiators write, read back and compare through the daemon: disks
//! of a virtual HBA, and one of another target. The initiators do not notice a reset.

use std::process::Command;
use std::time::{Duration, Instant};

use rig::peer::{Store, Tgt, TgtConfig};
use rig::proc::{self, Proc};

use crate::fixture::Fixture;
use crate::fixture::load::Load;

const BYTES: u64 = 16 << 20;
/// How long a disk is reset again and again.
const STORM: Duration = Duration::from_secs(8);
/// Between two resets: a disk settles for a tenth of a second after each, and gets nothing.
const PAUSE: Duration = Duration::from_millis(250);
/// Fewest rounds of a load beside it, and fewest resets.
const ROUNDS: u64 = 20;
const RESETS: u64 = 10;

/// Many writes of a unit at a time, which have to end well.
fn many(fixture: &Fixture, lun: u64) -> Proc {
    let mut command = Command::new(proc::tool("qemu-img").unwrap());
    command.args(["bench", "-c", "100000000", "-s", "4096", "-S", "12288", "-d", "16", "-w"]);
    command.args(["-f", "raw", "-t", "none"]).arg(fixture.url(lun));
    Proc::start("qemu-img bench", &mut command, &fixture.path("bench.log")).unwrap()
}

/// Resets what `words` name, over and over, under load; then all is as before.
fn storm(fixture: &mut Fixture, words: &[&str]) {
    let load = Load::start(&fixture.url(0), BYTES);
    let mut bench = many(fixture, 1);
    let (before, start, mut resets) = (load.rounds(), Instant::now(), 0);
    while start.elapsed() < STORM {
        for on in words {
            fixture.ok(&["cam", "reset", on]);
            resets += 1;
            std::thread::sleep(PAUSE);
        }
        assert!(bench.ended().unwrap().is_none(), "the writes beside it failed");
    }
    let rounds = load.rounds() - before;
    assert!(rounds >= ROUNDS && resets >= RESETS, "{rounds} rounds, {resets} resets");
    load.finish();
    assert!(bench.ended().unwrap().is_none(), "the writes beside it failed");
    drop(bench);
    let tags = &fixture.json(&["cam", "tags", "da0"])["answer"];
    assert_eq!((&tags["active"], &tags["held"]), (&0.into(), &0.into()), "{tags}");
    fixture.assert_alive();
}

#[test]
fn resets_of_a_virtual_disk_and_its_bus_cause_no_error() {
    let mut fixture = Fixture::new("cam-resets");
    let bus = "[[bus]]\nname = \"mps0\"\nkind = \"virtual\"\ndisks = 2\nsize = \"16MiB\"\n";
    fixture.configure(bus, "0 = \"da0\", 1 = \"da1\"");
    fixture.start();
    storm(&mut fixture, &["da0", "0", "0:1:0", "all"]);
}

#[test]
fn resets_of_an_iscsi_disk_cause_no_error() {
    let mut fixture = Fixture::new("cam-resets-iscsi");
    let disks = ["0", "1"].map(|n| fixture.image(&format!("tgt{n}.img"), BYTES));
    let [one, two] = disks.map(|disk| Tgt::start(TgtConfig::new(Store::File(disk))).unwrap());
    let bus = |name: &str, tgt: &Tgt| {
        format!(
            "[[bus]]\nname = \"{name}\"\nkind = \"iscsi\"\nportals = [\"{}\"]\ntarget = \"{}\"\n\
             initiator = \"iqn.2026-11.test.ashlar:initiator\"\n",
            tgt.target().portal,
            tgt.target().iqn
        )
    };
    let buses = [bus("iscsi0", &one), bus("iscsi1", &two)].concat();
    fixture.configure(&buses, "0 = \"da0\", 1 = \"da1\"");
    fixture.start();
    storm(&mut fixture, &["da0", "da1"]);
}
