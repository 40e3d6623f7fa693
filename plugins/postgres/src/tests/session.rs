//! Logging in, and what people are told when it fails.

use std::io::{Read, Write};

use serde_json::json;
use setu_sdk::{Destination, ErrorKind, ReadRequest, Source, StreamName, WriteMode};

use super::copy::{destination, source};
use super::server::Server;

const PASSWORD: &str = "sésame: %/@'\\";
const ESCAPED: &str = "s%C3%A9same%3A%20%25%2F%40%27%5C";

#[test]
fn each_method_of_authentication_lets_the_right_password_in_and_no_other() {
    let hba = "host all scram 127.0.0.1/32 scram-sha-256\nhost all md5 127.0.0.1/32 md5\n\
               host all clear 127.0.0.1/32 password\nhost all trusted 127.0.0.1/32 trust";
    let server = Server::start_with(hba, &[]);
    let quoted = PASSWORD.replace('\'', "''");
    server.execute_locally(&format!(
        "SET password_encryption = 'scram-sha-256'; CREATE USER scram PASSWORD '{quoted}'; \
         CREATE USER clear PASSWORD '{quoted}'; CREATE USER trusted; \
         SET password_encryption = 'md5'; CREATE USER md5 PASSWORD '{quoted}'"
    ));
    let place = format!("127.0.0.1:{}", server.port);
    for user in ["scram", "md5", "clear", "trusted"] {
        let url = format!("postgres://{user}:{ESCAPED}@{place}/postgres");
        source(json!({ "url": url })).check().unwrap();
        let apart = json!({ "url": format!("host=127.0.0.1 port={} user={user} dbname=postgres", server.port), "password": PASSWORD });
        source(apart).check().unwrap();
        destination(&url, "public").check().unwrap();
    }
    for user in ["scram", "md5", "clear"] {
        let error = source(json!({ "url": format!("postgres://{user}:battery@{place}/postgres") }))
            .check()
            .unwrap_err();
        assert_eq!(
            (error.kind(), error.code()),
            (ErrorKind::Auth, Some("28P01")),
            "{error}"
        );
        assert!(
            error.message().contains(&place) && error.message().contains("check the user"),
            "{error}"
        );
        assert!(!error.message().contains("battery"), "{error}");

        let error = source(json!({ "url": format!("postgres://{user}@{place}/postgres") }))
            .check()
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Auth);
        assert!(error.message().contains("set `password`"), "{error}");
    }
    let error = source(json!({ "url": format!("postgres://nobody@{place}/postgres") }))
        .check()
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Auth, "{error}");
}

#[test]
fn a_wrong_place_is_told_with_the_way_out() {
    let server = Server::start();
    let error = source(json!({ "url": format!("{}absent", server.url().trim_end_matches("postgres")) }))
        .check()
        .unwrap_err();
    assert_eq!(
        (error.kind(), error.code()),
        (ErrorKind::Config, Some("3D000")),
        "{error}"
    );
    assert!(
        error.message().contains("absent") && error.message().contains("name in `url`"),
        "{error}"
    );

    let error = source(json!({ "url": "postgres://u:sesame@no-such-host.invalid/db" }))
        .check()
        .unwrap_err();
    for part in [
        "no-such-host.invalid:5432",
        "check the host and the port in `url`",
    ] {
        assert!(error.message().contains(part), "{error}");
    }

    // Port 1 is nobody's.
    let error = source(json!({ "url": "postgres://u:sesame@127.0.0.1:1/db" }))
        .check()
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}");
    assert!(
        error.is_retryable() && error.message().contains("127.0.0.1:1"),
        "{error}"
    );
    assert!(
        error.message().contains("check the host and the port in `url`"),
        "{error}"
    );
    assert!(!error.message().contains("sesame"), "{error}");

    let error = source(json!({ "url": server.url() + "?sslmode=require" }))
        .check()
        .unwrap_err();
    assert!(
        error.message().contains("TLS") && error.message().contains("`sslmode: disable`"),
        "{error}"
    );

    let error = source(json!({ "url": server.url(), "schemas": ["absent"] }))
        .check()
        .unwrap_err();
    assert!(error.message().contains("`absent`"), "{error}");

    let name = StreamName::new("public", "absent");
    let request = ReadRequest {
        name,
        columns: None,
        cursor: None,
        range: None,
        resume_after: None,
    };
    let error = source(json!({ "url": server.url() })).read(request).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(error.message().contains("public.absent"), "{error}");
}

/// A server of this kind answers in this way to whatever it is sent first, and then falls silent or leaves.
fn answering(answer: &'static [u8]) -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for mut peer in listener.incoming().flatten() {
            let _ = peer.read(&mut [0; 1024]);
            let _ = peer.write_all(answer);
        }
    });
    port
}

#[test]
fn what_is_no_postgres_server_is_told_with_the_way_out() {
    for (answer, sslmode) in [
        (&b"HTTP/1.1 400 Bad Request\r\n\r\n"[..], "prefer"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "disable"),
        (b"", "prefer"),
        (b"", "disable"),
    ] {
        let port = answering(answer);
        let url = format!("postgres://u:sesame@127.0.0.1:{port}/db?sslmode={sslmode}");
        let errors = [
            source(json!({ "url": url })).check().unwrap_err(),
            destination(&url, "public").check().unwrap_err(),
        ];
        for error in errors {
            assert!(error.message().contains(&format!("127.0.0.1:{port}")), "{error}");
            assert!(
                error.message().contains("check the host and the port in `url`"),
                "{error}"
            );
            assert!(!error.message().contains("sesame"), "{error}");
        }
    }
}

#[test]
fn a_server_that_is_too_old_is_refused_by_every_call() {
    // "You are in", its version, "go on".
    let port = answering(b"R\0\0\0\x08\0\0\0\0S\0\0\0\x19server_version\x0011.22\0Z\0\0\0\x05I");
    let url = format!("postgres://u@127.0.0.1:{port}/db?sslmode=disable");
    let mut from = source(json!({ "url": url }));
    let info = super::write::info();
    let request = super::copy::read_request(&info);
    let mut to = destination(&url, "public");
    let errors = [
        from.check().unwrap_err(),
        from.discover().unwrap_err(),
        from.count(&request, 1).unwrap_err(),
        from.read(request).unwrap_err(),
        to.check().unwrap_err(),
        to.begin(super::copy::load("l", 1, &info, WriteMode::Append))
            .unwrap_err(),
    ];
    for error in errors {
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        for part in ["11.22", "version 12", &port.to_string()] {
            assert!(error.message().contains(part), "{error}");
        }
    }
}

#[test]
fn the_hosts_of_a_url_are_tried_in_order() {
    let server = Server::start();
    let url = format!(
        "postgres://postgres@127.0.0.1:1,127.0.0.1:{}/postgres",
        server.port
    );
    source(json!({ "url": url })).check().unwrap();
    let error = source(json!({ "url": "postgres://u@127.0.0.1:1,127.0.0.1:2/db" }))
        .check()
        .unwrap_err();
    assert!(
        error.message().contains("127.0.0.1:1") && error.message().contains("127.0.0.1:2"),
        "{error}"
    );
}
