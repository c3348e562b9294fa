//! `cargo xtask bench`.

fn main() -> std::process::ExitCode {
    cognate_bench::main()
}
