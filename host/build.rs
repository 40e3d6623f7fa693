//! Compiles the bundled plugins and lays them into `OUT_DIR`, from where the binary embeds them.

#[path = "build_wasm.rs"]
mod build_wasm;

fn main() {
    build_wasm::build(&["setu-plugin-csv", "setu-plugin-postgres"]);
}
