//! Which Burn ops the instructions of compiled programs are. Plugins put the programs that ran into the plane
//! `/host:metadata`, each as a serialized `HloProto`; the text of a program gave each op its Burn op as location, which XLA
//! keeps as the `op_name` of the instruction that it becomes a part of.
//!
//! The messages have the few fields that are read. Their numbers are those of XLA's `hlo.proto` and `xla_data.proto`.

use crate::names;
use crate::view::find;
use crate::xspace::{StatValue, XEventMetadata, XPlane, XSpace};
use prost::Message;
use std::collections::HashMap;

/// The plane of the programs that ran.
const PLANE: &str = "/host:metadata";

#[derive(Clone, PartialEq, Message)]
struct HloProto {
    #[prost(message, optional, tag = "1")]
    module: Option<Module>,
}

#[derive(Clone, PartialEq, Message)]
struct Module {
    #[prost(message, repeated, tag = "3")]
    computations: Vec<Computation>,
}

#[derive(Clone, PartialEq, Message)]
struct Computation {
    #[prost(message, repeated, tag = "2")]
    instructions: Vec<Instruction>,
}

#[derive(Clone, PartialEq, Message)]
struct Instruction {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(message, optional, tag = "7")]
    metadata: Option<OpMetadata>,
}

#[derive(Clone, PartialEq, Message)]
struct OpMetadata {
    #[prost(string, tag = "2")]
    op_name: String,
}

/// The Burn ops of instructions, by the program's number and the instruction's name, in which dots are underscores: the
/// CUDA plugin names kernels so.
#[derive(Default)]
pub(crate) struct HloOps(HashMap<u64, HashMap<String, String>>);

impl HloOps {
    /// Reads the programs in a profile. What is no program is skipped.
    pub(crate) fn of(space: &XSpace) -> Self {
        let planes = space.planes.iter().filter(|plane| plane.name == PLANE);
        let of = |plane: &XPlane, id: i64, program: &XEventMetadata| {
            let number = find(plane, &program.stats, names::PROGRAM).and_then(|number| id_of(&number));
            (number.unwrap_or(id as u64), ops(program))
        };
        let programs = planes.flat_map(|plane| plane.event_metadata.iter().map(move |(&id, kind)| of(plane, id, kind)));
        Self(programs.collect())
    }

    /// Returns the Burn op of an instruction of a program.
    pub(crate) fn get(&self, program: &str, instruction: &str) -> Option<&str> {
        let op = self.0.get(&id_of(program)?)?.get(&instruction.replace('.', "_"))?;
        (!op.is_empty()).then_some(op)
    }
}

/// Returns the number of a program. Numbers above 2^63 are written as negative ones by some profilers.
fn id_of(program: &str) -> Option<u64> {
    program.parse::<u64>().ok().or_else(|| program.parse::<i64>().ok().map(i64::cast_unsigned))
}

fn ops(program: &XEventMetadata) -> HashMap<String, String> {
    let in_stats = program.stats.iter().find_map(|stat| match &stat.value {
        Some(StatValue::Bytes(bytes)) => Some(bytes),
        _ => None,
    });
    let module = HloProto::decode(in_stats.unwrap_or(&program.metadata).as_slice()).ok().and_then(|hlo| hlo.module);
    let instructions =
        module.into_iter().flat_map(|module| module.computations).flat_map(|computation| computation.instructions);
    let named = instructions
        .filter_map(|instruction| Some((instruction.name.replace('.', "_"), instruction.metadata?.op_name)));
    named.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::xspace::{XStat, XStatMetadata};

    #[test]
    fn an_instruction_of_a_program_has_its_op_name() {
        let metadata = Some(OpMetadata { op_name: "float_matmul".into() });
        let named = Instruction { name: "dot.3".into(), metadata };
        let plain = Instruction { name: "copy.1".into(), metadata: None };
        let module = Some(Module { computations: vec![Computation { instructions: vec![named, plain] }] });
        let bytes = HloProto { module }.encode_to_vec();
        let stat = XStat { metadata_id: 1, value: Some(StatValue::Bytes(bytes)) };
        let program = XEventMetadata { id: -2, stats: vec![stat], ..XEventMetadata::default() };
        let plane = XPlane { name: PLANE.into(), event_metadata: [(-2, program)].into(), ..XPlane::default() };
        let ops = HloOps::of(&XSpace { planes: vec![plane], ..XSpace::default() });
        for id in ["-2", "18446744073709551614"] {
            assert_eq!((ops.get(id, "dot.3"), ops.get(id, "copy.1")), (Some("float_matmul"), None));
        }
        assert_eq!((ops.get("7", "dot.3"), ops.get("no number", "dot.3")), (None, None));
    }

    #[test]
    fn the_cuda_plugin_numbers_programs_in_a_statistic_and_names_kernels_with_underscores() {
        let metadata = Some(OpMetadata { op_name: "cast".into() });
        let named = Instruction { name: "loop_convert_fusion.1".into(), metadata };
        let module = Some(Module { computations: vec![Computation { instructions: vec![named] }] });
        let value =
            |value| XStat { metadata_id: if matches!(value, StatValue::Bytes(_)) { 4 } else { 5 }, value: Some(value) };
        let stats =
            vec![value(StatValue::Bytes(HloProto { module }.encode_to_vec())), value(StatValue::Unsigned(99_249))];
        let program = XEventMetadata { id: 2, stats, ..XEventMetadata::default() };
        let number = XStatMetadata { id: 5, name: names::PROGRAM.into(), ..XStatMetadata::default() };
        let plane = XPlane {
            name: PLANE.into(),
            event_metadata: [(2, program)].into(),
            stat_metadata: [(5, number)].into(),
            ..XPlane::default()
        };
        let ops = HloOps::of(&XSpace { planes: vec![plane], ..XSpace::default() });
        assert_eq!(
            (ops.get("99249", "loop_convert_fusion_1"), ops.get("2", "loop_convert_fusion_1")),
            (Some("cast"), None)
        );
    }
}
