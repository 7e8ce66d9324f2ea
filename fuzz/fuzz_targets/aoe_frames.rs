#![no_main]

#[path = "../../crates/drivers/tests/suite/fuzz/harness.rs"]
mod harness;
#[path = "../../crates/drivers/tests/suite/common/disk.rs"]
mod disk;
#[path = "../../crates/drivers/tests/suite/common/plant.rs"]
mod plant;

libfuzzer_sys::fuzz_target!(|data: &[u8]| harness::aoe_frames(data));
