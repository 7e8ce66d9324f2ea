//! Commands that are repeated because their answer was lost.

use super::daemon::Daemon;
use crate::api::Exit;

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
