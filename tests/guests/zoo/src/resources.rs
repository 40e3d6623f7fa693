//! Ends of an instance, and using up what there is.

use std::fs::File;
use std::io::Write;
use std::time::Duration;

use crate::bindings::exports::setu::connector::source::Chunk;
use crate::bindings::setu::connector::log;
use crate::bindings::setu::connector::types::Values;
use crate::{Config, Misdeed, Named};

pub(crate) const ALL: &[Named] = &[
    ("panic", Misdeed::End(panic)),
    ("abort", Misdeed::End(abort)),
    ("unreachable", Misdeed::End(unreachable)),
    ("exit", Misdeed::End(exit)),
    ("loop", Misdeed::End(spin)),
    ("sleep", Misdeed::End(sleep)),
    ("recurse", Misdeed::End(recurse)),
    ("eat-memory", Misdeed::End(eat_memory)),
    ("open-files", Misdeed::End(open_files)),
    ("open-and-close-files", Misdeed::Do(open_and_close_files)),
    ("giant-list", Misdeed::Spoil(giant_list)),
    ("giant-error", Misdeed::Tell(giant_error)),
    ("giant-log-line", Misdeed::Do(giant_log_line)),
    ("flood-stdout", Misdeed::Do(flood_stdout)),
    ("flood-stderr", Misdeed::Do(flood_stderr)),
    ("flood-log", Misdeed::Do(flood_log)),
];

fn panic(_: &Config) {
    panic!("the lion is loose");
}

fn abort(_: &Config) {
    std::process::abort();
}

fn unreachable(_: &Config) {
    #[cfg(target_family = "wasm")]
    core::arch::wasm32::unreachable();
}

fn exit(_: &Config) {
    std::process::exit(0);
}

pub(crate) fn spin(_: &Config) {
    let mut i = 0_u64;
    loop {
        i = std::hint::black_box(i.wrapping_add(1));
    }
}

fn sleep(_: &Config) {
    std::thread::sleep(Duration::from_secs(3600));
}

fn recurse(_: &Config) {
    #[allow(unconditional_recursion)]
    fn deeper(n: u64) -> u64 {
        let frame = std::hint::black_box([n; 64]);
        deeper(n - 1) + frame[(n % 64) as usize]
    }
    deeper(u64::MAX);
}

fn eat_memory(_: &Config) {
    let mut eaten = Vec::new();
    loop {
        eaten.push(std::hint::black_box(vec![1_u8; 4 << 20]));
    }
}

/// A hundred times more than any instance may hold.
const FILES: usize = 200_000;

fn open(config: &Config) -> File {
    let path = format!("{}/granted.txt", config.text("folder"));
    File::open(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn open_files(config: &Config) {
    let open: Vec<_> = (0..FILES).map(|_| open(config)).collect();
    panic!("{} files are open", open.len());
}

fn open_and_close_files(config: &Config) {
    (0..5_000).for_each(|_| drop(open(config)));
}

fn giant_list(chunk: &mut Chunk, _: u32) {
    chunk.batch.columns[1].values = Values::Bits(vec![0; 300 << 20]);
}

/// 10 MiB that would also clear the terminal and write a line of their own.
fn giant_error(_: &Config) -> String {
    "it failed \x1b[2J\nerror: all is well ".repeat(300_000)
}

fn giant_log_line(_: &Config) {
    let field = ("field".to_owned(), "y".repeat(100 << 20));
    log::log(log::Level::Warn, &"x".repeat(100 << 20), &[field]);
}

const LINES: usize = 50_000;
const LINE: &str = "\x1b[2Ja flood of lines that nobody wants to read";

fn flood_stdout(_: &Config) {
    flood(std::io::stdout());
}

fn flood_stderr(_: &Config) {
    flood(std::io::stderr());
}

fn flood(mut out: impl Write) {
    for _ in 0..LINES {
        writeln!(out, "{LINE}").unwrap_or_else(|error| panic!("the flood was stopped: {error}"));
    }
}

fn flood_log(_: &Config) {
    for _ in 0..LINES {
        log::log(log::Level::Warn, LINE, &[]);
    }
}
