//! The products of attention: its result, the gradient of its probabilities, and the gradients that it returns.

use super::super::matrix::{Matrix, Side, sides};
use super::super::polynomial::{Factor, Polynomial, Term};
use super::{Kind, ResultProduct, Trace, Value};
use burn_tpu_graph::op::DotAttrs;
use burn_tpu_graph::{Node, NodeId, Op};

impl Trace<'_> {
    /// Returns the value of a product of the probabilities, or of their gradient, with another matrix.
    pub(super) fn product(&mut self, id: NodeId, node: &Node, attrs: &DotAttrs) -> Option<Value> {
        let [left, right] = sides(self.graph, attrs, &node.operands)?;
        let known = [0, 1].map(|side| self.values.get(&node.operands[side]).cloned());
        let (value, own, other, operand, is_left) = match known {
            [Some(value), None] => (value, left, right, node.operands[1], true),
            [None, Some(value)] => (value, right, left, node.operands[0], false),
            _ => return None,
        };
        let Kind::Polynomial(polynomial) = value.kind else { return None };
        // The batch's dims of the scores, in the order of the product's.
        let roles = own.batch.iter().zip(0..).map(|(&dim, place)| value.roles[dim].unwrap_or(place));
        let roles: Vec<usize> = roles.collect();
        let batch: Option<Vec<usize>> =
            (0..self.rank).map(|role| Some(other.batch[roles.iter().position(|&of| of == role)?])).collect();
        let matrix = Matrix::new(self.graph, operand, batch?, [other.contracted, other.free]);
        let contracts_keys = value.roles[own.contracted]? == self.key();
        let (rows, free) = (if contracts_keys { self.query() } else { self.key() }, value.roles[own.free]?);
        if free != rows
            || roles.len() != self.rank
            || !(contracts_keys || value.roles[own.contracted] == Some(self.query()))
        {
            return None;
        }
        let pair = if is_left { [self.rank, self.rank + 1] } else { [self.rank + 1, self.rank] };
        let order: Vec<usize> = roles.into_iter().chain(pair).collect();
        let found = |factor: Factor| ResultProduct { node: id, order: order.clone(), factor };
        if let Some(factor) = polynomial.as_probabilities(self.changes()) {
            if contracts_keys {
                let is_other = |known: &Matrix| !known.is_same(self.graph, &matrix);
                if self.values_matrix.as_ref().is_some_and(is_other) {
                    return None;
                }
                self.values_matrix.get_or_insert(matrix);
                self.results.push(found(factor));
            } else {
                self.set_gradient(matrix)?;
                self.of_values.push(found(factor));
            }
        } else {
            let factor = polynomial.as_gradient(self.changes())?;
            let (expected, list) = match contracts_keys {
                true => (&self.keys, &mut self.of_queries),
                false => (&self.queries, &mut self.of_keys),
            };
            expected.is_same(self.graph, &matrix).then(|| list.push(found(factor)))?;
        }
        Some(Value { kind: Kind::Result, roles: vec![None; node.ty.rank()] })
    }

    /// Sets the gradient of the result; `None` if an earlier product had another one.
    pub(super) fn set_gradient(&mut self, matrix: Matrix) -> Option<()> {
        match &self.of_result {
            Some(known) => known.is_same(self.graph, &matrix).then_some(()),
            None => {
                self.of_result = Some(matrix);
                Some(())
            }
        }
    }

    /// Finds the products of a gradient with the values, after a result of attention was found, and returns them.
    pub(super) fn gradients_of_probabilities(&mut self, id: NodeId, readers: &[Vec<NodeId>]) -> Option<Vec<NodeId>> {
        let is_first = self.results.len() == 1 && self.results[0].node == id;
        let Some(values) = self.values_matrix.clone().filter(|_| is_first) else { return Some(Vec::new()) };
        let mut found = Vec::new();
        for (matrix, side, product) in self.products_with(values.value, readers) {
            let node = self.graph.node(product);
            let Op::DotGeneral(attrs) = &node.op else { continue };
            let Some([left, right]) = sides(self.graph, attrs, &node.operands) else { continue };
            let (own, other): (Side, Side) = if side == 0 { (left, right) } else { (right, left) };
            let operand = node.operands[1 - side];
            // The batch of the values in the order of the scores'.
            let batch = self.batch_of(&values, matrix, &own);
            let Some(batch) = batch.filter(|_| !self.values.contains_key(&operand)) else { continue };
            let own_matrix = Matrix::new(
                self.graph,
                matrix,
                batch.iter().map(|&at| own.batch[at]).collect(),
                [own.free, own.contracted],
            );
            if !own_matrix.is_same(self.graph, &values) {
                continue;
            }
            let of_result = Matrix::new(
                self.graph,
                operand,
                batch.iter().map(|&at| other.batch[at]).collect(),
                [other.free, other.contracted],
            );
            let has_rows = of_result.sizes(self.graph).1[0] == self.dims[self.query()];
            if !has_rows {
                continue;
            }
            self.set_gradient(of_result)?;
            let mut roles: Vec<Option<usize>> = vec![None; self.rank];
            batch.iter().enumerate().for_each(|(role, &at)| roles[at] = Some(role));
            let pair = if side == 0 { [self.key(), self.query()] } else { [self.query(), self.key()] };
            roles.extend(pair.map(Some));
            let g = Polynomial::term(Term { g: 1, ..Term::default() });
            self.values.insert(product, Value { kind: Kind::Polynomial(g), roles });
            found.push(product);
        }
        Some(found)
    }

    /// Returns, for each dim of the batch, its place in a product's side.
    pub(super) fn batch_of(&self, values: &Matrix, operand: NodeId, own: &Side) -> Option<Vec<usize>> {
        let each = own
            .batch
            .iter()
            .map(|&dim| Matrix::new(self.graph, operand, vec![dim], [own.free, own.contracted]).batch[0]);
        let each: Vec<usize> = each.collect();
        values.batch.iter().map(|dim| each.iter().position(|of| of == dim)).collect()
    }

    /// Returns the products that read a value, or a transpose of it: the operand, its side, and the product.
    pub(super) fn products_with(&self, value: NodeId, readers: &[Vec<NodeId>]) -> Vec<(NodeId, usize, NodeId)> {
        let mut products = Vec::new();
        let mut waiting = vec![value];
        while let Some(operand) = waiting.pop() {
            for &reader in &readers[operand.index()] {
                let node = self.graph.node(reader);
                match &node.op {
                    Op::Transpose { .. } => waiting.push(reader),
                    Op::DotGeneral(_) if !self.values.contains_key(&reader) => {
                        let side = usize::from(node.operands[0] != operand);
                        products.push((operand, side, reader));
                    }
                    _ => {}
                }
            }
        }
        products.sort_unstable_by_key(|(_, _, product)| *product);
        products
    }
}
