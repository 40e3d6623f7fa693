//! The support code itself, where a fault in it would make other tests lie.

use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

use setu_tests::s3_server::S3Server;
use setu_tests::server::Server;
use setu_tests::{csv_rows, wait_until};

/// Set in the copy of this test that is killed.
const VICTIM: &str = "SETU_TEST_SERVER_VICTIM";

/// Nothing stays behind when a test is killed: neither the server nor its folder.
#[test]
fn a_server_is_gone_when_its_owner_is_killed() {
    if std::env::var_os(VICTIM).is_some() {
        let server = Server::start(false).expect("a server");
        println!("folder {}", server.ca().parent().expect("a folder").display());
        // Until it is killed: standard input never ends.
        std::io::copy(&mut std::io::stdin(), &mut std::io::sink()).expect("standard input");
        unreachable!("the test that started this one has gone");
    }
    let (mut victim, folder) = victim("a_server_is_gone_when_its_owner_is_killed", "folder ");
    let folder = std::path::PathBuf::from(folder);
    assert!(folder.join("data/postmaster.pid").exists(), "the server runs");
    victim.kill().expect("it is there to kill");
    victim.wait().expect("it ends");
    wait_until("the server's folder is removed", || !folder.exists());
}

#[test]
fn an_s3_server_is_gone_when_its_owner_is_killed() {
    if std::env::var_os(VICTIM).is_some() {
        let server = S3Server::seaweedfs().expect("a server");
        println!("port {}", server.port());
        // Until it is killed: standard input never ends.
        std::io::copy(&mut std::io::stdin(), &mut std::io::sink()).expect("standard input");
        unreachable!("the test that started this one has gone");
    }
    let (mut victim, port) = victim("an_s3_server_is_gone_when_its_owner_is_killed", "port ");
    let port: u16 = port.parse().expect("a port");
    let runs = || TcpStream::connect(("127.0.0.1", port)).is_ok();
    assert!(runs());
    victim.kill().expect("it is there to kill");
    victim.wait().expect("it ends");
    wait_until("the server ends", || !runs());
}

/// Starts a copy of a test, and waits for what it prints behind `word`.
fn victim(test: &str, word: &str) -> (Child, String) {
    let mut victim = Command::new(std::env::current_exe().expect("this executable"))
        .args([test, "--exact", "--nocapture"])
        .env(VICTIM, "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("a copy of this test");
    let stdout = std::io::BufReader::new(victim.stdout.take().expect("its output"));
    let told = std::io::BufRead::lines(stdout)
        .map_while(Result::ok)
        .find_map(|line| line.split_once(word).map(|(_, told)| told.to_owned()))
        .expect("the victim tells of its server");
    (victim, told)
}

#[test]
fn csv_text_is_read_with_nulls_quotes_and_newlines() {
    let some = |text: &str| Some(text.to_owned());
    assert_eq!(
        csv_rows("a,b\r\n1,\n\"\",\"x \"\"y\"\"\nz\"\n"),
        [
            vec![some("a"), some("b")],
            vec![some("1"), None],
            vec![some(""), some("x \"y\"\nz")],
        ]
    );
}
