//! NBD beside iSCSI on the same units, from outside: reservations, states of ports, LUNs that are
//! removed and return, holes, sizes, and the reports about sessions. The NBD client is QEMU's.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::process::{Child, ChildStdin, ChildStdout, Command};

use rig::proc::{self, free_port};
use serde_json::{Value, json};

use crate::fixture::load::qemu_io;
use crate::fixture::{Fixture, IQN, array, file_disk, has_controls, text, tool};
use testkit::iscsi::initiator::Client;

const UNIT_BYTES: u64 = 16 << 20;

const MIB: u64 = 1 << 20;

/// QEMU's message for EPERM.
const NOT_PERMITTED: &str = "Operation not permitted";

/// One connection of qemu-io that stays.
struct Nbd {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

impl Nbd {
    fn enter(url: &str) -> Nbd {
        let (child, to, from) = qemu_io(url);
        let mut nbd = Nbd { child, to, from };
        // It answers when the handshake is over.
        nbd.ask("length");
        nbd
    }

    /// A command that answers with one line.
    fn ask(&mut self, command: &str) -> String {
        writeln!(self.to, "{command}").unwrap();
        let mut line = String::new();
        assert!(self.from.read_line(&mut line).unwrap() > 0, "{command}: it has ended");
        line
    }

    /// Runs an I/O command: QEMU prints one line when it failed, two when it did not.
    fn io(&mut self, command: &str) -> Result<(), String> {
        let first = self.ask(command);
        if first.contains("failed") {
            return Err(first);
        }
        let mut line = String::new();
        assert!(self.from.read_line(&mut line).unwrap() > 0 && line.contains(" ops;"), "{line}");
        Ok(())
    }

    #[track_caller]
    fn does(&mut self, command: &str) {
        self.io(command).unwrap_or_else(|output| panic!("{command}: {output}"));
    }

    #[track_caller]
    fn fails(&mut self, command: &str, how: &str) {
        let output = self.io(command).expect_err(command);
        assert!(output.contains(how), "{command}: {output}");
    }
}

impl Drop for Nbd {
    fn drop(&mut self) {
        let _ = writeln!(self.to, "quit");
        let _ = self.child.wait();
    }
}

/// A fixture with a unit in a file and one in memory, over iSCSI and over NBD, whose ports are a
/// group of their own.
struct Shop {
    fixture: Fixture,
    nbd: SocketAddr,
}

impl Shop {
    fn open(name: &str) -> Shop {
        let mut fixture = Fixture::new(name);
        fixture.image("file.img", UNIT_BYTES);
        let nbd = SocketAddr::from(([127, 0, 0, 1], free_port().unwrap()));
        shop_config(&fixture, nbd, true);
        fixture.start();
        Shop { nbd, fixture }
    }

    fn url(&self, export: &str) -> String {
        format!("nbd://{}/{export}", self.nbd)
    }

    fn map(&self, export: &str) -> Vec<(u64, u64, u64)> {
        let output = tool("nbdinfo", &["--map", "--json", &self.url(export)], "");
        let map: Value = serde_json::from_str(&output).unwrap();
        let number = |v: &Value, key: &str| v[key].as_u64().unwrap();
        let of = |e: &Value| (number(e, "offset"), number(e, "length"), number(e, "type"));
        array(&map).iter().map(of).collect()
    }
}

/// The configuration; `file` selects whether NBD clients see that unit.
fn shop_config(fixture: &Fixture, nbd: SocketAddr, file: bool) {
    let disk = file_disk("file", "file.img");
    let luns = if file { "0 = \"file\", 1 = \"memory\"" } else { "1 = \"memory\"" };
    let text = format!(
        "{disk}\n[[disk]]\nname = \"memory\"\nkind = \"memory\"\nsize = {UNIT_BYTES}\n\n\
         [[alua]]\nname = \"counter\"\nid = 7\n\n\
         [[target]]\ndriver = \"iscsi\"\nname = \"{{iqn}}\"\nlisten = [\"{{portal}}\"]\n\n\
         [[target]]\ndriver = \"nbd\"\nname = \"shop\"\n\
         listen = [\"{nbd}\", \"unix:{{here}}/nbd.sock\"]\n\
         port_group = \"counter\"\n\n\
         [[access]]\ntarget = \"{{iqn}}\"\ngroup = \"all\"\ninitiators = [\"*\"]\n\
         luns = {{ 0 = \"file\", 1 = \"memory\" }}\n\n\
         [[access]]\ntarget = \"shop\"\ngroup = \"all\"\n\
         initiators = [\"ip:127.0.0.1\", \"unix:*\"]\n\
         luns = {{ {luns} }}\n"
    );
    fixture.write("ashlar.toml", &text);
}

/// PERSISTENT RESERVE OUT; its status.
fn out(raw: &mut Client, action: u8, kind: u8, key: u64, action_key: u64) -> u8 {
    let mut list = [0; 24];
    list[..8].copy_from_slice(&key.to_be_bytes());
    list[8..16].copy_from_slice(&action_key.to_be_bytes());
    raw.scsi(&[0x5F, action, kind, 0, 0, 0, 0, 0, 24, 0], 0, &list).unwrap().status
}

#[test]
fn a_reservation_of_an_iscsi_initiator_holds_against_nbd_clients() {
    let mut shop = Shop::open("nbd-reservations");
    let mut a = Client::session(shop.fixture.portal(), "iqn.2024-01.test:a", IQN).unwrap();
    assert_eq!(a.scsi(&[0; 6], 0, &[]).unwrap().status, 2, "a reset to hear of");
    let mut nbd = Nbd::enter(&shop.url("file"));
    nbd.does("write -P 1 0 4k");
    assert_eq!(out(&mut a, 6, 0, 0, 1), 0, "registered");
    nbd.does("write -P 2 0 4k");
    for (kind, reads) in [(1, true), (3, false), (5, true), (6, false), (7, true), (8, false)] {
        assert_eq!(out(&mut a, 1, kind, 1, 0), 0, "reserved");
        nbd.fails("write -P 3 0 4k", NOT_PERMITTED);
        nbd.fails("write -z 0 4k", NOT_PERMITTED);
        nbd.fails("discard 0 4k", NOT_PERMITTED);
        match reads {
            true => nbd.does("read -P 2 0 4k"),
            false => nbd.fails("read 0 4k", NOT_PERMITTED),
        }
        // A new client is admitted: an initiator may log in as well.
        let mut late = Nbd::enter(&shop.url("0"));
        late.fails("write -P 3 0 4k", NOT_PERMITTED);
        // NBD clients have no TransportID, and are no registrants: they are not listed.
        let full = a.scsi(&[0x5E, 3, 0, 0, 0, 0, 0, 0x10, 0, 0], 4096, &[]).unwrap();
        assert_eq!(full.status, 0);
        let length = u32::from_be_bytes(full.data[4..8].try_into().unwrap()) as usize;
        assert_eq!(full.data.len(), 8 + length);
        let of_name = u32::from_be_bytes(full.data[28..32].try_into().unwrap()) as usize;
        assert_eq!((length, full.data[32] & 0x0f), (24 + of_name, 5), "one, of iSCSI");
        assert_eq!(out(&mut a, 2, kind, 1, 0), 0, "released");
        nbd.does("write -P 2 0 4k");
        late.does("read -P 2 0 4k");
    }
    // The other unit was never reserved; the end of the session does not end a reservation.
    assert_eq!(out(&mut a, 1, 3, 1, 0), 0);
    drop(a);
    nbd.fails("read 0 4k", NOT_PERMITTED);
    Nbd::enter(&shop.url("memory")).does("write -P 4 0 4k");
    shop.fixture.ok(&["reservations", "file", "--clear", "--yes-clear", "file"]);
    nbd.does("read -P 2 0 4k");
    drop(nbd);
    shop.fixture.stop();
}

#[test]
fn reserve_6_holds_against_nbd_clients_until_its_session_ends() {
    let mut shop = Shop::open("nbd-reserve");
    let mut a = Client::session(shop.fixture.portal(), "iqn.2024-01.test:a", IQN).unwrap();
    assert_eq!(a.scsi(&[0; 6], 0, &[]).unwrap().status, 2);
    let mut nbd = Nbd::enter(&shop.url("file"));
    assert_eq!(a.scsi(&[0x16, 0, 0, 0, 0, 0], 0, &[]).unwrap().status, 0);
    nbd.fails("read 0 4k", NOT_PERMITTED);
    nbd.fails("write 0 4k", NOT_PERMITTED);
    assert_eq!(a.scsi(&[0x17, 0, 0, 0, 0, 0], 0, &[]).unwrap().status, 0);
    nbd.does("write -P 9 0 4k");
    assert_eq!(a.scsi(&[0x16, 0, 0, 0, 0, 0], 0, &[]).unwrap().status, 0);
    nbd.fails("read 0 4k", NOT_PERMITTED);
    drop(a);
    let healed = || nbd.io("read -P 9 0 4k").is_ok();
    shop.fixture.until("the session's end ends it", std::time::Duration::from_secs(10), healed);
    drop(nbd);
    shop.fixture.stop();
}

#[test]
fn standby_ports_and_removed_luns_fail_requests_until_restored() {
    let mut shop = Shop::open("nbd-states");
    let mut nbd = Nbd::enter(&shop.url("file"));
    nbd.does("write -P 1 0 4k");
    for state in ["standby", "unavailable", "offline"] {
        shop.fixture.ok(&["alua", "set", "counter", state]);
        nbd.fails("read 0 4k", "Input/output error");
        nbd.fails("write 0 4k", "Input/output error");
        shop.fixture.ok(&["alua", "set", "counter", "non-optimized"]);
        nbd.does("read -P 1 0 4k");
        shop.fixture.ok(&["alua", "set", "counter", "optimized"]);
        nbd.does("write -P 1 0 4k");
    }
    let mut other = Nbd::enter(&shop.url("memory"));
    shop_config(&shop.fixture, shop.nbd, false);
    shop.fixture.ok(&["apply"]);
    nbd.fails("read 0 4k", "shutdown");
    nbd.fails("write 0 4k", "shutdown");
    other.does("write -P 1 0 4k");
    let gone = proc::run(Command::new(proc::tool("nbdinfo").unwrap()).arg(shop.url("file")));
    assert!(gone.is_err(), "a LUN that is gone is an export that is gone");
    shop_config(&shop.fixture, shop.nbd, true);
    shop.fixture.ok(&["apply"]);
    nbd.does("read -P 1 0 4k");
    drop((nbd, other));
    shop.fixture.stop();
}

#[test]
fn holes_are_reported_before_and_after_a_trim() {
    let mut shop = Shop::open("nbd-holes");
    for export in ["file", "memory"] {
        let all = shop.map(export);
        assert_eq!(all, [(0, UNIT_BYTES, 3)], "{export}: all is a hole that reads as zeroes");
        Nbd::enter(&shop.url(export)).does("write -P 5 4M 2M");
        let some = shop.map(export);
        let rest = UNIT_BYTES - 6 * MIB;
        let wanted = [(0, 4 * MIB, 3), (4 * MIB, 2 * MIB, 0), (6 * MIB, rest, 3)];
        assert_eq!(some, wanted, "{export}");
        let output = tool("qemu-img", &["map", "--output=json", &shop.url(export)], "");
        let map: Value = serde_json::from_str(&output).unwrap();
        let data: Vec<(u64, u64)> = array(&map)
            .iter()
            .filter(|e| e["data"] == true)
            .map(|e| (e["start"].as_u64().unwrap(), e["length"].as_u64().unwrap()))
            .collect();
        assert_eq!(data, [(4 * MIB, 2 * MIB)], "{export}: {output}");
        Nbd::enter(&shop.url(export)).does("discard 4M 1M");
        let less = shop.map(export);
        let wanted = [(0, 5 * MIB, 3), (5 * MIB, MIB, 0), (6 * MIB, rest, 3)];
        assert_eq!(less, wanted, "{export} after a TRIM");
        Nbd::enter(&shop.url(export)).does("write -z -u 5M 512k");
        assert_eq!(shop.map(export)[0], (0, 5 * MIB + MIB / 2, 3), "{export} after zeroes");
        let mut nbd = Nbd::enter(&shop.url(export));
        nbd.does("read -P 0 0 5632k");
        nbd.does("read -P 5 5632k 512k");
    }
    shop.fixture.stop();
}

#[test]
fn new_size_of_a_unit_is_reported_at_the_next_handshake() {
    let mut shop = Shop::open("nbd-size");
    let mut old = Nbd::enter(&shop.url("file"));
    let file = shop.fixture.path("file.img");
    std::fs::File::options().write(true).open(file).unwrap().set_len(2 * UNIT_BYTES).unwrap();
    shop.fixture.ok(&["geom", "disk", "resize", "name=file"]);
    old.does("write -P 6 0 4k");
    let size = tool("nbdinfo", &["--size", &shop.url("file")], "");
    assert_eq!(size.trim(), (2 * UNIT_BYTES).to_string());
    let mut new = Nbd::enter(&shop.url("file"));
    let last = 2 * UNIT_BYTES - 65_536;
    new.does(&format!("write -P 7 {} 64k", UNIT_BYTES - 32_768));
    new.does(&format!("write -P 8 {last} 64k"));
    new.does(&format!("read -P 8 {last} 64k"));
    old.does(&format!("read -P 7 {} 32k", UNIT_BYTES - 32_768));
    drop((old, new));
    shop.fixture.stop();
}

/// A page of the daemon's HTTP interface on its socket.
pub(crate) fn page(fixture: &Fixture, path: &str) -> String {
    let mut stream = UnixStream::connect(fixture.path("ashlar.sock")).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: ashlar\r\nConnection: close\r\n\r\n").unwrap();
    let mut page = String::new();
    stream.read_to_string(&mut page).unwrap();
    assert!(page.starts_with("HTTP/1.1 200"), "{page}");
    page
}

#[test]
fn sessions_and_metrics_list_nbd_clients() {
    let mut shop = Shop::open("nbd-told");
    let unix = format!("nbd+unix:///file?socket={}", shop.fixture.path("nbd.sock").display());
    let urls = [shop.url("memory"), shop.url("1"), unix.clone(), unix];
    let mut clients = urls.map(|url| Nbd::enter(&url));
    clients.iter_mut().for_each(|nbd| nbd.does("write -P 1 0 4k"));
    clients[1].does("read -P 1 0 4k");
    let output = shop.fixture.json(&["sessions"]);
    let live = array(&output["sessions"]);
    assert_eq!(live.len(), 4, "{output:#}");
    let mut local = 0;
    for one in live {
        let (who, session) = (text(&one["session"]["initiator"]), &one["session"]);
        local += usize::from(who.starts_with("unix:uid="));
        let (unit, lun) = if who == "ip:127.0.0.1" { ("memory", 1) } else { ("file", 0) };
        assert_eq!(
            (&one["target"], &session["unit"]),
            (&json!("shop"), &json!(unit)),
            "{output:#}"
        );
        assert_eq!((&session["luns"], &session["luns_total"]), (&json!([lun]), &json!(1)));
        assert_eq!((text(&session["isid"]), text(&session["auth"])), ("".into(), "none".into()));
    }
    assert_eq!(local, 2, "{output:#}");
    shop.fixture.ashlar(&["sessions"]).ends(0).prints(&["1 (memory)", "0 (file)", "shop"]);
    shop.fixture.ashlar(&["list", "connections", "nbd"]).ends(0).prints(&["open", "nbd"]);
    let page = page(&shop.fixture, "/metrics");
    let up = "ashlar_target_up{target=\"shop\",driver=\"nbd\"} 1";
    let sessions = "ashlar_target_sessions{target=\"shop\",driver=\"nbd\"} 4";
    let open = "ashlar_connections_open{driver=\"nbd\"} 4";
    for line in [up, sessions, open] {
        assert!(page.lines().any(|l| l == line), "{line}\n{page}");
    }
    let head = "ashlar_session_bytes_total{target=\"shop\",driver=\"nbd\",";
    let lines = page.lines().filter(|l| l.starts_with(head) && l.contains("op=\"write\""));
    let mut written: Vec<&str> = lines.filter_map(|l| l.rsplit_once(' ')).map(|l| l.1).collect();
    written.sort_unstable();
    assert_eq!(written, ["8192", "8192"], "sessions of one host and user are counted together");
    let samples = page.lines().filter(|l| l.starts_with("ashlar_"));
    let mut names: Vec<&str> = samples.filter_map(|l| l.rsplit_once(' ')).map(|l| l.0).collect();
    let all = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), all, "every sample stands once");
    drop(clients);
    shop.fixture.stop();
}

#[test]
fn control_characters_in_names_are_not_printed() {
    let mut fixture = Fixture::new("nbd-escape");
    fixture.image("d0.img", UNIT_BYTES);
    let image = fixture.image("d1.img", UNIT_BYTES);
    // A partition whose label turns the terminal red, made by another program.
    let label = "1:\u{1b}[31mred";
    tool("sgdisk", &["-n", "1:2048:4095", "-c", label, image.to_str().unwrap()], "");
    let at = format!("127.0.0.1:{}", free_port().unwrap());
    let target = format!(
        "\n[[target]]\ndriver = \"nbd\"\nname = \"n\"\nlisten = [\"{at}\"]\n\
         [[access]]\ntarget = \"n\"\ngroup = \"g\"\ninitiators = [\"*\"]\nluns = {{ 0 = \"d0\" }}\n"
    );
    let disks = format!("{}{}", file_disk("d0", "d0.img"), file_disk("d1", "d1.img"));
    fixture.configure(&format!("{disks}{target}"), "");
    fixture.start();
    let program = proc::tool("nbdinfo").unwrap();
    let url = format!("nbd://{at}/%1b%5b31mred%0aforged");
    assert!(!Command::new(program).args(["--size", &url]).output().unwrap().status.success());
    let output = |words: &[&str]| {
        let out = fixture.ok(words);
        assert!(!has_controls(&out), "{words:?}: {out:?}");
        out
    };
    let denied = output(&["sessions", "--denied"]);
    assert!(denied.contains("[31mred"), "{denied}");
    let parts = output(&["part", "show", "-l"]);
    assert!(parts.contains("[31mred"), "{parts}");
    let json = output(&["part", "show", "--json"]);
    assert!(json.contains("\\u001b[31mred"), "the label is what it is: {json}");
    output(&["status"]);
    output(&["journal"]);
    assert!(!has_controls(&fixture.log()), "{}", fixture.log());
}

/// A client that reconnects requests the name that it knows, as `nbd-client -persist` does. F2 of
/// engine/src/registry/former.rs.
#[test]
fn renamed_disk_is_exported_by_its_old_name_until_reuse() {
    let mut fixture = Fixture::new("nbd-renamed");
    let [one, two] = [1, 2].map(|n| {
        let path = fixture.image(&format!("{n}.img"), n * UNIT_BYTES);
        std::fs::write(fixture.path("mark"), [b'0' + n as u8; 512]).unwrap();
        tool(
            "dd",
            &[
                &format!("if={}", fixture.path("mark").display()),
                &format!("of={}", path.display()),
                "conv=notrunc",
                "status=none",
            ],
            "",
        );
        format!("{n}.img")
    });
    let port = free_port().unwrap();
    let configure = |fixture: &Fixture, disks: &str, lun: &str| {
        let nbd = format!(
            "[[target]]\ndriver = \"nbd\"\nname = \"n\"\nlisten = [\"127.0.0.1:{port}\"]\n\
             [[access]]\ntarget = \"n\"\ngroup = \"g\"\ninitiators = [\"*\"]\n\
             luns = {{ {lun} }}\n"
        );
        fixture.configure(&format!("{disks}\n{nbd}"), "");
    };
    let url = |name: &str| format!("nbd://127.0.0.1:{port}/{name}");
    let size = |name: &str| -> Option<u64> {
        let mut command = Command::new(proc::tool("nbdinfo").unwrap());
        let done = command.args(["--size", &url(name)]).output().unwrap();
        String::from_utf8_lossy(&done.stdout).trim().parse().ok().filter(|_| done.status.success())
    };
    configure(&fixture, &file_disk("d0", &one), "0 = \"d0\"");
    fixture.start();
    let mut client = Nbd::enter(&url("d0"));
    configure(&fixture, &file_disk("data", &one), "0 = \"data\"");
    fixture.ashlar(&["plan"]).ends(6).prints(&["rename disk d0 to data", "safe"]);
    fixture.ok(&["apply"]);
    client.does("read -P 0x31 0 512");
    for name in ["d0", "data"] {
        assert_eq!(size(name), Some(UNIT_BYTES), "{name}");
    }
    assert_eq!(size("d1"), None, "no such name");
    // The old name is reported, and survives a restart.
    fixture.ashlar(&["status"]).prints(&["export d0", "receive data", "forget-name name=d0"]);
    let exported = fixture.ok(&["export"]);
    assert!(exported.contains("d0 = \"data\""), "{exported}");
    drop(client);
    fixture.stop();
    fixture.start();
    Nbd::enter(&url("d0")).does("read -P 0x31 0 512");
    // Another disk has the name from now on.
    let both = [file_disk("data", &one), file_disk("d0", &two)].concat();
    configure(&fixture, &both, "0 = \"data\", 1 = \"d0\"");
    fixture.ok(&["apply"]);
    assert_eq!((size("d0"), size("data")), (Some(2 * UNIT_BYTES), Some(UNIT_BYTES)));
    configure(&fixture, &file_disk("data", &one), "0 = \"data\"");
    fixture.ok(&["apply"]);
    assert_eq!(size("d0"), None, "clients of that one do not get the first");
    // And by hand.
    configure(&fixture, &file_disk("x", &one), "0 = \"x\"");
    fixture.ok(&["apply"]);
    assert_eq!(size("data"), Some(UNIT_BYTES));
    fixture.ok(&["geom", "lun", "forget-name", "name=data"]);
    assert_eq!((size("data"), size("x")), (None, Some(UNIT_BYTES)));
    fixture.ashlar(&["geom", "lun", "forget-name", "name=data"]).complains(&["no unit had that \
                                                                            name"]);
    fixture.stop();
}
