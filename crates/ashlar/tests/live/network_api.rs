//! The API over TCP with TLS: tokens and roles, listeners that follow an edit, replaced
//! certificates, and the audit log.

use std::process::Command;
use std::time::Duration;

use rig::papers::{Good, Papers};
use rig::proc;

use crate::fixture::load::Load;
use crate::fixture::{CommandOutput, Fixture, array, file_disk, text};

const LIMIT: Duration = Duration::from_secs(20);

/// Exit code of a command that is refused, and of one that reaches no daemon.
const FAILED: i32 = 1;
const UNREACHABLE: i32 = 5;

const DISK: &str = "[[disk]]\nname = \"d0\"\nkind = \"memory\"\nsize = \"16MiB\"\n";

/// Certificates of a server at 127.0.0.1, signed by the authority `ca`.
pub(super) fn papers(name: &str) -> Papers {
    let papers = Papers::new(name).unwrap();
    papers.authority("ca").unwrap();
    papers.sign("ca", "server", "localhost", "subjectAltName=IP:127.0.0.1", Good::Now).unwrap();
    papers
}

/// Copies the certificates to the folder of the fixture: `ca.pem`, `api.pem` and `api.key`.
pub(super) fn install(fixture: &Fixture, papers: &Papers) {
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

/// A fixture with certificates of the clients `laptop`, which has a section, and `desktop`.
fn fixture_with_clients(name: &str) -> Fixture {
    let fixture = Fixture::new(name);
    let papers = papers(&format!("{name}-papers"));
    install(&fixture, &papers);
    for client in ["laptop", "desktop"] {
        let alternative = format!("subjectAltName=DNS:{client}.example");
        papers.sign("ca", client, client, &alternative, Good::Now).unwrap();
        for part in ["cert", "key"] {
            let from = papers.file(&format!("{client}/client-{part}.pem"));
            std::fs::copy(from, fixture.path(&format!("{client}.{part}"))).unwrap();
        }
    }
    fixture
}

/// Sections of the API for clients with certificates, and a disk.
fn sections_with_client(port: u16) -> String {
    let client = "[[api_client]]\nsubject = \"laptop\"\nrole = \"admin\"\n";
    format!("{}tls_client_ca = \"ca.pem\"\n{client}", api_section(port))
}

fn over_tls(fixture: &Fixture, url: &str, client: &str, words: &[&str]) -> CommandOutput {
    let path = |file: String| fixture.path(&file).to_str().unwrap().to_owned();
    let (certificate, key) = (path(format!("{client}.cert")), path(format!("{client}.key")));
    let ca = path("ca.pem".to_owned());
    let way = ["--remote", url, "--certificate", &certificate, "--key", &key, "--ca", &ca];
    fixture.ashlar(&words.iter().copied().chain(way).collect::<Vec<_>>())
}

#[test]
fn client_certificate_logs_in_without_a_token() {
    let mut fixture = fixture_with_clients("client-certificates");
    let port = proc::free_port().unwrap();
    fixture.configure(&sections_with_client(port), "");
    fixture.start();
    let url = format!("https://127.0.0.1:{port}");
    let remote = |client: &str, words: &[&str]| over_tls(&fixture, &url, client, words);
    fixture.until("the API is served", LIMIT, || remote("laptop", &["list"]).code == 0);
    remote("laptop", &["apply"]).ends(0).prints(&["no changes"]);
    remote("desktop", &["list"]).ends(FAILED).complains(&["ASH-0046", "`desktop`"]);
    let log = fixture.json(&["audit"]);
    let has = |who: &str, what: &str| {
        array(&log["entries"]).iter().any(|e| text(&e["who"]) == who && text(&e["what"]) == what)
    };
    assert!(has("certificate laptop", "apply"), "{log:#}");
    assert!(has("certificate desktop", "login"), "{log:#}");

    // The same by variables, with the key in the file of the certificate.
    let read = |file: &str| std::fs::read_to_string(fixture.path(file)).unwrap();
    fixture.secret("laptop.pem", &(read("laptop.cert") + &read("laptop.key")));
    let mut command = Command::new(env!("CARGO_BIN_EXE_ashlar"));
    command.arg("list").env("ASHLAR_REMOTE", &url).env_remove("ASHLAR_SOCKET");
    command.env("ASHLAR_CERTIFICATE", fixture.path("laptop.pem"));
    command.env("ASHLAR_CA", fixture.path("ca.pem")).env_remove("ASHLAR_TOKEN_FILE");
    let done = command.output().unwrap();
    let output = String::from_utf8_lossy(&done.stdout);
    assert!(done.status.success() && output.contains("d0"), "{done:?}");
    fixture.stop();
}

const FILE_SERVER: &str = "[[geom]]\nclass = \"fs\"\nname = \"main\"\n\
    members = [\"ssd\", \"near\", \"far\"]\ncreate = true\nlinux = [\"127.0.0.1:0\"]\n\
    dump_at = \"never\"\n";

#[test]
fn verbs_of_all_kinds_reach_a_remote_daemon_over_tls() {
    let mut fixture = fixture_with_clients("remote-verbs");
    let port = proc::free_port().unwrap();
    let mut sections = sections_with_client(port);
    for (name, mib) in [("ssd", 48), ("near", 128), ("far", 128)] {
        let file = format!("{name}.img");
        fixture.image(&file, mib << 20);
        sections += &file_disk(name, &file);
    }
    fixture.configure(&(sections + FILE_SERVER), "0 = \"d0\"");
    fixture.start();
    let url = format!("https://127.0.0.1:{port}");
    let remote = |words: &[&str]| over_tls(&fixture, &url, "laptop", words);
    fixture.until("the API is served", LIMIT, || remote(&["list"]).code == 0);
    let load = Load::start(&fixture.url(0), 1 << 20);
    remote(&["top", "-b", "--interval", "100ms"]).ends(0).prints(&["d0"]);
    remote(&["trace", "--seconds", "0"]).ends(0).prints(&["took 10.0ms or longer"]);
    remote(&["journal"]).ends(0);
    remote(&["export"]).ends(0).prints(&["[[geom]]", "name = \"main\""]);
    remote(&["fs", "dump", "main", "--wait"]).ends(0);
    remote(&["fs", "dumps", "main"]).ends(0);
    remote(&["doctor", "version"]).ends(0).prints(&["both are"]);
    remote(&["doctor", "fds"]).complains(&["Run `ashlar doctor fds` on that machine."]);
    // A host that logs in again has another session.
    let sessions = remote(&["sessions", "--json"]).ends(0).json();
    let ended = &array(&sessions["sessions"])[0]["session"]["id"];
    remote(&["sessions", "end", &ended.to_string(), "--yes"]).ends(0);
    fixture.until("the session has ended", LIMIT, || {
        let sessions = fixture.json(&["sessions"]);
        array(&sessions["sessions"]).iter().all(|s| s["session"]["id"] != *ended)
    });
    load.wait_for_rounds();
    load.finish();
    fixture.stop();
}

#[test]
fn key_of_the_api_may_be_a_credential() {
    let fixture = Fixture::new("api-credential");
    install(&fixture, &papers("api-credential-papers"));
    let (folder, port) = (fixture.path("credentials"), proc::free_port().unwrap());
    std::fs::create_dir(&folder).unwrap();
    std::fs::rename(fixture.path("api.key"), folder.join("api.key")).unwrap();
    let section = api_section(port).replace("\"api.key\"", "\"credential:api.key\"");
    fixture.configure(&section, "");
    let mut serve = fixture.command(&["serve"]);
    serve.env("CREDENTIALS_DIRECTORY", &folder);
    let log = fixture.path("log");
    let mut daemon = proc::Proc::start("ashlar serve", &mut serve, &log).unwrap();
    let is_up = || matches!(fixture.ashlar(&["status"]).code, 0 | 3);
    daemon.wait_ready(LIMIT, is_up).unwrap();
    let token = fixture.ok(&["token", "create", "t", "--role", "viewer"]);
    fixture.secret("token", &token);
    let [token, ca] = ["token", "ca.pem"].map(|f| fixture.path(f).to_str().unwrap().to_owned());
    let url = format!("https://127.0.0.1:{port}");
    let way = ["--remote", &url, "--token-file", &token, "--ca", &ca];
    let list: Vec<&str> = ["list"].into_iter().chain(way).collect();
    fixture.until("the API is served", LIMIT, || fixture.ashlar(&list).code == 0);
    fixture.ashlar(&["plan"]).ends(0).prints(&["no changes"]);
    let text = fixture.ok(&["export"]);
    assert!(text.contains("tls_key = \"credential:api.key\""), "{text}");
    assert!(daemon.terminate(LIMIT).unwrap(), "{}", daemon.tail());
}
