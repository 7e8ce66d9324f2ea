//! Stripes and concatenations that are assembled only by the configuration. An edit, a disk in
//! another's place or a lost state folder does not scramble their data.

use crate::edits::Host;
use crate::fixture::{Fixture, file_disk};

const BYTES: u64 = 8 << 20;

fn config(fixture: &Fixture, class: &str, members: [&str; 2], more: &str) {
    let disks: String = (0..2).map(|n| file_disk(&format!("d{n}"), &format!("d{n}.img"))).collect();
    let [a, b] = members;
    let geom = format!(
        "\n[[geom]]\nclass = \"{class}\"\nname = \"s\"\nmembers = [\"{a}\", \"{b}\"]\n{more}\n"
    );
    fixture.configure(&format!("{disks}{geom}"), &format!("0 = \"{class}/s\""));
}

/// qemu-io on LUN 0.
fn io(fixture: &Fixture, command: &str) {
    let mut qemu = std::process::Command::new(rig::proc::tool("qemu-io").unwrap());
    let output = rig::proc::run(qemu.args(["-f", "raw", "-c", command, &fixture.url(0)])).unwrap();
    assert!(!output.contains("failed"), "{command}: {output}");
}

#[test]
fn configured_stripe_keeps_its_member_order_and_strip_size() {
    let mut fixture = Fixture::new("wholes");
    for n in 0..2 {
        fixture.image(&format!("d{n}.img"), BYTES);
    }
    config(&fixture, "stripe", ["d0", "d1"], "");
    fixture.start_whole();
    // Different on each member, and something at the start that is known.
    io(&fixture, "write -P 7 0 64k");
    io(&fixture, "write -P 9 64k 64k");
    fixture.stop();
    let table = "label: gpt\nsize=1M\n";
    crate::fixture::tool("sfdisk", &["-q", fixture.path("d0.img").to_str().unwrap()], table);

    for (members, more, why) in [
        (["d1", "d0"], "", "members change from d0"),
        (
            ["d0", "d1"],
            "strip = 4096",
            "layout changes from strips of 65536 bytes to strips of 4096",
        ),
    ] {
        config(&fixture, "stripe", members, more);
        fixture.start();
        fixture.ashlar(&["status"]).ends(3).prints(&[
            "create geom s (stripe)",
            why,
            "--yes-destroy s",
        ]);
        fixture.ashlar(&["plan"]).prints(&["destroys", why]);
        fixture.ashlar(&["apply"]).ends(4).complains(&["--yes-destroy s"]);
        assert!(fixture.provider("stripe/s").is_none());
        // As it was, and it is there again.
        config(&fixture, "stripe", ["d0", "d1"], "");
        fixture.ok(&["apply"]);
        io(&fixture, "read -P 9 64k 64k");
        // The same edit while it runs.
        config(&fixture, "stripe", members, more);
        fixture.ashlar(&["apply"]).ends(4);
        io(&fixture, "read -P 9 64k 64k");
        fixture.stop();
    }
    // Disks that are called otherwise are the same disks.
    let text = std::fs::read_to_string(fixture.path("ashlar.toml")).unwrap();
    config(&fixture, "stripe", ["d0", "d1"], "");
    let same = std::fs::read_to_string(fixture.path("ashlar.toml")).unwrap();
    assert_ne!(text, same);
    let same = same.replace("\"d0\"", "\"left\"").replace("\"d1\"", "\"right\"");
    fixture.write("ashlar.toml", &same);
    fixture.start_whole();
    io(&fixture, "read -P 9 64k 64k");
    fixture.stop();
    // The state folder is lost: no record shows how they belong together, and they contain data.
    std::fs::remove_dir_all(fixture.path("units")).unwrap();
    fixture.start();
    let lost = fixture.ashlar(&["status"]).ends(3);
    lost.prints(&["left holds GPT", "the former layout of s is not recorded", "--yes-destroy s"]);
    fixture.ok(&["apply", "--yes-destroy", "s"]);
    io(&fixture, "read -P 9 64k 64k");
    fixture.stop();
    fixture.start_whole();
    io(&fixture, "read -P 9 64k 64k");
}

#[test]
fn grown_first_member_of_a_concat_does_not_shift_the_others() {
    let mut fixture = Fixture::new("wholes-concat");
    for n in 0..2 {
        fixture.image(&format!("d{n}.img"), BYTES);
    }
    config(&fixture, "concat", ["d0", "d1"], "");
    fixture.start_whole();
    io(&fixture, "write -P 9 8M 64k");
    fixture.stop();
    let grow = |image: &str, to: u64| {
        let file = std::fs::OpenOptions::new().write(true).open(fixture.path(image)).unwrap();
        file.set_len(to).unwrap();
    };
    grow("d0.img", 2 * BYTES);
    grow("d1.img", 2 * BYTES);
    let mut fixture = fixture;
    fixture.start();
    let status = fixture.ashlar(&["status"]).ends(3);
    status.prints(&["members of 8388608 bytes before the last", "members of 16777216 bytes"]);
    fixture.stop();
    let file = std::fs::OpenOptions::new().write(true).open(fixture.path("d0.img")).unwrap();
    file.set_len(BYTES).unwrap();
    fixture.start_whole();
    io(&fixture, "read -P 9 8M 64k");
}

/// A concat of these disks on LUN 0.
fn concat(fixture: &Fixture, disks: u32, members: &[&str]) {
    let disks: String =
        (0..disks).map(|n| file_disk(&format!("d{n}"), &format!("d{n}.img"))).collect();
    let geom = format!("[[geom]]\nclass = \"concat\"\nname = \"s\"\nmembers = {members:?}\n");
    fixture.configure(&format!("{disks}\n{geom}"), "0 = \"concat/s\"");
}

#[test]
fn members_appended_to_a_concat_by_an_edit_extend_it_under_a_host() {
    const CAPACITY_CHANGED: (u8, u8) = (0x2A, 0x09);
    let mut fixture = Fixture::new("wholes-append");
    (0..4).for_each(|n| drop(fixture.image(&format!("d{n}.img"), BYTES)));
    let size = |fixture: &Fixture| fixture.provider("concat/s").unwrap().1["size_bytes"].clone();
    concat(&fixture, 2, &["d0", "d1"]);
    fixture.start_whole();
    io(&fixture, "write -P 9 15M 64k");
    let host = Host::start(&fixture, 0, 1);
    host.wait_for_rounds(&fixture, "before");
    concat(&fixture, 3, &["d0", "d1", "d2"]);
    let plan = fixture.ashlar(&["plan"]).ends(6).prints(&["change geom s (concat)"]);
    plan.lacks(&["remove", "destroys", "disruptive"]);
    fixture.ok(&["apply"]);
    fixture.ashlar(&["plan"]).ends(0).prints(&["no changes"]);
    host.works_on(&fixture, "after", &[CAPACITY_CHANGED]);
    assert_eq!(size(&fixture), 3 * BYTES);
    // One of them cannot be taken away, and the order cannot change, while it is used.
    concat(&fixture, 3, &["d0", "d2", "d1"]);
    fixture.ashlar(&["plan"]).prints(&["destroys"]);
    fixture.ashlar(&["apply"]).ends(4);
    concat(&fixture, 2, &["d0", "d1"]);
    fixture.ashlar(&["plan"]).prints(&["destroys"]);
    fixture.ashlar(&["apply"]).ends(4);
    host.wait_for_rounds(&fixture, "after the refusals");
    // Contents of a new member need consent.
    let table = "label: gpt\nsize=1M\n";
    crate::fixture::tool("sfdisk", &["-q", fixture.path("d3.img").to_str().unwrap()], table);
    concat(&fixture, 4, &["d0", "d1", "d2", "d3"]);
    fixture.ashlar(&["plan"]).prints(&["destroys", "d3 holds GPT"]);
    fixture.ashlar(&["apply"]).ends(4).complains(&["--yes-destroy s"]);
    host.wait_for_rounds(&fixture, "after the question");
    host.stop();
    fixture.stop();
    // The same edit while the daemon is off.
    fixture.start();
    fixture.ashlar(&["status"]).ends(3).prints(&["d3 holds GPT", "--yes-destroy s"]);
    fixture.stop();
    fixture.image("d3.img", BYTES);
    fixture.start_whole();
    assert_eq!(size(&fixture), 4 * BYTES);
    // The last member grows and another one is appended in one edit.
    fixture.image("d4.img", BYTES);
    concat(&fixture, 5, &["d0", "d1", "d2", "d3", "d4"]);
    let text = std::fs::read_to_string(fixture.path("ashlar.toml")).unwrap();
    let larger = format!("d3.img\"\nsize = {}", 2 * BYTES);
    fixture.write("ashlar.toml", &text.replace("d3.img\"", &larger));
    fixture.ok(&["apply"]);
    assert_eq!(size(&fixture), 6 * BYTES);
    io(&fixture, "read -P 9 15M 64k");
    fixture.stop();
}
