//! Rebuilding a graph: nodes of an old graph are added to a new one, each with the new ids of its operands.
//!
//! Owns: the new id of each old node. May not know: which nodes are copied, replaced or left out. Rewrites, the division of
//! a program into several, and the canonical form are built on it.

use crate::error::{GraphError, Result};
use crate::{Builder, Graph, Node, NodeId, Op, Operands, Program};

/// The new id of each old node that has one.
#[derive(Clone, Debug)]
pub struct Renaming(Vec<Option<NodeId>>);

impl Renaming {
    /// Creates the renaming of a graph of `len` nodes, none of which has a new id.
    pub fn new(len: usize) -> Self {
        Self(vec![None; len])
    }

    /// Returns the new id of an old node, if it has one.
    pub fn get(&self, old: NodeId) -> Option<NodeId> {
        self.0.get(old.index()).copied().flatten()
    }

    /// Returns the new id of an old node.
    ///
    /// # Errors
    /// If it has none, which is a bug of the caller.
    pub fn id(&self, old: NodeId) -> Result<NodeId> {
        self.get(old).ok_or_else(|| GraphError {
            op: "graph.rebuild",
            operands: old.to_string(),
            rule: "has no new id: it was not added".into(),
        })
    }

    /// Returns the new ids of several old nodes.
    ///
    /// # Errors
    /// If one has none, which is a bug of the caller.
    pub fn ids(&self, old: &[NodeId]) -> Result<Operands> {
        old.iter().map(|&id| self.id(id)).collect()
    }

    /// Sets the new id of an old node.
    pub fn set(&mut self, old: NodeId, new: NodeId) {
        self.0[old.index()] = Some(new);
    }
}

/// A graph that is built from the nodes of another one.
pub struct Rebuild<'g> {
    old: &'g Graph,
    /// The new graph. What is added to it has the label of the last old node, see [`Rebuild::label`].
    pub graph: Graph,
    /// The new ids of the old nodes.
    pub renamed: Renaming,
}

impl<'g> Rebuild<'g> {
    /// Creates an empty graph for nodes of `old`.
    pub fn new(old: &'g Graph) -> Self {
        Self::with_capacity(old, 0)
    }

    /// Creates an empty graph with room for this many nodes.
    pub(crate) fn with_capacity(old: &'g Graph, nodes: usize) -> Self {
        Self { old, graph: Graph::with_capacity(nodes), renamed: Renaming::new(old.len()) }
    }

    /// Returns the old graph.
    pub fn old(&self) -> &'g Graph {
        self.old
    }

    /// Gives the nodes that are added from now on the label of an old one.
    pub fn label(&mut self, old: NodeId) {
        self.graph.set_label(self.old.label(old));
    }

    /// Adds a node in the place of an old one, with its label, and returns the new id.
    ///
    /// # Errors
    /// If the node breaks its op's rule.
    pub fn add(&mut self, old: NodeId, op: Op, operands: &[NodeId]) -> Result<NodeId> {
        self.label(old);
        let new = self.graph.add(op, operands)?;
        self.renamed.set(old, new);
        Ok(new)
    }

    /// Adds a copy of an old node, whose operands have new ids, and returns the new id.
    ///
    /// # Errors
    /// If an operand has no new id, or one of another type that the op refuses.
    pub fn copy(&mut self, old: NodeId) -> Result<NodeId> {
        let node = self.old.node(old);
        let operands = self.renamed.ids(&node.operands)?;
        self.add(old, node.op.clone(), &operands)
    }

    /// Adds a copy of an old node whose operands have the same types as before, with an op of the same types.
    pub(crate) fn copy_as(&mut self, old: NodeId, op: Op) -> Result<()> {
        let node = self.old.node(old);
        let operands = self.renamed.ids(&node.operands)?;
        let copy = Node { op, operands, ty: node.ty.clone(), more: node.more.clone() };
        self.renamed.set(old, self.graph.push(copy, self.old.label(old)));
        Ok(())
    }

    /// Returns the program of the new graph that replaces `program`, of the old one: with its outputs and its placement.
    ///
    /// # Errors
    /// If an output has no new id.
    pub fn finish(&self, program: &Program) -> Result<Program> {
        let rebuilt = Program::extract(&self.graph, &self.renamed.ids(program.outputs())?)?;
        Ok(match program.placement() {
            Some(placement) => rebuilt.placed(placement.clone()),
            None => rebuilt,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::{BinaryOp, UnaryOp};
    use crate::{DType, TensorType};

    #[test]
    fn a_node_is_copied_with_the_new_ids_of_its_operands() {
        let mut old = Graph::new();
        let x = old.add(Op::Parameter { index: 0, ty: TensorType::new(DType::F32, [2]) }, &[]).unwrap();
        old.set_label("float_exp");
        let exp = old.unary(UnaryOp::Exp, x).unwrap();
        let sum = old.binary(BinaryOp::Add, exp, x).unwrap();
        let mut new = Rebuild::new(&old);
        assert!(new.copy(exp).unwrap_err().to_string().contains("%0"), "its operand was not added");
        new.add(x, Op::Parameter { index: 7, ty: old.ty(x).clone() }, &[]).unwrap();
        let negated = new.graph.unary(UnaryOp::Neg, new.renamed.id(x).unwrap()).unwrap();
        new.renamed.set(exp, negated);
        let copy = new.copy(sum).unwrap();
        assert_eq!(new.graph.node(copy).operands[..], [negated, new.renamed.id(x).unwrap()]);
        assert_eq!(new.graph.label(copy), "float_exp");
        let program = Program::extract(&old, &[sum]).unwrap();
        let rebuilt = new.finish(&program).unwrap();
        assert_eq!(rebuilt.parameters().map(|(index, _)| index).collect::<Vec<_>>(), [7]);
    }
}
