#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| setu::fuzzing::manifest(data));
