//! Divides programs into pieces and runs these one after another, in the interpreter and on the plugin.

use super::trial::{Plugin, Trial};
use burn_tpu_graph::{Piece, PieceValue, Pieces};
use burn_tpu_runtime::testing::interpret_program;

/// A program in pieces, and the values that its pieces have computed on one engine.
pub struct Run<'t> {
    pub whole: &'t Trial,
    pub division: Pieces,
    results: Vec<Vec<u8>>,
}

impl<'t> Run<'t> {
    /// Returns a program in pieces of some nodes; `None` if it is a single one.
    pub fn of(whole: &'t Trial, limit: usize) -> Option<Self> {
        let division = Pieces::of(&whole.program, limit).unwrap()?;
        Some(Self { whole, division, results: Vec::new() })
    }

    /// Returns a piece with its inputs. What its results may differ by is not known, only that of the whole's outputs.
    fn piece(&self, piece: &Piece) -> Trial {
        let value = |value| match value {
            PieceValue::Parameter(index) => self.whole.parameters[index as usize].clone(),
            PieceValue::Result(number) => self.results[number].clone(),
        };
        let parameters = piece.inputs.iter().map(|input| value(input.value)).collect();
        let slots = piece.slots.iter().map(|&index| self.whole.slots[index as usize]).collect();
        let program = (*self.division.programs[piece.program]).clone();
        Trial { program, parameters, slots, errors: Vec::new() }
    }

    fn outputs(&self) -> Vec<Vec<u8>> {
        self.division.outputs.iter().map(|&number| self.results[number].clone()).collect()
    }

    /// Checks that the pieces compute the same bits as the whole in the interpreter, and that no value is read after its
    /// last use.
    pub fn check(mut self) -> Self {
        let mut dead = Vec::new();
        for piece in self.division.pieces.clone() {
            let Trial { program, parameters, slots, .. } = self.piece(&piece);
            assert!(piece.inputs.iter().all(|input| !dead.contains(&input.value)), "{}", self.whole.described());
            dead.extend(piece.inputs.iter().filter(|input| input.is_last_use).map(|input| input.value));
            self.results.extend(interpret_program(&program, &parameters, &slots).unwrap());
        }
        assert!(self.division.outputs.iter().all(|&number| !dead.contains(&PieceValue::Result(number))));
        let whole = interpret_program(&self.whole.program, &self.whole.parameters, &self.whole.slots).unwrap();
        assert!(self.outputs() == whole, "{}", self.whole.described());
        self.results.clear();
        self
    }
}

/// Runs programs in pieces on the plugin, the pieces of one number as one program. Returns the first disagreement.
pub fn first_disagreement(plugin: &Plugin, runs: &mut [Run]) -> Option<String> {
    let most = runs.iter().map(|run| run.division.pieces.len()).max().unwrap_or(0);
    for number in 0..most {
        let due = |run: &&mut Run| number < run.division.pieces.len();
        let parts: Vec<Trial> =
            runs.iter_mut().filter(due).map(|run| run.piece(&run.division.pieces[number])).collect();
        let results = match plugin.run(&parts) {
            Ok(results) => results,
            Err(error) => return Some(error),
        };
        runs.iter_mut().filter(due).zip(results).for_each(|(run, results)| run.results.extend(results));
    }
    runs.iter().find_map(|run| {
        let wrong = run.whole.mismatch(&run.outputs())?;
        Some(format!("{wrong}\n{}", run.whole.described()))
    })
}
