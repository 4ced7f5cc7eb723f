//! Random cases: shapes with empty and size-1 dims, broadcasts, element types, and values that include every special one.
//!
//! A case's values come from a short pool that is repeated over its elements, so that equal elements are common and there
//! are few numbers to shrink. Each form (shapes, types, attributes) is drawn several times with different values.

use crate::case::{Case, INTS, Operand, Values, range, rounded, wrapped};
use burn_backend::{FloatDType, IntDType};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::strategy::{NewTree, SBoxedStrategy};
use proptest::test_runner::TestRunner;
use std::cell::Cell;
use std::fmt::Debug;

/// A strategy with its concrete type erased: this halves the compile time of the test binary.
pub type Gen<T> = SBoxedStrategy<T>;

/// Cases with attributes.
pub type Cases<A> = Gen<Case<A>>;

/// Any float: everyday numbers, every magnitude, and the special values.
pub fn any_float() -> Gen<f64> {
    prop_oneof![
        5 => moderate(),
        2 => -10.0..10.0f64,
        2 => (any::<bool>(), -90.0..88.0f64).prop_map(|(sign, power)| if sign { -power.exp() } else { power.exp() }),
        3 => special(),
    ]
    .sboxed()
}

/// Eighths from -4 to 4: exact in every float type.
pub fn moderate() -> Gen<f64> {
    (-32..=32i32).prop_map(|eighths| f64::from(eighths) / 8.0).sboxed()
}

/// Everyday numbers, sometimes a NaN or an infinity: for sums, whose order is unspecified.
pub fn summable() -> Gen<f64> {
    prop_oneof![40 => moderate(), 1 => select(vec![f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -0.0])].sboxed()
}

/// Numbers from 1/2 to 2 of either sign: for products.
pub fn multipliable() -> Gen<f64> {
    prop_oneof![
        20 => (4..=16i32, any::<bool>()).prop_map(|(e, sign)| f64::from(if sign { -e } else { e }) / 8.0),
        1 => select(vec![f64::NAN, f64::INFINITY, 0.0, -0.0]),
    ]
    .sboxed()
}

fn special() -> Gen<f64> {
    let (max, least) = (f64::from(f32::MAX), f64::from(f32::MIN_POSITIVE));
    select(vec![
        0.0,
        -0.0,
        1.0,
        -1.0,
        0.5,
        -0.5,
        1.5,
        2.5,
        f64::NAN,
        f64::INFINITY,
        f64::NEG_INFINITY,
        max,
        -max,
        least,
        -least,
        least / 8.0,
        f64::from(f32::EPSILON),
        1e-3,
        16_777_217.0,
        65_504.0,
        3e9,
        -3e9,
        1e19,
        std::f64::consts::PI,
    ])
    .sboxed()
}

/// An integer whose type is chosen later.
#[derive(Clone, Copy, Debug)]
pub enum Whole {
    /// Wraps to the type.
    Number(i64),
    /// Keeps its magnitude: an unsigned type drops the sign.
    Small(i64),
    Lowest(i64),
    Highest(i64),
}

impl Whole {
    pub fn of(self, dtype: IntDType) -> i128 {
        let (lowest, highest) = range(dtype);
        match self {
            Whole::Number(n) => wrapped(i128::from(n), dtype),
            Whole::Small(n) if lowest == 0 => wrapped(i128::from(n.abs()), dtype),
            Whole::Small(n) => wrapped(i128::from(n), dtype),
            Whole::Lowest(n) => lowest + i128::from(n),
            Whole::Highest(n) => highest - i128::from(n),
        }
    }
}

/// Any integer of a type.
pub fn any_whole() -> Gen<Whole> {
    prop_oneof![
        6 => (-9..=9i64).prop_map(Whole::Number),
        2 => any::<i64>().prop_map(Whole::Number),
        1 => (0..3i64).prop_map(Whole::Lowest),
        1 => (0..3i64).prop_map(Whole::Highest),
    ]
    .sboxed()
}

/// Integers whose sums and products stay below 64 bits, for every type.
pub fn below_31_bits() -> Gen<Whole> {
    prop_oneof![
        6 => (-9..=9i64).prop_map(Whole::Small),
        2 => (-0x4000_0000..0x4000_0000i64).prop_map(Whole::Small),
    ]
    .sboxed()
}

/// Small integers: products of five stay below 31 bits.
pub fn digits() -> Gen<Whole> {
    (-9..=9i64).prop_map(Whole::Small).sboxed()
}

/// Both values.
pub fn any_bool() -> Gen<bool> {
    any::<bool>().sboxed()
}

/// The kind of values in an operand, before the element types are known.
pub trait Pool: Clone + Debug + Send + Sync + 'static {
    fn values(pool: &[Self], count: usize, float: FloatDType, int: IntDType) -> Values;
}

impl Pool for f64 {
    fn values(pool: &[f64], count: usize, float: FloatDType, _int: IntDType) -> Values {
        Values::Float(pool.iter().cycle().take(count).map(|&v| rounded(v, float)).collect())
    }
}

impl Pool for Whole {
    fn values(pool: &[Whole], count: usize, _float: FloatDType, int: IntDType) -> Values {
        Values::Int(pool.iter().cycle().take(count).map(|&v| v.of(int)).collect())
    }
}

impl Pool for bool {
    fn values(pool: &[bool], count: usize, _float: FloatDType, _int: IntDType) -> Values {
        Values::Bool(pool.iter().copied().cycle().take(count).collect())
    }
}

/// A pool of values, drawn again for each draw of a case.
pub fn pool<P: Debug + 'static>(value: Gen<P>) -> Gen<Vec<P>> {
    Redrawn(vec(value, 1..=24)).sboxed()
}

/// The part of a case that differs between its draws. The rest is the case's form, which repeats, and with it the program.
#[derive(Debug)]
struct Redrawn<S>(S);

thread_local! {
    static DRAW: Cell<usize> = const { Cell::new(0) };
}

/// Selects the `n`th draw of all [`pool`]s.
pub fn draw(n: usize) {
    DRAW.set(n);
}

impl<S: Strategy> Strategy for Redrawn<S> {
    type Tree = S::Tree;
    type Value = S::Value;

    fn new_tree(&self, runner: &mut TestRunner) -> NewTree<Self> {
        // Takes one number of the form's sequence, for every draw.
        let fork = |from: &mut TestRunner| TestRunner::new_with_rng(from.config().clone(), from.new_rng());
        let own = (0..DRAW.get()).fold(fork(runner), |mut own, _| fork(&mut own));
        self.0.new_tree(&mut { own })
    }
}

/// A float type: f32 most often, then bf16; sometimes f64 and f16.
pub fn float_type() -> Gen<FloatDType> {
    use FloatDType::*;
    prop_oneof![5 => Just(F32), 3 => Just(BF16), 1 => Just(F16), 2 => Just(F64)].sboxed()
}

/// Any integer type, i32 most often.
pub fn int_type() -> Gen<IntDType> {
    prop_oneof![3 => Just(IntDType::I32), 5 => select(INTS.to_vec())].sboxed()
}

/// The two element types of a case.
pub fn types() -> Gen<(FloatDType, IntDType)> {
    (float_type(), int_type()).sboxed()
}

/// A dim: mostly small, sometimes 1, sometimes 0.
pub fn dim() -> Gen<usize> {
    prop_oneof![10 => 2..=5usize, 3 => Just(1usize), 1 => Just(0usize)].sboxed()
}

/// Dims of a rank from `least` to 4.
pub fn shape(least: usize) -> Gen<Vec<usize>> {
    vec(dim(), least..=4).sboxed()
}

/// Dims without a zero.
pub fn full_shape(least: usize) -> Gen<Vec<usize>> {
    vec(1..=5usize, least..=4).sboxed()
}

/// Returns the number of elements.
pub fn count(dims: &[usize]) -> usize {
    dims.iter().product()
}

/// Returns an operand in the case's types.
pub fn operand<P: Pool>(types: (FloatDType, IntDType), dims: &[usize], pool: &[P]) -> Operand {
    Operand { dims: dims.to_vec(), values: P::values(pool, count(dims), types.0, types.1) }
}

/// Returns a case with these operands.
pub fn case<A>((float, int): (FloatDType, IntDType), operands: Vec<Operand>, attr: A) -> Case<A> {
    Case { float, int, operands, attr }
}

/// One operand of any shape.
pub fn one<P: Pool>(value: Gen<P>) -> Cases<()> {
    one_shaped(value, shape(0), Just(())).prop_map(|case| case.with(())).sboxed()
}

/// One operand, with dims and attributes from strategies.
pub fn one_shaped<P: Pool, A: Clone + Debug + 'static>(
    value: Gen<P>,
    dims: Gen<Vec<usize>>,
    attr: impl Strategy<Value = A> + Send + Sync + 'static,
) -> Cases<A> {
    (types(), dims, pool(value), attr)
        .prop_map(|(types, dims, values, attr)| case(types, vec![operand(types, &dims, &values)], attr))
        .sboxed()
}

/// One operand and one of its dims.
pub fn one_dim<P: Pool>(value: Gen<P>, dims: Gen<Vec<usize>>) -> Cases<usize> {
    one_shaped(value, dims, 0..4usize)
        .prop_map(|case| {
            let dim = case.attr % case.operands[0].dims.len();
            case.with(dim)
        })
        .sboxed()
}

/// Two operands that broadcast to common dims.
pub fn two<P: Pool, Q: Pool>(x: Gen<P>, y: Gen<Q>) -> Cases<()> {
    two_shaped(x, y, shape(0))
}

/// Two operands that broadcast to these dims.
pub fn two_shaped<P: Pool, Q: Pool>(x: Gen<P>, y: Gen<Q>, dims: Gen<Vec<usize>>) -> Cases<()> {
    let spread = prop_oneof![3 => Just([false; 8]), 1 => prop::array::uniform8(any::<bool>())];
    (types(), dims, spread, pool(x), pool(y))
        .prop_map(|(types, dims, ones, x, y)| {
            let part = |ones: &[bool]| -> Vec<usize> {
                dims.iter().zip(ones).map(|(&size, &one)| if one { 1 } else { size }).collect()
            };
            let (left, right) = (part(&ones[..4]), part(&ones[4..]));
            case(types, vec![operand(types, &left, &x), operand(types, &right, &y)], ())
        })
        .sboxed()
}

/// An operand and a float scalar, rounded to the operand's type as Burn's scalars are. The scalar is not subnormal, since
/// our side may treat such a scalar as zero.
pub fn with_float_scalar(value: Gen<f64>, scalar: Gen<f64>) -> Cases<f64> {
    one_shaped(value, shape(0), scalar)
        .prop_map(|case| {
            let scalar = rounded(case.attr, case.float);
            case.with(if scalar.abs() < f64::from(f32::MIN_POSITIVE) { 0.0 } else { scalar })
        })
        .sboxed()
}

/// The cases that a reference supports. The condition may depend on shapes and attributes only, since forms repeat.
pub fn only<A: Clone + Debug + 'static>(
    cases: Cases<A>,
    why: &'static str,
    keep: impl Fn(&Case<A>) -> bool + Send + Sync + 'static,
) -> Cases<A> {
    cases.prop_filter(why, keep).sboxed()
}

/// The cases without an empty operand.
pub fn full<A: Clone + Debug + 'static>(cases: Cases<A>) -> Cases<A> {
    only(cases, "at least one element", |case| case.operands.iter().all(|x| count(&x.dims) > 0))
}

/// The same cases in f32.
pub fn single<A: Clone + Debug + 'static>(cases: Cases<A>) -> Cases<A> {
    let convert = |mut case: Case<A>| {
        case.float = FloatDType::F32;
        for operand in &mut case.operands {
            if let Values::Float(values) = &mut operand.values {
                values.iter_mut().for_each(|v| *v = rounded(*v, FloatDType::F32));
            }
        }
        case
    };
    cases.prop_map(convert).sboxed()
}
