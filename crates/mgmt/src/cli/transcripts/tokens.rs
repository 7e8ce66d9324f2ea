//! Tokens and the audit log on the command line.

use super::daemon::Daemon;
use crate::api::Exit;

#[test]
fn tokens_are_created_listed_and_revoked() {
    let daemon = Daemon::start();
    assert_eq!(daemon.expect_exit("token list", Exit::Done), "no tokens\n");
    let text = daemon.expect_exit("token create ci --role operator --target iqn.a:t", Exit::Done);
    assert!(text.starts_with("ashlar_") && text.ends_with('\n'), "{text}");
    let listed = daemon.expect_exit("token list", Exit::Done);
    assert!(listed.contains("ci    operator  iqn.a:t  20"), "{listed}");
    let again = daemon.expect_exit("token create ci --role viewer", Exit::Failed);
    assert!(again.contains("ashlar token revoke ci"), "{again}");
    daemon.expect_exit("token create x --role boss", Exit::Usage);
    assert_eq!(daemon.expect_exit("token revoke ci", Exit::Done), "no tokens\n");
    assert!(daemon.expect_exit("token revoke ci", Exit::Failed).contains("ASH-0020"));
}

#[test]
fn audit_lists_changes_with_generations_and_without_documents() {
    let daemon = Daemon::start();
    daemon.write("a.toml", "[[disk]]\nname = \"m0\"\nkind = \"memory\"\n");
    assert_eq!(daemon.expect_exit("audit", Exit::Done), "no entries\n");
    daemon.expect_exit("apply @a.toml", Exit::Done);
    daemon.expect_exit("status", Exit::Done);
    let listed = daemon.expect_exit("audit", Exit::Done);
    let lines: Vec<&str> = listed.lines().collect();
    assert_eq!(lines.len(), 3, "a head, a beginning and an end: {listed}");
    assert!(lines[1].contains("uid ") && lines[1].ends_with("started"), "{listed}");
    let done = "apply       0      1  done: create disk m0 (memory): in the configuration";
    assert!(lines[2].contains(done), "{listed}");
    assert!(!daemon.expect_exit("audit --json", Exit::Done).contains("kind ="));
}

#[test]
fn remote_without_a_token_is_refused_before_it_connects() {
    let daemon = Daemon::start();
    let refused = daemon.expect_exit("status --remote https://192.0.2.1", Exit::Usage);
    assert!(refused.contains("--token-file FILE"), "{refused}");
    let refused = daemon.expect_exit("serve --remote https://192.0.2.1", Exit::Usage);
    assert!(refused.contains("starts a local daemon"), "{refused}");
}

#[test]
fn listeners_are_in_status_and_list() {
    let daemon = Daemon::start();
    assert!(!daemon.expect_exit("status", Exit::Done).contains("listen:"), "there are none");
    daemon.write("a.toml", "[daemon]\nmetrics_listen = \"0.0.0.0:9464\"\n");
    daemon.expect_exit("apply @a.toml", Exit::Done);
    let status = daemon.expect_exit("status", Exit::Done);
    let line = "\nlisten: metrics at 0.0.0.0:9464, no TLS, admits every host\n";
    assert!(status.contains(line), "{status}");
    let warns = ["no token is required beyond loopback", "metrics_token", "doctor listeners"];
    assert!(warns.iter().all(|words| status.contains(words)), "{status}");
    assert_eq!(
        daemon.expect_exit("list listeners", Exit::Done),
        "listener  address       TLS  certificate  state  admits\n\
         metrics   0.0.0.0:9464  no   -            open   every host\n"
    );
}
