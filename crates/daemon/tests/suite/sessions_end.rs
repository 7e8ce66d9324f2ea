//! `sessions end` on the session of an NBD client: its connection closes, and it may return.

use std::io::{Read, Write};
use std::net::TcpStream;

use mgmt::api::{Kind, SessionState};
use mgmt::verbs::{Run, find};
use serde_json::{Value, json};

use crate::by_hand::Site;

const SECTIONS: &str = "[[disk]]\nname = 'm0'\nkind = 'memory'\nsize = '1MiB'\n\
    [[target]]\ndriver = 'nbd'\nname = 'n'\nlisten = ['127.0.0.1:0']\n\
    [[access]]\ntarget = 'n'\ngroup = 'g'\ninitiators = ['*']\nluns = { 0 = 'm0' }\n";

/// Option NBD_OPT_EXPORT_NAME of the NBD protocol.
const EXPORT_NAME: u32 = 1;
const IHAVEOPT: &[u8; 8] = b"IHAVEOPT";

/// A client that has chosen the export `0`.
fn client(site: &Site) -> TcpStream {
    let state = site.control.state().expect("a state");
    let portal = &state.targets[0].portals[0];
    let mut stream = TcpStream::connect(portal).expect("a listener");
    let mut greeting = [0; 18];
    stream.read_exact(&mut greeting).expect("a greeting");
    // Fixed newstyle, without zeroes.
    let mut request = 3_u32.to_be_bytes().to_vec();
    request.extend(IHAVEOPT);
    request.extend(EXPORT_NAME.to_be_bytes());
    request.extend(1_u32.to_be_bytes());
    request.extend(b"0");
    stream.write_all(&request).expect("sent");
    let mut size_and_flags = [0; 10];
    stream.read_exact(&mut size_and_flags).expect("it is admitted");
    assert_eq!(size_and_flags[..8], (1_u64 << 20).to_be_bytes());
    stream
}

/// The sessions, once there are so many.
fn sessions(site: &Site, count: usize) -> Vec<SessionState> {
    let now = || -> Vec<SessionState> {
        let state = site.control.state().expect("a state");
        state.sessions().map(|(_, session)| session.clone()).collect()
    };
    let found = (0..10_000).map(|_| now()).find(|all| all.len() == count);
    found.unwrap_or_else(|| panic!("not {count} sessions: {:?}", now()))
}

fn end(site: &Site, params: Value) -> mgmt::api::Result<Value> {
    let Some(Run::Daemon(run)) = find("sessions.end").map(|verb| verb.run) else {
        panic!("the daemon has no such verb");
    };
    let answer = run(&site.control, params, &mut |_| {})?;
    Ok(serde_json::from_str(&answer).expect("JSON"))
}

#[test]
fn ended_session_is_closed_and_its_client_may_return() {
    let site = Site::new("sessions-end", SECTIONS);
    let (mut first, mut second) = (client(&site), client(&site));
    let all = sessions(&site, 2);
    let [one, two] = all.as_slice() else { panic!("{all:?}") };
    assert!(one.id != two.id && one.portal.starts_with("127.0.0.1:"), "{all:?}");
    let from = first.local_addr().expect("an address").to_string();
    let id = all.iter().find(|s| s.address == from).expect("its session").id;

    let refused = end(&site, json!({ "id": id.to_string() })).expect_err("it needs consent");
    assert_eq!(refused.kind, Kind::Usage);
    assert!(refused.source.contains("disruptive: ip:127.0.0.1"), "{refused}");
    assert!(refused.source.contains("0 (m0)"), "{refused}");
    sessions(&site, 2);

    let answer = end(&site, json!({ "id": id.to_string(), "yes": true })).expect("it ends");
    assert_eq!(answer["ended"], true, "{answer}");
    let mut rest = Vec::new();
    // A reset is an end, too.
    let _ = first.read_to_end(&mut rest);
    assert!(rest.is_empty(), "{rest:?}");
    let left = sessions(&site, 1);
    assert_ne!(left[0].id, id, "only one session ends: {left:?}");
    let again = end(&site, json!({ "id": id.to_string(), "yes": true })).expect_err("it is gone");
    assert_eq!(again.kind, Kind::NotFound);
    let events = site.control.plant().journal(0, 1000);
    let text = format!("session {id} of ip:127.0.0.1 at {from} was ended by hand");
    assert!(events.iter().any(|event| event.text == text && event.about == "n"), "{events:?}");

    let third = client(&site);
    // The client may log in again.
    sessions(&site, 2);
    // NBD_CMD_DISC.
    let mut goodbye = [0; 28];
    goodbye[..4].copy_from_slice(&0x2560_9513_u32.to_be_bytes());
    goodbye[7] = 2;
    second.write_all(&goodbye).expect("the other session lives");
    drop(third);
}
