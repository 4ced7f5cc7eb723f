//! silero-VAD as ONNX files, from the Python package `silero-vad`, for `examples/onnx`.
//!
//! Files that are present and intact are kept, so the command works offline once they are.

use crate::fetch;
use anyhow::Result;
use std::path::{Path, PathBuf};

const PACKAGE: &str = "silero-vad==6.2.3";
const PACKAGE_SHA256: &str = "7b7f5436cfcb02fae583a05b512ea96467fd449fe54cb49a5e4f06c51a1e43b8";
/// The folder of the files inside the wheel.
const FOLDER: &str = "silero_vad/data";
/// Each file's name in the package and here, and its SHA-256: the model that the package loads, for the results to compare
/// with, and the form of it that burn-onnx converts.
const FILES: [(&str, &str, &str); 2] = [
    ("silero_vad.onnx", "silero_vad.onnx", "1a153a22f4509e292a94e67d6f9b85e8deb25b4988682b7e174c65279d8788e3"),
    ("silero_vad_op18_ifless.onnx", "vad.onnx", "7671cd04b004e9076da0d4a7b1a5aec36adf161c39230c1cb94a4fd5db6bbd28"),
];

/// Returns the folder with the files, after fetching them if one is missing or damaged.
pub fn ensure(archive: Option<&Path>) -> Result<PathBuf> {
    let folder = fetch::cache_dir()?.join("onnx");
    if FILES.iter().all(|(_, name, hash)| fetch::is_whole(&folder.join(name), hash, "silero-VAD")) {
        println!("silero-VAD: the files in `{}` are in place", folder.display());
        return Ok(folder);
    }
    let scratch = fetch::scratch()?;
    let wheel = match archive {
        Some(file) => file.to_owned(),
        None => {
            println!("silero-VAD: fetching {PACKAGE} with pip");
            fetch::wheel(PACKAGE, &[], scratch.path(), "run `cargo xtask data silero` again", "--archive FILE")?
        }
    };
    fetch::verify(&wheel, PACKAGE_SHA256)?;
    for (member, name, hash) in FILES {
        let file = folder.join(name);
        fetch::unpack_member(&wheel, &format!("{FOLDER}/{member}"), &file)?;
        fetch::verify(&file, hash)?;
    }
    println!("silero-VAD: unpacked to `{}`", folder.display());
    Ok(folder)
}
