//! The op table: every node kind of the graph, at StableHLO's granularity and under its names.
//!
//! An op consists of its attributes. Equality, hash and text of a node are derived from them, so an attribute cannot
//! be forgotten in a cache key. What each op is stands in one row of `table`, and how axes pass through it in `axes`. To add
//! a kind, see `docs/adding-an-op.md`.

mod axes;
mod table;
#[cfg(test)]
mod tests;

pub use axes::{AxisRule, AxisRules};
pub use table::{OpKind, Work};

use crate::{CustomCall, DType, DTypeClass, Dims, Literal, Program, Sharding, TensorType};
use std::sync::Arc;

/// The cost of an op that evaluates a function such as `exp` for each element.
const FUNCTION: Work = Work::Transcendental;
/// The cost of an op that is one floating-point operation for each element.
const ONE_FLOP: Work = Work::Each(1);

/// A family of ops that share arity, inference and lowering, one line each: name, mnemonic, operand class, cost, meaning.
macro_rules! elementwise {
    (
        $(#[$doc:meta])*
        $family:ident { $($name:ident = $mnemonic:literal, $class:ident, $work:expr, $meaning:literal;)* }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $family { $(#[doc = $meaning] $name,)* }

        impl $family {
            /// Every op of the family, in declaration order.
            pub const ALL: &[$family] = &[$($family::$name),*];

            /// Returns the op's mnemonic with its dialect: `stablehlo.add`, `chlo.erf`.
            pub const fn mnemonic(self) -> &'static str {
                match self { $($family::$name => $mnemonic),* }
            }

            /// Returns the element types that the op takes.
            pub const fn class(self) -> DTypeClass {
                match self { $($family::$name => DTypeClass::$class),* }
            }

            /// Returns what one run of the op costs.
            pub const fn work(self) -> Work {
                match self { $($family::$name => $work),* }
            }
        }
    };
}

elementwise! {
    /// Element-wise ops of one operand; the result has the operand's type.
    UnaryOp {
        Abs = "stablehlo.abs", Signed, ONE_FLOP, "Absolute value.";
        Neg = "stablehlo.negate", Numeric, ONE_FLOP, "Negation; integers wrap.";
        Sign = "stablehlo.sign", Signed, ONE_FLOP, "-1, 0 or 1; NaN for NaN.";
        Exp = "stablehlo.exponential", Float, FUNCTION, "e to the power x.";
        Expm1 = "stablehlo.exponential_minus_one", Float, FUNCTION, "e^x - 1.";
        Log = "stablehlo.log", Float, FUNCTION, "Natural logarithm.";
        Log1p = "stablehlo.log_plus_one", Float, FUNCTION, "ln(1 + x).";
        Sqrt = "stablehlo.sqrt", Float, FUNCTION, "Square root.";
        Rsqrt = "stablehlo.rsqrt", Float, FUNCTION, "1 / sqrt(x).";
        Cbrt = "stablehlo.cbrt", Float, FUNCTION, "Cube root.";
        Logistic = "stablehlo.logistic", Float, FUNCTION, "1 / (1 + e^-x).";
        Sin = "stablehlo.sine", Float, FUNCTION, "Sine.";
        Cos = "stablehlo.cosine", Float, FUNCTION, "Cosine.";
        Tan = "stablehlo.tan", Float, FUNCTION, "Tangent.";
        Tanh = "stablehlo.tanh", Float, FUNCTION, "Hyperbolic tangent.";
        Sinh = "chlo.sinh", Float, FUNCTION, "Hyperbolic sine.";
        Cosh = "chlo.cosh", Float, FUNCTION, "Hyperbolic cosine.";
        Asin = "chlo.asin", Float, FUNCTION, "Arc sine.";
        Acos = "chlo.acos", Float, FUNCTION, "Arc cosine.";
        Atan = "chlo.atan", Float, FUNCTION, "Arc tangent.";
        Asinh = "chlo.asinh", Float, FUNCTION, "Inverse hyperbolic sine.";
        Acosh = "chlo.acosh", Float, FUNCTION, "Inverse hyperbolic cosine.";
        Atanh = "chlo.atanh", Float, FUNCTION, "Inverse hyperbolic tangent.";
        Erf = "chlo.erf", Float, FUNCTION, "The error function.";
        ErfInv = "chlo.erf_inv", Float, FUNCTION, "Inverse of the error function on (-1, 1).";
        Floor = "stablehlo.floor", Float, ONE_FLOP, "Largest integer not above x.";
        Ceil = "stablehlo.ceil", Float, ONE_FLOP, "Smallest integer not below x.";
        RoundNearestEven = "stablehlo.round_nearest_even", Float, ONE_FLOP, "Nearest integer, halves to even.";
        Not = "stablehlo.not", Bits, ONE_FLOP, "Bitwise complement; logical for bool.";
    }
}

elementwise! {
    /// Element-wise ops of two operands of one type; the result has that type. Nothing broadcasts implicitly.
    BinaryOp {
        Add = "stablehlo.add", Any, ONE_FLOP, "Sum; logical or for bool.";
        Sub = "stablehlo.subtract", Numeric, ONE_FLOP, "Difference.";
        Mul = "stablehlo.multiply", Any, ONE_FLOP, "Product; logical and for bool.";
        Div = "stablehlo.divide", Numeric, ONE_FLOP, "Quotient; integers truncate toward zero.";
        Rem = "stablehlo.remainder", Numeric, ONE_FLOP, "Remainder with the dividend's sign (C's fmod).";
        Pow = "stablehlo.power", Numeric, FUNCTION, "x to the power y.";
        Max = "stablehlo.maximum", Any, ONE_FLOP, "The larger; NaN if either is NaN.";
        Min = "stablehlo.minimum", Any, ONE_FLOP, "The smaller; NaN if either is NaN.";
        Atan2 = "stablehlo.atan2", Float, FUNCTION, "Angle of the point (y, x) = (lhs, rhs).";
        And = "stablehlo.and", Bits, ONE_FLOP, "Bitwise and; logical for bool.";
        Or = "stablehlo.or", Bits, ONE_FLOP, "Bitwise or; logical for bool.";
        Xor = "stablehlo.xor", Bits, ONE_FLOP, "Bitwise xor; logical for bool.";
        ShiftLeft = "stablehlo.shift_left", Int, ONE_FLOP, "Shift left; 0 when the count reaches the width.";
        ShiftRightArithmetic = "stablehlo.shift_right_arithmetic", Int, ONE_FLOP, "Shift right; fills with the sign bit.";
        ShiftRightLogical = "stablehlo.shift_right_logical", Int, ONE_FLOP, "Shift right; fills with zeros.";
    }
}

/// The relation that a comparison tests. With a NaN, every relation on floats except [`Direction::Ne`] is false.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "StableHLO's own names for the six relations")]
pub enum Direction {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
}

/// How a reduction, a window or a scatter combines two values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Combine {
    /// Sum, from 0.
    Sum,
    /// Product, from 1.
    Prod,
    /// Maximum, from the type's smallest value (-inf for floats); NaN wins.
    Max,
    /// Minimum, from the type's largest value (+inf for floats); NaN wins.
    Min,
    /// Logical or bitwise and, from all ones.
    And,
    /// Logical or bitwise or, from 0.
    Or,
}

impl Combine {
    /// Returns the binary op that combines two values.
    pub const fn op(self) -> BinaryOp {
        match self {
            Combine::Sum => BinaryOp::Add,
            Combine::Prod => BinaryOp::Mul,
            Combine::Max => BinaryOp::Max,
            Combine::Min => BinaryOp::Min,
            Combine::And => BinaryOp::And,
            Combine::Or => BinaryOp::Or,
        }
    }

    /// Returns the bits of the neutral element in `dtype`.
    pub fn identity_bits(self, dtype: DType) -> u64 {
        let one = crate::Number::Int(1).bits(dtype);
        let (lowest, highest) = crate::literal::extremes(dtype);
        match self {
            Combine::Sum | Combine::Or => 0,
            Combine::Prod => one,
            Combine::Max => lowest,
            Combine::Min => highest,
            Combine::And if dtype == DType::Bool => 1,
            Combine::And => u64::MAX >> (64 - 8 * dtype.size_bytes()),
        }
    }
}

/// How a scatter combines an update with an element.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ScatterMode {
    /// The update replaces the element. With duplicate indices, one of the updates is kept; which one is unspecified.
    Assign,
    /// The update is combined with the element.
    Combine(Combine),
}

/// Bounds of a static slice, one entry per dim.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SliceAttrs {
    /// First index taken.
    pub start: Dims,
    /// One past the last index considered.
    pub limit: Dims,
    /// Step, at least 1.
    pub stride: Dims,
}

/// Padding, one entry per dim. Negative edges crop.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PadAttrs {
    /// Elements added before.
    pub low: smallvec::SmallVec<[isize; 4]>,
    /// Elements added after.
    pub high: smallvec::SmallVec<[isize; 4]>,
    /// Elements added between neighbours.
    pub interior: Dims,
}

/// How exactly a processor multiplies 32-bit floats in products and convolutions. Sums are f32. CPUs multiply them as they are
/// at every precision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Precision {
    /// As fast as it can: TPUs round the factors to bf16, NVIDIA GPUs to 10 bits.
    #[default]
    Default,
    /// In between: TPUs add three products of bf16 parts, which is about 16 bits of a factor.
    High,
    /// As 32-bit floats: on TPUs six products of bf16 parts.
    Highest,
}

impl Precision {
    /// Returns its name in StableHLO.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Default => "DEFAULT",
            Self::High => "HIGH",
            Self::Highest => "HIGHEST",
        }
    }
}

/// Dimension roles of a `dot_general`. Result dims: batch, free dims of lhs, free dims of rhs.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct DotAttrs {
    /// Batch dims of the left operand.
    pub lhs_batch: Dims,
    /// Batch dims of the right operand, in the same order.
    pub rhs_batch: Dims,
    /// Contracted dims of the left operand.
    pub lhs_contract: Dims,
    /// Contracted dims of the right operand, in the same order.
    pub rhs_contract: Dims,
    /// Element type of the result and of the accumulation: f32 for 16-bit floats.
    pub result: DType,
    /// How exactly 32-bit factors are multiplied.
    pub precision: Precision,
}

impl DotAttrs {
    /// Returns the attributes of a product at the default precision: the batch dims and the contracted dims of the left
    /// operand and of the right one.
    pub fn new(batch: [&[usize]; 2], contract: [&[usize]; 2], result: DType) -> Self {
        let [[lhs_batch, rhs_batch], [lhs_contract, rhs_contract]] =
            [batch, contract].map(|sides| sides.map(Dims::from_slice));
        Self { lhs_batch, rhs_batch, lhs_contract, rhs_contract, result, precision: Precision::Default }
    }
}

/// The positions of the batch, feature and spatial dims of a tensor in a convolution.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ConvDims {
    /// The batch dim (for a kernel: the output-feature dim).
    pub batch: usize,
    /// The feature dim (for a kernel: the input-feature dim).
    pub feature: usize,
    /// The spatial dims, outermost first.
    pub spatial: Dims,
}

/// Attributes of a convolution. Vectors have one entry per spatial dim.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ConvAttrs {
    /// Steps of the window.
    pub strides: Dims,
    /// Elements of zero padding before and after; negative crops.
    pub padding: smallvec::SmallVec<[(isize, isize); 3]>,
    /// Distance between elements of the input: above 1 for a transposed convolution.
    pub lhs_dilation: Dims,
    /// Distance between elements of the kernel.
    pub rhs_dilation: Dims,
    /// Dim roles of the input.
    pub input: ConvDims,
    /// Dim roles of the kernel: `batch` is output features, `feature` is input features per group.
    pub kernel: ConvDims,
    /// Dim roles of the result.
    pub output: ConvDims,
    /// Groups of features.
    pub feature_groups: usize,
    /// Groups of the batch: used by the kernel gradient of a grouped convolution.
    pub batch_groups: usize,
    /// Element type of the result and of the accumulation: f32 for 16-bit floats.
    pub result: DType,
    /// How exactly 32-bit factors are multiplied.
    pub precision: Precision,
}

/// A window that moves over a tensor, one entry per dim of the tensor.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct WindowAttrs {
    /// Sizes of the window.
    pub dims: Dims,
    /// Steps of the window.
    pub strides: Dims,
    /// Distance between elements of the operand.
    pub base_dilation: Dims,
    /// Distance between elements of the window.
    pub window_dilation: Dims,
    /// Padding before and after, with the combination's neutral element.
    pub padding: smallvec::SmallVec<[(isize, isize); 4]>,
}

/// Attributes of a gather, as StableHLO's specification names them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct GatherAttrs {
    /// Result dims that come from the slice.
    pub offset_dims: Dims,
    /// Operand dims of slice size 1 that the result drops.
    pub collapsed_slice_dims: Dims,
    /// Operand batching dims, each paired with a batching dim of the indices.
    pub operand_batching_dims: Dims,
    /// The batching dims of the indices, in the order of the operand's.
    pub start_indices_batching_dims: Dims,
    /// Operand dim that each component of an index addresses.
    pub start_index_map: Dims,
    /// The dim of the indices that holds the components.
    pub index_vector_dim: usize,
    /// Size of the slice per operand dim. Indices are clamped so that the slice fits.
    pub slice_sizes: Dims,
}

impl GatherAttrs {
    /// Returns the attributes of a gather of slices of size 1 along `dim` of a tensor with these dims. The indices have
    /// `index_vector_dim` dims.
    pub fn slices_along(dims: &[usize], dim: usize, index_vector_dim: usize) -> Self {
        let mut slice_sizes = Dims::from_slice(dims);
        if let Some(size) = slice_sizes.get_mut(dim) {
            *size = 1;
        }
        Self {
            offset_dims: (0..dims.len()).filter(|&other| other != dim).collect(),
            collapsed_slice_dims: Dims::from_slice(&[dim]),
            operand_batching_dims: Dims::new(),
            start_indices_batching_dims: Dims::new(),
            start_index_map: Dims::from_slice(&[dim]),
            index_vector_dim,
            slice_sizes,
        }
    }
}

/// Attributes of a scatter, as StableHLO's specification names them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ScatterAttrs {
    /// Update dims that are window dims.
    pub update_window_dims: Dims,
    /// Operand dims of window size 1 that the updates do not have.
    pub inserted_window_dims: Dims,
    /// Operand batching dims, each paired with a batching dim of the indices.
    pub input_batching_dims: Dims,
    /// The batching dims of the indices, in the order of the operand's.
    pub scatter_indices_batching_dims: Dims,
    /// Operand dim that each component of an index addresses.
    pub scatter_dims_to_operand_dims: Dims,
    /// The dim of the indices that holds the components. Updates out of range are dropped.
    pub index_vector_dim: usize,
    /// How an update is combined with its element.
    pub mode: ScatterMode,
}

/// The direction and kind of a Fourier transform over the last dim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FftKind {
    /// Complex to complex.
    Fft,
    /// Complex to complex, inverse, scaled by 1/length.
    Ifft,
    /// Real to half-complex.
    Rfft,
    /// Half-complex to real, inverse, scaled by 1/length.
    Irfft,
}

/// A memory that a device reads, as XLA's memory spaces and JAX's memory kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MemorySpace {
    /// The device's own memory: HBM, on a TPU.
    Device,
    /// Memory of the host that the device reads and writes by itself.
    PinnedHost,
}

impl MemorySpace {
    /// Returns the name that plugins and StableHLO have for it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Device => "device",
            Self::PinnedHost => "pinned_host",
        }
    }
}

/// One node's operation with its attributes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// A device buffer that the caller passes, by position.
    Parameter {
        /// Position among the buffers of the recording.
        index: u32,
        /// The buffer's type.
        ty: TensorType,
    },
    /// A number that the caller passes in each run: rank 0, never part of the program's identity.
    Slot {
        /// Position among the slots of the recording.
        index: u32,
        /// Element type of the scalar.
        dtype: DType,
    },
    /// As [`Op::Slot`], for an integer that rarely changes (the start of a slice).
    /// [`Program::bake`](crate::Program::bake) makes it a constant while it does not change. Its positions are
    /// counted together with those of the slots.
    Offset {
        /// Position among the slots of the recording.
        index: u32,
        /// Element type of the scalar.
        dtype: DType,
    },
    /// A constant that is part of the program.
    Constant(Literal),
    /// 0, 1, 2, … along one dim.
    Iota {
        /// The result's type.
        ty: TensorType,
        /// The dim along which the numbers increase.
        dim: usize,
    },
    /// An element-wise op of one operand.
    Unary(UnaryOp),
    /// An element-wise op of two operands.
    Binary(BinaryOp),
    /// An element-wise relation; the result is bool.
    Compare(Direction),
    /// Tests whether each element is neither infinite nor NaN.
    IsFinite,
    /// Operands predicate, on_true, on_false.
    Select,
    /// Operands min, operand, max of one type. No min may be above its max: XLA's simplifier relies on that (it
    /// replaces `max(min, clamp(min, x, max))` with the clamp alone).
    Clamp,
    /// Conversion of values: float to int truncates, to bool tests for non-zero.
    Convert {
        /// Element type of the result.
        dtype: DType,
    },
    /// Reinterpretation of bits, between types of one width.
    BitcastConvert {
        /// Element type of the result.
        dtype: DType,
    },
    /// Places operand dim `i` at result dim `mapping[i]`; dims of size 1 repeat.
    BroadcastInDim {
        /// Result dims.
        dims: Dims,
        /// Result dim of each operand dim, increasing.
        mapping: Dims,
    },
    /// The same elements in row-major order with other dims.
    Reshape {
        /// Result dims.
        dims: Dims,
    },
    /// Result dim `i` is operand dim `permutation[i]`.
    Transpose {
        /// A permutation of the dims.
        permutation: Dims,
    },
    /// Reverses the order along dims.
    Reverse {
        /// The dims to reverse.
        dims: Dims,
    },
    /// A static slice.
    Slice(Box<SliceAttrs>),
    /// Operands: value, padding value (rank 0).
    Pad(Box<PadAttrs>),
    /// Concatenates the operands along a dim, in order.
    Concatenate {
        /// The dim to concatenate along.
        dim: usize,
    },
    /// Operands: value, then one rank-0 integer start per dim (clamped so that the slice fits).
    DynamicSlice {
        /// Sizes of the slice.
        sizes: Dims,
    },
    /// Operands: value, update, then one rank-0 integer start per dim (clamped so that the update fits).
    DynamicUpdateSlice,
    /// A contraction of two operands.
    DotGeneral(Box<DotAttrs>),
    /// A convolution of input and kernel.
    Convolution(Box<ConvAttrs>),
    /// Combines all elements along dims, which the result does not have.
    Reduce {
        /// How two values are combined.
        combine: Combine,
        /// The dims to reduce.
        dims: Dims,
    },
    /// Operands: values, indices (integers, same dims). Two results without `dim`: the extreme value, and the lowest
    /// index of the elements that have it. A NaN is more extreme than any number.
    ArgReduce {
        /// Maximum if true, else minimum.
        max: bool,
        /// The dim to reduce, which the results do not have.
        dim: usize,
    },
    /// Combines the elements under a moving window.
    ReduceWindow {
        /// How two values are combined.
        combine: Combine,
        /// The window.
        window: Box<WindowAttrs>,
    },
    /// Operands: operand, source. Each source element is added at the position of the largest operand element of its
    /// window (the first of equal ones). This is the gradient of max pooling. Takes no dilation.
    SelectAndScatter {
        /// The window.
        window: Box<WindowAttrs>,
    },
    /// Sorts all operands (same dims) along a dim by the first one, stably. There is one result per operand. Floats
    /// are in total order: NaN is last when ascending and first when descending.
    Sort {
        /// The dim to sort along.
        dim: usize,
        /// Whether the largest element comes first.
        descending: bool,
    },
    /// The `k` largest elements along the last dim, largest first, and their places there (`i32`). Of equal elements the
    /// one at the lowest place comes first. Floats are ordered as by `Sort`; zeros come out as +0.
    TopK {
        /// The number of elements.
        k: usize,
    },
    /// Operands: value, start indices (integers).
    Gather(Box<GatherAttrs>),
    /// Operands: value, indices (integers), updates.
    Scatter(Box<ScatterAttrs>),
    /// Operand: state `ui64[2]` (key, counter). Results: next state, uniformly random bits. The algorithm is
    /// Threefry, so that every platform draws the same numbers.
    RngBitGenerator {
        /// Type of the bits: ui32 or ui64.
        ty: TensorType,
    },
    /// A Fourier transform over the last dim.
    Fft {
        /// Direction and kind.
        kind: FftKind,
        /// Length of the time-domain signal.
        length: usize,
    },
    /// Operands: real part, imaginary part (f32). Result: complex.
    Complex,
    /// Real part of a complex operand.
    Real,
    /// Imaginary part of a complex operand.
    Imag,
    /// The operand, as a barrier for XLA's optimizations: keeps a recomputation from being merged with its original.
    OptimizationBarrier,
    /// The operand, which is split over the axes of the program's mesh in this way. Without a mesh, the operand as it is.
    ShardingConstraint(Sharding),
    /// The operand in this memory. On a platform whose devices have no other memory than the host's, the operand as it is.
    MoveTo(MemorySpace),
    /// Runs `body` `trips` times. The operands are the carries of the first trip, and after them the trip count if
    /// `trips` says so; the results are the carries after the last trip (the operands themselves if there is no trip).
    /// The body is closed: carry `i` is its parameter `i` and, with the same type, its output `i`. The parameter after
    /// the carries is the trip counter, `i32[]`, from 0. The body reads no slots and need not read every parameter.
    For {
        /// The trip count.
        trips: Trips,
        /// The program of one trip.
        body: Arc<Program>,
    },
    /// A computation that a platform may be given in another form than its program. The call has the types.
    CustomCall(Arc<CustomCall>),
    /// Result `index` of the operand, which is a node with several results. (As an operand of another op, such a node
    /// means its result 0.)
    GetResult {
        /// The index of the result; 0 is the node itself.
        index: usize,
    },
}

/// The trip count of a loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Trips {
    /// This many.
    Exactly(usize),
    /// As many as the last operand says, `i32[]`: none if it is negative, and no more than this.
    AtMost(usize),
}

impl Trips {
    /// Returns the largest number of trips.
    pub fn most(self) -> usize {
        match self {
            Self::Exactly(trips) | Self::AtMost(trips) => trips,
        }
    }

    /// Divides the operands of a loop into its carries and, if an operand has it, the trip count.
    pub fn split<T>(self, operands: &[T]) -> (&[T], Option<&T>) {
        match (self, operands) {
            (Self::AtMost(_), [carries @ .., count]) => (carries, Some(count)),
            _ => (operands, None),
        }
    }
}

impl From<UnaryOp> for Op {
    fn from(op: UnaryOp) -> Self {
        Op::Unary(op)
    }
}

impl From<BinaryOp> for Op {
    fn from(op: BinaryOp) -> Self {
        Op::Binary(op)
    }
}
