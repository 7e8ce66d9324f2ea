#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| wire::fuzzing::fuzz_nbd_client(data));
