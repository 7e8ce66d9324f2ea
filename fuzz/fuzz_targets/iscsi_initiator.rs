#![no_main]

#[path = "../../crates/cam/tests/suite/fuzz/iscsi.rs"]
mod iscsi;
#[path = "../../crates/cam/tests/suite/iscsi/peer.rs"]
mod peer;
#[path = "../../crates/cam/tests/suite/iscsi/reply.rs"]
mod reply;
#[path = "../../crates/cam/tests/suite/world/mod.rs"]
mod world;

libfuzzer_sys::fuzz_target!(|data: &[u8]| iscsi::iscsi_initiator(data));
