//! Systems that fail for a while: the run tries again, a bounded number of times, and otherwise stops so that the same
//! command goes on later.

use std::process::Command;
use std::time::{Duration, Instant};

use setu_tests::many::{self, DIGEST, ROWS};
use setu_tests::{Bucket, Database, Fault, HttpProxy, Outcome, Proxy, Setu, wait_until};

#[test]
fn a_destination_that_drops_the_connection_in_a_copy_is_written_to_again() {
    let source = many::source();
    for mode in ["staged", "direct"] {
        for write in ["append", "overwrite", "upsert"] {
            let target = Database::new();
            // Without a key, so that a row that came twice would stay.
            if write == "append" {
                target.execute("CREATE TABLE many (id int, h text)");
            }
            let proxy = Proxy::new(target.port());
            let setu = many::pipeline(&source.url(), &target.url_through(&proxy), write);
            proxy.break_after_sending(many::MIDDLE);
            let outcome = setu.succeed(&format!("run pipeline.yaml --mode {mode}"));
            assert!(proxy.has_broken(), "{mode} {write}");
            assert!(outcome.stderr.contains("again in"), "{mode} {write}: {outcome}");
            assert_eq!(target.rows(DIGEST), source.rows(DIGEST), "{mode} {write}");
        }
    }
}

#[test]
fn a_source_that_drops_the_connection_is_read_on() {
    let source = many::source();
    let target = Database::new();
    let proxy = Proxy::new(source.port());
    let setu = many::pipeline(&source.url_through(&proxy), &target.url(), "append");
    proxy.break_after_receiving(many::MIDDLE);
    let report = setu.report("run pipeline.yaml --mode staged");
    assert!(proxy.has_broken());
    assert_eq!(report["streams"][0]["rows"], ROWS, "{report}");
    assert_eq!(target.rows(DIGEST), source.rows(DIGEST));
}

#[test]
fn a_destination_that_stays_away_ends_the_run_which_goes_on_later() {
    let source = many::source();
    let target = Database::new();
    let proxy = Proxy::new(target.port());
    let setu = many::pipeline(&source.url(), &target.url_through(&proxy), "append");
    setu.succeed("extract pipeline.yaml --run r1");
    proxy.break_after_sending(many::MIDDLE);
    let load = setu.spawn_heard("load pipeline.yaml --run r1");
    wait_until("the connection breaks", || proxy.has_broken());
    proxy.refuse();
    let started = Instant::now();
    Outcome::of(load)
        .assert_status(1)
        .assert_clear_failure(&["public.many", &proxy.port().to_string()]);
    assert!(started.elapsed() < Duration::from_secs(120), "it gives up");
    proxy.open();
    let report = setu.report("load pipeline.yaml --run r1");
    assert!(
        report["streams"][0]["partsSkipped"].as_u64() >= Some(1),
        "{report}"
    );
    assert_eq!(target.rows(DIGEST), source.rows(DIGEST));
}

/// A run that stages in S3 through a proxy, into a table without a key.
fn through_a_proxy() -> (Setu, Database, Database, HttpProxy) {
    let (source, target, bucket) = (many::source(), Database::new(), Bucket::new());
    target.execute("CREATE TABLE many (id int, h text)");
    let proxy = HttpProxy::new(bucket.port(), PASS);
    let staging = serde_json::to_string(&bucket.spec_through(proxy.port(), "")).expect("JSON");
    let yaml = many::yaml(&source.url(), &target.url(), "write: append", &staging);
    (Setu::with_pipeline(&yaml), source, target, proxy)
}

const PASS: Fault = Fault::AnswerTimes {
    status: 503,
    times: 0,
};

/// Rows are on their way once the blob store is asked to take a part.
#[track_caller]
fn wait_for_a_part(proxy: &HttpProxy) {
    wait_until("a part is put", || {
        proxy
            .requests()
            .iter()
            .any(|request| request.starts_with("PUT") && request.contains("/part-"))
    });
}

#[test]
fn a_blob_store_that_is_busy_for_a_while_is_asked_again() {
    let (setu, source, target, proxy) = through_a_proxy();
    // Fewer than one request is retried at the start, and more than that once rows are on their way.
    proxy.set(Fault::AnswerTimes {
        status: 503,
        times: 2,
    });
    let run = setu.spawn_heard("run pipeline.yaml --mode staged --run r1");
    wait_for_a_part(&proxy);
    proxy.set(Fault::AnswerTimes {
        status: 503,
        times: 10,
    });
    Outcome::of(run).assert_status(0);
    assert_eq!(target.rows(DIGEST), source.rows(DIGEST));
}

#[test]
fn a_blob_store_that_stays_busy_ends_the_run_which_goes_on_later() {
    let (setu, source, target, proxy) = through_a_proxy();
    let run = setu.spawn_heard("run pipeline.yaml --mode staged --run r1");
    wait_for_a_part(&proxy);
    proxy.set(Fault::Answer(503));
    let started = Instant::now();
    let outcome = Outcome::of(run);
    outcome.assert_status(1);
    // Each retry has said why; so has the end.
    let end = outcome.stderr.lines().last().unwrap_or_default();
    for word in ["error: ", "HTTP 503", &format!("127.0.0.1:{}", proxy.port())] {
        assert!(end.contains(word), "{outcome}");
    }
    assert!(started.elapsed() < Duration::from_secs(180), "it gives up");
    proxy.set(PASS);
    // Its lease could not be given back, but its process is known to be gone.
    setu.succeed("run pipeline.yaml --mode staged --run r1");
    assert_eq!(target.rows(DIGEST), source.rows(DIGEST));
}

/// A file system of so many bytes, unmounted at the end.
struct SmallDisk(std::path::PathBuf);

impl SmallDisk {
    fn mount(at: std::path::PathBuf, bytes: u64) -> Self {
        std::fs::create_dir_all(&at).expect("a folder");
        let disk = SmallDisk(at);
        disk.run("mount", &["-t", "tmpfs", "-o", &format!("size={bytes}"), "tmpfs"]);
        disk
    }

    fn grow(&self, bytes: u64) {
        self.run("mount", &["-o", &format!("remount,size={bytes}")]);
    }

    fn run(&self, program: &str, arguments: &[&str]) {
        let status = Command::new(program).args(arguments).arg(&self.0).status();
        assert!(
            status.expect("mount").success(),
            "`{program}` of a tmpfs failed; these tests need to run as root"
        );
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // A file system that stays mounted is as temporary as the folder.
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

#[test]
fn a_blob_store_that_is_full_ends_the_run_which_goes_on_later() {
    let source = many::source();
    let target = Database::new();
    let setu = many::pipeline(&source.url(), &target.url(), "overwrite");
    let disk = SmallDisk::mount(setu.path("blob"), 3 << 20);
    setu.line("run pipeline.yaml --mode staged --run r1")
        .assert_status(1)
        .assert_clear_failure(&["public.many", "part-0000", "No space left"]);
    assert_eq!(target.value("SELECT to_regclass('public.many')"), None);
    disk.grow(64 << 20);
    let report = setu.report("run pipeline.yaml --mode staged --run r1");
    assert!(report["streams"][0]["rows"] == ROWS, "{report}");
    assert_eq!(target.rows(DIGEST), source.rows(DIGEST));
}
