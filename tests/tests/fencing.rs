//! Two processes at the same half of the same run: one wins, the other ends with a clear error, the result is right.

use std::process::{Child, Command};

use setu_tests::many::{self, DIGEST, ROWS};
use setu_tests::{Database, Outcome, Proxy, Setu, StagedStream, kill, wait_until};

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
        let (source, target) = (many::source(), Database::new());
        let behind = match slow {
            Slow::Source => &source,
            Slow::Target => &target,
        };
        let proxy = Proxy::new(behind.port());
        let (from, to) = match slow {
            Slow::Source => (source.url_through(&proxy), target.url()),
            Slow::Target => (source.url(), target.url_through(&proxy)),
        };
        let setu = many::pipeline(&source.url(), &target.url(), write);
        let stream = format!("write: {write}");
        setu.write("slow.yaml", many::yaml(&from, &to, &stream, many::STAGING));
        let staged = many::staged(&setu);
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
        let child = many::stalling_extract(&self.setu, "extract slow.yaml --run r1", &self.proxy, 1);
        wait_until("it stalls", || self.proxy.is_stalled());
        child
    }

    /// A load that has committed a part and stalls.
    fn stalled_load(&self) -> Child {
        self.setu.succeed("extract pipeline.yaml --run r1");
        many::stalling_load(&self.setu, "load slow.yaml --run r1", &self.proxy)
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
    let first = many::stalling_load(&scene.setu, "run slow.yaml --mode staged", &scene.proxy);
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
    kill(first);
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
