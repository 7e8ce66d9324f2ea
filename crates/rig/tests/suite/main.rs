//! Integration tests of the rig against Debian's tgt, in one binary. The tests wait for their turn:
//! each uses the whole machine.
//!
//! One module of them: `cargo test -p ashlar-rig --test suite tgt::`.

mod guest;
mod tgt;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Waits until no other test runs. A test that failed does not stop the next one.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}
