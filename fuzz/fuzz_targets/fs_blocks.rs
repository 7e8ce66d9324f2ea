#![no_main]

#[path = "../../crates/fileserver/tests/sim/disk.rs"]
mod disk;
#[path = "../../crates/fileserver/tests/fuzz/harness.rs"]
mod harness;
#[path = "../../crates/fileserver/tests/image/vectors.rs"]
mod vectors;

libfuzzer_sys::fuzz_target!(|data: &[u8]| harness::blocks(data));
