//! The plugin is a component and no library, so the modules that it needs are compiled into the target.

#![no_main]
#![allow(dead_code, reason = "the plugin uses the rest")]

#[path = "../../../plugins/csv/src/dialect.rs"]
mod dialect;
#[path = "../../../plugins/csv/src/encode.rs"]
mod encode;
#[path = "../../../plugins/csv/src/fuzzing.rs"]
mod fuzzing;
#[path = "../../../plugins/csv/src/records.rs"]
mod records;

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzzing::records(data));
