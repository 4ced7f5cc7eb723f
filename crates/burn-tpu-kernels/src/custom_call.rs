//! A kernel as libtpu takes it: the custom call `tpu_custom_call` with its configuration.

use crate::{ArrayType, Cost, Kernel, KernelError, Result, kernel::Buffer, kernel::Role, kernel::Space};
use base64::{Engine, prelude::BASE64_STANDARD};
use serde::Serialize;

/// VMEM that every generation gives to a kernel that does not ask for more, in bytes.
const DEFAULT_VMEM_BYTES: usize = 16 << 20;

/// A custom call that runs a kernel on a TPU.
#[derive(Clone, Debug, PartialEq)]
pub struct CustomCall {
    /// The kernel's name.
    pub name: String,
    /// What the call is to, in the program's text.
    pub target: &'static str,
    /// The configuration, JSON.
    pub backend_config: String,
    /// The types of the operands, each row-major.
    pub operands: Vec<ArrayType>,
    /// The types of the results, each row-major.
    pub results: Vec<ArrayType>,
    /// What libtpu is told about the cost.
    pub cost: Cost,
}

#[derive(Serialize)]
struct BackendConfig {
    custom_call_config: CustomCallConfig,
    #[serde(skip_serializing_if = "Option::is_none")]
    scoped_memory_configs: Option<[ScopedMemory; 1]>,
}

#[derive(Serialize)]
struct CustomCallConfig {
    body: String,
    cost_estimate: Cost,
    serialization_format: u32,
    needs_layout_passes: bool,
}

#[derive(Serialize)]
struct ScopedMemory {
    memory_space: u32,
    offset: usize,
    size: usize,
}

impl Kernel {
    /// Returns the custom call that runs the kernel on a TPU.
    ///
    /// # Errors
    /// A block whose last two sizes are neither whole tiles (8 rows, 128 lanes) nor the array's own.
    pub fn custom_call(&self) -> Result<CustomCall> {
        self.buffers.iter().try_for_each(|buffer| self.check_tiles(buffer))?;
        let (vmem, cost) = (self.vmem().total_bytes(), self.cost());
        let size = vmem.next_multiple_of(1 << 20);
        let config = BackendConfig {
            custom_call_config: CustomCallConfig {
                body: BASE64_STANDARD.encode(self.text()),
                cost_estimate: cost,
                serialization_format: 1,
                needs_layout_passes: true,
            },
            scoped_memory_configs: (vmem > DEFAULT_VMEM_BYTES).then_some([ScopedMemory {
                memory_space: 1,
                offset: 0,
                size,
            }]),
        };
        let backend_config =
            serde_json::to_string(&config).map_err(|error| KernelError::layout(&self.name, error.to_string()))?;
        let (operands, results) = (self.operands(), self.results());
        Ok(CustomCall { name: self.name.clone(), target: "tpu_custom_call", backend_config, operands, results, cost })
    }

    fn check_tiles(&self, buffer: &Buffer) -> Result<()> {
        let (block, array) = (&buffer.window.block, &buffer.window.array);
        let sizes = block.iter().zip(&array.dims).rev().zip([128, 8]);
        let is_whole = sizes.clone().all(|((block, dim), tile)| block == dim || block % tile == 0);
        if is_whole || buffer.role == Role::Scratch || buffer.window.space == Space::Smem {
            return Ok(());
        }
        let rule =
            format!("blocks {block:?} of {array}: the last two sizes are multiples of 8 and 128, or the array's");
        Err(KernelError::layout(&self.name, rule))
    }
}
