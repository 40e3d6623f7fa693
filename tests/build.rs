//! Compiles the tests' own guests and lays them into `OUT_DIR`.

#[path = "../host/build_wasm.rs"]
mod build_wasm;

fn main() {
    println!("cargo::rerun-if-changed=guests");
    build_wasm::build(&["setu-guest-probe", "setu-guest-zoo"]);
}
