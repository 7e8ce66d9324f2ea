//! A PC without a disk of its own boots from a unit. Firmware, loader, kernel and root file system
//! are read over the network, and stay there while the daemon is killed.

use std::path::Path;
use std::time::Duration;

use rig::guest::{Image, ROOT_BYTES, ROOT_START, Script};
use rig::peer::wait_port;
use rig::scenarios::{self, Conversed, From, GO, Tree};

use crate::fixture::{Fixture, array, file_disk};
use crate::guests::BOOT;

/// How long the killed daemon stays away.
const DOWN: Duration = Duration::from_millis(500);

fn steps(tree: &Tree) -> Script {
    let mut script = Script::new();
    script.files = tree.guest_files();
    script.step(
        "the root is the unit",
        "grep -q -F 'BOOT_IMAGE=vmlinuz' /proc/cmdline; grep '/dev/vda2 / ext4 rw' /proc/mounts\n\
         [ -z \"$(ls -d /sys/block/sd* 2>/dev/null)\" ]; told booted",
    );
    script.step(
        "what the host put there is there",
        "cd /rig/tree; sha256sum -c -s /rig/sums\n\
         [ $(find . -type f | wc -l) = $(lines /rig/sums) ]",
    );
    script.step(
        "the root is written to while the daemon is killed",
        "mkdir /files; write_and_acknowledge /files /tmp/list & writer=$!\n\
         wait_lines /tmp/list 20 $writer; told kill; before=$(lines /tmp/list)\n\
         wait_lines /tmp/list $((before + 20)) $writer; touch /tmp/stop; wait $writer",
    );
    script.step(
        "everything acknowledged is there",
        "echo 3 >/proc/sys/vm/drop_caches; cd /files; sha256sum -c -s /tmp/list; lines /tmp/list\n\
         ! dmesg | grep -E 'I/O error|EXT4-fs error'; cd /; sync; mount -o remount,ro /",
    );
    script
}

fn play(fixture: &mut Fixture, drive: &str, script: &Script) -> Conversed {
    let mut asked_for = Vec::new();
    let conversed = scenarios::converse(From::Disk(drive), script, BOOT, &mut |request| {
        match request {
            "booted" => {
                let sessions = fixture.json(&["sessions"]);
                assert_eq!(array(&sessions["sessions"]).len(), 1, "{sessions:#}");
            }
            "kill" => {
                fixture.assert_alive();
                fixture.kill();
                std::thread::sleep(DOWN);
                fixture.start();
                wait_port(fixture.portal())?;
            }
            _ => panic!("the guest asked {request:?}"),
        }
        asked_for.push(request.to_owned());
        Ok(GO.to_owned())
    })
    .unwrap_or_else(|e| panic!("{e:#}\nthe daemon:\n{}", fixture.log()));
    assert_eq!(asked_for, ["booted", "kill"]);
    println!("{}", conversed.run.summary());
    conversed
}

fn check(fixture: &Fixture, disk: &Path, conversed: &Conversed) {
    assert!(conversed.acknowledged.len() >= 40);
    let root = fixture.path("root.img");
    scenarios::cut(disk, ROOT_START, ROOT_BYTES, &root).unwrap();
    scenarios::check_image(&root, &conversed.acknowledged).unwrap();
}

#[test]
fn a_machine_boots_from_iscsi_and_its_root_outlives_the_daemon() {
    let mut fixture = Fixture::alone("boot");
    let script = steps(&Tree::some(100).unwrap());
    let disk = fixture.path("boot.img");
    Image::build().unwrap().write_disk(&script, &disk).unwrap();
    fixture.configure(&file_disk("boot", "boot.img"), "0 = \"boot\"");
    fixture.start();
    let url = fixture.url(0);
    let conversed = play(&mut fixture, &url, &script);
    fixture.stop();
    check(&fixture, &disk, &conversed);
}

#[test]
fn a_machine_boots_from_nbd_and_its_root_outlives_the_daemon() {
    let mut fixture = Fixture::alone("boot-nbd");
    let script = steps(&Tree::some(100).unwrap());
    let disk = fixture.path("boot.img");
    Image::build().unwrap().write_disk(&script, &disk).unwrap();
    let exports = "[[target]]\ndriver = \"nbd\"\nname = \"store\"\nlisten = [\"{portal}\"]\n\
                   [[access]]\ntarget = \"store\"\ngroup = \"all\"\ninitiators = [\"*\"]\n\
                   luns = { 0 = \"boot\" }\n";
    fixture.write("ashlar.toml", &format!("{}{exports}", file_disk("boot", "boot.img")));
    fixture.start();
    // Requests wait for a lost server so long, in seconds; of itself the emulator fails them.
    let drive = format!("nbd://{}/boot,file.reconnect-delay=60", fixture.portal());
    let conversed = play(&mut fixture, &drive, &script);
    fixture.stop();
    check(&fixture, &disk, &conversed);
}
