//! Secrets and certificates that are replaced while the daemon runs. `plan` shows it, `apply` and
//! SIGHUP read them again, and the old ones are refused from then on.

use std::process::Command;
use std::time::Duration;

use rig::papers::{Good, Papers};
use rig::{peer, proc};

use crate::fixture::{Fixture, array, file_disk, text};

const DISK_BYTES: u64 = 16 << 20;

/// Exit code of `plan` when there are changes.
const PENDING: i32 = 6;

const SECRETS: &str = r#"
[[target]]
driver = "iscsi"
name = "{iqn}"
listen = ["{portal}"]
chap_md5 = true
chap = { user = "alice", secret = "file:{here}/own" }

[[target]]
driver = "iscsi"
name = "{iqn}.groups"
listen = ["{portal}"]
chap_md5 = true

[[access]]
target = "{iqn}"
group = "all"
initiators = ["*"]
luns = { 0 = "good" }

[[access]]
target = "{iqn}.groups"
group = "all"
initiators = ["*"]
luns = { 0 = "good" }
chap = { user = "alice", secret = "file:{here}/theirs" }
"#;

fn log_in(fixture: &Fixture, target: &str, secret: &str) -> Result<(), String> {
    let mut at = fixture.target(0);
    at.iqn += target;
    let chap = rig::Chap { user: "alice".into(), secret: secret.into(), mutual: None };
    peer::iscsi_inq(&at.url_with(&chap), None).map(drop).map_err(|e| e.to_string())
}

#[track_caller]
fn accepts_only(fixture: &Fixture, target: &str, secret: &str, refused: &str) {
    log_in(fixture, target, secret).unwrap();
    assert!(log_in(fixture, target, refused).is_err(), "{refused} still opens {target}");
}

#[test]
fn replaced_secrets_are_read_again() {
    let mut fixture = Fixture::new("renewed-secrets");
    fixture.image("good.img", DISK_BYTES);
    fixture.secret("own", "first-own-secret");
    fixture.secret("theirs", "first-group-word");
    fixture.write("ashlar.toml", &format!("{}{SECRETS}", file_disk("good", "good.img")));
    fixture.start();
    accepts_only(&fixture, "", "first-own-secret", "second-own-word1");
    fixture.ashlar(&["plan"]).ends(0).prints(&["no changes"]);

    // `apply` of the same configuration.
    fixture.secret("own", "second-own-word1");
    fixture.ashlar(&["plan"]).ends(PENDING).prints(&[
        "read files of target",
        "own has changed",
        "safe",
    ]);
    accepts_only(&fixture, "", "first-own-secret", "second-own-word1");
    fixture.ashlar(&["apply"]).ends(0).prints(&["read files of target"]);
    accepts_only(&fixture, "", "second-own-word1", "first-own-secret");
    fixture.ashlar(&["plan"]).ends(0).prints(&["no changes"]);

    // SIGHUP, and the account of a group.
    fixture.secret("theirs", "second-group-wrd");
    fixture.ashlar(&["plan"]).ends(PENDING).prints(&["group all: chap", "theirs has changed"]);
    accepts_only(&fixture, ".groups", "first-group-word", "second-group-wrd");
    let hup = ["-HUP".to_owned(), fixture.pid().to_string()];
    proc::run(Command::new("kill").args(&hup)).unwrap();
    let renewed = || log_in(&fixture, ".groups", "second-group-wrd").is_ok();
    fixture.until("SIGHUP reads the secret", Duration::from_secs(20), renewed);
    accepts_only(&fixture, ".groups", "second-group-wrd", "first-group-word");

    // A file that cannot be used changes nothing.
    fixture.secret("theirs", "short");
    fixture.ashlar(&["apply"]).ends(1).complains(&["5 bytes"]);
    accepts_only(&fixture, ".groups", "second-group-wrd", "short");

    // A missing one is reported, stays in use, and keeps no edit from being carried out.
    std::fs::remove_file(fixture.path("theirs")).unwrap();
    let is_reported = || fixture.log().contains("theirs cannot be used");
    fixture.until("the missing secret is reported", Duration::from_secs(20), is_reported);
    accepts_only(&fixture, ".groups", "second-group-wrd", "short");
    fixture.ashlar(&["plan"]).ends(0).prints(&["no changes"]);
    let text = std::fs::read_to_string(fixture.path("ashlar.toml")).unwrap();
    let lines = text.lines().filter(|line| !line.contains("/theirs"));
    fixture.write("ashlar.toml", &lines.collect::<Vec<_>>().join("\n"));
    fixture.ashlar(&["apply"]).ends(0);
    fixture.assert_alive();
    fixture.stop();
}

/// A target that wants a proof, and a daemon that reaches its disk by a bus of kind `iscsi`.
fn target_and_bus() -> (Fixture, Fixture) {
    let (mut far, mut near) = (Fixture::new("renewed-far"), Fixture::new("renewed-near"));
    far.image("good.img", DISK_BYTES);
    far.secret("own", "first-own-secret");
    far.secret("theirs", "unused-elsewhere");
    far.write("ashlar.toml", &format!("{}{SECRETS}", file_disk("good", "good.img")));
    far.start();
    near.secret("mine", "first-own-secret");
    let (portal, iqn) = (far.portal(), far.target(0).iqn);
    let bus = format!(
        "[[bus]]\nname = \"iscsi0\"\nkind = \"iscsi\"\nportals = [\"{portal}\"]\n\
         target = \"{iqn}\"\ninitiator = \"iqn.2026-11.test.ashlar:near\"\n\
         chap_algorithms = [\"md5\"]\n\
         chap = {{ user = \"alice\", secret = \"file:{{here}}/mine\" }}\n"
    );
    near.configure(&bus, "0 = \"da0\"");
    near.start_whole();
    (far, near)
}

fn reads(fixture: &Fixture) -> bool {
    peer::iscsi_inq(&fixture.url(0), None).is_ok()
        && tool_ends_well("qemu-io", &["-r", "-f", "raw", "-c", "read 0 4k", &fixture.url(0)])
}

fn tool_ends_well(name: &str, words: &[&str]) -> bool {
    proc::run(Command::new(proc::tool(name).unwrap()).args(words)).is_ok()
}

#[test]
fn the_secret_of_a_bus_is_read_again_and_its_next_login_uses_it() {
    const LIMIT: Duration = Duration::from_secs(30);
    let (mut far, mut near) = target_and_bus();
    assert!(reads(&near));
    near.ashlar(&["plan"]).ends(0).prints(&["no changes"]);
    let connections = |fixture: &Fixture| {
        let state = fixture.state();
        let all = array(&state["targets"]).iter().flat_map(|t| array(&t["sessions"]));
        let mut all: Vec<String> = all.map(|s| text(&s["address"])).collect();
        all.sort();
        all
    };
    let before = connections(&far);
    assert!(before.iter().all(|at| at.contains(':')) && !before.is_empty(), "{before:?}");

    far.secret("own", "second-own-word1");
    far.ashlar(&["apply"]).ends(0).prints(&["read files of target"]);
    assert_eq!(connections(&far), before, "its sessions go on");

    // The watch reports it by itself.
    near.secret("mine", "second-own-word1");
    let seen = || near.ashlar(&["status"]).out.contains("mine has changed");
    near.until("status names the file", LIMIT, seen);
    near.ashlar(&["journal"]).ends(0).prints(&["chap", "mine has changed", "ashlar apply"]);
    near.ashlar(&["plan"]).ends(PENDING).prints(&["read files of bus iscsi0 anew", "chap", "safe"]);
    near.ashlar(&["apply"]).ends(0).prints(&["read files of bus iscsi0 anew"]);
    near.ashlar(&["plan"]).ends(0).prints(&["no changes"]);
    assert!(!near.ashlar(&["status"]).out.contains("has changed"));
    assert_eq!(connections(&far), before, "its sessions go on");
    assert!(reads(&near));

    // An unusable secret changes nothing.
    near.secret("mine", "short");
    near.ashlar(&["apply"]).ends(1).complains(&["5 bytes"]);
    near.secret("mine", "second-own-word1");

    // All sessions begin anew.
    far.stop();
    far.start();
    near.until("it logs in with the new secret", LIMIT, || reads(&near));
    near.assert_alive();
    near.stop();
    far.stop();
}

#[test]
fn clients_of_a_replaced_authority_are_refused() {
    let mut fixture = Fixture::new("renewed-authority");
    let papers = Papers::new("renewed-authority-papers").unwrap();
    let own = "subjectAltName=DNS:localhost,IP:127.0.0.1";
    papers.authority("ca").unwrap();
    papers.authority("next").unwrap();
    papers.sign("ca", "server", "localhost", own, Good::Now).unwrap();
    papers.sign("ca", "alice", "alice", "subjectAltName=DNS:a.example", Good::Now).unwrap();
    papers.sign("next", "bob", "bob", "subjectAltName=DNS:b.example", Good::Now).unwrap();
    papers.sign("ca", "late", "localhost", own, Good::Before).unwrap();
    let trusted = fixture.path("clients.pem");
    std::fs::copy(papers.file("ca.pem"), &trusted).unwrap();
    let (cert, key) = (fixture.path("cert.pem"), fixture.path("key.pem"));
    std::fs::copy(papers.file("server/server-cert.pem"), &cert).unwrap();
    std::fs::copy(papers.file("server/server-key.pem"), &key).unwrap();
    let at = fixture.portal();
    fixture.image("good.img", DISK_BYTES);
    let target = format!(
        "[[target]]\ndriver = \"nbd\"\nname = \"shop\"\nlisten = [\"{at}\"]\ntls = \"require\"\n\
         tls_certificate = \"{{here}}/cert.pem\"\ntls_key = \"{{here}}/key.pem\"\n\
         tls_client_ca = \"{{here}}/clients.pem\"\n\n\
         [[access]]\ntarget = \"shop\"\ngroup = \"all\"\ninitiators = [\"tls:*\"]\n\
         luns = {{ 0 = \"good\" }}\n"
    );
    fixture.write("ashlar.toml", &format!("{}{target}", file_disk("good", "good.img")));
    fixture.start();
    let size = |who: &str| {
        let folder = papers.file(who);
        let port = at.port();
        let url = format!("nbds://localhost:{port}/good?tls-certificates={}", folder.display());
        proc::run(Command::new(proc::tool("nbdinfo").unwrap()).args(["--size", &url]))
    };
    size("alice").unwrap();
    assert!(size("bob").is_err());

    std::fs::copy(papers.file("next.pem"), &trusted).unwrap();
    let steps = fixture.ashlar(&["plan", "--json"]).ends(PENDING).json();
    let steps = array(&steps["steps"]);
    assert_eq!(steps.len(), 1, "{steps:#?}");
    assert_eq!(text(&steps[0]["what"]), "read files of target shop anew");
    let why = format!("tls_client_ca {} has changed", trusted.display());
    assert_eq!((text(&steps[0]["why"]), text(&steps[0]["risk"])), (why, "safe".into()));
    size("alice").unwrap();
    fixture.ashlar(&["apply"]).ends(0);
    size("bob").unwrap();
    assert!(size("alice").is_err(), "a client of the old authority is still served");
    fixture.ashlar(&["plan"]).ends(0);

    // They are good for two days.
    let soon = "expires in 1 day";
    fixture.ashlar(&["status"]).ends(0).prints(&["tls_certificate", soon, "target shop"]);
    fixture.ashlar(&["doctor", "certificates"]).ends(3).prints(&["tls_client_ca", soon, "warn"]);
    let page = crate::nbd::page(&fixture, "/metrics");
    let series = "ashlar_tls_certificate_expiry_timestamp_seconds{kind=\"target\",name=\"shop\",\
                  key=\"tls_certificate\"";
    let line = page.lines().find(|l| l.starts_with(series)).expect("the certificate's series");
    let at: u64 = line.rsplit(' ').next().and_then(|n| n.parse().ok()).expect("a time");
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    assert!((now + 86_400..now + 3 * 86_400).contains(&at), "{line}");
    std::fs::copy(papers.file("late/client-cert.pem"), &cert).unwrap();
    std::fs::copy(papers.file("late/client-key.pem"), &key).unwrap();
    fixture.ashlar(&["doctor", "certificates"]).ends(3).prints(&["expired 0 days ago", "FAIL"]);
    fixture.ashlar(&["apply"]).ends(0);
    fixture.ashlar(&["status"]).ends(3).prints(&["DEGRADED", "expired 0 days ago"]);

    // Contents that are no certificate leave the one in use.
    std::fs::write(&trusted, "nothing\n").unwrap();
    fixture
        .ashlar(&["apply"])
        .ends(1)
        .complains(&["tls_client_ca", "the file contains no certificate"]);
    fixture.ashlar(&["plan"]).ends(1).prints(&["files of target shop", "contains no certificate"]);
    fixture.assert_alive();
    fixture.stop();
}
