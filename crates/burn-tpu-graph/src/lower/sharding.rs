//! Shardings in the dialect `sdy` (Shardy): the mesh, the attributes of arguments and results, and constraints.
//!
//! Every argument and every result has one, since the partitioner chooses freely for those that have none.

use super::Argument;
use super::printer::{Statement, Value, list};
use crate::{Mesh, Placement, Program, Sharding};

/// The attributes of a program's arguments and results; none for a program of one device.
pub(super) struct Shardings<'p> {
    placement: Option<&'p Placement>,
    /// Those of the arguments.
    arguments: Vec<Sharding>,
}

impl<'p> Shardings<'p> {
    pub fn of(program: &'p Program, arguments: &[Argument]) -> Self {
        let placement = program.placement().map(|placement| &**placement);
        let sharding = |placement: &Placement, argument: &Argument| match argument {
            Argument::Parameter { index, ty, .. } => {
                placement.parameter(*index).cloned().unwrap_or_else(|| Sharding::replicated(ty.rank()))
            }
            Argument::Slots { ty, .. } => Sharding::replicated(ty.rank()),
        };
        let arguments = placement.into_iter().flat_map(|p| arguments.iter().map(move |argument| sharding(p, argument)));
        Self { placement, arguments: arguments.collect() }
    }

    /// Returns the declaration of the mesh.
    pub fn mesh(&self) -> String {
        self.placement.map_or_else(String::new, |placement| {
            let axes = placement.mesh.axes().iter().map(|(name, size)| format!("{name:?}={size}"));
            format!("  sdy.mesh @mesh = <[{}]>\n", list(axes))
        })
    }

    /// Returns the attribute of an argument.
    pub fn argument(&self, position: usize) -> Option<String> {
        Some(attribute(self.arguments.get(position)?, &self.placement?.mesh))
    }

    /// Returns the attributes of a result, in braces.
    pub fn result(&self, position: usize) -> String {
        let sharding = self.placement.and_then(|placement| Some((placement, placement.results.get(position)?)));
        sharding.map_or_else(String::new, |(p, sharding)| format!(" {{{}}}", attribute(sharding, &p.mesh)))
    }
}

fn attribute(sharding: &Sharding, mesh: &Mesh) -> String {
    format!("sdy.sharding = {}", value(sharding, mesh))
}

fn value(sharding: &Sharding, mesh: &Mesh) -> String {
    format!("#sdy.sharding<@mesh, {}>", sharding.named(mesh))
}

/// Returns the op that constrains a value's sharding.
pub(super) fn constraint(operands: Vec<Value>, sharding: &Sharding, mesh: Option<&Mesh>) -> Statement {
    let statement = Statement::new("sdy.sharding_constraint", operands);
    match mesh {
        Some(mesh) => statement.attr("sharding", value(sharding, mesh)),
        None => statement,
    }
}

/// Returns the attribute of several values.
pub(super) fn per_value(shardings: &[Sharding], mesh: &Mesh) -> String {
    let each = shardings.iter().map(|sharding| format!("<@mesh, {}>", sharding.named(mesh)));
    format!("#sdy.sharding_per_value<[{}]>", list(each))
}

/// Returns the attribute of an op that sees the parts of one device, whatever the axis.
pub(super) fn all_axes(mesh: &Mesh) -> String {
    format!("#sdy<manual_axes{{{}}}>", list(mesh.axes().iter().map(|(name, _)| format!("{name:?}"))))
}
