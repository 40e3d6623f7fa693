//! Logging in to Postgres: each authentication method and each `sslmode`, against a real server.

use setu_tests::server::{MD5_USER, SCRAM_USER, TLS_USER};
use setu_tests::{Database, Outcome, Setu};

const ESCAPED_PASSWORD: &str = "correct%20horse%3A%20battery%2Fstaple%40%25";
const QUOTED_PASSWORD: &str = "'correct horse: battery/staple@%'";

fn check(url: &str) -> Outcome {
    check_with(url, "")
}

/// `more` is YAML of further keys of the configuration.
fn check_with(url: &str, more: &str) -> Outcome {
    let setu = Setu::with_pipeline(&format!(
        "pipeline: p\n\
         source: {{ connector: postgres, config: {{ url: {url:?}{more} }} }}\n\
         destination: {{ connector: csv, config: {{ path: out }} }}\n\
         streams: [{{ name: \"public.*\" }}]\n"
    ));
    setu.line("check pipeline.yaml")
}

#[test]
fn scram_md5_and_trust_log_in() {
    let database = Database::new();
    for user in [SCRAM_USER, MD5_USER] {
        let with_password = format!("{user}:{ESCAPED_PASSWORD}");
        check(&database.url_for(&with_password, "127.0.0.1", database.port())).assert_status(0);
    }
    check(&database.url()).assert_status(0);
}

#[test]
fn a_url_and_keys_with_values_name_the_same_connection() {
    let database = Database::new();
    check(&format!(
        "host=127.0.0.1 port={} dbname={} user={SCRAM_USER} password={QUOTED_PASSWORD}",
        database.port(),
        database.name()
    ))
    .assert_status(0);
    let scheme = database.url().replacen("postgres://", "postgresql://", 1);
    check(&scheme).assert_status(0);
}

/// Whether a login works for each `sslmode`. The server's certificate is for `localhost`, signed by an authority that
/// the system does not know.
#[test]
fn each_sslmode_demands_what_it_says() {
    let ca = Database::ca();
    let stranger = ca.with_file_name("stranger.pem");
    let (none, ca, stranger) = (None, Some(&ca), Some(&stranger));
    let database = Database::new();
    // The user may log in only over TLS, so a login shows that TLS was used.
    let cases = [
        ("127.0.0.1", "disable", none, false),
        ("127.0.0.1", "prefer", none, true),
        ("127.0.0.1", "require", none, true),
        ("localhost", "verify-ca", ca, true),
        ("127.0.0.1", "verify-ca", ca, true),
        ("localhost", "verify-ca", stranger, false),
        ("localhost", "verify-full", ca, true),
        ("127.0.0.1", "verify-full", ca, false),
        ("localhost", "verify-full", stranger, false),
        ("localhost", "verify-full", none, false),
    ];
    for (host, mode, ca, works) in cases {
        let url = format!(
            "{}?sslmode={mode}",
            database.url_for(TLS_USER, host, database.port())
        );
        let ca = ca.map_or(String::new(), |ca| format!(", sslrootcert: {}", ca.display()));
        let outcome = check_with(&url, &ca);
        if works {
            assert_eq!(outcome.status, Some(0), "{host} {mode} {ca}\n{outcome}");
        } else {
            outcome.assert_clear_failure(&[]);
        }
    }
}

#[test]
fn a_certificate_that_proves_nothing_is_explained() {
    let ca = Database::ca();
    let database = Database::new();
    let url = database.url_for(TLS_USER, "127.0.0.1", database.port());
    let more = format!(", sslmode: verify-full, sslrootcert: {}", ca.display());
    check_with(&url, &more).assert_clear_failure(&["certificate", "127.0.0.1"]);
    let url = format!("{}?sslmode=bogus", database.url());
    check(&url).assert_clear_failure(&["sslmode", "bogus", "verify-full"]);
}

#[test]
fn a_whole_run_works_over_verified_tls() {
    let database = Database::new();
    database
        .execute("CREATE TABLE t AS SELECT i AS id, repeat('x', 1000) AS t FROM generate_series(1, 20000) i");
    let target = Database::new();
    let end = |database: &Database| {
        format!(
            "{{ connector: postgres, config: {{ url: \"{}\", sslmode: verify-full, sslrootcert: {} }} }}",
            database.url_for(TLS_USER, "localhost", database.port()),
            Database::ca().display()
        )
    };
    let setu = Setu::with_pipeline(&format!(
        "pipeline: p\nsource: {}\ndestination: {}\nstreams: [{{ name: public.t }}]\n",
        end(&database),
        end(&target)
    ));
    setu.succeed("run pipeline.yaml --mode staged");
    let digest = "SELECT count(*), md5(string_agg(t::text, '|' ORDER BY id)) FROM t";
    assert_eq!(target.rows(digest), database.rows(digest));
}
