//! The end of a daemon with several file servers.

use std::time::Duration;

use super::plant::Plant;

/// Two servers that serve.
fn two_servers(seed: u64) -> Plant {
    let mut plant = Plant::new(seed, false);
    plant.add_server("other", false, "10.0.0.1:565", &[("cache2", 32), ("worm2", 64)]);
    plant
}

/// F2 of service/mod.rs.
#[test]
fn file_servers_whose_disks_hang_share_one_deadline() {
    let mut plant = two_servers(71);
    plant.hold(true);
    let took = plant.halt_all();
    assert!(plant.holds_some(), "their last writes hang");
    // One server alone takes 25 s or more.
    let range = Duration::from_secs(20)..Duration::from_secs(40);
    assert!(range.contains(&took), "{took:?}");
    plant.hold(false);
    plant.wait(1);
}

#[test]
fn file_servers_whose_disks_answer_stop_at_once() {
    let took = two_servers(72).halt_all();
    assert!(took < Duration::from_secs(5), "{took:?}");
}
