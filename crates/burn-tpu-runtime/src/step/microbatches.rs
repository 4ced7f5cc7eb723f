//! Gradients of parts of a batch, one part after another, in one loop: a step then has the memory of one part's activations.
//!
//! Owns: how a batch is divided, and what the parts give together. May not know: what a step computes, and the update.

use super::arithmetic::{add, times};
use super::{Computed, Parameter};
use crate::error::{Result, TpuError};
use crate::layers::{Keep, LayerInputs, LayerLoop, LayerResults};
use crate::leaves::Leaves;
use crate::ops::arithmetic::cast;
use crate::ops::{data, movement, sharding};
use crate::trace::{Purpose, Stream};
use crate::{Device, Tensor};
use burn_tpu_graph::{DType, TensorType};
use std::fmt::Debug;
use std::sync::Arc;

/// The name of the option in errors.
const OPTION: &str = "microbatches";

/// How a step computes its gradients.
pub(super) struct Microbatches<D, R> {
    count: usize,
    batches: Arc<Leaves<D>>,
    results: Arc<Leaves<R>>,
    /// Whether each parameter is trained.
    is_trained: Vec<bool>,
}

/// What a part of a batch gives, beside its values: which parameters have a gradient, and the types of the results.
struct Form {
    has_gradient: Vec<bool>,
    results: Vec<TensorType>,
}

impl<D: Clone + Debug, R: Clone + Debug> Microbatches<D, R> {
    pub(super) fn new(
        count: usize,
        parameters: &[Parameter],
        batches: Arc<Leaves<D>>,
        results: Arc<Leaves<R>>,
    ) -> Self {
        let is_trained = parameters.iter().map(|parameter| parameter.is_trained).collect();
        Self { count, batches, results, is_trained }
    }

    /// Checks that a batch can be divided.
    ///
    /// # Errors
    /// [`TpuError::Option`] that names the tensor which cannot.
    pub(super) fn check(&self, batch: &D) -> Result<()> {
        let fails =
            |rule: String| Err(TpuError::Option { name: OPTION.to_owned(), value: self.count.to_string(), rule });
        if self.count == 0 {
            return fails("is at least 1".to_owned());
        }
        if self.count == 1 {
            return Ok(());
        }
        let tensors = self.batches.tensors(batch);
        let divides = |tensor: &&Tensor| tensor.dims().first().is_some_and(|rows| rows % self.count == 0);
        match tensors.iter().find(|tensor| !divides(tensor)) {
            Some(tensor) => fails(format!("does not divide the first dim of the batch's {}", tensor.ty())),
            None if tensors.is_empty() => fails("divides a batch, and this one has no tensor".to_owned()),
            None => Ok(()),
        }
    }

    /// Returns the mean of the gradients of all parts, the parameters after the last part, and the results: floats are the
    /// mean of the parts', others those of the last part.
    pub(super) fn compute(
        &self,
        device: Device,
        parameters: Vec<Tensor>,
        batch: D,
        compute: impl Fn(Vec<Tensor>, D) -> Computed<R>,
    ) -> Computed<R> {
        if self.count <= 1 {
            return compute(parameters, batch);
        }
        // What cannot be recorded as a part cannot be recorded as a whole either, and there the error has its place.
        match self.in_parts(device, &parameters, &batch, &compute) {
            Ok(computed) => computed,
            Err(error) => {
                tracing::error!("microbatches: {error}");
                compute(parameters, batch)
            }
        }
    }

    fn in_parts(
        &self,
        device: Device,
        parameters: &[Tensor],
        batch: &D,
        compute: &impl Fn(Vec<Tensor>, D) -> Computed<R>,
    ) -> Result<Computed<R>> {
        let stacked: Vec<Tensor> = self.batches.tensors(batch).iter().map(|tensor| self.parts_of(tensor)).collect();
        let part = |untrained: Vec<Tensor>, slices: Vec<Tensor>| {
            compute(self.with_untrained(parameters, untrained), self.batches.replace(batch.clone(), slices))
        };
        let untrained: Vec<Tensor> = self.untrained(parameters).collect();
        let form = self.form(device, &untrained, &stacked, part)?;
        let mut template = None;
        let carries = form.start(device, untrained.clone(), parameters);
        let recorded = LayerLoop::record(self.count, &carries, &stacked, &Keep::default(), |inputs| {
            let LayerInputs { mut carries, slices, .. } = inputs;
            let sums = carries.split_off(untrained.len());
            let computed = part(carries, slices);
            let mut next: Vec<Tensor> = self.untrained(&computed.parameters).collect();
            next.extend(form.added(sums, computed.gradients, self.results.tensors(&computed.result)));
            template = Some(computed.result);
            LayerResults { carries: next, ..LayerResults::default() }
        })?;
        let (mut last, _) = recorded.forward(carries, stacked)?;
        let template = template.ok_or_else(|| TpuError::Bug("a part of a batch gave no result".to_owned()))?;
        let sums = last.split_off(untrained.len());
        let (gradients, results) = form.means(sums, self.count);
        let parameters = self.with_untrained(parameters, last);
        Ok(Computed { gradients, parameters, result: self.results.replace(template, results) })
    }

    /// Returns the parts of a batch's tensor, `[count, rows / count, ..]`. A part has every `count`-th row, so that a device
    /// of a mesh that has some rows of the batch has its share of each part's.
    fn parts_of(&self, tensor: &Tensor) -> Tensor {
        let [rows, row @ ..] = tensor.dims() else { return tensor.clone() };
        let dims: Vec<usize> = [rows / self.count, self.count].into_iter().chain(row.iter().copied()).collect();
        // The partitioner would not look for a batch in the parts of it.
        let tensor = sharding::split_batch(tensor.clone(), 0);
        sharding::split_batch(movement::swap_dims(movement::reshape(tensor, &dims), 0, 1), 1)
    }

    /// Returns the parameters that are not trained.
    fn untrained(&self, parameters: &[Tensor]) -> impl Iterator<Item = Tensor> {
        parameters.iter().zip(&self.is_trained).filter(|(_, trained)| !**trained).map(|(value, _)| value.clone())
    }

    /// Returns the parameters with other values of those that are not trained.
    fn with_untrained(&self, parameters: &[Tensor], untrained: Vec<Tensor>) -> Vec<Tensor> {
        let mut untrained = untrained.into_iter();
        let value = |(value, &trained): (&Tensor, &bool)| {
            let other = if trained { None } else { untrained.next() };
            other.unwrap_or_else(|| value.clone())
        };
        parameters.iter().zip(&self.is_trained).map(value).collect()
    }

    /// Returns what a part gives, which is recorded once for that alone.
    fn form(
        &self,
        device: Device,
        untrained: &[Tensor],
        stacked: &[Tensor],
        part: impl FnOnce(Vec<Tensor>, Vec<Tensor>) -> Computed<R>,
    ) -> Result<Form> {
        let slices = stacked.iter().map(|stack| TensorType::new(stack.element(), &stack.dims()[1..]));
        let types: Vec<TensorType> = untrained.iter().map(|value| value.ty().clone()).chain(slices).collect();
        let record = |mut tensors: Vec<Tensor>| {
            let slices = tensors.split_off(untrained.len());
            let computed = part(tensors, slices);
            let has_gradient: Vec<bool> = computed.gradients.iter().map(Option::is_some).collect();
            (has_gradient, self.results.tensors(&computed.result))
        };
        let (has_gradient, recording) = Stream::record_function(device, &types, record, Purpose::Part(types.len()))?;
        Ok(Form { has_gradient, results: recording.results.into_iter().map(|(ty, _)| ty).collect() })
    }
}

impl Form {
    /// Returns what the first part takes: the parameters that are not trained, and sums of nothing in f32. A sum of gradients
    /// is made of its parameter, so that it is split over a mesh as that is.
    fn start(&self, device: Device, untrained: Vec<Tensor>, parameters: &[Tensor]) -> Vec<Tensor> {
        let gradients = parameters.iter().zip(&self.has_gradient).filter(|(_, has)| **has);
        let gradients = gradients.map(|(value, _)| times(cast(value.clone(), DType::F32), 0.0));
        let results = self.results.iter().map(|ty| data::splat("microbatches", &ty.dims, sum_type(ty), 0, &device));
        untrained.into_iter().chain(gradients).chain(results).collect()
    }

    /// Returns the sums with what a part gives.
    fn added(&self, sums: Vec<Tensor>, gradients: Vec<Option<Tensor>>, results: Vec<Tensor>) -> Vec<Tensor> {
        let given = gradients.into_iter().flatten().chain(results);
        let add = |(sum, given): (Tensor, Tensor)| match given.element().is_float() {
            true => add(sum, cast(given, DType::F32)),
            false => given,
        };
        sums.into_iter().zip(given).map(add).collect()
    }

    /// Returns the mean gradient of each parameter that has one, in f32, and the results of all parts.
    fn means(&self, sums: Vec<Tensor>, count: usize) -> (Vec<Option<Tensor>>, Vec<Tensor>) {
        let mut sums = sums.into_iter();
        let mean = |sum: Tensor| times(sum, 1.0 / count as f32);
        let gradients = self.has_gradient.iter().map(|&has| if has { sums.next().map(mean) } else { None }).collect();
        let result = |(ty, sum): (&TensorType, Tensor)| match ty.dtype.is_float() {
            true => cast(mean(sum), ty.dtype),
            false => sum,
        };
        (gradients, self.results.iter().zip(sums).map(result).collect())
    }
}

/// Returns the type in which results are added up.
fn sum_type(ty: &TensorType) -> DType {
    if ty.dtype.is_float() { DType::F32 } else { ty.dtype }
}
