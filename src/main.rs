//! The `leasewarden` program. What it can do is in [`leasewarden::cli`], one file per subcommand.

fn main() -> std::process::ExitCode {
    leasewarden::cli::main()
}
