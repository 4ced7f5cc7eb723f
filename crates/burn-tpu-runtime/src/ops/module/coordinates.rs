//! The positions of an interpolation's outputs among its inputs, along one dim.
//!
//! The centre of input `i` is at position `i`. The scale is the number of outputs by the number of inputs, unless a program
//! names one. Positions are computed on the host, in f64, where products come before quotients: a rounded scale would
//! move an output from one nearest input to another.

/// The map from an output to its position among the inputs.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Coordinates {
    /// Aligns the outer edges: `(output + 1/2) / scale - 1/2`.
    HalfPixel,
    /// As [`HalfPixel`](Self::HalfPixel), but a single output is at 0.
    HalfPixelPytorch,
    /// As [`HalfPixel`](Self::HalfPixel), with the scaled inputs centred on the outputs: the two sizes differ where a named
    /// scale gives a fraction of an output.
    HalfPixelSymmetric,
    /// Aligns the centres of the outermost pixels: `output * (inputs - 1) / (outputs - 1)`, or 0 for a single output.
    AlignCorners,
    /// Aligns the first pixels' outer edges as if they were centres: `output / scale`.
    Asymmetric,
    /// Aligns the centres of the outermost outputs to the ends of a region; a single output is in its middle.
    Region {
        /// Start and end of the region in height and in width, as fractions from the first centre to the last one.
        region: [[f64; 2]; 2],
        /// The value of outputs that are not among the inputs.
        outside: f64,
    },
}

/// How the nearest input to a position is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NearestRounding {
    /// The input at or before the position.
    Floor,
    /// The input at or after the position.
    Ceil,
    /// The nearest one; of two, the first.
    HalfDown,
    /// The nearest one; of two, the second.
    HalfUp,
}

/// One of the two spatial dims of an interpolation.
#[derive(Clone, Copy)]
pub(super) struct Axis {
    /// 0 for the height, 1 for the width.
    pub index: usize,
    pub inputs: usize,
    pub outputs: usize,
    /// The scale that the program names.
    pub scale: Option<f64>,
}

impl Axis {
    /// Returns the position of each output; `None` for those outside of the inputs that another value replaces.
    pub fn positions(&self, coordinates: Coordinates) -> Vec<Option<f64>> {
        (0..self.outputs).map(|output| self.position(coordinates, output as f64)).collect()
    }

    fn position(&self, coordinates: Coordinates, output: f64) -> Option<f64> {
        let (inputs, outputs, last) = (self.inputs as f64, self.outputs as f64, self.inputs as f64 - 1.0);
        let unscaled = |place: f64| self.scale.map_or_else(|| place * inputs / outputs, |scale| place / scale);
        let position = match coordinates {
            Coordinates::HalfPixelPytorch if self.outputs == 1 => 0.0,
            Coordinates::HalfPixel | Coordinates::HalfPixelPytorch => unscaled(output + 0.5) - 0.5,
            Coordinates::HalfPixelSymmetric => {
                let margin = self.scale.map_or(0.0, |scale| (inputs * scale - outputs) / 2.0);
                unscaled(output + 0.5 + margin) - 0.5
            }
            Coordinates::AlignCorners if self.outputs == 1 => 0.0,
            Coordinates::AlignCorners => output * last / (outputs - 1.0),
            Coordinates::Asymmetric => unscaled(output),
            Coordinates::Region { region, .. } => {
                let [start, end] = region[self.index];
                let position = match self.outputs {
                    1 => 0.5 * (start + end) * last,
                    _ => start * last + output * (end - start) * last / (outputs - 1.0),
                };
                return (0.0..=last).contains(&position).then_some(position);
            }
        };
        Some(position)
    }

    /// Returns the nearest input of a position.
    pub fn nearest(&self, position: f64, rounding: NearestRounding) -> usize {
        let place = match rounding {
            NearestRounding::Floor => position.floor(),
            NearestRounding::Ceil => position.ceil(),
            NearestRounding::HalfDown => (position - 0.5).ceil(),
            NearestRounding::HalfUp => (position + 0.5).floor(),
        };
        // A conversion to an integer is clamped.
        (place as usize).min(self.inputs - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn axis(inputs: usize, outputs: usize, scale: Option<f64>) -> Axis {
        Axis { index: 1, inputs, outputs, scale }
    }

    fn positions(axis: Axis, coordinates: Coordinates) -> Vec<f64> {
        axis.positions(coordinates).into_iter().map(|position| position.unwrap_or(f64::NAN)).collect()
    }

    #[test]
    fn outputs_have_positions() {
        let half = axis(4, 2, None);
        assert_eq!(positions(half, Coordinates::HalfPixel), [0.5, 2.5]);
        assert_eq!(positions(half, Coordinates::AlignCorners), [0.0, 3.0]);
        assert_eq!(positions(half, Coordinates::Asymmetric), [0.0, 2.0]);
        assert_eq!(positions(axis(4, 1, None), Coordinates::HalfPixelPytorch), [0.0]);
        assert_eq!(positions(axis(4, 1, None), Coordinates::HalfPixel), [1.5]);
        // 4 inputs by 0.7 are 2.8 outputs, of which there are 2: 0.4 before and after them.
        let cut = positions(axis(4, 2, Some(0.7)), Coordinates::HalfPixelSymmetric);
        assert!((cut[0] - (0.9 / 0.7 - 0.5)).abs() < 1e-12 && (cut[1] - (1.9 / 0.7 - 0.5)).abs() < 1e-12, "{cut:?}");
    }

    #[test]
    fn a_region_may_leave_the_inputs() {
        let region = Coordinates::Region { region: [[0.0, 0.0], [0.5, 1.5]], outside: 9.0 };
        assert_eq!(axis(5, 3, None).positions(region), [Some(2.0), Some(4.0), None]);
        assert_eq!(axis(5, 1, None).positions(region), [Some(4.0)]);
    }

    #[test]
    fn ties_are_rounded_as_asked() {
        use NearestRounding::{Ceil, Floor, HalfDown, HalfUp};
        let axis = axis(4, 4, None);
        let at = |position| [Floor, Ceil, HalfDown, HalfUp].map(|rounding| axis.nearest(position, rounding));
        assert_eq!((at(1.5), at(1.4), at(-2.0), at(9.0)), ([1, 2, 1, 2], [1, 2, 1, 1], [0; 4], [3; 4]));
    }
}
