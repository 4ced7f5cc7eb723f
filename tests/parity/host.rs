//! The reference for methods that Burn's CPU backends lack, or where they depart from Burn's documentation: plain loops
//! over elements.

use crate::case::Values;
use crate::feed::Feed;
use burn_backend::Backend;

/// Returns the row-major positions of each lane's elements along a dim, with lanes in row-major order of the other dims.
pub fn lanes(dims: &[usize], dim: usize) -> Vec<Vec<usize>> {
    let (size, inner) = (dims[dim], dims[dim + 1..].iter().product::<usize>());
    let outer: usize = dims[..dim].iter().product();
    let starts = (0..outer).flat_map(|o| (0..inner).map(move |i| o * size * inner + i));
    starts.map(|start| (0..size).map(|k| start + k * inner).collect()).collect()
}

/// Returns the dims that two operands broadcast to, and the positions of both operands for each element of the result.
fn zipped(left: &[usize], right: &[usize]) -> (Vec<usize>, Vec<(usize, usize)>) {
    let dims: Vec<usize> = left.iter().zip(right).map(|(&a, &b)| if a == 1 { b } else { a }).collect();
    let place = |mut k: usize, own: &[usize]| {
        let (mut place, mut stride) = (0, 1);
        for (&size, &mine) in dims.iter().zip(own).rev() {
            place += if mine == 1 { 0 } else { k % size * stride };
            stride *= mine;
            k /= size;
        }
        place
    };
    let pairs = (0..dims.iter().product()).map(|k| (place(k, left), place(k, right))).collect();
    (dims, pairs)
}

/// The order of floats in sorts and extremes: NaN is the largest.
pub fn order(a: f64, b: f64) -> std::cmp::Ordering {
    a.partial_cmp(&b).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()))
}

impl<B: Backend, A: Clone> Feed<'_, B, A> {
    /// Returns an operand's elements as f64.
    pub fn floats(&self, operand: usize) -> Vec<f64> {
        match self.values(operand) {
            Values::Float(values) => values.clone(),
            Values::Int(values) => values.iter().map(|&v| v as f64).collect(),
            Values::Bool(values) => values.iter().map(|&v| f64::from(u8::from(v))).collect(),
        }
    }

    /// Returns an operand's elements as i128.
    pub fn wholes(&self, operand: usize) -> Vec<i128> {
        match self.values(operand) {
            Values::Int(values) => values.clone(),
            Values::Float(_) | Values::Bool(_) => panic!("operand {operand} is not an integer tensor"),
        }
    }

    /// Returns whether an operand contains a NaN.
    pub fn has_nan(&self, operand: usize) -> bool {
        self.floats(operand).iter().any(|v| v.is_nan())
    }

    /// Adds a float result, computed element by element.
    pub fn map(&mut self, f: impl Fn(f64) -> f64) {
        let values: Vec<_> = self.floats(0).into_iter().map(f).collect();
        self.float(self.load(&values, self.dims(0)));
    }

    /// Adds a float result, computed element by element from two operands.
    pub fn map2(&mut self, f: impl Fn(f64, f64) -> f64) {
        let (dims, pairs) = zipped(self.dims(0), self.dims(1));
        let (x, y) = (self.floats(0), self.floats(1));
        let values: Vec<_> = pairs.into_iter().map(|(a, b)| f(x[a], y[b])).collect();
        self.float(self.load(&values, &dims));
    }

    /// Adds an integer result, computed element by element.
    pub fn map_int(&mut self, f: impl Fn(i128) -> i128) {
        self.put_wholes(self.wholes(0).into_iter().map(f).collect(), self.dims(0));
    }

    /// Adds an integer result, computed element by element from two operands.
    pub fn map2_int(&mut self, f: impl Fn(i128, i128) -> i128) {
        let (dims, pairs) = zipped(self.dims(0), self.dims(1));
        let (x, y) = (self.wholes(0), self.wholes(1));
        self.put_wholes(pairs.into_iter().map(|(a, b)| f(x[a], y[b])).collect(), &dims);
    }

    fn put_wholes(&mut self, values: Vec<i128>, dims: &[usize]) {
        self.int(self.load_int(&values, dims));
    }

    /// Returns the positions of each lane's first `k` elements in stable order, with NaN as the largest.
    pub fn places(&self, dim: usize, descending: bool, k: usize) -> Vec<Vec<usize>> {
        let values = self.floats(0);
        let mut all = lanes(self.dims(0), dim);
        for lane in &mut all {
            let at = lane.clone();
            let mut places: Vec<usize> = (0..at.len()).collect();
            places.sort_by(|&a, &b| {
                let order = order(values[at[a]], values[at[b]]);
                if descending { order.reverse() } else { order }
            });
            places.truncate(k);
            *lane = places;
        }
        all
    }

    /// Returns per-lane results in row-major order, with the dims of the result.
    pub fn unlaned<T: Copy + Default>(&self, dim: usize, all: &[Vec<T>]) -> (Vec<T>, Vec<usize>) {
        let mut dims = self.dims(0).to_vec();
        dims[dim] = all.first().map_or(dims[dim], Vec::len);
        let mut values = vec![T::default(); dims.iter().product()];
        for (lane, at) in all.iter().zip(lanes(&dims, dim)) {
            for (&value, place) in lane.iter().zip(at) {
                values[place] = value;
            }
        }
        (values, dims)
    }
}

/// Returns the coordinates of a row-major position.
pub fn coordinates(mut place: usize, dims: &[usize]) -> Vec<i128> {
    let mut at = vec![0; dims.len()];
    for d in (0..dims.len()).rev() {
        at[d] = (place % dims[d]) as i128;
        place /= dims[d];
    }
    at
}

impl<B: Backend, A: Copy> Feed<'_, B, A> {
    /// Adds a float result, computed element by element with the attribute.
    pub fn map_with(&mut self, f: impl Fn(f64, A) -> f64) {
        let attr = self.attr;
        self.map(|v| f(v, attr));
    }
}

impl<B: Backend> Feed<'_, B, i128> {
    /// Adds an integer result, computed element by element with the attribute.
    pub fn map2_attr(&mut self, f: impl Fn(i128, i128) -> i128) {
        let attr = self.attr;
        self.map_int(|v| f(v, attr));
    }
}
