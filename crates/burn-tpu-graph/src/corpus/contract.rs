//! Test cases for contractions.

use super::Cases;
use crate::op::{ConvAttrs, ConvDims, DotAttrs, Precision};
use crate::{Builder, DType, Dims, Result};
use smallvec::{SmallVec, smallvec};

/// Operand and result element types of dots.
const DOTS: [(DType, DType); 12] = [
    (DType::F32, DType::F32),
    (DType::BF16, DType::F32),
    (DType::BF16, DType::BF16),
    (DType::F16, DType::F32),
    (DType::F16, DType::F16),
    (DType::F64, DType::F64),
    (DType::I8, DType::I32),
    (DType::I32, DType::I32),
    (DType::U32, DType::U32),
    (DType::I32, DType::I64),
    (DType::I64, DType::I64),
    (DType::U64, DType::U64),
];

fn dot(batch: &[[usize; 2]], contract: &[[usize; 2]], result: DType) -> DotAttrs {
    let side = |pairs: &[[usize; 2]], at: usize| -> Dims { pairs.iter().map(|pair| pair[at]).collect() };
    DotAttrs::new([&side(batch, 0), &side(batch, 1)], [&side(contract, 0), &side(contract, 1)], result)
}

pub(super) fn add(cases: &mut Cases) -> Result<()> {
    for (dtype, result) in DOTS {
        cases.add(format!("dot/{dtype}_{result}"), |r| {
            let (lhs, rhs) = (r.parameter(dtype, &[2, 3])?, r.parameter(dtype, &[3, 4])?);
            let (x, y) = (r.parameter(dtype, &[5, 2, 3])?, r.parameter(dtype, &[3, 5, 4])?);
            let (a, b) = (r.parameter(dtype, &[4])?, r.parameter(dtype, &[4])?);
            let (none, any) = (r.parameter(dtype, &[2, 0])?, r.parameter(dtype, &[0, 3])?);
            Ok(vec![
                r.graph.dot_general(lhs, rhs, dot(&[], &[[1, 0]], result))?,
                r.graph.dot_general(x, y, dot(&[[0, 1]], &[[2, 0]], result))?,
                r.graph.dot_general(a, b, dot(&[], &[[0, 0]], result))?,
                r.graph.dot_general(a, b, dot(&[], &[], result))?,
                r.graph.dot_general(none, any, dot(&[], &[[1, 0]], result))?,
            ])
        })?;
    }
    for precision in [Precision::High, Precision::Highest] {
        cases.add(format!("dot/f32_{}", precision.name().to_lowercase()), |r| {
            let (lhs, rhs) = (r.parameter(DType::F32, &[2, 3])?, r.parameter(DType::F32, &[3, 4])?);
            let attrs = DotAttrs { precision, ..dot(&[], &[[1, 0]], DType::F32) };
            Ok(vec![r.graph.dot_general(lhs, rhs, attrs)?])
        })?;
    }
    convolutions(cases)
}

/// Channels first, stride 1, no padding, no dilation, one group.
fn conv(spatial: usize, result: DType) -> ConvAttrs {
    let dims = || ConvDims { batch: 0, feature: 1, spatial: (2..2 + spatial).collect() };
    ConvAttrs {
        strides: Dims::from_elem(1, spatial),
        padding: SmallVec::from_elem((0, 0), spatial),
        lhs_dilation: Dims::from_elem(1, spatial),
        rhs_dilation: Dims::from_elem(1, spatial),
        input: dims(),
        kernel: dims(),
        output: dims(),
        feature_groups: 1,
        batch_groups: 1,
        result,
        precision: Precision::Default,
    }
}

fn convolutions(cases: &mut Cases) -> Result<()> {
    for (dtype, result) in [(DType::F32, DType::F32), (DType::BF16, DType::F32), (DType::F16, DType::F32)] {
        for spatial in 1..=3 {
            cases.add(format!("conv/{spatial}d/{dtype}_{result}"), |r| {
                let dims = |first: [usize; 2], size: usize| [&first[..], &vec![size; spatial]].concat();
                let (x, kernel) = (r.parameter(dtype, &dims([2, 3], 5))?, r.parameter(dtype, &dims([4, 3], 2))?);
                let mut strided = conv(spatial, result);
                strided.strides = Dims::from_elem(2, spatial);
                strided.padding = SmallVec::from_elem((1, 0), spatial);
                strided.rhs_dilation = Dims::from_elem(2, spatial);
                Ok(vec![
                    r.graph.convolution(x, kernel, conv(spatial, result))?,
                    r.graph.convolution(x, kernel, strided)?,
                ])
            })?;
        }
    }
    cases.add("conv/grouped", |r| {
        let (x, kernel) = (r.parameter(DType::F32, &[2, 4, 5])?, r.parameter(DType::F32, &[6, 2, 3])?);
        let attrs = ConvAttrs { feature_groups: 2, ..conv(1, DType::F32) };
        Ok(vec![r.graph.convolution(x, kernel, attrs)?])
    })?;
    cases.add("conv/highest", |r| {
        let (x, kernel) = (r.parameter(DType::F32, &[2, 4, 5])?, r.parameter(DType::F32, &[6, 4, 3])?);
        let attrs = ConvAttrs { precision: Precision::Highest, ..conv(1, DType::F32) };
        Ok(vec![r.graph.convolution(x, kernel, attrs)?])
    })?;
    cases.add("conv/batch_grouped", |r| {
        let (x, kernel) = (r.parameter(DType::F32, &[4, 3, 5])?, r.parameter(DType::F32, &[6, 3, 2])?);
        let attrs = ConvAttrs { batch_groups: 2, ..conv(1, DType::F32) };
        Ok(vec![r.graph.convolution(x, kernel, attrs)?])
    })?;
    cases.add("conv/transposed", |r| {
        let (x, kernel) = (r.parameter(DType::F32, &[2, 3, 4, 4])?, r.parameter(DType::F32, &[3, 5, 3, 3])?);
        let attrs = ConvAttrs {
            lhs_dilation: smallvec![2, 2],
            padding: smallvec![(2, 2), (1, -1)],
            kernel: ConvDims { batch: 1, feature: 0, spatial: smallvec![2, 3] },
            ..conv(2, DType::F32)
        };
        let kernel = r.graph.reverse(kernel, &[2, 3])?;
        Ok(vec![r.graph.convolution(x, kernel, attrs)?])
    })?;
    cases.add("conv/channels_last", |r| {
        let (x, kernel) = (r.parameter(DType::F32, &[2, 4, 4, 3])?, r.parameter(DType::F32, &[2, 2, 3, 5])?);
        let dims = || ConvDims { batch: 0, feature: 3, spatial: smallvec![1, 2] };
        let kernel_dims = ConvDims { batch: 3, feature: 2, spatial: smallvec![1, 0] };
        let attrs = ConvAttrs { input: dims(), output: dims(), kernel: kernel_dims, ..conv(2, DType::F32) };
        Ok(vec![r.graph.convolution(x, kernel, attrs)?])
    })
}
