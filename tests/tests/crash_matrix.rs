//! Death at every durable step: the process dies there, the same command runs again, and the result is that of a run
//! that nothing disturbed, row for row and in the state.
//!
//! `SETU_CRASH_AT=POINT:N` names where to die. For each point, N counts up until the command survives, so every passing
//! of every point is tried.

use std::io::Read;
use std::sync::OnceLock;

use serde_json::Value;
use setu::blob::{self, Key, Spec};
use setu_tests::{Bucket, Database, Setu, kill};

/// Two parts.
const ROWS: usize = 50_100;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verb {
    /// The crash is in the extract; a load follows.
    Extract,
    /// The crash is in the load, after an extract.
    Load,
    Staged,
    Direct,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Store {
    Fs,
    S3,
}

#[derive(Clone, Copy, Debug)]
struct Case {
    store: Store,
    verb: Verb,
    incremental: bool,
    write: &'static str,
}

/// A point, and whether every command of the case passes it at least once.
const POINTS: [&str; 14] = [
    "before-put-lease",
    "after-put-lease",
    "before-put-run",
    "after-put-run",
    "before-put-manifest",
    "after-put-manifest",
    "before-put-part",
    "after-put-part",
    "before-commit",
    "after-commit",
    "before-finish",
    "after-finish",
    "before-put-state",
    "after-put-state",
];

/// What a run leaves behind that anybody could tell apart from another.
#[derive(Debug, PartialEq, Eq)]
struct Left {
    rows: Vec<Vec<Option<String>>>,
    cursor: Option<Value>,
}

/// The source before and after the change that the run under test has to move.
struct Sources {
    before: Database,
    after: Database,
    /// Made once: S3 servers do not like hundreds of buckets.
    bucket: OnceLock<Bucket>,
}

impl Sources {
    fn new() -> Self {
        let table = "CREATE TABLE many (id int PRIMARY KEY, at bigint NOT NULL, h text);
                     INSERT INTO many SELECT i, i, 'old' FROM generate_series(1, 50) i;";
        let (before, after) = (Database::new(), Database::new());
        before.execute(table);
        after.execute(table);
        after.execute(&format!(
            "UPDATE many SET at = 1000 + id, h = 'changed' WHERE id % 10 = 0;
             INSERT INTO many SELECT i, 1000 + i, md5(i::text) FROM generate_series(51, {ROWS}) i;"
        ));
        Sources {
            before,
            after,
            bucket: OnceLock::new(),
        }
    }
}

/// A pipeline whose first run has moved the source as it was before.
struct Stage {
    setu: Setu,
    pipeline: String,
    blob: Spec,
    target: Database,
    case: Case,
}

impl Stage {
    fn new(case: Case, sources: &Sources) -> Self {
        let target = Database::new();
        if case.write == "append" {
            // Without a key, so that a row that came twice would stay.
            target.execute("CREATE TABLE many (id int, at bigint, h text)");
        }
        // Stages may share a bucket.
        let pipeline = target.name().replace('_', "-");
        let mode = match case.incremental {
            true => "incremental, cursor: at",
            false => "full",
        };
        let mut setu = Setu::with_pipeline(&format!(
            "pipeline: {pipeline}\n\
             source: {{ connector: postgres, config: {{ url: \"${{SOURCE_URL}}\" }} }}\n\
             destination: {{ connector: postgres, config: {{ url: \"{}\" }} }}\n\
             streams: [{{ name: public.many, mode: {mode}, write: {} }}]\n",
            target.url(),
            case.write
        ));
        let blob = match case.store {
            Store::Fs => Spec {
                backend: "fs".into(),
                fs_root: setu.path("blob").to_string_lossy().into_owned(),
                ..Spec::default()
            },
            Store::S3 => sources.bucket.get_or_init(Bucket::new).spec(),
        };
        for (name, value) in [
            ("BACKEND", &blob.backend),
            ("FS_ROOT", &blob.fs_root),
            ("ENDPOINT", &blob.endpoint),
            ("REGION", &blob.region),
            ("BUCKET", &blob.bucket),
            ("ACCESS_KEY", &blob.access_key),
            ("SECRET_KEY", &blob.secret_key),
        ] {
            setu.set(&format!("SETU_BLOB_{name}"), value);
        }
        setu.set("SETU_BLOB_FORCE_PATH_STYLE", &blob.force_path_style.to_string());
        setu.set("SOURCE_URL", &sources.before.url());
        setu.succeed("run pipeline.yaml --run first");
        setu.set("SOURCE_URL", &sources.after.url());
        let stage = Stage {
            setu,
            pipeline,
            blob,
            target,
            case,
        };
        if case.verb == Verb::Load {
            stage.setu.succeed("extract pipeline.yaml --run second");
        }
        stage
    }

    /// The command that is under test.
    fn command(&self) -> &'static str {
        match self.case.verb {
            Verb::Extract => "extract pipeline.yaml --run second",
            Verb::Load => "load pipeline.yaml --run second",
            Verb::Staged => "run pipeline.yaml --run second --mode staged",
            Verb::Direct => "run pipeline.yaml --run second --mode direct",
        }
    }

    /// Runs the command with a death; false: it survived.
    fn dies(&self, point: &str) -> bool {
        let outcome = self.setu.line_with(self.command(), &[("SETU_CRASH_AT", point)]);
        match outcome.status {
            None => true,
            status => {
                assert_eq!(status, Some(0), "{point}: {outcome}");
                false
            }
        }
    }

    /// Runs the command to its end, and what belongs behind it.
    fn complete(&self) -> Left {
        self.setu.succeed(self.command());
        if self.case.verb == Verb::Extract {
            self.setu.succeed("load pipeline.yaml --run second");
        }
        let state = format!("ws/default/pl/{}/state/public_many.json", self.pipeline);
        let state = Key::new(&state).expect("a key");
        let store = blob::from_spec(&self.blob).expect("the store");
        let state = store.get(&state).ok().map(|mut object| {
            let mut json = Vec::new();
            object.read_to_end(&mut json).expect("the state");
            json
        });
        Left {
            rows: self.target.rows(
                "SELECT count(*), sum(id), max(at), md5(string_agg(t::text, '|' ORDER BY t::text)) FROM many t",
            ),
            cursor: state.map(|state| {
                let state: Value = serde_json::from_slice(&state).expect("the state is JSON");
                state["cursor"].clone()
            }),
        }
    }
}

fn die_everywhere(store: Store, verb: Verb, incremental: bool, write: &'static str) {
    let case = Case {
        store,
        verb,
        incremental,
        write,
    };
    let sources = Sources::new();
    let expected = Stage::new(case, &sources).complete();
    let mut deaths = 0;
    for point in POINTS {
        for passing in 1.. {
            let stage = Stage::new(case, &sources);
            let point = format!("{point}:{passing}");
            if !stage.dies(&point) {
                break;
            }
            deaths += 1;
            assert_eq!(stage.complete(), expected, "{case:?}, killed at {point}");
        }
    }
    // A lease, the record, and either parts with manifests or a commit with a finish, before and after each.
    assert!(deaths >= 14, "{case:?}: only {deaths} deaths");
}

macro_rules! matrix {
    (quick { $($quick:tt)* } slow { $($slow:tt)* }) => {
        matrix!(@tests [] $($quick)*);
        matrix!(@tests [#[ignore = "slow: the whole matrix, which `cargo xtask test --full` runs"]] $($slow)*);
    };
    (@tests $attributes:tt $($name:ident: $store:ident, $verb:ident, $incremental:literal, $write:literal;)*) => {
        $(matrix!(@test $attributes $name: $store, $verb, $incremental, $write);)*
    };
    (@test [$($attribute:tt)*] $name:ident: $store:ident, $verb:ident, $incremental:literal, $write:literal) => {
        #[test]
        $($attribute)*
        fn $name() {
            die_everywhere(Store::$store, Verb::$verb, $incremental, $write);
        }
    };
}

matrix! {
    quick {
        a_staged_full_overwrite: Fs, Staged, false, "overwrite";
        a_staged_incremental_upsert: Fs, Staged, true, "upsert";
        a_direct_full_append: Fs, Direct, false, "append";
        a_load_of_a_full_append: Fs, Load, false, "append";
        a_staged_incremental_append_on_s3: S3, Staged, true, "append";
    }
    slow {
        a_staged_incremental_append: Fs, Staged, true, "append";
        a_direct_incremental_upsert: Fs, Direct, true, "upsert";
        an_extract_of_an_incremental_append: Fs, Extract, true, "append";
        a_staged_incremental_upsert_on_s3: S3, Staged, true, "upsert";
        a_staged_full_append: Fs, Staged, false, "append";
        a_staged_full_upsert: Fs, Staged, false, "upsert";
        a_direct_full_overwrite: Fs, Direct, false, "overwrite";
        a_direct_full_upsert: Fs, Direct, false, "upsert";
        a_direct_incremental_append: Fs, Direct, true, "append";
        a_load_of_a_full_overwrite: Fs, Load, false, "overwrite";
        a_load_of_a_full_upsert: Fs, Load, false, "upsert";
        a_load_of_an_incremental_append: Fs, Load, true, "append";
        a_load_of_an_incremental_upsert: Fs, Load, true, "upsert";
        an_extract_of_a_full_overwrite: Fs, Extract, false, "overwrite";
        an_extract_of_a_full_append: Fs, Extract, false, "append";
        an_extract_of_a_full_upsert: Fs, Extract, false, "upsert";
        an_extract_of_an_incremental_upsert: Fs, Extract, true, "upsert";
        a_staged_full_overwrite_on_s3: S3, Staged, false, "overwrite";
        a_direct_full_append_on_s3: S3, Direct, false, "append";
        a_direct_incremental_upsert_on_s3: S3, Direct, true, "upsert";
        a_load_of_a_full_append_on_s3: S3, Load, false, "append";
        an_extract_of_an_incremental_append_on_s3: S3, Extract, true, "append";
        a_staged_full_append_on_s3: S3, Staged, false, "append";
        a_staged_full_upsert_on_s3: S3, Staged, false, "upsert";
        a_direct_full_overwrite_on_s3: S3, Direct, false, "overwrite";
        a_direct_full_upsert_on_s3: S3, Direct, false, "upsert";
        a_direct_incremental_append_on_s3: S3, Direct, true, "append";
        a_load_of_a_full_overwrite_on_s3: S3, Load, false, "overwrite";
        a_load_of_a_full_upsert_on_s3: S3, Load, false, "upsert";
        a_load_of_an_incremental_append_on_s3: S3, Load, true, "append";
        a_load_of_an_incremental_upsert_on_s3: S3, Load, true, "upsert";
        an_extract_of_a_full_overwrite_on_s3: S3, Extract, false, "overwrite";
        an_extract_of_a_full_append_on_s3: S3, Extract, false, "append";
        an_extract_of_a_full_upsert_on_s3: S3, Extract, false, "upsert";
        an_extract_of_an_incremental_upsert_on_s3: S3, Extract, true, "upsert";
    }
}

/// Deaths at moments that nobody chose: SIGKILL from outside, again and again, until the run comes through.
#[test]
fn a_run_that_is_killed_again_and_again_comes_through() {
    let sources = Sources::new();
    for (mode, write) in [
        ("staged", "append"),
        ("staged", "overwrite"),
        ("direct", "append"),
    ] {
        let case = Case {
            store: Store::Fs,
            verb: if mode == "staged" {
                Verb::Staged
            } else {
                Verb::Direct
            },
            incremental: false,
            write,
        };
        let expected = Stage::new(case, &sources).complete();
        let stage = Stage::new(case, &sources);
        // Ever longer lives, so that the loop ends: each attempt that gets further keeps what it did.
        for life in 1_u64..=40 {
            let mut run = stage.setu.spawn(stage.command());
            std::thread::sleep(std::time::Duration::from_millis(life * 25));
            if run.try_wait().expect("it can be asked").is_some() {
                break;
            }
            kill(run);
        }
        assert_eq!(stage.complete(), expected, "{mode} {write}");
    }
}
