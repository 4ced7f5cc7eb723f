//! Every op of the corpus on a mesh of two CPU devices, with operands split on dims that divide, against one device. The
//! cases of a family are one program, and each is split on another dim: a pass moves all of them to their next dim, and
//! the long mode has as many passes as there are dims.

use crate::common::{self, programs};
use crate::placed::Split;
use burn_tpu_graph::corpus::{self, Case};
use burn_tpu_graph::{Number, Program, TensorType};
use burn_tpu_pjrt::{Client, ClientOptions};

const PARTS: usize = 2;

/// Returns elements of both signs, and zeros.
fn numbers(ty: &TensorType, first: usize) -> Vec<u8> {
    let floats = [0.5, -2.0, 1.0, -0.75, 0.0, 3.0, -1.0, 2.5, -0.25, -3.5, 1.5];
    let bits = |i: usize| match ty.dtype {
        dtype if dtype.is_float() => Number::Float(floats[i % floats.len()]).bits(dtype),
        burn_tpu_graph::DType::Bool => (i / 2 % 2) as u64,
        dtype => Number::Int([1, 2, 0, 3, 5, 4, 7][i % 7]).bits(dtype),
    };
    (0..ty.elements()).flat_map(|i| bits(first + 5 * i).to_le_bytes()[..ty.dtype.size_bytes()].to_vec()).collect()
}

/// The cases of one family as a program, with its arguments and its results on one device.
struct Family {
    cases: Vec<Case>,
    program: Program,
    parameters: Vec<Vec<u8>>,
    slots: Vec<u64>,
    expected: Vec<Vec<u8>>,
}

impl Family {
    fn new(client: &Client, cases: Vec<Case>) -> Self {
        let program = corpus::merge(&cases).unwrap();
        let mut parameters = vec![Vec::new(); program.parameters().map(|(i, _)| i as usize + 1).max().unwrap_or(0)];
        program.parameters().for_each(|(i, ty)| parameters[i as usize] = numbers(ty, i as usize));
        let mut slots = vec![0; program.slots().map(|(_, index, _)| index as usize + 1).max().unwrap_or(0)];
        program.slots().for_each(|(_, i, dtype)| slots[i as usize] = Number::Int(i64::from(i) % 2).bits(dtype));
        let quick = programs::cpu_options().set("xla_backend_optimization_level", 0);
        let one = programs::compile(client, &program, &quick).unwrap();
        let expected = one.run(&parameters, &slots).unwrap();
        Self { cases, program, parameters, slots, expected }
    }

    /// Returns the dim on which a pass splits the operands and the results of each case.
    fn dims(&self, pass: usize) -> Vec<usize> {
        let rank = |case: &Case| case.program.parameters().map(|(_, ty)| ty.rank()).max().unwrap_or(0).max(1);
        self.cases.iter().enumerate().map(|(at, case)| (at + pass) % rank(case)).collect()
    }

    /// Returns the number of parameters that are split, of those that `is_split` picks, and what differs from one device
    /// when they are.
    fn differences(&self, client: &Client, pass: usize, is_split: impl Fn(u32) -> bool) -> (usize, String) {
        let (mut parameters, mut results) = (Vec::new(), Vec::new());
        for (case, dim) in self.cases.iter().zip(self.dims(pass)) {
            let count = case.program.parameters().map(|(index, _)| index as usize + 1).max().unwrap_or(0);
            parameters.extend(std::iter::repeat_n(dim, count));
            results.extend(case.program.outputs().iter().map(|_| dim));
        }
        let parameter = |index: u32| is_split(index).then(|| parameters[index as usize]);
        let result = |position: usize| position.is_multiple_of(2).then(|| results[position]);
        let Some(placed) = Split::of(&self.program, PARTS, parameter, result) else { return (0, String::new()) };
        let split = placed.operands();
        let found = match placed.compile(client).and_then(|compiled| compiled.run(&self.parameters, &self.slots)) {
            Ok(found) => found,
            Err(error) => return (split, format!("{}, …, pass {pass}: {error}\n", self.cases[0].name)),
        };
        let names = self.cases.iter().flat_map(|case| case.program.outputs().iter().map(|_| &case.name));
        let mut report = String::new();
        let results = self.program.output_types().zip(&found).zip(&self.expected);
        for (name, ((ty, found), expected)) in names.zip(results) {
            if !programs::agree(ty.dtype, found, expected) {
                report += &format!("{name}, pass {pass}: {ty}: mesh {found:?}, one device {expected:?}\n");
            }
        }
        (split, report)
    }
}

#[test]
fn the_corpus_agrees_with_one_device() {
    let Some(plugin) = programs::cpu_plugin() else { return };
    let client = Client::new(plugin, &ClientOptions::cpu(PARTS).unwrap()).unwrap();
    let passes = if common::is_long() { 4 } else { 2 };
    let (mut split, mut report) = (0, String::new());
    for (name, members) in corpus::by_family(corpus::cases().unwrap()) {
        // The CPU plugin does not transform a dim that is split: on a mesh of it, the host does (`tests/mesh/training.rs`).
        if name == "fft" {
            continue;
        }
        let family = Family::new(&client, members);
        for pass in 0..passes {
            let picks = [("all", 0..2), ("even", 0..1), ("odd", 1..2)];
            for (pick, is_split) in picks.into_iter().take(if common::is_long() { 3 } else { 1 }) {
                let (count, found) = family.differences(&client, pass, |index| is_split.contains(&(index % 2)));
                split += count;
                if !found.is_empty() {
                    report += &format!("{name}, {pick} parameters: {found}");
                }
            }
        }
    }
    assert!(report.is_empty(), "{report}");
    assert!(split > 500, "only {split} operands were split");
}
