//! Two portals of one target, two sessions of one kernel, one map of dm-multipath with both as its
//! paths. Cables are pulled, the daemon is killed: the file system on the map notices nothing.

use std::net::SocketAddr;
use std::time::Duration;

use rig::Login;
use rig::guest::{Script, SharedGuest, guest_portal};
use rig::peer::{self, wait_port};
use rig::proc::free_port;
use rig::relay::{Cable, Relay};
use rig::scenarios::{self, From, GO};

use crate::fixture::{Fixture, IQN, array, file_disk};
use crate::guests::BOOT;

/// How long the killed daemon stays away.
const DOWN: Duration = Duration::from_millis(500);
const UNIT_BYTES: u64 = 128 << 20;

const EXPORTS: &str = r#"
[[target]]
driver = "iscsi"
name = "{iqn}"
listen = ["{portal}", "{second}"]

[[access]]
target = "{iqn}"
group = "guest"
initiators = ["*"]
luns = { 5 = "disk" }
"#;

/// Both paths, through relays; a dead path is noticed within seconds.
fn log_in(script: &mut Script, portals: [SocketAddr; 2]) {
    let [a, b] = portals.map(guest_portal);
    let names = format!("IQN={IQN} A={a} B={b}\n");
    script.file("rig/names", names.as_bytes());
    script
        .step("start the daemons", format!("start_iscsid {}; start_multipathd", Login::INITIATOR));
    script.step(
        "log in by both portals",
        ". /rig/names\n\
         for portal in $A $B; do\n\
             node $IQN $portal node.session.timeo.replacement_timeout 2 \
             'node.conn[0].timeo.noop_out_interval' 1 'node.conn[0].timeo.noop_out_timeout' 2\n\
             iscsiadm -m node -T $IQN -p $portal --login >/dev/null\n\
         done\n\
         [ $(iscsiadm -m session | grep -c $IQN) = 2 ]; udevadm settle; within 20 paths up 2",
    );
    script.step(
        "one map with two paths",
        "ls /dev/mapper; multipath -ll; W=$(cut -d' ' -f1 /tmp/paths | uniq)\n\
         [ $(echo \"$W\" | wc -l) = 1 ] && [ $(ls /sys/block/dm-0/slaves | wc -l) = 2 ]\n\
         [ \"$(cat /sys/block/dm-0/dm/uuid)\" = \"mpath-$W\" ]; [ ! -e /sys/block/dm-1 ]\n\
         for path in $(ls /sys/block/dm-0/slaves); do\n\
             [ 3$(sed 's/naa\\.//' /sys/block/$path/device/wwid) = \"$W\" ]\n\
         done\n\
         echo \"M=/dev/mapper/$W\" >>/rig/names; told wwid $W",
    );
}

const WRITE: &str = ". /rig/names\n\
    /usr/sbin/mke2fs -q -F -t ext4 $M; mount -t ext4 $M /mnt; mkdir -p /mnt/files\n\
    rm -f /tmp/stop /tmp/list\n\
    (write_and_acknowledge /mnt/files /tmp/list) >/dev/ttyS0 2>&1 & echo $! >/tmp/writer";

/// Ten more files become durable while the paths are as they are.
const TEN_MORE: &str = "more() {\n\
    wait_lines /tmp/list $(($(lines /tmp/list) + 10)) $(cat /tmp/writer)\n\
}\n";

/// A map of dm-multipath survives losses of paths, and kills of the daemon.
pub fn check(guest: &mut SharedGuest) {
    let mut fixture = Fixture::alone("multipath");
    let disk = fixture.image("disk.img", UNIT_BYTES);
    let second: SocketAddr = ([127, 0, 0, 1], free_port().unwrap()).into();
    let exports = EXPORTS.replace("{second}", &second.to_string());
    fixture.write("ashlar.toml", &format!("{}{exports}", file_disk("disk", "disk.img")));
    fixture.start();
    let cables = [Relay::start(fixture.portal()).unwrap(), Relay::start(second).unwrap()];

    let mut script = Script::new();
    log_in(&mut script, [cables[0].address(), cables[1].address()]);
    script.step("write without a pause", WRITE);
    script.step(
        "the first cable is cut and mended",
        format!(
            "{TEN_MORE}more; told cut 0; within 20 paths down 1; paths up 1; more; more\n\
             told mend 0; within 180 paths up 2; more"
        ),
    );
    script.step(
        "the second falls silent and speaks again",
        format!(
            "{TEN_MORE}told silence 1; within 60 paths down 1; paths up 1; more; more\n\
             told mend 1; within 180 paths up 2; more"
        ),
    );
    script.step(
        "the daemon is killed and comes back",
        format!("{TEN_MORE}told kill; more; within 180 paths up 2; more"),
    );
    script.step(
        "the daemon is stopped and comes back",
        format!("{TEN_MORE}told stop; more; within 180 paths up 2; more"),
    );
    script.step("the writer ends", "touch /tmp/stop; within 30 test ! -e /proc/$(cat /tmp/writer)");
    script.step(
        "everything acknowledged is there after a remount",
        ". /rig/names\n\
         umount /mnt; mount -t ext4 $M /mnt; cd /mnt/files; sha256sum -c -s /tmp/list\n\
         lines /tmp/list; cd /; umount /mnt; ! dmesg | grep -E 'I/O error, dev dm|EXT4-fs error'",
    );
    script.step(
        "the map goes, the sessions go",
        ". /rig/names\n\
         multipath -f ${M##*/}; iscsiadm -m node -u >/dev/null; ! iscsiadm -m session",
    );

    let mut wwid = String::new();
    let mut asked_for = 0;
    let conversed = scenarios::converse(From::Shared(guest), &script, BOOT, &mut |request| {
        let words: Vec<&str> = request.split(' ').collect();
        let cable = |number: &str| &cables[number.parse::<usize>().unwrap()];
        match words[..] {
            ["wwid", id] => {
                wwid = id.to_owned();
                let sessions = fixture.json(&["sessions"]);
                assert_eq!(array(&sessions["sessions"]).len(), 2, "{sessions:#}");
            }
            ["cut", number] => cable(number).set(Cable::Cut),
            ["silence", number] => cable(number).set(Cable::Silent),
            ["mend", number] => cable(number).set(Cable::Whole),
            ["kill" | "stop"] => {
                fixture.assert_alive();
                if request == "kill" {
                    fixture.kill()
                } else {
                    fixture.stop()
                }
                std::thread::sleep(DOWN);
                fixture.start();
                wait_port(fixture.portal())?;
            }
            _ => panic!("the guest asked {request:?}"),
        }
        asked_for += 1;
        Ok(GO.to_owned())
    })
    .unwrap_or_else(|e| panic!("{e:#}\nthe daemon:\n{}", fixture.log()));
    println!("{}{} files", conversed.run.summary(), conversed.acknowledged.len());
    assert_eq!(asked_for, 7);
    assert!(conversed.acknowledged.len() >= 100);

    // The name of the map is the identifier that another initiator reads in VPD page 83h.
    let identity = peer::iscsi_inq(&fixture.url(5), Some(0x83)).unwrap();
    assert!(identity.contains("NAA"), "{identity}");
    let naa = wwid.strip_prefix('3').expect("scsi_id's mark of a designator of type NAA");
    let state = fixture.state().to_string().to_lowercase();
    assert!(state.contains(naa), "no {naa} in {state}");
    fixture.stop();
    scenarios::check_image(&disk, &conversed.acknowledged).unwrap();
}
