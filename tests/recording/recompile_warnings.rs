//! Recompiles that a user can avoid cause warnings: a warm loop that compiles again, a loop that compiles at every step, a
//! dim of many sizes, a dim that grows. Each names the line, in the thread that recorded.

use crate::common;

use burn::data::dataloader::DataLoaderBuilder;
use burn::data::dataloader::batcher::Batcher;
use burn::data::dataset::InMemDataset;
use burn::nn::attention::{SeqLengthOption, generate_padding_mask};
use burn::tensor::{Int, Tensor, TensorData};
use burn_tpu::{Tpu, TpuDevice, mark_step};
use common::{alone, warnings};

type B = Tpu<f32>;

const UPLOADED: u32 = line!() + 3;
fn matrix(device: &TpuDevice, dims: [usize; 2]) -> Tensor<B, 2> {
    let values: Vec<f32> = (0..dims[0] * dims[1]).map(|i| i as f32).collect();
    Tensor::from_data(TensorData::new(values, dims), device)
}

/// Computes a long chain of one function, which makes a loop that is unlike those of other tests.
fn chain(x: Tensor<B, 2>, f: fn(Tensor<B, 2>) -> Tensor<B, 2>) -> TensorData {
    (0..12).fold(x, |x, _| f(x)).sum().into_data()
}

/// Returns the line of `text` in which `part` is, which must be one.
fn one_line<'t>(text: &'t str, part: &str) -> &'t str {
    let found: Vec<&str> = text.lines().filter(|line| line.contains(part)).collect();
    let [only] = found[..] else { panic!("{} lines with {part:?} in {text}", found.len()) };
    only
}

/// The second step of a loop often differs from the first: it finds the optimizer's state.
#[test]
fn only_a_warm_loop_that_compiles_again_causes_a_warning() {
    let Some(device) = common::cpu() else { return };
    let _alone = alone();
    let step = |rows| drop(chain(matrix(&device, [rows, 7]), |x| x.sin()));
    let text = warnings(|| [9, 4, 4, 4].into_iter().for_each(step));
    assert_eq!(text, "", "the beginning of a loop");
    let text = warnings(|| [2, 4, 2].into_iter().for_each(step));
    let line =
        one_line(&text, "a program was compiled again: shape at float_sin (tests/recording/recompile_warnings.rs:");
    assert!(line.contains("an input of the program") && line.contains("3 compiles of this loop so far"), "{line}");
    assert!(
        line.contains(&format!("first uploaded at tests/recording/recompile_warnings.rs:{UPLOADED} in ")),
        "{UPLOADED}: {line}"
    );
}

#[test]
fn a_dim_of_many_sizes_causes_one_warning() {
    let Some(device) = common::cpu() else { return };
    let _alone = alone();
    let step = |rows| drop(chain(matrix(&device, [rows, 7]), |x| x.cos()));
    let text = warnings(|| [5, 5, 3, 3, 9, 9, 4, 4, 7, 7, 2, 2].into_iter().for_each(step));
    assert_eq!(
        text.matches("a program was compiled again: shape at float_cos (tests/recording/recompile_warnings.rs:")
            .count(),
        5,
        "{text}"
    );
    let line = one_line(&text, "dim 0 of what float_cos takes had 5 sizes");
    assert!(line.contains("5, 3, 9, 4, 7") && line.contains("pad it to a few sizes with burn_tpu::Buckets"), "{line}");
}

#[test]
fn a_loop_that_compiles_at_every_step_says_so_once() {
    let Some(device) = common::cpu() else { return };
    let _alone = alone();
    let step = |rows| drop(chain(matrix(&device, [rows, 7]), |x| x.tan()));
    let text = warnings(|| [5, 3, 9, 4, 7, 2, 8, 6].into_iter().for_each(step));
    let line = one_line(&text, "a loop compiles at every step: 5 programs in a row");
    assert!(
        line.contains("ERROR") && line.contains("shape at float_tan (tests/recording/recompile_warnings.rs:"),
        "{text}"
    );
    assert!(one_line(&text, "fix: ").contains("pad on the host with burn_tpu::Buckets"), "{text}");
    assert_eq!(text.matches("docs/recompiles.md").count(), 1, "{text}");
    assert!(!text.contains("a program was compiled again"), "{text}");
}

/// Generation as `sequence = cat(sequence, token)`: each token makes a program.
#[test]
fn a_dim_that_grows_causes_one_warning_with_the_form_to_write() {
    let Some(device) = common::cpu() else { return };
    let _alone = alone();
    let mut sequence = Tensor::<B, 2>::ones([1, 4], &device);
    let text = warnings(|| {
        for _ in 0..8 {
            let token = (0..12).fold(sequence.clone(), |x, _| x.sinh()).mean_dim(1);
            sequence = Tensor::cat(vec![sequence.clone(), token], 1);
            mark_step(&device);
        }
    });
    let line = one_line(&text, "grows (tests/recording/recompile_warnings.rs:");
    assert!(line.contains("dim 1 of what float_") && line.contains("each a program of its own"), "{line}");
    assert!(!text.contains("compiles at every step"), "it is said already: {text}");
    let fix = one_line(&text, "fix: ");
    assert!(fix.contains("Buckets::doubling(32, 512)?.pad(tokens, 1, 0)?") && fix.contains("slice_assign"), "{fix}");
}

/// Pads sentences of different lengths on the loader's thread, with ops whose shapes are the lengths.
#[derive(Clone)]
struct Sentences;

const PADDED: u32 = line!() + 4;
impl Batcher<B, usize, Tensor<B, 2, Int>> for Sentences {
    fn batch(&self, lengths: Vec<usize>, device: &TpuDevice) -> Tensor<B, 2, Int> {
        let tokens = lengths.into_iter().map(|length| vec![1; length]).collect();
        generate_padding_mask(0, tokens, SeqLengthOption::Fixed(16), device).tensor
    }
}

#[test]
fn a_batcher_that_compiles_for_every_batch_is_named_and_its_consumer_is_not() {
    let Some(device) = common::cpu() else { return };
    let _alone = alone();
    let lengths = (0..8 * 4).map(|i| (i * 7 + i / 4) % 16 + 1).collect();
    let loader = DataLoaderBuilder::new(Sentences).batch_size(4).num_workers(1).set_device(device);
    let loader = loader.build(InMemDataset::new(lengths));
    let text = warnings(|| loader.iter().for_each(|batch| drop((batch * 3).abs().sum().into_data())));
    one_line(&text, "a loop compiles at every step");
    assert!(text.contains(&format!("tests/recording/recompile_warnings.rs:{PADDED} in ")), "line {PADDED}: {text}");
}
