//! What lies outside of the sandbox.

use std::io::ErrorKind;
use std::net::{TcpListener, UdpSocket};
use std::os::unix::fs::symlink;
use std::time::SystemTime;

use super::*;

#[test]
fn files_outside_the_grant_are_not_read() {
    for (misdeed, read, refused) in [
        ("read-passwd", &["granted.txt"][..], 4),
        ("read-link", &["granted.txt", "link-within"], 3),
    ] {
        let setu = source(misdeed, "", "");
        setu.write("secret.txt", "keep out");
        for (target, link) in [
            ("granted.txt", "link-within"),
            ("../secret.txt", "link"),
            (&*setu.path("secret.txt").to_string_lossy(), "absolute-link"),
            ("..", "linked-folder"),
        ] {
            symlink(target, setu.path("data").join(link)).expect("a link");
        }
        let visit = Visit::new(&setu, misdeed, "--mode staged");
        let read: Vec<_> = read
            .iter()
            .map(|name| format!("{name}: read \"granted\""))
            .collect();
        let words: Vec<_> = read.iter().map(String::as_str).collect();
        visit.assert_ended(&words);
        visit
            .outcome
            .assert_hides(&["root:", "keep out", "SETU_", "HOME="]);
        let told = only_error(&visit.outcome);
        assert_eq!(told.matches(": read ").count(), words.len(), "{told}");
        assert_eq!(told.matches(": refused (").count(), refused, "{told}");
    }
}

#[test]
fn the_environment_is_empty() {
    let mut setu = source("environment", "", "");
    setu.set("ZOO_KEY", "sesame");
    let visit = Visit::new(&setu, "environment", "--mode staged");
    visit.assert_ended(&["variables [], arguments []"]);
    visit.outcome.assert_hides(&["ZOO_KEY", "sesame"]);
}

/// There is no other clock than the real one, at its full resolution; docs/security.md says so. A time zone is not to
/// be seen, nor anything else of the machine.
#[test]
fn the_clock_is_the_real_one() {
    let setu = source("clock", "", "");
    let visit = Visit::new(&setu, "clock", "--mode staged");
    visit.assert_ended(&["call source.reader.next: ", " s, steps of "]);
    let told = only_error(&visit.outcome);
    let told = told.split("source.reader.next: ").nth(1).unwrap_or_default();
    let numbers: Vec<u64> = told.split(' ').filter_map(|word| word.parse().ok()).collect();
    let [seconds, step] = numbers[..] else {
        panic!("two numbers, not {told}");
    };
    let now = SystemTime::UNIX_EPOCH
        .elapsed()
        .expect("a time after 1970")
        .as_secs();
    assert!(now.abs_diff(seconds) < 600, "{seconds} at {now}");
    assert!((1..10_000_000).contains(&step), "{step}");
}

/// Grants that cover none of what the zoo tries, though some come near: another name, another port, and a network that
/// holds the metadata service's address.
const NEAR: &str = "grant: { network: [\"db.internal:5432\", \"127.0.0.1:1\", \"0.0.0.0/0:80\"] }";

/// A port of this machine on which nothing may arrive.
struct Quiet(TcpListener, UdpSocket);

impl Quiet {
    fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let socket = UdpSocket::bind(listener.local_addr().expect("its address")).expect("the same port");
        listener.set_nonblocking(true).expect("a setting");
        socket.set_nonblocking(true).expect("a setting");
        Quiet(listener, socket)
    }

    fn port(&self) -> u16 {
        self.0.local_addr().expect("its address").port()
    }

    #[track_caller]
    fn assert_quiet(&self) {
        let accepted = self.0.accept().map_err(|error| error.kind());
        assert_eq!(accepted.err(), Some(ErrorKind::WouldBlock), "somebody connected");
        let received = self.1.recv(&mut [0; 16]).map_err(|error| error.kind());
        assert_eq!(received, Err(ErrorKind::WouldBlock), "somebody sent something");
    }
}

#[test]
fn what_is_not_granted_is_not_reached_and_the_line_to_add_is_told_once() {
    let quiet = Quiet::new();
    let port = quiet.port();
    let targets = [
        ("other-host", "other.internal:5432"),
        ("other-port", &*format!("127.0.0.1:{port}")),
        ("other-address", "10.1.2.3:5432"),
        ("metadata", "169.254.169.254:80"),
        ("loopback-name", &format!("localhost:{port}")),
    ];
    for (misdeed, target) in targets {
        for way in ["net", "socket"] {
            let misdeed = format!("{way}-{misdeed}");
            // A socket looks a name up before it has a port.
            let is_address = target.starts_with(|c: char| c.is_ascii_digit());
            let host = target.split(':').next().unwrap_or_default();
            let endpoint = match way == "net" || is_address {
                true => target.to_owned(),
                false => format!("{host}:PORT"),
            };
            let setu = source(&misdeed, &format!("server: \"127.0.0.1:{port}\""), NEAR);
            let visit = Visit::new(&setu, &misdeed, "--mode staged");
            let line = format!("add `grant: {{ network: [\"{endpoint}\"] }}` under `source:`");
            visit.assert_ended(&[&format!("the sandbox refused {endpoint}"), &line]);
            assert_eq!(visit.stream(&misdeed)["denials"], 5, "{}", visit.outcome);
            assert_eq!(visit.stream("honest")["denials"], 0, "{}", visit.outcome);
            let warnings = visit.outcome.stderr.lines().filter(|line| line.contains("WARN"));
            let warnings: Vec<_> = warnings.collect();
            assert_eq!(warnings.len(), 1, "{}", visit.outcome);
            assert!(warnings[0].contains(&line), "{}", visit.outcome);
            quiet.assert_quiet();
        }
    }
}

#[test]
fn whoever_tries_many_targets_is_counted_and_does_not_fill_the_log() {
    let setu = source("net-many-targets", "", NEAR);
    let visit = Visit::new(&setu, "net-many-targets", "--mode staged");
    visit.assert_ended_in_many_lines(&["reached 0 of 1000 ports"]);
    assert_eq!(visit.stream("net-many-targets")["denials"], 1_000);
    assert_eq!(visit.outcome.stderr.matches("WARN").count(), 100);
}

/// Not even on an address that is granted for connections.
#[test]
fn nobody_listens_or_speaks_udp() {
    let quiet = Quiet::new();
    let port = quiet.port();
    let address = format!("127.0.0.1:{port}");
    let granted = format!("grant: {{ network: [\"{address}\", \"0.0.0.0/0:{port}\", \"[::]/0:{port}\"] }}");
    for (misdeed, words) in [("listen", "listens on []"), ("udp", "sends from []")] {
        let setu = source(misdeed, &format!("server: \"{address}\""), &granted);
        Visit::new(&setu, misdeed, "--mode staged").assert_ended(&[words]);
        quiet.assert_quiet();
    }
}
