//! Reads of several tensors at once.

use crate::backend::{Tpu, TpuFloat, TpuInt};
use crate::error::failed;
use burn_backend::ExecutionError;
use burn_backend::ops::{
    BoolTensorOps, FloatTensorOps, IntTensorOps, QTensorOps, TransactionOps, TransactionPrimitive,
    TransactionPrimitiveData,
};
use burn_tpu_runtime::ops::data;

/// Reads several tensors with one cut. Burn's default reads one tensor after the other. In the recording stream that is one
/// program, since a read there runs everything that is alive. A read from another thread cuts at the tensor's position, so
/// the last recorded tensor is read first.
impl<F: TpuFloat, I: TpuInt> TransactionOps<Self> for Tpu<F, I> {
    fn tr_execute(
        reads: TransactionPrimitive<Self>,
    ) -> impl Future<Output = Result<TransactionPrimitiveData, ExecutionError>> + Send {
        let tensors = reads.read_floats.iter().chain(&reads.read_ints).chain(&reads.read_bools);
        let started = data::run_for_reads(&tensors.map(|tensor| &tensor.0).collect::<Vec<_>>()).map_err(failed);
        async move {
            started?;
            let mut data = TransactionPrimitiveData::default();
            for tensor in reads.read_floats {
                data.read_floats.push(<Self as FloatTensorOps<Self>>::float_into_data(tensor).await?);
            }
            for tensor in reads.read_qfloats {
                data.read_qfloats.push(<Self as QTensorOps<Self>>::q_into_data(tensor).await?);
            }
            for tensor in reads.read_ints {
                data.read_ints.push(<Self as IntTensorOps<Self>>::int_into_data(tensor).await?);
            }
            for tensor in reads.read_bools {
                data.read_bools.push(<Self as BoolTensorOps<Self>>::bool_into_data(tensor).await?);
            }
            Ok(data)
        }
    }
}
