//! A program in pieces: executables that run one after another as one.
//!
//! Owns: the values that pass between the pieces, and how long they live. May not know: where a program is divided
//! (`burn-tpu-graph`), and how a piece is compiled.

use super::{Arguments, Executable, Execution, SharedBuffer};
use crate::error::{Result, TpuError};
use crate::program::picked;
use burn_tpu_graph::{Piece, PieceInput, PieceValue, Pieces};
use std::sync::Arc;

/// The pieces of a program, each with its executable. The executables outlive their own entries in the cache.
pub(crate) struct InPieces {
    division: Pieces,
    /// Of each of the division's programs.
    executables: Vec<Arc<dyn Executable>>,
    is_from_disk: bool,
}

impl InPieces {
    /// `is_from_disk` tells that no piece had to be compiled.
    pub(crate) fn new(division: Pieces, executables: Vec<Arc<dyn Executable>>, is_from_disk: bool) -> Self {
        Self { division, executables, is_from_disk }
    }
}

impl Executable for InPieces {
    /// A value that only this run owns belongs to the piece that reads it last, which may take its memory. It is freed after
    /// that piece.
    ///
    /// # Errors
    /// Those of a piece. If no argument was donated or freed by then, all are in place.
    fn execute(&self, arguments: &mut Arguments, slots: &[u64]) -> Result<Execution> {
        let mut run = Run { arguments, results: Vec::new() };
        let mut whole = Execution { pieces: self.division.pieces.len(), ..Execution::default() };
        for piece in &self.division.pieces {
            whole.add(run.piece(piece, &self.executables[piece.program], slots)?);
        }
        whole.outputs = self.division.outputs.iter().map(|&number| run.result(number)).collect::<Result<_>>()?;
        Ok(whole)
    }

    /// A piece that has its own entry in the cache is counted twice: the cache then holds less than it may, never more.
    fn size_bytes(&self) -> u64 {
        self.executables.iter().map(|executable| executable.size_bytes()).sum()
    }

    fn is_from_disk(&self) -> bool {
        self.is_from_disk
    }
}

/// The values of a run.
struct Run<'a> {
    arguments: &'a mut Arguments,
    /// By number; none after the last use.
    results: Vec<Option<SharedBuffer>>,
}

impl Run<'_> {
    /// Runs a piece. What it reads for the last time is freed if it does not take it.
    fn piece(&mut self, piece: &Piece, executable: &Arc<dyn Executable>, slots: &[u64]) -> Result<Execution> {
        let mut inputs: Arguments = piece.inputs.iter().map(|input| self.lend(input)).collect();
        match executable.execute(&mut inputs, &picked(&piece.slots, slots)) {
            Ok(mut done) => {
                self.results.extend(std::mem::take(&mut done.outputs).into_iter().map(Some));
                Ok(done)
            }
            Err(error) => {
                piece.inputs.iter().zip(inputs).for_each(|(input, value)| self.put_back(input, value));
                Err(error)
            }
        }
    }

    fn place(&mut self, value: PieceValue) -> Option<&mut Option<SharedBuffer>> {
        match value {
            PieceValue::Parameter(index) => self.arguments.get_mut(index as usize),
            PieceValue::Result(number) => self.results.get_mut(number),
        }
    }

    /// Returns a value: the only reference to it, if this run alone owns it and it is not read again.
    fn lend(&mut self, input: &PieceInput) -> Option<SharedBuffer> {
        let place = self.place(input.value)?;
        let is_owned = place.as_ref().is_some_and(|value| Arc::strong_count(value) == 1);
        if input.is_last_use && is_owned { place.take() } else { place.clone() }
    }

    fn put_back(&mut self, input: &PieceInput, value: Option<SharedBuffer>) {
        if let Some(place) = self.place(input.value).filter(|place| place.is_none()) {
            *place = value;
        }
    }

    fn result(&self, number: usize) -> Result<SharedBuffer> {
        let missing = || TpuError::Bug(format!("no piece computed result {number}"));
        self.results.get(number).cloned().flatten().ok_or_else(missing)
    }
}
