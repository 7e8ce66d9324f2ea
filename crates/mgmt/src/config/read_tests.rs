//! Documents, good and bad, with the whole message that the user sees.

use super::*;
use crate::config::{DigestPolicy, LunMode, SOCKET_PATH_MAX, write};
use crate::fake::ISCSI;
use schemars::JsonSchema;
use serde::Deserialize;
use testkit::Folder;

#[derive(Deserialize, JsonSchema)]
#[allow(dead_code)]
struct FileParams {
    /// Image file.
    path: String,
    /// Size of a new file.
    size_bytes: Option<u64>,
    /// Serial number.
    serial: Option<String>,
    /// Past the page cache.
    #[serde(default)]
    direct: bool,
    #[serde(default)]
    read_only: bool,
}

#[derive(Deserialize, JsonSchema)]
#[allow(dead_code)]
#[serde(rename_all = "snake_case")]
enum Mood {
    /// Good.
    Good,
    /// Bad.
    Bad,
}

#[derive(Deserialize, JsonSchema)]
#[allow(dead_code)]
struct NopParams {
    /// Wait so long.
    #[serde(default)]
    delay_us: u32,
    /// Permille of requests that fail.
    #[schemars(range(max = 1000))]
    #[serde(default)]
    fail_permille: u16,
    /// A word.
    mood: Option<Mood>,
}

#[derive(Deserialize, JsonSchema)]
struct NoParams {}

#[derive(Deserialize, JsonSchema)]
#[expect(dead_code, reason = "only its schema is looked at")]
struct TlsParams {
    /// `off` or `require`.
    tls: Option<String>,
}

pub fn catalog() -> Catalog {
    Catalog {
        buses: vec![Entry::of::<NoParams>("virtual", "Disks of a bus.")],
        disks: vec![
            Entry::of::<FileParams>("file", "An image file."),
            Entry::of::<NoParams>("null", "Nothing."),
        ],
        classes: vec![
            Entry::of::<NopParams>("nop", "Faults."),
            Entry::of::<NoParams>("part", "Partitions.").tasted_only(),
        ],
        drivers: vec![Entry::of::<NoParams>("iscsi", "iSCSI.").driver(ISCSI)],
        check_target: None,
        check_start: None,
        settings: None,
        may_become: None,
        class_facts: None,
        class_verbs: None,
    }
}

const GOOD: &str = r#"
[daemon]
memory = "64MiB"
cores = 2

[[disk]]
name = "d0"
kind = "file"
path = "/srv/d0.img"
size_bytes = "1G"

[[geom]]
class = "nop"
name = "slow"
provider = "d0"
delay_us = "10ms"
mood = "bad"

[[target]]
driver = "iscsi"
name = "iqn.2026-11.example:store"
listen = ["127.0.0.1:3260"]
data_digest = "require"
chap = { user = "u", secret = "file:/etc/u" }

[[access]]
target = "iqn.2026-11.example:store"
group = "vmhosts"
initiators = ["iqn.1998-01.com.vmware:*"]
luns = { 0 = "slow", 7 = { provider = "d0p1", mode = "ro" } }
"#;

#[test]
fn valid_document_is_read() {
    let config = read(GOOD, "ashlar.toml", &catalog()).expect("good");
    assert_eq!(config.daemon.memory, Some(64 << 20));
    assert_eq!(config.disk("d0").expect("d0").params["size_bytes"], 1u64 << 30);
    assert_eq!(config.geom("slow").expect("slow").params["delay_us"], 10_000);
    let target = config.target("iqn.2026-11.example:store").expect("target");
    assert_eq!(
        (target.header_digest, target.data_digest),
        (DigestPolicy::Allow, DigestPolicy::Require)
    );
    let luns = &config.access.first().expect("a group").luns;
    assert_eq!(luns[&0].mode, LunMode::Rw);
    assert_eq!((luns[&7].provider.as_str(), luns[&7].mode), ("d0p1", LunMode::Ro));
}

#[test]
fn written_configuration_reads_back_equal() {
    let config = read(GOOD, "ashlar.toml", &catalog()).expect("good");
    let text = write(&config);
    let again = read(&text, "export", &catalog()).unwrap_or_else(|e| panic!("{e}\n{text}"));
    assert_eq!(again, config, "{text}");
    assert!(text.contains("0 = \"slow\""), "{text}");
}

/// `text` is refused with `kind`, and the message has every one of `parts`.
fn refused(text: &str, kind: Kind, parts: &[&str]) {
    let error = read(text, "a.toml", &catalog()).expect_err(text);
    let message = error.to_string();
    assert_eq!(error.kind, kind, "{message}");
    for part in parts {
        assert!(message.contains(part), "no {part:?} in\n{message}");
    }
}

#[test]
fn error_shows_every_problem_with_line_and_next_command() {
    let text = "[[disk]]\nname = \"d0\"\nkind = \"file\"\npaht = \"/x\"\n";
    let error = read(text, "a.toml", &catalog()).expect_err("two faults");
    assert_eq!(
        error.to_string(),
        "error[ASH-0011]: read configuration: a.toml:1:1: `path` is missing\n  \
         |\n1 | [[disk]]\n  | ^^^^^^^^\n\
         a.toml:4:1: unknown key `paht`; did you mean `path`?\n  \
         |\n4 | paht = \"/x\"\n  | ^^^^\n  \
         next: Run `ashlar schema disk file` to see its keys; nothing was changed.\n  \
         more: ashlar explain ASH-0011"
    );
}

#[test]
fn unknown_keys_sections_and_values_are_refused_with_a_suggestion() {
    refused("[[dsik]]\n", Kind::ConfigKey, &["a.toml:1:3", "did you mean `disk`?"]);
    refused("[daemon]\nsockte = 'x'\n", Kind::ConfigKey, &["a.toml:2:1", "`socket`"]);
    refused("[[disk]]\nname='a'\nkind='nul'\n", Kind::ConfigValue, &["did you mean `null`?"]);
    refused("[[disk]]\nnam='a'\nkind='null'\n", Kind::ConfigKey, &["did you mean `name`?"]);
    let part = "[[geom]]\nclass='part'\nname='x'\nprovider='y'\n";
    refused(part, Kind::ConfigValue, &["found by tasting"]);
    let mood = "[[geom]]\nclass='nop'\nname='x'\nprovider='y'\nmood='god'\n";
    refused(mood, Kind::ConfigValue, &["a.toml:5:6", "`good`, `bad`; did you mean `good`?"]);
    refused("[disk]\nname='a'\n", Kind::ConfigValue, &["write [[disk]]"]);
    refused("disk = 3\n", Kind::ConfigValue, &["write [[disk]]"]);
    refused("disk = [3]\n", Kind::ConfigValue, &["a table is wanted here, this is a number"]);
    refused("daemon = 3\n", Kind::ConfigValue, &["a table is wanted here"]);
}

#[test]
fn wrong_types_ranges_and_units_are_refused() {
    let nop = |line: &str| format!("[[geom]]\nclass='nop'\nname='x'\nprovider='y'\n{line}\n");
    refused(&nop("fail_permille = 1001"), Kind::ConfigValue, &["1001 is too much: at most 1000"]);
    refused(&nop("fail_permille = -1"), Kind::ConfigValue, &["a.toml:5:17"]);
    refused(&nop("delay_us = 4294967296"), Kind::ConfigValue, &["out of range"]);
    refused(&nop("delay_us = '10'"), Kind::ConfigValue, &["\"10ms\"", "unknown unit"]);
    refused(&nop("delay_us = '1ns'"), Kind::ConfigValue, &["whole number"]);
    refused(&nop("delay_us = 1.5"), Kind::ConfigValue, &["a whole number is wanted here"]);
    refused(&nop("delay_us = 1979-05-27"), Kind::ConfigValue, &["this is a date"]);
    refused("[daemon]\ncores = 0\n", Kind::ConfigValue, &["at least 1"]);
    refused("[daemon]\nmemory = '1X'\n", Kind::ConfigValue, &["64MiB", "unknown unit"]);
    refused("[daemon]\nlog = 'a=b=c'\n", Kind::ConfigValue, &["info,geom=debug"]);
    refused("a = \n", Kind::ConfigSyntax, &["a.toml:1:"]);
    refused("a = 1\na = 2\n", Kind::ConfigSyntax, &["a.toml:2:1"]);
    refused(&" ".repeat(CONFIG_BYTES_MAX + 1), Kind::Limit, &["longer than"]);
}

#[test]
fn configuration_file_is_read_only_if_it_is_a_regular_file() {
    let folder = Folder::new("read");
    let (file, fifo) = (folder.join("a.toml"), folder.join("fifo"));
    std::fs::write(&file, " ".repeat(CONFIG_BYTES_MAX + 9)).expect("a scratch file");
    assert_eq!(read_text(&file).expect("readable").len(), CONFIG_BYTES_MAX + 1);
    std::fs::write(&file, b"\xff").expect("a scratch file");
    let error = read_text(&file).expect_err("not UTF-8");
    assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    let made = std::process::Command::new("mkfifo").arg(&fifo).status().expect("mkfifo");
    assert!(made.success());
    let error = read_text(&fifo).expect_err("it would wait for a writer");
    assert_eq!(error.to_string(), "not a regular file");
}

#[test]
fn duplicate_and_dangling_names_are_refused() {
    let two = "[[disk]]\nname='a'\nkind='null'\n[[disk]]\nname='a'\nkind='null'\n";
    refused(two, Kind::ConfigName, &["a.toml:5:6", "a disk is already named `a`"]);
    let target = "[[target]]\ndriver='iscsi'\nname='iqn.a:t'\nlisten=['127.0.0.1:1']\n";
    let access = |target: &str, group: &str, pattern: &str| {
        format!("[[access]]\ntarget='{target}'\ngroup='{group}'\ninitiators=['{pattern}']\n")
    };
    let lost = format!("{target}{}", access("iqn.a:x", "g", "*"));
    refused(&lost, Kind::ConfigName, &["no target `iqn.a:x`", "did you mean `iqn.a:t`?"]);
    let a = access("iqn.a:t", "g", "iqn.h:*");
    let both = format!("{target}{a}{}", access("iqn.a:t", "h", "*:b?"));
    refused(&both, Kind::AccessOverlap, &["a.toml:12:13", "initiator named `iqn.h:bx`"]);
    let apart = format!("{target}{a}{}", access("iqn.a:t", "h", "iqn.i:*"));
    assert!(read(&apart, "a.toml", &catalog()).is_ok());
    let far = format!("{target}{a}luns={{ 16777216 = 'a' }}\n");
    refused(&far, Kind::ConfigValue, &["at most 16777215"]);
    let word = format!("{target}{a}luns={{ zero = 'a' }}\n");
    refused(&word, Kind::ConfigKey, &["`zero` is not a number"]);
    let typo = format!("{target}{a}luns={{ 0 = {{ provider='a', mod='ro' }} }}\n");
    refused(&typo, Kind::ConfigKey, &["did you mean `mode`?"]);
}

#[test]
fn invalid_geoms_are_refused() {
    let geom = |name: &str, rest: &str| format!("[[geom]]\nclass='nop'\nname='{name}'\n{rest}\n");
    refused(&geom("a", ""), Kind::ConfigKey, &["is missing"]);
    refused(&geom("a", "provider='b'\nmembers=['c']"), Kind::ConfigKey, &["not both"]);
    refused(&geom("a", "members=['c','c']"), Kind::ConfigName, &["twice"]);
    let ring = geom("a", "provider='b'") + &geom("b", "provider='a'");
    refused(&ring, Kind::ConfigName, &["uses itself"]);
    refused(&geom("a b", "provider='c'"), Kind::ConfigValue, &["no spaces"]);
}

#[test]
fn target_secrets_must_differ_and_mutual_needs_chap() {
    let target = |rest: &str| {
        format!("[[target]]\ndriver='iscsi'\nname='iqn.a:t'\nlisten=['[::]:3260']\n{rest}\n")
    };
    let same = "chap={user='a',secret='file:/x'}\nmutual_chap={user='b',secret='file:/x'}";
    refused(&target(same), Kind::ConfigValue, &["same secret"]);
    let alone = "mutual_chap={user='b',secret='file:/x'}";
    refused(&target(alone), Kind::ConfigKey, &["needs `chap`"]);
    assert!(read(&target(""), "a.toml", &catalog()).is_ok());
}

#[test]
fn errors_show_no_secret_of_the_line() {
    let head = "[[target]]\ndriver='iscsi'\nname='iqn.a:t'\nlisten=['[::]:3260']\n";
    for line in [
        "chap = { user = 'u', secret = 'swordfish swordfish', x = 1 }",
        "chap = { user = 'u', secrte = 'swordfish swordfish' }",
        "chap = 'swordfish swordfish'",
        "chap = { user = 'u', secret = 'swordfish' swordfish' }",
    ] {
        let error = read(&format!("{head}{line}\n"), "a.toml", &catalog()).expect_err(line);
        let text = error.to_string();
        assert!(text.contains("***") && !text.contains("swordfish"), "{text}");
    }
}

#[test]
fn secrets_that_export_hid_are_refused_as_such() {
    let target = |rest: &str| {
        format!("[[target]]\ndriver='iscsi'\nname='iqn.a:t'\nlisten=['[::]:3260']\n{rest}\n")
    };
    let hidden = "secret='(hidden)'";
    let both = format!("chap={{user='a',{hidden}}}\nmutual_chap={{user='b',{hidden}}}");
    let account = format!(
        "[[access]]\ntarget='iqn.a:t'\ngroup='g'\ninitiators=['iqn.h:*']\n\
         chap={{user='a',{hidden},mutual={{user='m',{hidden}}}}}"
    );
    for (text, place) in [
        (target(&both), "`chap` of target iqn.a:t: "),
        (target(&both), "`mutual_chap` of target iqn.a:t: "),
        (target(&account), "`chap` of access iqn.a:t/g: "),
    ] {
        refused(&text, Kind::ConfigValue, &[place, "export` hid the secret", "--secrets"]);
        let error = read(&text, "a.toml", &catalog()).expect_err("hidden").to_string();
        assert!(!error.contains("same secret"), "{error}");
    }
}

#[test]
fn one_image_under_two_names_is_refused() {
    let disks = |first: &str, second: &str, rest: &str| {
        format!(
            "[[disk]]\nname='a'\nkind='file'\npath='{first}'\n{rest}\n\
             [[disk]]\nname='b'\nkind='file'\npath='{second}'\n{rest}\n"
        )
    };
    for (first, second) in [("d0", "./d0"), ("gone/new", "gone/./new"), ("/srv/d0", "d0")] {
        let error = read(&disks(first, second, ""), "/srv/a.toml", &catalog()).expect_err(second);
        let text = error.to_string();
        assert!(text.contains("is the disk `a` already") && text.contains(":9:6"), "{text}");
        let shared = disks(first, second, "read_only=true");
        assert!(read(&shared, "/srv/a.toml", &catalog()).is_ok(), "{second}");
    }
    assert!(read(&disks("d0", "new", ""), "/srv/a.toml", &catalog()).is_ok(), "two files");
}

#[test]
fn portal_listed_twice_is_refused() {
    let target =
        |listen: &str| format!("[[target]]\ndriver='iscsi'\nname='iqn.a:t'\nlisten=[{listen}]\n");
    let twice = target("'127.0.0.1:3260', '127.0.0.1:3260'");
    refused(&twice, Kind::ConfigValue, &["a.toml:4:27", "is listed twice"]);
    let mapped = target("'127.0.0.1:3260', '[::ffff:127.0.0.1]:3260'");
    refused(&mapped, Kind::ConfigValue, &["a.toml:4:27", "the same address as `127.0.0.1:3260`"]);
    for good in ["'127.0.0.1:0', '127.0.0.1:0'", "'127.0.0.1:3260', '127.0.0.1:3261', '[::1]:3260'"]
    {
        assert!(read(&target(good), "a.toml", &catalog()).is_ok(), "{good}");
    }
}

#[test]
fn group_accounts_are_read_and_checked() {
    let group = |rest: &str| {
        format!(
            "[[target]]\ndriver='iscsi'\nname='iqn.a:t'\nlisten=['[::]:3260']\n\
             mutual_chap={{user='t',secret='file:/t'}}\nchap={{user='c',secret='file:/c'}}\n\
             [[access]]\ntarget='iqn.a:t'\ngroup='g'\ninitiators=['iqn.h:*']\n{rest}\n"
        )
    };
    let good = "chap={user='a',secret='file:/a',mutual={user='m',secret='file:/m'}}\n\
                initiator_chap={'iqn.H:1'={user='b',secret='file:/b'}}";
    let config = read(&group(good), "a.toml", &catalog()).expect("good");
    assert_eq!(config.access[0].accounts().count(), 2);
    assert_eq!(read(&write(&config), "b.toml", &catalog()).expect("written"), config);
    assert!(config.access[0].initiator_chap.contains_key("iqn.h:1"), "as the initiator sends it");
    let twice = "initiator_chap={'iqn.H:1'={user='b',secret='file:/b'},\
                 'iqn.h:1'={user='c',secret='file:/d'}}";
    refused(&group(twice), Kind::ConfigValue, &["`iqn.H:1` and `iqn.h:1` are one iSCSI name"]);
    let same = "chap={user='a',secret='file:/a',mutual={user='m',secret='file:/a'}}";
    refused(&group(same), Kind::ConfigValue, &["same secret"]);
    refused(&group("chap={user='a',secret='file:/t'}"), Kind::ConfigValue, &["same secret"]);
    let other = "initiator_chap={'iqn.x:1'={user='b',secret='file:/b'}}";
    refused(&group(other), Kind::ConfigValue, &["iqn.x:1", "matches no pattern"]);
    let at = group("").replace("iqn.h:*", "ip:10.0.0.1");
    refused(&at, Kind::ConfigValue, &["matches no initiator", "portals"]);
}

#[test]
fn lun_has_one_spelling_and_a_unit_one_serial_number() {
    let catalog = catalog();
    let group = |luns: &str, rest: &str| {
        format!(
            "[[target]]\ndriver='iscsi'\nname='iqn.a:t'\nlisten=['[::]:3260']\n\
             [[access]]\ntarget='iqn.a:t'\ngroup='g'\ninitiators=['iqn.h:*']\nluns={{{luns}}}\n\
             {rest}\n"
        )
    };
    for twice in ["7='a',07='b'", "'+7'='a'"] {
        refused(&group(twice, ""), Kind::ConfigValue, &["write LUN 7 as `7`"]);
    }
    refused(&group("0='a'", "[[unit]]\nprovider='b'"), Kind::ConfigName, &["there is no `b`"]);
    let bus = "[[bus]]\nname='v'\nkind='virtual'\nnames={x='0'}\n[[unit]]\nprovider=";
    refused(&group("0='a'", &format!("{bus}'b'")), Kind::ConfigName, &["there is no `b`"]);
    for found in ["da0", "cd1", "x", "xp1"] {
        let text = group("0='a'", &format!("{bus}'{found}'"));
        assert!(read(&text, "a.toml", &catalog).is_ok(), "a disk of the bus: {found}");
    }
    let two = "0={provider='a',serial='S1'},1={provider='a',serial='S2'}";
    refused(&group(two, ""), Kind::ConfigName, &["two serial numbers, `S1` and `S2`"]);
    let one = "0={provider='a',serial='S1'},1={provider='b',serial='S1'}";
    refused(&group(one, ""), Kind::ConfigName, &["`a` and `b` have the same"]);
    let disks = "[[disk]]\nname='a'\nkind='file'\npath='/a'\nserial='S1'\n\
                 [[disk]]\nname='b'\nkind='file'\npath='/b'\nserial='S1'";
    refused(&group("0='a',1='b'", disks), Kind::ConfigName, &["`a` and `b` have the same"]);
    assert!(read(&group("0='a'", disks), "a.toml", &catalog).is_ok(), "paths of one disk");
    let own = "0='a',1={provider='b',serial='S2'}";
    assert!(read(&group(own, disks), "a.toml", &catalog).is_ok(), "the unit's own");
    let both = "0={provider='a',serial='S1'},1='a'";
    assert!(read(&group(both, ""), "a.toml", &catalog).is_ok());
}

#[test]
fn unit_names_are_well_formed_and_unique() {
    let catalog = catalog();
    let units = |a: &str, b: &str| {
        format!(
            "[[target]]\ndriver='iscsi'\nname='iqn.a:t'\nlisten=['[::]:3260']\n\
             [[access]]\ntarget='iqn.a:t'\ngroup='g'\ninitiators=['iqn.h:*']\n\
             luns={{0='a',1='b'}}\n\
             [[unit]]\nprovider='a'\n{a}\n[[unit]]\nprovider='b'\n{b}\n"
        )
    };
    for (good, same, bad, what) in [
        ("naa='5000c500a1b2c3d4'", "naa='5000C500A1B2C3D4'", "naa='6000c500a1b2c3d4'", "NAA name"),
        (
            "uuid='01234567-89ab-cdef-0123-456789abcdef'",
            "uuid='01234567-89AB-CDEF-0123-456789ABCDEF'",
            "uuid='01234567-89ab-cdef-0123-456789abcde.'",
            "UUID",
        ),
        ("eui64='0123456789abcdef'", "eui64='0123456789ABCDEF'", "eui64='0123456789abcdeg'", "EUI"),
    ] {
        refused(&units(good, bad), Kind::ConfigValue, &["is no", what]);
        refused(&units(good, same), Kind::ConfigName, &["`a` and `b` have the same", what]);
        assert!(read(&units(good, ""), "a.toml", &catalog).is_ok(), "{good}");
    }
}

#[test]
fn serial_numbers_are_short_and_printable_wherever_they_are_written() {
    let long = "x".repeat(65);
    let text = |serial: &str| {
        format!(
            "[[disk]]\nname = 'd0'\nkind = 'file'\npath = '/d0'\n\
             [[target]]\ndriver = 'iscsi'\nname = 'iqn.2026-11.a:t'\nlisten = ['[::]:3260']\n\
             [[access]]\ntarget = 'iqn.2026-11.a:t'\ngroup = 'g'\ninitiators = ['*']\n\
             luns = {{ 0 = {{ provider = 'd0', serial = '{serial}' }} }}\n"
        )
    };
    for serial in ["Gerät 7", long.as_str()] {
        refused(&text(serial), Kind::ConfigValue, &["1 to 64 printable ASCII"]);
    }
    read(&text(&long[1..]), "ashlar.toml", &catalog()).expect("64 characters");
}

#[test]
fn one_file_is_one_disk_unless_both_only_read() {
    let disk = |name: &str, more: &str| {
        format!("[[disk]]\nname = '{name}'\nkind = 'file'\npath = '/srv/d'\n{more}\n")
    };
    let read_only = "read_only = true";
    for (a, b) in [("", ""), (read_only, ""), ("", read_only)] {
        let text = disk("d0", a) + &disk("d1", b);
        refused(&text, Kind::ConfigValue, &["`/srv/d` is the disk `d0` already"]);
    }
    let both = disk("d0", read_only) + &disk("d1", read_only);
    read(&both, "ashlar.toml", &catalog()).expect("disks that only read");
}

/// An NQN is served under the name that was typed.
#[test]
fn iscsi_names_are_lowercased_and_nqns_keep_their_case() {
    let mut catalog = catalog();
    catalog.drivers.push(Entry::of::<NoParams>("nvme_tcp", "NVMe."));
    let text = "[[target]]\ndriver='nvme_tcp'\nname='nqn.2026-11.org:Disk'\nlisten=['[::]:4420']\n\
                [[target]]\ndriver='iscsi'\nname='IQN.A:T'\nlisten=['[::]:3260']\n\
                [[access]]\ntarget='nqn.2026-11.org:Disk'\ngroup='g'\ninitiators=['*']\n\
                [[access]]\ntarget='iqn.a:T'\ngroup='g'\n\
                initiators=['iqn.de.B\u{dc}RO:*', 'IQN.b:c']\n";
    let config = read(text, "a.toml", &catalog).expect("good");
    assert_eq!(config.access[1].initiators, ["iqn.de.b\u{fc}ro:*", "IQN.b:c"]);
    let names: Vec<&str> = config.target.iter().map(|t| t.name.as_str()).collect();
    assert_eq!(names, ["nqn.2026-11.org:Disk", "iqn.a:t"]);
    assert_eq!(config.access[1].target, "iqn.a:t");
}

#[test]
fn targets_at_one_address_agree_about_tls() {
    let mut catalog = catalog();
    catalog.drivers.push(Entry::of::<TlsParams>("other", "Speaks TLS."));
    let target = |name: &str, at: &str, rest: &str| {
        format!("[[target]]\ndriver='other'\nname='{name}'\nlisten=['{at}']\n{rest}\n")
    };
    let (tcp, unix) = ("127.0.0.1:10809", "unix:/run/x.sock");
    let both = |first: String, second: String| first + &second;
    for at in [tcp, unix] {
        let differ = both(target("a", at, "tls='require'"), target("b", at, ""));
        let error = read(&differ, "a.toml", &catalog).expect_err("they differ");
        let message = error.to_string();
        assert_eq!(error.kind, Kind::ConfigValue, "{message}");
        assert!(message.contains("target `a`") && message.contains(at), "{message}");
        let same = both(target("a", at, "tls='off'"), target("b", at, ""));
        assert!(read(&same, "a.toml", &catalog).is_ok(), "off is the default");
    }
    let apart = both(target("a", tcp, "tls='require'"), target("b", unix, ""));
    assert!(read(&apart, "a.toml", &catalog).is_ok());
}

#[test]
fn targets_listen_at_addresses_sockets_and_interfaces() {
    let catalog = catalog();
    let target = |at: &str| {
        format!("[[target]]\ndriver='iscsi'\nname='iqn.2026-11.test:a'\nlisten=['{at}']\n")
    };
    for good in ["127.0.0.1:1", "[::1]:1", "unix:/run/x", "unix:x", "ether:eth0"] {
        let read = read(&target(good), "a.toml", &catalog);
        assert!(read.is_ok(), "{good}: {:?}", read.err());
    }
    for bad in ["127.0.0.1", "unix:", "ether:", "ether:a/b", "ether:sixteen-letters-", "eth0"] {
        let error = read(&target(bad), "a.toml", &catalog).expect_err(bad);
        assert_eq!(error.kind, Kind::ConfigValue, "{error}");
    }
    let of_bytes = |bytes: usize| format!("unix:/{}", "x".repeat(bytes - 1));
    assert!(read(&target(&of_bytes(SOCKET_PATH_MAX)), "a.toml", &catalog).is_ok());
    let error = read(&target(&of_bytes(SOCKET_PATH_MAX + 1)), "a.toml", &catalog);
    let error = error.expect_err("too long for the kernel").to_string();
    assert!(error.contains("108 bytes") && error.contains("at most 107"), "{error}");
}

/// Random damage to a good document: an error or a configuration, never a panic.
#[test]
fn damaged_document_never_panics() {
    let catalog = catalog();
    let mut seed = 7u64;
    let mut next = |below: usize| {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        usize::try_from(seed >> 33).unwrap_or(0) % below.max(1)
    };
    let mut refused = 0;
    for _ in 0..2000 {
        let mut text: Vec<char> = GOOD.chars().collect();
        for _ in 0..=next(4) {
            if text.is_empty() {
                break;
            }
            let at = next(text.len());
            match next(4) {
                0 => drop(text.remove(at)),
                1 => text.insert(at, ['"', '[', ']', '=', '{', '\n', 'ü', '9'][next(8)]),
                2 => text.truncate(at),
                _ => text.swap(at, 0),
            }
        }
        let text: String = text.into_iter().collect();
        refused += usize::from(read(&text, "a.toml", &catalog).is_err());
    }
    assert!(refused > 100, "{refused}");
}

/// However a target's name is typed, it is one name, in the form that travels.
#[test]
fn target_names_are_normalised_to_one_case() {
    let text = "[[target]]\ndriver='iscsi'\nname='iqn.2026-11.org.Example:Store'\n\
        listen=['127.0.0.1:3260']\n[[access]]\ntarget='IQN.2026-11.org.example:store'\n\
        group='g'\ninitiators=['*']\nluns={}\n";
    let config = read(text, "a.toml", &catalog()).expect("one target");
    assert_eq!(config.target[0].name, "iqn.2026-11.org.example:store");
    assert_eq!(config.access[0].target, config.target[0].name);
    let twice = format!(
        "{text}[[target]]\ndriver='iscsi'\nname='iqn.2026-11.ORG.example:store'\n\
        listen=['127.0.0.1:3261']\n"
    );
    let error = read(&twice, "a.toml", &catalog()).expect_err("the same name");
    assert_eq!(error.kind, Kind::ConfigName, "{error}");
}

/// Portals keep groups apart; units and port groups are checked and written back.
#[test]
fn portals_units_and_port_groups_are_checked_and_written_back() {
    let head = "[[target]]\ndriver='iscsi'\nname='iqn.t:a'\nlisten=['127.0.0.1:1']\n";
    let group = |name: &str, portal: &str| {
        format!(
            "[[access]]\ntarget='iqn.t:a'\ngroup='{name}'\ninitiators=['iqn.*']\n\
             portals=['{portal}']\naddressing='flat'\n"
        )
    };
    let apart = format!(
        "{head}port_group='near'\n{}{}[[alua]]\nname='near'\nid=7\nstate='non-optimized'\n\
         [[unit]]\nprovider='gpt/d0'\nhandler='cdrom'\nvendor='ACME'\nwrite_cache=false\n",
        group("x", "10.0.0.1"),
        group("y", "10.0.0.2:3260")
    );
    let config = read(&apart, "a.toml", &catalog()).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(config.unit("gpt/d0").and_then(|u| u.write_cache), Some(false));
    let text = write(&config);
    assert_eq!(read(&text, "b.toml", &catalog()).expect("own text"), config, "{text}");
    let meet = format!("{head}{}{}", group("x", "10.0.0.1"), group("y", "*:3260"));
    refused(&meet, Kind::AccessOverlap, &["iqn.", "some portal is of both"]);
    refused(&format!("{head}{}", group("x", "here")), Kind::ConfigValue, &["*:PORT"]);
    refused(&format!("{head}port_group='naer'\n"), Kind::ConfigName, &["no [[alua]] group"]);
    let second = head.replace("iqn.t:a", "iqn.t:b");
    let twice = format!("{head}port_id=3\n{second}port_id=3\n");
    refused(&twice, Kind::ConfigName, &["target `iqn.t:a` has that identifier"]);
    refused(&format!("{head}port_id=0\n"), Kind::ConfigValue, &["port_id"]);
    let one = "[[alua]]\nname='near'\nid=1\n";
    refused(one, Kind::ConfigName, &["identifier 1"]);
}

#[test]
fn errors_in_command_arguments_name_the_argument() {
    let refusal = |lines: &str| {
        let text = format!("[[bus]]\nname = \"v0\"\n{lines}");
        let catalog = crate::fake::catalog();
        let error = read_arguments(&text, "cam attach", &catalog).expect_err("it is wrong");
        assert_eq!(error.op, "cam attach");
        assert!(!error.source.contains("[[bus]]") && !error.source.contains('\n'), "{error:?}");
        error.source
    };
    assert_eq!(refusal(""), "`kind` is missing");
    let two = refusal("kind = \"virtual\"\nfoo = 1\nsize_bytes = \"much\"\n");
    assert!(two.starts_with("foo: unknown key `foo`") && two.contains("; size_bytes: "), "{two}");
    let good = "[[bus]]\nname = \"v0\"\nkind = \"virtual\"\nsize_bytes = 4096\n";
    let catalog = crate::fake::catalog();
    assert_eq!(read_arguments(good, "cam attach", &catalog).expect("well").bus.len(), 1);
}
