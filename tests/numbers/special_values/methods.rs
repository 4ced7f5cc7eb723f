//! Methods of tensors of every element type, on special values: interpreted, compiled at each level, and as JAX's CPU
//! client computes them.
//!
//! `jax.txt` holds the inputs and JAX's results; `benches/jax/special_values.py` writes it. A method that JAX has no
//! equal of is compared between the tiers. [`is_known`] lists what
//! differs from the interpreter.

use super::agree;
use crate::common;

use burn::tensor::activation as act;
use burn::tensor::{Bool, DType, FloatDType, Int, IntDType, Tensor, TensorData};
use burn_tpu::{Optimization, Tpu, TpuDevice, metrics};
use burn_tpu_graph::{DType as Type, Number};
use std::collections::{BTreeMap, HashMap};

type B = Tpu<f32>;

/// The element types of a table, with their names in `jax.txt`.
const FLOATS: [(&str, DType); 3] = [("f32", DType::F32), ("bf16", DType::BF16), ("f16", DType::F16)];
const INTS: [(&str, DType); 3] = [("i32", DType::I32), ("i64", DType::I64), ("u8", DType::U8)];

/// The number of columns of `rows`.
const COLUMNS: usize = 5;

/// A result of a method that nothing has read yet.
enum Pending {
    Float(Tensor<B, 1>),
    Int(Tensor<B, 1, Int>),
    Bool(Tensor<B, 1, Bool>),
}

impl Pending {
    fn read(self) -> Vec<Number> {
        let data = match self {
            Self::Float(x) => x.into_data(),
            Self::Int(x) => x.into_data(),
            Self::Bool(x) => x.into_data(),
        };
        let ty = type_named(if matches!(data.dtype, DType::Bool(_)) { "bool" } else { data.dtype.name() });
        let bits = |bytes: &[u8]| bytes.iter().rev().fold(0, |bits, &byte| bits << 8 | u64::from(byte));
        data.as_bytes().chunks_exact(ty.size_bytes()).map(|bytes| Number::of_bits(bits(bytes), ty)).collect()
    }
}

impl<const D: usize> From<Tensor<B, D>> for Pending {
    fn from(x: Tensor<B, D>) -> Self {
        let size = x.shape().num_elements();
        Self::Float(x.reshape([size]))
    }
}

impl<const D: usize> From<Tensor<B, D, Int>> for Pending {
    fn from(x: Tensor<B, D, Int>) -> Self {
        let size = x.shape().num_elements();
        Self::Int(x.reshape([size]))
    }
}

impl<const D: usize> From<Tensor<B, D, Bool>> for Pending {
    fn from(x: Tensor<B, D, Bool>) -> Self {
        let size = x.shape().num_elements();
        Self::Bool(x.reshape([size]))
    }
}

/// Returns the element type that has this name in `jax.txt`.
fn type_named(name: &str) -> Type {
    match name {
        "f32" => Type::F32,
        "bf16" => Type::BF16,
        "f16" => Type::F16,
        "i32" => Type::I32,
        "i64" => Type::I64,
        "u8" => Type::U8,
        "bool" => Type::Bool,
        other => panic!("no element type is called {other}"),
    }
}

/// The arrays of `jax.txt` by type and name.
struct Fixture {
    /// `jax` and its version.
    version: &'static str,
    arrays: HashMap<(&'static str, &'static str), (Type, Vec<u64>)>,
}

impl Fixture {
    fn read() -> Self {
        let mut lines = include_str!("jax.txt").lines();
        let version = lines.next().expect("the first line is the version");
        let array = |line: &'static str| {
            let (head, bits) = line.split_once(':').expect("a name and its bits");
            let [of, name, ty] = head.split(' ').collect::<Vec<_>>()[..] else { panic!("three words: {head}") };
            let bits = bits.split_ascii_whitespace().map(|bits| u64::from_str_radix(bits, 16).expect("bits"));
            ((of, name), (type_named(ty), bits.collect()))
        };
        Self { version, arrays: lines.map(array).collect() }
    }

    /// Returns JAX's results of those methods of a table that it has.
    fn table(&self, methods: &Table) -> Table {
        let numbers = |key: &(_, _)| {
            let (ty, bits) = self.arrays.get(key)?;
            Some((*key, bits.iter().map(|&bits| Number::of_bits(bits, *ty)).collect()))
        };
        methods.keys().filter_map(numbers).collect()
    }

    /// Returns an input as a tensor's data, of `[n]` or, for `rows`, `[n, 5]`.
    fn data(&self, of: &'static str, name: &'static str, dtype: DType) -> TensorData {
        let (ty, bits) = &self.arrays[&(of, name)];
        let bytes = bits.iter().flat_map(|bits| bits.to_le_bytes()[..ty.size_bytes()].to_vec()).collect();
        let shape = if name == "rows" { vec![bits.len() / COLUMNS, COLUMNS] } else { vec![bits.len()] };
        TensorData::from_bytes_vec(bytes, shape, dtype)
    }
}

/// The results of a table, by method.
type Results = Vec<(&'static str, Pending)>;

/// Makes the list of a table: each name with its result.
macro_rules! results {
    ($($name:ident: $result:expr,)*) => { vec![$((stringify!($name), Pending::from($result))),*] };
}

/// Returns what all numbers have.
macro_rules! numbers {
    ($x:ident, $a:ident, $b:ident, $rows:ident) => {
        results! {
            abs: $x().abs(),
            neg: $x().neg(),
            sign: $x().sign(),
            square: $x() * $x(),
            add: $a() + $b(),
            sub: $a() - $b(),
            mul: $a() * $b(),
            div: $a() / $b(),
            remainder: $a().remainder($b()),
            max_pair: $a().max_pair($b()),
            min_pair: $a().min_pair($b()),
            equal: $a().equal($b()),
            not_equal: $a().not_equal($b()),
            greater: $a().greater($b()),
            greater_equal: $a().greater_equal($b()),
            lower: $a().lower($b()),
            lower_equal: $a().lower_equal($b()),
            mask_where: $a().mask_where($a().greater($b()), $b()),
            mask_fill: $x().mask_fill($x().greater_elem(1), 3),
            add_one: $x() + 1,
            times_zero: $x() * 0,
            clamp: $x().clamp(1, 3),
            clamp_min_0: $x().clamp_min(0),
            clamp_max_0: $x().clamp_max(0),
            is_positive: $x().greater_elem(0),
            is_zero: $x().equal_elem(0),
            to_bool: $x().bool(),
            powi_2: $x().powi_scalar(2),
            sum_dim: $rows().sum_dim(1),
            mean_dim: $rows().mean_dim(1),
            prod_dim: $rows().prod_dim(1),
            max_dim: $rows().max_dim(1),
            min_dim: $rows().min_dim(1),
            max_abs_dim: $rows().max_abs_dim(1),
            max_of_all: $x().max(),
            argmax: $rows().argmax(1),
            argmin: $rows().argmin(1),
            indices_of_max: $rows().max_dim_with_indices(1).1,
            sort: $rows().sort(1),
            sort_descending: $rows().sort_descending(1),
            argsort: $rows().argsort(1),
            argsort_descending: $rows().argsort_descending(1),
            topk: $rows().topk(2, 1),
            argtopk: $rows().argtopk(2, 1),
            cumsum: $rows().cumsum(1),
            cumprod: $rows().cumprod(1),
            cummax: $rows().cummax(1),
            cummin: $rows().cummin(1),
            any_dim: $rows().any_dim(1),
            all_dim: $rows().all_dim(1),
        }
    };
}

fn float_results(fixture: &Fixture, (of, dtype): (&'static str, DType), device: &TpuDevice) -> Results {
    let load = |name: &'static str| fixture.data(of, name, dtype);
    let [x, a, b] = ["x", "a", "b"].map(|name| Tensor::<B, 1>::from_data(load(name), (device, dtype)));
    let rows = Tensor::<B, 2>::from_data(load("rows"), (device, dtype));
    let (x, a, b, rows) = (|| x.clone(), || a.clone(), || b.clone(), || rows.clone());
    let head = || rows().narrow(0, 0, 8);
    let mut results: Results = numbers!(x, a, b, rows);
    results.extend(results! {
        to_f32: x().cast(DType::F32),
        to_bf16: x().cast(DType::BF16),
        to_f16: x().cast(DType::F16),
        to_i32: x().int(),
        to_i64: x().cast(IntDType::I64),
        to_u8: x().cast(IntDType::U8),
        exp: x().exp(),
        log: x().log(),
        log1p: x().log1p(),
        sqrt: x().sqrt(),
        recip: x().recip(),
        sin: x().sin(),
        cos: x().cos(),
        tan: x().tan(),
        sinh: x().sinh(),
        cosh: x().cosh(),
        tanh: x().tanh(),
        asin: x().asin(),
        acos: x().acos(),
        atan: x().atan(),
        asinh: x().asinh(),
        acosh: x().acosh(),
        atanh: x().atanh(),
        erf: x().erf(),
        floor: x().floor(),
        ceil: x().ceil(),
        round: x().round(),
        trunc: x().trunc(),
        is_nan: x().is_nan(),
        is_inf: x().is_inf(),
        is_finite: x().is_finite(),
        fmod: a().fmod(b()),
        powf: a().powf(b()),
        atan2: a().atan2(b()),
        is_close: a().is_close(b(), None, None),
        powf_half: x().powf_scalar(0.5),
        powf_0: x().powf_scalar(0.0),
        powf_minus_1: x().powf_scalar(-1.0),
        powi_3: x().powi_scalar(3),
        powi_minus_2: x().powi_scalar(-2),
        div_0: x() / 0.0,
        remainder_2: x().remainder_scalar(2.0),
        clamp_halves: x().clamp(-0.5, 0.5),
        relu: act::relu(x()),
        leaky_relu: act::leaky_relu(x(), 0.01),
        gelu: act::gelu(x()),
        gelu_approximate: act::gelu_approximate(x()),
        sigmoid: act::sigmoid(x()),
        hard_sigmoid: act::hard_sigmoid(x(), 0.2, 0.5),
        log_sigmoid: act::log_sigmoid(x()),
        silu: act::silu(x()),
        softplus: act::softplus(x(), 1.0),
        mish: act::mish(x()),
        elu: act::elu(x(), 1.0),
        celu: act::celu(x(), 1.0),
        selu: act::selu(x()),
        softsign: act::softsign(x()),
        hard_swish: act::hard_swish(x()),
        hard_shrink: act::hard_shrink(x(), 0.5),
        soft_shrink: act::soft_shrink(x(), 0.5),
        thresholded_relu: act::thresholded_relu(x(), 1.0),
        softmax: act::softmax(rows(), 1),
        log_softmax: act::log_softmax(rows(), 1),
        softmin: act::softmin(rows(), 1),
        quiet_softmax: act::quiet_softmax(rows(), 1),
        var: rows().var(1),
        median: rows().median(1),
        matmul: head().matmul(head().transpose()),
        sum_of_squares: (rows() * rows()).sum_dim(1),
        sum_of_exponentials: rows().exp().sum_dim(1),
    });
    results
}

fn int_results(fixture: &Fixture, (of, dtype): (&'static str, DType), device: &TpuDevice) -> Results {
    let load = |name: &'static str| fixture.data(of, name, dtype);
    let [x, a, b] = ["x", "a", "b"].map(|name| Tensor::<B, 1, Int>::from_data(load(name), (device, dtype)));
    let rows = Tensor::<B, 2, Int>::from_data(load("rows"), (device, dtype));
    let (x, a, b, rows) = (|| x.clone(), || a.clone(), || b.clone(), || rows.clone());
    let mut results: Results = numbers!(x, a, b, rows);
    results.extend(results! {
        to_f32: x().float(),
        to_bf16: x().cast(FloatDType::BF16),
        to_f16: x().cast(FloatDType::F16),
        to_i32: x().cast(IntDType::I32),
        to_i64: x().cast(IntDType::I64),
        to_u8: x().cast(IntDType::U8),
        bitwise_not: x().bitwise_not(),
        bitwise_and: a().bitwise_and(b()),
        bitwise_or: a().bitwise_or(b()),
        bitwise_xor: a().bitwise_xor(b()),
        left_shift: a().bitwise_left_shift(b()),
        right_shift: a().bitwise_right_shift(b()),
        div_0: x() / 0,
        div_3: x() / 3,
        remainder_3: x().remainder_scalar(3),
        powi: a().powi(b()),
    });
    results
}

fn bool_results(fixture: &Fixture, device: &TpuDevice) -> Results {
    let load = |name: &'static str| fixture.data("bool", name, DType::Bool(burn::tensor::BoolStore::Native));
    let [x, a, b] = ["x", "a", "b"].map(|name| Tensor::<B, 1, Bool>::from_data(load(name), device));
    let rows = Tensor::<B, 2, Bool>::from_data(load("rows"), device);
    let (x, a, b, rows) = (|| x.clone(), || a.clone(), || b.clone(), || rows.clone());
    results! {
        bool_not: x().bool_not(),
        bool_and: a().bool_and(b()),
        bool_or: a().bool_or(b()),
        bool_xor: a().bool_xor(b()),
        equal: a().equal(b()),
        not_equal: a().not_equal(b()),
        to_i32: x().int(),
        to_f32: x().float(),
        any_dim: rows().any_dim(1),
        all_dim: rows().all_dim(1),
    }
}

/// The numbers of each method, by element type and name.
type Table = BTreeMap<(&'static str, &'static str), Vec<Number>>;

fn table(fixture: &Fixture, device: &TpuDevice) -> Table {
    let mut table = Table::new();
    let mut add = |of, results: Results| {
        // All are alive until the first is read: they are one program.
        table.extend(results.into_iter().map(|(name, result)| ((of, name), result.read())));
    };
    FLOATS.iter().for_each(|&of| add(of.0, float_results(fixture, of, device)));
    INTS.iter().for_each(|&of| add(of.0, int_results(fixture, of, device)));
    add("bool", bool_results(fixture, device));
    table
}

/// Returns whether a tier is known to differ from the interpreter in some values of a method (xla-cpu-pjrt 0.0.1,
/// jaxlib 0.10.2).
fn is_known(tier: &str, of: &str, method: &str) -> bool {
    match (tier.starts_with("jax"), of, method) {
        // 1 + tanh(x) has few digits where tanh is near -1, which f16 rounds once more if each op does.
        (false, "f32", "gelu_approximate") => true,
        (false, "f16", "gelu_approximate") => tier == "off",
        // JAX negates a softplus, which is 0 for large numbers.
        (true, _, "log_sigmoid") => true,
        // The newer XLA compares bf16 by its bits, and a subnormal number is not 0.
        (true, "bf16", "is_zero" | "to_bool") => true,
        // JAX doubles an arc tangent, which is 0 for the smallest number of f16. Here it is computed in f32.
        (true, "f16", "asin") => true,
        _ => false,
    }
}

/// Returns the differences of a tier, one line for each method with its first one, and the number of the differing
/// methods.
fn differences(tier: &str, found: &Table, expected: &Table) -> Vec<String> {
    let mut lines = Vec::new();
    for ((of, method), expected) in expected {
        let Some(found) = found.get(&(*of, *method)) else { continue };
        assert_eq!(found.len(), expected.len(), "{tier}, {of} {method}");
        let ty = type_named(of);
        let same = |(found, expected): &(&Number, &Number)| match (found, expected) {
            (Number::Float(f), Number::Float(e)) => agree(method, ty, *f, *e),
            _ => found == expected,
        };
        let wrong: Vec<_> = found.iter().zip(expected).enumerate().filter(|(_, pair)| !same(pair)).collect();
        if let Some((place, (found, expected))) = wrong.first()
            && !is_known(tier, of, method)
        {
            let count = wrong.len();
            lines.push(format!("{tier}, {of} {method}[{place}]: {found:?}, interpreter {expected:?} ({count} such)"));
        }
    }
    lines
}

/// The levels, by name.
const LEVELS: [(&str, Optimization); 4] = [
    ("off", Optimization::Off),
    ("conservative", Optimization::Conservative),
    ("balanced", Optimization::Balanced),
    ("aggressive", Optimization::Aggressive),
];

/// Levels above `off` leave out roundings of 16-bit floats, in the interpreter as elsewhere. The other two levels give
/// the same programs as the default one, and run in the long mode.
#[test]
fn every_tier_and_jax_agree_on_special_values() {
    let fixture = Fixture::read();
    let mut report = Vec::new();
    let levels = LEVELS.into_iter().filter(|(name, _)| common::is_long() || ["off", "balanced"].contains(name));
    for (name, level) in levels {
        let options = || common::development().strict(false).optimization(level);
        let Some(new) = common::cpu_with(&format!("{name}, interpreted"), options().interpret_from(1)) else { return };
        let old = common::cpu_with(&format!("{name}, compiled"), options().interpret_from(0)).expect("a plugin");
        let [expected, found] = [&new, &old].map(|device| table(&fixture, device));
        assert!(metrics(&new).compiles == 0 && metrics(&old).interpreted == 0, "{name}");
        report.extend(differences(name, &found, &expected));
        if level == Optimization::Balanced {
            report.extend(differences(fixture.version, &fixture.table(&expected), &expected));
        }
    }
    assert!(report.is_empty(), "{} methods differ:\n{}", report.len(), report.join("\n"));
}
