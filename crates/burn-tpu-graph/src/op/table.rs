//! The properties of every op, one row each: what kind of op it is, what it costs, and how axes pass through it.
//!
//! Whoever needs to know what an op is asks here. A pass that needs a property that no column states adds a column, or a
//! predicate on [`OpKind`] below, and not a list of ops of its own.

use super::Op;
use super::axes::{AxisRules, Operand};
use crate::{Graph, Node};

/// What an op is, as far as no axis and no attribute matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OpKind {
    /// What the caller passes.
    Input,
    /// Numbers that are part of the program.
    Constant,
    /// Element-wise: a number of the operands' element type.
    Arithmetic,
    /// Element-wise: a truth value.
    Test,
    /// Element-wise: the operand's number or its bits in another element type.
    Cast,
    /// Element-wise: makes complex numbers of two parts, or takes a part.
    Complex,
    /// Element-wise: the operand itself, with advice for the compiler.
    Marker,
    /// Moves axes, and inserts, repeats, merges or splits them. Along each, elements keep their order.
    View,
    /// Moves every element of its operands to another place of the same axes.
    Move,
    /// Takes elements at places that depend on no data but a start.
    Part,
    /// Takes elements at places that are data.
    Lookup,
    /// Operand 0 with some elements replaced by, or combined with, those of another operand.
    Update,
    /// Sums of products of two operands.
    Contraction,
    /// Combines the elements along axes.
    Reduction,
    /// Combines the elements under a moving window.
    Window,
    /// Orders the elements along an axis.
    Order,
    /// Draws random bits.
    Draw,
    /// Every element of the result depends on all elements along an axis.
    Transform,
    /// Runs a program.
    Inner,
    /// Takes a result of an op that has several.
    Result,
}

/// What one run of an op costs, as [`cost`](crate::cost) counts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Work {
    /// No arithmetic: moves, compares, selects, converts or draws.
    Nothing,
    /// This many floating-point operations for each element of the result; none if that is no float.
    Each(u64),
    /// One evaluation of a function such as `exp` for each element of the result.
    Transcendental,
    /// Multiply-adds of a contraction.
    Products,
    /// Combines of two values: what attributes and sizes say.
    Combines,
    /// That of the program it runs.
    Inner,
}

const NONE: (usize, usize) = (0, 0);
const ONE: (usize, usize) = (1, 1);
const TWO: (usize, usize) = (2, 2);
const THREE: (usize, usize) = (3, 3);
const SOME: (usize, usize) = (1, usize::MAX);
const MORE: (usize, usize) = (2, usize::MAX);

/// The table: kind, number of operands, cost, mnemonic, and how the axes of operand `$x` pass to the results.
macro_rules! ops {
    ($x:ident: $($op:pat => $kind:ident, $operands:expr, $work:expr, $mnemonic:expr, $axes:expr;)*) => {
        impl Op {
            /// Returns the op's mnemonic with its dialect, as in StableHLO text. Mnemonics of graph-level kinds begin with
            /// `graph.`.
            #[allow(unused_variables, reason = "a row's attributes are for its last column")]
            pub const fn mnemonic(&self) -> &'static str {
                match self { $($op => $mnemonic),* }
            }

            /// Returns the smallest and the largest number of operands that the op takes.
            #[allow(unused_variables, reason = "a row's attributes are for its last column")]
            pub const fn arity(&self) -> (usize, usize) {
                match self { $($op => $operands),* }
            }

            /// Returns what the op is.
            #[allow(unused_variables, reason = "a row's attributes are for its last column")]
            pub const fn kind(&self) -> OpKind {
                match self { $($op => OpKind::$kind),* }
            }

            /// Returns what one run of the op costs.
            #[allow(unused_variables, reason = "a row's attributes are for its last column")]
            pub const fn work(&self) -> Work {
                match self { $($op => $work),* }
            }
        }

        #[allow(unused_variables, reason = "a row names the attributes that its columns need")]
        fn axes(op: &Op, $x: &Operand<'_>) -> AxisRules {
            match op { $($op => $axes),* }
        }
    };
}

use Work::{Combines, Each, Inner, Nothing, Products};

#[rustfmt::skip]
ops! { x:
    // Op                           Kind         Operands Cost  Mnemonic, axes of operand x
    Op::Parameter { .. }            => Input,       NONE,  Nothing,  "graph.parameter", x.no_axes();
    Op::Slot { .. }                 => Input,       NONE,  Nothing,  "graph.slot", x.no_axes();
    Op::Offset { .. }               => Input,       NONE,  Nothing,  "graph.offset", x.no_axes();
    Op::Constant(_)                 => Constant,    NONE,  Nothing,  "stablehlo.constant", x.no_axes();
    Op::Iota { .. }                 => Constant,    NONE,  Nothing,  "stablehlo.iota", x.no_axes();
    Op::Unary(op)                   => Arithmetic,  ONE,   op.work(), op.mnemonic(), x.kept();
    Op::Binary(op)                  => Arithmetic,  TWO,   op.work(), op.mnemonic(), x.kept();
    Op::Compare(_)                  => Test,        TWO,   Nothing,  "stablehlo.compare", x.kept();
    Op::IsFinite                    => Test,        ONE,   Nothing,  "stablehlo.is_finite", x.kept();
    Op::Select                      => Arithmetic,  THREE, Nothing,  "stablehlo.select", x.kept();
    Op::Clamp                       => Arithmetic,  THREE, Each(2),  "stablehlo.clamp", x.kept();
    Op::Convert { .. }              => Cast,        ONE,   Nothing,  "stablehlo.convert", x.kept();
    Op::BitcastConvert { .. }       => Cast,        ONE,   Nothing,  "stablehlo.bitcast_convert", x.kept();
    Op::BroadcastInDim { mapping, .. } => View,     ONE,   Nothing,  "stablehlo.broadcast_in_dim", x.broadcast(mapping);
    Op::Reshape { .. }              => View,        ONE,   Nothing,  "stablehlo.reshape", x.reshape();
    Op::Transpose { permutation }   => View,        ONE,   Nothing,  "stablehlo.transpose", x.transpose(permutation);
    Op::Reverse { dims }            => Move,        ONE,   Nothing,  "stablehlo.reverse", x.reverse(dims);
    Op::Slice(attrs)                => Part,        ONE,   Nothing,  "stablehlo.slice", x.slice(attrs);
    Op::Pad(attrs)                  => Part,        TWO,   Nothing,  "stablehlo.pad", x.pad(attrs);
    Op::Concatenate { dim }         => Move,        SOME,  Nothing,  "stablehlo.concatenate", x.concatenate(*dim);
    Op::DynamicSlice { .. }         => Part,        SOME,  Nothing,  "stablehlo.dynamic_slice", x.dynamic_slice();
    Op::DynamicUpdateSlice          => Update,      MORE,  Nothing,  "stablehlo.dynamic_update_slice", x.update();
    Op::DotGeneral(attrs)           => Contraction, TWO,   Products, "stablehlo.dot_general", x.dot_general(attrs);
    Op::Convolution(attrs)          => Contraction, TWO,   Products, "stablehlo.convolution", x.convolution(attrs);
    Op::Reduce { combine, dims }    => Reduction,   ONE,   Combines, "stablehlo.reduce", x.reduce(dims, combine);
    Op::ArgReduce { max, dim }      => Reduction,   TWO,   Combines, "graph.arg_reduce", x.arg_reduce(*dim, *max);
    Op::ReduceWindow { combine, window } => Window, ONE,   Combines, "stablehlo.reduce_window", x.window(window, combine);
    Op::SelectAndScatter { window } => Window,      TWO,   Combines, "stablehlo.select_and_scatter", x.select(window);
    Op::Sort { dim, .. }            => Order,       SOME,  Nothing,  "stablehlo.sort", x.sort(*dim);
    Op::TopK { .. }                 => Order,       ONE,   Nothing,  "chlo.top_k", x.top_k();
    Op::Gather(attrs)               => Lookup,      TWO,   Nothing,  "stablehlo.gather", x.gather(attrs);
    Op::Scatter(attrs)              => Update,      THREE, Combines, "stablehlo.scatter", x.scatter(attrs);
    Op::RngBitGenerator { .. }      => Draw,        ONE,   Nothing,  "stablehlo.rng_bit_generator", x.opaque();
    Op::Fft { .. }                  => Transform,   ONE,   Combines, "stablehlo.fft", x.transform();
    Op::Complex                     => Complex,     TWO,   Nothing,  "stablehlo.complex", x.kept();
    Op::Real                        => Complex,     ONE,   Nothing,  "stablehlo.real", x.kept();
    Op::Imag                        => Complex,     ONE,   Nothing,  "stablehlo.imag", x.kept();
    Op::OptimizationBarrier         => Marker,      ONE,   Nothing,  "stablehlo.optimization_barrier", x.kept();
    Op::ShardingConstraint(_)       => Marker,      ONE,   Nothing,  "sdy.sharding_constraint", x.kept();
    Op::MoveTo(_)                   => Marker,      ONE,   Nothing,  "graph.move_to", x.kept();
    Op::For { .. }                  => Inner,       SOME,  Inner,    "graph.for", x.opaque();
    Op::CustomCall(_)               => Inner,       SOME,  Inner,    crate::custom_call::MNEMONIC, x.opaque();
    Op::GetResult { .. }            => Result,      ONE,   Nothing,  "graph.get_result", x.result_of();
}

impl Op {
    /// Returns whether each element of the result is computed from the elements of all operands at its place, and from no
    /// others.
    pub const fn is_elementwise(&self) -> bool {
        use OpKind::{Arithmetic, Cast, Complex, Marker, Test};
        matches!(self.kind(), Arithmetic | Test | Cast | Complex | Marker)
    }

    /// Returns whether element `i` of the result, in row-major order, is computed from elements `i` of the operands, and
    /// from no others.
    pub const fn keeps_order(&self) -> bool {
        self.is_elementwise() || matches!(self, Op::Reshape { .. })
    }

    /// Returns whether the op has no operands: it is what the caller passes, or a constant.
    pub const fn is_leaf(&self) -> bool {
        matches!(self.kind(), OpKind::Input | OpKind::Constant)
    }

    /// Returns whether all elements of the operands are in the result, and no others.
    pub const fn moves_all(&self) -> bool {
        matches!(self.kind(), OpKind::View | OpKind::Move | OpKind::Marker)
    }

    /// Returns whether the op computes nothing: it is a leaf, or has the operand's elements in another view or type.
    pub const fn is_leaf_or_view(&self) -> bool {
        self.is_leaf() || matches!(self.kind(), OpKind::View | OpKind::Cast)
    }

    /// Returns whether all results have the same axes.
    pub(super) const fn has_equal_results(&self) -> bool {
        matches!(self.kind(), OpKind::Reduction | OpKind::Order)
    }
}

impl Graph {
    /// Returns what becomes of each axis of an operand of a node.
    ///
    /// # Panics
    /// If the node is not of this graph, or has no operand at `position`.
    pub fn axis_rules(&self, node: &Node, position: usize) -> AxisRules {
        axes(&node.op, &Operand::new(self, node, position))
    }
}
