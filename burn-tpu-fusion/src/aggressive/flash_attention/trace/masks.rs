//! What is added to scores, and what is selected instead of them.

use super::super::lengths;
use super::super::positions::{self, Steps};
use super::super::views::{Condition, Dims4, View};
use super::{Added, Effect, HIDDEN, Kind, Masking, Scores, Softcap, Trace};
use burn_tpu_graph::{Node, NodeId};

impl Trace<'_> {
    /// Returns the masking with a value added to the scores.
    pub(super) fn added(&self, masking: Masking, other: NodeId, roles: &[Option<usize>]) -> Option<Masking> {
        let steps = positions::steps(self.graph, other, self.places(roles));
        let [first, last] = self.distances();
        let is_mask = |steps: &Steps| steps.all(first, last, |value| value == 0.0 || value <= HIDDEN);
        match steps.filter(is_mask) {
            Some(steps) => Some(masking.hiding(&steps.test(|value| value != 0.0))),
            None => Some(masking.adding(View::new(self.graph, other, self.dims4(roles)?), Effect::Adds)),
        }
    }

    /// Returns the kind of a selection between a value of the scores and a number.
    pub(super) fn select(&mut self, node: &Node, roles: &[Option<usize>]) -> Option<Kind> {
        let &[test, yes, no] = &node.operands[..] else { return None };
        let kind = |id: NodeId| self.values.get(&id).map(|value| value.kind.clone());
        let is_rare = kind(test) == Some(Kind::SeesNothing);
        let (shows, kind, fill) = match (kind(yes), kind(no)) {
            // What rows have instead that see no key.
            (None, Some(kind @ (Kind::Largest | Kind::Polynomial(_)))) if is_rare => return Some(kind),
            (None, Some(kind)) => (false, kind, yes),
            (Some(kind), None) => (true, kind, no),
            _ => return None,
        };
        let fill = self.factor(fill)?.known()?;
        match kind {
            Kind::Scores(scores) if fill <= HIDDEN && scores.softcap != Softcap::Unscaled => {
                let masking = self.masked(scores.masking, test, roles, shows)?;
                Some(Kind::Scores(Scores { masking, ..scores }))
            }
            // The gradient of a mask: what is hidden is zero already.
            Kind::Polynomial(value) if fill == 0.0 && value.is_hidden() => {
                self.hides_no_more(test, roles, shows)?.then_some(Kind::Polynomial(value))
            }
            _ => None,
        }
    }

    /// Returns the masking of scores that a mask hides too.
    fn masked(&self, masking: Masking, mask: NodeId, roles: &[Option<usize>], shows: bool) -> Option<Masking> {
        if let Some(steps) = positions::steps(self.graph, mask, self.places(roles)) {
            return Some(masking.hiding(&hidden(&steps, shows)));
        }
        let conditions = Condition { value: mask, dims: self.dims4(roles)?, shows }.alone(self.graph);
        Some(conditions.into_iter().fold(masking, |masking, condition| {
            let Condition { value, dims, shows } = condition;
            if let Some(steps) = positions::steps(self.graph, value, [dims[2], dims[3]]) {
                return masking.hiding(&hidden(&steps, shows));
            }
            match self.lengths(condition) {
                Some(lengths) if masking.lengths.is_none_or(|known| known.is_same(self.graph, &lengths)) => {
                    Masking { lengths: Some(lengths), ..masking }
                }
                _ => masking.adding(View::new(self.graph, value, dims), Effect::of_mask(shows)),
            }
        }))
    }

    /// Returns whether a mask hides nothing that the scores do not hide.
    fn hides_no_more(&self, mask: NodeId, roles: &[Option<usize>], shows: bool) -> Option<bool> {
        let known = &self.scores.as_ref()?.masking;
        let [first, last] = self.distances();
        let shown = known.hidden.as_ref().map(|known| known.test(|value| value == 0.0));
        let is_within = |steps: &Steps, shows: bool| {
            shown.as_ref().is_some_and(|shown| !overlaps(&hidden(steps, shows), shown, first, last))
        };
        if let Some(steps) = positions::steps(self.graph, mask, self.places(roles)) {
            return Some(is_within(&steps, shows));
        }
        let conditions = Condition { value: mask, dims: self.dims4(roles)?, shows }.alone(self.graph);
        Some(conditions.into_iter().all(|condition| {
            let Condition { value, dims, shows } = condition;
            let is_known = || {
                let same = Added { view: View::new(self.graph, value, dims), effect: Effect::of_mask(shows) };
                let is_same = |added: &Added| added.effect == same.effect && added.view.is_same(self.graph, &same.view);
                known.added.iter().any(is_same)
            };
            match positions::steps(self.graph, value, [dims[2], dims[3]]) {
                Some(steps) => is_within(&steps, shows),
                None => {
                    let of_lengths = self.lengths(condition).zip(known.lengths);
                    of_lengths.is_some_and(|(found, known)| known.is_same(self.graph, &found)) || is_known()
                }
            }
        }))
    }

    /// Returns the lengths from which on a condition hides the keys.
    fn lengths(&self, Condition { value, dims, shows }: Condition) -> Option<lengths::Lengths> {
        let is_of_heads = self.rank == 2;
        let found = lengths::of_mask(self.graph, value, [dims[0], dims[2], dims[3]], self.dims[0], shows);
        found.filter(|_| is_of_heads)
    }

    /// Returns the dims of the batch, the heads, the queries and the keys in a value with these roles.
    fn dims4(&self, roles: &[Option<usize>]) -> Option<Dims4> {
        let first = 2usize.checked_sub(self.rank)?;
        let place = |role: usize| roles.iter().position(|&of| of == Some(role));
        Some(std::array::from_fn(|dim| dim.checked_sub(first).and_then(place)))
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

/// Returns 1 for the distances that a mask with these numbers hides.
fn hidden(steps: &Steps, shows: bool) -> Steps {
    steps.test(|value| (value == 0.0) == shows)
}

impl Masking {
    /// Returns the masking that also adds what is read from an array.
    fn adding(mut self, view: View, effect: Effect) -> Self {
        self.added.push(Added { view, effect });
        self
    }

    /// Returns the masking that also hides the distances at which the steps are not 0.
    fn hiding(&self, steps: &Steps) -> Self {
        let steps = steps.test(|value| value != 0.0);
        let hidden = self.hidden.as_ref().map_or_else(|| steps.clone(), |hidden| hidden.or(&steps));
        Self { hidden: Some(hidden), ..self.clone() }
    }
}
