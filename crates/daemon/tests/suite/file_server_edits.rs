//! Edits of the section of a file server under a host on a file that is a disk, and under a client
//! that is connected. Each is one step that names its key, and nothing is removed.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};

use mgmt::Consent;
use mgmt::plan::Risk;
use rig::papers::{Good, Papers};
use rig::proc::free_port;
use serde_json::json;
use testkit::nbd::Client;
use testkit::wait::until;
use wire::nbd::Form;
use wire::nbd::codes::kind;

use crate::by_hand::Site;

/// Keys that change without any client noticing.
const EDITS: [(&str, &str); 13] = [
    ("ahead", "ahead = 7"),
    ("ahead_bytes", "ahead_bytes = 65536"),
    ("connections_per_peer", "connections_per_peer = 9"),
    ("console", "console = ['unix:HERE/cons']"),
    ("dump_at", "dump_at = '04:00'"),
    ("dump_at", "dump_at = 'never'"),
    ("everybody", "everybody = 'glenda'"),
    ("fastworm", "fastworm = true"),
    ("linux", "linux = ['127.0.0.1:0']"),
    ("login_timeout", "login_timeout = 60"),
    ("memory", "memory = 16777216"),
    ("nodump", "nodump = true"),
    ("nonone", "nonone = true"),
];

/// A file server at these addresses, with a file that is a disk and exported.
fn text(plan9: &[String], edit: &str) -> String {
    let disk = |name: &str| format!("[[disk]]\nname = '{name}'\nkind = 'memory'\nsize = '32MiB'\n");
    let disks = disk("cache") + &disk("worm");
    format!(
        "{disks}[[geom]]\nclass = 'fs'\nname = 'f'\nmembers = ['cache', 'worm']\ncreate = true\n\
         plan9 = {plan9:?}\ndisks = {{ vm0 = '/vm0' }}\n{edit}\n\
         [[target]]\ndriver = 'nbd'\nname = 't'\nlisten = ['127.0.0.1:0']\n\
         [[access]]\ntarget = 't'\ngroup = 'g'\ninitiators = ['*']\nluns = {{ 0 = 'vm0' }}\n"
    )
}

/// The daemon, and the port of its file server.
fn site(name: &str) -> (Site, u16) {
    let port = free_port().expect("a port");
    let text = text(&[format!("127.0.0.1:{port}")], "");
    let (served, _) = text.split_once("disks = ").expect("the key");
    let site = Site::new(name, served);
    // The file is made before it is exported.
    site.verb("fs", "disk", &json!({ "name": "f", "path": "/vm0", "size": 1 << 20 }));
    site.apply(&site.read(&text));
    (site, port)
}

/// A step of a plan: what it does, why, and its risk.
fn steps(site: &Site, text: &str) -> Vec<(String, String, Risk, Vec<String>)> {
    let plan = site.control.plan(&site.read(text)).expect("a plan");
    plan.steps.into_iter().map(|step| (step.what, step.why, step.risk, step.hosts)).collect()
}

/// The target's host, which writes and reads in its first connection.
struct Host(Client, u8);

impl Host {
    fn connect(site: &Site) -> Host {
        let state = site.control.plant().state().expect("a state");
        let at: SocketAddr = state.targets[0].portals[0].parse().expect("an address");
        Host(Client::enter(at, Form::Simple, "0"), 0)
    }

    fn work(&mut self, what: &str) {
        self.1 += 1;
        let data = [self.1; 4096];
        assert_eq!(self.0.ask(kind::WRITE, 0, 0, 4096, &data).error, None, "{what}");
        assert_eq!(self.0.ask(kind::READ, 0, 0, 4096, &[]).bytes(0), data, "{what}");
    }
}

/// Tversion and its answer.
fn answers(client: &mut TcpStream) -> bool {
    let version = b"\x13\0\0\0\x64\xff\xff\0\x20\0\0\x06\0\x39P2000";
    let mut answer = [0; 19];
    client.write_all(version).is_ok() && client.read_exact(&mut answer).is_ok() && answer[4] == 101
}

#[test]
fn edit_of_a_file_server_is_one_safe_step_under_hosts_of_its_files() {
    let (site, port) = site("fs-edits");
    let at = [format!("127.0.0.1:{port}")];
    let mut host = Host::connect(&site);
    host.work("at first");
    for (key, edit) in EDITS {
        let edit = edit.replace("HERE", site.folder.to_str().expect("a path"));
        for (way, edit) in [("there", edit.as_str()), ("back", "")] {
            let what = format!("{edit} {way}");
            let edited = text(&at, edit);
            let planned = steps(&site, &edited);
            let [(step, why, risk, hosts)] = planned.as_slice() else { panic!("{planned:?}") };
            assert_eq!((step.as_str(), *risk), ("change geom f (fs)", Risk::Safe), "{what}");
            assert!(why.contains(key) && hosts.is_empty(), "{what}: {why}");
            site.apply(&site.read(&edited));
            assert_eq!(steps(&site, &edited), [], "{what}");
            host.work(&what);
        }
    }
    let remade = steps(&site, &text(&at, "core = 0"));
    assert!(remade.iter().any(|step| step.0 == "remove geom f (fs)"), "{remade:?}");
}

#[test]
fn client_whose_listener_moves_is_named_and_stays_connected() {
    let (site, port) = site("fs-moves");
    let at = |ip: &str| format!("{ip}:{port}");
    let mut host = Host::connect(&site);
    let mut client = TcpStream::connect(at("127.0.0.1")).expect("a connection");
    assert!(answers(&mut client));
    until("the client is listed", || {
        let state = site.control.plant().state().expect("a state");
        let clients = state.geoms.iter().flat_map(|geom| &geom.clients);
        clients.map(|c| (c.key.as_str(), c.portal.clone())).eq([("plan9", at("127.0.0.1"))])
    });
    let moves: [(&[String], &[&str], bool); 4] = [
        (&[at("0.0.0.0")], &[], true),
        (&[at("127.0.0.2")], &["127.0.0.1"], false),
        (&[at("127.0.0.1"), at("127.0.0.2")], &[], true),
        (&[at("127.0.0.1")], &[], true),
    ];
    for (plan9, cut, is_reached) in moves {
        let edited = text(plan9, "");
        let planned = steps(&site, &edited);
        let [(step, _, risk, hosts)] = planned.as_slice() else { panic!("{planned:?}") };
        assert_eq!(step, "change geom f (fs)", "{plan9:?}");
        let expected = if cut.is_empty() { Risk::Safe } else { Risk::Disruptive };
        assert_eq!((*risk, hosts.as_slice() == cut), (expected, true), "{plan9:?}: {hosts:?}");
        site.apply(&site.read(&edited));
        assert!(answers(&mut client), "{plan9:?}");
        host.work("a move");
        // A listener closes with the operation under way.
        until("the listener is as it shall be", || {
            TcpStream::connect(at("127.0.0.1")).is_ok() == is_reached
        });
    }
    let shut = steps(&site, &text(&[at("127.0.0.1")], "noattach = true"));
    assert_eq!((shut[0].2, &shut[0].3[..]), (Risk::Disruptive, &["127.0.0.1".to_owned()][..]));
}

/// A step reads the files of keys. The core that opens the file server again reads none.
#[test]
fn halted_file_server_starts_with_the_keys_that_it_has() {
    rig::packages::ensure_host().expect("openssl");
    let papers = Papers::new("fs-keys").expect("a folder");
    papers.authority("ca").expect("an authority");
    let names = "subjectAltName=DNS:localhost";
    papers.sign("ca", "server", "localhost", names, Good::Now).expect("a certificate");
    let [ca, certificate, key] = ["ca.pem", "server/server-cert.pem", "server/server-key.pem"]
        .map(|name| papers.file(name).to_str().expect("a path").to_owned());
    let port = free_port().expect("a port");
    let whole = text(&[], "");
    let (served, _) = whole.split_once("disks = ").expect("the key");
    let site = Site::new(
        "fs-keys",
        &format!(
            "{served}plan9_tls = ['127.0.0.1:{port}']\ntls_client_ca = '{ca}'\n\
             tls_certificate = '{certificate}'\ntls_key = '{key}'\n"
        ),
    );
    let is_reached = || TcpStream::connect(("127.0.0.1", port)).is_ok();
    until("the listener", is_reached);
    std::fs::remove_file(key).expect("its key");
    site.verb("fs", "halt", &json!({ "name": "f" }));
    until("the halt", || {
        let state = site.control.plant().state().expect("a state");
        state.geoms.iter().flat_map(|geom| &geom.troubles).any(|trouble| trouble.why == "halted")
    });
    assert!(!is_reached());
    site.verb("fs", "start", &json!({ "name": "f" }));
    until("the listener again", is_reached);
}

#[test]
fn address_of_another_process_refuses_the_edit_and_changes_nothing() {
    let (site, port) = site("fs-taken");
    let taken = TcpListener::bind(("127.0.0.2", port)).expect("a port");
    let mut client = TcpStream::connect(("127.0.0.1", port)).expect("a connection");
    let config = site.read(&text(&[format!("0.0.0.0:{port}")], "nodump = true"));
    let refused = site.control.apply(&config, &Consent::default(), &mut |_| {});
    let refused = refused.err().expect("a refusal");
    assert!(refused.to_string().contains(&format!("0.0.0.0:{port}")), "{refused}");
    assert!(answers(&mut client));
    let mut next = TcpStream::connect(("127.0.0.1", port)).expect("it listens still");
    assert!(answers(&mut next));
    assert_eq!(steps(&site, &text(&[format!("127.0.0.1:{port}")], "")), []);
    drop(taken);
    site.apply(&config);
    assert!(answers(&mut client));
}
