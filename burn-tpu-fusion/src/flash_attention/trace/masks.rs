//! What is added to scores, and what is selected instead of them.

use super::super::lengths;
use super::super::positions::{self, Steps};
use super::{HIDDEN, Kind, Masking, Scores, Trace};
use burn_tpu_graph::{Node, NodeId};

impl Trace<'_> {
    /// Returns the masking with a value added to the scores.
    pub(super) fn added(&self, masking: Masking, other: NodeId, roles: &[Option<usize>]) -> Option<Masking> {
        let Some(steps) = positions::steps(self.graph, other, self.places(roles)) else {
            // A bias in the order of the scores' dims. After a mask, it may not show again what is hidden.
            let is_in_order = roles.iter().copied().eq((0..self.rank + 2).map(Some));
            let is_first = masking == Masking::default() && is_in_order;
            return is_first.then_some(Masking { bias: Some(other), ..masking });
        };
        let [first, last] = self.distances();
        let is_mask = steps.all(first, last, |value| value == 0.0 || value <= HIDDEN);
        is_mask.then(|| masking.hiding(&steps.test(|value| value != 0.0)))
    }

    /// Returns a value where a condition holds and another elsewhere, of which one is of the scores.
    pub(super) fn select(&mut self, node: &Node, roles: &[Option<usize>]) -> Option<Kind> {
        let &[test, yes, no] = &node.operands[..] else { return None };
        let Some(steps) = positions::steps(self.graph, test, self.places(roles)) else {
            return self.padded(node, roles);
        };
        let kind = |id: NodeId| self.values.get(&id).map(|value| value.kind.clone());
        let (hidden, kind, fill) = match (kind(yes), kind(no)) {
            (None, Some(kind)) => (steps, kind, yes),
            (Some(kind), None) => (steps.test(|value| value == 0.0), kind, no),
            _ => return None,
        };
        let fill = self.factor(fill)?.known()?;
        match kind {
            Kind::Scores(scores) if fill <= HIDDEN && scores.cap != Some(None) => {
                let masking = scores.masking.hiding(&hidden);
                Some(Kind::Scores(Scores { masking, ..scores }))
            }
            // The gradient of a mask: what is hidden is zero already.
            Kind::Polynomial(value) if fill == 0.0 && value.is_hidden() => {
                let [first, last] = self.distances();
                let known = self.scores.as_ref()?.masking.hidden.as_ref()?;
                // Nothing is hidden that the scores do not hide.
                let shown = known.test(|value| value == 0.0);
                (!overlaps(&hidden, &shown, first, last)).then_some(Kind::Polynomial(value))
            }
            _ => None,
        }
    }

    /// Returns scores, or their gradient, without the keys after each sequence's length.
    pub(super) fn padded(&mut self, node: &Node, roles: &[Option<usize>]) -> Option<Kind> {
        let &[test, yes, no] = &node.operands[..] else { return None };
        let kind = |id: NodeId| self.values.get(&id).map(|value| value.kind.clone());
        let (shows, kind, fill) = match (kind(yes), kind(no)) {
            (None, Some(kind)) => (false, kind, yes),
            (Some(kind), None) => (true, kind, no),
            _ => return None,
        };
        let fill = self.factor(fill)?.known()?;
        let [query, key] = self.places(roles);
        let batch = roles.iter().position(|&role| role == Some(0));
        let is_of_heads = self.rank == 2;
        let lengths = lengths::of_mask(self.graph, test, [batch, query, key], self.dims[0], shows);
        let lengths = lengths.filter(|_| is_of_heads)?;
        match kind {
            Kind::Scores(scores) if fill <= HIDDEN && scores.cap != Some(None) => {
                let is_first = scores.masking.lengths.is_none_or(|known| known.is_same(self.graph, &lengths));
                let masking = Masking { lengths: Some(lengths), ..scores.masking };
                is_first.then_some(Kind::Scores(Scores { masking, ..scores }))
            }
            Kind::Polynomial(value) if fill == 0.0 && value.is_hidden() => {
                let known = self.scores.as_ref()?.masking.lengths?;
                known.is_same(self.graph, &lengths).then_some(Kind::Polynomial(value))
            }
            _ => None,
        }
    }

    /// Returns the smallest and the largest distance of a key from a query.
    pub(super) fn distances(&self) -> [i64; 2] {
        [1 - self.dims[self.query()] as i64, self.dims[self.key()] as i64 - 1]
    }

    /// Returns the dims of queries and keys in a value with these roles.
    pub(super) fn places(&self, roles: &[Option<usize>]) -> positions::Dims2 {
        [self.query(), self.key()].map(|role| roles.iter().position(|&of| of == Some(role)))
    }
}

/// Returns whether both are not 0 at one of these distances.
fn overlaps(a: &Steps, b: &Steps, first: i64, last: i64) -> bool {
    let both = a.test(|value| value == 0.0).or(&b.test(|value| value == 0.0));
    !both.all(first, last, |value| value != 0.0)
}

impl Masking {
    /// Returns the masking that also hides the distances at which the steps are not 0.
    fn hiding(&self, steps: &Steps) -> Self {
        let steps = steps.test(|value| value != 0.0);
        let hidden = self.hidden.as_ref().map_or_else(|| steps.clone(), |hidden| hidden.or(&steps));
        Self { hidden: Some(hidden), ..self.clone() }
    }
}
