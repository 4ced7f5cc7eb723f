//! The text that `cargo xtask demo gpt` trains on: the Linux kernel's documentation, from the Debian package of it.
//!
//! Text is what the package's folder `Documentation` has as reStructuredText, without the translations: about 2,800 files,
//! 21 MB. Debian's mirrors keep only the newest versions, so another version than the recorded one is used with a notice.

use crate::fetch;
use anyhow::{Context, Result, bail};
use flate2::read::GzDecoder;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const PACKAGE: &str = "linux-doc-6.1";
/// The version that the figures in `docs/models.md` come from.
const VERSION: &str = "6.1.192-2";
const SHA256: &str = "d1d1b5a602f0d439ecc39e713e044bf2df30d839fb4bf8a7b859ba3273c47993";
/// The folder of the text in the package.
const FOLDER: &str = "./usr/share/doc/linux-doc-6.1/Documentation/";
const TRANSLATIONS: &str = "translations/";
/// The file in the text's folder that holds the version.
const STAMP: &str = "VERSION";

/// Returns the folder with the text, after fetching it if it is missing. It is complete or absent.
pub fn ensure() -> Result<PathBuf> {
    let folder = fetch::cache_dir()?.join("linux-doc");
    if let Ok(version) = std::fs::read_to_string(folder.join(STAMP)) {
        println!("text: {PACKAGE} {} in `{}` is in place", version.trim(), folder.display());
        return Ok(folder);
    }
    let scratch = fetch::scratch()?;
    let package = download(scratch.path())?;
    let version = version_of(&package)?;
    check(&version, &fetch::sha256_of(&package)?)?;
    let unpacked = scratch.path().join("text");
    let files = unpack(&package, &unpacked)?;
    fetch::write_whole(version.as_bytes(), &unpacked.join(STAMP))?;
    std::fs::rename(&unpacked, &folder)
        .with_context(|| format!("cannot move the text to `{}`: is a part of it there already?", folder.display()))?;
    println!("text: {files} files of {PACKAGE} {version} in `{}`", folder.display());
    Ok(folder)
}

fn download(folder: &Path) -> Result<PathBuf> {
    if !fetch::answers("apt-get", &["--version"]) || !fetch::answers("dpkg-deb", &["--version"]) {
        bail!(
            "there is no `apt-get` or no `dpkg-deb` on PATH, which fetch the text: run this on Debian, or train on a text \
             of your own: `cargo run --release --example gpt -- train --data FILE|DIR`"
        );
    }
    println!("text: fetching {PACKAGE} with apt-get");
    // apt-get checks the package against the signed index of the distribution. It needs no root to download.
    let mut apt = Command::new("apt-get");
    apt.args(["download", "--quiet", PACKAGE]).current_dir(folder);
    fetch::run_client(&mut apt, PACKAGE)
        .context("`apt-get update` brings the list of packages up to date; a full disk has the same effect")?;
    fetch::only_file(folder, "deb")
}

/// Returns the version that the package itself names.
fn version_of(package: &Path) -> Result<String> {
    let output = Command::new("dpkg-deb").arg("--field").arg(package).arg("Version").output();
    let output = output.context("cannot start `dpkg-deb`")?;
    if !output.status.success() {
        bail!("`{}` is no Debian package: {}", package.display(), String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Fails if the recorded version has other bytes, and prints a notice if the version is another one.
fn check(version: &str, sha256: &str) -> Result<()> {
    if version != VERSION {
        println!(
            "text: note: this is {PACKAGE} {version}, and the figures in docs/models.md are of {VERSION}: losses will \
             differ a little"
        );
    } else if sha256 != SHA256 {
        bail!(
            "{PACKAGE} {version} is not the package that this project recorded:\n  recorded sha256 {SHA256}\n  found    \
             sha256 {sha256}\nNothing was unpacked. Run `apt-get update` and try again."
        );
    }
    Ok(())
}

/// Unpacks the text of a package, and returns the number of files.
fn unpack(package: &Path, target: &Path) -> Result<usize> {
    let mut child = Command::new("dpkg-deb");
    let mut child = child.arg("--fsys-tarfile").arg(package).stdout(Stdio::piped()).spawn();
    let child = child.as_mut().map_err(|error| anyhow::anyhow!("cannot start `dpkg-deb`: {error}"))?;
    let files = unpack_tar(child.stdout.take().context("dpkg-deb has no output")?, target);
    let status = child.wait().context("cannot wait for `dpkg-deb`")?;
    let files = files?;
    if !status.success() || files == 0 {
        bail!("`{}` has {files} files of text in `{FOLDER}`, and `dpkg-deb` ended with {status}", package.display());
    }
    Ok(files)
}

fn unpack_tar(tar: impl std::io::Read, target: &Path) -> Result<usize> {
    let context = "cannot read the package";
    let mut files = 0;
    for entry in tar::Archive::new(tar).entries().context(context)? {
        let entry = entry.context(context)?;
        let path = entry.path().context(context)?.to_string_lossy().into_owned();
        if let Some(name) = text_name(&path)
            && entry.header().entry_type().is_file()
        {
            fetch::write_whole(GzDecoder::new(entry), &target.join(name))?;
            files += 1;
        }
    }
    Ok(files)
}

/// Returns the name of a file of text in the package, without its compression's ending; `None` for other files.
fn text_name(path: &str) -> Option<&str> {
    let name = path.strip_prefix(FOLDER)?.strip_suffix(".gz").filter(|name| name.ends_with(".rst"))?;
    let safe = Path::new(name).components().all(|part| matches!(part, std::path::Component::Normal(_)));
    (safe && !name.starts_with(TRANSLATIONS)).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn tar_of(files: &[(&str, &[u8])]) -> Vec<u8> {
        let mut tar = tar::Builder::new(Vec::new());
        for (path, text) in files {
            let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            gzip.write_all(text).unwrap();
            let bytes = gzip.finish().unwrap();
            let mut header = tar::Header::new_gnu();
            header.set_size(bytes.len() as u64);
            header.set_mode(0o644);
            // The path as Debian's packages have it, which begins with a dot.
            header.as_old_mut().name[..path.len()].copy_from_slice(path.as_bytes());
            header.set_cksum();
            tar.append(&header, &bytes[..]).unwrap();
        }
        tar.into_inner().unwrap()
    }

    #[test]
    fn the_text_is_what_is_not_translated() {
        let inside = |name: &str| format!("{FOLDER}{name}");
        let files = [
            (inside("mm/page.rst.gz"), &b"pages"[..]),
            (inside("translations/de/x.rst.gz"), b"Seiten"),
            (inside("mm/conf.py.gz"), b"x = 1"),
            ("./usr/share/doc/other.rst.gz".to_owned(), b"other"),
        ];
        let files: Vec<(&str, &[u8])> = files.iter().map(|(path, text)| (path.as_str(), *text)).collect();
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(unpack_tar(&tar_of(&files)[..], folder.path()).unwrap(), 1);
        assert_eq!(std::fs::read(folder.path().join("mm/page.rst")).unwrap(), b"pages");
        assert_eq!(text_name(&inside("../../x.rst.gz")), None);
    }

    #[test]
    fn another_hash_of_the_recorded_version_is_an_error_and_another_version_is_not() {
        assert!(check(VERSION, SHA256).is_ok());
        assert!(check("6.1.200-1", "00").is_ok());
        let error = check(VERSION, "00").unwrap_err().to_string();
        assert!(error.contains(SHA256) && error.contains("sha256 00") && error.contains("apt-get update"), "{error}");
    }

    #[test]
    fn a_file_that_is_no_package_is_an_error() {
        if !fetch::answers("dpkg-deb", &["--version"]) {
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let package = folder.path().join("x.deb");
        std::fs::write(&package, "words").unwrap();
        assert!(version_of(&package).unwrap_err().to_string().contains("is no Debian package"));
        assert!(unpack(&package, &folder.path().join("text")).is_err());
    }
}
