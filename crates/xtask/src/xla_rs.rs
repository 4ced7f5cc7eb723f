//! `cargo xtask setup xla-rs` and `cargo xtask test --only xla-rs`: XLA's C++ library for the crate `xla`.
//!
//! The crate wants a folder `XLA_EXTENSION_DIR` with headers and a library. The Python package `tensorflow-cpu` has both:
//! the folder names the parts of it that are needed, with a few headers and functions that the package leaves out
//! (`crates/burn-tpu-xla/extension`). The crate also wants libclang, which the package `libclang` has. Nothing is installed
//! outside the cache folder. [Decision 30](../../docs/decisions/0030-the-crate-xla-is-an-engine.md) says why this package.

use crate::fetch;
use crate::stage::{self, TestCounts, cargo, succeed};
use anyhow::{Context, Result, bail};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A pinned wheel.
struct Wheel {
    wanted: &'static str,
    tags: [&'static str; 8],
    sha256: &'static str,
}

/// The crate 0.5.4 is written for the revision of XLA that this package has, and compiles against no other.
const TENSORFLOW: Wheel = Wheel {
    wanted: "tensorflow-cpu==2.21.0",
    tags: tags("manylinux_2_27_x86_64", "cp", "cp311"),
    sha256: "2b847d217b02ee7731ed91431daf3250daa0196c3c94614d23be27232e6e5b6c",
};

const LIBCLANG: Wheel = Wheel {
    wanted: "libclang==18.1.1",
    tags: tags("manylinux2010_x86_64", "py", "none"),
    sha256: "c533091d8a3bbf7460a00cb6c1a71da93bffe148f172c7d03b1c31fbf8aa2a0b",
};

const fn tags(platform: &'static str, implementation: &'static str, abi: &'static str) -> [&'static str; 8] {
    ["--platform", platform, "--python-version", "3.11", "--implementation", implementation, "--abi", abi]
}

/// The folders and files of the package that the crate includes, and their names in the extension.
const HEADERS: [(&str, &str); 10] = [
    ("absl", "absl"),
    ("Eigen", "Eigen"),
    ("google", "google"),
    ("ml_dtypes", "ml_dtypes"),
    ("third_party", "third_party"),
    ("tsl", "tsl"),
    ("unsupported", "unsupported"),
    ("xla", "xla"),
    ("external/highwayhash/highwayhash", "highwayhash"),
    ("external/farmhash_archive/src/farmhash.h", "farmhash.h"),
];

const LIBRARIES: [&str; 2] = ["libtensorflow_cc.so.2", "libtensorflow_framework.so.2"];

/// The library that the crate links: a script that names the real ones.
const SCRIPT: &str = "INPUT(libxla_shim.a libtensorflow_cc.so.2 libtensorflow_framework.so.2)\n";

/// Written last: its text is what the extension was made of.
const STAMP: &str = "made-of.txt";

/// Environment variables with their values.
type Variables = [(&'static str, String); 5];

/// The extension's folder.
struct Extension {
    folder: PathBuf,
}

impl Extension {
    fn new() -> Result<Self> {
        Ok(Self { folder: fetch::cache_dir()?.join("xla-rs") })
    }

    /// Returns the variables of a build and of a run.
    fn variables(&self, includes: &str) -> Variables {
        let path = |name: &str| self.folder.join(name).display().to_string();
        let before = std::env::var("LD_LIBRARY_PATH").ok().filter(|before| !before.is_empty());
        let libraries = before.map_or_else(|| path("lib"), |before| format!("{}:{before}", path("lib")));
        [
            ("XLA_EXTENSION_DIR", self.folder.display().to_string()),
            ("LD_LIBRARY_PATH", libraries),
            ("LIBCLANG_PATH", path("clang")),
            ("BINDGEN_EXTRA_CLANG_ARGS", format!("-I{includes}")),
            // TensorFlow's own, which nothing here runs: without it, each process writes two lines when it starts.
            ("TF_ENABLE_ONEDNN_OPTS", "0".to_owned()),
        ]
    }

    fn is_made(&self) -> Result<bool> {
        let made = fs::read_to_string(self.folder.join(STAMP)).unwrap_or_default();
        Ok(made == made_of()?)
    }
}

/// Returns what an extension of this checkout is made of: the packages, and the files of the repository by their hash.
fn made_of() -> Result<String> {
    let mut text = format!("{}\n{}\n", TENSORFLOW.wanted, LIBCLANG.wanted);
    for (name, path) in own_files()? {
        text += &format!("{name} {}\n", fetch::sha256_of(&path)?);
    }
    Ok(text)
}

/// Returns the headers and the source that the package leaves out: their names below `extension/`, and their paths.
fn own_files() -> Result<Vec<(String, PathBuf)>> {
    let root = crate::layers::root()?.join("crates/burn-tpu-xla/extension");
    let mut found = Vec::new();
    collect(&root, &root, &mut found)?;
    found.sort();
    Ok(found)
}

fn collect(root: &Path, folder: &Path, found: &mut Vec<(String, PathBuf)>) -> Result<()> {
    for entry in fs::read_dir(folder).with_context(|| format!("cannot list `{}`", folder.display()))? {
        let path = entry?.path();
        if path.is_dir() {
            collect(root, &path, found)?;
        } else {
            found.push((path.strip_prefix(root)?.to_string_lossy().into_owned(), path));
        }
    }
    Ok(())
}

/// Makes the extension, if it is not there, and prints the variables to set.
pub fn set_up(wheel: Option<&Path>) -> Result<()> {
    let variables = ensure(wheel)?;
    println!("xla-rs: set these before a build with the feature `xla-rs`, and before its programs run:");
    for (name, value) in variables {
        // Cargo has set the variable for this command.
        match name {
            "LD_LIBRARY_PATH" => println!("export {name}=\"$XLA_EXTENSION_DIR/lib${{{name}:+:${name}}}\""),
            _ => println!("export {name}='{value}'"),
        }
    }
    Ok(())
}

/// Returns the variables that a build needs, after making the extension if it is missing.
fn ensure(wheel: Option<&Path>) -> Result<Variables> {
    let includes = compiler_includes()?;
    let extension = Extension::new()?;
    if extension.is_made()? {
        println!("xla-rs: `{}` is in place", extension.folder.display());
        return Ok(extension.variables(&includes));
    }
    if !cfg!(all(target_os = "linux", target_arch = "x86_64")) {
        bail!("the pinned wheel of `{}` is for Linux on x86-64, and there is none for this machine", TENSORFLOW.wanted);
    }
    let scratch = fetch::scratch()?;
    let tensorflow = obtain(&TENSORFLOW, wheel, scratch.path())?;
    let libclang = obtain(&LIBCLANG, None, scratch.path())?;
    if extension.folder.exists() {
        fs::remove_dir_all(&extension.folder)
            .with_context(|| format!("cannot empty `{}`", extension.folder.display()))?;
    }
    println!("xla-rs: unpacking headers and libraries");
    let names = |name: &str| tensorflow_place(name);
    unpack(&tensorflow, &extension.folder, names)?;
    unpack(&libclang, &extension.folder, |name| name.ends_with("/libclang.so").then(|| "clang/libclang.so".into()))?;
    complete(&extension.folder)?;
    fetch::write_whole(made_of()?.as_bytes(), &extension.folder.join(STAMP))?;
    println!("xla-rs: `{}` is ready", extension.folder.display());
    Ok(extension.variables(&includes))
}

/// Returns the folder of the compiler's own headers, which libclang needs.
///
/// # Errors
/// If there is no C++ compiler, or no `ar`.
fn compiler_includes() -> Result<String> {
    for program in ["g++", "ar"] {
        if !fetch::answers(program, &["--version"]) {
            bail!(
                "there is no `{program}` on PATH, and the crate xla is C++: install a compiler (Debian, Ubuntu: `sudo \
                 apt-get install g++`; Fedora: `sudo dnf install gcc-c++`), then run `cargo xtask setup xla-rs` again"
            );
        }
    }
    let output = Command::new("g++").arg("-print-file-name=include").output().context("cannot start `g++`")?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Returns a wheel, after checking its hash.
fn obtain(wheel: &Wheel, given: Option<&Path>, scratch: &Path) -> Result<PathBuf> {
    let (file, is_given) = match given {
        Some(file) => (file.to_path_buf(), true),
        None => {
            let folder = scratch.join(wheel.wanted);
            fetch::create_dir(&folder)?;
            println!("xla-rs: fetching {} with pip", wheel.wanted);
            let again = "run `cargo xtask setup xla-rs` again";
            (fetch::wheel(wheel.wanted, &wheel.tags, &folder, again, "--wheel FILE")?, false)
        }
    };
    let checked = fetch::verify(&file, wheel.sha256);
    if is_given {
        let fix = format!(
            "this is no wheel of {} for CPython 3.11 on Linux x86-64; leave `--wheel` out to have pip fetch it, or get it \
             with\n  python3 -m pip download --no-deps --only-binary=:all: {} {}",
            wheel.wanted,
            wheel.tags.join(" "),
            wheel.wanted
        );
        return checked.context(fix).map(|()| file);
    }
    checked.map(|()| file)
}

/// Returns where a file of the package is put, if it is needed.
fn tensorflow_place(name: &str) -> Option<String> {
    let name = name.strip_prefix("tensorflow/")?;
    if LIBRARIES.contains(&name) {
        return Some(format!("lib/{name}"));
    }
    let header = name.strip_prefix("include/")?;
    HEADERS.iter().find_map(|(from, to)| {
        let rest = header.strip_prefix(from)?;
        (rest.is_empty() || rest.starts_with('/')).then(|| format!("include/{to}{rest}"))
    })
}

/// Unpacks the files of a wheel that `place` has a place for.
fn unpack(wheel: &Path, folder: &Path, place: impl Fn(&str) -> Option<String>) -> Result<()> {
    let file = File::open(wheel).with_context(|| format!("cannot open `{}`", wheel.display()))?;
    let mut archive = zip::ZipArchive::new(file).with_context(|| format!("`{}` is not a wheel", wheel.display()))?;
    let mut unpacked = 0;
    for index in 0..archive.len() {
        let mut member = archive.by_index(index).with_context(|| format!("cannot read `{}`", wheel.display()))?;
        let Some(target) = member.enclosed_name().and_then(|name| place(&name.to_string_lossy())) else { continue };
        if member.is_file() {
            let target = folder.join(target);
            target.parent().map_or(Ok(()), fetch::create_dir)?;
            let mut out = File::create(&target).with_context(|| format!("cannot write `{}`", target.display()))?;
            io::copy(&mut member, &mut out).with_context(|| format!("cannot write `{}`", target.display()))?;
            unpacked += 1;
        }
    }
    if unpacked == 0 {
        bail!("`{}` has none of the files that are needed", wheel.display());
    }
    Ok(())
}

/// Adds what the package leaves out: headers, and functions, which are compiled here.
fn complete(folder: &Path) -> Result<()> {
    let mut source = None;
    for (name, path) in own_files()? {
        if name.starts_with("include/") {
            fetch::write_whole(File::open(&path)?, &folder.join(name))?;
        } else if name.ends_with(".cc") {
            source = Some(path);
        }
    }
    let source = source.context("crates/burn-tpu-xla/extension has no source")?;
    println!("xla-rs: compiling `{}` (a minute)", source.display());
    let object = folder.join("shim.o");
    let mut compiler = Command::new("g++");
    compiler.args(["-std=c++17", "-O2", "-fPIC", "-DNDEBUG", "-w", "-I"]).arg(folder.join("include"));
    succeed(compiler.arg("-c").arg(&source).arg("-o").arg(&object).stdin(Stdio::null()))?;
    let library = folder.join("lib/libxla_shim.a");
    succeed(Command::new("ar").arg("rcs").arg(library).arg(&object).stdin(Stdio::null()))?;
    fs::remove_file(&object).context("cannot remove an object file")?;
    fetch::write_whole(SCRIPT.as_bytes(), &folder.join("lib/libxla_extension.so")).map(drop)
}

/// Lints and tests the engine. It links a library of 1.3 GB, so it is a stage of its own and not part of the others.
pub fn stage() -> Result<TestCounts> {
    let variables = ensure(None)?;
    let engine = ["-p", "burn-tpu-xla", "--features", "burn-tpu-xla/extension"];
    let whole = ["-p", "burn-tpu-workspace", "--features", "xla-rs", "--test", "xla_rs"];
    let with = |command: &[&str], which: &[&str]| -> Result<Command> {
        let mut command = cargo(command)?;
        command.args(which).envs(variables.iter().cloned()).env("TF_CPP_MIN_LOG_LEVEL", "1");
        Ok(command)
    };
    for which in [&engine[..], &whole] {
        succeed(with(&["clippy"], which)?.args(["--", "-D", "warnings"]))?;
    }
    let mut counts = stage::test(&mut with(&["test", "--no-fail-fast"], &engine)?)?;
    counts += stage::test(&mut with(&["test", "--no-fail-fast"], &whole)?)?;
    Ok(counts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_and_libraries_have_their_places_and_the_rest_has_none() {
        let place = |name: &str| tensorflow_place(name);
        assert_eq!(place("tensorflow/libtensorflow_cc.so.2").as_deref(), Some("lib/libtensorflow_cc.so.2"));
        assert_eq!(place("tensorflow/include/xla/shape.h").as_deref(), Some("include/xla/shape.h"));
        let farmhash = "tensorflow/include/external/farmhash_archive/src/farmhash.h";
        assert_eq!(place(farmhash).as_deref(), Some("include/farmhash.h"));
        for other in ["tensorflow/python/x.so", "tensorflow/include/xlab.h", "xla/shape.h"] {
            assert_eq!(place(other), None, "{other}");
        }
    }

    #[test]
    fn a_wrong_wheel_names_the_right_one() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("tensorflow_cpu-2.20.0.whl");
        fs::write(&file, b"another release").unwrap();
        let error = format!("{:#}", obtain(&TENSORFLOW, Some(&file), folder.path()).unwrap_err());
        for part in ["tensorflow-cpu==2.21.0", "--wheel", "pip download", "pinned sha256", "tensorflow_cpu-2.20.0.whl"]
        {
            assert!(error.contains(part), "`{part}` is missing in: {error}");
        }
    }

    #[test]
    fn an_extension_is_made_again_when_a_file_of_the_repository_changes() {
        let text = made_of().unwrap();
        assert!(text.contains("shim.cc ") && text.contains("include/mlir/IR/BuiltinOps.h "), "{text}");
    }
}
