//! How a mesh divides a custom call, and what each of its devices computes then.

use super::{error, list};
use crate::{Mesh, Program, Result, Sharding, TensorType};

/// How a mesh divides a call: every device computes it for its parts of the operands, which gives its parts of the results.
/// It needs nothing that another device has.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Partition {
    /// The mesh of the programs that the call is for.
    pub mesh: Mesh,
    /// The sharding of each operand.
    pub operands: Vec<Sharding>,
    /// The sharding of each result.
    pub results: Vec<Sharding>,
}

impl Partition {
    /// Returns the rule that the shardings break for arrays of these types, if they break one.
    pub(super) fn check(&self, operands: &[TensorType], results: &[TensorType]) -> Result<(), String> {
        for (types, shardings) in [(operands, &self.operands), (results, &self.results)] {
            if types.len() != shardings.len() {
                return Err(format!("{} shardings for {} arrays", shardings.len(), types.len()));
            }
            types.iter().zip(shardings).try_for_each(|(ty, sharding)| sharding.check(ty, &self.mesh))?;
        }
        Ok(())
    }

    /// Returns the types that a device has of operands of these types.
    ///
    /// # Errors
    /// Types of operands and results that it does not divide.
    pub fn local_types(&self, operands: &[TensorType], results: &[TensorType]) -> Result<Vec<TensorType>> {
        self.check(operands, results).map_err(|rule| error("parts", operands, rule))?;
        Ok(self.local_operands(operands))
    }

    /// Returns the types that a device has of operands.
    pub fn local_operands(&self, types: &[TensorType]) -> Vec<TensorType> {
        local(types, &self.operands, &self.mesh)
    }

    /// Returns the types that a device has of results.
    pub fn local_results(&self, types: &[TensorType]) -> Vec<TensorType> {
        local(types, &self.results, &self.mesh)
    }

    pub(super) fn text(&self) -> String {
        format!(" on {}: ({}) -> ({})", self.mesh, list(&self.operands), list(&self.results))
    }
}

fn local(types: &[TensorType], shardings: &[Sharding], mesh: &Mesh) -> Vec<TensorType> {
    types.iter().zip(shardings).map(|(ty, sharding)| sharding.local(ty, mesh)).collect()
}

/// What every device of a mesh computes of its parts of the operands. It is checked when it is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parts {
    operands: Vec<TensorType>,
    results: Vec<TensorType>,
    partition: Partition,
    part: Program,
}

impl Parts {
    /// Creates the form of operands and results of these types. Parameter `i` of `part` is a device's part of operand `i`;
    /// its outputs are the parts of the results. It may be or have other custom calls.
    ///
    /// # Errors
    /// Types that the partition does not divide, and a program of other types than those of the parts.
    pub fn new(
        operands: Vec<TensorType>,
        results: Vec<TensorType>,
        partition: Partition,
        part: Program,
    ) -> Result<Self> {
        let parts = Self { operands, results, partition, part };
        match parts.check() {
            Ok(()) => Ok(parts),
            Err(rule) => Err(error("parts", &parts.operands, rule)),
        }
    }

    fn check(&self) -> Result<(), String> {
        self.partition.check(&self.operands, &self.results)?;
        let (operands, results) = (self.local_operands(), self.local_results());
        for (index, ty) in self.part.parameters() {
            if operands.get(index as usize) != Some(ty) {
                let given = operands.get(index as usize).map_or("nothing".into(), ToString::to_string);
                return Err(format!("a device has {given} of operand {index}, and its program takes {ty}"));
            }
        }
        if !self.part.output_types().eq(&results) {
            let (computed, results) = (list(self.part.output_types()), list(&results));
            return Err(format!("a device has ({results}) of the results, and its program returns ({computed})"));
        }
        Ok(())
    }

    /// Returns whether programs of this mesh of several devices, or of one device, are divided so.
    pub fn is_for(&self, mesh: Option<&Mesh>) -> bool {
        Some(&self.partition.mesh) == mesh
    }

    /// Returns the types of the whole operands.
    pub fn operands(&self) -> &[TensorType] {
        &self.operands
    }

    /// Returns the types of the whole results.
    pub fn results(&self) -> &[TensorType] {
        &self.results
    }

    /// Returns how the mesh divides them.
    pub fn partition(&self) -> &Partition {
        &self.partition
    }

    /// Returns what a device computes.
    pub fn part(&self) -> &Program {
        &self.part
    }

    /// Returns the types that a device has of the operands.
    pub fn local_operands(&self) -> Vec<TensorType> {
        self.partition.local_operands(&self.operands)
    }

    /// Returns the types that a device has of the results.
    pub fn local_results(&self) -> Vec<TensorType> {
        self.partition.local_results(&self.results)
    }

    /// Returns whether dim 0 of an operand is split as that of the first result is, which has as many rows.
    pub(crate) fn keeps_first_dim(&self, operand: usize) -> bool {
        let rows = |types: &[TensorType], shardings: &[Sharding], i: usize| {
            Some((*types.get(i)?.dims.first()?, shardings.get(i)?.dims().first()?.clone()))
        };
        let of_operand = rows(&self.operands, &self.partition.operands, operand);
        of_operand.is_some() && of_operand == rows(&self.results, &self.partition.results, 0)
    }
}
