#![no_main]

#[path = "../../crates/fileserver/tests/suite/sim/disk.rs"]
mod disk;
#[path = "../../crates/fileserver/tests/suite/fuzz/harness.rs"]
mod harness;
#[path = "../../crates/fileserver/tests/suite/image/vectors.rs"]
mod vectors;

libfuzzer_sys::fuzz_target!(|data: &[u8]| harness::connection(data));
