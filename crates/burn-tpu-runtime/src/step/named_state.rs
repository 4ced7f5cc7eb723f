//! The state of a compiled step by name, to save and to load it.
//!
//! Owns the names. Members of a pack have tensors of their own here, so that names do not depend on what is packed.

use super::TrainingStep;
use super::packs::{Layout, Pack, Place};
use super::tensors::TensorList;
use crate::Tensor;
use std::collections::HashMap;

/// What follows the numbers that an optimizer's parameters share, if there is a loss scale.
const LOSS_SCALE: [&str; 2] = ["loss_scale", "loss_scale_steps"];

/// The owner of some tensors of the state: a parameter, or a pack of them.
enum Owner<'l> {
    Parameter(&'l str),
    Pack(&'l Pack),
}

impl Layout {
    /// Returns the names of what precedes the state of parameters.
    fn shared(&self) -> impl Iterator<Item = &'static str> + use<> {
        let of_scale = if self.has_loss_scale { &LOSS_SCALE[..] } else { &[] };
        self.shared.iter().map(|(name, _)| *name).chain(of_scale.iter().copied())
    }

    /// Returns the owners of the state, in its order, each with the names of what is kept of it.
    fn owners<'l>(
        &'l self,
        parameters: &'l TensorList,
    ) -> impl Iterator<Item = (Owner<'l>, impl Iterator<Item = &'static str> + use<>)> {
        let own = self.places.iter().filter_map(|place| match place {
            Place::Own { path, treatment } => Some((path, *treatment)),
            Place::Packed(_) => None,
        });
        let own = own.zip(&parameters.0).filter_map(|((path, treatment), tensor)| {
            Some((Owner::Parameter(path.as_str()), treatment?.fields(tensor)))
        });
        let packs = self.packs.iter().zip(self.packs_of(parameters));
        own.chain(packs.map(|(pack, tensor)| (Owner::Pack(pack), pack.treatment.fields(tensor))))
    }
}

impl<D, R> TrainingStep<D, R> {
    /// Returns the optimizer's state by name: of AdamW `beta_1_power`, `beta_2_power`, with loss scaling `loss_scale`
    /// and `loss_scale_steps`, and of each parameter that is trained `<path>.moment_1`, `<path>.moment_2` and, if it
    /// has 16 bits, `<path>.master`. While a tensor is held, the next step cannot reuse its memory.
    pub fn optimizer_state(&self) -> Vec<(String, Tensor)> {
        let (parameters, state) = &self.state;
        let mut tensors = state.0.iter();
        let shared = self.layout.shared();
        let mut named: Vec<_> = shared.map(str::to_owned).zip(tensors.by_ref().cloned()).collect();
        for (owner, fields) in self.layout.owners(parameters) {
            for (field, tensor) in fields.zip(&mut tensors) {
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
        let mut state = TensorList(take(self.layout.shared().count()));
        for (owner, fields) in self.layout.owners(&self.state.0) {
            for _ in fields {
                match owner {
                    Owner::Parameter(_) => state.0.extend(take(1)),
                    Owner::Pack(pack) => state.0.push(pack.pack(take(pack.paths().count()))),
                }
            }
        }
        self.state = (self.layout.pack(parameters), state);
    }
}
