#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| classes::fuzzing::fuzz_raid(data));
