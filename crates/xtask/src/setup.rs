//! `cargo xtask setup [cpu|tpu|cuda|xla-rs]`: fetches a PJRT plugin from the Python package registry into the cache folder.
//!
//! `burn_tpu_pjrt::discovery` defines the package and the target path; this file adds the pinned wheel of each. Only the
//! library is unpacked. Once it is in the cache folder, the command works offline and does nothing. `xla_rs` has what
//! `xla-rs` makes, which is no plugin.

use crate::{fetch, xla_rs};
use anyhow::{Result, anyhow, bail};
use burn_tpu_pjrt::discovery::{PluginKind, cached_plugin};
use clap::ValueEnum;
use std::path::{Path, PathBuf};

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
    /// XLA's C++ library, for the engine on the crate xla
    XlaRs,
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

/// Runs the command: prints the plugin's path, or the variables that a build with the crate xla needs.
pub fn run(args: &Args) -> Result<()> {
    let wheel = args.wheel.as_deref();
    match args.kind {
        Kind::Cpu => ensure(PluginKind::Cpu, wheel).map(drop),
        Kind::Tpu => ensure(PluginKind::Tpu, wheel).map(drop),
        Kind::Cuda => ensure(PluginKind::Cuda, wheel).map(drop),
        Kind::XlaRs => xla_rs::set_up(wheel),
    }
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
    fetch::unpack_member(&file, kind.package().library, &library)?;
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
    let package = kind.package();
    let wanted = format!("{}=={}", package.package, package.version);
    println!("{kind} plugin: fetching {wanted} with pip");
    fetch::wheel(&wanted, &wheel.tags, folder, &format!("run `cargo xtask setup {kind}` again"), "--wheel FILE")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_a_pinned_hash_of_the_right_length() {
        for kind in PluginKind::ALL {
            assert_eq!(wheel(kind).sha256.len(), 64, "{kind}");
        }
    }
}
