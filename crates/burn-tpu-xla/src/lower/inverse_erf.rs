//! The inverse of the error function: Giles's polynomials in f32 ("Approximating the erfinv function", 2012), and Wichura's
//! rational approximations of the normal quantile in f64 (AS 241, 1988).

use super::Built;
use super::float::Floats;
use burn_tpu_runtime::graph::DType;
use std::f64::consts::FRAC_1_SQRT_2;
use xla::XlaOp;

/// Returns erf^-1(x): infinite at -1 and 1, NaN outside.
pub(super) fn inverse_erf(floats: &Floats, x: &XlaOp) -> Built<XlaOp> {
    let inside = if floats.ty.dtype == DType::F64 { wichura(floats, x) } else { giles(floats, x) }?;
    let (size, one) = (x.abs()?, floats.number(1.0)?);
    let end = x.mul_(&floats.number(f64::INFINITY)?)?;
    let result = size.eq(&one)?.select(&end, &inside)?;
    size.gt(&one)?.select(&floats.number(f64::NAN)?, &result)
}

fn giles(floats: &Floats, x: &XlaOp) -> Built<XlaOp> {
    let w = x.mul_(x)?.neg()?.log1p()?.neg()?;
    let is_near = w.lt(&floats.number(5.0)?)?;
    let near = horner(floats, &w.sub_(&floats.number(2.5)?)?, &NEAR)?;
    let far = horner(floats, &w.sqrt()?.sub_(&floats.number(3.0)?)?, &FAR_OUT)?;
    is_near.select(&near, &far)?.mul_(x)
}

fn wichura(floats: &Floats, x: &XlaOp) -> Built<XlaOp> {
    let number = |number: f64| floats.number(number);
    let size = x.abs()?;
    let q = x.mul_(&number(0.5)?)?;
    let central = ratio(floats, &number(0.180_625)?.sub_(&q.mul_(&q)?)?, &CENTRAL)?.mul_(&q)?;
    // The tail 1 - (1 + |x|) / 2 loses no digit in this form.
    let tail = number(1.0)?.sub_(&size)?.mul_(&number(0.5)?)?;
    let r = tail.log()?.neg()?.sqrt()?;
    let middle = ratio(floats, &r.sub_(&number(1.6)?)?, &MIDDLE)?;
    let far = ratio(floats, &r.sub_(&number(5.0)?)?, &FAR)?;
    let outer = r.le(&number(5.0)?)?.select(&middle, &far)?.mul_(&x.sign()?)?;
    let quantile = size.le(&number(0.85)?)?.select(&central, &outer)?;
    quantile.mul_(&number(FRAC_1_SQRT_2)?)
}

/// Returns numerator over denominator.
fn ratio(floats: &Floats, r: &XlaOp, [numerator, denominator]: &[[f64; 8]; 2]) -> Built<XlaOp> {
    horner(floats, r, numerator)?.div_(&horner(floats, r, denominator)?)
}

/// Returns a polynomial whose coefficients are in the order of rising powers.
fn horner(floats: &Floats, r: &XlaOp, coefficients: &[f64]) -> Built<XlaOp> {
    let zero = floats.number(0.0)?;
    coefficients.iter().rev().try_fold(zero, |sum, &c| sum.mul_(r)?.add_(&floats.number(c)?))
}

#[rustfmt::skip]
const NEAR: [f64; 9] = [
    1.50140941, 0.246640727, -0.00417768164, -0.00125372503, 0.00021858087,
    -4.39150654e-06, -3.5233877e-06, 3.43273939e-07, 2.81022636e-08,
];

#[rustfmt::skip]
const FAR_OUT: [f64; 9] = [
    2.83297682, 1.00167406, 0.00943887047, -0.0076224613, 0.00573950773,
    -0.00367342844, 0.00134934322, 0.000100950558, -0.000200214257,
];

#[rustfmt::skip]
const CENTRAL: [[f64; 8]; 2] = [
    [3.387_132_872_796_366_5, 1.331_416_678_917_843_8e2, 1.971_590_950_306_551_3e3, 1.373_169_376_550_946e4,
     4.592_195_393_154_987e4, 6.726_577_092_700_87e4, 3.343_057_558_358_813e4, 2.509_080_928_730_122_7e3],
    [1.0, 4.231_333_070_160_091e1, 6.871_870_074_920_579e2, 5.394_196_021_424_751e3,
     2.121_379_430_158_659_7e4, 3.930_789_580_009_271e4, 2.872_908_573_572_194_3e4, 5.226_495_278_852_545e3],
];

#[rustfmt::skip]
const MIDDLE: [[f64; 8]; 2] = [
    [1.423_437_110_749_683_5, 4.630_337_846_156_546, 5.769_497_221_460_691, 3.647_848_324_763_204_5,
     1.270_458_252_452_368_4, 2.417_807_251_774_506e-1, 2.272_384_498_926_918_4e-2, 7.745_450_142_783_414e-4],
    [1.0, 2.053_191_626_637_759, 1.676_384_830_183_803_8, 6.897_673_349_851e-1,
     1.481_039_764_274_800_8e-1, 1.519_866_656_361_645_7e-2, 5.475_938_084_995_345e-4, 1.050_750_071_644_416_9e-9],
];

#[rustfmt::skip]
const FAR: [[f64; 8]; 2] = [
    [6.657_904_643_501_103, 5.463_784_911_164_114, 1.784_826_539_917_291_3, 2.965_605_718_285_048_7e-1,
     2.653_218_952_657_612_4e-2, 1.242_660_947_388_078_4e-3, 2.711_555_568_743_487_6e-5, 2.010_334_399_292_288_1e-7],
    [1.0, 5.998_322_065_558_88e-1, 1.369_298_809_227_358e-1, 1.487_536_129_085_061_5e-2,
     7.868_691_311_456_133e-4, 1.846_318_317_510_054_8e-5, 1.421_511_758_316_446e-7, 2.044_263_103_389_939_8e-15],
];
