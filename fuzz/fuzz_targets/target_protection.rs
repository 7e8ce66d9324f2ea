#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| target::fuzzing::fuzz_protection(data));
