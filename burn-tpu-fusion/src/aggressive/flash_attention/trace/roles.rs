//! Which dim of the scores each dim of a value is.

use super::Trace;
use burn_tpu_graph::{Node, Op};

/// For each dim of a value, the dim of the scores that it is; `None` for a dim of size 1.
type Roles = Vec<Option<usize>>;

impl Trace<'_> {
    /// Returns the roles of the dims of a result; `None` for ops that are not part of attention.
    pub(super) fn roles(&self, node: &Node) -> Option<Roles> {
        let traced = node.operands.iter().find(|operand| self.values.contains_key(operand))?;
        let roles = &self.values[traced].roles;
        let dims = &self.graph.ty(*traced).dims;
        match &node.op {
            Op::BroadcastInDim { mapping, dims: new } => self.broadcast_roles(roles, dims, mapping, new),
            Op::Reshape { dims: new } => reshaped_roles(roles, dims, new),
            Op::Transpose { permutation } => Some(permutation.iter().map(|&from| roles[from]).collect()),
            Op::Reduce { dims: reduced, .. } => {
                Some((0..dims.len()).filter(|dim| !reduced.contains(dim)).map(|dim| roles[dim]).collect())
            }
            Op::ArgReduce { dim: reduced, .. } => {
                Some((0..dims.len()).filter(|dim| dim != reduced).map(|dim| roles[dim]).collect())
            }
            Op::GetResult { .. } => Some(roles.clone()),
            Op::Unary(_)
            | Op::Binary(_)
            | Op::Compare(_)
            | Op::Select
            | Op::Convert { .. }
            | Op::OptimizationBarrier => self.joined_roles(node),
            _ => None,
        }
    }

    /// Returns the roles after a broadcast, which may repeat a number of each query along the keys.
    fn broadcast_roles(&self, roles: &Roles, dims: &[usize], mapping: &[usize], new: &[usize]) -> Option<Roles> {
        let mut result = vec![None; new.len()];
        for (&to, &role) in mapping.iter().zip(roles) {
            result[to] = role;
        }
        for (dim, &size) in new.iter().enumerate() {
            let from = mapping.iter().position(|&to| to == dim);
            let is_repeated = size != 1 && from.is_none_or(|from| dims[from] == 1);
            if is_repeated {
                let is_of_keys = size == self.dims[self.key()] && !result.contains(&Some(self.key()));
                if !is_of_keys {
                    return None;
                }
                result[dim] = Some(self.key());
            }
        }
        Some(result)
    }

    /// Returns the roles of an element-wise result; `None` if its operands disagree.
    fn joined_roles(&self, node: &Node) -> Option<Roles> {
        let mut result = vec![None; node.ty.rank()];
        for operand in &node.operands {
            let Some(value) = self.values.get(operand) else { continue };
            for (role, &other) in result.iter_mut().zip(&value.roles) {
                if role.is_some() && other.is_some() && *role != other {
                    return None;
                }
                *role = role.or(other);
            }
        }
        Some(result)
    }
}

/// Returns the roles after a reshape that inserts and removes dims of size 1; `None` for any other.
fn reshaped_roles(roles: &Roles, dims: &[usize], new: &[usize]) -> Option<Roles> {
    let wide = |dims: &[usize]| (0..dims.len()).filter(|&dim| dims[dim] != 1).collect::<Vec<_>>();
    let (from, to) = (wide(dims), wide(new));
    if from.len() != to.len() {
        return None;
    }
    let mut result = vec![None; new.len()];
    for (&from, &to) in from.iter().zip(&to) {
        if dims[from] != new[to] {
            return None;
        }
        result[to] = roles[from];
    }
    Some(result)
}
