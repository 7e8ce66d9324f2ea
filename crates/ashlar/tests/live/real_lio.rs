//! The kernel's own target, in a guest, below a daemon of the host: its LUN becomes another
//! disk, grows, and another host reserves it.

use std::net::SocketAddr;
use std::time::Duration;

use rig::guest::{Script, SharedGuest};
use rig::scenarios::{self, From, GO};

use crate::fixture::Fixture;
use crate::foreign_targets::{bus, grows, host, status, wait_for_status, words, write};
use crate::guests::BOOT;
use testkit::iscsi::initiator::Client;

const LIMIT: Duration = Duration::from_secs(60);
/// WRITE(10) of the block 40,000, which is beyond 16 MiB.
const WRITE_40000: [u8; 10] = [0x2a, 0, 0, 0, 0x9c, 0x40, 0, 0, 1, 0];
const TARGET: &str = "iqn.2026-11.test.ashlar:lio";

/// Script that creates two disks of 16 MiB in memory, and a command that puts one behind LUN 0.
const SERVE: &str = "\
    ip addr add 10.0.3.15/24 dev eth1; ip link set eth1 up\n\
    mount -t configfs none /sys/kernel/config\n\
    C=/sys/kernel/config/target; T=$C/iscsi/IQN/tpgt_1\n\
    for disk in first second; do\n\
        truncate -s 16M /tmp/$disk; mkdir -p $C/core/fileio_0/$disk\n\
        echo fd_dev_name=/tmp/$disk,fd_dev_size=16777216 >$C/core/fileio_0/$disk/control\n\
        echo 1 >$C/core/fileio_0/$disk/enable\n\
        echo $disk >$C/core/fileio_0/$disk/wwn/vpd_unit_serial\n\
    done\n\
    mkdir -p $C/iscsi; mkdir $C/iscsi/IQN; mkdir $T; mkdir $T/np/10.0.3.15:3260\n\
    echo 0 >$T/attrib/authentication; echo 1 >$T/attrib/generate_node_acls\n\
    echo 0 >$T/attrib/demo_mode_write_protect; mkdir $T/lun/lun_0\n\
    put first; told first";

/// `put DISK`: all sessions end, and the LUN is that disk when there are new ones.
const PUT: &str = "put() {\n\
    C=/sys/kernel/config/target; T=$C/iscsi/IQN/tpgt_1\n\
    echo 0 >$T/enable; rm -f $T/lun/lun_0/port\n\
    ln -s $C/core/fileio_0/$1 $T/lun/lun_0/port; echo 1 >$T/enable\n\
}\n";

/// The first disk becomes 32 MiB long.
const GROW: &str = "\
    truncate -s 32M /tmp/first\n\
    echo fd_dev_size=33554432 >/sys/kernel/config/target/core/fileio_0/first/control\n";

/// `holds DISK BLOCK BYTE`: compares the first byte of a block.
const HOLDS: &str = "holds() {\n\
    [ $(dd if=/tmp/$1 bs=512 skip=$2 count=1 2>/dev/null | od -An -tu1 -N1) = $3 ]\n\
}\n";

fn script() -> Script {
    let with = |text: &str| format!("{PUT}{HOLDS}{text}").replace("IQN", TARGET);
    let mut script = Script::new();
    script.step("serve the first disk", with(SERVE));
    script.step("it has what was written", with("holds first 3 1"));
    script.step("the LUN is another disk", with("put second; told second"));
    script.step(
        "which nothing was written to",
        with("cmp -n 16777216 /tmp/second /dev/zero; ! holds first 4 2"),
    );
    script.step("the first is back", with("put first; told back"));
    script.step(
        "and is written again",
        with("holds first 9 5; cmp -n 16777216 /tmp/second /dev/zero"),
    );
    script.step("it grows", with(&format!("{GROW}told grown; holds first 40000 8")));
    script.step("another host reserves it", with("told reserve; holds first 11 7"));
    script
}

/// The host's side of the guest's requests.
struct Scene {
    fixture: Fixture,
    portal: SocketAddr,
    host: Option<Client>,
}

impl Scene {
    fn answer(&mut self, request: &str) {
        match request {
            "first" => {
                bus(&self.fixture, (self.portal, TARGET), "", "0 = \"da0\"");
                self.fixture.start();
                self.host = Some(host(&self.fixture));
                assert_eq!(self.write(3, 1), "GOOD");
            }
            "second" => {
                assert_eq!(self.write(4, 2), "02/04/03");
                let parts = ["a different disk answers", "serial first", "serial second"];
                wait_for_status(&self.fixture, &parts);
            }
            "back" => {
                let (fixture, host) = (&self.fixture, self.host.as_mut().expect("a host"));
                fixture.until("the disk is back", LIMIT, || write(host, 9, 5) == "GOOD");
                assert!(!status(fixture).contains("different disk"), "{}", status(fixture));
            }
            "grown" => {
                let (fixture, host) = (&self.fixture, self.host.as_mut().expect("a host"));
                // The kernel's target sends no unit attention for it.
                fixture.ok(&["cam", "rescan", "all"]);
                grows(fixture, host, 32 << 20);
                assert_eq!(words(&host.scsi(&WRITE_40000, 0, &[8; 512]).unwrap()), "GOOD");
            }
            "reserve" => {
                let other = self.other_host();
                // RESERVE(6) and RELEASE(6).
                other.ok(&["cam", "cmd", "da0", "-c", "16 0 0 0 0 0"]);
                assert_eq!(self.write(10, 6), "18");
                wait_for_status(&self.fixture, &["RESERVATION CONFLICT (SCSI status 18)"]);
                other.ok(&["cam", "cmd", "da0", "-c", "17 0 0 0 0 0"]);
                assert_eq!(self.write(11, 7), "GOOD");
            }
            _ => panic!("the guest asked {request:?}"),
        }
    }

    /// A second daemon, as another initiator.
    fn other_host(&self) -> Fixture {
        let bus = format!(
            "[[bus]]\nname = \"iscsi0\"\nkind = \"iscsi\"\nportals = [\"{}\"]\n\
             target = \"{TARGET}\"\ninitiator = \"iqn.2026-11.test.ashlar:other\"\n",
            self.portal
        );
        let other = self.fixture.sibling("lio-other", &bus);
        other.until("it has the disk", LIMIT, || other.provider("da0").is_some());
        other
    }

    fn write(&mut self, block: u8, byte: u8) -> String {
        write(self.host.as_mut().expect("a host"), block, byte)
    }
}

/// An exchanged, grown or reserved LUN of LIO is detected. `port` of this machine leads to the
/// target in the guest.
pub fn check(guest: &mut SharedGuest, port: u16) {
    let fixture = Fixture::alone("lio");
    let portal = SocketAddr::from(([127, 0, 0, 1], port));
    let mut scene = Scene { fixture, portal, host: None };
    let mut asked_for = 0;
    let from = From::Shared(guest);
    let conversed = scenarios::converse(from, &script(), BOOT, &mut |request| {
        scene.answer(request);
        asked_for += 1;
        Ok(GO.to_owned())
    });
    let conversed = conversed.unwrap_or_else(|e| panic!("{e:#}\n{}", scene.fixture.log()));
    println!("{}", conversed.run.summary());
    assert_eq!(asked_for, 5);
    scene.fixture.assert_alive();
}
