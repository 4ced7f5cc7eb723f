//! Attention as calls of kernels.
//!
//! Owns: the kernels of attention that was found, their operands and what is made of their results. May not know: how it was
//! found.

use super::division::Division;
use super::lengths::Lengths;
use super::matrix::{Matrix, batch_and_heads};
use super::plain;
use super::polynomial::Factor;
use super::trace::{self, Added, Effect, Gradients, ResultProduct, Scalar};
use crate::aggressive::kernel_call;
use burn_tpu_graph::op::{BinaryOp, Combine};
use burn_tpu_graph::{Builder, CallForm, CustomCall, DType, Graph, GraphError, NodeId, Number, Renaming};
use burn_tpu_kernels::kernels::attention::{Attention, Band, Bias, Dropout};
use burn_tpu_kernels::{Element, Kernel};
use std::sync::Arc;

type Result<T> = std::result::Result<T, GraphError>;

/// Makes one of the kernels of attention.
type MakeKernel = fn(&Attention) -> burn_tpu_kernels::Result<Kernel>;

/// The kernels of attention, with their plain forms.
#[derive(Clone)]
pub(super) struct Calls {
    /// How a mesh divides them, and the attention of one device.
    divided: Option<(Division, Attention)>,
    forward: Arc<CustomCall>,
    query_gradient: Arc<CustomCall>,
    key_gradient: Arc<CustomCall>,
}

/// Attention that is computed by kernels.
pub(super) struct Plan {
    found: trace::Attention,
    attention: Attention,
    /// The dims of the batch, as they were recorded.
    batch: Vec<usize>,
    calls: Calls,
    /// For each bias of the kernels, the arrays that it is the sum of.
    biases: Vec<Vec<Added>>,
    /// The part of the scale that is known at run time, by which queries are multiplied.
    scale: Factor,
    /// What forward saved, once it is added.
    saved: Option<[NodeId; 2]>,
    /// The queries, keys and values as operands.
    operands: Option<[NodeId; 3]>,
    of_queries: Option<NodeId>,
    of_keys: Option<[NodeId; 2]>,
}

/// The kernels that were made so far for a program: equal attention shares them.
pub(super) struct CallCache {
    division: Option<Division>,
    calls: Vec<(Attention, Calls)>,
}

impl CallCache {
    /// Creates an empty list for programs that a mesh divides so, or of one device.
    pub(super) fn new(division: Option<Division>) -> Self {
        Self { division, calls: Vec::new() }
    }

    /// Returns the kernels of attention; `None` for what they do not take.
    fn calls(&mut self, attention: &Attention) -> Option<Calls> {
        if let Some((_, calls)) = self.calls.iter().find(|(known, _)| known == attention) {
            return Some(calls.clone());
        }
        let divided = match &self.division {
            Some(division) => Some((division.clone(), division.part(attention)?)),
            None => None,
        };
        let calls = Calls::new(attention, divided)?;
        self.calls.push((attention.clone(), calls.clone()));
        Some(calls)
    }
}

impl Plan {
    /// Returns how kernels compute attention; `None` for what they do not take.
    pub(super) fn new(graph: &Graph, found: trace::Attention, known: &mut CallCache) -> Option<Self> {
        let (batch, [queries, head_dim]) = found.queries.sizes(graph);
        let (_, [keys, _]) = found.keys.sizes(graph);
        let [sequences, heads] = batch_and_heads(&batch);
        let element = element(graph.dtype(found.queries.value))?;
        let is_alike = |matrix: &Matrix| {
            let (own, [_, width]) = matrix.sizes(graph);
            self::element(graph.dtype(matrix.value)).is_some() && own == batch && width == head_dim
        };
        let is_same_type = [&found.queries, &found.keys, &found.values].map(|m| graph.dtype(m.value));
        let factors = [&found.queries, &found.keys, &found.values].into_iter();
        let is_alike = factors.chain(found.gradients.iter().map(|gradients| &gradients.of_result)).all(is_alike);
        if !is_alike || is_same_type.iter().any(|dtype| *dtype != is_same_type[0]) {
            return None;
        }
        let band = band(&found, queries, keys)?;
        let biases = alike(graph, &found.masking.added);
        let known_scale = found.scale.known();
        let scale = Factor { constant: 1.0, ..found.scale.clone() };
        let attention = Attention {
            scale: known_scale.unwrap_or(found.scale.constant) as f32,
            softcap: found.cap.map(|cap| cap as f32),
            band,
            biases: biases.iter().map(|all| bias(graph, all)).collect(),
            has_lengths: found.masking.lengths.is_some(),
            dropout: found.dropout.as_ref().map(|&trace::Dropout { most, of, .. }| Dropout::new(most, of)),
            ..Attention::new(element, sequences, heads, queries, keys, head_dim)
        };
        // With a cap, the scale of the kernel is that of the products before it.
        let attention = match attention.softcap {
            Some(cap) => Attention { scale: attention.scale * cap, ..attention },
            None => attention,
        };
        let calls = known.calls(&attention)?;
        let (saved, operands, of_queries, of_keys) = (None, None, None, None);
        Some(Self { found, attention, batch, calls, biases, scale, saved, operands, of_queries, of_keys })
    }

    /// Returns the nodes that kernels compute.
    pub(super) fn nodes(&self) -> impl Iterator<Item = NodeId> {
        let gradients = self.found.gradients.iter();
        let gradients = gradients.flat_map(|all| all.queries.iter().chain(&all.keys).chain(&all.values));
        self.found.results.iter().chain(gradients).map(|found| found.node)
    }

    /// Adds what computes a node instead.
    pub(super) fn add(
        &mut self,
        graph: &mut Graph,
        node: NodeId,
        ty: DType,
        renamed: &Renaming,
    ) -> Result<Option<NodeId>> {
        let at = |list: &[ResultProduct]| list.iter().find(|found| found.node == node).cloned();
        let (found, result, factor) = if let Some(found) = at(&self.found.results) {
            let [out, _] = self.forward(graph, renamed)?;
            let factor = found.factor.clone();
            (found, out, factor)
        } else {
            let Some(gradients) = self.found.gradients.clone() else { return Ok(None) };
            // The kernels' gradients have the constant part of the scale as a factor, and that of the keys all of it.
            let own = Factor::constant(self.own_scale());
            if let Some(found) = at(&gradients.queries) {
                let result = self.query_gradient(graph, &gradients, renamed)?;
                let Some(inverse) = own.inverse() else { return Ok(None) };
                let factor = found.factor.times(&inverse);
                (found, result, factor)
            } else if let Some(found) = at(&gradients.keys) {
                let [result, _] = self.key_gradient(graph, &gradients, renamed)?;
                let Some(inverse) = own.times(&self.scale).inverse() else { return Ok(None) };
                let factor = found.factor.times(&inverse);
                (found, result, factor)
            } else if let Some(found) = at(&gradients.values) {
                let [_, result] = self.key_gradient(graph, &gradients, renamed)?;
                let factor = found.factor.clone();
                (found, result, factor)
            } else {
                return Ok(None);
            }
        };
        let result = scaled(graph, result, &factor, &self.found.scalars, renamed)?;
        let result = self.ordered(graph, result, &found)?;
        graph.convert(result, ty).map(Some)
    }

    /// Returns the factor of the kernels' gradients.
    fn own_scale(&self) -> f64 {
        f64::from(self.attention.scale)
    }

    /// Adds the forward kernel, once, and returns its results.
    fn forward(&mut self, graph: &mut Graph, renamed: &Renaming) -> Result<[NodeId; 2]> {
        if let Some(saved) = self.saved {
            return Ok(saved);
        }
        let operands = self.operands(graph, renamed)?;
        let operands = self.with_masks(graph, &operands, renamed)?;
        let results = graph.custom_call(Arc::clone(&self.calls.forward), &operands)?;
        let saved = [results[0], results[1]];
        self.saved = Some(saved);
        Ok(saved)
    }

    /// Adds queries, keys and values as the kernels read them.
    fn operands(&mut self, graph: &mut Graph, renamed: &Renaming) -> Result<[NodeId; 3]> {
        if let Some(operands) = self.operands {
            return Ok(operands);
        }
        let dtype = dtype(self.attention.element);
        let mut operand = |matrix: &Matrix| {
            let value = matrix.add(graph, renamed.id(matrix.value)?)?;
            graph.convert(value, dtype)
        };
        let [queries, keys, values] =
            [operand(&self.found.queries)?, operand(&self.found.keys)?, operand(&self.found.values)?];
        let queries = scaled(graph, queries, &self.scale, &self.found.scalars, renamed)?;
        self.operands = Some([queries, keys, values]);
        Ok([queries, keys, values])
    }

    /// Returns the operands of a kernel, followed by those that mask the scores.
    fn with_masks(&self, graph: &mut Graph, operands: &[NodeId], renamed: &Renaming) -> Result<Vec<NodeId>> {
        let mut all = operands.to_vec();
        for (arrays, ty) in self.biases.iter().zip(&self.attention.biases) {
            let dims = [ty.batch, ty.heads, ty.queries, self.attention.keys];
            let mut sum = graph.splat(DType::F32, &dims, 0.0)?;
            for added in arrays {
                let array = added.add(graph, renamed)?;
                sum = graph.binary(BinaryOp::Add, sum, array)?;
            }
            all.push(graph.convert(sum, dtype(ty.element))?);
        }
        if let Some(Lengths { value, plus }) = self.found.masking.lengths {
            let lengths = graph.convert(renamed.id(value)?, DType::I32)?;
            let lengths = graph.reshape(lengths, &[self.attention.batch])?;
            all.push(graph.binary_const(BinaryOp::Add, lengths, plus)?);
        }
        if let Some(trace::Dropout { state, .. }) = self.found.dropout {
            let words = words(graph, renamed.id(state)?)?;
            all.push(match &self.calls.divided {
                Some((division, part)) => division.state(graph, words, part)?,
                None => words,
            });
        }
        Ok(all)
    }

    /// Adds the operands of a gradient's kernel.
    fn gradient_operands(&mut self, graph: &mut Graph, all: &Gradients, renamed: &Renaming) -> Result<Vec<NodeId>> {
        let [out, logsumexp] = self.forward(graph, renamed)?;
        let [queries, keys, values] = self.operands(graph, renamed)?;
        let gradient = all.of_result.add(graph, renamed.id(all.of_result.value)?)?;
        let gradient = graph.convert(gradient, dtype(self.attention.element))?;
        let [wide, wide_out] = [graph.convert(gradient, DType::F32)?, graph.convert(out, DType::F32)?];
        let products = graph.binary(BinaryOp::Mul, wide, wide_out)?;
        let sums = graph.reduce(Combine::Sum, products, &[3])?;
        let sums = graph.reshape(sums, &self.attention.row_type().dims)?;
        self.with_masks(graph, &[queries, keys, values, gradient, logsumexp, sums], renamed)
    }

    fn query_gradient(&mut self, graph: &mut Graph, all: &Gradients, renamed: &Renaming) -> Result<NodeId> {
        if let Some(result) = self.of_queries {
            return Ok(result);
        }
        let operands = self.gradient_operands(graph, all, renamed)?;
        let result = graph.custom_call(Arc::clone(&self.calls.query_gradient), &operands)?[0];
        self.of_queries = Some(result);
        Ok(result)
    }

    fn key_gradient(&mut self, graph: &mut Graph, all: &Gradients, renamed: &Renaming) -> Result<[NodeId; 2]> {
        if let Some(results) = self.of_keys {
            return Ok(results);
        }
        let operands = self.gradient_operands(graph, all, renamed)?;
        let results = graph.custom_call(Arc::clone(&self.calls.key_gradient), &operands)?;
        let results = [results[0], results[1]];
        self.of_keys = Some(results);
        Ok(results)
    }

    /// Adds a kernel's result with the dims of the product that it replaces.
    fn ordered(&self, graph: &mut Graph, result: NodeId, found: &ResultProduct) -> Result<NodeId> {
        let dims = graph.dims(result);
        let batch = self.batch.iter().copied();
        let dims: Vec<usize> = batch.chain([dims[2], dims[3]]).collect();
        let result = graph.reshape(result, &dims)?;
        graph.transpose(result, &found.order)
    }
}

impl Calls {
    /// Makes the kernels; `None` if they do not take this attention.
    fn new(attention: &Attention, divided: Option<(Division, Attention)>) -> Option<Self> {
        let call = |name: &str, kernel: MakeKernel, plain: Result<burn_tpu_graph::Program>| {
            let make = |attention: &Attention| kernel_call(&kernel(attention).ok()?).ok();
            let kernel = match &divided {
                Some((division, part)) => division.call(&make(attention)?, make(part)?, part.dropout.is_some()),
                None => make(attention)?,
            };
            CustomCall::new(name, CallForm::Kernel(kernel), plain.ok()?).ok().map(Arc::new)
        };
        let state = divided.as_ref().map_or(plain::STATE_WORDS, |(division, _)| division.state_words());
        let forward = call("flash_attention", Attention::forward, plain::forward(attention, state))?;
        let of_queries = plain::query_gradient(attention, state);
        let query_gradient = call("flash_attention_query_gradient", Attention::query_gradient, of_queries)?;
        let of_keys = plain::key_gradient(attention, state);
        let key_gradient = call("flash_attention_key_gradient", Attention::key_gradient, of_keys)?;
        Some(Self { divided, forward, query_gradient, key_gradient })
    }
}

/// Returns the element type of a kernel's operand.
fn element(dtype: DType) -> Option<Element> {
    match dtype {
        DType::F32 => Some(Element::F32),
        DType::BF16 => Some(Element::BF16),
        _ => None,
    }
}

fn dtype(element: Element) -> DType {
    if element == Element::BF16 { DType::BF16 } else { DType::F32 }
}

/// Returns the keys that a query sees by position; `None` if they are not next to each other.
fn band(found: &trace::Attention, queries: usize, keys: usize) -> Option<Band> {
    let Some(hidden) = &found.masking.hidden else { return Some(Band::ALL) };
    let (first, last) = (1 - queries as i64, keys as i64 - 1);
    let [from, to] = hidden.zeros(first, last)?;
    let number = |number: i64| i32::try_from(number).ok();
    Some(Band {
        left: if from > first { Some(number(-from)?) } else { None },
        right: if to < last { Some(number(to)?) } else { None },
        offset: 0,
    })
}

/// Adds the words of a state `u64[2]`: i32, the low and the high one of each number.
fn words(graph: &mut Graph, state: NodeId) -> Result<NodeId> {
    let low = graph.binary_const(BinaryOp::And, state, Number::UInt(u64::from(u32::MAX)))?;
    let high = graph.binary_const(BinaryOp::ShiftRightLogical, state, Number::UInt(32))?;
    let [low, high] = [graph.reshape(low, &[2, 1])?, graph.reshape(high, &[2, 1])?];
    let words = graph.concatenate(&[low, high], 1)?;
    let words = graph.reshape(words, &[4])?;
    let words = graph.convert(words, DType::U32)?;
    graph.bitcast_convert(words, DType::I32)
}

/// Returns the arrays beside the scores by the dims along which they vary.
fn alike(graph: &Graph, added: &[Added]) -> Vec<Vec<Added>> {
    let dims = |added: &Added| added.view.sizes(graph).map(|size| size > 1);
    let mut groups: Vec<Vec<Added>> = Vec::new();
    for one in added {
        match groups.iter_mut().find(|group| dims(&group[0])[..3] == dims(one)[..3]) {
            Some(group) => group.push(one.clone()),
            None => groups.push(vec![one.clone()]),
        }
    }
    groups
}

/// Returns the bias that is the sum of arrays. One for each query is as narrow as its arrays: it is the largest operand.
fn bias(graph: &Graph, arrays: &[Added]) -> Bias {
    let [batch, heads, queries, _] = arrays[0].view.sizes(graph);
    let is_narrow = |added: &Added| matches!(graph.dtype(added.view.value), DType::BF16 | DType::Bool);
    let is_narrow = queries > 1 && arrays.iter().all(is_narrow);
    Bias { element: if is_narrow { Element::BF16 } else { Element::F32 }, batch, heads, queries }
}

impl Added {
    /// Adds the numbers, in f32, that are added to the scores for this array.
    fn add(&self, graph: &mut Graph, renamed: &Renaming) -> Result<NodeId> {
        let value = self.view.add(graph, renamed.id(self.view.value)?)?;
        if self.effect == Effect::Adds {
            return graph.convert(value, DType::F32);
        }
        let dims = graph.dims(value);
        let [zero, hidden] = [0.0, plain::HIDDEN].map(|number| graph.splat(DType::F32, &dims, number));
        let (yes, no) = if self.effect == Effect::Hides { (hidden?, zero?) } else { (zero?, hidden?) };
        graph.select(value, yes, no)
    }
}

/// Adds a value times a factor, in its own type.
fn scaled(graph: &mut Graph, value: NodeId, factor: &Factor, scalars: &[Scalar], renamed: &Renaming) -> Result<NodeId> {
    if factor.known() == Some(1.0) {
        return Ok(value);
    }
    let mut number = graph.scalar(DType::F32, factor.constant)?;
    for (&place, &power) in &factor.scalars {
        let mut scalar = renamed.id(scalars[place].value)?;
        for &dtype in &scalars[place].rounded {
            scalar = graph.convert(scalar, dtype)?;
        }
        let scalar = graph.convert(scalar, DType::F32)?;
        let op = if power > 0 { BinaryOp::Mul } else { BinaryOp::Div };
        for _ in 0..power.unsigned_abs() {
            number = graph.binary(op, number, scalar)?;
        }
    }
    let dtype = graph.dtype(value);
    let wide = graph.convert(value, DType::F32)?;
    let number = graph.broadcast_like(number, wide)?;
    let product = graph.binary(BinaryOp::Mul, wide, number)?;
    graph.convert(product, dtype)
}
