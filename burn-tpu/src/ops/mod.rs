//! Burn's operation traits as thin methods over the runtime's operations, for every version of Burn.
//!
//! The files have Burn's names (`tensor`, `int_tensor`, `bool_tensor`, `module`, `activation`, `qtensor`, `transaction`).
//! Nothing is composed here. The adapter of each version compiles these sources, `burn-tpu` for 0.21 and `burn-tpu-0-22`
//! for 0.22; what differs between versions is in the `version.rs` of each.

mod activation;
mod bool_tensor;
pub(crate) mod host;
mod int_tensor;
mod module;
pub(crate) mod options;
pub(crate) mod qtensor;
mod tensor;
mod transaction;
