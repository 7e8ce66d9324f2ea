//! Members that are images with holes. A rebuild leaves them as sparse as their data, and metadata
//! on the whole is not taken for the member's own.

use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use crate::fixture::{Fixture, array, file_disk, text};

const BYTES: u64 = 64 << 20;
const LIMIT: Duration = Duration::from_secs(60);

/// Bytes that an image takes.
fn taken(fixture: &Fixture, image: &str) -> u64 {
    std::fs::metadata(fixture.path(image)).unwrap().blocks() * 512
}

fn disks(fixture: &Fixture, count: u32) -> String {
    let one = |n| {
        fixture.image(&format!("d{n}.img"), BYTES);
        file_disk(&format!("d{n}"), &format!("d{n}.img"))
    };
    (0..count).map(one).collect()
}

#[test]
fn rebuilt_member_is_as_sparse_as_its_source() {
    let mut fixture = Fixture::new("sparse");
    let disks = disks(&fixture, 6);
    fixture.configure(&disks, "");
    fixture.start();
    fixture.ok(&["mirror", "label", "m", "d0"]);
    let output = fixture.json(&["raid", "label", "Intel", "five", "RAID5", "d2", "d3", "d4"]);
    let five = text(&output["answer"]["provider"]);
    let lun = format!("0 = \"mirror/m\", 1 = \"{five}\"");
    fixture.configure(&disks, &lun);
    fixture.ok(&["apply"]);
    for lun in [0, 1] {
        let mut command = std::process::Command::new(rig::proc::tool("qemu-io").unwrap());
        let url = fixture.url(lun);
        // One strip in each of three rows: each disk of the array has data or parity of them.
        let strips = ["write -P 7 1M 64k", "write -P 7 1152k 64k", "write -P 9 1280k 64k"];
        let writes: Vec<&str> = strips.iter().chain(&["flush"]).flat_map(|c| ["-c", c]).collect();
        rig::proc::run(command.args(["-f", "raw", &url]).args(writes)).unwrap();
    }
    // Empty members are added.
    fixture.ok(&["mirror", "insert", "m", "d1"]);
    fixture.ok(&["raid", "remove", "five", "d4"]);
    fixture.ok(&["raid", "insert", "five", "d5"]);
    let whole = |class: &str| {
        let status = fixture.json(&[class, "status"]);
        let status = status["answer"]["text"].as_str().unwrap().to_owned();
        (class == "mirror" && status.contains("COMPLETE"))
            || (class == "raid" && status.contains(" OPTIMAL"))
    };
    fixture.until("the mirror is whole", LIMIT, || whole("mirror"));
    fixture.until("the array is whole", LIMIT, || whole("raid"));
    fixture.stop();
    let (source, mirrored) = (taken(&fixture, "d0.img"), taken(&fixture, "d1.img"));
    assert!(source >= 192 << 10 && mirrored >= 192 << 10, "{source} {mirrored}");
    assert!(mirrored <= 4 << 20, "the mirror's new member takes {mirrored}");
    let filled = taken(&fixture, "d5.img");
    assert!((64 << 10..=4 << 20).contains(&filled), "the array's new member takes {filled}");
    // They have the written data: the mirror starts with the new member alone.
    std::fs::remove_file(fixture.path("d0.img")).unwrap();
    fixture.start();
    fixture.until("the half is there", LIMIT, || fixture.provider("mirror/m").is_some());
    fixture.stop();
    let image = std::fs::read(fixture.path("d1.img")).unwrap();
    for (at, byte) in [(1024, 7), (1152, 7), (1280, 9)] {
        assert!(image[at << 10..(at + 64) << 10].iter().all(|b| *b == byte), "{at}k");
    }
}

#[test]
fn partition_table_on_a_mirror_is_not_attributed_to_its_members() {
    let mut fixture = Fixture::new("sparse-inspect");
    let disks = disks(&fixture, 3);
    let two = "0 = \"mirror/m\"";
    fixture.configure(&disks, "");
    fixture.start();
    fixture.ok(&["mirror", "label", "m", "d0", "d1"]);
    fixture.ok(&["part", "create", "-s", "gpt", "mirror/m"]);
    fixture.ok(&["part", "add", "-t", "linux-data", "mirror/m"]);
    let found = fixture.json(&["inspect", "d0"]);
    let findings = array(&found["findings"]);
    let tables: Vec<_> = findings.iter().filter(|f| f["class"] == "part").collect();
    assert_eq!(tables.len(), 3, "{found}");
    for table in tables {
        assert_eq!(table["why"], "on mirror/m: GPT with 1 partition", "{found}");
        assert_eq!(table["shown_on"], "mirror/m");
    }
    // A missing disk of another group is no fault of this LUN.
    let more = "\n[[access]]\ntarget = \"{iqn}\"\ngroup = \"more\"\n\
                initiators = [\"iqn.2026-11.test:x\"]\nluns = { 0 = \"d2\", 1 = \"d9\" }\n";
    let d9 = file_disk("d9", "d9.img");
    fixture.stop();
    fixture.configure(&format!("{disks}{d9}"), two);
    let config = std::fs::read_to_string(fixture.path("ashlar.toml")).unwrap();
    let config = config.replace("[\"*\"]", "[\"iqn.2026-11.test:y\"]");
    fixture.write("ashlar.toml", &format!("{config}{more}"));
    fixture.start();
    let tree = fixture.ok(&["tree"]);
    let luns: Vec<&str> = tree.lines().filter(|line| line.contains("LUN ")).collect();
    assert_eq!(luns.len(), 3, "{tree}");
    assert!(luns.iter().all(|line| !line.contains("DEGRADED")), "{tree}");
    let status = fixture.ashlar(&["status"]).ends(3);
    status.prints(&["LUN 1 (d9)"]);
}
