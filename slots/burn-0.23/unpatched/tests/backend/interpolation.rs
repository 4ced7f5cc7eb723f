//! Interpolation in every mode, with every map of coordinates, rounding and kernel, and its gradient.

use crate::rows::*;
use crate::version::Ours;
use burn_backend::FloatDType;
use burn_backend::ops::*;
use burn_flex::Flex;
use proptest::prelude::*;
use proptest::sample::select;

const MODES: [InterpolateMode; 5] = [
    InterpolateMode::Nearest,
    InterpolateMode::NearestExact,
    InterpolateMode::Bilinear,
    InterpolateMode::Bicubic,
    InterpolateMode::Lanczos3,
];

fn coordinates() -> impl Strategy<Value = CoordinateTransformMode> {
    use CoordinateTransformMode::*;
    let edge = || (-4..12i8).prop_map(|eighths| f32::from(eighths) / 8.0);
    let region = prop::array::uniform2(prop::array::uniform2(edge()));
    let crop = (region, -2..3i8).prop_map(|(roi, value)| TfCropAndResize { roi, extrapolation_value: value.into() });
    let named = [HalfPixel, AlignCorners, Asymmetric, PytorchHalfPixel, HalfPixelSymmetric];
    prop_oneof![3 => select(named.to_vec()), 2 => crop]
}

fn options(modes: &'static [InterpolateMode]) -> impl Strategy<Value = InterpolateOptions> {
    use NearestRoundingMode::*;
    let rounding = select(vec![RoundPreferFloor, RoundPreferCeil, Floor, Ceil]);
    let scale = prop::option::of(prop::array::uniform2((2..20u8).prop_map(|eighths| f32::from(eighths) / 8.0)));
    (select(modes), coordinates(), rounding, select(vec![-0.75, -0.5f32]), any::<bool>(), scale).prop_map(
        |(mode, coordinates, rounding, a, exclude_outside, scale_factor)| {
            let options = InterpolateOptions::new(mode).with_coordinate_transform(coordinates);
            let options = options.with_nearest_mode(rounding).with_cubic_options(CubicOptions { a, exclude_outside });
            InterpolateOptions { scale_factor, ..options }
        },
    )
}

/// Returns the size of the output that burn-tensor asks for.
fn output(size: [usize; 2], asked: [usize; 2], options: &InterpolateOptions) -> [usize; 2] {
    let scaled = |i: usize, scale: [f32; 2]| ((size[i] as f64 * f64::from(scale[i])) as usize).max(1);
    options.scale_factor.map_or(asked, |scale| [scaled(0, scale), scaled(1, scale)])
}

proptest! {
    #![proptest_config(many())]

    #[test]
    fn values(
        size in prop::array::uniform2(1..8usize),
        asked in prop::array::uniform2(1..12usize),
        options in options(&MODES),
    ) {
        let out = output(size, asked, &options);
        agree!(Flex, feed, {
            let x = feed.float(&[1, 2, size[0], size[1]]);
            vec![feed.read(B::interpolate(x, out, options.clone()))]
        });
    }

    /// burn-flex has no gradient of Lanczos3.
    #[test]
    fn gradients(
        size in prop::array::uniform2(1..8usize),
        asked in prop::array::uniform2(1..12usize),
        options in options(&MODES[..4]),
    ) {
        let out = output(size, asked, &options);
        agree!(Flex, feed, {
            let x = feed.float(&[1, 2, size[0], size[1]]);
            let grad = feed.float(&[1, 2, out[0], out[1]]);
            vec![feed.read(B::interpolate_backward(x, grad, out, options.clone()))]
        });
    }

    /// The gradient is the adjoint: both give the same product with the other one's operand.
    #[test]
    fn gradients_of_lanczos(
        size in prop::array::uniform2(1..8usize),
        asked in prop::array::uniform2(1..12usize),
        options in options(&MODES[4..]),
    ) {
        let options = InterpolateOptions { coordinate_transform: CoordinateTransformMode::HalfPixel, ..options };
        let out = output(size, asked, &options);
        let mut feed = Feed::<Ours>::new(crate::version::interpreter(), FloatDType::F64);
        let (x, grad) = (feed.float(&[1, 2, size[0], size[1]]), feed.float(&[1, 2, out[0], out[1]]));
        let y = Ours::interpolate(x.clone(), out, options.clone());
        let dx = Ours::interpolate_backward(x.clone(), grad.clone(), out, options);
        let dot = |feed: &Feed<Ours>, a, b| feed.read(Ours::float_sum(Ours::float_mul(a, b))).1[0];
        let (forward, backward) = (dot(&feed, y, grad), dot(&feed, dx, x));
        prop_assert!((forward - backward).abs() < 1e-4 * (1.0 + forward.abs()), "{} is not {}", forward, backward);
    }
}

/// The options are many, and a case is small.
fn many() -> proptest::test_runner::Config {
    let config = crate::version::cases();
    proptest::test_runner::Config { cases: 8 * config.cases, ..config }
}

#[test]
#[should_panic(expected = "is no range of numbers")]
fn a_region_without_numbers_is_refused() {
    let mut feed = Feed::<Ours>::new(crate::version::interpreter(), FloatDType::F32);
    let roi = [[f32::NAN, 1.0], [0.0, 1.0]];
    let crop = CoordinateTransformMode::TfCropAndResize { roi, extrapolation_value: 0.0 };
    let options = InterpolateOptions::new(InterpolateMode::Bilinear).with_coordinate_transform(crop);
    Ours::interpolate(feed.float(&[1, 1, 2, 2]), [3, 3], options);
}
