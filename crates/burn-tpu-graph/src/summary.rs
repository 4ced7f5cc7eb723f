//! What is asked of a program whenever it runs, found by one walk over its nodes and kept. It is no part of its identity.

use crate::{Program, cost, custom_calls};
use std::fmt;
use std::sync::OnceLock;

/// What is asked of a program whenever it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Summary {
    /// The work of a run, in the unit of [`cost::work`].
    pub work: u64,
    /// Whether it has custom calls, in the bodies of loops too.
    pub has_custom_calls: bool,
    /// Whether a node's first result is of a 16-bit float type.
    pub has_half_floats: bool,
}

impl Summary {
    fn of(program: &Program) -> Self {
        Self {
            work: cost::work(program),
            has_custom_calls: !custom_calls(program).is_empty(),
            has_half_floats: program.graph().nodes().iter().any(|node| node.ty.dtype.is_half()),
        }
    }
}

/// A summary that is found when it is first asked for. All are equal, since equal programs have equal summaries.
#[derive(Clone, Default)]
pub(crate) struct KeptSummary(OnceLock<Summary>);

impl PartialEq for KeptSummary {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for KeptSummary {}

impl fmt::Debug for KeptSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("_")
    }
}

impl KeptSummary {
    pub(crate) fn of(&self, program: &Program) -> &Summary {
        self.0.get_or_init(|| Summary::of(program))
    }
}

#[cfg(test)]
mod tests {
    use crate::op::UnaryOp;
    use crate::{Builder, DType, Graph, Op, Program, TensorType};

    fn program(dtype: DType) -> Program {
        let mut graph = Graph::new();
        let x = graph.add(Op::Parameter { index: 0, ty: TensorType::new(dtype, [8]) }, &[]).unwrap();
        let y = graph.unary(UnaryOp::Exp, x).unwrap();
        Program::extract(&graph, &[y]).unwrap()
    }

    #[test]
    fn a_summary_tells_work_and_16_bit_floats_and_changes_no_identity() {
        let (program, fresh) = (program(DType::BF16), program(DType::BF16));
        let summary = *program.summary();
        assert_eq!(summary, crate::summary::Summary { work: 12, has_custom_calls: false, has_half_floats: true });
        assert_eq!(program, fresh);
        assert!(!super::tests::program(DType::F32).summary().has_half_floats);
    }
}
