//! Whether a training step fits a TPU, how fast it can be there and what it costs, without a TPU.
//!
//! The step is recorded once, as it would be on any device, and nothing of it runs. libtpu then compiles its programs ahead
//! of time for each slice. Owns: the closures over a [`TpuDevice`]; everything else is `burn_tpu_runtime::fit`.
//!
//! ```no_run
//! use burn::nn::LinearConfig;
//! use burn::tensor::{Distribution, Tensor};
//! use burn_tpu::{Tpu, fit::Fit};
//!
//! let report = Fit::new()?.samples(32).run(
//!     // Builds what lives from step to step: a model, an optimizer.
//!     |device| (LinearConfig::new(512, 10).init::<Tpu>(device), None),
//!     // One step: takes it, and gives it back with what would be read.
//!     |(model, _), device| {
//!         let x = Tensor::<Tpu, 2>::random([32, 512], Distribution::Default, device);
//!         let y = model.forward(x);
//!         (model, Some(y))
//!     },
//! )?;
//! println!("{report}");
//! # Ok::<(), burn_tpu::TpuError>(())
//! ```

use crate::{Result, Topology, TpuDevice};
use burn_tpu_runtime::{Device, fit};

pub use burn_tpu_runtime::fit::{
    Buffer, BufferKind, FitReport, Memory, MxuAdvice, Price, SliceFit, Spec, Specs, Speed, StepReport, Verdict,
};

/// A question: on which slices, with which prices, for how many samples or tokens a step.
#[derive(Clone, Debug)]
pub struct Fit(fit::Fit);

impl Fit {
    /// One chip of every generation, at the built-in prices.
    ///
    /// # Errors
    /// As [`Specs::builtin`] and [`TpuOptions::with_environment`](crate::TpuOptions::with_environment).
    pub fn new() -> Result<Self> {
        fit::Fit::new().map(Self)
    }

    /// The slices to compile for, instead of one chip of every generation.
    pub fn slices(self, slices: impl IntoIterator<Item = Topology>) -> Self {
        Self(self.0.slices(slices))
    }

    /// Samples that one device takes in a step: with them, the price of a million is known.
    pub fn samples(self, samples: u64) -> Self {
        Self(self.0.samples(samples))
    }

    /// Tokens that one device takes in a step: with them, the price of a million is known.
    pub fn tokens(self, tokens: u64) -> Self {
        Self(self.0.tokens(tokens))
    }

    /// Other figures and prices than the built-in ones.
    pub fn specs(self, specs: Specs) -> Self {
        Self(self.0.specs(specs))
    }

    /// An XLA option for every compile, by its `xla_…` name.
    pub fn compiler_flag(self, name: impl Into<String>, value: impl Into<String>) -> Self {
        Self(self.0.compiler_flag(name, value))
    }

    /// Records a training or inference step and compiles it for each slice, as many at a time as there are processors.
    ///
    /// `build` makes what lives from step to step; `step` takes it and returns it, with everything else that the caller
    /// would read (a loss, predictions): what is not returned is not computed. Steps are repeated until two in a row record
    /// the same programs, since the first ones still draw weights and make an optimizer's state. A `mark_step` after each
    /// step is implied. Values cannot be read: on this device there are none.
    ///
    /// A slice that has no room for the step, or whose compile fails, is an entry of the report.
    ///
    /// # Errors
    /// [`TpuError::Step`](crate::TpuError::Step) when the step computes nothing.
    pub fn run<S>(
        &self,
        build: impl FnOnce(&TpuDevice) -> S,
        mut step: impl FnMut(S, &TpuDevice) -> S,
    ) -> Result<FitReport> {
        let named = |device: &Device| TpuDevice::from(*device);
        self.0.run(|device| build(&named(device)), |state, device| step(state, &named(device)))
    }
}
