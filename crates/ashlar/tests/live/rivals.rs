//! Hosts that have one name.

use crate::fixture::{Fixture, IQN, file_disk};
use testkit::iscsi::initiator::Client;

#[test]
fn hosts_that_share_an_initiator_name_are_reported() {
    let mut fixture = Fixture::alone("rivals");
    fixture.image("d0.img", 1 << 20);
    fixture.configure(&file_disk("d0", "d0.img"), "0 = \"d0\"");
    let address =
        std::net::SocketAddr::from((std::net::Ipv6Addr::LOCALHOST, fixture.portal().port()));
    let config = std::fs::read_to_string(fixture.path("ashlar.toml")).unwrap();
    let listen = format!("listen = [\"{address}\", ");
    fixture.write("ashlar.toml", &config.replace("listen = [", &listen));
    fixture.start();
    let name = "iqn.2026-11.test:clone";
    let mut sessions = Vec::new();
    for round in 0..3 {
        sessions.push(Client::session(fixture.portal(), name, IQN).unwrap());
        if round < 2 {
            fixture.ashlar(&["status"]).ends(0);
        }
        sessions.push(Client::session(address, name, IQN).unwrap());
    }
    let status = fixture.ashlar(&["status"]).ends(3);
    status.prints(&[name, "127.0.0.1", "::1", "InitiatorName", "times"]);
    let state = fixture.state();
    assert_eq!(state["rivals"][0]["initiator"], name, "{state}");
}
