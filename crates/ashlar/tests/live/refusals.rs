//! Refusals of `apply`: `plan` and `doctor` report them before, and a start leaves those parts out.

use crate::fixture::{Fixture, file_disk};

/// A target that cannot be, and why.
const REFUSED: [(&str, &str); 7] = [
    ("driver = \"iscsi\"\nname = \"disk1\"\nlisten = [\"127.0.0.1:0\"]\n", "begins with iqn."),
    (
        "driver = \"iscsi\"\nname = \"iqn.2026-11.test:s\"\nlisten = [\"127.0.0.1:0\"]\n\
         chap = { user = \"u\", secret = \"file:open\" }\n",
        "mode is 0644",
    ),
    (
        "driver = \"iscsi\"\nname = \"iqn.2026-11.test:s\"\nlisten = [\"127.0.0.1:0\"]\n\
         chap = { user = \"u\", secret = \"file:nowhere\" }\n",
        "nowhere: No such file",
    ),
    (
        "driver = \"nbd\"\nname = \"n\"\nlisten = [\"127.0.0.1:0\"]\ntls = \"require\"\n\
         tls_certificate = \"nowhere.pem\"\ntls_key = \"nowhere.key\"\n",
        "nowhere.pem: No such file",
    ),
    (
        "driver = \"iscsi\"\nname = \"iqn.2026-11.test:s\"\nlisten = [\"127.0.0.1:0\"]\n\
         chap = { user = \"u\", secret = \"file:fifo\" }\n",
        "not a regular file",
    ),
    (
        "driver = \"nbd\"\nname = \"n\"\nlisten = [\"127.0.0.1:0\"]\ntls = \"require\"\n\
         tls_certificate = \"fifo\"\ntls_key = \"fifo\"\n",
        "fifo: not a regular file",
    ),
    (
        "driver = \"nvme_tcp\"\nname = \"disk1\"\nlisten = [\"127.0.0.1:0\"]\n",
        "a name is an NQN of its own",
    ),
];

#[test]
fn refusals_of_apply_are_reported_by_plan_doctor_and_a_start() {
    use std::os::unix::fs::PermissionsExt;
    let mut fixture = Fixture::new("refusals");
    fixture.image("d0.img", 1 << 20);
    std::fs::write(fixture.path("open"), "a secret that is long enough\n").unwrap();
    let readable = std::fs::Permissions::from_mode(0o644);
    std::fs::set_permissions(fixture.path("open"), readable).unwrap();
    let status = std::process::Command::new("mkfifo").arg(fixture.path("fifo")).status().unwrap();
    assert!(status.success());
    fixture.configure(&file_disk("d0", "d0.img"), "0 = \"d0\"");
    let good = std::fs::read_to_string(fixture.path("ashlar.toml")).unwrap();
    fixture.start();
    let file = fixture.path("ashlar.toml");
    let file = file.to_str().unwrap();
    for (target, why) in REFUSED {
        fixture.write("ashlar.toml", &format!("{good}\n[[target]]\n{target}"));
        fixture.ashlar(&["plan"]).ends(1).prints(&["`apply` would refuse", why]);
        fixture.ashlar(&["apply"]).ends(1).complains(&[why]);
        fixture
            .ashlar(&["doctor", "config", "--file", file])
            .ends(3)
            .prints(&[why, "apply refuses"]);
    }
    // A group whose secret cannot be read is refused in the same way; so is an address of two
    // drivers, with its line.
    let secret = "chap = { user = \"u\", secret = \"file:nowhere\" }\n";
    fixture.write("ashlar.toml", &format!("{good}{secret}"));
    fixture.ashlar(&["plan"]).ends(1).prints(&["`apply` would refuse", "nowhere: No such file"]);
    fixture.ashlar(&["apply"]).ends(1).complains(&["nowhere: No such file"]);
    let portal = fixture.portal();
    let two = format!("[[target]]\ndriver = \"nbd\"\nname = \"n\"\nlisten = [\"{portal}\"]\n");
    fixture.write("ashlar.toml", &format!("{good}\n{two}"));
    for verb in ["plan", "apply"] {
        let output = fixture.ashlar(&[verb]).ends(2);
        output.complains(&["listen =", "with another driver", "`ashlar schema target nbd`"]);
    }
    fixture.stop();
    for (target, why) in REFUSED {
        fixture.write("ashlar.toml", &format!("{good}\n[[target]]\n{target}"));
        fixture.start();
        fixture.ashlar(&["status"]).ends(3).prints(&["create target", why]);
        assert!(fixture.provider("d0").is_some());
        fixture.stop();
    }
}

/// Disks that cannot be, and why.
const NO_DISKS: [(&str, &str); 6] = [
    ("path = \"folder\"", "is a directory"),
    ("path = \"fifo\"", "is not a regular file"),
    ("path = \"empty.img\"", "has 0 bytes, less than a sector"),
    ("path = \"no/x.img\"\ncreate = true\nsize = \"1MiB\"", "folder"),
    ("path = \"new.img\"\ncreate = true", "set size to create it"),
    ("path = \"d0.img\"\nsize = 1000", "size 1000 is not a positive multiple"),
];

#[test]
fn impossible_disks_are_refused_by_plan_and_apply_alike() {
    let mut fixture = Fixture::new("refused-disks");
    fixture.image("d0.img", 1 << 20);
    fixture.image("empty.img", 0);
    std::fs::create_dir(fixture.path("folder")).unwrap();
    let status = std::process::Command::new("mkfifo").arg(fixture.path("fifo")).status().unwrap();
    assert!(status.success());
    fixture.configure("", "");
    let good = std::fs::read_to_string(fixture.path("ashlar.toml")).unwrap();
    fixture.start();
    for (params, why) in NO_DISKS {
        let disk = format!("[[disk]]\nname = \"d\"\nkind = \"file\"\n{params}\n");
        fixture.write("ashlar.toml", &format!("{good}\n{disk}"));
        fixture.ashlar(&["plan"]).ends(1).prints(&["`apply` would refuse", why]);
        fixture.ashlar(&["apply"]).ends(1).complains(&[why]);
    }
    assert!(!fixture.path("new.img").exists(), "nothing was made");
    // Bytes behind the last sector are named in the log and in the list.
    fixture.image("odd.img", (1 << 20) + 100);
    let odd = "[[disk]]\nname = \"odd\"\nkind = \"file\"\npath = \"odd.img\"\n";
    fixture.write("ashlar.toml", &format!("{good}\n{odd}"));
    fixture.ok(&["apply"]);
    fixture
        .ashlar(&["geom", "disk", "list"])
        .prints(&["100 bytes: the file is no multiple of 512"]);
    assert!(fixture.log().contains("unused tail of 100 bytes"), "{}", fixture.log());
    fixture.stop();
    // Without a daemon, doctor finds what a start leaves out.
    fixture.image("one.img", 1 << 20);
    std::fs::hard_link(fixture.path("one.img"), fixture.path("two.img")).unwrap();
    let two = file_disk("one", "one.img") + &file_disk("two", "two.img");
    fixture.configure(&two, "0 = \"one\"");
    let file = fixture.path("ashlar.toml");
    let doctor = ["doctor", "config", "--file", file.to_str().unwrap()];
    fixture.ashlar(&doctor).ends(3).prints(&["disk two", "are one file or device"]);
    fixture.start();
    fixture.ashlar(&["status"]).ends(3).prints(&["create disk two", "are one file or device"]);
    fixture.stop();
}
