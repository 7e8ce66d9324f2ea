//! The verbs of the classes as a new user types them: the successful ones, the refused ones, and
//! the next step that each refusal names.

use std::fs;
use std::io::Write;
use std::process::Stdio;
use std::time::Duration;

use crate::fixture::load::Load;
use crate::fixture::{Fixture, file_disk, tool};

const DISK_BYTES: u64 = 64 << 20;

/// Sections of a configuration with so many disks d0, d1, ...
fn files(count: usize) -> String {
    (0..count).map(|n| file_disk(&format!("d{n}"), &format!("d{n}.img"))).collect()
}

/// A daemon with so many unused disks d0, d1, ...
fn disks(name: &str, count: usize) -> Fixture {
    let mut fixture = Fixture::new(name);
    (0..count).for_each(|n| drop(fixture.image(&format!("d{n}.img"), DISK_BYTES)));
    fixture.configure(&files(count), "");
    fixture.start();
    fixture
}

/// Runs a command with text on its standard input: exit code, standard output, standard error.
fn fed(fixture: &Fixture, line: &str, input: &str) -> (i32, String, String) {
    let words: Vec<&str> = line.split(' ').collect();
    let mut command = fixture.command(&words);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("started");
    // A command that refuses at once may not read its input.
    let _ = child.stdin.take().expect("an input").write_all(input.as_bytes());
    let done = child.wait_with_output().expect("ended");
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    (done.status.code().unwrap_or(-1), text(done.stdout), text(done.stderr))
}

/// Types lines in order: each with its exit code and words of its answer.
fn typed(fixture: &Fixture, lines: &[(&str, i32, &[&str])]) {
    for (line, code, words) in lines {
        let output = fixture.ashlar(&line.split(' ').collect::<Vec<_>>()).ends(*code);
        match code {
            0 => output.prints(words),
            _ => output.complains(words),
        };
    }
}

#[test]
fn mirrors_are_created_repaired_and_destroyed() {
    let mut fixture = disks("mirrors", 4);
    typed(
        &fixture,
        &[
            ("mirror", 2, &["label, create", "--help"]),
            ("mirror label m", 2, &["<MEMBERS>"]),
            ("mirror lable m d0 d1", 2, &["a similar subcommand exists: 'label'"]),
            ("mirror label m d0 d9", 1, &["ASH-0020", "d9", "`ashlar list`"]),
            ("mirror label --balance best m d0 d1", 2, &["round-robin, load, split, prefer"]),
            ("mirror create m d0 d1", 0, &["mirror/m is there"]),
            ("mirror status", 0, &["mirror/m", "d0 (ACTIVE)"]),
            ("mirror stop m", 0, &["m"]),
            ("mirror label m d0 d1", 0, &["mirror/m is there"]),
            ("mirror label m d2 d3", 1, &["ASH-0021", "`ashlar mirror stop m`"]),
            ("mirror label other d1 d2", 1, &["d1 is in use"]),
            ("mirror list m", 0, &["Balance: load", "Name: mirror/m"]),
            ("mirror list n", 1, &["ashlar mirror status"]),
            ("mirror remove m d3", 1, &["d3 is no member of m", "`ashlar mirror list m`"]),
            ("mirror insert m d2", 0, &["d2"]),
        ],
    );
    fixture.until("three members", Duration::from_secs(30), || {
        fixture.ok(&["mirror", "status", "-s"]).matches("ACTIVE").count() == 3
    });
    typed(
        &fixture,
        &[
            ("mirror deactivate m d1", 0, &["d1 deactivated"]),
            ("mirror resize m", 1, &["not all members", "`ashlar mirror activate m DISK`"]),
            ("mirror activate m d1", 0, &["d1 activated"]),
        ],
    );
    fixture.until("three members again", Duration::from_secs(30), || {
        fixture.ok(&["mirror", "status", "-s"]).matches("ACTIVE").count() == 3
    });
    typed(
        &fixture,
        &[
            ("mirror verify m", 0, &["`ashlar mirror list m`"]),
            ("mirror remove m d1", 0, &["d1"]),
            ("mirror remove m d2", 0, &["d2"]),
            ("mirror remove m d0", 1, &["the last complete member", "`ashlar mirror stop m`"]),
            ("mirror dump d0", 0, &["name: m", "all: 1"]),
            ("mirror dump d1", 1, &["no metadata of this class in the last sector"]),
            ("mirror clear d0", 1, &["d0 is in use"]),
            ("mirror stop m", 0, &["m stopped"]),
            ("mirror start m", 0, &["mirror/m is there"]),
            ("mirror start m", 1, &["was not stopped", "`ashlar mirror status`"]),
            ("mirror stop m", 0, &["m stopped"]),
            ("mirror clear d0", 0, &["d0 cleared"]),
            ("mirror clear d0", 1, &["no record of a mirror", "`ashlar inspect d0`"]),
            ("inspect d0", 0, &["nothing found"]),
        ],
    );
    fixture.stop();
}

#[test]
fn stripes_concats_multipaths_and_arrays_are_created_and_destroyed() {
    let mut fixture = disks("spans", 3);
    typed(
        &fixture,
        &[
            ("raid label Intel v RAID4 d0 d1 d2", 2, &["RAID4", "RAID5-LA", "DDF has more"]),
            ("stripe label s d0", 2, &["2 values required"]),
            ("stripe label -s 1000 s d0 d1", 2, &["1000"]),
            ("stripe label s d0 d1", 0, &["stripe/s is there"]),
            ("stripe status", 0, &["stripe/s", "UP", "d0", "d1"]),
            ("concat label c d1 d2", 1, &["d1 is in use"]),
            ("stripe stop s", 0, &["s stopped"]),
            ("concat label c d1 d2", 4, &["d1 holds member of a stripe", "--yes-destroy d1"]),
            ("stripe clear d0 d1", 0, &["d0, d1 cleared"]),
            ("concat label c d0 d1", 0, &["concat/c is there"]),
            ("concat append c d9", 1, &["d9", "`ashlar list`"]),
            ("concat append c d2", 0, &["d2"]),
            ("concat list c", 0, &["(192M)", "Name: d2"]),
            ("concat stop c", 0, &["c stopped"]),
            ("concat clear d0 d1 d2", 0, &["d2 cleared"]),
            ("multipath label p d0", 0, &["multipath/p is there"]),
            ("multipath getactive p", 0, &["d0"]),
            ("multipath rotate p", 1, &["no other good path than d0"]),
            ("multipath fail p d9", 1, &["d9 is no path of p", "`ashlar multipath list`"]),
            ("multipath destroy p", 0, &["p destroyed"]),
            ("raid label Intel v RAID9 d0 d1 d2", 2, &["no level RAID9; RAID0, RAID1"]),
            ("raid label Promise v RAID5 d0 d1 d2", 2, &["no format Promise; Intel, DDF"]),
            ("raid label Intel v RAID5 d0 d1", 2, &["2 disks make no RAID5-LA", "3, 4, 5"]),
            ("raid label Intel v RAID5 d0 d1 d2", 0, &["/v is there"]),
            ("raid status", 0, &["raid/Intel-", "/v", "OPTIMAL", "d0", "d2"]),
            ("raid status v", 0, &["OPTIMAL"]),
        ],
    );
    // A volume name of an older format: the message lists the existing volumes, and none is taken
    // for the missing one.
    fixture.configure(&files(3), "0 = \"raid/r0\"");
    let missing = ["raid/r0", "no such provider", "Providers of raid: raid/Intel-", "/v."];
    fixture.ashlar(&["apply"]).ends(1).complains(&missing);
    fixture.configure(&files(3), "");
    typed(
        &fixture,
        &[
            ("raid stop nothing", 1, &["`ashlar raid status`"]),
            ("raid stop r0", 1, &["no array r0", "`ashlar raid status`"]),
            ("raid stop v", 0, &["stopped"]),
            ("inspect d1", 0, &["Intel"]),
            ("raid clear d0 d1 d2", 0, &["d2 cleared"]),
            ("raid clear d0", 1, &["no record of an array", "`ashlar inspect d0`"]),
        ],
    );
    fixture.stop();
}

/// Lines as the man pages of GEOM's tools and the handbook have them, letter by letter.
#[test]
fn command_lines_of_geom_man_pages_work_unchanged() {
    let mut fixture = disks("pages", 6);
    typed(
        &fixture,
        &[
            (
                "mirror label -v -b round-robin -s 4096 m d0 d1",
                0,
                &["mirror/m is there", "Name: d1"],
            ),
            ("mirror status -ags", 0, &["m", "d0 (ACTIVE)"]),
            ("mirror configure -h m", 0, &["m configured"]),
            ("mirror dump d1", 0, &["hcprovider: d1"]),
            ("mirror configure -d -f -a m", 0, &["m configured"]),
            ("mirror configure -b prefer -p 7 m d0", 0, &["m configured"]),
            ("mirror dump d0", 0, &["priority: 7", "balance: prefer", "hcprovider: \n"]),
            ("mirror configure -p 7 m", 2, &["mirror configure -p 5 m PROVIDER"]),
            ("mirror forget -v m", 0, &["m has 2 members now", "Geom name: m"]),
            ("mirror create -Fnv -b load n d2 d3", 0, &["mirror/n is there", "d3", "STALE"]),
            ("mirror rebuild -v n d3", 0, &["d3 of n is rebuilt"]),
            ("mirror destroy -fv m n", 0, &["m stopped\nn stopped"]),
            ("mirror clear -v d0 d1", 0, &["d0, d1 cleared"]),
            ("stripe label -v -h -s 65536 s d0 d1", 0, &["stripe/s is there", "Stripesize: 65536"]),
            ("concat label -v c d2 d3", 0, &["concat/c is there", "(128M)"]),
            ("concat append -hv c d4", 0, &["d4 appended", "(192M)"]),
            ("stripe stop s c", 1, &["no stripe c", "before that: s stopped"]),
            ("concat destroy -v c", 0, &["c stopped"]),
            ("stripe clear d0 d1", 0, &["cleared"]),
            ("concat clear d2 d3 d4", 0, &["cleared"]),
            ("multipath label -v -A p d5", 0, &["multipath/p is there", "Mode: Active/Active"]),
            ("multipath configure -v -R p", 0, &["p configured", "Mode: Active/Read"]),
            ("multipath destroy -v p", 0, &["p destroyed"]),
            ("raid label -fv -S 8M -s 64K Intel one RAID1 d0 d1", 0, &["/one is there"]),
        ],
    );
    let arrays = fixture.ok(&["raid", "status", "-gs"]);
    let array = arrays.split_whitespace().next().expect("an array").to_owned();
    for (line, words) in [
        (format!("raid add -v -S 4M {array} two RAID0"), "/two is there"),
        (format!("raid delete -fv {array} two"), "has 1 volume now"),
        (format!("raid delete -f {array} one"), "deleted"),
    ] {
        typed(&fixture, &[(line.as_str(), 0, &[words])]);
    }
    fixture.stop();
}

#[test]
fn partition_tables_are_committed_undone_and_copied_by_a_pipe() {
    let mut fixture = disks("tables", 3);
    typed(
        &fixture,
        &[
            ("part create d9 --scheme gpt", 1, &["d9", "`ashlar list`"]),
            ("part create d0 --scheme gtp", 2, &["use gpt, mbr, ebr or bsd"]),
            ("part commit d0", 1, &["no partition table", "`part create`"]),
            ("part create d0 --scheme gpt", 0, &["d0 created"]),
            ("part add -t linux-data -s 8M -l one --no-commit d0", 0, &["`ashlar part commit d0`"]),
            ("part show d0", 0, &["PENDING", "not written: d0p1 added"]),
            ("part undo d0", 0, &["d0 undone"]),
            ("part undo d0", 1, &["no pending changes", "`ashlar part show d0`"]),
            ("part add -t linux-data -s 8M -l one --no-commit d0", 0, &["d0p1 added"]),
            ("part commit d0", 0, &["d0 committed"]),
            ("part commit d0", 1, &["no pending changes", "--no-commit"]),
            ("part add -t linux-swap -f x d0", 0, &["`ashlar part commit d0`"]),
            ("part undo d0", 0, &["d0 undone"]),
            ("part add -t linux-swap -f C d0", 0, &["d0p2 added"]),
            ("inspect d0", 0, &["claimed: part d0", "held by: part d0"]),
            ("part status -s d0", 0, &["d0p1  OK  d0\n", "d0p2  OK  d0\n"]),
            ("part status d9", 1, &["d9"]),
            ("part list d0", 0, &["Geom name: d0", "scheme: GPT", "Name: d0p2"]),
        ],
    );
    let table = fixture.ok(&["part", "backup", "d0"]);
    let (code, out, err) = fed(&fixture, "part restore -l d1 d2", &table);
    assert_eq!(code, 0, "{out}{err}");
    for copy in ["d1", "d2"] {
        assert_eq!(fixture.ok(&["part", "backup", copy]), table);
        fixture.ashlar(&["part", "show", copy, "-l"]).ends(0).prints(&["one", "(8.0M)"]);
    }
    // The present table is overwritten only with `-F`.
    let (code, _, err) = fed(&fixture, "part restore d1", &table);
    assert!(code != 0 && err.contains("-F"), "{code} {err}");
    let before = fixture.ok(&["part", "backup", "d1"]);
    for wrong in ["", "rubbish\n", "GPT 128\n1 linux-data x\n"] {
        let (code, _, err) = fed(&fixture, "part restore -F d1", wrong);
        assert!(code != 0 && err.contains("next:"), "{wrong:?}: {code} {err}");
        assert_eq!(fixture.ok(&["part", "backup", "d1"]), before, "{wrong:?} changed something");
    }
    let (code, out, err) = fed(&fixture, "part restore -F d1", &table);
    assert_eq!(code, 0, "{out}{err}");
    typed(
        &fixture,
        &[
            ("part destroy d1", 4, &["--yes-destroy d1"]),
            ("part destroy -F d1", 0, &["d1 destroyed"]),
            ("inspect d1", 0, &["nothing found"]),
        ],
    );
    fixture.stop();
}

/// Boot code beside a LUN in use: sgdisk and blkid find the table as it was, and the machine that
/// would start from it finds the code.
#[test]
fn boot_code_is_written_without_changing_the_table() {
    let mut fixture = Fixture::new("bootcode");
    let image = fixture.image("d0.img", DISK_BYTES);
    fixture.configure(&files(1), "");
    fixture.start();
    // As pmbr and gptboot are: a boot sector that ends in 55 AA, and a program of no whole sectors.
    let mut pmbr: Vec<u8> = (0..512u32).map(|n| (n % 251) as u8 | 1).collect();
    pmbr[510..].copy_from_slice(&[0x55, 0xaa]);
    let gptboot: Vec<u8> = (0..20_001u32).map(|n| (n * 7 % 253) as u8 | 2).collect();
    std::fs::write(fixture.path("pmbr"), &pmbr).expect("a file");
    std::fs::write(fixture.path("gptboot"), &gptboot).expect("a file");
    std::fs::write(fixture.path("large"), vec![1; 600 << 10]).expect("a file");
    let file = |name: &str| fixture.path(name).to_str().expect("a path").to_owned();
    let (b, p, large) = (file("pmbr"), file("gptboot"), file("large"));
    typed(
        &fixture,
        &[
            ("part create d0 --scheme gpt", 0, &["d0 created"]),
            ("part add -t freebsd-boot -s 512K d0", 0, &["d0p1 added"]),
            ("part add -t linux-data -s 32M -l data d0", 0, &["d0p2 added"]),
        ],
    );
    fixture.configure(&files(1), "0 = \"d0p2\"");
    fixture.ok(&["apply"]);
    let load = Load::start(&fixture.url(0), 16 << 20);
    let image = image.to_str().expect("a path");
    let judged = || {
        let table = tool("sgdisk", &["-p", "-i", "1", "-i", "2", image], "");
        table + &tool("blkid", &["-p", "-o", "export", image], "")
    };
    let before = judged();
    let table = fixture.json(&["part", "show", "d0"]);
    let start = table["tables"][0]["entries"][0]["start"].as_u64().expect("a start") as usize;
    let first = |len: usize| std::fs::read(image).expect("the image")[..len].to_vec();
    let sector = first(512);
    typed(
        &fixture,
        &[
            (&format!("part bootcode -p {p} d0"), 2, &["-i"]),
            (&format!("part bootcode -b {p}.none d0"), 1, &["gptboot.none"]),
            (&format!("part bootcode -b {p} d0"), 2, &["512"]),
            (&format!("part bootcode -p {large} -i 1 d0"), 1, &["index 1 of 524288 bytes"]),
            (
                &format!("part bootcode -p {p} -i 2 --yes-destroy d0p2 d0"),
                1,
                &["index 2", "in use"],
            ),
            (&format!("part bootcode -b {b} -p {p} -i 1 --no-commit d0"), 0, &["d0"]),
            ("part undo d0", 0, &["d0 undone"]),
        ],
    );
    assert_eq!(first(512), sector, "refused and undone, and written all the same");
    fixture.ashlar(&["part", "bootcode", "-b", &b, "-p", &p, "-i", "1", "d0"]).ends(0);
    load.wait_for_rounds();
    load.finish();
    fixture.stop();
    assert_eq!(judged(), before);
    tool("sgdisk", &["-v", image], "");
    let now = std::fs::read(image).expect("the image");
    assert_eq!(now[..440], pmbr[..440]);
    assert_eq!(now[446..512], sector[446..], "the entries of the protective MBR");
    let from = start * 512;
    assert_eq!(now[from..from + gptboot.len()], gptboot);
    assert!(now[from + gptboot.len()..from + 40 * 512].iter().all(|b| *b == 0));
}

/// Lists without a name, as the API receives them.
#[test]
fn a_list_without_a_name_is_refused() {
    let mut fixture = disks("nobody", 2);
    let lists = [
        ("mirror", "clear", "members"),
        ("mirror", "dump", "members"),
        ("mirror", "stop", "names"),
        ("stripe", "clear", "members"),
        ("concat", "destroy", "names"),
        ("multipath", "clear", "members"),
        ("raid", "clear", "members"),
        ("raid", "dump", "members"),
        ("sched", "insert", "disks"),
    ];
    for (class, verb, list) in lists {
        let output = fixture.ashlar(&["geom", class, verb]).ends(2);
        let list = format!("`{list}` has 0 words and needs");
        output.complains(&[&format!("{class} {verb}"), &list, &format!("`ashlar {class} {verb}")]);
    }
    fixture.stop();
}

/// Messages of `ashlar apply` while a disk that the configuration no longer has is in use.
#[test]
fn plan_refuses_to_remove_a_member_in_use() {
    let mut fixture = disks("under", 7);
    typed(
        &fixture,
        &[
            ("mirror label m d0 d1", 0, &["mirror/m is there"]),
            ("stripe label s d2 d3", 0, &["stripe/s is there"]),
            ("raid label Intel v RAID1 d4 d5", 0, &["/v is there"]),
            ("geom nop insert name=d6.nop provider=d6", 0, &[]),
        ],
    );
    let list = fixture.ok(&["raid", "list"]);
    let array = list.lines().find_map(|l| l.strip_prefix("Geom name: ")).expect("an array");
    let configure = |fixture: &Fixture, without: &[usize]| {
        let disks = (0..7).filter(|n| !without.contains(n));
        let all: String =
            disks.map(|n| file_disk(&format!("d{n}"), &format!("d{n}.img"))).collect();
        let luns = format!("0 = \"mirror/m\", 1 = \"stripe/s\", 2 = \"raid/{array}/v\"");
        fixture.configure(&all, &luns);
    };
    configure(&fixture, &[]);
    fixture.ok(&["apply"]);
    // The classes finish their first work; it is recorded in the journal, too.
    fixture.until("all is well", Duration::from_secs(60), || fixture.ashlar(&["status"]).code == 0);
    let load = Load::start(&fixture.url(0), 32 << 20);
    let raid = "ashlar raid remove ";
    let cases: [(usize, &str); 3] =
        [(1, "`ashlar mirror remove m d1`"), (3, "`ashlar stripe stop s`"), (5, raid)];
    for (disk, command) in cases {
        configure(&fixture, &[disk]);
        fixture.ashlar(&["plan"]).ends(1).prints(&["`apply` would refuse", "first", command]);
        let last = fixture.json(&["journal"])["events"].as_array().map_or(0, Vec::len);
        let output = fixture.ashlar(&["apply"]).ends(1);
        output.complains(&[&format!("d{disk}"), "uses it", command]);
        let now = fixture.json(&["journal"])["events"].as_array().map_or(0, Vec::len);
        assert_eq!(last, now, "something was touched");
    }
    // The advice is followed, and both disks leave; the LUNs are unaffected.
    fixture.ok(&["mirror", "remove", "m", "d1"]);
    fixture.ok(&["raid", "remove", array, "d5"]);
    configure(&fixture, &[1, 5, 6]);
    fixture.ashlar(&["apply"]).ends(0);
    let output = fixture.ok(&["journal"]);
    assert!(!output.contains("LUN") && !output.contains("change group"), "{output}");
    load.wait_for_rounds();
    load.finish();
    // Alone it is the mirror: to take it means to stop that.
    configure(&fixture, &[0, 1, 5, 6]);
    fixture.ashlar(&["apply"]).ends(1).complains(&["`ashlar mirror stop m`"]);
    fixture.stop();
}

/// Each problem is shown with the command that fixes it, and the journal records the events.
#[test]
fn faults_are_reported_with_their_fix_and_events_are_journaled() {
    let fixture = disks("troubles", 8);
    typed(
        &fixture,
        &[
            ("mirror label m d0 d1", 0, &["mirror/m is there"]),
            ("stripe label s d2 d3", 0, &["stripe/s"]),
            ("stripe status", 0, &["UP"]),
            ("raid label Intel data RAID5 d4 d5 d6", 0, &["data"]),
        ],
    );
    let array = fixture.ok(&["raid", "list"]);
    let array = array.lines().find_map(|l| l.strip_prefix("Geom name: ")).expect("an array");
    fixture.until("the parity", Duration::from_secs(60), || {
        fixture.ok(&["raid", "status"]).contains(" OPTIMAL")
    });
    fixture.until("the mirror", Duration::from_secs(60), || {
        fixture.ok(&["mirror", "status"]).contains("COMPLETE")
    });
    typed(&fixture, &[("status", 0, &["state: OK"]), ("mirror remove m d1", 0, &["d1"])]);
    let fail = format!("raid fail {array} d5");
    typed(&fixture, &[(&fail, 0, &["d5"])]);
    let insert = format!("`ashlar raid insert {array} DISK` replaces it");
    let list = format!("see: ashlar raid list {array}");
    let output = fixture.ashlar(&["status"]).ends(3);
    output.prints(&["lacks 1 of 3 disks", &insert, &list, "d5 is refused"]);
    let journal = fixture.ok(&["journal"]);
    let assert_event = |about: &str, words: &str| {
        let line = |l: &&str| l.contains(about) && l.contains(words);
        assert!(journal.lines().any(|l| line(&l)), "{about}: {words}\n{journal}");
    };
    assert_event("mirror m", "mirror/m: COMPLETE (2 of 2 members)");
    assert_event("mirror m", "d1 is gone, was ACTIVE");
    assert_event("stripe s", "stripe/s: UP");
    assert_event(array, "volume data: OPTIMAL, was SUBOPTIMAL");
    assert_event(array, "volume data: DEGRADED, was OPTIMAL");
    assert_event(array, "d5 is refused");
}

/// Reads or writes through the iSCSI target with QEMU's own initiator.
fn qemu_io(fixture: &Fixture, lun: u64, command: &str) -> String {
    tool("qemu-io", &["-f", "raw", "-c", command, "-c", "flush", &fixture.url(lun)], "")
}

/// A provider with LUKS, and one with an ext4 file system at its start.
fn foreign(fixture: &Fixture) {
    let mut luks = fs::read(fixture.path("d0.img")).unwrap();
    luks[..8].copy_from_slice(b"LUKS\xba\xbe\0\x01");
    fs::write(fixture.path("d0.img"), luks).unwrap();
    let mut unknown = fs::read(fixture.path("d4.img")).unwrap();
    *unknown.last_mut().unwrap() = 1;
    fs::write(fixture.path("d4.img"), unknown).unwrap();
    let image = fixture.path("d1.img");
    tool("mkfs.ext4", &["-q", "-F", image.to_str().unwrap(), "32M"], "");
}

#[test]
fn recognized_data_is_not_overwritten_without_consent() {
    let mut fixture = disks("guard", 5);
    fixture.stop();
    foreign(&fixture);
    let before: Vec<_> = ["d0.img", "d1.img"].map(|f| fs::read(fixture.path(f)).unwrap()).into();
    fixture.start_whole();
    let luks: &[&str] = &["d0 holds LUKS", "--yes-destroy d0"];
    let ext: &[&str] = &["d1 holds ext2, ext3 or ext4", "--yes-destroy d1"];
    typed(
        &fixture,
        &[
            ("part create -s gpt d0", 4, &["LUKS", "--yes-destroy d0"]),
            ("part create -s gpt d1", 4, &["--yes-destroy d1"]),
            ("mirror label m d2 d0", 4, luks),
            ("mirror label m d2 d1", 4, ext),
            ("stripe label s d1 d2", 4, ext),
            ("concat label c d2 d0", 4, luks),
            ("multipath label p d0", 4, luks),
            ("raid label Intel a RAID1 d2 d1", 4, ext),
            ("geom label label on=d1 name=usb", 4, ext),
            ("geom label label on=d2 name=usb", 0, &["label/usb"]),
            ("geom label clear on=d2", 0, &["cleared"]),
            // The name of one is no consent for the other.
            ("mirror label m d0 d1 --yes-destroy d0", 4, ext),
            ("mirror label m d2 d3", 0, &["mirror/m is there"]),
            ("mirror insert m d1", 4, ext),
            // Unknown data in place of the record; consent for another disk is none for it.
            ("concat label c d4", 4, &["something unknown in its last sector", "--yes-destroy d4"]),
            ("concat label c d0 d4 --yes-destroy d0", 4, &["--yes-destroy d4"]),
        ],
    );
    // The declared way requests the same.
    let declared = |members: &str| {
        let disks: String =
            (0..4).map(|n| file_disk(&format!("d{n}"), &format!("d{n}.img"))).collect();
        format!("{disks}\n[[geom]]\nclass = \"mirror\"\nname = \"n\"\nmembers = [{members}]\n")
    };
    fixture.configure(&declared("\"d0\", \"d1\""), "");
    fixture.ashlar(&["plan"]).ends(6).prints(&["destroys", "d0 holds LUKS", "d1 holds ext2"]);
    fixture.ashlar(&["apply"]).ends(4).complains(&["--yes-destroy n"]);
    let after: Vec<_> = ["d0.img", "d1.img"].map(|f| fs::read(fixture.path(f)).unwrap()).into();
    assert!(before == after, "something was written");
    fixture.ashlar(&["apply", "--yes-destroy", "n"]).ends(0);
    typed(&fixture, &[("mirror status", 0, &["mirror/n"])]);
    // Disks that the same edit adds; those of a mirror that return lose nothing.
    typed(&fixture, &[("mirror destroy m", 0, &[])]);
    fixture.configure("", "");
    fixture.ashlar(&["apply"]).ends(0);
    fixture.configure(&declared("\"d0\", \"d1\""), "");
    fixture.ashlar(&["plan"]).ends(6).prints(&["create geom n (mirror)"]).lacks(&["destroys"]);
    fixture.configure("", "");
    fixture.image("e0.img", 64 << 20);
    let image = fixture.image("e1.img", 64 << 20);
    tool("mkfs.ext4", &["-q", "-F", image.to_str().unwrap(), "32M"], "");
    let before = fs::read(&image).unwrap();
    for class in ["mirror", "stripe", "concat"] {
        let disks = [file_disk("e0", "e0.img"), file_disk("e1", "e1.img")].concat();
        let geom = format!("class = \"{class}\"\nname = \"x\"\nmembers = [\"e0\", \"e1\"]\n");
        fixture.configure(&format!("{disks}\n[[geom]]\n{geom}"), "");
        fixture.ashlar(&["plan"]).ends(6).prints(&["destroys", "e1 holds ext2, ext3 or ext4"]);
        fixture.ashlar(&["apply"]).ends(4).complains(&["--yes-destroy x"]);
        assert!(fixture.provider("e0").is_none(), "{class}: refused before the first step");
    }
    assert!(fs::read(&image).unwrap() == before, "something was written");
    fixture.stop();
}

#[test]
fn a_declared_mirror_keeps_the_newest_data_over_a_restart() {
    let mut fixture = Fixture::new("declared");
    ["d0.img", "d1.img"].iter().for_each(|f| drop(fixture.image(f, 64 << 20)));
    let disks: String = (0..2).map(|n| file_disk(&format!("d{n}"), &format!("d{n}.img"))).collect();
    let mirror = "\n[[geom]]\nclass = \"mirror\"\nname = \"m\"\nmembers = [\"d0\", \"d1\"]\n";
    fixture.configure(&format!("{disks}{mirror}"), "0 = \"mirror/m\"");
    fixture.start_whole();
    qemu_io(&fixture, 0, "write -P 0x11 0 64k");
    fixture.until("the second member is filled", Duration::from_secs(60), || {
        fixture.ok(&["mirror", "status"]).contains("COMPLETE")
    });
    fixture.ok(&["mirror", "deactivate", "m", "d0"]);
    qemu_io(&fixture, 0, "write -P 0x33 0 64k");
    for _ in 0..2 {
        fixture.stop();
        fixture.start_whole();
        qemu_io(&fixture, 0, "read -P 0x33 0 64k");
        assert!(fixture.ok(&["plan"]).contains("no changes"));
    }
    fixture.stop();
}

#[test]
fn an_orderly_stop_right_after_a_write_leaves_clean_records() {
    let mut fixture = Fixture::new("clean");
    let files: Vec<String> = (0..5).map(|n| format!("d{n}")).collect();
    let disks: String = files.iter().map(|f| file_disk(f, &format!("{f}.img"))).collect();
    files.iter().for_each(|f| drop(fixture.image(&format!("{f}.img"), 64 << 20)));
    fixture.configure(&disks, "");
    fixture.start_whole();
    fixture.ok(&["mirror", "label", "--assume-same", "m", "d0", "d1"]);
    fixture.ok(&["raid", "label", "--assume-same", "Intel", "five", "RAID5", "d2", "d3", "d4"]);
    let list = fixture.ok(&["raid", "list"]);
    let volume = list.split_whitespace().find(|w| w.starts_with("raid/") && w.ends_with("/five"));
    let volume = volume.expect("a volume").to_owned();
    fixture.ok(&["raid", "fail", "five", "d4"]);
    fixture.configure(&disks, &format!("0 = \"mirror/m\", 1 = \"{volume}\""));
    fixture.ok(&["apply"]);
    for lun in [0, 1] {
        qemu_io(&fixture, lun, "write -P 0x5a 0 1M");
    }
    fixture.stop();
    fixture.start_whole();
    // Neither copies anything, and the array with a disk too few needs no force.
    let mirror = fixture.ok(&["mirror", "status"]);
    assert!(mirror.contains("COMPLETE") && !mirror.contains("SYNCHRONIZING"), "{mirror}");
    let list = fixture.ok(&["raid", "list"]);
    assert!(list.contains(&volume) && !list.contains("parity may be wrong"), "{list}");
    for lun in [0, 1] {
        qemu_io(&fixture, lun, "read -P 0x5a 0 1M");
    }
    fixture.stop();
}
