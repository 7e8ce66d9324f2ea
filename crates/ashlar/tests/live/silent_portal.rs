//! Buses to a portal that accepts connections and never answers. The command that attaches such a
//! bus waits, but other commands and a start do not, and the bus is detached at once. Another
//! portal does not exist yet.

use std::net::TcpListener;
use std::thread;
use std::time::Duration;

use rig::proc::Proc;

use crate::fixture::{self, Fixture, array, text, tool};

/// A target that is not there yet.
const LATE: &str = "iqn.2026-11.test.ashlar:late";

const LIMIT: Duration = Duration::from_secs(60);

/// Accepts every connection, for as long as the test runs.
fn silent() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    thread::spawn(move || {
        let mut kept = Vec::new();
        while let Ok((peer, _)) = listener.accept() {
            kept.push(peer);
        }
    });
    at.to_string()
}

fn start_command(fixture: &Fixture, words: &[&str]) -> Proc {
    let log = fixture.path(&format!("{}-{}.log", words[1], words.len()));
    Proc::start("ashlar", &mut fixture.command(words), &log).unwrap()
}

fn has_bus(fixture: &Fixture) -> bool {
    let list = fixture.json(&["cam", "devlist"]);
    array(&list["answer"]["buses"]).iter().any(|bus| text(&bus["sim"]) == "mute0")
}

#[test]
fn other_commands_do_not_wait_for_a_bus_that_is_attaching() {
    let mut fixture = Fixture::new("silent");
    fixture.image("d0.img", 1 << 20);
    fixture.configure(&fixture::file_disk("d0", "d0.img"), "");
    fixture.start();
    let portals = format!("portals=[\"{}\"]", silent());
    let target = "target=iqn.2026-11.test.ashlar:mute";
    let own = "initiator=iqn.2026-11.test.ashlar:front";
    let attach = ["cam", "attach", "mute0", "kind=iscsi", &portals, target, own];
    let mut waits = start_command(&fixture, &attach);
    fixture.until("the bus is there", LIMIT, || has_bus(&fixture));
    fixture.ashlar(&["status"]).ends(3).prints(&["bus mute0 (failed)"]);
    fixture.ok(&["list"]);
    fixture.ok(&["cam", "attach", "mps0", "disks=1", "size=1MiB"]);
    let mut looks = start_command(&fixture, &["cam", "rescan"]);
    fixture.ok(&["cam", "inquiry", "da0"]);
    assert!(waits.ended().unwrap().is_none(), "it did not wait: {}", waits.output());
    fixture.ok(&["cam", "detach", "mute0"]);
    assert!(!has_bus(&fixture));
    fixture.until("both have ended", LIMIT, || {
        waits.ended().unwrap().is_some() && looks.ended().unwrap().is_some()
    });
    assert!(waits.output().contains("detached"), "{}", waits.output());
    fixture.assert_alive();
    fixture.stop();
}

/// A bus to a portal, as a section of a configuration.
fn bus(name: &str, portal: &str, target: &str) -> String {
    format!(
        "[[bus]]\nname = \"{name}\"\nkind = \"iscsi\"\nportals = [\"{portal}\"]\n\
         target = \"{target}\"\ninitiator = \"iqn.2026-11.test.ashlar:{name}\"\n\n"
    )
}

fn troubles(fixture: &Fixture, name: &str) -> Vec<String> {
    let state = fixture.state();
    let bus = array(&state["buses"]).iter().find(|bus| text(&bus["name"]) == name);
    bus.map_or(Vec::new(), |bus| array(&bus["troubles"]).iter().map(|t| text(&t["why"])).collect())
}

#[test]
fn start_continues_without_a_silent_portal_and_reports_it() {
    let mut fixture = Fixture::new("deaf-start");
    fixture.image("d0.img", 1 << 20);
    let near = "[[bus]]\nname = \"mps0\"\nkind = \"virtual\"\ndisks = 1\nsize = \"1MiB\"\n\n";
    let disk = fixture::file_disk("d0", "d0.img");
    let buses = [bus("mute0", &silent(), LATE), near.to_owned(), disk].concat();
    fixture.configure(&buses, "0 = \"d0\", 1 = \"da0\"");
    fixture.start();
    // A scan of such a portal takes longer than a start waits for it.
    assert!(fixture.log().contains("mute0: discovery is still running"), "{}", fixture.log());
    for name in ["d0", "da0"] {
        assert!(fixture.provider(name).is_some(), "{name}: what is near is there");
    }
    let why = troubles(&fixture, "mute0");
    assert!(why.len() == 1 && why[0].contains(LATE), "{why:?}");
    let output = fixture.ashlar(&["status"]);
    assert!(output.code == 3 && output.out.contains("bus mute0 (failed)"), "{output}");
    assert!(output.out.contains("`ashlar cam discover 127.0.0.1:"), "{output}");
    let doctor = fixture.ashlar(&["doctor"]);
    assert!(doctor.out.contains("mute0: ") && doctor.out.contains("cam rescan 0"), "{doctor}");
    fixture.ok(&["cam", "detach", "mute0"]);
    fixture.ashlar(&["status"]).ends(0);
    fixture.stop();
}

/// A daemon whose target has a disk of 1 MiB.
fn late_target(portal: &str) -> String {
    format!(
        "[[disk]]\nname = \"m\"\nkind = \"memory\"\nsize = \"1MiB\"\n\n\
         [[target]]\nname = \"{LATE}\"\ndriver = \"iscsi\"\nlisten = [\"{portal}\"]\n\n\
         [[access]]\ntarget = \"{LATE}\"\ngroup = \"all\"\ninitiators = [\"*\"]\n\
         luns = {{ 0 = \"m\" }}\n"
    )
}

#[test]
fn lun_on_a_late_portal_does_not_delay_other_luns() {
    let mut front = Fixture::new("awaited");
    front.image("d0.img", 1 << 20);
    front.image("d1.img", 1 << 20);
    let portal = format!("127.0.0.1:{}", rig::proc::free_port().unwrap());
    let layer = "[[geom]]\nclass = \"nop\"\nname = \"n\"\nprovider = \"da0\"\n\n";
    let disks = ["d0", "d1"].map(|d| fixture::file_disk(d, &format!("{d}.img"))).concat();
    let below = [&bus("late0", &portal, LATE), &disks, layer].concat();
    front.configure(&below, "0 = \"d0\", 1 = \"n\"");
    front.start();
    // Present providers are served; missing ones are reported.
    let list = || tool("iscsi-ls", &["-s", &format!("iscsi://{}", front.portal())], "");
    let luns = list();
    assert!(luns.contains("Lun:0 ") && !luns.contains("Lun:1 "), "{luns}");
    let output = front.ashlar(&["status"]).ends(3);
    let output = output.prints(&["LUN 1 (n) is not there yet", "nop n", "bus late0 (failed)"]);
    assert!(!output.out.contains("left out"), "{output}");
    front.ashlar(&["list", "luns"]).ends(0).prints(&["awaited: there is no n yet"]);
    // Meanwhile other parts can be changed; an unknown name is still an error.
    let luns = "0 = \"d0\", 1 = \"n\", 2 = \"d1\"";
    front.configure(&below.replace(layer, ""), luns);
    let file = front.path("ashlar.toml").display().to_string();
    front.ashlar(&["apply", &file]).ends(0);
    assert!(list().contains("Lun:2 "), "{}", list());
    front.configure(&below.replace(layer, ""), &luns.replace("2 = \"d1\"", "2 = \"d9\""));
    front.ashlar(&["apply", &file]).complains(&["d9", "no such provider"]);
    assert!(list().contains("Lun:2 "), "{}", list());
    front.ashlar(&["list", "luns"]).ends(0).prints(&["awaited: there is no n yet"]);
    front.stop();
    // With the layer again: it and its LUN appear by themselves, and initiators are notified.
    front.configure(&below, luns);
    front.start();
    let mut back = front.sibling("late", &late_target(&portal));
    front.until("its LUN is there", LIMIT, || front.lists_unit(1));
    front.until("nothing is wrong any more", LIMIT, || front.ashlar(&["status"]).code == 0);
    front.ashlar(&["journal"]).ends(0).prints(&["arrived; its LUNs are exported"]);
    let source = front.image("source.img", 1 << 20);
    std::fs::write(&source, [0xA5; 1 << 20]).unwrap();
    let (from, url) = (source.to_str().unwrap(), front.url(1));
    tool("qemu-img", &["convert", "-n", "-f", "raw", "-O", "raw", from, &url], "");
    tool("qemu-img", &["compare", "-f", "raw", "-F", "raw", from, &url], "");
    back.stop();
    front.stop();
}

#[test]
fn disks_of_a_late_portal_appear_without_a_command() {
    let mut front = Fixture::new("early");
    let port = rig::proc::free_port().unwrap();
    let portal = format!("127.0.0.1:{port}");
    front.configure(&bus("late0", &portal, LATE), "");
    front.start();
    front.until("the reason is reported", LIMIT, || !troubles(&front, "late0").is_empty());
    assert!(front.provider("da0").is_none());
    let mut back = front.sibling("late", &late_target(&portal));
    front.until("its disk is there", LIMIT, || front.provider("da0").is_some());
    front.until("nothing is wrong any more", LIMIT, || troubles(&front, "late0").is_empty());
    back.stop();
    front.stop();
}

/// Nor a disk 0: the list of units is requested at LUN 0.
#[test]
fn named_disk_is_found_at_a_target_without_its_first_disk() {
    let mut front = Fixture::new("lacks-first");
    let portal = format!("127.0.0.1:{}", rig::proc::free_port().unwrap());
    let second = "[[disk]]\nname = \"m2\"\nkind = \"memory\"\nsize = \"2MiB\"\n\n";
    let both =
        second.to_owned() + &late_target(&portal).replace("0 = \"m\"", "0 = \"m\", 1 = \"m2\"");
    let one = second.to_owned() + &late_target(&portal).replace("0 = \"m\"", "1 = \"m2\"");
    let mut back = front.sibling("late", &both);
    front.configure(&bus("late0", &portal, LATE), "0 = \"da1\"");
    front.start();
    front.until("both are there", LIMIT, || front.provider("da1").is_some());
    let file = front.path("ashlar.toml").display().to_string();
    front.ashlar(&["doctor", "names", "--file", &file]).ends(0);
    let serial = front.ok(&["cam", "inquiry", "da1", "-S"]);
    front.stop();
    // By the configuration it has its name when the first one is away, without another identity.
    std::fs::remove_dir_all(front.path("units")).unwrap();
    let kept = bus("late0", &portal, LATE);
    let kept = format!("{}\nnames = {{ da1 = \"{}\" }}\n\n", kept.trim_end(), serial.trim());
    back.stop();
    back.configure(&one, "");
    back.start();
    front.configure(&kept, "0 = \"da1\"");
    front.start();
    front.until("its LUN is there", LIMIT, || front.ashlar(&["status"]).code == 0);
    front.ashlar(&["cam", "readcap", "0:0:1"]).ends(0).prints(&["Last Block: 4095,"]);
    let list = front.ok(&["cam", "devlist"]);
    assert!(list.contains("da1)") && !list.contains("da0)"), "{list}");
    front.ashlar(&["doctor", "names", "--file", &file]).ends(0);
    back.stop();
    front.stop();
}
