//! The `setu` command. All of it is in the library's `cli` module.

fn main() -> std::process::ExitCode {
    setu::cli::main()
}
