//! How each op of the op table is said in the crate `xla`.
//!
//! Owns: the table, by mnemonic. `docs/op-coverage.md` is written from it. A kind that is not in it runs on the host; a test
//! compares the table with the corpus, which has every kind.

/// How an op is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Support {
    /// By one op of `XlaBuilder`. (A gather or scatter with batching dims is [`Support::HloText`].)
    Builder,
    /// By several ops of `XlaBuilder`, which give the same result.
    Composed,
    /// By a computation of one op in HLO text, which the graph calls: `XlaBuilder` of this crate has no such op.
    HloText,
    /// Not a computation: an input, or a part of another op.
    Structure,
}

impl Support {
    /// Returns the word for tables.
    pub const fn word(self) -> &'static str {
        match self {
            Support::Builder => "builder",
            Support::Composed => "composed",
            Support::HloText => "HLO text",
            Support::Structure => "structure",
        }
    }
}

use Support::{Builder, Composed, HloText, Structure};

/// Every kind of the op table, by mnemonic, in the table's order.
pub const TABLE: &[(&str, Support)] = &[
    ("graph.parameter", Structure),
    ("graph.slot", Structure),
    ("graph.offset", Structure),
    ("stablehlo.constant", Builder),
    ("stablehlo.iota", Builder),
    ("stablehlo.abs", Builder),
    ("stablehlo.negate", Builder),
    ("stablehlo.sign", Builder),
    ("stablehlo.exponential", Builder),
    ("stablehlo.exponential_minus_one", Builder),
    ("stablehlo.log", Builder),
    ("stablehlo.log_plus_one", Builder),
    ("stablehlo.sqrt", Builder),
    ("stablehlo.rsqrt", Builder),
    ("stablehlo.cbrt", Builder),
    ("stablehlo.logistic", Builder),
    ("stablehlo.sine", Builder),
    ("stablehlo.cosine", Builder),
    ("stablehlo.tan", HloText),
    ("stablehlo.tanh", Builder),
    ("chlo.sinh", Composed),
    ("chlo.cosh", Composed),
    ("chlo.asin", Composed),
    ("chlo.acos", Composed),
    ("chlo.atan", Composed),
    ("chlo.asinh", Composed),
    ("chlo.acosh", Composed),
    ("chlo.atanh", Composed),
    ("chlo.erf", Builder),
    ("chlo.erf_inv", Composed),
    ("stablehlo.floor", Builder),
    ("stablehlo.ceil", Builder),
    ("stablehlo.round_nearest_even", HloText),
    ("stablehlo.not", Builder),
    ("stablehlo.add", Builder),
    ("stablehlo.subtract", Builder),
    ("stablehlo.multiply", Builder),
    ("stablehlo.divide", Builder),
    ("stablehlo.remainder", Builder),
    ("stablehlo.power", Builder),
    ("stablehlo.maximum", Builder),
    ("stablehlo.minimum", Builder),
    ("stablehlo.atan2", Builder),
    ("stablehlo.and", Builder),
    ("stablehlo.or", Builder),
    ("stablehlo.xor", Builder),
    ("stablehlo.shift_left", HloText),
    ("stablehlo.shift_right_arithmetic", HloText),
    ("stablehlo.shift_right_logical", HloText),
    ("stablehlo.compare", Builder),
    ("stablehlo.is_finite", Builder),
    ("stablehlo.select", Builder),
    ("stablehlo.clamp", Builder),
    ("stablehlo.convert", Builder),
    ("stablehlo.bitcast_convert", HloText),
    ("stablehlo.broadcast_in_dim", Builder),
    ("stablehlo.reshape", Builder),
    ("stablehlo.transpose", Builder),
    ("stablehlo.reverse", Builder),
    ("stablehlo.slice", Composed),
    ("stablehlo.pad", Builder),
    ("stablehlo.concatenate", Builder),
    ("stablehlo.dynamic_slice", Builder),
    ("stablehlo.dynamic_update_slice", Builder),
    ("stablehlo.dot_general", Builder),
    ("stablehlo.convolution", Composed),
    ("stablehlo.reduce", Builder),
    ("graph.arg_reduce", HloText),
    ("stablehlo.reduce_window", HloText),
    ("stablehlo.select_and_scatter", HloText),
    ("stablehlo.sort", HloText),
    ("chlo.top_k", Composed),
    ("stablehlo.gather", Builder),
    ("stablehlo.scatter", Builder),
    ("stablehlo.rng_bit_generator", Builder),
    ("stablehlo.fft", HloText),
    ("stablehlo.complex", HloText),
    ("stablehlo.real", Builder),
    ("stablehlo.imag", Builder),
    ("stablehlo.optimization_barrier", HloText),
    ("sdy.sharding_constraint", Structure),
    ("graph.move_to", Structure),
    ("graph.for", Builder),
    ("graph.custom_call", Composed),
    ("graph.get_result", Structure),
];

/// Returns how an op is said; `None` for a kind that is not in the table.
pub fn of(mnemonic: &str) -> Option<Support> {
    TABLE.iter().find(|(known, _)| *known == mnemonic).map(|&(_, support)| support)
}
