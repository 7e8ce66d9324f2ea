//! sg3_utils in a real kernel against four units: every tool's words are checked for facts, and
//! what it did is looked at from outside. One boot.

mod house;

use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use house::{House, IQN, file_disk};
use rig::Login;
use rig::guest::{Boot, Image, Kit, Script, guest_portal};
use rig::peer;
use rig::scenarios::{self, From, GO};

/// Size of each unit.
const UNIT_BYTES: u64 = 64 << 20;
/// Longest life of the guest.
const DEADLINE: Duration = Duration::from_secs(300);

/// What another initiator does to the first unit.
const WRITE: &str = "write -P 0x11 32M 4k";
const READ: &str = "read 32M 4k";

fn steps(portal: &str) -> Script {
    let mut script = Script::new();
    script.step(
        "log in",
        format!(
            "start_iscsid {}; node {IQN} {portal}\n\
             iscsiadm -m node -T {IQN} -p {portal} --login >/dev/null\n\
             echo \"A=$(disk {IQN} 0) B=$(disk {IQN} 1) C=$(disk {IQN} 2) D=$(disk {IQN} 3)\" \
             >/rig/names",
            Login::INITIATOR
        ),
    );
    for part in include_str!("sg3_utils.sh").split("#: ").skip(1) {
        let (name, shell) = part.split_once('\n').expect("a name and commands");
        script.step(name, format!(". /rig/names\n{shell}"));
    }
    script
}

#[test]
fn every_tool_tells_facts() {
    let mut house = House::new("tools");
    let image = Image::with_kits(&[Kit::ScsiTools]).unwrap();
    let (a, b) = (house.image("a.img", UNIT_BYTES), house.image("b.img", UNIT_BYTES));
    let erasable = "[[unit]]\nprovider = \"b\"\nsanitize = true\n".to_owned();
    let orders = "[[alua]]\nname = \"default\"\nid = 1\nexplicit = true\n".to_owned();
    let more = format!(
        "[[disk]]\nname = \"c\"\nkind = \"memory\"\nsize = {UNIT_BYTES}\nmemory_max = {}\n\
         [[disk]]\nname = \"d\"\nkind = \"memory\"\nsize = {UNIT_BYTES}\n\
         [[unit]]\nprovider = \"d\"\nprotection = \"type1\"\n",
        UNIT_BYTES / 2
    );
    let disks = [file_disk("a", "a.img"), file_disk("b", "b.img"), more, erasable, orders].concat();
    house.configure(&disks, "0 = \"a\", 1 = \"b\", 2 = \"c\", 3 = \"d\"");
    house.start();
    let script = steps(&guest_portal(house.portal()));
    let how = Boot { deadline: DEADLINE, core: None };
    let mut asked_for = 0;
    let conversed = scenarios::converse(From::Kernel(&image), &script, how, &mut |asked| {
        asked_for += 1;
        let url = house.url(0);
        let other = |command: &str| peer::qemu_io(&url, &[command]);
        match asked {
            "compared" => {
                let bytes = std::fs::read(&a)?;
                assert!(bytes[16 * 512..17 * 512] == [0xff; 512], "COMPARE AND WRITE wrote else");
                assert!(bytes[64 * 512..72 * 512].iter().all(|b| b & 0xf0 == 0xf0), "ORWRITE");
            }
            "unmapped" => {
                let bytes = std::fs::read(&b)?;
                assert!(bytes[32 * 512..64 * 512].iter().all(|b| *b == 0), "UNMAP");
                assert!(bytes[..512] == bytes[7 * 512..8 * 512], "WRITE SAME");
                let blocks = std::fs::metadata(&b)?.blocks();
                assert!(blocks <= 128 - 32 - 16, "{blocks} blocks of 512 bytes are left");
            }
            "copied" => {
                let (from, to) = (std::fs::read(&a)?, std::fs::read(&b)?);
                assert!(from[4 << 20..][..64 << 10].iter().any(|b| *b != 0), "what was copied");
                assert!(from[4 << 20..][..64 << 10] == to[8 << 20..][..64 << 10], "XCOPY");
            }
            "erased" => {
                let zeros = std::fs::read(&b)?.chunks(512).filter(|b| *b == [0; 512]).count();
                assert_eq!(zeros, 0, "blocks without noise");
            }
            "nothing" => {
                assert!(std::fs::read(&b)?.iter().all(|b| *b == 0), "BLOCK ERASE");
                assert_eq!(std::fs::metadata(&b)?.blocks(), 0, "blocks are left");
            }
            "write" => drop(other(WRITE)?),
            "read" => drop(other(READ)?),
            "conflict write" => assert!(other(WRITE).is_err(), "let through"),
            "conflict read" => assert!(other(READ).is_err(), "let through"),
            _ => panic!("the guest asked {asked:?}"),
        }
        Ok(GO.to_owned())
    })
    .unwrap_or_else(|e| panic!("{e:#}\nthe daemon:\n{}", house.log()));
    println!("{}", conversed.run.summary());
    assert_eq!(asked_for, 13);
    house.stop();
}
