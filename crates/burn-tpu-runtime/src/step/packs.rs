//! Small parameters of a compiled step that share a tensor. A norm or a bias costs as much to pass and to update as a
//! matrix: in a pack, a step has fewer arguments, results and updates.
//!
//! Owns: where each parameter of a step is. May not know: what the optimizer does with a parameter.

use super::optimizer::Treatment;
use super::tensors::TensorList;
use crate::Tensor;
use crate::ops::movement::{self, Slice};
use crate::ops::{arithmetic, data};
use burn_tpu_graph::DType;

/// Parameters of at most this many elements are packed.
const MOST_PACKED_ELEMENTS: usize = 4096;

/// Where a parameter of a step is.
pub(super) enum Place {
    /// In a tensor of its own.
    Own {
        path: String,
        /// How it is updated; `None` if it is not trained.
        treatment: Option<Treatment>,
    },
    /// In this pack.
    Packed(usize),
}

/// Parameters in one tensor, one after another.
pub(super) struct Pack {
    dtype: DType,
    pub(super) treatment: Treatment,
    members: Vec<Member>,
}

struct Member {
    path: String,
    dims: Vec<usize>,
    start: usize,
}

/// The places of all parameters, in the order in which a model is visited. A list of a step's parameters has those with
/// tensors of their own first, then the packs.
#[derive(Default)]
pub(super) struct Layout {
    pub(super) places: Vec<Place>,
    pub(super) packs: Vec<Pack>,
    /// The names of the numbers with which the optimizer's state begins, and their first values.
    pub(super) shared: &'static [(&'static str, f32)],
    /// Whether the optimizer's state has a loss scale.
    pub(super) has_loss_scale: bool,
}

impl Layout {
    /// Adds a parameter that is trained to a pack and returns that, if the parameter is small enough.
    pub(super) fn try_pack(&mut self, path: &str, dims: &[usize], dtype: DType, treatment: Treatment) -> Option<usize> {
        if dims.iter().product::<usize>() > MOST_PACKED_ELEMENTS || !treatment.rule.is_elementwise() {
            return None;
        }
        // Elements have no layers.
        let treatment = Treatment { layers: 0, ..treatment };
        let known = self.packs.iter().position(|pack| pack.dtype == dtype && pack.treatment == treatment);
        let index = known.unwrap_or_else(|| {
            self.packs.push(Pack { dtype, treatment, members: Vec::new() });
            self.packs.len() - 1
        });
        let pack = &mut self.packs[index];
        let start = pack.len();
        pack.members.push(Member { path: path.to_owned(), dims: dims.to_vec(), start });
        self.places.push(Place::Packed(index));
        Some(index)
    }

    /// Returns the tensors of the packs, which are at the end of a step's parameters.
    pub(super) fn packs_of<'p>(&self, parameters: &'p TensorList) -> &'p [Tensor] {
        let own = parameters.0.len().saturating_sub(self.packs.len());
        &parameters.0[own..]
    }

    /// Returns each parameter of a model, in the order in which it is visited.
    pub(super) fn unpack(&self, parameters: &TensorList) -> Vec<Tensor> {
        let packs = self.packs_of(parameters);
        let unpacked = self.packs.iter().zip(packs).map(|(pack, values)| pack.unpack(values));
        let mut unpacked: Vec<_> = unpacked.map(Vec::into_iter).collect();
        let mut own = parameters.0.iter().cloned();
        let parameter = |place: &Place| match place {
            Place::Own { .. } => own.next(),
            Place::Packed(pack) => unpacked[*pack].next(),
        };
        self.places.iter().filter_map(parameter).collect()
    }
}

impl Layout {
    /// Returns the list of a step's parameters from each parameter of a model, in the order in which it is visited.
    pub(super) fn pack(&self, parameters: Vec<Tensor>) -> TensorList {
        let (mut own, mut packed) = (TensorList::default(), vec![Vec::new(); self.packs.len()]);
        for (place, value) in self.places.iter().zip(parameters) {
            match place {
                Place::Own { .. } => own.0.push(value),
                Place::Packed(pack) => packed[*pack].push(value),
            }
        }
        own.0.extend(self.packs.iter().zip(packed).map(|(pack, members)| pack.pack(members)));
        own
    }
}

impl Pack {
    fn len(&self) -> usize {
        self.members.last().map_or(0, |last| last.start + last.len())
    }

    /// Returns one tensor of the members' values.
    pub(super) fn pack(&self, members: Vec<Tensor>) -> Tensor {
        movement::cat(members.into_iter().map(flat).collect(), 0)
    }

    /// Returns the paths of the members.
    pub(super) fn paths(&self) -> impl Iterator<Item = &str> {
        self.members.iter().map(|member| member.path.as_str())
    }

    /// Returns the value of each member.
    pub(super) fn unpack(&self, values: &Tensor) -> Vec<Tensor> {
        let member = |member: &Member| movement::reshape(member.of(values), &member.dims);
        self.members.iter().map(member).collect()
    }

    /// Returns one tensor of the members' gradients, zeros where there is none; `None` without any gradient.
    pub(super) fn gradients(&self, gradients: &[Option<Tensor>]) -> Option<Tensor> {
        let device = gradients.iter().flatten().next()?.device();
        let zeros = |member: &Member| data::splat("optimizer", &[member.len()], self.dtype, 0, &device);
        let gradients = self.members.iter().zip(gradients);
        let gradients = gradients.map(|(member, gradient)| gradient.clone().unwrap_or_else(|| zeros(member)));
        Some(self.pack(gradients.collect()))
    }

    /// Returns the new values of members with a gradient, and the old values of the others.
    pub(super) fn changed(&self, old: &Tensor, new: Tensor, gradients: &[Option<Tensor>]) -> Tensor {
        if gradients.iter().all(Option::is_some) {
            return new;
        }
        // A choice, and no concatenation of values, can be written in place.
        let device = old.device();
        let stays = self.members.iter().zip(gradients).map(|(member, gradient)| {
            data::splat("optimizer", &[member.len()], DType::Bool, i64::from(gradient.is_none()), &device)
        });
        let stays = movement::cat(stays.collect(), 0);
        arithmetic::mask_where(new, stays, old.clone())
    }
}

impl Member {
    fn len(&self) -> usize {
        self.dims.iter().product()
    }

    /// Returns the part of a pack's tensor that is this member's, `[len]`.
    fn of(&self, pack: &Tensor) -> Tensor {
        movement::slice(pack.clone(), &[Slice { range: self.start..self.start + self.len(), step: 1 }])
    }
}

fn flat(tensor: Tensor) -> Tensor {
    let elements = tensor.dims().iter().product();
    movement::reshape(tensor, &[elements])
}
