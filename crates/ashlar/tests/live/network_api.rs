//! The API over TCP with TLS: tokens and roles, listeners that follow an edit, replaced
//! certificates, and the audit log.

use std::time::Duration;

use rig::papers::{Good, Papers};
use rig::proc;

use crate::fixture::{Fixture, array, text};

const LIMIT: Duration = Duration::from_secs(20);

/// Exit code of a command that is refused, and of one that reaches no daemon.
const FAILED: i32 = 1;
const UNREACHABLE: i32 = 5;

const DISK: &str = "[[disk]]\nname = \"d0\"\nkind = \"memory\"\nsize = \"16MiB\"\n";

/// Certificates of a server at 127.0.0.1, signed by the authority `ca`.
fn papers(name: &str) -> Papers {
    let papers = Papers::new(name).unwrap();
    papers.authority("ca").unwrap();
    papers.sign("ca", "server", "localhost", "subjectAltName=IP:127.0.0.1", Good::Now).unwrap();
    papers
}

fn install(fixture: &Fixture, papers: &Papers) {
    for (from, to) in [
        ("ca.pem", "ca.pem"),
        ("server/server-cert.pem", "api.pem"),
        ("server/server-key.pem", "api.key"),
    ] {
        std::fs::copy(papers.file(from), fixture.path(to)).unwrap();
    }
}

fn api_section(port: u16) -> String {
    format!(
        "{DISK}[api]\nlisten = [\"127.0.0.1:{port}\"]\ntls_certificate = \"api.pem\"\n\
         tls_key = \"api.key\"\n"
    )
}

#[test]
fn remote_command_needs_a_token_of_the_role() {
    let mut fixture = Fixture::new("network-api");
    install(&fixture, &papers("network-api-papers"));
    let port = proc::free_port().unwrap();
    fixture.configure(&api_section(port), "");
    fixture.start();
    let [viewer, admin] = ["viewer", "admin"].map(|role| {
        let token = fixture.ok(&["token", "create", role, "--role", role]);
        fixture.secret(role, &token);
        fixture.path(role).to_str().unwrap().to_owned()
    });
    let url = format!("https://127.0.0.1:{port}");
    let ca = fixture.path("ca.pem").to_str().unwrap().to_owned();
    let remote = |words: &[&str], token: &str| {
        let way = ["--remote", &url, "--token-file", token, "--ca", &ca];
        fixture.ashlar(&words.iter().copied().chain(way).collect::<Vec<_>>())
    };
    fixture.until("the API is served", LIMIT, || remote(&["list"], &viewer).code == 0);
    remote(&["list"], &viewer).ends(0).prints(&["d0"]);
    remote(&["apply"], &viewer).ends(FAILED).complains(&["role viewer", "needs admin"]);
    remote(&["apply"], &admin).ends(0).prints(&["no changes"]);
    fixture.secret("wrong", "ashlar_1_2");
    let wrong = fixture.path("wrong").to_str().unwrap().to_owned();
    remote(&["list"], &wrong).ends(FAILED).complains(&["ASH-0046", "token is not valid"]);
    fixture.ok(&["token", "revoke", "viewer"]);
    remote(&["list"], &viewer).ends(FAILED).complains(&["ASH-0046"]);

    // The audit log has all of it, over a restart too.
    fixture.stop();
    fixture.start();
    let log = fixture.json(&["audit"]);
    let entry = |who: &str, what: &str, result: &str| {
        array(&log["entries"]).iter().any(|e| {
            text(&e["who"]) == who
                && text(&e["what"]) == what
                && text(&e["result"]).starts_with(result)
        })
    };
    for (who, what, result) in [
        ("token viewer", "login", "done"),
        ("token viewer", "apply", "ASH-0042"),
        ("token admin", "apply", "started"),
        ("token admin", "apply", "done"),
        ("", "login", "ASH-0046"),
    ] {
        assert!(entry(who, what, result), "{who} {what} {result}: {log:#}");
    }
    let secret = std::fs::read_to_string(&admin).unwrap();
    assert!(!log.to_string().contains(secret.trim()), "the log contains a token");
    fixture.assert_alive();
    fixture.stop();
}

#[test]
fn listeners_and_certificates_follow_the_configuration() {
    let mut fixture = Fixture::new("network-api-edits");
    install(&fixture, &papers("network-api-first"));
    fixture.configure(DISK, "");
    fixture.start();
    let token = fixture.ok(&["token", "create", "t", "--role", "viewer"]);
    fixture.secret("token", &token);
    let paths = ["token", "ca.pem"].map(|name| fixture.path(name).to_str().unwrap().to_owned());
    let port = proc::free_port().unwrap();
    let url = format!("https://127.0.0.1:{port}");
    let list = || {
        let [token, ca] = &paths;
        fixture.ashlar(&["list", "--remote", &url, "--token-file", token, "--ca", ca])
    };
    list().ends(UNREACHABLE);

    fixture.configure(&api_section(port), "");
    fixture.ashlar(&["plan"]).prints(&["change the API over the network", "safe"]);
    fixture.ok(&["apply"]);
    fixture.until("the listener opens", LIMIT, || list().code == 0);

    // Another authority: its certificate is used from the next connection after `apply` on.
    install(&fixture, &papers("network-api-second"));
    fixture.ashlar(&["plan"]).prints(&["read files of api anew", "tls_certificate", "safe"]);
    fixture.ok(&["apply"]);
    fixture.until("the new certificate is used", LIMIT, || list().code == 0);
    fixture.ashlar(&["plan"]).prints(&["no changes"]);

    // Files that cannot be used: the former ones stay, and `plan` refuses to read them.
    std::fs::write(fixture.path("api.key"), "no key").unwrap();
    fixture.ashlar(&["plan"]).ends(FAILED).prints(&["read files of api anew", "tls_key"]);
    list().ends(0);
    let other = proc::free_port().unwrap();
    fixture.configure(&api_section(other), "");
    fixture.ashlar(&["plan"]).ends(FAILED).prints(&["tls_key"]);

    fixture.configure(DISK, "");
    fixture.ok(&["apply"]);
    fixture.until("the listener closes", LIMIT, || list().code == UNREACHABLE);
    fixture.assert_alive();
    fixture.stop();
}
