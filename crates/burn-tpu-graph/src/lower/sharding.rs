//! Shardings in the dialect `sdy` (Shardy): the mesh, the attributes of arguments and results, and constraints.
//!
//! Every argument and every result has one, since the partitioner chooses freely for those that have none.

use super::Argument;
use super::printer::{Block, Statement, Value, list};
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

    /// Returns the attribute of a result.
    pub fn result(&self, position: usize) -> Option<String> {
        let placement = self.placement?;
        Some(attribute(placement.results.get(position)?, &placement.mesh))
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

/// Returns a value whose dim 0 is split over the batch axes; the partitioner chooses for the others.
pub(super) fn split_batch(block: &mut Block, value: Value, placement: &Placement) -> Value {
    let axes = list(placement.batch.iter().map(|&axis| format!("{:?}", placement.mesh.name(axis))));
    let others = ", {?}".repeat(value.ty.rank() - 1);
    let sharding = format!("#sdy.sharding<@mesh, [{{{axes}}}{others}]>");
    let ty = value.ty.clone();
    block.push(&Statement::new("sdy.sharding_constraint", [value]).attr("sharding", sharding), ty)
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

#[cfg(test)]
mod tests {
    use crate::op::DotAttrs;
    use crate::{Builder, DType, Graph, Mesh, Op, Placement, Program, Sharding, TensorType, lower};

    /// A batch that a loop multiplies with a weight, and another one that multiplies what came out.
    #[test]
    fn batches_that_loops_carry_are_split() {
        let mut graph = Graph::new();
        let types = [TensorType::new(DType::F32, [8, 4]), TensorType::new(DType::F32, [4, 4])];
        let [weight, mut x] = [1, 0]
            .map(|index: u32| graph.add(Op::Parameter { index, ty: types[index as usize].clone() }, &[]).unwrap());
        for _ in 0..2 {
            let body = |graph: &mut Graph, _, [weight, x]: [_; 2]| {
                Ok([weight, graph.dot_general(x, weight, DotAttrs::new([&[], &[]], [&[1], &[0]], DType::F32))?])
            };
            [_, x] = graph.for_loop(3, [weight, x], body).unwrap();
        }
        let program = Program::extract(&graph, &[x]).unwrap();
        let mesh = Mesh::new(&[("data".to_owned(), 2), ("tensor".to_owned(), 2)]).unwrap();
        let batch = Sharding::first_dim(2, &[0]);
        let parameters = vec![batch.clone(), Sharding::first_dim(2, &[1])];
        let placed = program.placed(Placement { mesh, batch: vec![0], parameters, results: vec![batch] });
        let text = lower(&placed).unwrap().text;
        let constraints: Vec<_> = text.lines().filter(|line| line.contains("sdy.sharding_constraint")).collect();
        assert_eq!(constraints.len(), 2, "{text}");
        for constraint in constraints {
            assert!(
                constraint.contains(r#"[{"data"}, {?}]"#) && constraint.contains("tensor<8x4xf32>"),
                "{constraint}"
            );
        }
    }
}
