//! The parameters of a [`Gpt`](super::Gpt) that tensor parallelism splits: of each pair of layers the first by columns and the
//! second by rows, so that a block communicates twice in each direction (Megatron-LM, Shoeybi et al. 2019, section 3).

/// The biases of the layers that are split by columns. In a path, `*` stands for any part.
pub const TENSOR_PARALLEL_BIASES: [&str; 5] = [
    "blocks.*.attention.query.bias",
    "blocks.*.attention.key.bias",
    "blocks.*.attention.value.bias",
    "blocks.*.feed_forward.linear_inner.bias",
    "*head.bias",
];

/// Returns the weights, `[inputs, outputs]`, with the axis that splits each dim: one over `tensor`, the other over `fsdp`.
pub fn tensor_parallel_weights<'a>(tensor: &'a str, fsdp: Option<&'a str>) -> Vec<(String, [Option<&'a str>; 2])> {
    let columns = ["attention.query", "attention.key", "attention.value", "feed_forward.linear_inner"];
    let rows = ["attention.output", "feed_forward.linear_outer"];
    let path = |layer: &str| format!("blocks.*.{layer}.weight");
    let columns = columns.iter().map(|layer| (path(layer), [fsdp, Some(tensor)]));
    let rows = rows.iter().map(|layer| (path(layer), [Some(tensor), fsdp]));
    columns.chain(rows).chain([("*head.weight".to_owned(), [fsdp, Some(tensor)])]).collect()
}
