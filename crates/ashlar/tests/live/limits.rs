//! Limits of a unit for its blocks and for freeing them, as third-party programs read them:
//! `iscsi-inq` reads page B0h, `nbdinfo` the sizes of blocks. The units are a mirror, an array with
//! parity, and a partition that begins amid a granule.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use rig::proc;
use serde_json::Value;

use crate::fixture::{Fixture, array, file_disk, tool};

const DISK_BYTES: u64 = 64 << 20;

/// Sectors in which a file of the fixture gives blocks back: 4 KiB.
const GRANULE: u64 = 8;

/// First sector of the partition.
const FIRST: u64 = 41;

/// Fields of page B0h.
fn page(fixture: &Fixture, lun: u64) -> BTreeMap<String, u64> {
    let output = tool("iscsi-inq", &["-e", "1", "-c", "176", &fixture.url(lun)], "");
    let field = |line: &str| {
        let (name, value) = line.split_once(':')?;
        Some((name.to_owned(), value.trim().parse().ok()?))
    };
    output.lines().filter_map(field).collect()
}

/// Smallest, preferred and largest size of a request, bytes.
fn sizes(nbd: SocketAddr, export: &str) -> [u64; 3] {
    let output = tool("nbdinfo", &["--json", &format!("nbd://{nbd}/{export}")], "");
    let output: Value = serde_json::from_str(&output).unwrap();
    let export = &array(&output["exports"])[0];
    assert_eq!(export["can_trim"], true, "{export}");
    ["minimum", "preferred", "maximum"]
        .map(|which| export[format!("block_size_{which}")].as_u64().expect("a size"))
}

#[test]
fn third_party_tools_read_granule_size_and_alignment() {
    let mut fixture = Fixture::alone("limits");
    let disks: String = (0..6)
        .map(|n| {
            fixture.image(&format!("d{n}.img"), DISK_BYTES);
            file_disk(&format!("d{n}"), &format!("d{n}.img"))
        })
        .collect();
    fixture.configure(&disks, "");
    fixture.start();
    fixture.ok(&["mirror", "label", "m", "d0", "d1"]);
    fixture.ok(&["raid", "label", "Intel", "v", "RAID5", "d2", "d3", "d4"]);
    fixture.ok(&["part", "create", "-s", "GPT", "d5"]);
    let first = FIRST.to_string();
    fixture.ok(&["part", "add", "-t", "freebsd-ufs", "-b", &first, "-s", "20000", "d5"]);
    let list = fixture.ok(&["raid", "list"]);
    let volume = list.split_whitespace().find(|w| w.starts_with("raid/") && w.ends_with("/v"));
    let units = ["mirror/m", volume.expect("a volume"), "d5p1"];
    let nbd = SocketAddr::from(([127, 0, 0, 1], proc::free_port().unwrap()));
    let luns = |n: usize| (0..n).map(|i| format!("{i} = \"{}\"", units[i])).collect::<Vec<_>>();
    let luns = luns(units.len()).join(", ");
    fixture.configure(
        &format!(
            "{disks}\n[[target]]\ndriver = \"nbd\"\nname = \"shop\"\nlisten = [\"{nbd}\"]\n\n\
             [[access]]\ntarget = \"shop\"\ngroup = \"all\"\ninitiators = [\"*\"]\n\
             luns = {{ {luns} }}\n"
        ),
        &luns,
    );
    fixture.ok(&["apply"]);
    // A row of the array: two strips of 128 KiB, which are given back together.
    let (strip, row) = (256, 512);
    // Where the first granule begins: as far behind the start as the start is behind one.
    let ahead = GRANULE - FIRST % GRANULE;
    let wanted = [(GRANULE, 0, GRANULE), (row, 0, strip), (GRANULE, ahead, GRANULE)];
    for (lun, (granule, begins, best)) in wanted.into_iter().enumerate() {
        let page = page(&fixture, lun as u64);
        let field =
            |name: &str| page.get(name).copied().unwrap_or_else(|| panic!("{name}: {page:?}"));
        assert_eq!(field("optimal unmap granularity"), granule, "{}", units[lun]);
        assert_eq!(field("ugavalid"), 1, "{}", units[lun]);
        assert_eq!(field("unmap granularity alignment"), begins, "{}", units[lun]);
        // Where there is no stripe Linux would take a length for its largest command.
        let transfer = if best == strip { strip } else { 0 };
        assert_eq!(field("optimal transfer length"), transfer, "{}", units[lun]);
        assert!(field("maximum unmap lba count") >= 1 << 20);
        assert_eq!(sizes(nbd, units[lun]), [512, best * 512, 32 << 20], "{}", units[lun]);
    }
    fixture.assert_alive();
    fixture.stop();
}
