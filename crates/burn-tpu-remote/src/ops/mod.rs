//! Burn's operation traits as thin methods over the runtime's operations.
//!
//! The files have Burn's names (`tensor`, `int_tensor`, `bool_tensor`, `module`, `activation`, `qtensor`, `transaction`).
//! Nothing is composed here.

mod activation;
mod bool_tensor;
mod host;
mod int_tensor;
mod module;
mod options;
mod qtensor;
mod tensor;
mod transaction;

pub(crate) use qtensor::is_supported;
