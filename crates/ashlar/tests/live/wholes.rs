//! Stripes and concatenations that are assembled only by the configuration: an edit, a disk in
//! another's place or a lost state folder does not scramble their data.

use crate::edits::Host;
use crate::fixture::{Fixture, file_disk};

const BYTES: u64 = 8 << 20;

fn config(house: &Fixture, class: &str, members: [&str; 2], more: &str) {
    let disks: String = (0..2).map(|n| file_disk(&format!("d{n}"), &format!("d{n}.img"))).collect();
    let [a, b] = members;
    let geom = format!(
        "\n[[geom]]\nclass = \"{class}\"\nname = \"s\"\nmembers = [\"{a}\", \"{b}\"]\n{more}\n"
    );
    house.configure(&format!("{disks}{geom}"), &format!("0 = \"{class}/s\""));
}

/// qemu-io on LUN 0.
fn io(house: &Fixture, command: &str) {
    let mut qemu = std::process::Command::new(rig::proc::tool("qemu-io").unwrap());
    let said = rig::proc::run(qemu.args(["-f", "raw", "-c", command, &house.url(0)])).unwrap();
    assert!(!said.contains("failed"), "{command}: {said}");
}

#[test]
fn configured_stripe_keeps_its_member_order_and_strip_size() {
    let mut house = Fixture::new("wholes");
    for n in 0..2 {
        house.image(&format!("d{n}.img"), BYTES);
    }
    config(&house, "stripe", ["d0", "d1"], "");
    house.start_whole();
    // Different on each member, and something at the start that is known.
    io(&house, "write -P 7 0 64k");
    io(&house, "write -P 9 64k 64k");
    house.stop();
    let table = "label: gpt\nsize=1M\n";
    crate::fixture::tool("sfdisk", &["-q", house.path("d0.img").to_str().unwrap()], table);

    for (members, more, why) in [
        (["d1", "d0"], "", "members change from d0"),
        (
            ["d0", "d1"],
            "strip = 4096",
            "layout changes from strips of 65536 bytes to strips of 4096",
        ),
    ] {
        config(&house, "stripe", members, more);
        house.start();
        house.ashlar(&["status"]).ends(3).prints(&[
            "create geom s (stripe)",
            why,
            "--yes-destroy s",
        ]);
        house.ashlar(&["plan"]).prints(&["destroys", why]);
        house.ashlar(&["apply"]).ends(4).complains(&["--yes-destroy s"]);
        assert!(house.provider("stripe/s").is_none());
        // As it was, and it is there again.
        config(&house, "stripe", ["d0", "d1"], "");
        house.ok(&["apply"]);
        io(&house, "read -P 9 64k 64k");
        // The same edit while it runs.
        config(&house, "stripe", members, more);
        house.ashlar(&["apply"]).ends(4);
        io(&house, "read -P 9 64k 64k");
        house.stop();
    }
    // Disks that are called otherwise are the same disks.
    let text = std::fs::read_to_string(house.path("ashlar.toml")).unwrap();
    config(&house, "stripe", ["d0", "d1"], "");
    let same = std::fs::read_to_string(house.path("ashlar.toml")).unwrap();
    assert_ne!(text, same);
    let same = same.replace("\"d0\"", "\"left\"").replace("\"d1\"", "\"right\"");
    house.write("ashlar.toml", &same);
    house.start_whole();
    io(&house, "read -P 9 64k 64k");
    house.stop();
    // The state folder is lost: no record shows how they belong together, and they contain data.
    std::fs::remove_dir_all(house.path("units")).unwrap();
    house.start();
    let lost = house.ashlar(&["status"]).ends(3);
    lost.prints(&["left holds GPT", "the former layout of s is not recorded", "--yes-destroy s"]);
    house.ok(&["apply", "--yes-destroy", "s"]);
    io(&house, "read -P 9 64k 64k");
    house.stop();
    house.start_whole();
    io(&house, "read -P 9 64k 64k");
}

#[test]
fn grown_first_member_of_a_concat_does_not_shift_the_others() {
    let mut house = Fixture::new("wholes-concat");
    for n in 0..2 {
        house.image(&format!("d{n}.img"), BYTES);
    }
    config(&house, "concat", ["d0", "d1"], "");
    house.start_whole();
    io(&house, "write -P 9 8M 64k");
    house.stop();
    let grow = |image: &str, to: u64| {
        let file = std::fs::OpenOptions::new().write(true).open(house.path(image)).unwrap();
        file.set_len(to).unwrap();
    };
    grow("d0.img", 2 * BYTES);
    grow("d1.img", 2 * BYTES);
    let mut house = house;
    house.start();
    let status = house.ashlar(&["status"]).ends(3);
    status.prints(&["members of 8388608 bytes before the last", "members of 16777216 bytes"]);
    house.stop();
    let file = std::fs::OpenOptions::new().write(true).open(house.path("d0.img")).unwrap();
    file.set_len(BYTES).unwrap();
    house.start_whole();
    io(&house, "read -P 9 8M 64k");
}

/// A concat of these disks on LUN 0.
fn concat(house: &Fixture, disks: u32, members: &[&str]) {
    let disks: String =
        (0..disks).map(|n| file_disk(&format!("d{n}"), &format!("d{n}.img"))).collect();
    let geom = format!("[[geom]]\nclass = \"concat\"\nname = \"s\"\nmembers = {members:?}\n");
    house.configure(&format!("{disks}\n{geom}"), "0 = \"concat/s\"");
}

#[test]
fn members_appended_to_a_concat_by_an_edit_extend_it_under_a_host() {
    const CAPACITY_CHANGED: (u8, u8) = (0x2A, 0x09);
    let mut house = Fixture::new("wholes-append");
    (0..4).for_each(|n| drop(house.image(&format!("d{n}.img"), BYTES)));
    let size = |house: &Fixture| house.provider("concat/s").unwrap().1["size_bytes"].clone();
    concat(&house, 2, &["d0", "d1"]);
    house.start_whole();
    io(&house, "write -P 9 15M 64k");
    let host = Host::start(&house, 0, 1);
    host.wait_for_rounds(&house, "before");
    concat(&house, 3, &["d0", "d1", "d2"]);
    let plan = house.ashlar(&["plan"]).ends(6).prints(&["change geom s (concat)"]);
    plan.lacks(&["remove", "destroys", "disruptive"]);
    house.ok(&["apply"]);
    house.ashlar(&["plan"]).ends(0).prints(&["no changes"]);
    host.works_on(&house, "after", &[CAPACITY_CHANGED]);
    assert_eq!(size(&house), 3 * BYTES);
    // One of them cannot be taken away, and the order cannot change, while it is used.
    concat(&house, 3, &["d0", "d2", "d1"]);
    house.ashlar(&["plan"]).prints(&["destroys"]);
    house.ashlar(&["apply"]).ends(4);
    concat(&house, 2, &["d0", "d1"]);
    house.ashlar(&["plan"]).prints(&["destroys"]);
    house.ashlar(&["apply"]).ends(4);
    host.wait_for_rounds(&house, "after the refusals");
    // Contents of a new member are asked about.
    let table = "label: gpt\nsize=1M\n";
    crate::fixture::tool("sfdisk", &["-q", house.path("d3.img").to_str().unwrap()], table);
    concat(&house, 4, &["d0", "d1", "d2", "d3"]);
    house.ashlar(&["plan"]).prints(&["destroys", "d3 holds GPT"]);
    house.ashlar(&["apply"]).ends(4).complains(&["--yes-destroy s"]);
    host.wait_for_rounds(&house, "after the question");
    host.stop();
    house.stop();
    // The same edit while the daemon is off.
    house.start();
    house.ashlar(&["status"]).ends(3).prints(&["d3 holds GPT", "--yes-destroy s"]);
    house.stop();
    house.image("d3.img", BYTES);
    house.start_whole();
    assert_eq!(size(&house), 4 * BYTES);
    // The last member grows and another one is appended in one edit.
    house.image("d4.img", BYTES);
    concat(&house, 5, &["d0", "d1", "d2", "d3", "d4"]);
    let text = std::fs::read_to_string(house.path("ashlar.toml")).unwrap();
    let larger = format!("d3.img\"\nsize = {}", 2 * BYTES);
    house.write("ashlar.toml", &text.replace("d3.img\"", &larger));
    house.ok(&["apply"]);
    assert_eq!(size(&house), 6 * BYTES);
    io(&house, "read -P 9 15M 64k");
    house.stop();
}
