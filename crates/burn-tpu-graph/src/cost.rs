//! The cost of a program, counted on its graph: floating-point operations, and the shapes of its matrix products.
//!
//! The counts are those of the model, once per run. A compiler counts the code that it emits, so it includes
//! recomputation and counts the body of a loop once; here the body counts once per trip. The conventions are XLA's
//! (`HloCostAnalysis`): a multiply-add is 2, padding of a convolution is not counted, and functions such as `exp` are
//! counted separately. Moving, selecting, comparing and converting elements and drawing random numbers do not count
//! as arithmetic.

use crate::op::{Combine, ConvAttrs, DotAttrs, FftKind, ScatterMode, WindowAttrs, Work};
use crate::{DType, Dims, Graph, Label, Node, NodeId, Op, Program, TensorType};

/// The operations of one run, by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Operations of matrix products: 2 per multiply-add.
    pub dot_flops: u64,
    /// Operations of convolutions: 2 per multiply-add on elements that exist (no padding, no dilation holes).
    pub convolution_flops: u64,
    /// Operations of element-wise arithmetic: 1 per element.
    pub elementwise_flops: u64,
    /// Operations of reductions, windows, scatters and Fourier transforms: 1 per combination.
    pub reduction_flops: u64,
    /// Evaluations of `exp`, `log`, `tanh`, roots, powers and similar functions. Not part of [`Cost::flops`].
    pub transcendentals: u64,
}

impl Cost {
    /// Returns the number of all floating-point operations.
    pub fn flops(&self) -> u64 {
        self.dot_flops + self.convolution_flops + self.elementwise_flops + self.reduction_flops
    }

    /// Returns the number of operations that a matrix unit executes.
    pub fn matrix_flops(&self) -> u64 {
        self.dot_flops + self.convolution_flops
    }
}

impl std::ops::Mul<u64> for Cost {
    type Output = Self;

    fn mul(self, times: u64) -> Self {
        Self {
            dot_flops: self.dot_flops * times,
            convolution_flops: self.convolution_flops * times,
            elementwise_flops: self.elementwise_flops * times,
            reduction_flops: self.reduction_flops * times,
            transcendentals: self.transcendentals * times,
        }
    }
}

impl std::ops::AddAssign for Cost {
    fn add_assign(&mut self, other: Self) {
        self.dot_flops += other.dot_flops;
        self.convolution_flops += other.convolution_flops;
        self.elementwise_flops += other.elementwise_flops;
        self.reduction_flops += other.reduction_flops;
        self.transcendentals += other.transcendentals;
    }
}

/// A matrix product `[batch, m, k] x [batch, k, n]`, or a convolution written as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Contraction {
    /// The op that it was recorded for.
    pub label: Label,
    /// Element type of the operands.
    pub dtype: DType,
    /// The number of independent products; for a convolution, its groups.
    pub batch: usize,
    /// Rows of the result; for a convolution, batch times positions.
    pub m: usize,
    /// Columns of the result; for a convolution, output features of a group.
    pub n: usize,
    /// Length of the sums; for a convolution, kernel positions times input features of a group.
    pub k: usize,
    /// Floating-point operations; in a loop, those of all trips.
    pub flops: u64,
}

/// Returns the number of operations of one run of a program.
pub fn cost(program: &Program) -> Cost {
    cost_of(program.graph(), program.graph().ids())
}

/// Returns the number of operations of some nodes of a graph, each run once.
pub fn cost_of(graph: &Graph, nodes: impl IntoIterator<Item = NodeId>) -> Cost {
    let mut total = Cost::default();
    nodes.into_iter().for_each(|id| total += node_cost(graph, graph.node(id)));
    total
}

/// What an interpreter does in the time of one evaluation of a function: operations of a matrix product and of a
/// convolution, which it leaves to a library's kernels, and simple operations on elements.
const DOT_FLOPS_PER_OPERATION: u64 = 128;
const CONVOLUTION_FLOPS_PER_OPERATION: u64 = 4;
const SIMPLE_PER_OPERATION: u64 = 4;

/// Returns the work of one run in operations that take as long as a function of an element, such as `exp`: what [`cost`]
/// counts, and the elements that the nodes make. It says how long an interpreter takes, not a device.
pub fn work(program: &Program) -> u64 {
    let cost = cost(program);
    let products = cost.dot_flops / DOT_FLOPS_PER_OPERATION + cost.convolution_flops / CONVOLUTION_FLOPS_PER_OPERATION;
    let simple = cost.elementwise_flops + cost.reduction_flops + elements(program);
    products + cost.transcendentals + simple / SIMPLE_PER_OPERATION
}

/// Returns the number of nodes of a program, those of loop bodies and plain forms included: what a compiler has to read.
pub fn nodes(program: &Program) -> usize {
    program.graph().nodes().iter().map(node_count).sum()
}

/// Returns 1, and for a node with a program in it, a loop or a custom call, the number of its nodes too.
pub(crate) fn node_count(node: &Node) -> usize {
    match &node.op {
        Op::For { body, .. } => 1 + nodes(body),
        Op::CustomCall(call) => 1 + nodes(call.plain()),
        _ => 1,
    }
}

/// Returns the number of elements that the nodes of a program make.
fn elements(program: &Program) -> u64 {
    let made = |node: &Node| match &node.op {
        Op::For { trips, body } => trips.most() as u64 * elements(body),
        Op::CustomCall(call) => elements(call.plain()),
        _ => node.result_types().map(|ty| ty.elements() as u64).sum(),
    };
    program.graph().nodes().iter().map(made).sum()
}

/// Returns the program's matrix products and convolutions, in program order; one in a loop's body is listed once.
pub fn contractions(program: &Program) -> Vec<Contraction> {
    let graph = program.graph();
    let of = |(i, node): (usize, &Node)| match &node.op {
        Op::For { trips, body } => {
            let all = |once: Contraction| Contraction { flops: once.flops * trips.most() as u64, ..once };
            contractions(body).into_iter().map(all).collect()
        }
        Op::CustomCall(call) => {
            let label = graph.label(NodeId(i as u32));
            contractions(call.plain()).into_iter().map(|product| Contraction { label, ..product }).collect()
        }
        _ => Vec::from_iter(contraction(graph, node, graph.label(NodeId(i as u32)))),
    };
    graph.nodes().iter().enumerate().flat_map(of).collect()
}

fn node_cost(graph: &Graph, node: &Node) -> Cost {
    let elements = node.ty.elements() as u64;
    match node.op.work() {
        Work::Nothing => Cost::default(),
        Work::Each(flops) => {
            Cost { elementwise_flops: if node.ty.dtype.is_float() { flops * elements } else { 0 }, ..Cost::default() }
        }
        Work::Transcendental => Cost { transcendentals: elements, ..Cost::default() },
        Work::Combines => Cost { reduction_flops: combinations(graph, node), ..Cost::default() },
        Work::Products => products(graph, node),
        // What is computed, whatever form computes it.
        Work::Inner => match &node.op {
            Op::For { trips, body } => cost(body) * trips.most() as u64,
            Op::CustomCall(call) => cost(call.plain()),
            _ => Cost::default(),
        },
    }
}

/// Returns the number of times that a node combines two values.
fn combinations(graph: &Graph, node: &Node) -> u64 {
    let operand = |i: usize| graph.ty(node.operands[i]);
    let (elements, of_operand) = (node.ty.elements() as u64, |i: usize| operand(i).elements() as u64);
    match &node.op {
        Op::ReduceWindow { window, .. } => elements * (window_size(window) - 1),
        Op::SelectAndScatter { window } => of_operand(1) * window_size(window),
        Op::Scatter(attrs) => match attrs.mode {
            ScatterMode::Combine(Combine::Sum | Combine::Prod | Combine::Max | Combine::Min) => of_operand(2),
            ScatterMode::Assign | ScatterMode::Combine(Combine::And | Combine::Or) => 0,
        },
        Op::Fft { kind, length } => fft_flops(*kind, *length, operand(0)),
        _ => of_operand(0).saturating_sub(elements),
    }
}

/// Returns the multiply-adds of a contraction.
fn products(graph: &Graph, node: &Node) -> Cost {
    let operand = |i: usize| graph.ty(node.operands[i]);
    match &node.op {
        Op::DotGeneral(attrs) => Cost { dot_flops: dot_flops(attrs, operand(0), &node.ty), ..Cost::default() },
        Op::Convolution(attrs) => {
            let flops = convolution_flops(attrs, operand(0), operand(1), &node.ty);
            Cost { convolution_flops: flops, ..Cost::default() }
        }
        _ => Cost::default(),
    }
}

fn dot_flops(attrs: &DotAttrs, lhs: &TensorType, result: &TensorType) -> u64 {
    2 * result.elements() as u64 * product(&lhs.dims, &attrs.lhs_contract) as u64
}

/// Returns 2 per multiply-add whose input element is neither padding nor a hole of the dilation.
fn convolution_flops(attrs: &ConvAttrs, input: &TensorType, kernel: &TensorType, result: &TensorType) -> u64 {
    let dims = &attrs.output;
    let positions: u64 = (0..attrs.strides.len())
        .map(|i| {
            let sizes = [
                input.dims[attrs.input.spatial[i]],
                kernel.dims[attrs.kernel.spatial[i]],
                result.dims[dims.spatial[i]],
            ];
            valid_positions(attrs, i, sizes)
        })
        .product();
    let others = result.dims[dims.batch] * result.dims[dims.feature] * kernel.dims[attrs.kernel.feature];
    2 * others as u64 * positions
}

/// Returns the number of pairs of output position and kernel position along one spatial dim that read an input element.
fn valid_positions(attrs: &ConvAttrs, dim: usize, [input, kernel, output]: [usize; 3]) -> u64 {
    let (stride, holes, spread) = (attrs.strides[dim], attrs.lhs_dilation[dim], attrs.rhs_dilation[dim]);
    let end = (input as isize - 1) * holes as isize;
    let meets = |out: usize, tap: usize| {
        let at = (out * stride + tap * spread) as isize - attrs.padding[dim].0;
        at >= 0 && at <= end && at % holes as isize == 0
    };
    (0..output).map(|out| (0..kernel).filter(|&tap| meets(out, tap)).count() as u64).sum()
}

fn window_size(window: &WindowAttrs) -> u64 {
    window.dims.iter().product::<usize>().max(1) as u64
}

/// Returns the usual 5 n log2 n per transform, half of it for a transform from or to real values.
fn fft_flops(kind: FftKind, length: usize, operand: &TensorType) -> u64 {
    let transforms = operand.elements() / operand.dims.last().copied().unwrap_or(1).max(1);
    let whole = (5.0 * length as f64 * (length as f64).log2()) as u64;
    let each = match kind {
        FftKind::Fft | FftKind::Ifft => whole,
        FftKind::Rfft | FftKind::Irfft => whole / 2,
    };
    transforms as u64 * each
}

fn contraction(graph: &Graph, node: &Node, label: Label) -> Option<Contraction> {
    let (lhs, rhs) = match &node.op {
        Op::DotGeneral(_) | Op::Convolution(_) => (graph.ty(node.operands[0]), graph.ty(node.operands[1])),
        _ => return None,
    };
    let flops = node_cost(graph, node).matrix_flops();
    let dtype = lhs.dtype;
    Some(match &node.op {
        Op::DotGeneral(attrs) => {
            let batch = product(&lhs.dims, &attrs.lhs_batch);
            let k = product(&lhs.dims, &attrs.lhs_contract);
            let free = |ty: &TensorType| ty.elements() / (batch * k).max(1);
            Contraction { label, dtype, batch, m: free(lhs), n: free(rhs), k, flops }
        }
        Op::Convolution(attrs) => {
            let groups = attrs.feature_groups * attrs.batch_groups;
            let n = node.ty.dims[attrs.output.feature] / groups.max(1);
            let k = product(&rhs.dims, &attrs.kernel.spatial) * rhs.dims[attrs.kernel.feature];
            let m = node.ty.elements() / node.ty.dims[attrs.output.feature].max(1);
            Contraction { label, dtype, batch: groups, m, n, k, flops }
        }
        _ => return None,
    })
}

fn product(sizes: &Dims, dims: &Dims) -> usize {
    dims.iter().map(|&dim| sizes[dim]).product()
}

#[cfg(test)]
mod tests;
