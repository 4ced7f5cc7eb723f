//! The key of a compiled program on disk: named parts in a fixed order, so that a miss can report which part differs.
//!
//! Owns the list of parts, the name of a file and the head of a file. May not know: files, plugins.

use sha2::{Digest, Sha256};

/// The format of the files. A change of the format changes this text.
const FORM: &str = "burn-tpu program, form 1";

/// Everything except the program itself that its machine code depends on. It is the same for all programs of a device.
#[derive(Clone, Debug, Default)]
pub(crate) struct CompileEnvironment {
    /// The encoded `CompileOptions`: device assignment and XLA options.
    pub(crate) compile_options: Vec<u8>,
    /// The environment variables that a compiler reads, as `NAME=value` lines.
    pub(crate) flags: String,
    /// The platform's name, and its version as the plugin reports it, which includes libtpu's build date.
    pub(crate) platform: String,
    /// The plugin's file: name, size, modification time.
    pub(crate) plugin: String,
    /// The version of the C API, and the XLA and StableHLO versions that the plugin reports.
    pub(crate) interface: String,
    /// All devices of the client: ids, kinds, attributes.
    pub(crate) devices: String,
    /// The host's processor, if the machine code is for it.
    pub(crate) host: String,
    /// The version of the GPU driver, on CUDA.
    pub(crate) driver: String,
    /// The files of cuDNN, cuBLAS and similar libraries, on CUDA: name, size, modification time.
    pub(crate) libraries: String,
}

/// The identity of a compiled program on disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Key(Vec<(&'static str, [u8; 32])>);

impl CompileEnvironment {
    /// Returns the key of a program from the hash of its graph and the hash of its text, which also changes with the
    /// lowering.
    pub(crate) fn key(&self, program: [u8; 32], text: [u8; 32]) -> Key {
        let hash = |value: &[u8]| Sha256::digest(value).into();
        Key(vec![
            ("program", program),
            ("text", text),
            ("crate", hash(env!("CARGO_PKG_VERSION").as_bytes())),
            ("compile_options", hash(&self.compile_options)),
            ("flags", hash(self.flags.as_bytes())),
            ("platform", hash(self.platform.as_bytes())),
            ("plugin", hash(self.plugin.as_bytes())),
            ("interface", hash(self.interface.as_bytes())),
            ("devices", hash(self.devices.as_bytes())),
            ("host", hash(self.host.as_bytes())),
            ("driver", hash(self.driver.as_bytes())),
            ("libraries", hash(self.libraries.as_bytes())),
        ])
    }
}

impl Key {
    /// Returns the key of a note on the same program: what was found out about it, and not the program itself.
    pub(crate) fn note(mut self) -> Self {
        self.0[0].1 = Sha256::new().chain_update("note").chain_update(self.0[0].1).finalize().into();
        self
    }

    /// Returns the key of the program when it is compiled with further options; the same key without any.
    pub(crate) fn with_options(mut self, options: &[u8]) -> Self {
        let part = self.0.iter_mut().find(|(name, _)| *name == "compile_options");
        if let Some((_, hash)) = part.filter(|_| !options.is_empty()) {
            *hash = Sha256::new().chain_update(*hash).chain_update(options).finalize().into();
        }
        self
    }

    /// Returns the start of the names of all files with the same graph.
    pub(crate) fn family(&self) -> String {
        hex(&self.0[0].1[..8])
    }

    /// Returns `<family>-<hash of all parts>.program`.
    pub(crate) fn file_name(&self) -> String {
        let mut digest = Sha256::new();
        self.0.iter().for_each(|(_, hash)| digest.update(hash));
        format!("{}-{}.program", self.family(), hex(&digest.finalize()[..16]))
    }

    /// Returns the head of the program's file: a line with the format, a line per part, an empty line.
    pub(crate) fn head(&self) -> String {
        let parts: String = self.0.iter().map(|(name, hash)| format!("{name} {}\n", hex(hash))).collect();
        format!("{FORM}\n{parts}\n")
    }

    /// Returns the names of the parts that differ from those in a file's head.
    pub(crate) fn differing(&self, head: &str) -> Vec<&'static str> {
        let same = |name: &str, hash: &[u8]| head.lines().any(|line| line == format!("{name} {}", hex(hash)));
        self.0.iter().filter(|(name, hash)| !same(name, hash)).map(|(name, _)| *name).collect()
    }
}

/// Returns whether a file's head has the current format.
pub(crate) fn has_current_format(head: &[u8]) -> bool {
    head.strip_prefix(FORM.as_bytes()).is_some_and(|rest| rest.starts_with(b"\n"))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_changes_the_key_and_is_reported() {
        let base = CompileEnvironment::default();
        let key = |change: fn(&mut CompileEnvironment)| {
            let mut changed = base.clone();
            change(&mut changed);
            changed.key([1; 32], [2; 32])
        };
        let whole = base.key([1; 32], [2; 32]);
        assert_eq!(whole, key(|_| ()));
        let cases: [(&str, Key); 11] = [
            ("program", base.key([9; 32], [2; 32])),
            ("text", base.key([1; 32], [9; 32])),
            ("compile_options", key(|s| s.compile_options.push(1))),
            ("flags", key(|s| s.flags = "XLA_FLAGS=--xla_dump_to=/x\n".into())),
            ("platform", key(|s| s.platform = "tpu, built on another day".into())),
            ("plugin", key(|s| s.plugin = "libtpu.so 575 1".into())),
            ("interface", key(|s| s.interface = "0.116".into())),
            ("devices", key(|s| s.devices = "TPU v5 lite".into())),
            ("host", key(|s| s.host = "another processor".into())),
            ("driver", key(|s| s.driver = "NVRM version: 580.82.07".into())),
            ("libraries", key(|s| s.libraries = "libcudnn.so.9 1 2".into())),
        ];
        for (name, other) in &cases {
            assert_ne!(whole.file_name(), other.file_name(), "{name}");
            assert_ne!(whole.head(), other.head(), "{name}");
            assert_eq!(whole.differing(&other.head()), [*name]);
            assert_eq!(whole.family() == other.family(), *name != "program");
        }
        // A test cannot change the crate's own version.
        assert_eq!(whole.0.len(), cases.len() + 1);
        assert!(whole.differing(&whole.head()).is_empty());
    }

    #[test]
    fn further_options_change_the_key_and_a_note_is_of_another_family() {
        let key = || CompileEnvironment::default().key([1; 32], [2; 32]);
        assert_eq!(key().with_options(&[]), key());
        assert_eq!(key().with_options(b"a=1").differing(&key().head()), ["compile_options"]);
        assert_ne!(key().with_options(b"a=1"), key().with_options(b"a=2"));
        assert_ne!(key().note().family(), key().family());
    }

    #[test]
    fn a_head_of_another_format_is_recognised() {
        let head = CompileEnvironment::default().key([1; 32], [2; 32]).head();
        assert!(has_current_format(head.as_bytes()));
        for other in [head.replace("form 1", "form 2"), head.replace("form 1", "form 10"), String::new()] {
            assert!(!has_current_format(other.as_bytes()), "{other}");
        }
    }
}
