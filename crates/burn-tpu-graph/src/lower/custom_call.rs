//! Lowering of custom calls: a kernel as a call of the plugin's compiler, anything else as a private function. On a mesh, a
//! kernel that has a partition is called by every device on its parts.

use super::printer::{Block, Statement, Value, array_of};
use super::{Lowering, control, sharding, slots};
use crate::{CallForm, CustomCall, KernelCall, Label, Mesh, Partition, Program, Result};

impl Lowering<'_> {
    /// Returns the op that yields the results of a custom call.
    pub(super) fn custom_call(&mut self, call: &CustomCall, operands: Vec<Value>, label: Label) -> Result<Statement> {
        let name = || function_name(call);
        match call.form() {
            CallForm::Kernel(kernel) if self.scope.kernels && kernel.is_for(self.several_devices()) => {
                Ok(match &kernel.partition {
                    Some(partition) => call_by_every_device(kernel, partition, operands, label),
                    None => kernel_call(kernel, operands),
                })
            }
            CallForm::Kernel(_) => self.plain(name(), call.plain(), operands, label),
            CallForm::Function(function) => {
                let name = name();
                if !control::has_function(self.functions, &name) {
                    self.functions.push(function.renamed(&name[1..]));
                }
                Ok(Statement::new("func.call", operands).attr("callee", name))
            }
        }
    }

    fn several_devices(&self) -> Option<&Mesh> {
        self.scope.mesh.filter(|mesh| mesh.devices() > 1)
    }

    /// Returns the call of a function that computes a plain form. Its ops have the label of the custom call.
    fn plain(&mut self, name: String, plain: &Program, operands: Vec<Value>, label: Label) -> Result<Statement> {
        if !control::has_function(self.functions, &name) {
            let scope = super::Scope { label: Some(label), ..self.scope };
            let written: (Block, Vec<Value>) =
                Lowering::run(plain, slots::Packing::new(plain, 0), scope, self.functions)?;
            self.functions.push(control::private_function(&name, plain, written));
        }
        let taken: Vec<Value> = plain.parameters().map(|(index, _)| operands[index as usize].clone()).collect();
        Ok(Statement::new("func.call", taken).attr("callee", name))
    }
}

/// Returns `@softmax_1a2b3c4d5e6f`: names of different calls differ.
fn function_name(call: &CustomCall) -> String {
    format!("@{}_{}", call.name().replace('-', "_"), call.short_hash())
}

/// Returns the op in which every device calls the kernel on its parts.
fn call_by_every_device(kernel: &KernelCall, partition: &Partition, operands: Vec<Value>, label: Label) -> Statement {
    let (mut block, parts) = Block::region(&kernel.local_operands());
    block.set_label(label);
    let results = kernel.local_results();
    block.assign("%part", &kernel_call(kernel, parts), &results.iter().collect::<Vec<_>>());
    let name = |i: usize| if results.len() == 1 { "%part".into() } else { format!("%part#{i}") };
    let results: Vec<Value> = (0..results.len()).map(|i| Value::new(name(i), results[i].clone())).collect();
    block.finish("sdy.return", &results);
    Statement::new("sdy.manual_computation", operands)
        .region(block)
        .attr("in_shardings", sharding::per_value(&partition.operands, &partition.mesh))
        .attr("out_shardings", sharding::per_value(&partition.results, &partition.mesh))
        .attr("manual_axes", sharding::all_axes(&partition.mesh))
}

fn kernel_call(kernel: &KernelCall, operands: Vec<Value>) -> Statement {
    let layouts = |types: &[crate::TensorType]| {
        let layout = |ty: &crate::TensorType| {
            let (order, rank) = (array_of((0..ty.rank()).rev()), ty.rank());
            if rank == 0 {
                "dense<> : tensor<0xindex>".into()
            } else {
                format!("dense<{order}> : tensor<{rank}xindex>")
            }
        };
        array_of(types.iter().map(layout))
    };
    let config = kernel.backend_config.replace('\\', "\\5C").replace('"', "\\22");
    Statement::new("stablehlo.custom_call", operands)
        .attr("call_target_name", format!("{:?}", kernel.target))
        .attr("backend_config", format!("\"{config}\""))
        .attr("operand_layouts", layouts(&kernel.operands))
        .attr("result_layouts", layouts(&kernel.results))
}
