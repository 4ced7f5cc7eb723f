//! The commands whose programs have Burn in them, as this one has not: `burn-tpu serve`, `generate`, `chat`,
//! `finetune` and `fit`.
//!
//! Owns: where such a program is, and what to do if it is nowhere. It takes this process's place, so signals reach it.

use std::env;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// A program beside this one.
pub struct Companion {
    /// Its name, which is that of its package.
    program: &'static str,
    /// What it is told before the user's options.
    command: Option<&'static str>,
}

/// Burn's remote protocol.
pub const SERVE: Companion = Companion { program: "burn-tpu-serve", command: None };
/// A language model that continues a text.
pub const GENERATE: Companion = Companion { program: "burn-tpu-llm", command: Some("generate") };
/// A language model that answers.
pub const CHAT: Companion = Companion { program: "burn-tpu-llm", command: Some("chat") };
/// A language model that is trained.
pub const FINETUNE: Companion = Companion { program: "burn-tpu-llm", command: Some("finetune") };

/// A step of a language model that is compiled for TPUs.
pub const FIT: Companion = Companion { program: "burn-tpu-llm", command: Some("fit") };

/// Everything is the program's.
#[derive(clap::Args)]
#[command(disable_help_flag = true)]
pub struct Args {
    /// Options of the program; `--help` lists them
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "OPTIONS")]
    options: Vec<OsString>,
}

impl Companion {
    /// Runs the program. It returns only if the program cannot be started.
    pub fn run(&self, args: &Args) -> ExitCode {
        let name = self.program;
        let error = match find(name, env::current_exe().ok().as_deref(), env::var_os("PATH")) {
            Some(program) => {
                let error = Command::new(&program).args(self.command).args(&args.options).exec();
                format!("cannot start {}: {error}", program.display())
            }
            None => format!(
                "`{name}` is neither beside this program nor in PATH: it is installed apart, since it builds with Burn\n  \
                 fix: cargo install {name}"
            ),
        };
        self.say(&error);
        ExitCode::FAILURE
    }

    #[allow(clippy::print_stderr, reason = "a command-line program talks to its user")]
    fn say(&self, text: &str) {
        eprintln!("burn-tpu {}: {text}", self.command.unwrap_or("serve"));
    }
}

/// Returns a program's path: beside this program, else in the folders of `PATH`.
fn find(name: &str, this: Option<&Path>, path: Option<OsString>) -> Option<PathBuf> {
    let beside = this.and_then(Path::parent).map(Path::to_path_buf);
    let folders = path.map(|path| env::split_paths(&path).collect::<Vec<_>>()).unwrap_or_default();
    beside.into_iter().chain(folders).map(|folder| folder.join(name)).find(|program| program.is_file())
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
        for Companion { program, .. } in [SERVE, CHAT] {
            assert_eq!(find(program, Some(&this), path()), None);
            fs::write(elsewhere.path().join(program), "").unwrap();
            assert_eq!(find(program, Some(&this), path()), Some(elsewhere.path().join(program)));
            fs::write(beside.path().join(program), "").unwrap();
            assert_eq!(find(program, Some(&this), path()), Some(beside.path().join(program)));
            assert_eq!(find(program, None, None), None);
        }
    }
}
