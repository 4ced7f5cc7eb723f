//! What attention and its gradient compute, as polynomials.
//!
//! With `e` the exponentials of the shifted scores and `l` the sum of a row of them, probabilities are `e / l`, and their
//! gradient `g`, a product, gives `e / l * (g - d)` with `d` the sum of a row of `e / l * g`. Where weights are dropped, `m`
//! is 1 for those that are kept, probabilities are multiplied by it, and so is `g`, also in `d`. Where scores are dropped,
//! their gradient is multiplied by it. In which order softmax and its gradient multiply, divide and add does not matter
//! here: both give the same polynomial. Roundings are left out.
//!
//! Owns: sums, products and sums over keys of such polynomials. May not know: graphs.

use burn_tpu_kernels::kernels::attention::Dropped;
use std::collections::BTreeMap;

/// A number that is the same for all elements: a constant times powers of scalars that are known at run time, each by its
/// place in a list.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Factor {
    pub(super) constant: f64,
    pub(super) scalars: BTreeMap<usize, i32>,
}

impl Factor {
    pub(super) fn constant(constant: f64) -> Self {
        Self { constant, scalars: BTreeMap::new() }
    }

    pub(super) fn scalar(place: usize) -> Self {
        Self { constant: 1.0, scalars: BTreeMap::from([(place, 1)]) }
    }

    pub(super) fn times(&self, other: &Self) -> Self {
        let mut scalars = self.scalars.clone();
        for (&place, &power) in &other.scalars {
            *scalars.entry(place).or_default() += power;
        }
        scalars.retain(|_, power| *power != 0);
        Self { constant: self.constant * other.constant, scalars }
    }

    /// Returns one divided by the factor; `None` for zero.
    pub(super) fn inverse(&self) -> Option<Self> {
        let scalars = self.scalars.iter().map(|(&place, &power)| (place, -power)).collect();
        (self.constant != 0.0).then(|| Self { constant: 1.0 / self.constant, scalars })
    }

    /// Returns the number, if it does not depend on scalars.
    pub(super) fn known(&self) -> Option<f64> {
        self.scalars.is_empty().then_some(self.constant)
    }
}

/// What a term is a product of, besides its constant.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Term {
    /// The exponentials of the scores.
    pub(super) e: i32,
    /// The gradient of the probabilities.
    pub(super) g: i32,
    /// The hyperbolic tangent that caps the scores.
    pub(super) t: i32,
    /// Whether a weight is kept, 1 or 0.
    pub(super) m: i32,
    /// The sum of a row of exponentials.
    pub(super) l: i32,
    /// The sum of a row of probabilities times their gradients.
    pub(super) d: i32,
    /// Powers of scalars that are known at run time.
    pub(super) scalars: BTreeMap<usize, i32>,
}

impl Term {
    /// Returns the term with all powers but those of scalars negated.
    fn negated(&self) -> Self {
        let Self { e, g, t, m, l, d, .. } = *self;
        Self { e: -e, g: -g, t: -t, m: -m, l: -l, d: -d, scalars: BTreeMap::new() }
    }
}

/// What is done to the scores and their weights, on which their gradient depends.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Changes {
    pub(super) is_capped: bool,
    pub(super) dropped: Option<Dropped>,
}

impl Changes {
    /// The power of `m` in weights and their gradient.
    fn of_weights(self) -> i32 {
        i32::from(self.dropped == Some(Dropped::Weights))
    }

    /// The power of `m` in the gradient of products of queries and keys, besides that.
    fn of_scores(self) -> i32 {
        i32::from(self.dropped == Some(Dropped::Scores))
    }
}

/// A sum of terms, each with its constant.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Polynomial(BTreeMap<Term, f64>);

impl Polynomial {
    pub(super) fn term(term: Term) -> Self {
        Self(BTreeMap::from([(term, 1.0)]))
    }

    pub(super) fn factor(factor: &Factor) -> Self {
        let term = Term { scalars: factor.scalars.clone(), ..Term::default() };
        Self(BTreeMap::from([(term, factor.constant)])).without_zeros()
    }

    /// Returns the factor by which this is the probabilities, `e / l`, or those that are kept.
    pub(super) fn as_probabilities(&self, changes: Changes) -> Option<Factor> {
        let (term, &constant) = self.0.first_key_value().filter(|_| self.0.len() == 1)?;
        let expected = Term { e: 1, l: -1, m: changes.of_weights(), scalars: term.scalars.clone(), ..Term::default() };
        (*term == expected).then(|| Factor { constant, scalars: term.scalars.clone() })
    }

    /// The gradient of the scores, `e / l * (g - d)`; of the products before a cap, `e / l * (g - d) * (1 - t^2)`.
    fn gradient(changes: Changes) -> Self {
        let m = |g| changes.of_weights() * g + changes.of_scores();
        let of = |g, d, t| Term { e: 1, l: -1, g, d, t, m: m(g), ..Term::default() };
        let mut terms = BTreeMap::from([(of(1, 0, 0), 1.0), (of(0, 1, 0), -1.0)]);
        if changes.is_capped {
            terms.extend([(of(1, 0, 2), -1.0), (of(0, 1, 2), 1.0)]);
        }
        Self(terms)
    }

    /// Returns the factor by which this is the gradient of the scores, or of the products before a cap.
    pub(super) fn as_gradient(&self, changes: Changes) -> Option<Factor> {
        let (first, &constant) = self.0.first_key_value()?;
        let scalars = first.scalars.clone();
        let sign = if first.d != 0 { -1.0 } else { 1.0 } * if first.t == 2 { -1.0 } else { 1.0 };
        let factor = Factor { constant: constant * sign, scalars };
        let expected = Self::gradient(changes).times(&Self::factor(&factor));
        self.is_near(&expected).then_some(factor)
    }

    /// Returns whether the constants of all terms agree as far as roundings of run-time numbers allow.
    pub(super) fn is_near(&self, other: &Self) -> bool {
        let near = |a: f64, b: f64| (a - b).abs() <= 1e-6 * b.abs();
        self.0.len() == other.0.len() && self.0.iter().all(|(term, &a)| other.0.get(term).is_some_and(|&b| near(a, b)))
    }

    /// Returns whether each term has exponentials as a factor: the polynomial is zero where the scores are hidden.
    pub(super) fn is_hidden(&self) -> bool {
        self.0.keys().all(|term| term.e > 0)
    }

    fn without_zeros(mut self) -> Self {
        self.0.retain(|_, value| *value != 0.0);
        self
    }

    pub(super) fn plus(&self, other: &Self, sign: f64) -> Self {
        let (mut sum, mut sizes) = (self.0.clone(), self.0.clone());
        for (term, value) in &other.0 {
            *sum.entry(term.clone()).or_default() += sign * value;
            let size = sizes.entry(term.clone()).or_default();
            *size = size.abs() + value.abs();
        }
        // What cancels, but for the roundings of constants.
        sum.retain(|term, value| value.abs() > 1e-9 * sizes.get(term).copied().unwrap_or(0.0).abs());
        Self(sum).without_zeros()
    }

    pub(super) fn times(&self, other: &Self) -> Self {
        let mut product = Self::default();
        for (a, x) in &self.0 {
            for (b, y) in &other.0 {
                let [a_factor, b_factor] = [a, b].map(|term| Factor { constant: 1.0, scalars: term.scalars.clone() });
                let term = Term {
                    e: a.e + b.e,
                    g: a.g + b.g,
                    t: a.t + b.t,
                    m: a.m + b.m,
                    l: a.l + b.l,
                    d: a.d + b.d,
                    scalars: a_factor.times(&b_factor).scalars,
                };
                product = product.plus(&Self(BTreeMap::from([(term, x * y)])), 1.0);
            }
        }
        product
    }

    /// Returns one divided by the polynomial, if it has one term.
    pub(super) fn inverse(&self) -> Option<Self> {
        let (term, &constant) = self.0.first_key_value().filter(|_| self.0.len() == 1)?;
        let factor = Factor { constant: 1.0, scalars: term.scalars.clone() }.inverse()?;
        let term = Term { scalars: factor.scalars, ..term.negated() };
        Some(Self(BTreeMap::from([(term, 1.0 / constant)])))
    }

    pub(super) fn power(&self, power: u32) -> Self {
        (0..power).fold(Self::factor(&Factor::constant(1.0)), |product, _| product.times(self))
    }

    /// Returns the sum over the keys of a row; `None` if it is no row's known sum.
    pub(super) fn summed(&self, changes: Changes) -> Option<Self> {
        let mut sum = Self::default();
        for (term, constant) in &self.0 {
            // The sums of `e` and of `e g`, where weights are dropped of `e g m`, are `l` and `l d`.
            let mut row = match (term.e, term.g, term.t) {
                (1, g @ (0 | 1), 0) if term.m == g * changes.of_weights() => {
                    Term { l: term.l + 1, d: term.d + g, ..term.clone() }
                }
                _ => return None,
            };
            (row.e, row.g, row.m) = (0, 0, 0);
            sum = sum.plus(&Self(BTreeMap::from([(row, *constant)])), 1.0);
        }
        Some(sum)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: Changes = Changes { is_capped: false, dropped: None };
    const CAPPED: Changes = Changes { is_capped: true, dropped: None };
    const WEIGHTS: Changes = Changes { is_capped: false, dropped: Some(Dropped::Weights) };
    const SCORES: Changes = Changes { is_capped: false, dropped: Some(Dropped::Scores) };

    fn e() -> Polynomial {
        Polynomial::term(Term { e: 1, ..Term::default() })
    }

    fn g() -> Polynomial {
        Polynomial::term(Term { g: 1, ..Term::default() })
    }

    /// The gradient of `e / sum(e)`, as autodiff records it: `e * (g / l + sum(g * -e / l^2))`.
    #[test]
    fn the_recorded_gradient_of_a_softmax_is_the_closed_form() {
        let l = e().summed(NONE).unwrap();
        let of_quotient = g().times(&l.inverse().unwrap());
        let of_sum = g().times(&e()).times(&l.power(2).inverse().unwrap()).summed(NONE).unwrap();
        let gradient = e().times(&of_quotient.plus(&of_sum, -1.0));
        assert_eq!(gradient.as_gradient(NONE), Some(Factor::constant(1.0)));
        assert_eq!(gradient.as_gradient(CAPPED), None);
        // The gradient of the row's largest score is the sum of these, which is zero.
        assert_eq!(gradient.summed(NONE), Some(Polynomial::default()));
        let scaled = gradient.times(&Polynomial::factor(&Factor { constant: -0.5, ..Factor::scalar(3) }));
        assert_eq!(scaled.as_gradient(NONE), Some(Factor { constant: -0.5, ..Factor::scalar(3) }));
        let t = Polynomial::term(Term { t: 1, ..Term::default() });
        let slope = Polynomial::factor(&Factor::constant(1.0)).plus(&t.power(2), -1.0);
        assert_eq!(gradient.times(&slope).as_gradient(CAPPED), Some(Factor::constant(1.0)));
        assert_eq!(gradient.times(&slope).as_gradient(NONE), None);
    }

    /// Weights that are kept are multiplied by a number, forward and backward.
    #[test]
    fn the_gradient_of_dropped_weights_is_the_closed_form_too() {
        let l = e().summed(WEIGHTS).unwrap();
        let kept = Polynomial::term(Term { m: 1, ..Term::default() }).times(&Polynomial::factor(&Factor::scalar(0)));
        let p = e().times(&l.inverse().unwrap());
        assert_eq!(p.times(&kept).as_probabilities(WEIGHTS), Some(Factor::scalar(0)));
        assert_eq!(p.times(&kept).as_probabilities(NONE), None);
        assert_eq!(p.as_probabilities(WEIGHTS), None);
        let of_weights = g().times(&kept);
        let gradient = p.times(&of_weights.plus(&p.times(&of_weights).summed(WEIGHTS).unwrap(), -1.0));
        assert_eq!(gradient.as_gradient(WEIGHTS), Some(Factor::scalar(0)));
        assert_eq!(gradient.as_gradient(NONE), None);
        assert_eq!(p.times(&g()).summed(WEIGHTS), None);
    }

    /// Scores that are dropped are no part of their own gradient.
    #[test]
    fn the_gradient_of_dropped_scores_is_multiplied_by_what_is_kept() {
        let l = e().summed(SCORES).unwrap();
        let p = e().times(&l.inverse().unwrap());
        assert_eq!(p.as_probabilities(SCORES), Some(Factor::constant(1.0)));
        let of_scores = p.times(&g().plus(&p.times(&g()).summed(SCORES).unwrap(), -1.0));
        let kept = Polynomial::term(Term { m: 1, ..Term::default() });
        assert_eq!(of_scores.as_gradient(SCORES), None);
        assert_eq!(of_scores.times(&kept).as_gradient(SCORES), Some(Factor::constant(1.0)));
        assert_eq!(of_scores.times(&kept).as_gradient(NONE), None);
    }

    #[test]
    fn other_polynomials_are_no_gradient() {
        let l = e().summed(NONE).unwrap();
        let half = e().times(&l.inverse().unwrap()).times(&g());
        assert_eq!(half.as_gradient(NONE), None);
        assert_eq!(half.plus(&e(), 1.0).as_gradient(NONE), None);
        assert_eq!(Polynomial::default().as_gradient(NONE), None);
        assert_eq!(e().plus(&l, 1.0).inverse(), None);
        assert_eq!(e().times(&e()).summed(NONE), None);
        assert_eq!(g().summed(NONE), None);
    }
}
