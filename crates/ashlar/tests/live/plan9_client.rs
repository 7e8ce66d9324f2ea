//! The file server as Plan 9's own client sees it: the module `9fans.net/go`, through both
//! listeners, and its files as they are in a dump.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use rig::papers::{Good, Papers};
use rig::proc;

use crate::fixture::{self, Fixture};

/// For a compiler on a machine that is busy.
const BUILD: Duration = Duration::from_secs(300);
const RUN: Duration = Duration::from_secs(120);

/// The client's program, built.
fn client(fixture: &Fixture) -> String {
    let program = fixture.path("plan9").to_str().unwrap().to_owned();
    let mut go = Command::new(proc::tool("go").unwrap());
    go.args(["build", "-mod=readonly", "-o", &program, "."]);
    go.current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/plan9"));
    // Its cache is wanted where there is no home.
    if std::env::var_os("HOME").is_none() {
        go.env("GOPATH", fixture.path("go")).env("GOCACHE", fixture.path("go-cache"));
    }
    let built = proc::run_limited(&mut go, BUILD).unwrap();
    assert!(built.ok(), "{built:?}");
    program
}

/// Runs it to its end; how many scenes there were.
#[track_caller]
fn scenes(program: &str, words: &[&str]) -> usize {
    by_keys(program, "", words)
}

/// The same with the keys of a folder.
#[track_caller]
fn by_keys(program: &str, keys: &str, words: &[&str]) -> usize {
    let mut command = Command::new(program);
    let ran = proc::run_limited(command.args(words).env("KEYS", keys), RUN).unwrap();
    assert!(ran.ok(), "{words:?}: {ran:?}");
    ran.output.lines().filter(|line| line.starts_with("ok ")).count()
}

/// A fixture with a file server on two images of so many MiB, with `more` in its section; where
/// Plan 9's and Linux' clients find it.
fn served(name: &str, mib: [u64; 2], more: &str) -> (Fixture, [String; 2]) {
    let mut fixture = Fixture::alone(name);
    let ports = [proc::free_port().unwrap(), proc::free_port().unwrap()];
    let at = ports.map(|port| format!("127.0.0.1:{port}"));
    let [strict, lenient] = &at;
    let mut all = String::new();
    for (name, mib) in ["ssd", "worm"].iter().zip(mib) {
        fixture.image(&format!("{name}.img"), mib << 20);
        all += &fixture::file_disk(name, &format!("{name}.img"));
    }
    all += &format!(
        "[[geom]]\nclass = \"fs\"\nname = \"main\"\nmembers = [\"ssd\", \"worm\"]\n\
         create = true\nplan9 = [\"{strict}\"]\nlinux = [\"{lenient}\"]\n\
         everybody = \"rob\"\ndump_at = \"never\"\n{more}\n"
    );
    fixture.configure(&all, "");
    fixture.start();
    (fixture, at)
}

#[test]
fn go_client_reads_back_its_files() {
    its_files_stay("fs-plan9", [48, 128], "");
}

#[test]
fn go_client_reads_back_its_files_in_a_cwfs64x_image() {
    its_files_stay("fs-plan9-image", [96, 128], "image = true");
}

/// Images of 9front's file servers are served like our own volumes, by a daemon that is killed.
fn its_files_stay(name: &str, mib: [u64; 2], more: &str) {
    let (mut fixture, [strict, lenient]) = served(name, mib, more);
    let program = client(&fixture);
    // `rob` exists already: the configuration names it.
    fixture.ok(&["fs", "newuser", "main", "ken"]);
    fixture.ok(&["fs", "create", "main", "/lib", "sys", "sys", "775", "d"]);
    let flavours = [("plan9", &strict), ("linux", &lenient)];
    for (flavour, at) in flavours {
        let place = format!("/lib/{flavour}");
        fixture.ok(&["fs", "create", "main", &place, "rob", "rob", "775", "d"]);
        assert_eq!(scenes(&program, &["work", at, flavour, "rob", "ken"]), 8);
    }
    let dump = fixture.json(&["fs", "dump", "main", "--wait"]);
    let dump = dump["answer"]["path"].as_str().expect("a path").to_owned();
    fixture.ok(&["fs", "remove", "main", "/lib/plan9/big"]);
    fixture.kill();
    fixture.start();
    for (flavour, at) in flavours {
        let place = format!("{}/lib/{flavour}", dump.trim_start_matches("/dump"));
        assert_eq!(scenes(&program, &["check", at, flavour, "rob", &place]), 1);
    }
    fixture.stop();
}

#[test]
fn memory_is_bounded_by_the_block_cache_size() {
    const MEMORY: u64 = 8 << 20;
    let more = format!("memory = {MEMORY}");
    let (mut fixture, [strict, _]) = served("fs-memory", [300, 600], &more);
    let program = client(&fixture);
    fixture.ok(&["fs", "create", "main", "/lib", "sys", "sys", "775", "d"]);
    fixture.ok(&["fs", "create", "main", "/lib/plan9", "rob", "rob", "775", "d"]);
    let before = rig::proc::peak_resident_bytes(fixture.pid()).unwrap();
    // 160 MiB written, dumped while they are written, and read back.
    assert_eq!(scenes(&program, &["bulk", &strict, "plan9", "rob", "160"]), 2);
    fixture.json(&["fs", "dump", "main", "--wait"]);
    assert_eq!(scenes(&program, &["reread", &strict, "plan9", "rob", "160"]), 1);
    let grew = rig::proc::peak_resident_bytes(fixture.pid()).unwrap() - before;
    println!("{grew} bytes more than {before}");
    // Beside the cache: data on its way to the client and to disks.
    assert!(grew < MEMORY + MEMORY, "{grew} bytes more than before");
    fixture.stop();
}

/// Whether a file has a line; read directly from an image.
fn has(fixture: &Fixture, image: &str, line: &str) -> bool {
    let bytes = std::fs::read(fixture.path(image)).unwrap();
    bytes.windows(line.len()).any(|w| w == line.as_bytes())
}

/// T3 of fileserver/src/files/temporary.rs.
#[test]
fn temporary_file_data_never_reaches_the_worm_or_a_trace() {
    let (mut fixture, [strict, _]) = served("fs-temporary", [48, 128], "");
    let program = client(&fixture);
    fixture.ok(&["fs", "create", "main", "/lib", "sys", "sys", "775", "d"]);
    fixture.ok(&["fs", "create", "main", "/lib/plan9", "rob", "rob", "775", "d"]);
    let nothing = fixture.ashlar(&["fs", "trace", "main"]).ends(0);
    nothing.prints(&["`trace on` starts it"]);
    fixture.ashlar(&["fs", "trace", "main", "on"]).ends(0).prints(&["every connection"]);
    assert_eq!(scenes(&program, &["hide", &strict, "plan9", "rob", "marked"]), 1);
    fixture.ashlar(&["fs", "trace", "main", "off"]).ends(0).prints(&["recording ended"]);
    // The trace has its messages in words, but only the length of their data.
    let trace = fixture.ashlar(&["fs", "trace", "main"]).ends(0);
    let trace =
        trace.prints(&["Tcreate fid", "name \"hidden\"", "Rwrite count", "Twstat fid", " us\n"]);
    assert!(!trace.out.contains("marked"), "{trace}");
    let kept = fixture.json(&["fs", "trace", "main"]);
    let messages = kept["answer"]["messages"].as_array().expect("messages");
    let replies = messages.iter().filter(|m| m["request"] == false);
    assert!(replies.clone().count() > 30 && replies.clone().all(|m| m["took_ns"].is_u64()));
    let connection = messages[0]["connection"].to_string();
    let only = ["fs", "trace", "main", "--connection", &connection];
    fixture.ashlar(&only).ends(0).prints(&["Tversion"]);
    let absent = fixture.ashlar(&["fs", "trace", "main", "on", "--connection", "99"]);
    assert!(absent.code != 0 && absent.err.contains("no connection 99"), "{absent}");

    let dump = fixture.json(&["fs", "dump", "main", "--wait"]);
    let dump = dump["answer"]["path"].as_str().expect("a path").to_owned();
    let listed = fixture.ok(&["fs", "ls", "main", &format!("{dump}/lib/plan9")]);
    assert!(listed.contains("plain") && listed.contains("shown"), "{listed}");
    assert!(!listed.contains("temporary") && !listed.contains("hidden"), "{listed}");
    let acct = fixture.json(&["fs", "acct", "main"]);
    let users = acct["answer"]["users"].as_array().expect("users");
    let rob = users.iter().find(|u| u["user"] == "rob").expect("rob");
    assert!(rob["scratch"].as_u64() > Some(30) && rob["new"] == 0, "{acct}");
    let added = fixture.json(&["fs", "acct", "main", "--dump", "last"]);
    let users = added["answer"]["users"].as_array().expect("users");
    let rob = users.iter().find(|u| u["user"] == "rob").expect("rob");
    assert!(rob["new"].as_u64() > Some(30) && rob["scratch"] == 0, "{added}");
    // After a loss of power they are all there still, and the WORM has only the permitted files.
    fixture.kill();
    fixture.start();
    assert_eq!(scenes(&program, &["hidden", &strict, "plan9", "rob", "marked"]), 1);
    fixture.stop();
    let on_worm = |name: &str| has(&fixture, "worm.img", &format!("marked {name}\n"));
    assert!(on_worm("plain") && on_worm("shown"), "a dump has what is not temporary");
    assert!(!on_worm("temporary") && !on_worm("hidden"), "the WORM has a temporary file");
    assert!(has(&fixture, "ssd.img", "marked temporary\n"), "the cache device has it");
    // With the cache device they are lost.
    std::fs::remove_file(fixture.path("ssd.img")).unwrap();
    fixture.image("ssd.img", 48 << 20);
    fixture.start();
    fixture.ashlar(&["fs", "recover", "main"]).ends(0).prints(&[&dump]);
    let listed = fixture.ok(&["fs", "ls", "main", "/lib/plan9"]);
    assert!(listed.contains("shown") && !listed.contains("hidden"), "{listed}");
    let found = fixture.json(&["fs", "check", "main", "--rdall"]);
    assert_eq!(found["answer"]["faults"], 0, "{found}");
    fixture.stop();
}

/// S1 of fileserver/src/service/tls.rs.
#[test]
fn tls_client_is_the_user_named_in_its_certificate() {
    let mut fixture = Fixture::alone("fs-tls");
    let program = client(&fixture);
    let papers = Papers::new("fs-tls-papers").unwrap();
    papers.authority("ca").unwrap();
    papers.authority("other").unwrap();
    let at_home = "subjectAltName=DNS:localhost,IP:127.0.0.1";
    for (by, name, common, good) in [
        ("ca", "server", "localhost", Good::Now),
        ("ca", "rob", "rob", Good::Now),
        ("ca", "late", "rob", Good::Before),
        ("ca", "stranger", "stranger", Good::Now),
        ("other", "mallory", "rob", Good::Now),
    ] {
        papers.sign(by, name, common, at_home, good).unwrap();
    }
    let file = |name: &str| papers.file(name).to_str().unwrap().to_owned();
    let ports = [proc::free_port().unwrap(), proc::free_port().unwrap()];
    let [strict, lenient] = ports.map(|port| format!("127.0.0.1:{port}"));
    let mut all = String::new();
    for (name, mib) in [("ssd", 48), ("worm", 128)] {
        fixture.image(&format!("{name}.img"), mib << 20);
        all += &fixture::file_disk(name, &format!("{name}.img"));
    }
    all += &format!(
        "[[geom]]\nclass = \"fs\"\nname = \"main\"\nmembers = [\"ssd\", \"worm\"]\n\
         create = true\nplan9_tls = [\"{strict}\"]\nlinux_tls = [\"{lenient}\"]\n\
         dump_at = \"never\"\n"
    );
    let keys = format!(
        "tls_certificate = \"{}\"\ntls_key = \"{}\"\n",
        file("server/server-cert.pem"),
        file("server/server-key.pem")
    );
    let trusted = fixture.path("clients.pem");
    std::fs::copy(papers.file("ca.pem"), &trusted).unwrap();
    let whole = format!("{all}{keys}tls_client_ca = \"{}\"\n", trusted.display());
    fixture.configure(&whole, "");
    fixture.start();
    for user in ["rob", "ken"] {
        fixture.ok(&["fs", "newuser", "main", user]);
    }
    fixture.ok(&["fs", "create", "main", "/lib", "sys", "sys", "775", "d"]);
    for (flavour, at) in [("plan9", &strict), ("linux", &lenient)] {
        let place = format!("/lib/{flavour}");
        fixture.ok(&["fs", "create", "main", &place, "rob", "rob", "775", "d"]);
        let at = format!("tls:{at}");
        assert_eq!(by_keys(&program, &file("rob"), &["work", &at, flavour, "rob", "ken"]), 8);
    }
    // Refused with a reason, on both sides.
    let at = format!("tls:{strict}");
    for (who, why) in [
        ("mallory", "UnknownIssuer"),
        ("late", "xpired"),
        ("stranger", "names `stranger`: there is no such user"),
    ] {
        let mut command = Command::new(&program);
        command.args(["work", &at, "plan9", "rob", "ken"]).env("KEYS", file(who));
        let ran = proc::run_limited(&mut command, RUN).unwrap();
        assert!(!ran.ok() && ran.output.contains("FAILED attach"), "{who}: {ran:?}");
        fixture.ashlar(&["fs", "list", "main"]).ends(0).prints(&["turned away", why]);
    }
    let mut plain = Command::new(&program);
    plain.args(["work", &strict, "plan9", "rob", "ken"]);
    let ran = proc::run_limited(&mut plain, RUN).unwrap();
    assert!(!ran.ok(), "in the clear: {ran:?}");
    fixture.configure(&format!("{all}{keys}"), "");
    fixture.ashlar(&["apply"]).complains(&["tls_client_ca is missing"]);
    // Another authority vouches for clients.
    fixture.configure(&whole, "");
    std::fs::copy(papers.file("other.pem"), &trusted).unwrap();
    let changed = format!("tls_client_ca {} has changed", trusted.display());
    let steps = fixture.ashlar(&["plan", "--json"]).ends(6).json();
    let steps = fixture::array(&steps["steps"]);
    assert_eq!(steps.len(), 1, "{steps:#?}");
    assert_eq!(fixture::text(&steps[0]["what"]), "read files of fs main anew");
    assert_eq!(fixture::text(&steps[0]["why"]), changed);
    fixture.ashlar(&["apply"]).ends(0);
    fixture.ashlar(&["plan"]).ends(0).prints(&["no changes"]);
    let why = |who: &str| {
        let mut command = Command::new(&program);
        command.args(["work", &at, "plan9", "rob", "ken"]).env("KEYS", file(who));
        let ran = proc::run_limited(&mut command, RUN).unwrap();
        (ran.output.contains("FAILED attach"), fixture.ok(&["fs", "list", "main"]))
    };
    let (refused, list) = why("rob");
    assert!(refused && list.contains("UnknownIssuer"), "{list}");
    assert!(!why("mallory").0, "a client of the new authority is refused");
    fixture.ashlar(&["status"]).ends(0).prints(&["fs main", "tls_certificate", "expires in 1 day"]);
    fixture.ashlar(&["doctor", "certificates"]).ends(3).prints(&["fs main: tls_client_ca"]);
    // None of them harmed the others.
    fixture.ok(&["fs", "create", "main", "/lib/again", "rob", "rob", "775", "d"]);
    let found = fixture.json(&["fs", "check", "main", "--rdall"]);
    assert_eq!(found["answer"]["faults"], 0, "{found}");
    fixture.stop();
}
