#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| fileserver::fuzzing::fuzz_config(data));
