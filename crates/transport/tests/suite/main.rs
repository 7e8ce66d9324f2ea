//! Integration tests of the connection framework, in one binary.
//!
//! One module of them: `cargo test -p ashlar-transport --test suite echo::`.

mod client;
mod echo;
mod faults;
mod tls;

/// `echo` is the example of a short protocol in CONTRIBUTING.
#[test]
fn whole_protocol_has_fewer_than_150_lines() {
    let lines = include_str!("echo.rs").lines().count();
    assert!(lines < 150, "{lines}");
}
