//! What the probe tries to reach or to use up.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};

use crate::bindings::setu::connector::log;
use crate::bindings::setu::connector::net::{Connection, TlsOptions, Verification};
use crate::bindings::setu::connector::types::{Error, ErrorKind};
use crate::{Config, error};

/// Does what the configuration says; what was found is the message of an error.
pub(crate) fn act(config: &Config) -> Result<(), Error> {
    let saw = match config.behaviour() {
        "fine" => return Ok(()),
        "read file" => told(fs::read_to_string(config.text("path"))),
        "list" => told(list(config.text("path"))),
        "write file" => told(fs::write(config.text("path"), "overwritten")),
        "forbidden writes" => forbidden_writes(config.text("out")),
        "write out" => told(fs::write(format!("{}/new.txt", config.text("out")), "new")),
        "try" => tries(config),
        "std" => told(talk_std(config.text("target"))),
        "std ungranted" => told(talk_std(config.text("ungranted"))),
        "retry" => retry(config.text("target")),
        "net" => return talk_net(config.text("target"), None),
        "net ungranted" => return talk_net(config.text("ungranted"), None),
        "tls" => return talk_net(config.text("target"), Some(config)),
        "starttls" => return start_tls_as_postgres(config),
        "tell" => format!("{}, {}", config.text("password"), config.text("target")),
        "log secret" => {
            let field = ("field".to_owned(), config.text("password").to_owned());
            log::log(log::Level::Warn, config.text("password"), &[field]);
            "logged".to_owned()
        }
        "panic secret" => panic!("with {}", config.text("password")),
        "udp" => told(UdpSocket::bind("127.0.0.1:0").map(drop)),
        "listen" => told(TcpListener::bind("127.0.0.1:0").map(drop)),
        "env" => format!("{:?}", std::env::vars().collect::<Vec<_>>()),
        "args" => format!("{:?}", std::env::args().collect::<Vec<_>>()),
        "panic" => panic!("as told"),
        "abort" => std::process::abort(),
        "exit" => std::process::exit(3),
        "index" => [1, 2][config.rows() as usize].to_string(),
        "loop" => spin(),
        "sleep" => {
            std::thread::sleep(std::time::Duration::from_secs(3600));
            String::new()
        }
        "recurse" => recurse(config.rows() | 1 << 60).to_string(),
        "memory" => memory().to_string(),
        "handles" => handles(config.text("path")),
        "stderr" => {
            for _ in 0..100_000 {
                eprintln!("{}", "flood ".repeat(20));
            }
            panic!("after the flood")
        }
        "log" => {
            for i in 0..50_000 {
                log::log(log::Level::Debug, "line", &[("i".to_owned(), i.to_string())]);
            }
            "logged".to_owned()
        }
        other => format!("no behaviour `{other}`"),
    };
    Err(error(ErrorKind::Unsupported, &saw))
}

fn told<T: std::fmt::Debug>(result: std::io::Result<T>) -> String {
    match result {
        Ok(value) => format!("ok {value:?}"),
        Err(error) => format!("err {:?} {error}", error.kind()),
    }
}

unsafe extern "C" {
    /// That of the C library: the standard library's is not stable here.
    fn symlink(target: *const std::ffi::c_char, link: *const std::ffi::c_char) -> i32;
}

/// What no grant allows, and at the end something that this one does.
fn forbidden_writes(out: &str) -> String {
    let at = |name: &str| format!("{out}/{name}");
    let link = std::ffi::CString::new(at("link")).unwrap_or_default();
    // SAFETY: both are texts that end in a zero and live through the call.
    let linked = unsafe { symlink(c"..".as_ptr(), link.as_ptr()) } == 0;
    let worked = [
        ("symlink", linked),
        ("file", fs::write(at("a.csv"), "a").is_ok()),
        ("hard link", fs::hard_link(at("a.csv"), at("b.csv")).is_ok()),
        ("lock", fs::write(at("setu.lock"), "a").is_ok()),
        ("code", fs::write(at("x.wasm"), "a").is_ok()),
        ("code through a link", fs::write(at("link.csv"), "a").is_ok()),
        ("rename to code", fs::rename(at("a.csv"), at("x.cwasm")).is_ok()),
        ("remove code", fs::remove_file(at("there.wasm")).is_ok()),
        ("rename code", fs::rename(at("there.wasm"), at("c.csv")).is_ok()),
        ("rename", fs::rename(at("a.csv"), at("d.csv")).is_ok()),
    ];
    let worked = worked.into_iter().filter(|(_, worked)| *worked);
    format!("{:?}", worked.map(|(what, _)| what).collect::<Vec<_>>())
}

fn list(path: &str) -> std::io::Result<Vec<String>> {
    let mut names = fs::read_dir(path)?
        .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
        .collect::<std::io::Result<Vec<_>>>()?;
    names.sort();
    Ok(names)
}

/// Each path by every way in; only what worked is told.
fn tries(config: &Config) -> String {
    let mut worked = Vec::new();
    for path in config.0["tries"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|v| v.as_str())
    {
        let mut attempt = |what: &str, ok: bool| {
            if ok {
                worked.push(format!("{what} {path}"));
            }
        };
        attempt("read", fs::read(path).is_ok());
        attempt("stat", fs::metadata(path).is_ok());
        attempt("lstat", fs::symlink_metadata(path).is_ok());
        attempt("list", list(path).is_ok_and(|names| !names.is_empty()));
        attempt("create", fs::File::create_new(path).is_ok());
        attempt("append", fs::OpenOptions::new().append(true).open(path).is_ok());
        attempt("write", fs::OpenOptions::new().write(true).open(path).is_ok());
        attempt("mkdir", fs::create_dir(path).is_ok());
        attempt("rename", fs::rename(path, format!("{path}.moved")).is_ok());
        attempt("link", fs::hard_link(path, format!("{path}.linked")).is_ok());
        attempt("remove", fs::remove_file(path).is_ok());
    }
    format!("{worked:?}")
}

fn talk_std(target: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(target)?;
    stream.write_all(b"ping")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

/// Tries twice to reach what is not granted, and does not mind.
pub(crate) fn knock(config: &Config) {
    let (host, port) = split(config.text("ungranted"));
    for _ in 0..2 {
        drop(Connection::connect(host, port));
    }
}

/// Tries without end to reach a server that refuses.
fn retry(target: &str) -> String {
    let (host, port) = split(target);
    while Connection::connect(host, port).is_err() {}
    "connected".to_owned()
}

/// Asks for TLS as a client of Postgres does, and then speaks in clear text, as one would that makes do without.
fn start_tls_as_postgres(config: &Config) -> Result<(), Error> {
    let (host, port) = split(config.text("target"));
    let connection = Connection::connect(host, port)?;
    connection.write(&[0, 0, 0, 8, 0x04, 0xd2, 0x16, 0x2f])?;
    let answer = connection.read(16)?;
    let then = connection.write(b"data").err().map(|error| error.message);
    Err(error(ErrorKind::Unsupported, &format!("{answer:?} {then:?}")))
}

fn split(target: &str) -> (&str, u16) {
    let (host, port) = target.rsplit_once(':').unwrap_or((target, "0"));
    (host, port.parse().unwrap_or(0))
}

fn talk_net(target: &str, tls: Option<&Config>) -> Result<(), Error> {
    let (host, port) = split(target);
    let connection = Connection::connect(host, port)?;
    if let Some(config) = tls {
        let verification = match config.text("ungranted") {
            "none" => Verification::None,
            "certificate only" => Verification::CertificateOnly,
            _ => Verification::Full,
        };
        connection.start_tls(&TlsOptions {
            server_name: host.to_owned(),
            verification,
            ca_pem: Some(config.text("ca").to_owned()).filter(|ca| !ca.is_empty()),
        })?;
    }
    connection.write(b"ping")?;
    let mut answer = Vec::new();
    loop {
        let bytes = connection.read(65_536)?;
        if bytes.is_empty() {
            let answer = String::from_utf8_lossy(&answer).into_owned();
            return Err(error(ErrorKind::Unsupported, &format!("ok {answer:?}")));
        }
        answer.extend(bytes);
    }
}

fn spin() -> ! {
    let mut i = 0_u64;
    loop {
        i = std::hint::black_box(i.wrapping_add(1));
    }
}

#[allow(unconditional_recursion)]
fn recurse(n: u64) -> u64 {
    let frame = std::hint::black_box([n; 64]);
    recurse(n - 1) + frame[(n % 64) as usize]
}

fn memory() -> usize {
    let mut kept = Vec::new();
    loop {
        kept.push(vec![1_u8; 16 << 20]);
        if kept.len() > 1_000 {
            return kept.len();
        }
    }
}

fn handles(path: &str) -> String {
    let mut kept = Vec::new();
    loop {
        match fs::File::open(path) {
            Ok(file) => kept.push(file),
            Err(error) => return format!("{} files, then {error}", kept.len()),
        }
        if kept.len() > 100_000 {
            return "no end".to_owned();
        }
    }
}
