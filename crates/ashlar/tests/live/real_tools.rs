//! sg3_utils and ddpt in a real kernel against four units. The output of every tool is checked for
//! facts, and its effect is checked from outside.

use std::os::unix::fs::MetadataExt;

use rig::Login;
use rig::guest::{Script, SharedGuest, guest_portal};
use rig::peer;
use rig::scenarios::{self, From, GO};

use crate::fixture::{Fixture, IQN, file_disk};
use crate::guests::BOOT;

const UNIT_BYTES: u64 = 64 << 20;

/// I/O of another initiator to the first unit.
const WRITE: &str = "write -P 0x11 32M 4k";
const READ: &str = "read 32M 4k";

/// Bytes of the block that COMPARE AND WRITE leaves.
const NEW: u8 = 0xC3;

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
    tuples(&mut script);
    for tools in [include_str!("../sg3_utils.sh"), include_str!("../ddpt.sh")] {
        for part in tools.split("#: ").skip(1) {
            let (name, shell) = part.split_once('\n').expect("a name and commands");
            script.step(name, format!(". /rig/names\n{shell}"));
        }
    }
    script
}

/// A block of 512 bytes with its tuple, the guard computed as SBC-3 writes it down.
fn woven(data: u8, app: u16, reference: u32) -> Vec<u8> {
    let mut guard = 0u16;
    for bit in (0..512 * 8).map(|bit| u16::from(data >> (7 - bit % 8) & 1)) {
        let top = (guard >> 15) ^ bit;
        guard = (guard << 1) ^ (0x8BB7 * top);
    }
    let mut out = vec![data; 512];
    out.extend(guard.to_be_bytes());
    out.extend(app.to_be_bytes());
    out.extend(reference.to_be_bytes());
    out
}

/// Block 8 with its tuple, and with tuples that are wrong in one field.
fn tuples(script: &mut Script) {
    let mut bent = woven(NEW, 0x1234, 8);
    bent[513] ^= 1;
    script
        .file("rig/old", woven(0x5A, 0x1234, 8))
        .file("rig/new", woven(NEW, 0x1234, 8))
        .file("rig/bent", bent)
        .file("rig/moved", woven(NEW, 0x1234, 9))
        .file("rig/tagged", woven(NEW, 0x4321, 8));
}

/// sg3_utils and ddpt have the expected output and effect.
pub fn check(guest: &mut SharedGuest) {
    let mut fixture = Fixture::alone("tools");
    let (a, b) = (fixture.image("a.img", UNIT_BYTES), fixture.image("b.img", UNIT_BYTES));
    let erasable = "[[unit]]\nprovider = \"b\"\nsanitize = true\n".to_owned();
    let orders = "[[alua]]\nname = \"default\"\nid = 1\nexplicit = true\n".to_owned();
    let more = format!(
        "[[disk]]\nname = \"c\"\nkind = \"memory\"\nsize = {UNIT_BYTES}\nmemory_max = {}\n\
         [[disk]]\nname = \"d\"\nkind = \"memory\"\nsize = {UNIT_BYTES}\n\
         [[unit]]\nprovider = \"d\"\nprotection = \"type1\"\n",
        UNIT_BYTES / 2
    );
    let disks = [file_disk("a", "a.img"), file_disk("b", "b.img"), more, erasable, orders].concat();
    fixture.configure(&disks, "0 = \"a\", 1 = \"b\", 2 = \"c\", 3 = \"d\"");
    fixture.start();
    let script = steps(&guest_portal(fixture.portal()));
    let (mut asked_for, mut noise) = (0, Vec::new());
    let conversed = scenarios::converse(From::Shared(guest), &script, BOOT, &mut |request| {
        asked_for += 1;
        let url = fixture.url(0);
        let other = |command: &str| peer::qemu_io(&url, &[command]);
        match request {
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
            "noise" => noise = std::fs::read(&a)?[16 << 20..17 << 20].to_vec(),
            "by token" => {
                let (from, to) = (std::fs::read(&a)?, std::fs::read(&b)?);
                assert!(noise == to[17 << 20..18 << 20], "ODX from unit to unit");
                assert!(noise == from[18 << 20..19 << 20], "ODX within a unit");
                assert!(noise == to[19 << 20..20 << 20], "ODX behind the command");
                assert!(noise == to[20 << 20..21 << 20], "ODX by a file of tokens");
            }
            "nothing by token" => assert!(noise == std::fs::read(&b)?[24 << 20..25 << 20]),
            "zeros by token" => {
                let to = &std::fs::read(&b)?[24 << 20..25 << 20];
                let (first, end) = (256 * 512, 1280 * 512);
                assert!(to[first..end].iter().all(|byte| *byte == 0), "the token for zeros");
                assert!(noise[..first] == to[..first] && noise[end..] == to[end..]);
            }
            "erased" => {
                let zeros = std::fs::read(&b)?.chunks(512).filter(|b| *b == [0; 512]).count();
                assert_eq!(zeros, 0, "blocks without noise");
            }
            "nothing" => {
                assert!(std::fs::read(&b)?.iter().all(|b| *b == 0), "BLOCK ERASE");
                assert_eq!(std::fs::metadata(&b)?.blocks(), 0, "blocks are left");
            }
            "swapped" => {
                let read = format!("read -P {NEW:#x} 4k 512");
                drop(peer::qemu_io(&fixture.url(3), &[&read])?);
            }
            "write" => drop(other(WRITE)?),
            "read" => drop(other(READ)?),
            "conflict write" => assert!(other(WRITE).is_err(), "let through"),
            "conflict read" => assert!(other(READ).is_err(), "let through"),
            _ => panic!("the guest asked {request:?}"),
        }
        Ok(GO.to_owned())
    })
    .unwrap_or_else(|e| panic!("{e:#}\nthe daemon:\n{}", fixture.log()));
    println!("{}", conversed.run.summary());
    assert_eq!(asked_for, 18);
    fixture.stop();
}
