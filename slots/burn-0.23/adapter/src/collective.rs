//! Burn's collectives over a list of devices.

use crate::backend::{Tpu, TpuFloat, TpuInt};
use burn_backend::ops::CollectiveOps;

/// Burn's defaults, which move tensors from device to device. Many chips are one device here, a [`Mesh`](crate::Mesh),
/// whose collectives XLA's partitioner chooses.
impl<F: TpuFloat, I: TpuInt> CollectiveOps<Self> for Tpu<F, I> {}
