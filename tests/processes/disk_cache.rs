//! The disk cache across processes and under faults. Every process here runs in strict mode, and no fault may become an
//! error.
#![allow(clippy::print_stdout, reason = "a child process reports to its parent")]

use crate::common;

use burn::tensor::{Tensor, TensorData};
use burn_tpu::{Mesh, Platform, Tpu, TpuDevice, TpuOptions, metrics};
use common::child;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

type B = Tpu<f32>;

/// The report that a child process prints when it ends.
#[derive(Debug, PartialEq)]
struct Report {
    compiles: u64,
    hits: u64,
    misses: u64,
    writes: u64,
    errors: u64,
    value: String,
}

/// Runs one program on a device with a disk cache; does nothing unless the environment names the cache folder.
#[test]
fn child() {
    let Ok(folder) = std::env::var("DISK_CACHE_TEST_FOLDER") else { return };
    let mesh = std::env::var("DISK_CACHE_TEST_MESH").ok().map(|axes| axes.parse::<Mesh>().expect("axes"));
    let device = mesh.map_or_else(|| TpuDevice::cpu(0), |mesh| TpuDevice::mesh(mesh.on(Platform::Cpu)));
    let options = TpuOptions::development().disk_cache(true).check_numerics(false).disk_cache_dir(folder);
    options.disk_cache_least_compile(Duration::ZERO).install(&device).expect("first use");
    let x = Tensor::<B, 2>::from_data(TensorData::from([[1.0f32, 2.0], [3.0, 4.0]]), &device);
    let value = (x.clone().matmul(x.clone()) + x.exp().sum_dim(1)).try_into_data().map(|data| data.to_string());
    let m = metrics(&device);
    println!("\nREPORT {} {} {} {} {} {value:?}", m.compiles, m.disk_hits, m.disk_misses, m.disk_writes, m.disk_errors);
}

fn command(folder: &Path) -> Command {
    let mut command = child::command(module_path!(), "programs");
    command.env("DISK_CACHE_TEST_FOLDER", folder);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn report(command: &mut Command) -> Report {
    let output = command.output().expect("it starts");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = text.lines().find_map(|line| line.strip_prefix("REPORT "));
    let line = line.unwrap_or_else(|| panic!("{text}{}", String::from_utf8_lossy(&output.stderr)));
    let mut words = line.splitn(6, ' ');
    let mut number = || words.next().and_then(|word| word.parse().ok()).expect("a number");
    let (compiles, hits, misses, writes, errors) = (number(), number(), number(), number(), number());
    Report { compiles, hits, misses, writes, errors, value: words.next().unwrap_or_default().into() }
}

fn run(folder: &Path) -> Report {
    report(&mut command(folder))
}

/// Returns the files of programs in a folder.
fn programs(folder: &Path) -> Vec<PathBuf> {
    let files = std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path());
    files.filter(|path| path.extension().is_some_and(|suffix| suffix == "program")).collect()
}

/// Returns a folder that a first process has filled, and that process's report; `None` without the CPU plugin.
fn filled() -> Option<(tempfile::TempDir, Report)> {
    common::cpu()?;
    let folder = tempfile::tempdir().expect("a folder");
    let cold = run(folder.path());
    assert!(cold.value.starts_with("Ok("), "{cold:?}");
    assert!(cold.compiles >= 1 && cold.hits == 0 && cold.errors == 0, "{cold:?}");
    assert_eq!((cold.misses, cold.writes), (cold.compiles, cold.compiles), "{cold:?}");
    assert_eq!(programs(folder.path()).len() as u64, cold.writes);
    Some((folder, cold))
}

/// Checks that every program came from disk and that the result equals that of the compiled programs.
fn assert_warm(warm: &Report, cold: &Report) {
    let expected =
        Report { compiles: 0, hits: cold.compiles, misses: 0, writes: 0, errors: 0, value: cold.value.clone() };
    assert_eq!(*warm, expected);
}

#[test]
fn a_second_process_compiles_nothing() {
    let Some((folder, cold)) = filled() else { return };
    assert_warm(&run(folder.path()), &cold);
}

#[test]
fn a_damaged_or_foreign_file_is_compiled_again_and_replaced() {
    let Some((folder, cold)) = filled() else { return };
    let damages: [fn(&mut Vec<u8>); 5] = [
        |bytes| bytes.truncate(bytes.len() / 2),
        |bytes| bytes.clear(),
        |bytes| {
            let middle = bytes.len() / 2;
            bytes[middle] ^= 1 << 5;
        },
        |bytes| bytes[3] ^= 1,
        // The header of another format over the same content.
        |bytes| {
            let form = bytes.iter().position(|&byte| byte == b'1').expect("a form");
            bytes[form] = b'2';
        },
    ];
    for (case, damage) in damages.iter().enumerate() {
        for path in programs(folder.path()) {
            let mut bytes = std::fs::read(&path).expect("readable");
            damage(&mut bytes);
            std::fs::write(&path, bytes).expect("writable");
        }
        let again = run(folder.path());
        assert_eq!((again.compiles, again.hits, again.errors), (cold.compiles, 0, cold.compiles), "{case}: {again:?}");
        assert_eq!(again.value, cold.value, "{case}");
        assert_warm(&run(folder.path()), &cold);
    }
}

#[test]
fn a_compiler_flag_is_part_of_the_key() {
    let Some((folder, cold)) = filled() else { return };
    let flagged = |flags| report(command(folder.path()).env("LIBTPU_INIT_ARGS", flags));
    let other = flagged("--xla_of_another_mind=1");
    assert_eq!((other.compiles, other.hits, other.errors), (cold.compiles, 0, 0), "{other:?}");
    assert_warm(&flagged("--xla_of_another_mind=1"), &cold);
    assert_warm(&run(folder.path()), &cold);
}

#[test]
fn a_mesh_is_part_of_the_key() {
    let Some((folder, cold)) = filled() else { return };
    let run = |mesh: &str| report(command(folder.path()).env("DISK_CACHE_TEST_MESH", mesh));
    let first = run("data=2");
    assert_eq!((first.compiles, first.hits, &first.value), (cold.compiles, 0, &cold.value), "{first:?}");
    assert_warm(&run("data=2"), &first);
    // Other axes, so that the batch is not split.
    let other = run("model=2");
    assert_eq!((other.compiles, other.hits, other.value), (cold.compiles, 0, cold.value));
}

#[test]
fn two_processes_share_a_folder_at_the_same_time() {
    if common::cpu().is_none() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let start = || command(folder.path()).spawn().expect("it starts");
    let both = [start(), start(), start()].map(|child| child.wait_with_output().expect("it ends"));
    assert!(both.iter().all(|output| output.status.success()), "{both:?}");
    let warm = run(folder.path());
    assert_eq!((warm.compiles, warm.errors), (0, 0), "{warm:?}");
    assert!(warm.hits >= 1 && warm.value.starts_with("Ok("), "{warm:?}");
}

#[cfg(unix)]
#[test]
fn a_folder_that_others_can_write_is_not_used() {
    use std::os::unix::fs::PermissionsExt;
    let Some((folder, cold)) = filled() else { return };
    let chmod = |mode| std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(mode)).expect("ours");
    chmod(0o777);
    let open = run(folder.path());
    let expected = Report { hits: 0, misses: 0, writes: 0, errors: 1, ..cold };
    assert_eq!(open, expected);
    chmod(0o700);
    assert_warm(&run(folder.path()), &expected);
}

/// A limit on file sizes stops a write in the middle, as a full disk does.
#[cfg(unix)]
#[test]
fn a_full_disk_is_only_a_warning() {
    if common::cpu().is_none() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let limited = || {
        let mut shell = Command::new("sh");
        shell.args(["-c", r#"trap "" XFSZ; ulimit -f 2; exec "$0" "$@""#]);
        shell.arg(std::env::current_exe().expect("this test")).args(child::arguments(module_path!()));
        shell.env("DISK_CACHE_TEST_FOLDER", folder.path());
        report(&mut shell)
    };
    let full = limited();
    assert!(full.value.starts_with("Ok(") && full.compiles >= 1, "{full:?}");
    assert_eq!((full.writes, full.errors), (0, full.compiles), "{full:?}");
    assert!(programs(folder.path()).is_empty());
    assert_eq!(run(folder.path()).errors, 0, "space again");
}

#[test]
fn the_cache_can_be_off() {
    if common::cpu().is_none() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let off = report(command(folder.path()).env("BURN_TPU_DISK_CACHE", "0"));
    assert_eq!((off.hits, off.misses, off.writes, off.errors), (0, 0, 0, 0), "{off:?}");
    assert!(off.value.starts_with("Ok(") && programs(folder.path()).is_empty());
}
