//! NBD disk of a daemon: its server is absent at the start, is away for longer than the deadline,
//! and returns.

use std::io::Write;
use std::net::{SocketAddr, TcpListener};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use rig::peer;
use rig::proc::{self, Proc};

use crate::fixture::{Fixture, file_disk};

const LIMIT: Duration = Duration::from_secs(60);

fn serve(fixture: &Fixture) -> Proc {
    let socket = fixture.path("nbd.sock");
    let _absent = std::fs::remove_file(&socket);
    let mut command = Command::new(proc::tool("nbdkit").unwrap());
    command.args(["-f", "-U", socket.to_str().unwrap(), "file"]);
    command.arg(fixture.path("store.img"));
    Proc::start("nbdkit", &mut command, &fixture.path("nbdkit.log")).unwrap()
}

#[test]
fn disk_follows_the_arrival_loss_and_return_of_its_server() {
    let mut fixture = Fixture::new("nbd-disk");
    fixture.image("store.img", 4 << 20);
    let at = fixture.path("nbd.sock");
    let disk = format!(
        "\n[[disk]]\nname = \"n0\"\nkind = \"nbd\"\naddress = \"unix:{}\"\ndeadline_s = 1\n",
        at.display()
    );
    fixture.configure(&disk, "0 = \"n0\"");
    fixture.start();
    let status = fixture.ashlar(&["status"]).ends(3);
    status.prints(&["create disk n0", at.to_str().unwrap()]);
    let mut server = serve(&fixture);
    fixture.until("all is well", LIMIT, || fixture.ashlar(&["status"]).code == 0);
    assert!(fixture.provider("n0").is_some());
    server.kill().unwrap();
    fixture.until("the loss", LIMIT, || fixture.provider("n0").is_none());
    let _server = serve(&fixture);
    fixture.until("all is well again", LIMIT, || fixture.ashlar(&["status"]).code == 0);
    fixture.stop();
}

/// A server that sends its greeting byte by byte, so slowly that a client waits for seconds.
struct SlowServer {
    address: SocketAddr,
    clients: Arc<AtomicUsize>,
    is_over: Arc<AtomicBool>,
}

impl SlowServer {
    fn start() -> SlowServer {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (clients, is_over) = (Arc::<AtomicUsize>::default(), Arc::<AtomicBool>::default());
        let (count, over) = (clients.clone(), is_over.clone());
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let (Ok(mut client), over) = (client, over.clone()) else { continue };
                count.fetch_add(1, Ordering::Release);
                std::thread::spawn(move || {
                    for byte in b"NBDMAGICIHAVEOPT\0\x03" {
                        if over.load(Ordering::Acquire) || client.write_all(&[*byte]).is_err() {
                            return;
                        }
                        // The pace of the server is what is tested.
                        std::thread::sleep(Duration::from_millis(700));
                    }
                });
            }
        });
        SlowServer { address, clients, is_over }
    }
}

#[test]
fn new_disk_of_an_absent_server_is_awaited_with_its_luns() {
    let (mut fixture, mut far) = (Fixture::new("nbd-awaited"), Fixture::new("nbd-awaited-far"));
    fixture.configure("", "");
    fixture.start();
    let at = far.portal();
    let disk =
        format!("[[disk]]\nname = \"n0\"\nkind = \"nbd\"\naddress = \"{at}\"\nexport = \"good\"\n");
    fixture.configure(&disk, "0 = \"n0\"");
    fixture.ashlar(&["plan"]).ends(6).prints(&["create disk n0"]);
    fixture.ashlar(&["apply"]).ends(0).prints(&["n0", "not yet"]);
    let status = fixture.ashlar(&["status"]).out;
    assert!(status.contains("disk n0"), "{status}");
    far.image("good.img", 16 << 20);
    let target = format!(
        "[[target]]\ndriver = \"nbd\"\nname = \"far\"\nlisten = [\"{at}\"]\n\n\
         [[access]]\ntarget = \"far\"\ngroup = \"all\"\ninitiators = [\"*\"]\n\
         luns = {{ 0 = \"good\" }}\n"
    );
    far.write("ashlar.toml", &format!("{}{target}", file_disk("good", "good.img")));
    far.start();
    let served = || peer::iscsi_inq(&fixture.url(0), None).is_ok();
    fixture.until("the disk has come and its LUN is served", LIMIT, served);
    fixture.ashlar(&["plan"]).ends(0).prints(&["no changes"]);
    fixture.stop();
    far.stop();
}

#[test]
fn status_is_answered_while_a_start_waits_for_a_slow_server() {
    let fixture = Fixture::new("nbd-slow-start");
    let server = SlowServer::start();
    let memory =
        |name: &str| format!("[[disk]]\nname = \"{name}\"\nkind = \"memory\"\nsize = \"1MiB\"\n");
    let at = server.address;
    let slow = format!("[[disk]]\nname = \"n0\"\nkind = \"nbd\"\naddress = \"{at}\"\n");
    let disks = [memory("first"), slow, memory("last")].concat();
    fixture.configure(&disks, "0 = \"first\", 1 = \"n0\", 2 = \"last\"");
    let mut daemon = fixture.launch();
    let asks = || server.clients.load(Ordering::Acquire) > 0;
    fixture.until("the server is asked", LIMIT, asks);
    let is_starting = || fixture.ashlar(&["status", "--json"]).json()["starting"] == true;
    fixture.until("the disk before it is there", LIMIT, || {
        assert!(is_starting(), "status waited for the start");
        fixture.provider("first").is_some()
    });
    assert!(fixture.provider("n0").is_none());
    server.is_over.store(true, Ordering::Release);
    fixture.until("the start ends", LIMIT, || !is_starting());
    // The server answered nothing of use: its LUN is left out, and the others are served.
    assert!(fixture.lists_unit(0) && fixture.lists_unit(2));
    fixture.ashlar(&["status"]).ends(3).prints(&["n0"]);
    assert!(daemon.terminate(LIMIT).unwrap(), "{}", daemon.tail());
}

#[test]
fn status_is_answered_while_a_change_waits_for_a_slow_server() {
    let mut fixture = Fixture::new("nbd-slow");
    fixture.configure("", "");
    fixture.start();
    let server = SlowServer::start();
    let at = server.address;
    fixture
        .configure(&format!("[[disk]]\nname = \"n0\"\nkind = \"nbd\"\naddress = \"{at}\"\n"), "");
    let mut command = Command::new(env!("CARGO_BIN_EXE_ashlar"));
    command.arg("apply").arg(fixture.path("ashlar.toml"));
    command.args(["--socket", fixture.path("ashlar.sock").to_str().unwrap()]);
    let mut apply = Proc::start("apply", &mut command, &fixture.path("apply.log")).unwrap();
    let asks = || server.clients.load(Ordering::Acquire) > 0;
    fixture.until("the server is asked", LIMIT, asks);
    fixture.ok(&["list", "disks"]);
    fixture.ok(&["status"]);
    assert!(apply.ended().unwrap().is_none(), "status waited for it: {}", apply.output());
    server.is_over.store(true, Ordering::Release);
    let mut is_refused = || apply.ended().unwrap().is_some_and(|status| !status.success());
    fixture.until("the change is refused", LIMIT, &mut is_refused);
    assert!(apply.output().contains("nbd disk n0"), "{}", apply.output());
    fixture.stop();
}
