//! Redirected targets: logins are sent to another portal (RFC 7143 section 11.13.5, class 1).

use drivers::TargetSpec;
use serde_json::json;

use super::{Fixture, login_keys};
use crate::iscsi::server::{IQN, Server, Shape};

fn moved(to: &str, permanent: bool) -> TargetSpec {
    let params = json!({ "redirect": to, "redirect_permanent": permanent });
    TargetSpec { params, ..TargetSpec::default() }
}

#[test]
fn login_to_a_moved_target_is_redirected() {
    let mut fixture = Fixture::new();
    for (permanent, code) in [(false, 0x0101), (true, 0x0102)] {
        fixture.server.set(moved("[fd00::2]:3261,1", permanent));
        let mut raw = fixture.dial();
        let (answer, text) = raw.ask(0x87, &login_keys()).unwrap();
        assert_eq!(answer.status.code(), code);
        assert_eq!(text, "TargetAddress=[fd00::2]:3261,1\0");
        assert!(raw.is_closed());
    }
    // An initiator without access gets no redirection: it is as if there were no such target.
    fixture.server.allow(&["iqn.2026-11.test.ashlar:witness"]);
    assert_eq!(fixture.dial().status(0x87, &login_keys()), 0x0203);
    // A session that was there stays; without a redirection logins are served again.
    fixture.server.allow(&["*"]);
    fixture.well("a redirection");
    fixture.server.set(TargetSpec::default());
    fixture.client().logout();
    fixture.well("the end of a redirection");
}

#[test]
fn libiscsi_follows_a_temporary_redirection() {
    // sahlberg/libiscsi 19.
    rig::packages::ensure_host().unwrap();
    let destination = Server::start(Shape::default());
    let source = Server::start(Shape::default());
    source.set(moved(&format!("{},1", destination.portal), false));
    let url = format!("iscsi://{}/{IQN}/0", source.portal);
    assert!(rig::peer::iscsi_inq(&url, None).unwrap().contains("DIRECT_ACCESS"));
    // For good it does not, and reports where it stopped.
    source.set(moved(&format!("{},1", destination.portal), true));
    let refused = rig::peer::iscsi_inq(&url, None).unwrap_err();
    assert!(format!("{refused:#}").contains("moved permanently"), "{refused:#}");
    assert!(source.registry.sessions().is_empty());
}
