//! Runs a program with its inputs on both engines.

use super::builder::{Builder, Choices};
use super::common::programs;
use super::recipe::{Recipe, rule};
use burn_tpu_graph::corpus::{self, Case};
use burn_tpu_graph::lower::{LowerOptions, Lowered, lower_with};
use burn_tpu_graph::{DType, Program, TensorType};
use burn_tpu_pjrt::Client;

/// A program with its inputs, and the largest allowed difference of each output.
pub struct Trial {
    pub program: Program,
    pub parameters: Vec<Vec<u8>>,
    pub slots: Vec<u64>,
    pub errors: Vec<f64>,
}

impl Trial {
    pub fn new(recipe: &Recipe) -> Self {
        let mut builder = Builder::default();
        for (number, step) in recipe.steps.iter().enumerate() {
            if let Err(error) = rule(step.op)(&mut builder, &mut Choices::new(step)) {
                panic!("step {number} of {recipe:?} broke a rule of the graph: {error}");
            }
        }
        let (mut parameters, mut slots) = (std::mem::take(&mut builder.parameters), std::mem::take(&mut builder.slots));
        let (program, errors) = builder.finish(&recipe.outputs).unwrap();
        // Keep as many as a merged program has, up to the highest index in use.
        parameters.truncate(program.parameters().map(|(index, _)| index as usize + 1).max().unwrap_or(0));
        slots.truncate(program.slots().map(|(_, index, _)| index as usize + 1).max().unwrap_or(0));
        Self { program, parameters, slots, errors }
    }

    /// Returns the program and its inputs as text.
    pub fn described(&self) -> String {
        let mut text = format!("{}slots = {:?}\n", self.program, self.slots);
        for (index, ty) in self.program.parameters() {
            let bytes = &self.parameters[index as usize];
            let floats = if ty.dtype.is_float() {
                format!("{:?}", programs::floats(ty.dtype, bytes))
            } else {
                format!("bytes {bytes:?}")
            };
            text += &format!("parameter {index} = {floats}\n");
        }
        text
    }

    /// Describes the first wrong output of the plugin, if any.
    pub fn mismatch(&self, found: &[Vec<u8>]) -> Option<String> {
        let expected =
            burn_tpu_runtime::testing::interpret_program(&self.program, &self.parameters, &self.slots).unwrap();
        assert_eq!((found.len(), expected.len()), (self.errors.len(), self.errors.len()));
        let outputs = self.program.output_types().zip(&self.errors).zip(found.iter().zip(&expected)).enumerate();
        let wrong = outputs.filter_map(|(i, ((ty, &error), (found, expected)))| {
            difference(ty, error, found, expected).map(|difference| format!("output {i} ({ty}) {difference}"))
        });
        let wrong: Vec<String> = wrong.collect();
        (!wrong.is_empty()).then(|| wrong.join("\n"))
    }
}

/// Describes the first element that differs by more than `error`, or at all for a type without fractions.
fn difference(ty: &TensorType, error: f64, found: &[u8], expected: &[u8]) -> Option<String> {
    assert_eq!((found.len(), expected.len()), (ty.bytes(), ty.bytes()));
    if !ty.dtype.is_float() {
        let size = ty.dtype.size_bytes();
        let mut pairs = found.chunks(size).zip(expected.chunks(size)).enumerate();
        let (at, (found, expected)) = pairs.find(|(_, (found, expected))| found != expected)?;
        return Some(format!("at {at}: bytes {found:?} of the plugin, {expected:?} of the interpreter"));
    }
    let near = |f: f64, e: f64| f == e || (f.is_nan() && e.is_nan()) || (f - e).abs() <= error;
    let floats = |bytes: &[u8]| programs::floats(ty.dtype, bytes).into_iter();
    let (at, (found, expected)) = floats(found).zip(floats(expected)).enumerate().find(|&(_, (f, e))| !near(f, e))?;
    Some(format!("at {at}: plugin {found}, interpreter {expected}, which may differ by {error:e}"))
}

/// The CPU plugin with the unmodified lowering, or with a fault: one text of the lowering replaced by another.
pub struct Plugin {
    pub client: Client,
    pub fault: Option<(&'static str, &'static str)>,
}

impl Plugin {
    /// Runs all trials as one program and returns the disagreements of each with the interpreter.
    pub fn disagreements(&self, trials: &[Trial]) -> Result<Vec<Option<String>>, String> {
        let outputs = self.run(trials)?;
        Ok(trials.iter().zip(outputs).map(|(trial, found)| trial.mismatch(&found)).collect())
    }

    /// Runs all trials as one program and returns the results of each.
    pub fn run(&self, trials: &[Trial]) -> Result<Vec<Vec<Vec<u8>>>, String> {
        let cases: Vec<Case> =
            trials.iter().map(|trial| Case { name: String::new(), program: trial.program.clone() }).collect();
        let parameters: Vec<Vec<u8>> = trials.iter().flat_map(|trial| trial.parameters.clone()).collect();
        let slots: Vec<u64> = trials.iter().flat_map(|trial| trial.slots.clone()).collect();
        let lowered = self.lowered(&corpus::merge(&cases).unwrap(), &slots);
        let compiled = programs::compile_lowered(&self.client, lowered, &programs::cpu_options())?;
        let mut outputs = compiled.run(&parameters, &slots)?.into_iter();
        Ok(trials.iter().map(|trial| outputs.by_ref().take(trial.program.outputs().len()).collect()).collect())
    }

    /// Returns the disagreement of one program, if any.
    pub fn disagreement(&self, trial: &Trial) -> Option<String> {
        let outcome = self.disagreements(std::slice::from_ref(trial));
        outcome.map_or_else(Some, |mut found| found.pop().flatten())
    }

    /// Returns whether the fault changes a program.
    pub fn alters(&self, trial: &Trial) -> bool {
        let right = Self { client: self.client.clone(), fault: None };
        self.lowered(&trial.program, &trial.slots).text != right.lowered(&trial.program, &trial.slots).text
    }

    /// Lowers the program with every other slot baked; the interpreter bakes none.
    fn lowered(&self, program: &Program, slots: &[u64]) -> Lowered {
        let baked = program.bake(|index| (index % 2 == 0).then(|| slots[index as usize])).unwrap();
        let mut lowered = lower_with(&baked, LowerOptions { llvm: true, ..LowerOptions::default() }).unwrap();
        if let Some((right, wrong)) = self.fault {
            lowered.text = lowered.text.replace(right, wrong);
        }
        lowered
    }
}

#[test]
fn differences_are_detected() {
    let difference = |dtype, error, found: &[u8], expected: &[u8]| {
        difference(&TensorType::new(dtype, [found.len() / dtype.size_bytes()]), error, found, expected).is_some()
    };
    let f32s = |values: [f32; 2]| values.map(f32::to_le_bytes).concat();
    assert!(difference(DType::I8, 0.0, &[1, 2], &[1, 3]) && !difference(DType::I8, 0.0, &[1, 2], &[1, 2]));
    let one = f32s([0.0, 1.0]);
    assert!(
        difference(DType::F32, 0.1, &f32s([0.0, 1.2]), &one) && !difference(DType::F32, 0.3, &f32s([0.0, 1.2]), &one)
    );
    let nan = f32s([f32::NAN, f32::INFINITY]);
    assert!(difference(DType::F32, 0.1, &nan, &one) && difference(DType::F32, 0.1, &one, &nan));
    assert!(!difference(DType::F32, 0.0, &nan, &nan));
}
