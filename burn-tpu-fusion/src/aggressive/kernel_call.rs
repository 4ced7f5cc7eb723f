//! A kernel as the graph knows it: a call of a plugin's compiler, as plain data.

use burn_tpu_graph::{DType, KernelCall, KernelCost, TensorType};
use burn_tpu_kernels::{ArrayType, Element, Kernel, Result};

/// Returns the call that runs a kernel on a TPU.
///
/// # Errors
/// Fails where [`Kernel::custom_call`] does.
pub fn kernel_call(kernel: &Kernel) -> Result<KernelCall> {
    let call = kernel.custom_call()?;
    let cost = KernelCost {
        flops: call.cost.flops,
        transcendentals: call.cost.transcendentals,
        bytes: call.cost.bytes_accessed,
    };
    Ok(KernelCall {
        target: call.target.to_owned(),
        backend_config: call.backend_config,
        operands: call.operands.iter().map(tensor_type).collect(),
        results: call.results.iter().map(tensor_type).collect(),
        cost,
        partition: None,
    })
}

fn tensor_type(array: &ArrayType) -> TensorType {
    TensorType::new(dtype(array.element), array.dims.as_slice())
}

const fn dtype(element: Element) -> DType {
    match element {
        Element::Bool => DType::Bool,
        Element::I8 => DType::I8,
        Element::I32 => DType::I32,
        Element::BF16 => DType::BF16,
        Element::F32 => DType::F32,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn_tpu_kernels::kernels::int8_matmul;

    #[test]
    fn types_and_costs_are_those_of_the_kernel() {
        let kernel = int8_matmul(Element::BF16, 8, 256, 128).unwrap();
        let call = kernel_call(&kernel).unwrap();
        let types = |types: &[TensorType]| types.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(types(&call.operands), ["bf16[8,256]", "i8[256,128]", "f32[1,128]"]);
        assert_eq!(types(&call.results), ["bf16[8,128]"]);
        assert_eq!(call.target, "tpu_custom_call");
        assert_eq!((call.cost.flops, call.cost.bytes), (kernel.cost().flops, kernel.cost().bytes_accessed));
        assert!(call.cost.flops > 2 * 8 * 256 * 128);
    }
}
