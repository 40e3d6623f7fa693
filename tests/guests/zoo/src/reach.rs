//! What lies beyond the sandbox: files, the environment, the clock, the network.

use std::fs;
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::time::{Duration, Instant, SystemTime};

use crate::bindings::setu::connector::net::Connection;
use crate::{Config, Misdeed, Named};

/// `net-` goes through the contract's own `net`, `socket-` through WASI's sockets.
pub(crate) const ALL: &[Named] = &[
    ("read-passwd", Misdeed::Tell(read_passwd)),
    ("read-link", Misdeed::Tell(read_link)),
    ("environment", Misdeed::Tell(environment)),
    ("clock", Misdeed::Tell(clock)),
    ("net-other-host", Misdeed::Tell(|_| by_net("other.internal:5432"))),
    ("net-other-port", Misdeed::Tell(|config| by_net(server(config)))),
    ("net-other-address", Misdeed::Tell(|_| by_net("10.1.2.3:5432"))),
    ("net-metadata", Misdeed::Tell(|_| by_net("169.254.169.254:80"))),
    (
        "net-loopback-name",
        Misdeed::Tell(|config| by_net(&loopback(config))),
    ),
    ("net-many-targets", Misdeed::Tell(many_targets)),
    (
        "socket-other-host",
        Misdeed::Tell(|_| by_socket("other.internal:5432")),
    ),
    (
        "socket-other-port",
        Misdeed::Tell(|config| by_socket(server(config))),
    ),
    (
        "socket-other-address",
        Misdeed::Tell(|_| by_socket("10.1.2.3:5432")),
    ),
    (
        "socket-metadata",
        Misdeed::Tell(|_| by_socket("169.254.169.254:80")),
    ),
    (
        "socket-loopback-name",
        Misdeed::Tell(|config| by_socket(&loopback(config))),
    ),
    ("listen", Misdeed::Tell(listen)),
    ("udp", Misdeed::Tell(udp)),
];

/// Each path, and what reading it gave.
fn read(paths: &[String]) -> String {
    let told = paths.iter().map(|path| match fs::read_to_string(path) {
        Ok(text) => format!("{path}: read {text:?}"),
        Err(error) => format!("{path}: refused ({:?})", error.kind()),
    });
    told.collect::<Vec<_>>().join("; ")
}

fn read_passwd(config: &Config) -> String {
    let folder = config.text("folder");
    let up = "../".repeat(20);
    read(&[
        format!("{folder}/granted.txt"),
        "/etc/passwd".into(),
        format!("{folder}/{up}etc/passwd"),
        format!("{up}etc/passwd"),
        "/proc/self/environ".into(),
    ])
}

fn read_link(config: &Config) -> String {
    let folder = config.text("folder");
    let names = [
        "granted.txt",
        "link-within",
        "link",
        "absolute-link",
        "linked-folder/secret.txt",
    ];
    read(&names.map(|name| format!("{folder}/{name}")))
}

fn environment(_: &Config) -> String {
    let variables: Vec<_> = std::env::vars().collect();
    let arguments: Vec<_> = std::env::args().collect();
    format!("variables {variables:?}, arguments {arguments:?}")
}

/// The time of day, and the smallest step that the other clock makes.
fn clock(_: &Config) -> String {
    let now = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
    let start = Instant::now();
    let step = std::iter::repeat_with(|| start.elapsed()).find(|step| *step > Duration::ZERO);
    format!(
        "{} s, steps of {} ns",
        now.as_secs(),
        step.unwrap_or_default().as_nanos()
    )
}

/// Where the test listens, on a port that is not granted.
fn server(config: &Config) -> &str {
    config.text("server")
}

fn loopback(config: &Config) -> String {
    server(config).replace("127.0.0.1", "localhost")
}

/// A connector that does not take no for an answer.
const TRIES: usize = 5;

fn by_net(target: &str) -> String {
    let (host, port) = target.rsplit_once(':').unwrap_or((target, "0"));
    persist(target, || {
        let connected = Connection::connect(host, port.parse().unwrap_or(0));
        connected.map(drop).map_err(|error| error.message)
    })
}

fn by_socket(target: &str) -> String {
    persist(target, || {
        let connected = TcpStream::connect(target);
        connected.map(drop).map_err(|error| format!("{:?}", error.kind()))
    })
}

fn persist(target: &str, connect: impl Fn() -> Result<(), String>) -> String {
    let outcomes = (0..TRIES).map(|_| connect());
    match outcomes.reduce(Result::or) {
        Some(Err(refusal)) => refusal,
        _ => format!("connected to {target}"),
    }
}

fn many_targets(_: &Config) -> String {
    let reached = (1..=1_000).filter(|port| Connection::connect("other.internal", *port).is_ok());
    format!("reached {} of 1000 ports", reached.count())
}

const LOCAL: [&str; 3] = ["0.0.0.0:0", "127.0.0.1:0", "[::]:0"];

fn listen(_: &Config) -> String {
    let listens = LOCAL.iter().filter(|address| TcpListener::bind(address).is_ok());
    format!("listens on {:?}", listens.collect::<Vec<_>>())
}

fn udp(config: &Config) -> String {
    let speaks = |address: &&&str| {
        let socket = UdpSocket::bind(address);
        socket.is_ok_and(|socket| socket.send_to(b"hello", server(config)).is_ok())
    };
    format!("sends from {:?}", LOCAL.iter().filter(speaks).collect::<Vec<_>>())
}
