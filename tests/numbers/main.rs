//! What programs compute, whatever runs them: the op corpus, random programs, rewrites, kernels, custom ops, edges.
//!
//! Tests use devices of their own file, the interpreter, or a client of the plugin without the backend. Some compile ahead
//! of time for a TPU. `-- --ignored --nocapture` runs the measurements that `docs/decisions` quotes.

#[path = "../common/mod.rs"]
mod common;

mod corpus;
mod custom_op;
mod custom_op_forms;
mod depthwise;
mod drawn_values;
mod families;
mod few_rows;
mod flash_attention;
mod folding;
mod fusion;
mod mistakes;
mod module_parity;
mod pieces;
mod random_programs;
mod rolling;
mod round_once;
mod semantics;
mod special_values;
