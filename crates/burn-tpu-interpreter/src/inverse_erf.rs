//! The inverse of the error function, from Wichura's rational approximations of the normal quantile (AS 241, 1988):
//! 16 digits in three regions.

/// Returns erf^-1(x): infinite at -1 and 1, NaN outside.
pub(super) fn inverse_erf(x: f64) -> f64 {
    if x.is_nan() || x.abs() > 1.0 {
        return f64::NAN;
    }
    // The result needs the quantile of p = (1 + x) / 2. Its tail 1 - p is (1 - |x|) / 2, which loses no digit.
    let quantile = if x.abs() <= 0.85 { central(x / 2.0) } else { tail((1.0 - x.abs()) / 2.0).copysign(x) };
    quantile * std::f64::consts::FRAC_1_SQRT_2
}

fn central(q: f64) -> f64 {
    let r = 0.180625 - q * q;
    q * ratio(r, &CENTRAL)
}

fn tail(p: f64) -> f64 {
    if p == 0.0 {
        return f64::INFINITY;
    }
    let r = (-p.ln()).sqrt();
    if r <= 5.0 { ratio(r - 1.6, &MIDDLE) } else { ratio(r - 5.0, &FAR) }
}

/// Returns numerator over denominator; the coefficients are in the order of rising powers.
fn ratio(r: f64, [numerator, denominator]: &[[f64; 8]; 2]) -> f64 {
    let horner = |c: &[f64; 8]| c.iter().rev().fold(0.0, |sum, c| sum * r + c);
    horner(numerator) / horner(denominator)
}

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

#[cfg(test)]
mod tests {
    use super::inverse_erf;

    #[test]
    fn known_values() {
        // Computed with 30 digits by mpmath; XLA's own f64 approximation has an error of 1e-14 near 1.
        let known = [
            (0.0, 0.0),
            (0.5, 0.476_936_276_204_469_77),
            (-0.3, -0.272_462_714_726_754_4),
            (1e-12, 8.862_269_254_527_58e-13),
            (0.84, 0.993_535_628_347_304_2),
            (0.86, 1.043_541_843_639_758_8),
            (0.999_999_999_999, 5.042_031_898_572_696),
            (0.999_999_999_999_999_9, 5.863_584_748_755_168),
        ];
        for (x, y) in known {
            assert!((inverse_erf(x) - y).abs() <= 2e-15 * y.abs(), "{x}: {} and {y}", inverse_erf(x));
        }
    }

    #[test]
    fn ends_are_infinite_and_outside_is_nan() {
        assert_eq!((inverse_erf(1.0), inverse_erf(-1.0)), (f64::INFINITY, f64::NEG_INFINITY));
        assert!(inverse_erf(1.5).is_nan() && inverse_erf(f64::NAN).is_nan());
    }
}
