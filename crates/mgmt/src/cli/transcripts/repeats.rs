//! Commands that are repeated because their answer was lost.

use super::daemon::Daemon;
use crate::api::Exit;

/// C3 of service/mod.rs.
#[test]
fn repeated_undo_of_one_generation_is_refused() {
    let daemon = Daemon::start();
    let disk = |name: &str| format!("[[disk]]\nname = \"{name}\"\nkind = \"memory\"\n");
    daemon.write("a.toml", &disk("m0"));
    daemon.expect_exit("apply @a.toml", Exit::Done);
    daemon.write("a.toml", &format!("{}{}", disk("m0"), disk("m1")));
    let done = daemon.expect_exit("apply @a.toml", Exit::Done);
    assert!(done.ends_with("generation 2\n"), "{done}");
    let undo = "undo --if-generation 2 --yes-destroy m1";
    let done = daemon.expect_exit(undo, Exit::Done);
    assert!(done.contains("generation 3"), "{done}");
    let again = daemon.expect_exit(undo, Exit::Failed);
    assert!(again.contains("ASH-0031"), "{again}");
    assert_eq!(daemon.plant.config().disk.len(), 1, "the first undo holds");
}

#[test]
fn change_with_a_key_is_carried_out_once() {
    let daemon = Daemon::start();
    let create = "token create ci --role viewer --idempotency-key 7f3a";
    let token = daemon.expect_exit(create, Exit::Done);
    assert_eq!(daemon.expect_exit(create, Exit::Done), token, "the equal answer");
    let other = daemon.expect_exit("token revoke ci --idempotency-key 7f3a", Exit::Failed);
    assert!(other.contains("another request of the last hour had this key"), "{other}");
    let listed = daemon.expect_exit("token list", Exit::Done);
    assert_eq!(listed.lines().count(), 2, "a head and one token: {listed}");
    let plain = daemon.expect_exit("token create ci --role viewer", Exit::Failed);
    assert!(plain.contains("ASH-0021"), "{plain}");
    // A change that failed may be repeated with its key.
    let revoke = "token revoke none --idempotency-key 8";
    daemon.expect_exit(revoke, Exit::Failed);
    let refused = daemon.expect_exit(revoke, Exit::Failed);
    assert!(refused.contains("ASH-0020"), "{refused}");
    let wrong = daemon.expect_exit("token revoke ci --idempotency-key=", Exit::Usage);
    assert!(wrong.contains("1 to 128"), "{wrong}");
    let changes = daemon.expect_exit("audit", Exit::Done);
    let is_done = |line: &&str| line.contains("token.create") && line.contains("done: token ci");
    assert_eq!(changes.lines().filter(is_done).count(), 1, "{changes}");
}
