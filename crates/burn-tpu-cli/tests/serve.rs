//! `burn-tpu serve`, which starts the program beside it.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

fn serve(command: &Path, options: &[&str]) -> Output {
    Command::new(command).arg("serve").args(options).env("PATH", "/nowhere").output().unwrap()
}

/// One test, since a program that another thread has just written cannot be run while a third one starts a process.
#[test]
fn the_server_beside_the_command_gets_every_option() {
    // A link needs the same file system, and a folder of its own has no server in it.
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let command = folder.path().join("burn-tpu");
    fs::hard_link(env!("CARGO_BIN_EXE_burn-tpu"), &command).unwrap();

    let missing = serve(&command, &["--port", "0"]);
    let error = String::from_utf8_lossy(&missing.stderr);
    assert!(!missing.status.success() && error.contains("fix: cargo install burn-tpu-serve"), "{error}");

    let server = folder.path().join("burn-tpu-serve");
    fs::write(&server, "#!/bin/sh\necho \"$@\"\nexit 7\n").unwrap();
    fs::set_permissions(&server, fs::Permissions::from_mode(0o755)).unwrap();
    let output = serve(&command, &["--port", "0", "--help", "-x"]);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "--port 0 --help -x\n");
    assert_eq!(output.status.code(), Some(7));
}
