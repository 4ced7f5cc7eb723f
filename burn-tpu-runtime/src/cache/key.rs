//! What a compiled program on disk depends on: named parts in a fixed order, so that a miss can say which one differs.
//!
//! Owns the list and its two written forms, a file's name and a file's head. May not know: files, plugins.

use sha2::{Digest, Sha256};

/// Changes with the form of the files.
const FORM: &str = "burn-tpu program, form 1";

/// Everything around a program that its machine code depends on. The same for all programs of a device.
#[derive(Clone, Debug, Default)]
pub(crate) struct CompileEnvironment {
    /// `CompileOptions`, encoded: device assignment and XLA options.
    pub(crate) compile_options: Vec<u8>,
    /// Environment variables that a compiler reads, as `NAME=value` lines.
    pub(crate) flags: String,
    /// The platform's name and its version in the plugin's words, which hold libtpu's build date.
    pub(crate) platform: String,
    /// The plugin's file: name, size, time of change.
    pub(crate) plugin: String,
    /// Version of the C API and what the plugin says of its XLA and StableHLO.
    pub(crate) interface: String,
    /// All devices of the client: ids, kinds, attributes.
    pub(crate) devices: String,
    /// The host's processor, where the machine code is for it.
    pub(crate) host: String,
    /// The version of the GPU's driver, on CUDA.
    pub(crate) driver: String,
    /// The files of cuDNN, cuBLAS and the like, on CUDA: name, size, time of change.
    pub(crate) libraries: String,
}

/// The identity of a compiled program on disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Key(Vec<(&'static str, [u8; 32])>);

impl CompileEnvironment {
    /// The key of a program: the hash of its graph and that of its text, which also changes when the lowering does.
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
    /// What the name of every file of the same graph starts with.
    pub(crate) fn family(&self) -> String {
        hex(&self.0[0].1[..8])
    }

    /// `<family>-<hash of all parts>.program`
    pub(crate) fn file_name(&self) -> String {
        let mut digest = Sha256::new();
        self.0.iter().for_each(|(_, hash)| digest.update(hash));
        format!("{}-{}.program", self.family(), hex(&digest.finalize()[..16]))
    }

    /// What its file starts with: a line for the form, a line per part, an empty line.
    pub(crate) fn head(&self) -> String {
        let parts: String = self.0.iter().map(|(name, hash)| format!("{name} {}\n", hex(hash))).collect();
        format!("{FORM}\n{parts}\n")
    }

    /// The parts that differ from those in a file's head.
    pub(crate) fn differing(&self, head: &str) -> Vec<&'static str> {
        let same = |name: &str, hash: &[u8]| head.lines().any(|line| line == format!("{name} {}", hex(hash)));
        self.0.iter().filter(|(name, hash)| !same(name, hash)).map(|(name, _)| *name).collect()
    }
}

/// Whether a file's head is of this form.
pub(crate) fn is_of_our_form(head: &[u8]) -> bool {
    head.strip_prefix(FORM.as_bytes()).is_some_and(|rest| rest.starts_with(b"\n"))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_changes_the_key_and_is_named() {
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
        // The one part that a test cannot change is the crate's own version.
        assert_eq!(whole.0.len(), cases.len() + 1);
        assert!(whole.differing(&whole.head()).is_empty());
    }

    #[test]
    fn a_head_of_another_form_is_told() {
        let head = CompileEnvironment::default().key([1; 32], [2; 32]).head();
        assert!(is_of_our_form(head.as_bytes()));
        for other in [head.replace("form 1", "form 2"), head.replace("form 1", "form 10"), String::new()] {
            assert!(!is_of_our_form(other.as_bytes()), "{other}");
        }
    }
}
