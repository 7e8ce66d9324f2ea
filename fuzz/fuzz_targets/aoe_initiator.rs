#![no_main]

#[path = "../../crates/cam/tests/suite/fuzz/harness.rs"]
mod harness;
#[path = "../../crates/cam/tests/suite/world/mod.rs"]
mod world;

libfuzzer_sys::fuzz_target!(|data: &[u8]| harness::aoe_initiator(data));
