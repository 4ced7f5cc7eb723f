//! The container around a plugin's serialized executable.
//!
//! A plugin loads most damaged bytes without an error and then runs them or aborts. The container protects it: magic,
//! SHA-256 of all that follows, the producer, the launch's size, the parameters (which the plugin does not check), the
//! plugin's bytes. Numbers are little-endian. No length is trusted before the checksum has been verified.

use std::sync::Arc;

use sha2::{Digest, Sha256};

use crate::bindings::PJRT_Buffer_Type;
use crate::client::Client;
use crate::executable::spec_from_raw;
use crate::plugin::Plugin;
use crate::tensor_spec::TensorSpec;

/// Changes with the container's format.
const MAGIC: &[u8; 8] = b"BTPJRT\x00\x01";
const DIGEST_BYTES: usize = 32;

/// The contents of a container.
#[derive(Debug)]
pub(crate) struct Contents<'a> {
    /// The plugin, versions and processor that wrote it.
    pub(crate) producer: String,
    pub(crate) portable: bool,
    /// Replicas times partitions.
    pub(crate) launch_size: usize,
    pub(crate) parameters: Arc<[Arc<TensorSpec>]>,
    /// The plugin's own bytes.
    pub(crate) payload: &'a [u8],
}

/// Returns a line that identifies where the bytes can be loaded: equal lines mean that they can, as far as is visible from
/// outside the plugin.
pub(crate) fn producer(plugin: Plugin, platform: &str) -> String {
    let mut attributes: Vec<String> =
        plugin.attributes().iter().map(|(name, value)| format!("{name}={value}")).collect();
    attributes.sort();
    let mut line = format!("{platform}; PJRT {}; {}", plugin.version(), attributes.join("; "));
    if platform == "cpu" {
        // The bytes hold machine code for this processor's instruction set.
        line.push_str(&format!("; processor {}", processor()));
    }
    line
}

/// Returns a digest of the host processor's kind and instruction sets, on which machine code for it depends.
///
/// On a system without `/proc/cpuinfo` it distinguishes architectures only.
pub fn processor() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let mut digest = Sha256::new();
    digest.update(std::env::consts::ARCH);
    for name in ["vendor_id", "cpu family", "model\t", "flags", "Features", "CPU part"] {
        digest.update(info.lines().find(|line| line.starts_with(name)).unwrap_or_default());
    }
    digest.finalize()[..8].iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Checks that this client may load the contents.
pub(crate) fn check_producer(contents: &Contents<'_>, client: &Client) -> Result<(), String> {
    let ours = producer(client.plugin(), client.platform_name());
    if contents.producer != ours {
        return Err(format!("written by [{}], this is [{ours}]", contents.producer));
    }
    let devices = client.all_devices().count();
    if contents.launch_size > devices {
        return Err(format!("it runs on {} devices, there are {devices}", contents.launch_size));
    }
    Ok(())
}

pub(crate) fn pack(contents: &Contents<'_>) -> Vec<u8> {
    let mut body = Vec::with_capacity(contents.payload.len() + contents.producer.len() + 64);
    put_bytes(&mut body, contents.producer.as_bytes());
    body.push(u8::from(contents.portable));
    put(&mut body, contents.launch_size as u64);
    put(&mut body, contents.parameters.len() as u64);
    for spec in contents.parameters.iter() {
        put(&mut body, u64::from(spec.element_type().to_raw()));
        put(&mut body, spec.dims().len() as u64);
        spec.dims().iter().for_each(|&dim| put(&mut body, dim as u64));
    }
    put_bytes(&mut body, contents.payload);
    let mut bytes = Vec::with_capacity(MAGIC.len() + DIGEST_BYTES + body.len());
    bytes.extend_from_slice(MAGIC);
    bytes.extend_from_slice(&Sha256::digest(&body));
    bytes.extend_from_slice(&body);
    bytes
}

pub(crate) fn unpack(bytes: &[u8]) -> Result<Contents<'_>, String> {
    let rest = bytes.strip_prefix(MAGIC).ok_or("it does not start with this version's magic")?;
    let (digest, body) = rest.split_at_checked(DIGEST_BYTES).ok_or("it is cut short")?;
    if Sha256::digest(body).as_slice() != digest {
        return Err("its checksum is wrong".into());
    }
    parse(&mut Reader(body)).ok_or_else(|| "its checksum is right but its content does not parse".into())
}

fn parse<'a>(reader: &mut Reader<'a>) -> Option<Contents<'a>> {
    let producer = String::from_utf8(reader.bytes()?.to_vec()).ok()?;
    let portable = reader.take(1)? == [1];
    let launch_size = usize::try_from(reader.number()?).ok()?;
    let count = reader.number()?;
    let parameters = (0..count).map(|_| parse_spec(reader)).collect::<Option<Vec<_>>>()?;
    let payload = reader.bytes()?;
    reader.0.is_empty().then_some(Contents { producer, portable, launch_size, parameters: parameters.into(), payload })
}

fn parse_spec(reader: &mut Reader<'_>) -> Option<Arc<TensorSpec>> {
    let raw = PJRT_Buffer_Type::try_from(reader.number()?).ok()?;
    let rank = reader.number()?;
    let dims = (0..rank).map(|_| reader.number().map(|dim| dim as i64)).collect::<Option<Vec<_>>>()?;
    spec_from_raw("Client::load_serialized", raw, &dims).ok().map(Arc::new)
}

fn put(out: &mut Vec<u8>, number: u64) {
    out.extend_from_slice(&number.to_le_bytes());
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn number(&mut self) -> Option<u64> {
        self.take(8)?.try_into().ok().map(u64::from_le_bytes)
    }

    fn bytes(&mut self) -> Option<&'a [u8]> {
        let count = usize::try_from(self.number()?).ok()?;
        self.take(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::element_type::ElementType;

    fn packed() -> Vec<u8> {
        let parameters = [TensorSpec::new(ElementType::F32, [2, 3]), TensorSpec::new(ElementType::Pred, [])];
        let parameters = parameters.into_iter().map(|spec| Arc::new(spec.unwrap())).collect();
        let producer = "cpu; PJRT 0.81".to_owned();
        pack(&Contents { producer, portable: true, launch_size: 4, parameters, payload: b"machine code" })
    }

    #[test]
    fn contents_survive() {
        let bytes = packed();
        let contents = unpack(&bytes).unwrap();
        assert_eq!((contents.producer.as_str(), contents.portable, contents.launch_size), ("cpu; PJRT 0.81", true, 4));
        assert_eq!(contents.parameters[0].to_string(), "f32[2, 3]");
        assert_eq!(contents.parameters[1].to_string(), "i1[]");
        assert_eq!(contents.payload, b"machine code");
    }

    #[test]
    fn every_flipped_bit_and_every_truncation_is_detected() {
        let bytes = packed();
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(unpack(&damaged).is_err(), "bit {bit}");
        }
        for length in 0..bytes.len() {
            assert!(unpack(&bytes[..length]).is_err(), "truncated to {length}");
        }
        assert!(unpack(&[&bytes[..], b"more"].concat()).is_err());
    }

    #[test]
    fn invalid_content_with_a_right_checksum_is_refused() {
        let mut bytes = packed();
        let body = [&[255u8; 8][..], b"x"].concat();
        bytes.truncate(MAGIC.len());
        bytes.extend_from_slice(&Sha256::digest(&body));
        bytes.extend_from_slice(&body);
        assert!(unpack(&bytes).unwrap_err().contains("does not parse"));
    }
}
