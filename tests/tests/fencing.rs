//! Two processes at the same half of the same run: one wins, the other ends with a clear error, the result is right.

use std::process::{Child, Command};

use setu_tests::{Database, Outcome, Proxy, Setu, StagedStream, wait_until};

const ROWS: usize = 220_000;
const DIGEST: &str = "SELECT count(*), md5(string_agg(t::text, '|' ORDER BY id)) FROM many t";

struct Scene {
    setu: Setu,
    source: Database,
    target: Database,
    proxy: Proxy,
    staged: StagedStream,
}

/// Which end the proxy stands before.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Slow {
    Source,
    Target,
}

impl Scene {
    fn new(slow: Slow, write: &str) -> Self {
        let (source, target) = (Database::new(), Database::new());
        source.execute(&format!(
            "CREATE TABLE many AS SELECT i AS id, md5(i::text) AS h FROM generate_series(1, {ROWS}) i;
             ALTER TABLE many ADD PRIMARY KEY (id);"
        ));
        let behind = match slow {
            Slow::Source => &source,
            Slow::Target => &target,
        };
        let proxy = Proxy::new(behind.port());
        let slow_url = behind.url_for("postgres", "127.0.0.1", proxy.port());
        let pipeline = |source: &str, target: &str| {
            format!(
                "pipeline: p\n\
                 source: {{ connector: postgres, config: {{ url: \"{source}\" }} }}\n\
                 destination: {{ connector: postgres, config: {{ url: \"{target}\" }} }}\n\
                 streams:\n  - name: public.many\n    write: {write}\n\
                 staging: {{ backend: fs, fsRoot: blob }}\n"
            )
        };
        let setu = Setu::with_pipeline(&pipeline(&source.url(), &target.url()));
        let slow = match slow {
            Slow::Source => pipeline(&slow_url, &target.url()),
            Slow::Target => pipeline(&source.url(), &slow_url),
        };
        setu.write("slow.yaml", slow);
        let staged = StagedStream::new(setu.path("blob"), "p", "r1", "public_many");
        Scene {
            setu,
            source,
            target,
            proxy,
            staged,
        }
    }

    /// An extract that has staged a part and stalls.
    fn stalled_extract(&self) -> Child {
        self.proxy.stall_after_receiving(6 << 20);
        let child = self.setu.spawn_heard("extract slow.yaml --run r1");
        wait_until("a part is named", || self.staged.named_parts() >= 1);
        wait_until("it stalls", || self.proxy.is_stalled());
        child
    }

    /// A load that has committed a part and stalls.
    fn stalled_load(&self) -> Child {
        self.setu.succeed("extract pipeline.yaml --run r1");
        self.proxy.stall_after_sending(6 << 20);
        let child = self.setu.spawn_heard("load slow.yaml --run r1");
        wait_until("it stalls", || self.proxy.is_stalled());
        child
    }

    #[track_caller]
    fn assert_loaded(&self) {
        assert_eq!(self.target.rows(DIGEST), self.source.rows(DIGEST));
    }
}

/// An extractor learns it from the lease.
#[track_caller]
fn assert_extract_overtaken(child: Child) {
    Outcome::of(child)
        .assert_status(1)
        .assert_clear_failure(&["run `r1` has been taken over", "is being extracted by process"]);
}

/// A loader learns it from the lease, or, in the middle of a commit, from the destination.
#[track_caller]
fn assert_load_overtaken(child: Child) {
    let outcome = Outcome::of(child);
    outcome.assert_status(1).assert_clear_failure(&["public.many"]);
    let told = [
        "run `r1` has been taken over",
        "a later attempt has taken it over",
    ];
    assert!(
        told.iter().any(|words| outcome.stderr.contains(words)),
        "{outcome}"
    );
}

fn signal(child: &Child, name: &str) {
    let sent = Command::new("kill")
        .args([name, &child.id().to_string()])
        .status();
    assert!(sent.expect("kill").success());
}

#[test]
fn a_second_extractor_is_refused_while_the_first_lives_and_may_take_over() {
    let scene = Scene::new(Slow::Source, "append");
    let first = scene.stalled_extract();
    let process = format!("is being extracted by process {}", first.id());
    scene
        .setu
        .line("extract pipeline.yaml --run r1")
        .assert_status(1)
        .assert_clear_failure(&["run `r1`", &process, "since", "--take-over"]);

    let report = scene.setu.report("extract pipeline.yaml --run r1 --take-over");
    assert!(
        report["streams"][0]["partsSkipped"].as_u64() >= Some(1),
        "{report}"
    );
    let manifest = scene.staged.manifest();
    scene.proxy.open();
    assert_extract_overtaken(first);
    assert_eq!(scene.staged.manifest(), manifest, "the first writes no more");
    let ids: Vec<i64> = scene
        .staged
        .rows()
        .iter()
        .filter_map(|row| row[0].as_i64())
        .collect();
    assert!(ids.iter().copied().eq(1..=ROWS as i64), "each row once, in order");
    scene.setu.succeed("load pipeline.yaml --run r1");
    scene.assert_loaded();
}

#[test]
fn a_second_loader_is_refused_while_the_first_lives_and_may_take_over() {
    for write in ["append", "overwrite", "upsert"] {
        let scene = Scene::new(Slow::Target, write);
        let first = scene.stalled_load();
        let process = format!("is being loaded by process {}", first.id());
        scene
            .setu
            .line("load pipeline.yaml --run r1")
            .assert_status(1)
            .assert_clear_failure(&["run `r1`", &process, "--take-over"]);

        scene.setu.succeed("load pipeline.yaml --run r1 --take-over");
        scene.assert_loaded();
        scene.proxy.open();
        assert_load_overtaken(first);
        scene.assert_loaded();
    }
}

#[test]
fn a_process_that_was_frozen_wakes_up_and_harms_nothing() {
    let scene = Scene::new(Slow::Source, "overwrite");
    let first = scene.stalled_extract();
    signal(&first, "-STOP");
    scene.proxy.open();
    scene.setu.succeed("extract pipeline.yaml --run r1 --take-over");
    scene.setu.succeed("load pipeline.yaml --run r1");
    let manifest = scene.staged.manifest();
    signal(&first, "-CONT");
    assert_extract_overtaken(first);
    assert_eq!(scene.staged.manifest(), manifest);
    scene.assert_loaded();
}

#[test]
fn a_run_that_is_under_way_is_not_started_a_second_time() {
    let scene = Scene::new(Slow::Target, "append");
    scene.proxy.stall_after_sending(6 << 20);
    let mut first = scene.setu.spawn_heard("run slow.yaml --mode staged");
    wait_until("it stalls", || scene.proxy.is_stalled());
    scene
        .setu
        .line("run slow.yaml --mode staged")
        .assert_status(1)
        .assert_clear_failure(&["is being", "by process", "--take-over"]);
    let listed = scene.setu.succeed("runs --pipeline slow.yaml");
    assert!(
        listed
            .stdout
            .contains(&format!("running (process {}", first.id())),
        "{listed}"
    );

    // A dead one is no obstacle.
    first.kill().expect("it runs");
    first.wait().expect("it ends");
    scene.proxy.open();
    let listed = scene.setu.succeed("runs --pipeline slow.yaml");
    assert!(listed.stdout.contains("unfinished"), "{listed}");
    scene.setu.succeed("run slow.yaml --mode staged");
    scene.assert_loaded();
}

#[test]
fn both_halves_of_a_run_may_be_at_work_at_once() {
    let scene = Scene::new(Slow::Source, "append");
    let extract = scene.stalled_extract();
    let load = scene.setu.spawn_heard("load pipeline.yaml --run r1 --wait");
    scene.proxy.open();
    Outcome::of(extract).assert_status(0);
    Outcome::of(load).assert_status(0);
    scene.assert_loaded();
}
