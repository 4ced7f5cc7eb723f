//! Tells, without a TPU, whether a training step fits one, how fast it can be there and what it costs.
//!
//! The step is recorded as on any device, but not run. libtpu then compiles its programs ahead of time for each slice.
//! Owns: the closures over a [`TpuDevice`]; everything else is `burn_tpu_runtime::fit`.

use crate::{Mesh, Result, Topology, TpuDevice};
use burn_tpu_runtime::{Device, fit};

pub use burn_tpu_runtime::fit::search;
pub use burn_tpu_runtime::fit::{
    Against, Buffer, BufferKind, Collective, Costly, FitReport, Memory, MxuAdvice, NamedValues, Price, Ratios,
    SliceFit, Spec, Specs, Speed, StepReport, Verdict,
};

/// A step's analysis: for which slices, with which prices, and how many samples or tokens a step takes.
#[derive(Clone, Debug)]
pub struct Fit(fit::Fit);

impl Fit {
    /// Returns an analysis for one chip of every generation, with the built-in prices.
    ///
    /// # Errors
    /// As [`Specs::builtin`] and [`TpuOptions::with_environment`](crate::TpuOptions::with_environment).
    pub fn new() -> Result<Self> {
        fit::Fit::new().map(Self)
    }

    /// Sets the slices to compile for, instead of one chip of every generation.
    pub fn slices(self, slices: impl IntoIterator<Item = Topology>) -> Self {
        Self(self.0.slices(slices))
    }

    /// Sets the number of samples that one device processes in a step. The report then has the price of a million.
    pub fn samples(self, samples: u64) -> Self {
        Self(self.0.samples(samples))
    }

    /// Sets the number of tokens that one device processes in a step. The report then has the price of a million.
    pub fn tokens(self, tokens: u64) -> Self {
        Self(self.0.tokens(tokens))
    }

    /// Splits the step over all devices of each slice, as a mesh with these axes: `Mesh::new().axis("data", 4).axis("model",
    /// 4)` on `v5e:4x4`. The device of the step is then a mesh: [`place`](crate::place) and [`shard`](crate::shard) apply,
    /// and samples and tokens are those of the whole step. Without a mesh, each device runs a copy of the step.
    pub fn mesh(self, mesh: Mesh) -> Self {
        Self(self.0.mesh(mesh))
    }

    /// Sets hardware figures and prices, instead of the built-in ones.
    pub fn specs(self, specs: Specs) -> Self {
        Self(self.0.specs(specs))
    }

    /// Sets an XLA option for every compile, by its `xla_…` name.
    pub fn compiler_flag(self, name: impl Into<String>, value: impl Into<String>) -> Self {
        Self(self.0.compiler_flag(name, value))
    }

    /// Records a training or inference step and compiles it for each slice, one slice per processor at a time.
    ///
    /// `build` makes what lives from step to step. `step` takes that and returns it, with everything else that the caller
    /// would read (a loss, predictions): what is not returned is not computed. The step is repeated until two in a row
    /// record the same programs, since the first steps also initialise the weights and the optimizer's state. A `mark_step`
    /// follows each step. Values cannot be read, since the device executes nothing.
    ///
    /// A slice without room for the step, or whose compile fails, is an entry of the report and not an error.
    ///
    /// # Errors
    /// [`TpuError::Step`](crate::TpuError::Step) if the step computes nothing.
    pub fn run<S>(
        &self,
        build: impl FnOnce(&TpuDevice) -> S,
        mut step: impl FnMut(S, &TpuDevice) -> S,
    ) -> Result<FitReport> {
        let wrap = |device: &Device| TpuDevice::from(*device);
        self.0.run(|device| build(&wrap(device)), |state, device| step(state, &wrap(device)))
    }
}
