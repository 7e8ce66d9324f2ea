//! Origins of the requests below a unit: initiator, session, LUN and process.

use engine::ItNexus;

use crate::world::*;

const SYNCHRONIZE: [u8; 10] = [0x35, 0, 0, 0, 0, 0, 0, 0, 0, 0];

/// What one command's requests carry, all of them the same.
fn origin_of(w: &World, host: &Host, lun: u64, cdb: &[u8], expect_in: u32) -> bio::Origin {
    let disk = w.disks[0].1.clone();
    disk.state().origins.clear();
    w.run(host, lun, cdb, expect_in, &[]).good();
    let whose = disk.state().origins.clone();
    assert!(!whose.is_empty() && whose.iter().all(|o| *o == whose[0]), "{whose:?}");
    whose[0]
}

#[test]
fn the_origin_of_a_request_names_initiator_session_lun_and_process() {
    let mut w = World::new(1);
    w.disk("d0", 64);
    w.export("d0");
    w.map(&[(0, "d0", false), (3, "d0", false)]);
    let hosts = [w.calm(0, "i1", &[0, 3]), w.calm(1, "i2", &[0, 3])];
    let mut numbers = Vec::new();
    for (host, name) in hosts.iter().zip(["i1", "i2"]) {
        for lun in [0, 3] {
            for process in [0, 77, 78, 0, 77] {
                host.session.set_process(process);
                let read = origin_of(&w, host, lun, &read16(0, 1), BLOCK as u32);
                // A conversation carries the same.
                assert_eq!(origin_of(&w, host, lun, &SYNCHRONIZE, 0), read);
                let who = w.registry.origins().originator(read).expect("it is in the book");
                assert_eq!((who.initiator.as_str(), who.lun), (name, Some(lun)));
                assert_eq!(who.session, Some(ItNexus::number(&host.session)));
                assert_eq!(who.process, Some(process).filter(|p| *p != 0));
                numbers.push(read);
            }
        }
    }
    numbers.sort_by_key(|n| n.0);
    numbers.dedup();
    assert_eq!(numbers.len(), 2 * 2 * 3, "each has one number, and keeps it");
    hosts[0].session.close();
    let left = numbers.iter().filter(|n| w.registry.origins().originator(**n).is_some());
    assert_eq!(left.count(), 2 * 3, "who has left is out of the book");
}
