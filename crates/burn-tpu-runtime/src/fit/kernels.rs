//! The kernels of a program. The compiler does not estimate their time and memory traffic, so they are counted here: by
//! their own estimate, at the roofline.

use super::report::Costly;
use super::specs::Spec;
use crate::lines::op_and_line;
use burn_tpu_graph::{KernelCall, Label, Mesh, NodeId, Op, Program, TensorType};

/// A kernel that a program runs.
pub(super) struct KernelRun<'p> {
    label: Label,
    name: &'p str,
    kernel: &'p KernelCall,
    /// How often the program runs it.
    runs: u64,
}

/// Returns the kernels of a program that is lowered with kernels, also in its loops. On a mesh, one device's.
pub(super) fn of(program: &Program) -> Vec<KernelRun<'_>> {
    runs(program, program.mesh(), 1)
}

fn runs<'p>(program: &'p Program, mesh: Option<&Mesh>, times: u64) -> Vec<KernelRun<'p>> {
    let mut found = Vec::new();
    for (node, id) in program.graph().nodes().iter().zip((0..).map(NodeId)) {
        if let Op::For { trips, body } = &node.op {
            found.extend(runs(body, mesh, times * trips.most() as u64));
        }
        let Op::CustomCall(call) = &node.op else { continue };
        let label = program.graph().label(id);
        if let Some(kernel) = call.kernel().filter(|kernel| kernel.is_for(mesh)) {
            found.push(KernelRun { label, name: call.name(), kernel, runs: times });
        }
        if let Some(parts) = call.parts().filter(|parts| parts.is_for(mesh)) {
            found.extend(runs(parts.part(), None, times).into_iter().map(|run| KernelRun { label, ..run }));
        }
    }
    found
}

impl KernelRun<'_> {
    /// Returns the bytes that all runs copy beyond one copy of each operand and result.
    pub(super) fn repeated_bytes(&self) -> u64 {
        let (operands, results) = (self.kernel.local_operands(), self.kernel.local_results());
        let once: usize = operands.iter().chain(&results).map(TensorType::bytes).sum();
        self.kernel.cost.bytes.saturating_sub(once as u64) * self.runs
    }

    /// Returns the clock cycles of one run at the roofline; `None` for a generation whose clock is not known.
    fn cycles(&self, spec: &Spec) -> Option<u64> {
        let cost = &self.kernel.cost;
        let arithmetic = cost.flops as f64 / spec.flops_per_second();
        let seconds = arithmetic.max(cost.bytes as f64 / spec.bytes_per_second());
        Some((seconds * spec.estimate_ghz? * 1e9).ceil() as u64)
    }

    /// Returns the entry of the list of the costliest instructions.
    pub(super) fn costly(&self, spec: &Spec) -> Option<Costly> {
        let (op, line) = op_and_line(self.label);
        let shape: Vec<String> = self.kernel.local_results().iter().map(ToString::to_string).collect();
        let instruction = format!("kernel {}", self.name);
        let op = if op.is_empty() { self.name.to_owned() } else { op };
        let cycles = self.cycles(spec)? * self.runs;
        Some(Costly { op, line, shape: shape.join(" + "), instruction, runs: self.runs, cycles })
    }
}
