//! Compile options, encoded by hand as the protobuf message that plugins take (XLA: `CompileOptionsProto`).
//!
//! The encoding is never empty: the CPU plugin aborts the process on empty options and on a partition count below 1.

use std::collections::BTreeMap;

use crate::error::{PjrtError, Result};

/// The value of a per-program XLA option.
#[derive(Clone, Debug, PartialEq)]
pub enum OverrideValue {
    /// Text; enum options take this form too.
    String(String),
    /// A boolean.
    Bool(bool),
    /// An integer.
    Int(i64),
    /// A float.
    Double(f64),
}

impl From<&str> for OverrideValue {
    fn from(value: &str) -> Self {
        OverrideValue::String(value.to_owned())
    }
}

impl From<String> for OverrideValue {
    fn from(value: String) -> Self {
        OverrideValue::String(value)
    }
}

impl From<bool> for OverrideValue {
    fn from(value: bool) -> Self {
        OverrideValue::Bool(value)
    }
}

impl From<i64> for OverrideValue {
    fn from(value: i64) -> Self {
        OverrideValue::Int(value)
    }
}

impl From<f64> for OverrideValue {
    fn from(value: f64) -> Self {
        OverrideValue::Double(value)
    }
}

/// The compiler's optimization effort (XLA: `ExecutableBuildOptionsProto.optimization_level`). It has no effect on the
/// CPU plugin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OptimizationLevel {
    /// The least effort.
    O0,
    /// Little effort.
    O1,
    /// The compiler's default effort.
    O2,
    /// The most effort.
    O3,
}

impl OptimizationLevel {
    fn number(self) -> u64 {
        match self {
            OptimizationLevel::O0 => 9,
            OptimizationLevel::O1 => 19,
            OptimizationLevel::O2 => 29,
            OptimizationLevel::O3 => 39,
        }
    }
}

/// Options for compiling one program. The default is a program for one device.
#[derive(Clone, Debug, PartialEq)]
pub struct CompileOptions {
    replicas: usize,
    partitions: usize,
    shardy: bool,
    portable: bool,
    /// Device ids, as `[replica][partition]`.
    assignment: Option<Vec<Vec<i32>>>,
    optimization: Option<OptimizationLevel>,
    memory_fitting: Option<OptimizationLevel>,
    /// Sorted, so that equal options have equal bytes.
    overrides: BTreeMap<String, OverrideValue>,
}

impl Default for CompileOptions {
    fn default() -> Self {
        CompileOptions {
            replicas: 1,
            partitions: 1,
            shardy: false,
            portable: false,
            assignment: None,
            optimization: None,
            memory_fitting: None,
            overrides: BTreeMap::new(),
        }
    }
}

impl CompileOptions {
    /// Sets the number of devices that run the same program, each with its own data.
    pub fn replicas(mut self, replicas: usize) -> Self {
        self.replicas = replicas;
        self
    }

    /// Sets the number of devices that the program is split over (SPMD partitioning is on when it is above 1).
    pub fn partitions(mut self, partitions: usize) -> Self {
        self.partitions = partitions;
        self
    }

    /// Sets whether shardings are written in the `sdy` dialect instead of `mhlo.sharding` attributes.
    pub fn shardy(mut self, shardy: bool) -> Self {
        self.shardy = shardy;
        self
    }

    /// Sets whether the program is compiled for no device in particular: each execute call then names its device.
    pub fn portable(mut self, portable: bool) -> Self {
        self.portable = portable;
        self
    }

    /// Sets the devices to run on, as `[replica][partition]` of [`Device::id`](crate::Device::id).
    pub fn device_assignment(mut self, ids: Vec<Vec<i32>>) -> Self {
        self.assignment = Some(ids);
        self
    }

    /// Sets the compiler's optimization effort.
    pub fn optimization_level(mut self, level: OptimizationLevel) -> Self {
        self.optimization = Some(level);
        self
    }

    /// Sets the compiler's effort to fit the program into memory.
    pub fn memory_fitting_level(mut self, level: OptimizationLevel) -> Self {
        self.memory_fitting = Some(level);
        self
    }

    /// Sets an XLA option, such as `xla_dump_to`, for this program alone. The name has no leading dashes. A name that
    /// the plugin does not know makes the compilation fail with an error.
    pub fn set(mut self, name: impl Into<String>, value: impl Into<OverrideValue>) -> Self {
        self.overrides.insert(name.into(), value.into());
        self
    }

    /// Returns the number of devices of one launch: replicas times partitions.
    pub fn launch_size(&self) -> usize {
        self.replicas.saturating_mul(self.partitions)
    }

    pub(crate) fn is_portable(&self) -> bool {
        self.portable
    }

    /// Returns the bytes of the protobuf message. Equal options have equal bytes, so the bytes can be part of a cache
    /// key.
    ///
    /// # Errors
    /// [`PjrtError::CompileOptions`] for counts below 1 or too large, an assignment of the wrong shape, a portable
    /// program for several devices, or an option without a name.
    pub fn encode(&self) -> Result<Vec<u8>> {
        self.check().map_err(|reason| PjrtError::CompileOptions { reason })?;
        let mut message = Message::default();
        message.message(3, &self.build_options());
        if self.portable {
            message.varint(4, 1);
        }
        for (name, value) in &self.overrides {
            let mut entry = Message::default();
            entry.bytes(1, name.as_bytes());
            entry.message(2, &override_value(value));
            message.message(7, &entry);
        }
        Ok(message.0)
    }

    /// Same as [`encode`](Self::encode), for a client or a topology with these device ids.
    pub(crate) fn encode_for(&self, device_ids: &[i32]) -> Result<Vec<u8>> {
        let bytes = self.encode()?;
        let refuse = |reason| Err(PjrtError::CompileOptions { reason });
        if self.launch_size() > device_ids.len() {
            let (needed, have) = (self.launch_size(), device_ids.len());
            return refuse(format!("replicas x partitions is {needed}, but there are {have} devices"));
        }
        let unknown = self.assignment.iter().flatten().flatten().find(|id| !device_ids.contains(id));
        unknown.map_or(Ok(bytes), |id| refuse(format!("the device assignment names device {id}, which does not exist")))
    }

    fn check(&self) -> Result<(), String> {
        if self.replicas == 0 || self.partitions == 0 {
            return Err(format!(
                "{} replicas and {} partitions: each must be at least 1",
                self.replicas, self.partitions
            ));
        }
        if self.launch_size() > i32::MAX as usize {
            return Err("replicas x partitions overflows".into());
        }
        if self.portable && (self.launch_size() > 1 || self.assignment.is_some()) {
            return Err("a portable program is for one device, named at each call".into());
        }
        if self.overrides.keys().any(|name| name.is_empty()) {
            return Err("an option has no name".into());
        }
        let shaped =
            |ids: &Vec<Vec<i32>>| ids.len() == self.replicas && ids.iter().all(|row| row.len() == self.partitions);
        if self.assignment.as_ref().is_some_and(|ids| !shaped(ids)) {
            return Err(format!("the device assignment must be {} rows of {} ids", self.replicas, self.partitions));
        }
        Ok(())
    }

    /// Encodes `ExecutableBuildOptionsProto`: 4 replicas, 5 partitions, 6 SPMD, 9 assignment, 19 Shardy, 24 and 25
    /// levels.
    fn build_options(&self) -> Message {
        let mut build = Message::default();
        build.varint(4, self.replicas as u64);
        build.varint(5, self.partitions as u64);
        if self.partitions > 1 {
            build.varint(6, 1);
        }
        if let Some(ids) = &self.assignment {
            build.message(9, &self.assignment_message(ids));
        }
        if self.shardy {
            build.varint(19, 1);
        }
        if let Some(level) = self.optimization {
            build.varint(24, level.number());
        }
        if let Some(level) = self.memory_fitting {
            build.varint(25, level.number());
        }
        build
    }

    /// Encodes `DeviceAssignmentProto`: 1 replicas, 2 computations, 3 per computation the ids of all replicas (1,
    /// packed).
    fn assignment_message(&self, ids: &[Vec<i32>]) -> Message {
        let mut assignment = Message::default();
        assignment.varint(1, self.replicas as u64);
        assignment.varint(2, self.partitions as u64);
        for partition in 0..self.partitions {
            let mut packed = Message::default();
            ids.iter().for_each(|row| packed.raw_varint(i64::from(row[partition]) as u64));
            let mut computation = Message::default();
            computation.message(1, &packed);
            assignment.message(3, &computation);
        }
        assignment
    }
}

/// Encodes `OptionOverrideProto`: a oneof of 1 string, 2 bool, 3 int, 4 double.
fn override_value(value: &OverrideValue) -> Message {
    let mut message = Message::default();
    match value {
        OverrideValue::String(text) => message.bytes(1, text.as_bytes()),
        OverrideValue::Bool(value) => message.varint(2, u64::from(*value)),
        OverrideValue::Int(value) => message.varint(3, *value as u64),
        OverrideValue::Double(value) => message.fixed64(4, value.to_bits()),
    }
    message
}

/// A protobuf message under construction, with its fields in the order of the calls.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn raw_varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    fn varint(&mut self, field: u64, value: u64) {
        self.raw_varint(field << 3);
        self.raw_varint(value);
    }

    fn fixed64(&mut self, field: u64, bits: u64) {
        self.raw_varint(field << 3 | 1);
        self.0.extend_from_slice(&bits.to_le_bytes());
    }

    fn bytes(&mut self, field: u64, bytes: &[u8]) {
        self.raw_varint(field << 3 | 2);
        self.raw_varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    fn message(&mut self, field: u64, message: &Message) {
        self.bytes(field, &message.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encoding_matches_bytes_that_are_known_to_work() {
        let encoded = |options: CompileOptions| options.encode().unwrap();
        let one = [0x1A, 0x04, 0x20, 0x01, 0x28, 0x01];
        assert_eq!(encoded(CompileOptions::default()), one);
        assert_eq!(encoded(CompileOptions::default().replicas(4)), [0x1A, 0x04, 0x20, 0x04, 0x28, 0x01]);
        let spmd = [0x1A, 0x06, 0x20, 0x01, 0x28, 0x04, 0x30, 0x01];
        assert_eq!(encoded(CompileOptions::default().partitions(4)), spmd);
        let shardy = [0x1A, 0x09, 0x20, 0x01, 0x28, 0x04, 0x30, 0x01, 0x98, 0x01, 0x01];
        assert_eq!(encoded(CompileOptions::default().partitions(4).shardy(true)), shardy);
        assert_eq!(encoded(CompileOptions::default().portable(true)), [&one[..], &[0x20, 0x01]].concat());
    }

    #[test]
    fn overrides_of_every_type_are_written_in_name_order() {
        let options = CompileOptions::default().set("d", 1.0).set("c", -1).set("b", true).set("a", "x");
        let bytes = options.encode().unwrap();
        let expected = [
            &[0x3A, 0x08, 0x0A, 1, b'a', 0x12, 3, 0x0A, 1, b'x'][..],
            &[0x3A, 0x07, 0x0A, 1, b'b', 0x12, 2, 0x10, 1],
            &[0x3A, 0x10, 0x0A, 1, b'c', 0x12, 11, 0x18, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1],
            &[0x3A, 0x0E, 0x0A, 1, b'd', 0x12, 9, 0x21, 0, 0, 0, 0, 0, 0, 0xF0, 0x3F],
        ];
        assert_eq!(bytes[6..], expected.concat());
    }

    #[test]
    fn an_assignment_is_written_per_computation() {
        let options = CompileOptions::default().replicas(2).device_assignment(vec![vec![3], vec![200]]);
        let expected = [0x1A, 0x11, 0x20, 2, 0x28, 1, 0x4A, 0x0B, 8, 2, 16, 1, 0x1A, 5, 0x0A, 3, 3, 0xC8, 1];
        assert_eq!(options.encode().unwrap(), expected);
    }

    #[test]
    fn options_that_crash_or_confuse_a_plugin_are_refused() {
        let refused = [
            CompileOptions::default().partitions(0),
            CompileOptions::default().replicas(0),
            CompileOptions::default().replicas(usize::MAX).partitions(2),
            CompileOptions::default().replicas(1 << 31),
            CompileOptions::default().portable(true).replicas(2),
            CompileOptions::default().device_assignment(vec![vec![0, 1]]),
            CompileOptions::default().set("", true),
        ];
        for options in refused {
            let error = options.encode().unwrap_err();
            assert!(matches!(error, PjrtError::CompileOptions { .. }), "{options:?}: {error}");
        }
    }

    #[test]
    fn a_launch_must_fit_the_devices() {
        assert!(CompileOptions::default().replicas(4).encode_for(&[0, 1]).is_err());
        assert!(CompileOptions::default().encode_for(&[]).is_err());
        assert!(CompileOptions::default().device_assignment(vec![vec![7]]).encode_for(&[0, 1]).is_err());
        assert!(CompileOptions::default().device_assignment(vec![vec![1]]).encode_for(&[0, 1]).is_ok());
    }
}
