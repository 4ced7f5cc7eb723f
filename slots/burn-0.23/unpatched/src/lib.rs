//! Tests of `burn-tpu-0-23` that need Burn without the slot: beside the real burn-flex, and through burn-group. It owns
//! nothing.
