//! Formulas of Burn that lose much when each op rounds to bf16: at every level but `off`, interpreted and compiled, they are
//! as near to the values in f32 as one rounding of what is stored allows, and both tiers agree.

use crate::common;

use burn::backend::Autodiff;
use burn::tensor::activation::{log_softmax, softmax};
use burn::tensor::backend::Backend;
use burn::tensor::{Int, Tensor, TensorData};
use burn_tpu::{Optimization, Tpu, TpuDevice, TpuFloat, metrics};
use half::bf16;

/// A formula: its name, the share of its largest value by which each may be off, and its values in an element type.
type Kind<F> = (&'static str, f32, fn(&TpuDevice) -> Tensor<Tpu<F>, 2>);

fn kinds<F: TpuFloat>() -> Vec<Kind<F>>
where
    Tpu<F>: Backend<Device = TpuDevice>,
{
    vec![
        // What the gradient of a softmax subtracts is nearly what it subtracts it from.
        ("the gradient of softmax", 0.03, |device| gradient(device, |x| softmax(x, 1))),
        ("the gradient of log_softmax", 0.02, |device| gradient(device, |x| log_softmax(x, 1))),
        ("a norm", 0.01, |device| normalized(matrix([[6.0, 7.0, 6.5], [9.0, 10.0, 9.5], [8.0, 7.0, 8.5]], device))),
        ("a window", 0.01, window),
    ]
}

fn matrix<B: Backend>(values: [[f32; 3]; 3], device: &B::Device) -> Tensor<B, 2> {
    Tensor::from_data(TensorData::from(values).convert::<B::FloatElem>(), device)
}

type Differentiated<F> = Tensor<Autodiff<Tpu<F>>, 2>;

/// Returns the gradient of `(f(x w) w).sum()` with respect to `x`, of numbers that bf16 has. Large ones: the sums of a row
/// of the gradient are small differences of them.
fn gradient<F: TpuFloat>(device: &TpuDevice, f: fn(Differentiated<F>) -> Differentiated<F>) -> Tensor<Tpu<F>, 2>
where
    Tpu<F>: Backend<Device = TpuDevice>,
{
    let x = matrix([[0.0, 1.0, 0.5], [0.25, -1.0, 0.75], [1.0, 0.5, -0.5]], device).require_grad();
    let w = matrix([[6.0, 7.0, 6.5], [9.0, 10.0, 9.5], [8.0, 7.0, 8.5]], device);
    let grads = f(x.clone().matmul(w.clone())).matmul(w).sum().backward();
    x.grad(&grads).expect("the loss depends on x")
}

fn normalized<B: Backend>(x: Tensor<B, 2>) -> Tensor<B, 2> {
    let mean = x.clone().mean_dim(1);
    let centred = x - mean;
    let variance = centred.clone().powf_scalar(2.0).mean_dim(1);
    centred / (variance + 1e-5).sqrt()
}

fn window<F: TpuFloat>(device: &TpuDevice) -> Tensor<Tpu<F>, 2>
where
    Tpu<F>: Backend<Device = TpuDevice>,
{
    let places = Tensor::<Tpu<F>, 1, Int>::arange(0..16, device).float().reshape([4, 4]);
    (places * 0.3125).cos() * -0.5 + 0.5
}

fn values<F: TpuFloat>((_, _, compute): &Kind<F>, device: &TpuDevice) -> Vec<f32>
where
    Tpu<F>: Backend<Device = TpuDevice>,
{
    compute(device).into_data().convert::<f32>().to_vec().expect("f32")
}

/// Returns the largest difference of two lists of values, as a share of the largest of the second.
fn distance(found: &[f32], expected: &[f32]) -> f32 {
    let largest = expected.iter().fold(0.0f32, |largest, value| largest.max(value.abs()));
    let pairs = found.iter().zip(expected);
    pairs.fold(0.0f32, |most, (found, expected)| most.max((found - expected).abs())) / largest
}

/// The levels whose programs round once, by name.
const LEVELS: [(&str, Optimization); 3] = [
    ("conservative", Optimization::Conservative),
    ("balanced", Optimization::Balanced),
    ("aggressive", Optimization::Aggressive),
];

#[test]
fn formulas_in_bf16_are_right_in_every_tier_and_at_every_level() {
    let options = || common::development().strict(false);
    let exact = common::interpreter_with("exact", options());
    let expected: Vec<_> = kinds::<f32>().iter().map(|kind| values(kind, &exact)).collect();
    for (name, level) in LEVELS {
        let (new, old) =
            (options().optimization(level).interpret_from(1), options().optimization(level).interpret_from(0));
        let Some(interpreted) = common::cpu_with(&format!("{name}, interpreted"), new) else { return };
        let compiled = common::cpu_with(&format!("{name}, compiled"), old).expect("the plugin is there");
        for (kind, expected) in kinds::<bf16>().iter().zip(&expected) {
            let (ours, theirs) = (values(kind, &interpreted), values(kind, &compiled));
            let far = [distance(&ours, expected), distance(&theirs, expected)];
            assert!(
                far.iter().all(|&far| far < kind.1),
                "{name}, {}: {far:?} {ours:?} {theirs:?} {expected:?}",
                kind.0
            );
            let apart = distance(&ours, &theirs);
            assert!(apart <= 1.0 / 128.0, "{name}, {}: {apart} {ours:?} {theirs:?}", kind.0);
        }
        assert!(metrics(&interpreted).interpreted > 0 && metrics(&interpreted).compiles == 0, "{name}");
        assert!(metrics(&compiled).compiles > 0 && metrics(&compiled).interpreted == 0, "{name}");
    }
}

/// Without the pass, some of the formulas above are wrong: they would not find out if it did nothing.
#[test]
fn each_op_alone_is_off_by_much() {
    let options = common::development().strict(false).optimization(Optimization::Off);
    let (exact, each) =
        (common::interpreter_with("exact", common::development()), common::interpreter_with("off", options));
    let far =
        |(kind, exactly): (Kind<bf16>, Kind<f32>)| distance(&values(&kind, &each), &values(&exactly, &exact)) >= kind.1;
    let wrong = kinds::<bf16>().into_iter().zip(kinds::<f32>()).map(far);
    assert!(wrong.filter(|&wrong| wrong).count() >= 3);
}
