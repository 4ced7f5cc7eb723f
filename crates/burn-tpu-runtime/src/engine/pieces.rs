//! A program in pieces: executables that run one after another as one.
//!
//! Owns: the values that pass between the pieces, and how long they live. May not know: where a program is divided
//! (`burn-tpu-graph`), and how a piece is compiled.

use super::{Arguments, Executable, Execution, SharedBuffer};
use crate::error::{Result, TpuError};
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

/// Returns the values of a part's slots, given by their indices, from those of the whole program.
pub(crate) fn picked(indices: &[u32], slots: &[u64]) -> Vec<u64> {
    indices.iter().map(|&index| slots[index as usize]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::DeviceBuffer;
    use burn_tpu_graph::op::{BinaryOp, UnaryOp};
    use burn_tpu_graph::{Builder, DType, Graph, Op, Program, TensorType};

    struct Value;

    impl DeviceBuffer for Value {}

    /// Takes what it alone owns, as a donation does, or fails before it begins.
    struct Fake {
        results: usize,
        fails: bool,
    }

    impl Executable for Fake {
        fn execute(&self, arguments: &mut Arguments, _slots: &[u64]) -> Result<Execution> {
            if self.fails {
                return Err(TpuError::Bug("it fails".to_owned()));
            }
            let is_owned =
                |value: &Option<SharedBuffer>| value.as_ref().is_some_and(|value| Arc::strong_count(value) == 1);
            let donated_buffers = arguments.iter().filter(|value| is_owned(value)).count();
            arguments.retain(|value| !is_owned(value));
            let outputs = (0..self.results).map(|_| Arc::new(Value) as SharedBuffer).collect();
            Ok(Execution { outputs, donated_buffers, ..Execution::default() })
        }

        fn size_bytes(&self) -> u64 {
            1
        }
    }

    /// `tanh(..exp(..sin(..x)))) * y`, in at least three pieces of which the one of number `fails` does.
    fn in_pieces(fails: Option<usize>) -> InPieces {
        let mut graph = Graph::new();
        let ty = TensorType::new(DType::F32, [2]);
        let [x, y] = [0, 1].map(|index| graph.add(Op::Parameter { index, ty: ty.clone() }, &[]).unwrap());
        let ops = [UnaryOp::Sin, UnaryOp::Exp, UnaryOp::Tanh].into_iter().flat_map(|op| [op; 8]);
        let chain = ops.fold(x, |value, op| graph.unary(op, value).unwrap());
        let product = graph.binary(BinaryOp::Mul, chain, y).unwrap();
        let program = Program::canonical(&graph, &[product]).unwrap().0;
        let division = Pieces::of(&program, 8).unwrap().unwrap();
        assert!(division.pieces.len() >= 3);
        let failing = fails.map(|number| division.pieces[number].program);
        let fake = |(index, program): (usize, &Arc<Program>)| -> Arc<dyn Executable> {
            Arc::new(Fake { results: program.outputs().len(), fails: failing == Some(index) })
        };
        let executables = division.programs.iter().enumerate().map(fake).collect();
        InPieces::new(division, executables, false)
    }

    fn arguments() -> [SharedBuffer; 2] {
        [Arc::new(Value), Arc::new(Value)]
    }

    #[test]
    fn what_only_the_run_owns_is_taken_by_its_last_reader() {
        let whole = in_pieces(None);
        let mut owned: Arguments = arguments().map(Some).to_vec();
        let execution = whole.execute(&mut owned, &[]).unwrap();
        assert_eq!((execution.outputs.len(), execution.pieces), (1, whole.division.pieces.len()));
        // `x`, `y`, and the value between each two pieces.
        assert_eq!(execution.donated_buffers, 1 + execution.pieces);
        assert!(owned.iter().all(Option::is_none));
        let kept = arguments();
        let mut shared: Arguments = kept.iter().cloned().map(Some).collect();
        assert_eq!(whole.execute(&mut shared, &[]).unwrap().donated_buffers, execution.pieces - 1);
        assert!(shared.iter().all(Option::is_some));
    }

    #[test]
    fn arguments_are_in_place_unless_an_earlier_piece_took_them() {
        let places = |fails: usize| {
            let mut arguments: Arguments = arguments().map(Some).to_vec();
            assert!(in_pieces(Some(fails)).execute(&mut arguments, &[]).is_err());
            arguments.iter().map(Option::is_some).collect::<Vec<_>>()
        };
        assert_eq!((places(0), places(2)), (vec![true, true], vec![false, true]));
    }
}
