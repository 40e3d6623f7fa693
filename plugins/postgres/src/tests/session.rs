//! Logging in, and what people are told when it fails.

use serde_json::json;
use setu_sdk::{Destination, ErrorKind, ReadRequest, Source, StreamName};

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
    assert!(error.message().contains("absent"), "{error}");

    // Port 1 is nobody's.
    let error = source(json!({ "url": "postgres://u:sesame@127.0.0.1:1/db" }))
        .check()
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}");
    assert!(
        error.is_retryable() && error.message().contains("127.0.0.1:1"),
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
