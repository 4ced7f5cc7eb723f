//! `burn-tpu serve`: starts the program `burn-tpu-serve`, which has Burn in it, as this one has not.
//!
//! Owns: where that program is, and what to do if it is nowhere. It takes this process's place, so signals reach it.

use std::env;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

const PROGRAM: &str = "burn-tpu-serve";

/// Everything is `burn-tpu-serve`'s.
#[derive(clap::Args)]
#[command(disable_help_flag = true)]
pub struct Args {
    /// Options of `burn-tpu-serve`; `--help` lists them
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "OPTIONS")]
    options: Vec<OsString>,
}

/// Runs the command. It returns only if the program cannot be started.
pub fn run(args: &Args) -> ExitCode {
    let error = match find(env::current_exe().ok().as_deref(), env::var_os("PATH")) {
        Some(program) => {
            let error = Command::new(&program).args(&args.options).exec();
            format!("cannot start {}: {error}", program.display())
        }
        None => format!(
            "`{PROGRAM}` is neither beside this program nor in PATH: it is installed apart, since it builds with Burn\n  \
             fix: cargo install {PROGRAM}"
        ),
    };
    say(&error);
    ExitCode::FAILURE
}

#[allow(clippy::print_stderr, reason = "a command-line program talks to its user")]
fn say(text: &str) {
    eprintln!("burn-tpu serve: {text}");
}

/// Returns the program's path: beside this program, else in the folders of `PATH`.
fn find(this: Option<&Path>, path: Option<OsString>) -> Option<PathBuf> {
    let beside = this.and_then(Path::parent).map(Path::to_path_buf);
    let folders = path.map(|path| env::split_paths(&path).collect::<Vec<_>>()).unwrap_or_default();
    beside.into_iter().chain(folders).map(|folder| folder.join(PROGRAM)).find(|program| program.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn the_program_beside_this_one_is_first() {
        let [beside, elsewhere] = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let this = beside.path().join("burn-tpu");
        let path = || Some(env::join_paths(["/nowhere".as_ref(), elsewhere.path()]).unwrap());
        assert_eq!(find(Some(&this), path()), None);
        fs::write(elsewhere.path().join(PROGRAM), "").unwrap();
        assert_eq!(find(Some(&this), path()), Some(elsewhere.path().join(PROGRAM)));
        fs::write(beside.path().join(PROGRAM), "").unwrap();
        assert_eq!(find(Some(&this), path()), Some(beside.path().join(PROGRAM)));
        assert_eq!(find(None, None), None);
    }
}
