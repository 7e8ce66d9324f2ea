//! Bad input at a live daemon: disks whose metadata is cut off, damaged, doubled, contradictory,
//! newer, of a larger or smaller disk, of other sectors, or a circle. They are put into the
//! configuration while it serves, and found once more by a start. Each is refused with a reason
//! that the lists show; not a byte is written to it, nor to a disk beside it.

use std::time::Duration;

use crate::fixture::{Fixture, array, text};
use crate::forged::{Disk, Edit, same};

const MIB: usize = 1 << 20;
const LIMIT: Duration = Duration::from_secs(60);

/// A bad disk, made of the last one of a whole of its own.
struct Row {
    name: &'static str,
    /// The one that it was made of is there besides.
    beside: bool,
    forge: Box<dyn Fn(&Disk) -> Disk>,
    /// Expected words of the class's answer.
    words: &'static str,
}

/// In the place of the last disk.
fn instead(
    what: &'static str,
    words: &'static str,
    forge: impl Fn(&Disk) -> Disk + 'static,
) -> Row {
    Row { name: what, beside: false, forge: Box::new(forge), words }
}

fn beside(what: &'static str, words: &'static str, forge: impl Fn(&Disk) -> Disk + 'static) -> Row {
    Row { name: what, beside: true, forge: Box::new(forge), words }
}

/// A class, and how wholes of it are made.
struct Kind {
    class: &'static str,
    /// Words before the name and the disks, and behind them.
    label: (&'static str, &'static str),
    members: usize,
    bytes: usize,
    /// Where records may be: at the end of each disk.
    records: u64,
}

const MIRROR: Kind = Kind {
    class: "mirror",
    label: ("mirror label", "--assume-same"),
    members: 3,
    bytes: MIB,
    records: 512,
};
const STRIPE: Kind = Kind {
    class: "stripe",
    label: ("stripe label", "-s 4096"),
    members: 2,
    bytes: MIB,
    records: 512,
};
const CONCAT: Kind =
    Kind { class: "concat", label: ("concat label", ""), members: 2, bytes: MIB, records: 512 };
const MULTIPATH: Kind = Kind {
    class: "multipath",
    label: ("multipath label", ""),
    members: 1,
    bytes: MIB,
    records: 512,
};
const INTEL: Kind = Kind {
    class: "raid",
    label: ("raid label Intel", "--assume-same"),
    members: 2,
    bytes: 4 * MIB,
    records: 2 << 20,
};
const DDF: Kind = Kind {
    class: "raid",
    label: ("raid label -S 1M --order big DDF", "--assume-same"),
    members: 2,
    bytes: 36 * MIB,
    records: 33 << 20,
};

/// The level, which is typed between name and disks.
fn level(kind: &Kind) -> &'static str {
    if kind.class == "raid" { "RAID1" } else { "" }
}

fn section(name: &str, serial: &str, sector: usize) -> String {
    format!(
        "[[disk]]\nname = \"{name}\"\nkind = \"file\"\npath = \"{{here}}/{name}.img\"\n\
         serial = \"{serial}\"\nsector_size = {sector}\n"
    )
}

/// A disk of a whole; its serial number is made of the same.
fn good(row: usize, member: usize) -> String {
    format!("w{row}-{member}")
}

/// Names of which none is part of another.
fn bad_disk(row: usize) -> String {
    format!("bad{row:02}")
}

fn word_list(line: &str) -> Vec<&str> {
    line.split(' ').filter(|w| !w.is_empty()).collect()
}

/// All messages about a provider: the taste outcome of its class, the lists, and the state of the
/// geom that it claims to belong to.
fn reported_text(fixture: &Fixture, class: &str, name: &str) -> String {
    let inspected = fixture.json(&["inspect", name]);
    let verdicts = array(&inspected["verdicts"]).iter().filter(|v| v["class"] == class);
    let verdict = verdicts.map(|v| text(&v["said"])).collect::<String>();
    let listed = fixture.ok(&[class, "list", "-a"]);
    let prefix = format!("{name}:");
    let mut of_it: Vec<&str> = listed.lines().filter(|l| l.contains(&prefix)).collect();
    for geom in listed.split("Geom name: ").skip(1) {
        let own = geom.lines().next().unwrap_or_default();
        if verdict.contains(&format!("of {own} ")) {
            of_it.extend(geom.lines().find(|l| l.starts_with("State: ")));
        }
    }
    let status = fixture.ashlar(&["status", "--json"]).json();
    let findings = array(&status["findings"]).iter().map(|f| text(&f["why"]));
    let findings: Vec<String> = findings.filter(|why| why.contains(name)).collect();
    format!("{verdict}\n{}\n{}", of_it.join("\n"), findings.join("\n"))
}

fn providers(fixture: &Fixture, class: &str) -> Vec<String> {
    let state = fixture.state();
    let of = array(&state["geoms"]).iter().filter(|geom| geom["class"] == class);
    let all = of.flat_map(|geom| array(&geom["providers"])).map(|p| text(&p["name"]));
    all.collect()
}

/// Makes a whole for each row, and the bad disks. Shows them to a running daemon and to one that
/// starts; checks the messages and the writes.
fn judge(name: &str, kind: &Kind, rows: &[Row]) {
    let mut fixture = Fixture::new(name);
    let mut disks: Vec<String> = vec!["other".into()];
    disks.extend((0..rows.len()).flat_map(|r| (0..kind.members).map(move |m| good(r, m))));
    disks.iter().for_each(|d| drop(fixture.image(&format!("{d}.img"), kind.bytes as u64)));
    let sections =
        |list: &[String]| list.iter().map(|d| section(d, d, 512)).collect::<Vec<_>>().concat();
    fixture.configure(&sections(&disks), "");
    fixture.start();
    for row in 0..rows.len() {
        let members: Vec<String> = (0..kind.members).map(|m| good(row, m)).collect();
        let (before, after) = kind.label;
        let line = format!("{before} w{row} {} {} {after}", level(kind), members.join(" "));
        fixture.ok(&word_list(&line));
    }
    fixture.stop();

    let folder = fixture.path("");
    let image = |name: &str| folder.join(format!("{name}.img"));
    let was = |name: &str| folder.join(format!("{name}.was"));
    let mut bad = Vec::new();
    for (n, row) in rows.iter().enumerate() {
        let last = good(n, kind.members - 1);
        let forged = (row.forge)(&Disk::read(&image(&last)));
        let own = bad_disk(n);
        forged.write(&image(&own));
        let serial = if forged.stranger { own.as_str() } else { last.as_str() };
        bad.push(section(&own, serial, forged.sector));
        if !row.beside {
            disks.retain(|d| *d != last);
        }
    }
    let noise: Vec<u8> = (0..kind.bytes).map(|n| (n ^ (n >> 8)) as u8 | 1).collect();
    std::fs::write(image("other"), noise).expect("a file");
    let own: Vec<String> = (0..rows.len()).map(bad_disk).collect();
    for name in disks.iter().chain(&own) {
        std::fs::copy(image(name), was(name)).expect("a copy");
    }
    let untouched = |when: &str| {
        for (row, name) in rows.iter().zip(&own) {
            assert!(same(&image(name), &was(name), 0), "{}: written {when}", row.name);
        }
        assert!(same(&image("other"), &was("other"), 0), "another disk was written {when}");
        for name in &disks {
            let same = same(&image(name), &was(name), kind.records);
            assert!(same, "what {name} holds was written {when}");
        }
    };
    let judged = |fixture: &Fixture, when: &str| {
        for (row, name) in rows.iter().zip(&own) {
            let output = reported_text(fixture, kind.class, name);
            println!("{when}, {}: {output}", row.name);
            assert!(output.contains(row.words), "{}: {when}: {output}", row.name);
        }
        untouched(when);
    };

    fixture.configure(&sections(&disks), "");
    fixture.start();
    // Those that have all of their disks, and mirrors, which wait for the third.
    let alone = kind.class == "mirror";
    let whole = (0..rows.len()).filter(|n| alone || rows[*n].beside);
    let wanted = whole.count();
    let is_present = || providers(&fixture, kind.class).len() == wanted;
    fixture.until("wholes are there", LIMIT, is_present);
    let before = providers(&fixture, kind.class);
    fixture.configure(&(sections(&disks) + &bad.concat()), "");
    fixture.ok(&["apply"]);
    judged(&fixture, "while it served");
    assert!(before.iter().all(|p| providers(&fixture, kind.class).contains(p)), "a whole is gone");
    fixture.assert_alive();
    fixture.stop();
    untouched("as it stopped");

    fixture.start();
    fixture.until("wholes are there again", LIMIT, || {
        let now = providers(&fixture, kind.class);
        before.iter().all(|p| now.contains(p))
    });
    judged(&fixture, "after a start");
    fixture.assert_alive();
    fixture.stop();
    untouched("at the end");
}

fn number(bytes: usize) -> [u8; 8] {
    (bytes as u64).to_le_bytes()
}

const OTHER_ID: &[u8] = &0x1234_5678u32.to_le_bytes();

#[test]
fn bad_mirror_metadata_is_refused() {
    let small = |disk: &Disk| disk.resized(-(MIB as i64) / 2, 512);
    judge(
        "bad-mirror",
        &MIRROR,
        &[
            instead("cut off", "no metadata", |d| d.resized(-512, 0)),
            instead("a record cut off", "checksum", |d| d.edited(&[(64, &[0; 448])])),
            instead("a flipped bit", "checksum", |d| d.edited(&[(45, &[9])])),
            beside("a copy", "there already", Disk::renamed),
            beside("two for a place", "there already", |d| d.renamed().sealed(&[(53, &[9])])),
            beside("another of the name", "another mirror", |d| {
                d.renamed().sealed(&[(36, OTHER_ID)])
            }),
            instead("another size of the mirror", "was not written with them", |d| {
                d.sealed(&[(59, &number(MIB / 2))])
            }),
            instead("a larger disk", "written for a provider of", |d| d.resized(MIB as i64, 512)),
            instead("a smaller disk", "written for a provider of", small),
            instead("a smaller disk that says so", "needs a sector more", move |d| {
                small(d).sealed(&[(111, &number(MIB / 2))])
            }),
            instead("other sectors", "its sectors have 4096 bytes", |d| d.with_large_sectors(1)),
            instead("a newer version", "newer than 5", |d| d.sealed(&[(16, &[6])])),
        ],
    );
}

/// Rows of both classes: their labels differ in a version.
fn spans(newer: &'static str) -> Vec<Row> {
    vec![
        instead("cut off", "no metadata", |d| d.resized(-512, 0)),
        instead("a label cut off", "is 1 of 0 members", |d| d.edited(&[(42, &[0; 470])])),
        instead("no text", "is not text", |d| d.edited(&[(20, &[0xff])])),
        instead("no such place", "is 7 of 2 members", |d| d.edited(&[(40, &[7, 0])])),
        beside("a copy", "has slot 1", Disk::renamed),
        instead("other counts", "1 of 3", |d| d.edited(&[(42, &[3])])),
        beside("another of the name", "another", |d| d.renamed().edited(&[(36, OTHER_ID)])),
        instead("a larger disk", "written for a provider", |d| d.resized(MIB as i64, 512)),
        instead("a smaller disk", "written for a provider", |d| d.resized(-(MIB as i64) / 2, 512)),
        instead("other sectors", "no metadata", |d| Disk { sector: 4096, ..d.clone() }),
        instead("a newer version", newer, |d| d.edited(&[(16, &[9])])),
    ]
}

#[test]
fn bad_stripe_metadata_is_refused() {
    let mut rows = spans("newer than 3");
    rows.push(instead("other strips", "not written with the rest", |d| {
        d.edited(&[(44, &8192u32.to_le_bytes())])
    }));
    rows.push(instead("no strip", "not a power of two", |d| d.edited(&[(44, &[3, 0, 0, 0])])));
    judge("bad-stripe", &STRIPE, &rows);
}

#[test]
fn bad_concat_metadata_is_refused() {
    judge("bad-concat", &CONCAT, &spans("newer than 4"));
}

#[test]
fn bad_multipath_metadata_is_refused() {
    judge(
        "bad-path",
        &MULTIPATH,
        &[
            instead("cut off", "no metadata", |d| d.resized(-512, 0)),
            instead("a record cut off", "version is 0", |d| d.edited(&[(72, &[0; 440])])),
            instead("no mode", "mode 9 is not known", |d| d.edited(&[(88, &[9])])),
            instead("no uuid", "uuid", |d| d.edited(&[(16, &[0])])),
            beside("a copy", "its serial number is", Disk::renamed),
            beside("another name", "its record has", |d| d.edited(&[(56, b"x")])),
            instead("a larger disk", "written for", |d| d.resized(512, 512)),
            instead("a smaller disk", "written for", |d| d.resized(-512, 512)),
            instead("other sectors", "written for", |d| d.with_large_sectors(1)),
            instead("a newer version", "newer than 1", |d| d.edited(&[(72, &[2])])),
        ],
    );
}

/// Fields of Intel's record: a generation, and the strip of the first volume behind two disks.
const GENERATION: usize = 44;
const INTEL_STRIP: usize = 216 + 2 * 48 + 124;

#[test]
fn bad_intel_metadata_is_refused() {
    let raw = |offset: usize, new: &'static [u8]| {
        move |d: &Disk| d.at(d.bytes.len() - 1024, &[(offset, new)])
    };
    let sealed = |edit: Edit<'static>| move |d: &Disk| d.intel(&[edit]);
    let older = |d: &Disk| {
        let generation = d.intel_word(GENERATION) - 1;
        d.intel(&[(GENERATION, &generation.to_le_bytes())])
    };
    judge(
        "bad-intel",
        &INTEL,
        &[
            instead("cut off", "Intel RAID signature", |d| d.resized(-512, 0)),
            instead("a record cut off", "checksum", raw(216, &[0; 296])),
            instead("a flipped bit", "checksum", raw(220, &[0xff])),
            instead("a senseless size", "Intel record size", raw(36, &[0xff; 4])),
            instead("more disks than there are", "disk flags", sealed((56, &[200]))),
            beside("a copy", "there already", Disk::clone),
            beside("a copy on another disk", "not of the array", Disk::renamed),
            beside("two for a place", "there already", older),
            instead("contradictory", "describe volume", sealed((INTEL_STRIP, &[0, 2]))),
            instead("a larger disk", "written for a disk of", |d| d.resized(MIB as i64, 1024)),
            instead("a smaller disk", "ends at", |d| d.resized(-(MIB as i64), 1024)),
            instead("other sectors", "its sectors have 4096 bytes", |d| d.with_large_sectors(2)),
            instead("a newer version", "newer", sealed((24, b"1.4.00"))),
            instead("newer attributes", "Intel attributes", sealed((52, &[0, 0, 0, 2]))),
        ],
    );
}

/// Fields of DDF: in headers, and in a configuration record.
const GUID: usize = 8;
const REVISION: usize = 32;
const SEQUENCE: usize = 40;
const PRIMARY: usize = 96;
const SECONDARY: usize = 104;
const STRIP: usize = 66;
const ELEMENTS: usize = 512;

#[test]
fn bad_ddf_metadata_is_refused() {
    judge(
        "bad-ddf",
        &DDF,
        &[
            instead("cut off", "no DDF header", |d| d.resized(-512, 0)),
            instead("its first half alone", "no DDF header", |d| d.resized(-18 * (MIB as i64), 0)),
            instead("a damaged anchor", "DDF header checksum", |d| {
                d.flipped(&[d.headers()[0] + 40])
            }),
            instead("two damaged headers", "DDF header checksum", |d| {
                d.flipped(&[d.headers()[1] + 40, d.headers()[2] + 40])
            }),
            instead("a damaged record in both copies", "DDF configuration record", |d| {
                d.flipped(&d.configs().map(|at| at + 70))
            }),
            instead("headers beyond the end", "is beyond the end", |d| {
                d.header(d.headers()[0], &[(PRIMARY, &[0x7f; 16])])
            }),
            instead("an anchor that is its own header", "is beyond the end", |d| {
                let own = (d.headers()[0] as u64 / 512).to_be_bytes();
                d.header(d.headers()[0], &[(PRIMARY, &own), (SECONDARY, &own)])
            }),
            instead("an anchor of another set", "which is not the anchor's", |d| {
                d.header(d.headers()[0], &[(GUID, b"somebody else's")])
            }),
            beside("a copy", "there already", Disk::renamed),
            beside("two for a place, one older", "there already", |d| {
                d.renamed().all_headers(&[(SEQUENCE, &d.sequence(-1))])
            }),
            instead("one sequence number, two words", "describe volume", |d| {
                d.config(&[(STRIP, &[d.config_byte(STRIP) + 1])])
            }),
            instead("a disk in two places", "describe volume", |d| {
                let first: Vec<u8> = (0..4).map(|n| d.config_byte(ELEMENTS + n)).collect();
                d.config(&[(ELEMENTS + 4, &first)])
            }),
            instead("a smaller disk", "is beyond the end", |d| {
                d.resized(-32 * (MIB as i64), 4 * MIB)
            }),
            instead("other sectors", "is beyond the end", |d| d.with_large_sectors(1)),
            instead("a newer revision", "DDF revision", |d| {
                d.all_headers(&[(REVISION, b"03.00.00")])
            }),
        ],
    );
}

/// The record of a mirror's third member, which is missing, at the end of a provider above the
/// mirror: on the mirror itself, and on a stripe of it and another disk. A provider above a whole
/// is no member of it, and the whole continues.
#[test]
fn provider_above_a_geom_is_refused_as_its_member() {
    let mut fixture = Fixture::new("bad-circles");
    let names = ["x0", "x1", "x2", "y0", "y1", "y2", "c", "other"].map(str::to_owned);
    names.iter().for_each(|d| drop(fixture.image(&format!("{d}.img"), MIB as u64)));
    let sections: String = names.iter().map(|d| section(d, d, 512)).collect();
    fixture.configure(&sections, "");
    fixture.start();
    for line in [
        "mirror label --assume-same x x0 x1 x2",
        "mirror label --assume-same y y0 y1 y2",
        "stripe label -s 4096 s mirror/y c",
    ] {
        fixture.ok(&word_list(line));
    }
    let size = |name: &str| {
        let (_, provider) = fixture.provider(name).expect("it is there");
        provider["size_bytes"].as_u64().expect("a size") as usize
    };
    let (mirror, stripe) = (size("mirror/x"), size("stripe/s"));
    fixture.stop();

    let folder = fixture.path("");
    let image = |name: &str| folder.join(format!("{name}.img"));
    let record = |name: &str, size: usize| {
        let disk = Disk::read(&image(name)).sealed(&[(111, &number(size))]);
        disk.bytes[MIB - 512..].to_vec()
    };
    let put = |name: &str, at: usize, bytes: &[u8]| {
        Disk::read(&image(name)).at(at, &[(0, bytes)]).write(&image(name));
    };
    for name in ["x0", "x1"] {
        put(name, mirror - 512, &record("x2", mirror));
    }
    let (strip, last) = (4096, stripe - 512);
    let (row, column) = (last / strip / 2, last / strip % 2);
    let at = row * strip + last % strip;
    for name in [["y0", "y1"].as_slice(), &["c"]][column] {
        put(name, at, &record("y2", stripe));
    }
    let kept: Vec<String> =
        names.iter().filter(|n| !matches!(n.as_str(), "x2" | "y2")).cloned().collect();
    let held: Vec<Vec<u8>> = kept.iter().map(|n| Disk::read(&image(n)).bytes).collect();

    let sections: String = kept.iter().map(|d| section(d, d, 512)).collect();
    fixture.configure(&sections, "");
    fixture.start();
    for _ in 0..2 {
        let is_present =
            || fixture.provider("stripe/s").is_some() && fixture.provider("mirror/x").is_some();
        fixture.until("all of it is there", LIMIT, is_present);
        for (name, words) in
            [("mirror/x", "would make a cycle"), ("stripe/s", "would make a cycle")]
        {
            let output = reported_text(&fixture, "mirror", name);
            println!("{name}: {output}");
            assert!(output.contains(words), "{name}: {output}");
        }
        fixture.assert_alive();
        fixture.stop();
        for (name, was) in kept.iter().zip(&held) {
            // Labels in last sectors are the mirrors' and the stripe's own.
            let now = Disk::read(&image(name)).bytes;
            assert!(now[..MIB - 512] == was[..MIB - 512], "{name} was written");
        }
        fixture.start();
    }
    fixture.stop();
}
