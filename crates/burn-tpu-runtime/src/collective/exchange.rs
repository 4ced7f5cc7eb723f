//! Runs a batch of reductions: one program on a mesh of the group's devices.
//!
//! The parts of a reduction are joined, without a copy, to one array on the mesh whose dim 0 is split over the devices. The
//! program adds the devices' parts of it, and XLA's partitioner makes that an all-reduce. The results are whole on every
//! device, and are taken apart again.

use super::Reduction;
use super::group::{Call, Group};
use crate::engine::{HostElements, Input, SharedBuffer};
use crate::error::{Result, TpuError};
use crate::metrics::CutReason;
use crate::ops::data::from_bytes;
use crate::options::ShapeBuckets;
use crate::runtime::{runtime, start};
use crate::trace::{self, Recorder, materialise, materialise_together, record, record_many};
use crate::{Device, Mesh, Platform, Tensor};
use burn_tpu_graph::op::{BinaryOp, Combine};
use burn_tpu_graph::{Builder, DType, NodeId, Number, Sharding, TensorType};
use std::sync::Arc;

/// A reduction whose parts have values, by rank.
struct Ready {
    call: Arc<Call>,
    parts: Vec<SharedBuffer>,
}

/// Runs the reductions of a batch for which every device has called. Each gets its results, or the error of its parts.
pub(super) fn run(group: &Group, calls: &[Arc<Call>]) {
    let mut complete: Vec<(&Arc<Call>, Vec<Tensor>)> =
        calls.iter().filter_map(|call| Some((call, call.parts()?))).collect();
    // By the place in the first device's program, so that the order of the calls does not matter.
    complete.sort_by_key(|(call, parts)| (parts[0].origin().map_or(u64::MAX, |origin| origin.serial()), call.number));
    for rank in 0..group.devices().len() {
        let of_device = complete.iter().map(|(_, parts)| &parts[rank]).filter(|part| part.value().is_none());
        // What fails here fails again below, where the error goes to the reductions that it concerns.
        materialise_together(of_device, CutReason::DeviceCopy).ok();
    }
    let mut ready = Vec::with_capacity(complete.len());
    for (call, parts) in complete {
        let buffers = parts.iter().map(buffer).collect::<Result<Vec<_>>>();
        match buffers {
            Ok(parts) => ready.push(Ready { call: Arc::clone(call), parts }),
            Err(error) => call.finish(failure(group, &error)),
        }
    }
    let (on_mesh, on_host): (Vec<_>, Vec<_>) = ready.into_iter().partition(|ready| fits_mesh(group, &ready.call.ty));
    reduce_on_mesh(group, on_mesh);
    for Ready { call, parts } in on_host {
        let results = reduce_on_host(group, &call, &parts);
        call.finish(results.unwrap_or_else(|error| failure(group, &error)));
    }
}

/// Returns the buffer of a part. One that has a value has no trace cut: whose thread runs the batch is chance.
fn buffer(part: &Tensor) -> Result<SharedBuffer> {
    match part.value() {
        Some(value) => value.clone().map_err(|error| TpuError::clone(&error)),
        None => materialise(part, CutReason::DeviceCopy),
    }
}

fn failure(group: &Group, error: &TpuError) -> Vec<Input> {
    let error = Arc::new(error.clone());
    group.devices().iter().map(|_| Err(Arc::clone(&error))).collect()
}

/// Returns whether parts of this type can be joined to an array whose dim 0 is split: chips of one plugin, and a dim 0.
fn fits_mesh(group: &Group, ty: &TensorType) -> bool {
    let platform = group.devices()[0].platform();
    let has_chips = matches!(platform, Platform::Tpu | Platform::Cuda | Platform::Cpu);
    has_chips && group.devices().iter().all(|device| device.platform() == platform) && ty.rank() > 0 && ty.bytes() > 0
}

fn reduce_on_mesh(group: &Group, ready: Vec<Ready>) {
    if ready.is_empty() {
        return;
    }
    let reduced = reduced_on_mesh(group, &ready);
    match reduced {
        Ok(results) => {
            for (Ready { call, .. }, results) in ready.into_iter().zip(results) {
                call.finish(results.into_iter().map(Ok).collect());
            }
        }
        Err(error) => {
            tracing::error!(%error, "a reduction over devices did not run");
            ready.iter().for_each(|ready| ready.call.finish(failure(group, &error)));
        }
    }
}

/// Returns the results of each reduction, by rank.
fn reduced_on_mesh(group: &Group, ready: &[Ready]) -> Result<Vec<Vec<SharedBuffer>>> {
    let devices = group.devices();
    let indices = devices.iter().map(|device| device.index());
    let mesh = Mesh::new().axis("data", devices.len()).on(devices[0].platform()).devices(indices);
    let device = Device::mesh(mesh);
    // With the options of the devices, unless it runs already. Values in larger buffers would have to be moved out of them.
    start(device, runtime(devices[0]).open().options().clone().shape_buckets(ShapeBuckets::Off)).ok();
    let stream = group.stream.lock();
    stream.run(|| {
        let results = ready.iter().map(|ready| reduced(group, device, ready)).collect::<Result<Vec<Tensor>>>();
        // One that comes at every step: it is compiled at once.
        let results = results.and_then(|results| trace::cut(device, CutReason::MarkStep).map(|()| results))?;
        results.iter().map(|result| taken_apart(device, result)).collect()
    })
}

/// Returns each device's own copy of a result, which is whole on all of them.
fn taken_apart(mesh: Device, result: &Tensor) -> Result<Vec<SharedBuffer>> {
    let (mesh, sharding) = (runtime(mesh), Sharding::replicated(result.ty().rank()));
    let value = mesh.open().on_device(&materialise(result, CutReason::Read)?, Some(&sharding))?;
    mesh.open().engine()?.take_apart(&value)
}

/// Records a reduction on the mesh.
fn reduced(group: &Group, device: Device, ready: &Ready) -> Result<Tensor> {
    let (ty, reduction) = (&ready.call.ty, ready.call.reduction);
    let on_devices = group.devices().iter().zip(&ready.parts);
    let parts =
        on_devices.map(|(device, part)| runtime(*device).open().on_device(part, None)).collect::<Result<Vec<_>>>()?;
    let mut whole = ty.clone();
    whole.dims[0] *= parts.len();
    let joined = runtime(device).open().engine()?.join(&whole, parts)?;
    let x = Tensor::new(device, whole, Ok(joined));
    let count = group.devices().len();
    Ok(record("all_reduce", [&x], |r, [x]| {
        let mut dims = vec![count];
        dims.extend_from_slice(&ty.dims);
        let x = r.convert(x, accumulated(ty.dtype))?;
        let x = r.reshape(x, &dims)?;
        let sum = r.reduce(Combine::Sum, x, &[0])?;
        let result = finished(r, sum, ty.dtype, reduction, count)?;
        r.sharding_constraint(result, Sharding::replicated(ty.rank()))
    }))
}

/// Returns the results by rank, computed on the first device from values that pass through the host.
fn reduce_on_host(group: &Group, call: &Call, parts: &[SharedBuffer]) -> Result<Vec<Input>> {
    let devices = group.devices();
    let bytes = devices.iter().zip(parts).map(|(device, part)| runtime(*device).open().download(part));
    let bytes = bytes.collect::<Result<Vec<_>>>()?;
    let stream = group.stream.lock();
    let result = stream.run(|| {
        let tensors: Vec<Tensor> = bytes
            .into_iter()
            .map(|bytes| from_bytes("all_reduce", call.ty.clone(), bytes.into_vec(), &devices[0]))
            .collect();
        let [result] = record_many("all_reduce", &tensors.iter().collect::<Vec<_>>(), |r, nodes| {
            let wide = accumulated(call.ty.dtype);
            let mut sum = r.convert(nodes[0], wide)?;
            for &node in &nodes[1..] {
                let node = r.convert(node, wide)?;
                sum = r.binary(BinaryOp::Add, sum, node)?;
            }
            Ok([finished(r, sum, call.ty.dtype, call.reduction, devices.len())?])
        });
        runtime(devices[0]).open().download(&materialise(&result, CutReason::Read)?)
    })?;
    let held = |device: &Device| runtime(*device).open().hold(&call.ty, HostElements::Bytes(result.clone()));
    Ok(devices.iter().map(|device| held(device).map_err(Arc::new)).collect())
}

/// Returns the type in which parts are added.
fn accumulated(dtype: DType) -> DType {
    if matches!(dtype, DType::BF16 | DType::F16) { DType::F32 } else { dtype }
}

/// Divides a mean's sum, and rounds once.
fn finished(
    r: &mut Recorder,
    sum: NodeId,
    dtype: DType,
    reduction: Reduction,
    count: usize,
) -> burn_tpu_graph::Result<NodeId> {
    let result = match reduction {
        Reduction::Sum => sum,
        Reduction::Mean => r.binary_const(BinaryOp::Div, sum, Number::Float(count as f64))?,
    };
    r.convert(result, dtype)
}
