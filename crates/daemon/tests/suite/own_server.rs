//! A disk whose server the daemon runs, from the first write to a stop.

use std::net::SocketAddr;

use mgmt::plan::{Action, Risk};
use rig::proc::{Scratch, free_port};
use testkit::nbd::Client;
use wire::nbd::Form;
use wire::nbd::codes::kind;

use crate::by_hand::Site;

#[test]
fn stop_flushes_the_server_of_a_disk_before_it_ends_the_server() {
    rig::packages::ensure_host().expect("nbdkit");
    let scratch = Scratch::new("own-server").expect("a folder");
    let log = scratch.path().join("log");
    let at = SocketAddr::from(([127, 0, 0, 1], free_port().expect("a port")));
    let text = format!(
        "[[disk]]\nname = 'n0'\nkind = 'nbd'\n\
         command = ['nbdkit', '--filter=log', 'memory', '16M', 'logfile={}']\n\
         [[target]]\ndriver = 'nbd'\nname = 't'\nlisten = ['{at}']\n\
         [[access]]\ntarget = 't'\ngroup = 'g'\ninitiators = ['*']\nluns = {{ 0 = 'n0' }}\n",
        log.display()
    );
    let site = Site::new("own-server", &text);
    let mut client = Client::enter(at, Form::Simple, "0");
    let answer = client.ask(kind::WRITE, 0, 0, 512, &[7; 512]);
    assert_eq!(answer.error, None);
    drop(client);
    drop(site);
    let log = std::fs::read_to_string(&log).expect("a log");
    let (written, flushed) = (log.rfind(" Write id="), log.rfind(" Flush id="));
    assert!(written.is_some() && flushed > written, "{log}");
}

/// The server has its data in memory: a disk that is removed and added has lost it.
#[test]
fn live_keys_of_a_disk_change_and_return_under_its_clients() {
    rig::packages::ensure_host().expect("nbdkit");
    let at = SocketAddr::from(([127, 0, 0, 1], free_port().expect("a port")));
    let text = |keys: &str| {
        format!(
            "[[disk]]\nname = 'n0'\nkind = 'nbd'\ncommand = ['nbdkit', 'memory', '16M']\n{keys}\
             [[target]]\ndriver = 'nbd'\nname = 't'\nlisten = ['{at}']\n\
             [[access]]\ntarget = 't'\ngroup = 'g'\ninitiators = ['*']\nluns = {{ 0 = 'n0' }}\n"
        )
    };
    let site = Site::new("live-keys", &text(""));
    let mut client = Client::enter(at, Form::Simple, "0");
    assert_eq!(client.ask(kind::WRITE, 0, 0, 512, &[7; 512]).error, None);
    let edited = text("timeout_s = 5\nretries = 2\nconnections = 1\ndeadline_s = 9\n");
    for text in [edited, text("")] {
        let desired = site.read(&text);
        let steps = site.control.plan(&desired).expect("a plan").steps;
        let is_live = matches!(steps[0].action, Action::ModifyDisk { .. });
        assert!(is_live && steps.len() == 1 && steps[0].risk == Risk::Safe, "{steps:?}");
        site.apply(&desired);
        assert_eq!(client.ask(kind::READ, 0, 0, 512, &[]).bytes(0), [7; 512]);
    }
}
