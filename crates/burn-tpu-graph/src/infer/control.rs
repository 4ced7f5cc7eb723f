//! Rules of ops that contain a program.

use super::Rule;
use crate::op::Trips;
use crate::{CustomCall, DType, Program, TensorType};

/// XLA counts the trips of a loop in i32.
const MAX_TRIPS: usize = i32::MAX as usize;

/// Returns the types of the carries, which are also the types of the results.
pub(super) fn for_loop(operands: &[&TensorType], trips: Trips, body: &Program) -> Rule<(TensorType, Vec<TensorType>)> {
    let most = trips.most();
    if most > MAX_TRIPS {
        return Err(format!("{most} trips are more than {MAX_TRIPS}"));
    }
    let counter = TensorType::scalar(DType::I32);
    let (carries, count) = trips.split(operands);
    if let Some(ty) = count.filter(|&&ty| *ty != counter) {
        return Err(format!("the trip count is {ty}"));
    }
    if carries.is_empty() {
        return Err("it carries nothing".into());
    }
    if let Some((_, index, _)) = body.slots().next() {
        return Err(format!("the body reads slot {index}: pass it as a carry"));
    }
    for (index, ty) in body.parameters() {
        let given = carries.iter().copied().chain([&counter]).nth(index as usize);
        if given != Some(ty) {
            let given = given.map_or("nothing".into(), ToString::to_string);
            return Err(format!("the body's parameter {index} is {ty}, but the loop passes {given}"));
        }
    }
    let left: Vec<&TensorType> = body.output_types().collect();
    if left.len() != carries.len() {
        return Err(format!("the body returns {} values for {} carries", left.len(), carries.len()));
    }
    if let Some(i) = (0..carries.len()).find(|&i| left[i] != carries[i]) {
        return Err(format!("the body returns {} for carry {i}, which is {}", left[i], carries[i]));
    }
    Ok((carries[0].clone(), carries[1..].iter().map(|&ty| ty.clone()).collect()))
}

/// Returns the types of a call's results.
pub(super) fn custom_call(operands: &[&TensorType], call: &CustomCall) -> Rule<(TensorType, Vec<TensorType>)> {
    let (name, takes) = (call.name(), call.form().operands());
    if operands.len() != takes.len() {
        return Err(format!("`{name}` takes {} operands, got {}", takes.len(), operands.len()));
    }
    if let Some(i) = (0..takes.len()).find(|&i| *operands[i] != takes[i]) {
        return Err(format!("`{name}` takes {} as operand {i}, got {}", takes[i], operands[i]));
    }
    let mut results = call.form().results().iter().cloned();
    let first = results.next().ok_or_else(|| format!("`{name}` has no result"))?;
    Ok((first, results.collect()))
}
