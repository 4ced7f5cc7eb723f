//! Several processes that run the same program, on one host or on many: which one this is, and its part of the data.
//!
//! Every process runs the same program from its start; `burn-tpu launch` starts them. A data set is divided by [`part`]:
//!
//! ```
//! use burn_tpu::distributed;
//! let rows = 60_000;
//! let mine = distributed::part(rows)?; // all of them for a process that is alone
//! assert_eq!(mine, 0..rows);
//! assert_eq!((distributed::process_index()?, distributed::process_count()?), (0, 1));
//! # Ok::<(), burn_tpu::TpuError>(())
//! ```
//!
//! Before a program is first compiled for a mesh, the processes compare it: one that differs is
//! [`TpuError::Disagreement`] in all of them, where they would wait for each other for ever.
//! `docs/many-hosts.md` is the guide.

pub use burn_tpu_runtime::distributed::{
    Exchange, PREEMPTED, StopAgreement, Store, part, process_count, process_index, serve,
};
pub use burn_tpu_runtime::{Part, Region};

use crate::{MeshBackend, Platform, Result, TpuDevice, TpuError};
use burn_backend::Element;
use burn_core::tensor::{Int, Tensor, TensorData, TensorPrimitive};

/// Returns the devices of a platform that this process can use: those of its host, or of its part of the host.
pub fn local_devices(platform: Platform) -> Vec<TpuDevice> {
    burn_tpu_runtime::local_devices(platform).into_iter().map(TpuDevice::from).collect()
}

/// Returns a batch on a mesh, of which this process gives its rows alone: those that [`part`] gave it. The batch has the
/// rows of all processes, in their order. On a device of one process, the rows are the batch.
///
/// On a mesh of several processes, any other tensor of host data (`Tensor::from_data`) must be equal in all of them.
///
/// ```
/// use burn::tensor::{Tensor, TensorData};
/// use burn_tpu::{Tpu, TpuDevice, distributed};
/// let rows = TensorData::from([[1.0f32, 2.0], [3.0, 4.0]]);
/// let batch: Tensor<Tpu<f32>, 2> = distributed::batch(rows, &TpuDevice::ndarray())?;
/// assert_eq!(batch.dims(), [2, 2]);
/// # Ok::<(), burn_tpu::TpuError>(())
/// ```
///
/// # Errors
/// [`TpuError::Sharding`] if the batch axes of the mesh do not split a batch over the processes, or
/// the rows over the devices of this one, or the data has another number of dims; those of the transfer.
pub fn batch<B: MeshBackend, const D: usize>(rows: TensorData, device: &TpuDevice) -> Result<Tensor<B, D>> {
    check_rank(&rows, D)?;
    let rows = B::batch_float(rows.convert_dtype(B::FloatElem::dtype()), device)?;
    Ok(Tensor::from_primitive(TensorPrimitive::Float(rows)))
}

/// Returns a batch of integers, such as labels or token ids: the same as [`batch`].
///
/// # Errors
/// Those of [`batch`].
pub fn batch_int<B: MeshBackend, const D: usize>(rows: TensorData, device: &TpuDevice) -> Result<Tensor<B, D, Int>> {
    check_rank(&rows, D)?;
    let rows = B::batch_int(rows.convert_dtype(B::IntElem::dtype()), device)?;
    Ok(Tensor::from_primitive(rows))
}

fn check_rank(rows: &TensorData, rank: usize) -> Result<()> {
    let dims = rows.shape.as_slice();
    if dims.len() == rank {
        return Ok(());
    }
    let rule = format!("have {} dims, and the batch has {rank}", dims.len());
    Err(TpuError::Sharding { what: format!("rows of shape {dims:?}"), rule })
}
