//! Each key of a file server's section that can change while it serves is edited, and the edit is
//! undone. Clients read over the same connections all the time.

use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use rig::papers::{Good, Papers};
use rig::proc;

use crate::fixture::rounds::Rounds;
use crate::fixture::{Fixture, ninep};

/// Longest wait for a listener that closes.
const SOON: Duration = Duration::from_secs(20);

/// Exit code of `plan` when there are changes.
const PENDING: i32 = 6;

/// Keys with their values; `PLAN9` is the port of the Plan 9 client, `FREE` a free one.
const EDITS: [(&str, &str); 14] = [
    ("ahead", "7"),
    ("ahead_bytes", "65536"),
    ("connections_per_peer", "9"),
    ("console", "[\"unix:{here}/cons\"]"),
    ("create", "false"),
    ("dump_at", "\"04:00\""),
    ("fastworm", "true"),
    ("login_timeout", "60"),
    ("nodump", "true"),
    ("nonone", "true"),
    ("everybody", "\"rob\""),
    ("plan9", "[\"127.0.0.1:PLAN9\", \"127.0.0.2:PLAN9\"]"),
    ("plan9", "[\"0.0.0.0:PLAN9\"]"),
    ("plan9_tls", "[\"127.0.0.1:FREE\"]"),
];

/// The addresses of a server, its clients under load, and a free port.
struct Site {
    fixture: Fixture,
    plan9: SocketAddr,
    linux: SocketAddr,
    free: u16,
    clients: [Rounds; 2],
}

impl Site {
    /// A server that has been started, with clients.
    fn start(name: &str) -> Site {
        let mut fixture = Fixture::alone(name);
        let (plan9, linux) = (fixture.portal(), local(proc::free_port().unwrap()));
        let free = proc::free_port().unwrap();
        write(&fixture, (plan9, linux), free, None);
        fixture.start();
        fixture.ok(&["fs", "newuser", "main", "rob"]);
        let clients = [ninep::read_root(plan9, "rob"), ninep::read_root(linux, "glenda")];
        Site { fixture, plan9, linux, free, clients }
    }

    fn write(&self, edit: Option<(&str, &str)>) {
        write(&self.fixture, (self.plan9, self.linux), self.free, edit);
    }

    /// Every client reads on.
    fn reads(&self) {
        self.clients.iter().for_each(Rounds::wait_for_rounds);
    }

    fn finish(mut self) {
        for client in &mut self.clients {
            client.finish();
        }
        self.fixture.assert_alive();
        self.fixture.stop();
    }
}

fn local(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}

/// The configuration, with another value of a key.
fn write(
    fixture: &Fixture,
    (plan9, linux): (SocketAddr, SocketAddr),
    free: u16,
    edit: Option<(&str, &str)>,
) {
    let memory =
        |name: &str| format!("[[disk]]\nname = \"{name}\"\nkind = \"memory\"\nsize = \"64MiB\"\n");
    let disks: String = ["ssd", "near"].map(memory).concat();
    let mut keys = vec![
        ("console", "[\"unix:{here}/first\"]".to_owned()),
        ("create", "true".to_owned()),
        ("dump_at", "\"never\"".to_owned()),
        ("everybody", "\"glenda\"".to_owned()),
        ("linux", format!("[\"{linux}\"]")),
        ("plan9", format!("[\"{plan9}\"]")),
        ("tls_certificate", "\"{here}/cert.pem\"".to_owned()),
        ("tls_client_ca", "\"{here}/ca.pem\"".to_owned()),
        ("tls_key", "\"{here}/key.pem\"".to_owned()),
    ];
    if let Some((edited, value)) = edit {
        keys.retain(|(key, _)| *key != edited);
        let value = value.replace("PLAN9", &plan9.port().to_string());
        keys.push((edited, value.replace("FREE", &free.to_string())));
    }
    let keys: String = keys.iter().map(|(key, value)| format!("{key} = {value}\n")).collect();
    let server = "[[geom]]\nclass = \"fs\"\nname = \"main\"\nmembers = [\"ssd\", \"near\"]\n";
    fixture.write("ashlar.toml", &format!("{disks}{server}{keys}"));
}

/// The files that TLS listeners need.
fn certificates(fixture: &Fixture, name: &str) {
    let papers = Papers::new(name).unwrap();
    papers.authority("ca").unwrap();
    papers.sign("ca", "server", "localhost", "subjectAltName=IP:127.0.0.1", Good::Now).unwrap();
    for (from, to) in [
        ("ca.pem", "ca.pem"),
        ("server/server-cert.pem", "cert.pem"),
        ("server/server-key.pem", "key.pem"),
    ] {
        std::fs::copy(papers.file(from), fixture.path(to)).unwrap();
    }
}

#[test]
fn clients_read_through_every_edit_of_a_file_server_and_its_undo() {
    let site = Site::start("fs-edits");
    certificates(&site.fixture, "fs-edits-papers");
    for (key, value) in EDITS {
        site.write(Some((key, value)));
        let planned = site.fixture.ashlar(&["plan"]).ends(PENDING);
        // Clients of `linux` return as another user.
        let risk = if key == "everybody" { "disruptive: 127.0.0.1" } else { "safe" };
        planned.prints(&["change geom main (fs)", key, risk]).lacks(&["remove"]);
        site.fixture.ashlar(&["apply"]).ends(0);
        site.fixture.ashlar(&["plan"]).ends(0).prints(&["no changes"]);
        site.reads();
        if key == "plan9_tls" {
            TcpStream::connect(local(site.free)).unwrap();
        }
        site.fixture.ashlar(&["undo"]).ends(0).prints(&["change geom main (fs)"]);
        site.reads();
    }
    let closed = || TcpStream::connect(local(site.free)).is_err();
    site.fixture.until("the undone listener is closed", SOON, closed);
    site.finish();
}

#[test]
fn client_of_a_removed_listener_is_named_and_reads_on() {
    let site = Site::start("fs-removed");
    site.write(Some(("plan9", "[\"127.0.0.2:PLAN9\"]")));
    let planned = site.fixture.ashlar(&["plan"]).ends(PENDING);
    planned.prints(&["change geom main (fs)", "plan9", "disruptive: 127.0.0.1"]);
    site.fixture.ashlar(&["apply"]).ends(0);
    site.reads();
    let is_closed = || ninep::attach(site.plan9, "rob").is_err();
    site.fixture.until("the listener is closed", SOON, is_closed);
    let moved = SocketAddr::from(([127, 0, 0, 2], site.plan9.port()));
    assert!(ninep::attach(moved, "rob").unwrap().is_ok());
    site.fixture.ashlar(&["undo"]).ends(0);
    site.reads();
    assert!(ninep::attach(site.plan9, "rob").unwrap().is_ok());
    site.write(Some(("noattach", "true")));
    let planned = site.fixture.ashlar(&["plan"]).ends(PENDING);
    planned.prints(&["noattach", "disruptive: 127.0.0.1"]);
    site.fixture.ashlar(&["apply"]).ends(0);
    assert!(ninep::attach(site.plan9, "rob").unwrap().is_err());
    site.reads();
    site.finish();
}
