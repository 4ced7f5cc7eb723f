//! The state of a compiled step by name, to save and to load it.
//!
//! Owns the names. Members of a pack have tensors of their own here, so that names do not depend on what is packed.

use super::TrainingStep;
use super::packs::{Layout, Pack, Place};
use super::tensors::TensorList;
use crate::Tensor;
use std::collections::HashMap;

/// What the optimizer keeps of a parameter, in the order of its state; the last one of 16-bit parameters alone.
const FIELDS: [&str; 3] = ["moment_1", "moment_2", "master"];

/// What precedes the state of parameters: the powers of the betas; the last two with a loss scale alone.
const SHARED: [&str; 4] = ["beta_1_power", "beta_2_power", "loss_scale", "loss_scale_steps"];

/// The owner of some tensors of the state: a parameter, or a pack of them.
enum Owner<'l> {
    Parameter(&'l str),
    Pack(&'l Pack),
}

impl Layout {
    /// Returns the names of what precedes the state of parameters.
    fn shared(&self) -> impl ExactSizeIterator<Item = &'static str> + use<> {
        SHARED.into_iter().take(if self.has_loss_scale { 4 } else { 2 })
    }

    /// Returns the owners of the state, in its order, each with its tensor among `parameters`.
    fn owners<'l>(&'l self, parameters: &'l TensorList) -> impl Iterator<Item = (Owner<'l>, &'l Tensor)> {
        let own = self.places.iter().filter_map(|place| match place {
            Place::Own { path, decay } => Some((path, decay)),
            Place::Packed(_) => None,
        });
        let own = own.zip(&parameters.0).filter(|((_, decay), _)| decay.is_some());
        let own = own.map(|((path, _), tensor)| (Owner::Parameter(path.as_str()), tensor));
        own.chain(self.packs.iter().map(Owner::Pack).zip(self.packs_of(parameters)))
    }
}

impl<D, R> TrainingStep<D, R> {
    /// Returns the optimizer's state by name: `beta_1_power`, `beta_2_power`, with loss scaling `loss_scale` and
    /// `loss_scale_steps`, and of each parameter that is trained `<path>.moment_1`, `<path>.moment_2` and, if it has 16
    /// bits, `<path>.master`. While a tensor is held, the next step
    /// cannot reuse its memory.
    pub fn optimizer_state(&self) -> Vec<(String, Tensor)> {
        let (parameters, state) = &self.state;
        let mut tensors = state.0.iter();
        let shared = self.layout.shared();
        let mut named: Vec<_> = shared.map(str::to_owned).zip(tensors.by_ref().cloned()).collect();
        for (owner, parameter) in self.layout.owners(parameters) {
            for (field, tensor) in fields_of(parameter).zip(&mut tensors) {
                let name = |path: &str| format!("{path}.{field}");
                match owner {
                    Owner::Parameter(path) => named.push((name(path), tensor.clone())),
                    Owner::Pack(pack) => named.extend(pack.paths().map(name).zip(pack.unpack(tensor))),
                }
            }
        }
        named
    }

    /// Goes on from parameters, in the order of [`TrainingStep::parameters`], and an optimizer's state, by the names of
    /// [`TrainingStep::optimizer_state`]; state without a name here stays as it is. Shapes and dtypes are those of the
    /// step's own.
    pub fn load(&mut self, parameters: Vec<Tensor>, state: Vec<(String, Tensor)>) {
        let mut given: HashMap<String, Tensor> = state.into_iter().collect();
        let mut now = self.optimizer_state().into_iter();
        let mut take = |count: usize| -> Vec<Tensor> {
            now.by_ref().take(count).map(|(name, tensor)| given.remove(&name).unwrap_or(tensor)).collect()
        };
        let mut state = TensorList(take(self.layout.shared().len()));
        for (owner, parameter) in self.layout.owners(&self.state.0) {
            for _ in fields_of(parameter) {
                match owner {
                    Owner::Parameter(_) => state.0.extend(take(1)),
                    Owner::Pack(pack) => state.0.push(pack.pack(take(pack.paths().count()))),
                }
            }
        }
        self.state = (self.layout.pack(parameters), state);
    }
}

/// Returns what the optimizer keeps of a parameter.
fn fields_of(parameter: &Tensor) -> impl Iterator<Item = &'static str> + use<> {
    let is_narrow = parameter.element().size_bytes() < 4;
    FIELDS.into_iter().take(if is_narrow { 3 } else { 2 })
}
