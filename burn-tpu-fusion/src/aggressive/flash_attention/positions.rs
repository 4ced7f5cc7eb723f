//! Masks of positions: numbers that depend on how far a key is from a query.
//!
//! Owns: which numbers a value has, if it is computed from places and constants and depends on `key - query` alone. May not
//! know: what is done with them.

use burn_tpu_graph::op::{BinaryOp, Direction, UnaryOp};
use burn_tpu_graph::{DType, Graph, NodeId, Number, Op};

/// The number of nodes that one question may look at. Masks that people write need a few dozen.
const MOST_NODES: u32 = 512;

/// Integers up to this size are exact in every type that places are computed in.
const LARGEST: i64 = 1 << 24;

/// The dims of the queries and of the keys in a value; `None` if it does not vary along them.
pub(super) type Dims2 = [Option<usize>; 2];

/// A value that is computed from places.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Positions {
    /// `query * q + key * k + plus`.
    Linear { q: i64, k: i64, plus: i64 },
    /// A number for each distance.
    Steps(Steps),
}

/// A function of `key - query` that is constant in between: the distance from which each number holds. The first is from
/// the smallest distance.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Steps(Vec<(i64, f64)>);

impl Steps {
    fn constant(value: f64) -> Self {
        Self(vec![(i64::MIN, value)])
    }

    fn at(&self, distance: i64) -> f64 {
        let place = self.0.partition_point(|(from, _)| *from <= distance);
        self.0[place - 1].1
    }

    /// Returns the function of the numbers of several such functions.
    fn map<const N: usize>(all: [&Self; N], of: impl Fn([f64; N]) -> f64) -> Self {
        let mut from: Vec<i64> = all.iter().flat_map(|steps| steps.0.iter().map(|(from, _)| *from)).collect();
        from.sort_unstable();
        from.dedup();
        let mut steps: Vec<(i64, f64)> =
            from.into_iter().map(|from| (from, of(all.map(|steps| steps.at(from))))).collect();
        steps.dedup_by(|next, last| next.1 == last.1);
        Self(steps)
    }

    /// Returns 1 where the condition holds for the number, and 0 elsewhere.
    pub(super) fn test(&self, holds: impl Fn(f64) -> bool) -> Self {
        Self::map([self], |[value]| f64::from(u8::from(holds(value))))
    }

    /// Returns 1 where either is not 0.
    pub(super) fn or(&self, other: &Self) -> Self {
        Self::map([self, other], |[a, b]| f64::from(u8::from(a != 0.0 || b != 0.0)))
    }

    /// Returns whether all numbers that hold at some of these distances pass a test.
    pub(super) fn all(&self, from: i64, to: i64, test: impl Fn(f64) -> bool) -> bool {
        let ends = self.0.iter().skip(1).map(|(next, _)| *next).chain([i64::MAX]);
        self.0.iter().zip(ends).all(|(&(start, value), end)| start > to || end <= from || test(value))
    }

    /// Returns the first and the last of these distances at which the number is 0, if those between are 0 too, and there
    /// is one.
    pub(super) fn zeros(&self, from: i64, to: i64) -> Option<[i64; 2]> {
        let ends = self.0.iter().skip(1).map(|(next, _)| *next - 1).chain([i64::MAX]);
        let runs = self.0.iter().zip(ends).filter(|((start, _), end)| *start <= to && *end >= from);
        let mut zeros = runs.filter(|((_, value), _)| *value == 0.0);
        let ((start, _), end) = zeros.next()?;
        zeros.next().is_none().then(|| [(*start).max(from), end.min(to)])
    }
}

/// Returns the positions of a value with queries and keys along these dims; `None` if it is not computed from places, or
/// depends on more than the distance.
pub(super) fn of(graph: &Graph, id: NodeId, dims: Dims2) -> Option<Positions> {
    let mut left = MOST_NODES;
    find(graph, id, dims, &mut left)
}

/// Returns the number of each distance.
pub(super) fn steps(graph: &Graph, id: NodeId, dims: Dims2) -> Option<Steps> {
    of(graph, id, dims)?.steps()
}

impl Positions {
    fn constant(value: f64) -> Self {
        let whole = value as i64;
        match whole as f64 == value && whole.abs() <= LARGEST {
            true => Self::Linear { q: 0, k: 0, plus: whole },
            false => Self::Steps(Steps::constant(value)),
        }
    }

    fn steps(self) -> Option<Steps> {
        match self {
            Self::Linear { q: 0, k: 0, plus } => Some(Steps::constant(plus as f64)),
            Self::Linear { .. } => None,
            Self::Steps(steps) => Some(steps),
        }
    }

    fn linear(q: i64, k: i64, plus: i64) -> Option<Self> {
        [q, k, plus].iter().all(|number| number.abs() <= LARGEST).then_some(Self::Linear { q, k, plus })
    }
}

fn find(graph: &Graph, id: NodeId, dims: Dims2, left: &mut u32) -> Option<Positions> {
    *left = left.checked_sub(1)?;
    let node = graph.node(id);
    let mut operand = |place: usize| {
        let operand = node.operands[place];
        find(graph, operand, of_operand(graph, &node.op, operand, dims)?, left)
    };
    match &node.op {
        Op::Constant(literal) => {
            literal.splat().map(Number::to_f64).filter(|value| !value.is_nan()).map(Positions::constant)
        }
        Op::Iota { dim, .. } => match dims.map(|dim| dim.unwrap_or(usize::MAX)) {
            [query, _] if query == *dim => Positions::linear(1, 0, 0),
            [_, key] if key == *dim => Positions::linear(0, 1, 0),
            _ => (node.ty.dims[*dim] == 1).then(|| Positions::constant(0.0)),
        },
        Op::BroadcastInDim { .. } | Op::Reshape { .. } | Op::Transpose { .. } | Op::OptimizationBarrier => operand(0),
        Op::Convert { dtype } => converted(operand(0)?, *dtype),
        Op::Unary(op) => of_unary(*op, node.ty.dtype, operand(0)?),
        Op::Binary(op) => of_binary(*op, node.ty.dtype, operand(0)?, operand(1)?),
        Op::Compare(direction) => compared(*direction, operand(0)?, operand(1)?).map(Positions::Steps),
        Op::Select => {
            let all = [operand(0)?.steps()?, operand(1)?.steps()?, operand(2)?.steps()?];
            let chosen = |[test, yes, no]: [f64; 3]| if test == 0.0 { no } else { yes };
            Some(Positions::Steps(Steps::map([&all[0], &all[1], &all[2]], chosen)))
        }
        _ => None,
    }
}

/// Returns the dims of an operand that are those of the result; `None` if a reshape moves them.
pub(super) fn of_operand<const N: usize>(
    graph: &Graph,
    op: &Op,
    operand: NodeId,
    dims: [Option<usize>; N],
) -> Option<[Option<usize>; N]> {
    let old = &graph.ty(operand).dims;
    let moved = |place: &dyn Fn(usize) -> Option<usize>| dims.map(|dim| dim.and_then(place));
    match op {
        Op::BroadcastInDim { mapping, dims: new } => {
            let place = |dim: usize| mapping.iter().position(|&to| to == dim);
            Some(moved(&|dim| place(dim).filter(|&from| old[from] == new[dim] && old[from] != 1)))
        }
        Op::Reshape { dims: new } => {
            let wide = |dims: &[usize]| (0..dims.len()).filter(|&dim| dims[dim] != 1).collect::<Vec<_>>();
            let (from, to) = (wide(old), wide(new));
            let is_same = from.len() == to.len() && from.iter().zip(&to).all(|(&a, &b)| old[a] == new[b]);
            is_same.then(|| moved(&|dim| to.iter().position(|&wide| wide == dim).map(|place| from[place])))
        }
        Op::Transpose { permutation } => Some(moved(&|dim| permutation.get(dim).copied())),
        _ => Some(dims),
    }
}

fn converted(value: Positions, dtype: DType) -> Option<Positions> {
    match (value, dtype) {
        (value, DType::Bool) => compared(Direction::Ne, value, Positions::constant(0.0)).map(Positions::Steps),
        // The places of a sequence are exact in wide types alone.
        (value @ Positions::Linear { q: 0, k: 0, .. }, _) => Some(value),
        (value @ Positions::Linear { .. }, DType::I32 | DType::I64 | DType::F32 | DType::F64) => Some(value),
        (Positions::Linear { .. }, _) => None,
        (Positions::Steps(steps), dtype) if dtype.is_float() => Some(Positions::Steps(steps)),
        (Positions::Steps(steps), DType::I32 | DType::I64) => {
            let is_whole = steps.0.iter().all(|(_, value)| value.abs() <= LARGEST as f64);
            is_whole.then(|| Positions::Steps(Steps::map([&steps], |[value]| value.trunc())))
        }
        (Positions::Steps(_), _) => None,
    }
}

fn of_unary(op: UnaryOp, dtype: DType, value: Positions) -> Option<Positions> {
    match (op, value) {
        (UnaryOp::Neg, Positions::Linear { q, k, plus }) => Positions::linear(-q, -k, -plus),
        (UnaryOp::Neg, Positions::Steps(steps)) => Some(Positions::Steps(Steps::map([&steps], |[value]| -value))),
        (UnaryOp::Not, value) if dtype == DType::Bool => {
            Some(Positions::Steps(Steps::map([&value.steps()?], |[value]| 1.0 - value)))
        }
        _ => None,
    }
}

fn of_binary(op: BinaryOp, dtype: DType, lhs: Positions, rhs: Positions) -> Option<Positions> {
    use Positions::Linear;
    if dtype != DType::Bool {
        match (op, &lhs, &rhs) {
            (BinaryOp::Add, &Linear { q, k, plus }, &Linear { q: q2, k: k2, plus: plus2 }) => {
                return Positions::linear(q + q2, k + k2, plus + plus2);
            }
            (BinaryOp::Sub, &Linear { q, k, plus }, &Linear { q: q2, k: k2, plus: plus2 }) => {
                return Positions::linear(q - q2, k - k2, plus - plus2);
            }
            (BinaryOp::Mul, &Linear { q, k, plus }, &Linear { q: 0, k: 0, plus: by })
            | (BinaryOp::Mul, &Linear { q: 0, k: 0, plus: by }, &Linear { q, k, plus }) => {
                return Positions::linear(q * by, k * by, plus * by);
            }
            _ => {}
        }
    }
    let is_float = dtype.is_float();
    let of: fn([f64; 2]) -> f64 = match op {
        BinaryOp::Or | BinaryOp::Add if dtype == DType::Bool => |[a, b]| a.max(b),
        BinaryOp::And | BinaryOp::Mul if dtype == DType::Bool => |[a, b]| a.min(b),
        BinaryOp::Xor if dtype == DType::Bool => |[a, b]| (a - b).abs(),
        BinaryOp::Add if is_float => |[a, b]| a + b,
        BinaryOp::Sub if is_float => |[a, b]| a - b,
        BinaryOp::Mul if is_float => |[a, b]| a * b,
        BinaryOp::Div if is_float => |[a, b]| a / b,
        BinaryOp::Max => |[a, b]| a.max(b),
        BinaryOp::Min => |[a, b]| a.min(b),
        _ => return None,
    };
    let steps = Steps::map([&lhs.steps()?, &rhs.steps()?], of);
    steps.0.iter().all(|(_, value)| !value.is_nan()).then_some(Positions::Steps(steps))
}

/// Returns 1 where the relation holds.
fn compared(direction: Direction, lhs: Positions, rhs: Positions) -> Option<Steps> {
    let holds = |a: f64, b: f64| match direction {
        Direction::Eq => a == b,
        Direction::Ne => a != b,
        Direction::Lt => a < b,
        Direction::Le => a <= b,
        Direction::Gt => a > b,
        Direction::Ge => a >= b,
    };
    let truth = |holds: bool| f64::from(u8::from(holds));
    let (Positions::Linear { q, k, plus }, Positions::Linear { q: q2, k: k2, plus: plus2 }) = (&lhs, &rhs) else {
        return Some(Steps::map([&lhs.steps()?, &rhs.steps()?], |[a, b]| truth(holds(a, b))));
    };
    let (q, k, plus) = (q - q2, k - k2, plus - plus2);
    if q + k != 0 {
        return None;
    }
    // `k * distance + plus` beside 0: it changes at most at the two distances around its zero.
    let value = |distance: i64| truth(holds((k * distance + plus) as f64, 0.0));
    let zero = if k == 0 { 0 } else { (-plus).div_euclid(k) };
    let mut steps = vec![(i64::MIN, value(zero - 1)), (zero, value(zero)), (zero + 1, value(zero + 1))];
    steps.push((zero + 2, value(zero + 2)));
    steps.dedup_by(|next, last| next.1 == last.1);
    Some(Steps(steps))
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn_tpu_graph::Builder;

    const DIMS: Dims2 = [Some(1), Some(2)];

    /// Returns the places along queries and keys, `[2, 7, 9]`, with a number added to each.
    fn places(graph: &mut Graph, plus: [i64; 2]) -> [NodeId; 2] {
        [0, 1].map(|place| {
            let iota = graph.iota(DType::I32, &[2, 7, 9], place + 1).unwrap();
            graph.binary_const(BinaryOp::Add, iota, plus[place]).unwrap()
        })
    }

    /// Every relation of two places is what it is one by one.
    #[test]
    fn a_comparison_of_places_is_a_function_of_their_distance() {
        let all = [Direction::Eq, Direction::Ne, Direction::Lt, Direction::Le, Direction::Gt, Direction::Ge];
        for direction in all {
            for plus in [[0, 0], [3, -2], [-4, 1]] {
                let mut graph = Graph::new();
                let [query, key] = places(&mut graph, plus);
                let found = graph.compare(direction, key, query).unwrap();
                let turned = graph.compare(direction, query, key).unwrap();
                for (id, sign) in [(found, 1), (turned, -1)] {
                    let steps = steps(&graph, id, DIMS).unwrap();
                    for distance in -12..12 {
                        let difference = sign * (distance + plus[1] - plus[0]);
                        let expected = match direction {
                            Direction::Eq => difference == 0,
                            Direction::Ne => difference != 0,
                            Direction::Lt => difference < 0,
                            Direction::Le => difference <= 0,
                            Direction::Gt => difference > 0,
                            Direction::Ge => difference >= 0,
                        };
                        assert_eq!(
                            steps.at(distance),
                            f64::from(u8::from(expected)),
                            "{direction:?} {plus:?} {distance}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn a_window_is_a_run_of_zeros_and_two_windows_are_not() {
        let mut graph = Graph::new();
        let [query, key] = places(&mut graph, [-2, 0]);
        let [_, last] = places(&mut graph, [0, -2]);
        let early = graph.compare(Direction::Lt, key, query).unwrap();
        let late = graph.compare(Direction::Gt, last, query).unwrap();
        let hidden = graph.binary(BinaryOp::Or, early, late).unwrap();
        let mask = steps(&graph, hidden, DIMS).unwrap();
        assert_eq!(mask.zeros(-6, 8), Some([-2, 0]));
        assert_eq!(mask.zeros(1, 8), None);
        let not = graph.unary(UnaryOp::Not, hidden).unwrap();
        assert_eq!(steps(&graph, not, DIMS).unwrap().zeros(-6, 8), None);
        let bias = graph.convert(hidden, DType::F32).unwrap();
        let bias = graph.binary_const(BinaryOp::Mul, bias, -1e9).unwrap();
        let bias = steps(&graph, bias, DIMS).unwrap();
        assert!(bias.all(-2, 0, |value| value == 0.0) && bias.all(1, 8, |value| value == -1e9));
        assert!(!bias.all(-3, 0, |value| value == 0.0));
    }

    #[test]
    fn what_depends_on_more_than_the_distance_is_nothing() {
        let mut graph = Graph::new();
        let [query, key] = places(&mut graph, [0, 0]);
        let sum = graph.binary(BinaryOp::Add, query, key).unwrap();
        let of_key = graph.compare_const(Direction::Gt, key, 3).unwrap();
        let of_sum = graph.compare_const(Direction::Gt, sum, 3).unwrap();
        let batch = graph.iota(DType::I32, &[2, 7, 9], 0).unwrap();
        let of_batch = graph.compare(Direction::Gt, key, batch).unwrap();
        for id in [of_key, of_sum, of_batch, key] {
            assert_eq!(steps(&graph, id, DIMS), None);
        }
    }
}
