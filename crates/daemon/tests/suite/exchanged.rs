//! Disks whose file a plan exchanges: `plan` looks at the new file, as `apply` does.

use mgmt::api::Kind;
use mgmt::plan::Risk;

use crate::by_hand::Site;
use crate::media::{MIB, disk};
use crate::members::{apply, exported, geom, refused};

/// A daemon whose folder has three blank files, and two that end with unknown data.
fn site(name: &str) -> Site {
    let site = Site::launched(name);
    let write = |file: &str, byte: u8| {
        std::fs::write(site.folder.join(file), vec![byte; MIB as usize]).expect("a file");
    };
    ["a.img", "b.img", "c.img"].into_iter().for_each(|file| write(file, 0));
    ["x.img", "y.img"].into_iter().for_each(|file| write(file, 0xA5));
    site
}

fn pair(first: &str, second: &str) -> String {
    disk("d0", first, "") + &disk("d1", second, "")
}

/// The names to give as consent and the reason of each step that destroys data.
fn losses(site: &Site, text: &str) -> Vec<(String, String)> {
    let plan = site.control.plan(&site.read(text)).expect("a plan");
    let lost = plan.steps.into_iter().filter(|step| step.risk == Risk::Destroys);
    lost.map(|step| (step.consent_names.join(" "), step.why)).collect()
}

/// A step of the plan destroys data for this reason, and `apply` requires consent before the first
/// step.
fn expect_loss(site: &Site, text: &str, (name, why): (&str, &str)) {
    let lost = losses(site, text);
    assert!(lost.iter().any(|(of, says)| of == name && says.contains(why)), "{lost:?}");
    let before = site.control.config().0;
    let error = apply(site, text, &[]).expect_err("there is no consent");
    assert!(error.kind == Kind::WouldDestroy && error.to_string().contains(name), "{error}");
    assert_eq!(site.control.config().0, before);
    for file in ["x.img", "y.img"] {
        let bytes = std::fs::read(site.folder.join(file)).expect("a file");
        assert!(bytes.iter().all(|byte| *byte == 0xA5), "{file} was written");
    }
}

fn protected(provider: &str) -> String {
    format!("[[unit]]\nprovider = '{provider}'\nprotection = 'type1'\n") + &exported(provider)
}

#[test]
fn protected_unit_on_an_exchanged_file_requires_consent() {
    let site = site("exchanged-protected");
    let on = |file: &str| disk("d0", file, "") + &protected("d0");
    apply(&site, &on("a.img"), &["d0"]).expect("the file is blank");
    expect_loss(&site, &on("x.img"), ("d0", "d0 contains something unknown"));
    // A file that ends with a header of protection information, and a blank one.
    let mut image = vec![0xA5; MIB as usize];
    image[MIB as usize - 512..].fill(0);
    image[MIB as usize - 512..][..8].copy_from_slice(b"ASHPROT1");
    std::fs::write(site.folder.join("p.img"), image).expect("a file");
    for file in ["p.img", "b.img"] {
        assert_eq!(losses(&site, &on(file)), [], "{file}");
    }
    apply(&site, &on("b.img"), &[]).expect("nothing is lost");
    apply(&site, &on("x.img"), &["d0"]).expect("with consent");
}

#[test]
fn protected_unit_on_a_file_without_room_or_write_access_is_refused() {
    let site = site("exchanged-room");
    let on = |file: &str, more: &str| disk("d0", file, more) + &protected("d0");
    apply(&site, &on("a.img", ""), &["d0"]).expect("the file is blank");
    std::fs::write(site.folder.join("small.img"), vec![0; 4096]).expect("a file");
    let why = "protection information needs a disk that can be written";
    let says = (why, "or remove `protection`");
    for (file, more) in [("small.img", ""), ("b.img", "read_only = true")] {
        refused(&site, &on(file, more), says);
    }
    let new = on("new.img", "create = true\nsize = 4096");
    refused(&site, &new, says);
    assert!(!site.folder.join("new.img").exists(), "nothing was made");
    apply(&site, &on("b.img", ""), &[]).expect("there is room");
}

#[test]
fn protected_unit_above_an_exchanged_file_requires_consent() {
    let site = site("exchanged-below");
    let layer = "[[geom]]\nclass = 'nop'\nname = 'n'\nprovider = 'd0'\n";
    let on = |file: &str| disk("d0", file, "") + layer + &protected("n");
    apply(&site, &on("a.img"), &["n"]).expect("the file is blank");
    expect_loss(&site, &on("x.img"), ("n", "n is on d0, which contains something unknown"));
}

#[test]
fn mirror_on_an_exchanged_file_requires_consent() {
    let site = site("exchanged-member");
    apply(&site, &pair("a.img", "b.img"), &[]).expect("two disks");
    let made = |first: &str| pair(first, "b.img") + &geom("mirror", "m", ["d0", "d1"]);
    expect_loss(&site, &made("x.img"), ("m", "d0 holds something unknown"));
    assert_eq!(losses(&site, &made("c.img")), []);
    apply(&site, &made("c.img"), &[]).expect("nothing is lost");
}

/// An image with an MBR and one partition, which ends with these bytes.
fn partitioned(site: &Site, file: &str, end: u8) {
    const START: usize = 64;
    const SECTORS: usize = 1024;
    let mut image = vec![0; MIB as usize];
    image[446 + 4] = 0x83;
    image[446 + 8..][..4].copy_from_slice(&(START as u32).to_le_bytes());
    image[446 + 12..][..4].copy_from_slice(&(SECTORS as u32).to_le_bytes());
    image[510..512].copy_from_slice(&[0x55, 0xAA]);
    image[(START + SECTORS - 1) * 512..][..512].fill(end);
    std::fs::write(site.folder.join(file), image).expect("a file");
}

#[test]
fn partition_of_an_exchanged_file_is_read_from_the_new_file() {
    let site = site("exchanged-partition");
    for (file, end) in [("blank.img", 0), ("other.img", 0), ("used.img", 0xA5)] {
        partitioned(&site, file, end);
    }
    let made = |file: &str| pair(file, "b.img") + &geom("mirror", "m", ["d0s1", "d1"]);
    let exported = |file: &str| disk("d0", file, "") + &protected("d0s1");
    apply(&site, &pair("used.img", "b.img"), &[]).expect("two disks");
    assert_eq!(losses(&site, &made("blank.img")), []);
    apply(&site, &pair("blank.img", "b.img"), &[]).expect("two disks");
    expect_loss(&site, &made("used.img"), ("m", "d0s1 holds something unknown"));
    apply(&site, &exported("blank.img"), &["d0s1"]).expect("the partition is blank");
    assert_eq!(losses(&site, &exported("other.img")), []);
    expect_loss(&site, &exported("used.img"), ("d0s1", "d0s1 contains something unknown"));
}

#[test]
fn mirror_whose_files_are_all_exchanged_requires_consent() {
    let site = site("exchanged-mirror");
    let made = |one: &str, two: &str| pair(one, two) + &geom("mirror", "m", ["d0", "d1"]);
    apply(&site, &made("a.img", "b.img"), &[]).expect("a mirror");
    expect_loss(&site, &made("x.img", "y.img"), ("m", "members were d0"));
}

/// The name of a former member is that of another disk now.
/// W5 of geom_layouts.rs.
#[test]
fn mirror_that_is_made_anew_on_other_disks_requires_consent() {
    let site = site("exchanged-remade");
    let blank = |name: &str, file: &str| disk(name, file, "create = true\nsize = '1MiB'");
    let spare = disk("d2", "c.img", "") + &blank("d3", "e.img");
    let first = pair("a.img", "b.img") + &spare + &geom("mirror", "m", ["d0", "d1"]);
    apply(&site, &first, &[]).expect("a mirror");
    let other = blank("d0", "f.img") + &spare + &geom("mirror", "m", ["d2", "d3"]);
    expect_loss(&site, &other, ("m", "members were d0"));
    apply(&site, &other, &["m"]).expect("with consent");
}

/// The mirror would be found by them, and none of them would be named.
#[test]
fn mirror_that_is_made_anew_beside_its_records_is_refused() {
    let site = site("exchanged-records");
    let blank = |name: &str, file: &str| disk(name, file, "create = true\nsize = '1MiB'");
    let mirror = |members| geom("mirror", "m", members);
    let first = pair("a.img", "b.img") + &disk("d2", "c.img", "") + &mirror(["d0", "d1"]);
    apply(&site, &first, &[]).expect("a mirror");
    let rest = disk("d1", "b.img", "") + &disk("d2", "c.img", "");
    let exchanged = blank("d0", "e.img") + &rest + &mirror(["d0", "d2"]);
    let why = "a removed mirror of that name has records on";
    refused(&site, &exchanged, (&format!("{why} d1"), "apply its removal alone"));
    let moved = pair("a.img", "b.img") + &blank("d2", "e.img") + &mirror(["d2", "d3"]);
    let moved = moved + &blank("d3", "f.img");
    refused(&site, &moved, (why, "`ashlar mirror clear"));
}

/// The bytes of the second member would be elsewhere in the concatenation.
/// W1 of geom_layouts.rs.
#[test]
fn concat_on_a_memory_disk_of_another_size_requires_consent() {
    let site = site("exchanged-concat");
    let memory = |name: &str, size: &str| {
        format!("[[disk]]\nname = '{name}'\nkind = 'memory'\nsize = '{size}'\n")
    };
    let made = |size: &str| {
        memory("d0", size) + &memory("d1", "1MiB") + &geom("concat", "c", ["d0", "d1"])
    };
    apply(&site, &made("1MiB"), &[]).expect("a concatenation");
    expect_loss(&site, &made("2MiB"), ("c", "layout changes from"));
}

/// The recorded layout has the serial number of the former disk.
/// W1 of geom_layouts.rs.
#[test]
fn stripe_on_an_exchanged_file_requires_consent() {
    let site = site("exchanged-stripe");
    let made = |first: &str| pair(first, "b.img") + &geom("stripe", "s", ["d0", "d1"]);
    apply(&site, &made("a.img"), &[]).expect("a stripe");
    expect_loss(&site, &made("c.img"), ("s", "members change from d0"));
    let new = disk("d0", "new.img", "create = true\nsize = '1MiB'");
    let made = new + &disk("d1", "b.img", "") + &geom("stripe", "s", ["d0", "d1"]);
    expect_loss(&site, &made, ("s", "members change from d0"));
    assert!(!site.folder.join("new.img").exists(), "nothing was made");
}
