//! Disks of a virtual HBA in the graph: discovery, names, use, loss and reported attributes.

use bio::{Attr, Errno, Flags, Op};
use cam::sims::hba::{DiskSpec, Faults, Transport, VirtualHba};
use cam::{Event, Path};
use reactor::SeededRandom;
use reactor::model::{DiskShape, Timing};

use crate::world::{self, World};

fn spec(serial: &str, size: u64) -> DiskSpec {
    DiskSpec {
        vendor: "ATA".into(),
        model: "INTEL SSDSC2CW12".into(),
        revision: "400i".into(),
        serial: serial.into(),
        shape: DiskShape {
            size,
            timing: Timing::Between { min_ns: 10_000, max_ns: 200_000 },
            ..DiskShape::default()
        },
        ..DiskSpec::default()
    }
}

#[test]
fn two_hbas_are_listed_as_camcontrol_lists_them() {
    let sas = VirtualHba::new("mps0", Transport::Sas, 22);
    let sata = VirtualHba::new("ahcich0", Transport::Sata, 16);
    for bay in 0..4u64 {
        sas.plug(bay, spec(&format!("S{bay}"), 1 << 20), bay).unwrap();
        let ssd =
            DiskSpec { model: "INTEL SSDSC2CW120A3".into(), ..spec(&format!("A{bay}"), 1 << 20) };
        sata.plug(bay, ssd, bay).unwrap();
    }
    let mut w = World::new(1, &[sas, sata]);
    assert_eq!(w.scan(0), ["da0", "da1", "da2", "da3"]);
    assert_eq!(w.scan(1), ["ada0", "ada1", "ada2", "ada3"]);
    assert_eq!(w.scan(0), [""; 0], "nothing is new");
    let list = w.buses.iter().map(|bus| bus.devlist(true, 0)).collect::<String>();
    let want = "\
scbus0 on mps0 bus 0:
<ATA INTEL SSDSC2CW12 400i>        at scbus0 target 0 lun 0 (pass0,da0)
<ATA INTEL SSDSC2CW12 400i>        at scbus0 target 1 lun 0 (pass1,da1)
<ATA INTEL SSDSC2CW12 400i>        at scbus0 target 2 lun 0 (pass2,da2)
<ATA INTEL SSDSC2CW12 400i>        at scbus0 target 3 lun 0 (pass3,da3)
<>                                 at scbus0 target -1 lun -1 ()
scbus1 on ahcich0 bus 0:
<INTEL SSDSC2CW120A3 400i>         at scbus1 target 0 lun 0 (ada0,pass4)
<INTEL SSDSC2CW120A3 400i>         at scbus1 target 1 lun 0 (ada1,pass5)
<INTEL SSDSC2CW120A3 400i>         at scbus1 target 2 lun 0 (ada2,pass6)
<INTEL SSDSC2CW120A3 400i>         at scbus1 target 3 lun 0 (ada3,pass7)
<>                                 at scbus1 target -1 lun -1 ()
";
    assert_eq!(list, want);
}

#[test]
fn attributes_of_a_disk_are_attributes_of_its_provider() {
    let hba = VirtualHba::new("mps0", Transport::Sas, 2);
    let disk = DiskSpec { rotation: 7200, wwn: 0x5000_c500_0681_2d23, ..spec("3QK0A63P", 1 << 20) };
    hba.plug(1, disk, 1).unwrap();
    let mut w = World::new(2, &[hba]);
    w.scan(0);
    let t = &w.control.topology;
    let p = t.find("da0").unwrap();
    let text = |name| match t.attr(p, name) {
        Some(Attr::Text(text)) => text,
        other => panic!("{name}: {other:?}"),
    };
    assert_eq!(text("GEOM::ident"), "3QK0A63P");
    assert_eq!(text("GEOM::descr"), "ATA INTEL SSDSC2CW12");
    assert_eq!(text("GEOM::lunid"), "6000c50006812d230000000000000000");
    assert_eq!(text("GEOM::physpath"), "mps0@scbus0 target 1 lun 0");
    assert_eq!(t.attr(p, "GEOM::rotation_rate"), Some(Attr::Int(7200)));
    assert_eq!(t.attr(p, "GEOM::candelete"), Some(Attr::Int(1)));
    let limits = t.limits(p).unwrap();
    assert_eq!((limits.media_bytes, limits.sector_bytes), (1 << 20, 512));
    assert_eq!((limits.io_max_bytes, limits.delete_max_bytes), (1 << 20, 32 << 20));
    assert_eq!(t.physical_sector(p), t.stripe(p).0, "that of READ CAPACITY (16)");
}

#[test]
fn scsi_and_ata_disks_agree_with_a_byte_array_model() {
    for (seed, transport, sector, cache) in [
        (1, Transport::Sas, 512, true),
        (2, Transport::Sas, 4096, false),
        (3, Transport::Sata, 512, true),
        (4, Transport::Sata, 4096, false),
    ] {
        let mut disk = spec("S", 4 << 20);
        (disk.shape.sector, disk.shape.volatile_cache) = (sector, cache);
        let (mut w, _hba, edge) = World::of_disk(seed, transport, disk);
        let mut random = SeededRandom::new(seed);
        let mut model = vec![0u8; 4 << 20];
        let unit = u64::from(sector);
        for n in 0..300u64 {
            let sectors = (4 << 20) / unit;
            let at = random.below(sectors);
            let most = if random.below(20) == 0 { 3000 } else { 40 };
            let count = (1 + random.below(most)).min(sectors - at);
            let here = (at * unit) as usize..((at + count) * unit) as usize;
            let len = here.len();
            match random.below(8) {
                0..3 => {
                    let flags = if n % 3 == 0 { Flags::FUA } else { Flags::NONE };
                    let bytes: Vec<u8> = (0..len).map(|i| (i / 512) as u8 ^ n as u8 | 1).collect();
                    assert_eq!(w.write(edge, at * unit, &bytes, flags), Ok(()));
                    model[here].copy_from_slice(&bytes);
                }
                3..6 => {
                    let found = w.read(edge, at * unit, len).unwrap();
                    assert!(found == model[here], "seed {seed}, operation {n}");
                }
                6 => {
                    assert_eq!(w.plain(edge, Op::Delete, at * unit, len as u64), Ok(()));
                    model[here].fill(0);
                }
                _ => assert_eq!(w.plain(edge, Op::Flush, 0, 0), Ok(())),
            }
        }
        assert_eq!(w.plain(edge, Op::WriteZeroes, 0, 4096), Err(Errno::NotSup));
        assert_eq!(w.plain(edge, Op::Map, 0, 4096), Err(Errno::NotSup));
    }
}

#[test]
fn a_removed_disk_is_lost_and_may_be_replaced() {
    let hba = VirtualHba::new("mps0", Transport::Sas, 2);
    hba.plug(0, spec("S0", 1 << 20), 1).unwrap();
    hba.plug(1, spec("S1", 1 << 20), 2).unwrap();
    let mut w = World::new(3, std::slice::from_ref(&hba));
    w.scan(0);
    let (_, edge) = w.open("da0");
    let (_, other) = w.open("da1");
    hba.set_present(0, false);
    for n in 0..20 {
        let data = w.buffer(512);
        w.start(edge, n, |bio| world::range(bio, Op::Read, 0, data));
    }
    let end = w.now() + 60_000_000_000;
    let mut ended = Vec::new();
    while ended.len() < 20 {
        assert!(w.now() < end);
        assert!(w.read(other, 0, 512).is_ok(), "others are not disturbed");
        ended.extend(w.ended());
        w.turn(100_000_000);
        ended.extend(w.ended());
    }
    assert!(ended.iter().all(|e| e.status == Err(Errno::NxIo)));
    assert!(w.control.topology.find("da0").is_none(), "the provider is gone");
    assert!(w.buses[0].events().contains(&(Path::new(0, 0, 0), Event::LostDevice)));
    // Another disk, which is smaller.
    hba.plug(0, spec("S9", 1 << 19), 9).unwrap();
    let names = w.scan(0);
    assert_eq!(names, ["da2"], "somebody still has da0 open");
    let (_, edge) = w.open("da2");
    assert!(w.read(edge, 0, 512).is_ok());
    let list = w.buses[0].devlist(true, 0);
    assert_eq!(list.lines().count(), 4, "{list}");
}

#[test]
fn a_replacement_at_the_same_address_is_a_different_disk() {
    let (mut w, hba, edge) = World::of_disk(4, Transport::Sata, spec("S0", 1 << 20));
    hba.plug(0, spec("S1", 1 << 20), 2).unwrap();
    let names = w.scan(0);
    assert_eq!(names.len(), 1);
    assert_eq!(w.write(edge, 0, &[7; 512], Flags::NONE), Err(Errno::NxIo));
    let (_, new) = w.open(&names[0]);
    assert_eq!(w.read(new, 0, 512), Ok(vec![0; 512]));
}

#[test]
fn a_stopped_disk_is_started_and_a_hanging_one_is_reset() {
    let (mut w, hba, edge) = World::of_disk(5, Transport::Sas, spec("S0", 1 << 20));
    hba.stop(0);
    let start = w.now();
    assert_eq!(w.write(edge, 0, &[7; 512], Flags::NONE), Ok(()));
    let took = (w.now() - start) / 1_000_000;
    assert!((1500..3000).contains(&took), "START UNIT and three looks: {took} ms");
    // Each hangs, and aborts are not answered: after 30 s and 5 s the disk is reset.
    hba.set_faults(0, Faults { hangs: 100, deaf: 100, ..Faults::default() });
    let data = w.buffer(512);
    w.start(edge, 1, |bio| world::range(bio, Op::Read, 0, data));
    let start = w.now();
    while w.buses[0].events().iter().all(|(_, e)| *e != Event::SentBdr) {
        w.turn(1_000_000_000);
    }
    hba.set_faults(0, Faults::default());
    let mut ended = Vec::new();
    while ended.is_empty() {
        w.turn(1_000_000_000);
        ended = w.ended();
    }
    let took = (w.now() - start) / 1_000_000_000;
    assert!((34..60).contains(&took), "{took} s");
    assert!(ended[0].status.is_ok() && ended[0].bytes == [7; 512], "its victim lost nothing");
}

#[test]
fn a_controller_reset_under_a_deep_queue_uses_up_no_retry() {
    for (transport, name) in [(Transport::Sas, "da"), (Transport::Sata, "ada")] {
        let hba = VirtualHba::new("hba0", transport, 2);
        (0..2).for_each(|bay| hba.plug(bay, spec(&format!("S{bay}"), 1 << 20), bay).unwrap());
        let mut w = World::new(8, std::slice::from_ref(&hba));
        w.scan(0);
        let edges = [0, 1].map(|n| w.open(&format!("{name}{n}")).1);
        for round in 0..20u64 {
            for n in 0..128 {
                let data = w.buffer(4096);
                data.copy_from(0, &[round as u8 + 1; 4096]);
                let bio = |bio: &mut bio::Bio| {
                    world::range(bio, Op::Write, n / 2 * 4096, data);
                };
                w.start(edges[n as usize % 2], n, bio);
            }
            w.turn(20_000 * round);
            let under_way = hba.under_way(0) + hba.under_way(1);
            assert!(round > 0 || under_way >= 32, "{under_way}");
            // Two that overlap, of which now the one and now the other is the longer.
            hba.reset_bus(3_000_000 * (round % 4), &w.core);
            w.turn(1_000_000);
            hba.reset_bus(5_000_000, &w.core);
            let (mut ended, end) = (Vec::new(), w.now() + 10_000_000_000);
            while ended.len() < 128 {
                assert!(w.now() < end, "{transport:?}: {} of 128", ended.len());
                w.turn(10_000_000);
                ended.extend(w.ended());
            }
            let failed = ended.iter().filter(|e| e.status.is_err()).count();
            assert_eq!(
                (failed, hba.commands_during_reset()),
                (0, 0),
                "{transport:?}, round {round}"
            );
        }
        w.turn(1_000_000_000);
        // A device without commands in flight has no victim that reports the reset. It waits as
        // well, longer than a disk settles.
        for edge in edges {
            hba.reset_bus(500_000_000, &w.core);
            assert_eq!(w.write(edge, 0, &[20; 4096], Flags::NONE), Ok(()));
            assert_eq!(hba.commands_during_reset(), 0, "{transport:?}");
            w.turn(1_000_000_000);
        }
        for (unit, ..) in w.buses[0].devices() {
            let (counts, freezes) = unit.inspect(|device| (device.counts(), device.freezes()));
            assert_eq!((counts.retries, counts.timeouts), (0, 0), "{transport:?}");
            assert!(counts.requeues > 0);
            assert_eq!(freezes.0, freezes.1);
        }
        assert!(w.buses[0].events().iter().any(|(_, event)| *event == Event::BusReset));
        for edge in edges {
            assert_eq!(w.read(edge, 0, 64 * 4096).unwrap(), vec![20; 64 * 4096]);
        }
    }
}

/// P2 of periph/disk.rs, P3 of periph/disk.rs.
#[test]
fn a_flush_after_a_loss_of_power_fails_once() {
    for transport in [Transport::Sas, Transport::Sata] {
        let (mut w, hba, edge) = World::of_disk(6, transport, spec("S0", 1 << 20));
        assert_eq!(w.plain(edge, Op::Flush, 0, 0), Ok(()), "nothing was written");
        assert_eq!(w.write(edge, 0, &[1; 4096], Flags::NONE), Ok(()));
        assert_eq!(w.plain(edge, Op::Flush, 0, 0), Ok(()));
        assert_eq!(w.write(edge, 0, &[2; 4096], Flags::NONE), Ok(()));
        hba.power_cut(0);
        assert_eq!(w.plain(edge, Op::Flush, 0, 0), Err(Errno::Io), "{transport:?}");
        assert_eq!(w.plain(edge, Op::Flush, 0, 0), Ok(()), "it was said");
        assert_eq!(w.write(edge, 0, &[3; 4096], Flags::FUA), Ok(()));
        hba.power_cut(0);
        assert_eq!(w.read(edge, 0, 4096), Ok(vec![3; 4096]));
    }
}

#[test]
fn a_disk_that_reports_its_growth_is_resized() {
    let (mut w, hba, edge) = World::of_disk(7, Transport::Sas, spec("S0", 1 << 20));
    hba.resize(0, 2 << 20);
    assert!(w.read(edge, 0, 512).is_ok(), "the attention costs nothing but a try");
    let p = w.control.topology.find("da0").unwrap();
    for _ in 0..100 {
        w.turn(10_000_000);
    }
    assert_eq!(w.control.topology.limits(p).map(|l| l.media_bytes), Some(2 << 20));
    assert_eq!(w.write(edge, (2 << 20) - 512, &[1; 512], Flags::NONE), Ok(()));
}

#[test]
fn a_size_change_that_is_not_reported_is_found_by_a_scan() {
    let (mut w, hba, edge) = World::of_disk(7, Transport::Sata, spec("S0", 1 << 20));
    let size = |w: &World| {
        let p = w.control.topology.find("ada0").unwrap();
        w.control.topology.limits(p).map(|l| l.media_bytes)
    };
    for bytes in [2 << 20, 1 << 19] {
        hba.resize(0, bytes);
        w.scan(0);
        w.turn(10_000_000);
        assert_eq!(size(&w), Some(bytes));
        assert_eq!(w.write(edge, bytes - 512, &[1; 512], Flags::NONE), Ok(()));
    }
}
