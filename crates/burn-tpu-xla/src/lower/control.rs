//! Loops, and the plain forms of custom calls.

use super::{Lowering, Operands, constant};
use crate::types::{element, failed, i64s};
use burn_tpu_runtime::Result;
use burn_tpu_runtime::graph::op::Trips;
use burn_tpu_runtime::graph::{CustomCall, DType, Program, TensorType};
use std::collections::BTreeMap;
use xla::{Shape, XlaBuilder, XlaComputation, XlaOp};

/// Returns the carries of a `while` over the carries, a counter and the trip count. XLA can derive a constant trip count:
/// the counter starts from a constant, is compared with a constant and grows by one.
pub(super) fn counted_loop(
    builder: &XlaBuilder,
    operands: &Operands,
    trips: Trips,
    body: &Program,
) -> Result<Vec<XlaOp>> {
    let context = |what: &str| failed(format!("lowering a loop: {what}"));
    let scalar = TensorType::scalar(DType::I32);
    let (carries, count) = trips.split(operands);
    let values: Vec<&XlaOp> = carries.iter().map(|(value, _)| *value).collect();
    let types: Vec<&TensorType> = carries.iter().map(|(_, ty)| *ty).chain([&scalar, &scalar]).collect();
    let array = |ty: &&TensorType| Shape::array_with_type(element(ty.dtype), i64s(&ty.dims));
    let carry = Shape::tuple(types.iter().map(array).collect());
    let zero = constant::scalar(builder, DType::I32, 0).map_err(context("the counter"))?;
    let most = constant::scalar(builder, DType::I32, trips.most() as u64).map_err(context("the trip count"))?;
    let count = count.map_or(Ok(most.clone()), |(count, _)| count.min(&most)).map_err(context("the trip count"))?;
    let start: Vec<&XlaOp> = values.iter().copied().chain([&zero, &count]).collect();
    let start = builder.tuple(&start).map_err(context("the first carries"))?;
    let condition = condition(&carry, carries.len(), trips).map_err(context("the condition"))?;
    let done = XlaOp::while_(condition, step(&carry, carries.len(), body)?, start).map_err(context("the whole"))?;
    let results = (0..carries.len()).map(|place| done.get_tuple_element(place as i64));
    results.collect::<super::Built<Vec<_>>>().map_err(context("its results"))
}

/// Returns the results of a custom call's plain form: the crate takes neither kernels nor StableHLO.
pub(super) fn plain_form(builder: &XlaBuilder, operands: &Operands, call: &CustomCall) -> Result<Vec<XlaOp>> {
    let inputs: BTreeMap<u32, XlaOp> = (0..).zip(operands.iter().map(|(value, _)| (*value).clone())).collect();
    let slots = BTreeMap::new();
    Lowering { builder, inputs: &inputs, slots: &slots, values: Vec::new() }.run(call.plain())
}

/// Returns the computation that tests whether there is another trip.
fn condition(carry: &Shape, carries: usize, trips: Trips) -> super::Built<XlaComputation> {
    let builder = XlaBuilder::new("condition");
    let whole = builder.parameter_s(0, carry, "carry")?;
    let counter = whole.get_tuple_element(carries as i64)?;
    let count = match trips {
        Trips::Exactly(trips) => constant::scalar(&builder, DType::I32, trips as u64)?,
        Trips::AtMost(_) => whole.get_tuple_element(carries as i64 + 1)?,
    };
    counter.lt(&count)?.build()
}

/// Returns the computation of one trip.
fn step(carry: &Shape, carries: usize, body: &Program) -> Result<XlaComputation> {
    let builder = XlaBuilder::new("trip");
    let context = |what: &str| failed(format!("lowering a trip: {what}"));
    let whole = builder.parameter_s(0, carry, "carry").map_err(context("its carries"))?;
    let taken = (0..=carries as u32).map(|index| Ok((index, whole.get_tuple_element(i64::from(index))?)));
    let inputs: BTreeMap<u32, XlaOp> = taken.collect::<super::Built<_>>().map_err(context("its carries"))?;
    let slots = BTreeMap::new();
    let lowering = Lowering { builder: &builder, inputs: &inputs, slots: &slots, values: Vec::new() };
    let mut next = lowering.run(body)?;
    let one = constant::scalar(&builder, DType::I32, 1);
    let counted = one.and_then(|one| inputs[&(carries as u32)].add_(&one));
    next.push(counted.map_err(context("the counter"))?);
    next.push(whole.get_tuple_element(carries as i64 + 1).map_err(context("the trip count"))?);
    let root = builder.tuple(&next).and_then(|root| builder.build(&root));
    root.map_err(context("its end"))
}
