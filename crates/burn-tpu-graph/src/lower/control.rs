//! Lowering of loops.

use super::constant::scalar;
use super::printer::{Block, Statement, Value, list, mlir_type};
use super::{Layouts, Lowering, Scope, function, region, slots};
use crate::op::{BinaryOp, Direction, Trips};
use crate::{DType, Program, Result, TensorType};

/// Writes a loop's body as a private function and returns its name. The function takes the parameters that the body
/// reads, in node order.
pub(super) fn body_function(
    body: &Program,
    scope: Scope,
    layouts: Layouts,
    functions: &mut Vec<String>,
) -> Result<String> {
    let written = Lowering::run(body, slots::Packing::new(body, 0), scope, layouts, functions)?;
    // Loops in the body have taken their names by now.
    let name = format!("@body{}", functions.len());
    functions.push(private_function(&name, body, written));
    Ok(name)
}

/// Returns whether a function was written. What is computed alike shares one.
pub(super) fn has_function(functions: &[String], name: &str) -> bool {
    functions.iter().any(|function| function.contains(&format!("{name}(")))
}

/// Returns the name of a function for values of these dims: `@threefry_8_3`.
pub(super) fn sized_name(what: &str, dims: &[usize]) -> String {
    let dims: String = dims.iter().map(|size| format!("_{size}")).collect();
    format!("@{what}{dims}")
}

/// Returns the text of a private function that computes a program without slots.
pub(super) fn private_function(name: &str, body: &Program, (block, results): (Block, Vec<Value>)) -> String {
    let takes = list(body.parameters().enumerate().map(|(i, (_, ty))| format!("%arg{i}: {}", mlir_type(ty))));
    let gives = list(results.iter().map(|value| mlir_type(&value.ty)));
    function(&format!("private {name}"), &takes, &gives, block, &results)
}

/// Returns a `while` over the carries, a counter and, if an operand has it, the trip count. XLA can derive a constant trip
/// count: the counter starts from a constant, is compared with a constant and grows by one.
pub(super) fn counted_loop(
    block: &mut Block,
    mut operands: Vec<Value>,
    trips: Trips,
    body: &Program,
    function: &str,
) -> Statement {
    let carries = trips.split(&operands).0.len();
    operands.insert(carries, scalar(block, DType::I32, 0));
    if let Trips::AtMost(most) = trips
        && let Some(count) = operands.pop()
    {
        let most = scalar(block, DType::I32, most as u64);
        let count = Statement::new(BinaryOp::Min.mnemonic(), vec![count, most]);
        operands.push(block.push(&count, TensorType::scalar(DType::I32)));
    }
    let types: Vec<TensorType> = operands.iter().map(|value| value.ty.clone()).collect();
    let (condition, step) = (condition(&types, carries, trips), step(&types, carries, body, function));
    Statement::new("stablehlo.while", operands).region(condition).region(step)
}

/// Returns the types of a loop's results after its carries: the counter and, if an operand has it, the trip count.
pub(super) fn more_results(trips: Trips) -> Vec<TensorType> {
    let count = match trips {
        Trips::Exactly(_) => 1,
        Trips::AtMost(_) => 2,
    };
    vec![TensorType::scalar(DType::I32); count]
}

/// Returns the block that tests whether there is another trip.
fn condition(types: &[TensorType], carries: usize, trips: Trips) -> Block {
    let (mut block, mut arguments) = Block::region(types);
    let mut compared = arguments.split_off(carries);
    if let Trips::Exactly(trips) = trips {
        compared.push(scalar(&mut block, DType::I32, trips as u64));
    }
    let below = region::compare(Direction::Lt, compared);
    let below = block.push(&below, TensorType::scalar(DType::Bool));
    block.finish("stablehlo.return", &[below]);
    block
}

/// Returns the block of one trip: it calls the function on the carries and increments the counter.
fn step(types: &[TensorType], carries: usize, body: &Program, function: &str) -> Block {
    let (mut block, mut arguments) = Block::region(types);
    let taken: Vec<Value> = body.parameters().map(|(index, _)| arguments[index as usize].clone()).collect();
    let left: Vec<&TensorType> = body.output_types().collect();
    block.assign("%left", &Statement::new("func.call", taken).attr("callee", function), &left);
    let name = |i: usize| if left.len() == 1 { "%left".into() } else { format!("%left#{i}") };
    let mut next: Vec<Value> = (0..left.len()).map(|i| Value::new(name(i), left[i].clone())).collect();
    let mut counts = arguments.split_off(carries);
    let one = scalar(&mut block, DType::I32, 1);
    let sum = Statement::new(BinaryOp::Add.mnemonic(), vec![counts.remove(0), one]);
    next.push(block.push(&sum, TensorType::scalar(DType::I32)));
    next.extend(counts);
    block.finish("stablehlo.return", &next);
    block
}
