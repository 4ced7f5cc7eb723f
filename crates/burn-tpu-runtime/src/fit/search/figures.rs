//! The figures of a compiled layout, their extrapolation from few layers to many, and the order of layouts.

use super::candidates::Candidate;
use super::estimate::{Estimate, nanoseconds};
use super::process::ProcessFit;
use crate::fit::Spec;
use serde::Serialize;

/// What the compiler says about a layout, for one device.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Figures {
    /// The most memory that it holds.
    pub peak_bytes: f64,
    /// The memory that it may hold.
    pub limit_bytes: f64,
    /// The matrix operations at the peak rate.
    pub matrix_seconds: f64,
    /// The memory traffic at the peak bandwidth.
    pub memory_seconds: f64,
    /// The exchange with other devices at the peak bandwidth.
    pub communication_seconds: f64,
    /// The price of the slice, if there is one.
    pub usd_per_hour: Option<f64>,
}

impl Figures {
    /// Reads the entry of a slice.
    ///
    /// # Errors
    /// The compiler's reason, if the step does not compile.
    pub(super) fn read(fit: &ProcessFit, spec: &Spec) -> Result<Self, String> {
        let Some(speed) = &fit.speed else {
            let message = fit.message.as_deref().unwrap_or("no figures");
            let message = message.lines().next().unwrap_or_default();
            return Err(match fit.verdict.as_str() {
                "out_of_memory" => format!("out of memory: {message}"),
                _ => message.to_owned(),
            });
        };
        Ok(Self {
            peak_bytes: fit.memory.peak_bytes as f64,
            limit_bytes: fit.memory.limit_bytes as f64,
            matrix_seconds: speed.mfu * speed.roofline_seconds,
            memory_seconds: speed.hbm_bytes as f64 / spec.bytes_per_second(),
            communication_seconds: speed.communication_seconds,
            usd_per_hour: fit.price.as_ref().map(|price| price.usd_per_hour),
        })
    }

    /// Extrapolates the figures of two depths to a third: each layer adds the same.
    pub(super) fn extrapolate([(few, a), (more, b)]: [(usize, &Self); 2], layers: usize) -> Self {
        let steps = (layers as f64 - few as f64) / (more as f64 - few as f64);
        // The compiler may choose so differently at two depths that a figure falls: then it stays.
        let line = |of: fn(&Self) -> f64| (of(a) + steps * (of(b) - of(a))).max(of(a));
        Self {
            peak_bytes: line(|figures| figures.peak_bytes),
            matrix_seconds: line(|figures| figures.matrix_seconds),
            memory_seconds: line(|figures| figures.memory_seconds),
            communication_seconds: line(|figures| figures.communication_seconds),
            ..*b
        }
    }

    /// Returns whether the memory is enough.
    pub fn fits(&self) -> bool {
        self.peak_bytes <= self.limit_bytes
    }

    /// Returns the least time of a step that hides its communication.
    pub fn step_seconds(&self) -> f64 {
        self.matrix_seconds.max(self.memory_seconds).max(self.communication_seconds)
    }

    /// Returns the least time of a step that hides none of it.
    pub fn sum_seconds(&self) -> f64 {
        self.matrix_seconds.max(self.memory_seconds) + self.communication_seconds
    }

    /// Returns the price of a million tokens at the least time of a step.
    pub fn usd_per_million_tokens(&self, tokens: usize) -> Option<f64> {
        Some(self.usd_per_hour? / 3600.0 * self.step_seconds() / tokens as f64 * 1e6)
    }
}

/// How far a layout came.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "from", rename_all = "snake_case")]
pub enum LayoutResult {
    /// Compiled with all layers.
    Compiled {
        /// The compiler's figures.
        figures: Figures,
    },
    /// Extrapolated from compiles with few layers.
    Extrapolated {
        /// The figures with all layers.
        figures: Figures,
    },
    /// Not compiled, or the compile failed.
    Refused {
        /// Why there are no figures.
        reason: String,
    },
}

/// A layout with what is known of it.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The layout.
    #[serde(flatten)]
    pub candidate: Candidate,
    /// The layout as `BURN_TPU_MESH` reads it.
    pub mesh: String,
    /// The estimate before any compile.
    pub estimate: Estimate,
    /// What the compiles said.
    #[serde(flatten)]
    pub found: LayoutResult,
    /// The time of its compiles, summed.
    pub compile_seconds: f64,
}

impl Row {
    /// Returns the figures, of a layout that was compiled.
    pub fn figures(&self) -> Option<&Figures> {
        match &self.found {
            LayoutResult::Compiled { figures } | LayoutResult::Extrapolated { figures } => Some(figures),
            LayoutResult::Refused { .. } => None,
        }
    }

    /// Returns whether the layout was compiled and its memory is enough.
    pub fn fits(&self) -> bool {
        self.figures().is_some_and(Figures::fits)
    }
}

/// Sorts layouts: those that fit by the time of a step, then by the time without overlap, then by memory; then the others.
pub(super) fn rank(rows: &mut [Row]) {
    let key = |row: &Row| {
        let times = row.figures().map(|figures| {
            [nanoseconds(figures.step_seconds()), nanoseconds(figures.sum_seconds()), figures.peak_bytes]
        });
        (!row.fits(), times.unwrap_or([f64::MAX; 3]))
    };
    rows.sort_by(|a, b| {
        let ((a_fails, a), (b_fails, b)) = (key(a), key(b));
        let times = a.iter().zip(&b).map(|(a, b)| a.total_cmp(b));
        a_fails.cmp(&b_fails).then(times.fold(std::cmp::Ordering::Equal, std::cmp::Ordering::then))
    });
}

#[cfg(test)]
mod tests {
    use super::super::candidates::tests::LARGE;
    use super::*;
    use crate::fit::Specs;

    const FIGURES: Figures = Figures {
        peak_bytes: 10.0,
        limit_bytes: 100.0,
        matrix_seconds: 1.0,
        memory_seconds: 2.0,
        communication_seconds: 0.5,
        usd_per_hour: Some(3600.0),
    };

    fn row(data: usize, found: LayoutResult) -> Row {
        let candidate = Candidate { data, kept: super::super::Kept::Input, ..Candidate::ONE };
        let estimate = Estimate::of(&LARGE, candidate, &Specs::builtin().unwrap().v5e);
        Row { candidate, mesh: candidate.mesh(), estimate, found, compile_seconds: 0.0 }
    }

    #[test]
    fn each_layer_adds_the_same() {
        let more = Figures { peak_bytes: 13.0, matrix_seconds: 2.5, communication_seconds: 0.4, ..FIGURES };
        let deep = Figures::extrapolate([(1, &FIGURES), (2, &more)], 5);
        assert_eq!((deep.peak_bytes, deep.matrix_seconds), (22.0, 7.0));
        // It does not fall below what few layers need.
        assert_eq!((deep.memory_seconds, deep.communication_seconds), (2.0, 0.5));
        assert_eq!(Figures::extrapolate([(2, &FIGURES), (4, &more)], 4).peak_bytes, 13.0);
    }

    #[test]
    fn the_fastest_that_fits_is_first_and_failures_are_last() {
        let figures = |communication_seconds, peak_bytes| Figures { communication_seconds, peak_bytes, ..FIGURES };
        let mut rows = vec![
            row(1, LayoutResult::Refused { reason: "a reason".into() }),
            row(2, LayoutResult::Compiled { figures: figures(9.0, 10.0) }),
            row(3, LayoutResult::Extrapolated { figures: figures(0.1, 101.0) }),
            row(4, LayoutResult::Extrapolated { figures: figures(1.0, 10.0) }),
            row(5, LayoutResult::Extrapolated { figures: figures(0.2, 90.0) }),
        ];
        rank(&mut rows);
        assert_eq!(rows.iter().map(|row| row.candidate.data).collect::<Vec<_>>(), [5, 4, 2, 3, 1]);
    }

    #[test]
    fn rounding_does_not_decide_between_layouts() {
        let figures =
            |memory_seconds, communication_seconds| Figures { memory_seconds, communication_seconds, ..FIGURES };
        let mut rows = vec![
            row(1, LayoutResult::Extrapolated { figures: figures(2.0, 0.3) }),
            row(2, LayoutResult::Compiled { figures: figures(2.0 + 1e-15, 0.2) }),
        ];
        rank(&mut rows);
        assert_eq!(rows[0].candidate.data, 2);
    }

    #[test]
    fn a_step_takes_the_longest_of_its_parts() {
        assert_eq!((FIGURES.step_seconds(), FIGURES.sum_seconds()), (2.0, 2.5));
        assert_eq!(FIGURES.usd_per_million_tokens(1_000_000), Some(2.0));
    }
}
