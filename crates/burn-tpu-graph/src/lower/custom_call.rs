//! Lowering of custom calls: a kernel as a call of the plugin's compiler, anything else as a private function. On a mesh,
//! every device computes its parts of a call that has a partition.

use super::printer::{Block, Statement, Value, array_of};
use super::{Layouts, Lowering, Scope, control, in_place, sharding, slots};
use crate::{CallForm, CustomCall, KernelCall, Label, Mesh, Partition, Program, Result, TensorType};

impl Lowering<'_> {
    /// Returns the op that yields the results of a custom call.
    pub(super) fn custom_call(&mut self, call: &CustomCall, operands: Vec<Value>, label: Label) -> Result<Statement> {
        let (name, mesh) = (function_name(call), self.several_devices());
        let scope = Scope { label: Some(label), ..self.scope };
        match call.form() {
            CallForm::Kernel(kernel) if self.scope.kernels && kernel.is_for(mesh) => Ok(match &kernel.partition {
                Some(partition) => {
                    let types = [kernel.local_operands(), kernel.local_results()];
                    by_every_device(partition, types, operands, label, |parts| kernel_call(kernel, parts))
                }
                None => kernel_call(kernel, operands),
            }),
            CallForm::Parts(parts) if parts.is_for(mesh) => {
                // A device's own program knows of no mesh.
                self.write(&name, parts.part(), Scope { mesh: None, ..scope })?;
                let types = [parts.local_operands(), parts.local_results()];
                let part = |operands: Vec<Value>| function_call(name, parts.part(), &operands);
                Ok(by_every_device(parts.partition(), types, operands, label, part))
            }
            CallForm::Kernel(_) | CallForm::Parts(_) => {
                self.write(&name, call.plain(), scope)?;
                Ok(function_call(name, call.plain(), &operands))
            }
            CallForm::Function(function) => {
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

    /// Writes the function that computes a program, unless there is one. Its ops have the label of the custom call.
    fn write(&mut self, name: &str, program: &Program, scope: Scope<'_>) -> Result<()> {
        if !control::has_function(self.functions, name) {
            let packing = slots::Packing::new(program, 0);
            let written = Lowering::run(program, packing, scope, Layouts::default(), self.functions)?;
            self.functions.push(control::private_function(name, program, written));
        }
        Ok(())
    }
}

/// Returns `@softmax_1a2b3c4d5e6f`: names of different calls differ.
fn function_name(call: &CustomCall) -> String {
    format!("@{}_{}", call.name().replace('-', "_"), call.short_hash())
}

/// Returns the call of a function that computes a program.
fn function_call(name: String, program: &Program, operands: &[Value]) -> Statement {
    let taken: Vec<Value> = program.parameters().map(|(index, _)| operands[index as usize].clone()).collect();
    Statement::new("func.call", taken).attr("callee", name)
}

/// Returns the op in which every device computes `part` of its parts, of these types.
fn by_every_device(
    partition: &Partition,
    [operand_types, result_types]: [Vec<TensorType>; 2],
    operands: Vec<Value>,
    label: Label,
    part: impl FnOnce(Vec<Value>) -> Statement,
) -> Statement {
    let (mut block, parts) = Block::region(&operand_types);
    block.set_label(label);
    block.assign("%part", &part(parts), &result_types.iter().collect::<Vec<_>>());
    let name = |i: usize| if result_types.len() == 1 { "%part".into() } else { format!("%part#{i}") };
    let results: Vec<Value> = (0..result_types.len()).map(|i| Value::new(name(i), result_types[i].clone())).collect();
    block.finish("sdy.return", &results);
    Statement::new("sdy.manual_computation", operands)
        .region(block)
        .attr("in_shardings", sharding::per_value(&partition.operands, &partition.mesh))
        .attr("out_shardings", sharding::per_value(&partition.results, &partition.mesh))
        .attr("manual_axes", sharding::all_axes(&partition.mesh))
}

fn kernel_call(kernel: &KernelCall, operands: Vec<Value>) -> Statement {
    let layouts = |types: &[TensorType]| {
        let layout = |ty: &TensorType| in_place::attribute(&(0..ty.rank()).rev().collect::<Vec<_>>());
        array_of(types.iter().map(layout))
    };
    let config = kernel.backend_config.replace('\\', "\\5C").replace('"', "\\22");
    Statement::new("stablehlo.custom_call", operands)
        .attr("call_target_name", format!("{:?}", kernel.target))
        .attr("backend_config", format!("\"{config}\""))
        .attr("operand_layouts", layouts(&kernel.operands))
        .attr("result_layouts", layouts(&kernel.results))
}
