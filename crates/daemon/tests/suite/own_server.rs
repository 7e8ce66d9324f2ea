//! A disk whose server the daemon runs, from the first write to a stop.

use std::net::SocketAddr;

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
