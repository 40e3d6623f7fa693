//! A connector that knows Setu only from its published contract: built on its own, named by path or found by name.

use std::path::{Path, PathBuf};
use std::process::Command;

use setu_tests::Setu;

fn repository() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

/// Builds the documentation's example as an author would: by cargo in its own folder, outside the workspace.
fn example() -> PathBuf {
    let folder = repository().join("examples/plugin");
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo
        .args(["build", "--quiet", "--release", "--target", "wasm32-wasip2"])
        .current_dir(&folder);
    // What an author's shell has, and not what this test's build has.
    for name in [
        "RUSTFLAGS",
        "CARGO_ENCODED_RUSTFLAGS",
        "CARGO_TARGET_DIR",
        "CARGO_BUILD_TARGET",
    ] {
        cargo.env_remove(name);
    }
    let output = cargo.output().expect("cargo");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let built = folder.join("target/wasm32-wasip2/release");
    let components: Vec<PathBuf> = std::fs::read_dir(&built)
        .expect("cargo's output")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "wasm"))
        .collect();
    let [component] = components.as_slice() else {
        panic!("one component, not {components:?}");
    };
    component.clone()
}

fn pipeline(connector: &str) -> String {
    format!(
        "pipeline: p\n\
         source: {{ connector: \"{connector}\", config: {{ from: 5 }} }}\n\
         destination: {{ connector: csv, config: {{ path: out }} }}\n\
         streams: [{{ name: countdown }}]\n"
    )
}

#[test]
fn the_example_of_the_documentation_runs_by_path_and_by_name() {
    let component = example();
    let by_path = Setu::with_pipeline(&pipeline(&component.to_string_lossy()));
    by_path.succeed("run pipeline.yaml --mode staged");
    assert_eq!(by_path.read("out/countdown.csv"), "n\n5\n4\n3\n2\n1\n");

    let relative = Setu::with_pipeline(&pipeline("./plugins/mine.wasm"));
    relative.write(
        "plugins/mine.wasm",
        std::fs::read(&component).expect("the component"),
    );
    relative.succeed("run pipeline.yaml --mode direct");
    assert_eq!(relative.read("out/countdown.csv"), "n\n5\n4\n3\n2\n1\n");

    let mut by_name = Setu::with_pipeline(&pipeline("mine"));
    by_name.write(
        "elsewhere/mine.wasm",
        std::fs::read(&component).expect("the component"),
    );
    let outcome = by_name.line("run pipeline.yaml");
    outcome
        .assert_status(2)
        .assert_clear_failure(&["mine", "SETU_PLUGIN_PATH"]);
    let folder = by_name.path("elsewhere");
    by_name.set(
        "SETU_PLUGIN_PATH",
        &format!("/no/such/folder:{}", folder.display()),
    );
    by_name.succeed("run pipeline.yaml");
    assert_eq!(by_name.read("out/countdown.csv"), "n\n5\n4\n3\n2\n1\n");
}

/// The README and the guide show the example in full; a copy that differs would not compile for a reader.
#[test]
fn the_documentation_shows_the_example_as_it_is() {
    let code = std::fs::read_to_string(repository().join("examples/plugin/src/lib.rs")).expect("the example");
    for (page, before) in [
        ("README.md", ""),
        ("docs/writing-a-connector.md", "// src/lib.rs\n"),
    ] {
        let text = std::fs::read_to_string(repository().join(page)).expect("the page");
        assert!(
            text.contains(&format!("```rust\n{before}{}\n```", code.trim_end())),
            "{page} must hold:\n{code}"
        );
    }
    // Where the SDK lies is the one thing in which an author's manifest differs.
    let manifest =
        std::fs::read_to_string(repository().join("examples/plugin/Cargo.toml")).expect("its manifest");
    let guide = std::fs::read_to_string(repository().join("docs/writing-a-connector.md")).expect("the guide");
    let shown = guide
        .split("```toml\n# Cargo.toml\n")
        .nth(1)
        .and_then(|rest| rest.split("```").next());
    for line in shown.expect("the guide shows a manifest").lines() {
        let setting = line.split(" #").next().unwrap_or_default().trim();
        let path = setting.starts_with("setu-sdk = { path = ");
        assert!(
            path || manifest.lines().any(|line| line == setting),
            "`{setting}` is not in the example's manifest"
        );
    }
    assert!(
        code.lines().count() <= 40,
        "a plugin in 40 lines has {}",
        code.lines().count()
    );
}
