//! Fourier transforms over the last dim, computed in f64: radix 2 for powers of two, Bluestein's convolution for
//! other lengths.

use super::buffer::C64;
use super::error::Result;
use super::tensor::HostTensor;
use burn_tpu_graph::Dims;
use burn_tpu_graph::op::FftKind;
use std::f64::consts::PI;

#[derive(Clone, Copy, Default)]
struct Complex {
    re: f64,
    im: f64,
}

impl Complex {
    /// Returns e^(i * angle).
    fn turn(angle: f64) -> Self {
        Self { re: angle.cos(), im: angle.sin() }
    }

    fn plus(self, rhs: Self) -> Self {
        Self { re: self.re + rhs.re, im: self.im + rhs.im }
    }

    fn minus(self, rhs: Self) -> Self {
        Self { re: self.re - rhs.re, im: self.im - rhs.im }
    }

    fn times(self, rhs: Self) -> Self {
        Self { re: self.re * rhs.re - self.im * rhs.im, im: self.re * rhs.im + self.im * rhs.re }
    }

    fn conj(self) -> Self {
        Self { re: self.re, im: -self.im }
    }

    fn scaled(self, by: f64) -> Self {
        Self { re: self.re * by, im: self.im * by }
    }

    fn narrow(self) -> C64 {
        C64 { re: self.re as f32, im: self.im as f32 }
    }
}

impl From<C64> for Complex {
    fn from(v: C64) -> Self {
        Self { re: v.re.into(), im: v.im.into() }
    }
}

impl From<f32> for Complex {
    fn from(v: f32) -> Self {
        Self { re: v.into(), im: 0.0 }
    }
}

/// Transforms every line; `length` is that of the time-domain signal.
pub(super) fn fft(x: &HostTensor, kind: FftKind, length: usize) -> Result<HostTensor> {
    let mut dims = x.dims().clone();
    let Some(last) = dims.last_mut() else { return Err("the operand needs a dim".into()) };
    let line = last.max(&mut 1).to_owned();
    let half = length / 2 + 1;
    *last = if kind == FftKind::Rfft { half } else { length };
    match kind {
        FftKind::Fft => complex_lines(x, line, &dims, |line| spectrum(line, false)),
        FftKind::Ifft => complex_lines(x, line, &dims, |line| spectrum(line, true)),
        FftKind::Rfft => {
            let lines = x.elements::<f32>()?;
            let lines = lines.chunks_exact(line).map(|line| line.iter().map(|&v| v.into()).collect());
            let out = lines.flat_map(|line| spectrum(line, false).into_iter().take(half)).map(Complex::narrow);
            Ok(HostTensor::new(&dims, out.collect()))
        }
        FftKind::Irfft => {
            let lines = x.elements::<C64>()?;
            let lines = lines.chunks_exact(line).map(|line| mirrored(line, length));
            let out = lines.flat_map(|line| spectrum(line, true)).map(|v| v.re as f32);
            Ok(HostTensor::new(&dims, out.collect()))
        }
    }
}

fn complex_lines(
    x: &HostTensor,
    line: usize,
    dims: &Dims,
    transform: impl Fn(Vec<Complex>) -> Vec<Complex>,
) -> Result<HostTensor> {
    let elements = x.elements::<C64>()?;
    let lines = elements.chunks_exact(line).map(|line| line.iter().map(|&v| v.into()).collect());
    Ok(HostTensor::new(dims, lines.flat_map(transform).map(Complex::narrow).collect()))
}

/// Returns the whole spectrum of a real signal from its first half. Imaginary parts that a real signal cannot have
/// are ignored.
fn mirrored(half: &[C64], length: usize) -> Vec<Complex> {
    let at = |i: usize| Complex::from(half.get(i).copied().unwrap_or_default());
    let real = |v: Complex| Complex { im: 0.0, ..v };
    let one = |i: usize| match i {
        0 => real(at(0)),
        i if 2 * i == length => real(at(i)),
        i if 2 * i < length => at(i),
        i => at(length - i).conj(),
    };
    (0..length).map(one).collect()
}

/// Returns the transform of a line, or its inverse, which is scaled by 1 / length.
fn spectrum(mut line: Vec<Complex>, inverse: bool) -> Vec<Complex> {
    let n = line.len();
    if inverse {
        line.iter_mut().for_each(|v| *v = v.conj());
    }
    let mut line = if n.is_power_of_two() { radix_two(line) } else { bluestein(line) };
    if inverse {
        line.iter_mut().for_each(|v| *v = v.conj().scaled(1.0 / n as f64));
    }
    line
}

/// Decimation in time. The number of elements is a power of two.
fn radix_two(line: Vec<Complex>) -> Vec<Complex> {
    let n = line.len();
    let bits = n.trailing_zeros();
    let reversed = |i: usize| i.reverse_bits().checked_shr(usize::BITS - bits).unwrap_or(0);
    let mut out: Vec<Complex> = (0..n).map(|i| line[reversed(i)]).collect();
    let turns: Vec<Complex> = (0..n / 2).map(|i| Complex::turn(-2.0 * PI * i as f64 / n as f64)).collect();
    let mut half = 1;
    while half < n {
        for block in out.chunks_exact_mut(2 * half) {
            let (even, odd) = block.split_at_mut(half);
            for ((a, b), &turn) in even.iter_mut().zip(odd).zip(turns.iter().step_by(n / (2 * half))) {
                let turned = b.times(turn);
                (*a, *b) = (a.plus(turned), a.minus(turned));
            }
        }
        half *= 2;
    }
    out
}

/// Transforms any length: with jk = (j^2 + k^2 - (k - j)^2) / 2 the transform is a convolution with a chirp.
fn bluestein(line: Vec<Complex>) -> Vec<Complex> {
    let n = line.len();
    let padded = (2 * n).next_power_of_two();
    // The square is taken modulo 2n, the chirp's period, to keep precision.
    let chirp: Vec<Complex> = (0..n).map(|i| Complex::turn(-PI * ((i * i) % (2 * n)) as f64 / n as f64)).collect();
    let mut signal = vec![Complex::default(); padded];
    let mut kernel = vec![Complex::default(); padded];
    for (i, &turn) in chirp.iter().enumerate() {
        signal[i] = line[i].times(turn);
        kernel[i] = turn.conj();
        kernel[(padded - i) % padded] = turn.conj();
    }
    let product = radix_two(signal).into_iter().zip(radix_two(kernel)).map(|(a, b)| a.times(b));
    let convolved = spectrum(product.collect(), true);
    convolved.into_iter().zip(chirp).map(|(v, turn)| v.times(turn)).collect()
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Trial, run, values};
    use super::*;
    use burn_tpu_graph::Builder;

    /// Returns the real and imaginary parts of a transform of real lines.
    fn parts(dims: &[usize], x: &[f32], kind: FftKind, length: usize) -> (Vec<f32>, Vec<f32>) {
        let mut t = Trial::default();
        let mut x = t.input(dims, x);
        if kind != FftKind::Rfft {
            let zeros = t.graph.splat_like(x, 0.0).unwrap();
            x = t.graph.complex(x, zeros).unwrap();
        }
        let y = t.graph.fft(x, kind, length).unwrap();
        let both = [t.graph.real(y).unwrap(), t.graph.imag(y).unwrap()];
        let found = t.run(&both);
        (values(&found[0]), values(&found[1]))
    }

    fn near(found: &[f32], expected: &[f32]) {
        let close = |(a, b): (&f32, &f32)| (a - b).abs() < 1e-5;
        assert!(found.len() == expected.len() && found.iter().zip(expected).all(close), "{found:?} for {expected:?}");
    }

    #[test]
    fn every_length_agrees_with_the_definition() {
        for n in 1..=9 {
            let x: Vec<f32> = (0..n).map(|i| (i * i % 7) as f32 - 2.0).collect();
            let sum = |k: usize, part: fn(f64) -> f64| -> f32 {
                let term = |j: usize| f64::from(x[j]) * part(-2.0 * PI * (j * k) as f64 / n as f64);
                (0..n).map(term).sum::<f64>() as f32
            };
            let (re, im) = parts(&[n], &x, FftKind::Fft, n);
            near(&re, &(0..n).map(|k| sum(k, f64::cos)).collect::<Vec<_>>());
            near(&im, &(0..n).map(|k| sum(k, f64::sin)).collect::<Vec<_>>());
            let (half, _) = parts(&[n], &x, FftKind::Rfft, n);
            near(&half, &re[..n / 2 + 1]);
        }
    }

    #[test]
    fn inverses_return_to_the_signal() {
        for n in [1, 2, 5, 8] {
            let x: Vec<f32> = (0..2 * n).map(|i| i as f32).collect();
            let back = run::<f32>(|t| {
                let x = t.input(&[2, n], &x);
                let half = t.graph.fft(x, FftKind::Rfft, n)?;
                t.graph.fft(half, FftKind::Irfft, n)
            });
            near(&back, &x);
        }
        near(&parts(&[4], &[4., 0., 0., 0.], FftKind::Ifft, 4).0, &[1.; 4]);
    }

    #[test]
    fn no_lines_have_no_transforms() {
        assert_eq!(parts(&[0, 4], &[], FftKind::Rfft, 4), (vec![], vec![]));
    }
}
