use super::*;
use crate::op::{BinaryOp, Combine, Direction, UnaryOp};
use crate::{Builder, Graph, TensorType, verify};

const F32: DType = DType::F32;

fn parameter(graph: &mut Graph, index: u32, dims: &[usize]) -> NodeId {
    graph.add(Op::Parameter { index, ty: TensorType::new(F32, dims) }, &[]).unwrap()
}

/// Returns a loop over `steps` that was recorded step by step. Each step has a scalar and an offset of its own, and reads a
/// row of `x` at that offset. Every element of `widths` is the number of unary ops of a kind of step.
fn recorded_loop(steps: u32, widths: &[usize]) -> Program {
    let mut graph = Graph::new();
    let (x, mut state) = (parameter(&mut graph, 0, &[64, 8]), parameter(&mut graph, 1, &[8]));
    for step in 0..steps {
        let offset = graph.add(Op::Offset { index: 2 * step, dtype: DType::I32 }, &[]).unwrap();
        let zero = graph.constant(crate::Literal::scalar(DType::I32, 0i64)).unwrap();
        let row = graph.dynamic_slice(x, &[offset, zero], &[1, 8]).unwrap();
        let row = graph.reshape(row, &[8]).unwrap();
        let scale = graph.add(Op::Slot { index: 2 * step + 1, dtype: F32 }, &[]).unwrap();
        let scale = graph.broadcast_to(scale, &[8]).unwrap();
        let scaled = graph.binary(BinaryOp::Mul, state, scale).unwrap();
        state = graph.binary(BinaryOp::Add, scaled, row).unwrap();
        for op in 0..widths[step as usize % widths.len()] {
            let op = if op % 3 == 0 { UnaryOp::Sin } else { UnaryOp::Tanh };
            state = graph.unary(op, state).unwrap();
        }
    }
    Program::canonical(&graph, &[state]).unwrap().0
}

fn divided(program: &Program, limit: usize) -> Pieces {
    let pieces = Pieces::of(program, limit).unwrap().expect("a long program");
    pieces.programs.iter().for_each(|program| verify(program).unwrap());
    pieces
}

#[test]
fn a_short_program_is_one_piece() {
    let program = recorded_loop(2, &[10]);
    assert!(Pieces::of(&program, program.graph().len()).unwrap().is_none());
    assert!(Pieces::of(&program, program.graph().len() - 1).unwrap().is_some());
}

/// All steps are alike but for offsets and scalars, whatever part of a step the limit is.
#[test]
fn equal_steps_are_few_programs() {
    for width in [40, 41, 53] {
        let program = recorded_loop(60, &[width]);
        for limit in [30, 100, 101, 137, 300] {
            let pieces = divided(&program, limit);
            let most = 3 + 2 * (width + 9).div_ceil(limit);
            assert!(pieces.programs.len() <= most, "{} programs of {limit} nodes", pieces.programs.len());
            assert!(pieces.pieces.len() >= program.graph().len() / limit);
        }
    }
}

/// No value of a step is larger than another, so only the ops tell where a step begins.
#[test]
fn steps_that_differ_are_cut_where_each_begins_alike() {
    let pieces = divided(&recorded_loop(60, &[40, 47]), 120);
    assert!(pieces.programs.len() <= 5, "{} programs", pieces.programs.len());
}

#[test]
fn cuts_depend_on_the_program_alone() {
    let program = recorded_loop(60, &[40, 47]);
    let (one, other) = (divided(&program, 120), divided(&program, 120));
    assert_eq!(one.programs, other.programs);
    assert_eq!(one.outputs, other.outputs);
}

#[test]
fn a_piece_has_at_most_the_limit_of_nodes_and_what_it_reads() {
    for limit in [10, 50, 200] {
        let pieces = divided(&recorded_loop(40, &[30]), limit);
        for program in &pieces.programs {
            let leaves =
                program.graph().nodes().iter().filter(|node| leaf_length(node, &[None; 500]).is_some()).count();
            assert!(program.graph().len() - leaves <= limit, "{} nodes for {limit}", program.graph().len());
        }
    }
}

/// A wide value is made and reduced in each step: the cut is where the narrow one is all that passes.
#[test]
fn a_cut_is_where_few_bytes_pass() {
    let mut graph = Graph::new();
    let mut state = parameter(&mut graph, 0, &[4]);
    for _ in 0..20 {
        let row = graph.unary(UnaryOp::Tanh, state).unwrap();
        let mut wide = graph.broadcast_in_dim(row, &[100, 4], &[1]).unwrap();
        for _ in 0..9 {
            wide = graph.unary(UnaryOp::Sin, wide).unwrap();
        }
        state = graph.reduce(Combine::Sum, wide, &[0]).unwrap();
    }
    let program = Program::canonical(&graph, &[state]).unwrap().0;
    for limit in [24, 30, 60] {
        let pieces = divided(&program, limit);
        let results: Vec<_> = pieces.programs.iter().flat_map(|program| program.output_types()).collect();
        assert!(results.iter().all(|ty| ty.dims[..] == [4]), "{results:?}");
    }
}

/// Constants, scalars and what only moves them are built again where they are read, and do not pass.
#[test]
fn leaves_do_not_pass_between_pieces() {
    let pieces = divided(&recorded_loop(20, &[30]), 60);
    for piece in &pieces.pieces {
        let results = piece.inputs.iter().filter(|input| matches!(input.value, PieceValue::Result(_)));
        assert!(results.count() <= 1, "only the state passes: {piece:?}");
    }
}

#[test]
fn an_output_lives_on_and_another_value_ends_with_its_last_reader() {
    let mut graph = Graph::new();
    let [x, y] = [0, 1].map(|index| parameter(&mut graph, index, &[4]));
    let first = graph.binary(BinaryOp::Add, x, y).unwrap();
    let mut last = first;
    for _ in 0..20 {
        last = graph.unary(UnaryOp::Tanh, last).unwrap();
    }
    let end = graph.binary(BinaryOp::Mul, last, y).unwrap();
    let program = Program::canonical(&graph, &[first, end, x]).unwrap().0;
    let pieces = divided(&program, 8);
    let uses = |value| pieces.pieces.iter().flat_map(|piece| &piece.inputs).filter(move |input| input.value == value);
    let last_uses = |value| uses(value).filter(|input| input.is_last_use).count();
    assert!(uses(PieceValue::Result(pieces.outputs[0])).all(|input| !input.is_last_use));
    assert_eq!([0, 1].map(|index| last_uses(PieceValue::Parameter(index))), [1, 1]);
    let results: usize = pieces.pieces.iter().map(|piece| pieces.programs[piece.program].outputs().len()).sum();
    let passed = (0..results).filter(|number| !pieces.outputs.contains(number));
    passed.for_each(|number| assert_eq!(last_uses(PieceValue::Result(number)), 1));
}

/// A complex value is no program's argument, and a further result belongs to its node.
#[test]
fn what_cannot_be_an_argument_is_not_cut_off() {
    let mut graph = Graph::new();
    let x = parameter(&mut graph, 0, &[8]);
    let mut imaginary = graph.unary(UnaryOp::Sin, x).unwrap();
    let complex = graph.add(Op::Complex, &[x, imaginary]).unwrap();
    for _ in 0..12 {
        imaginary = graph.unary(UnaryOp::Tanh, imaginary).unwrap();
    }
    let real = graph.add(Op::Real, &[complex]).unwrap();
    let mut sum = graph.binary(BinaryOp::Add, real, imaginary).unwrap();
    for _ in 0..12 {
        sum = graph.unary(UnaryOp::Tanh, sum).unwrap();
    }
    let greater = graph.compare(Direction::Gt, sum, x).unwrap();
    let program = Program::canonical(&graph, &[greater]).unwrap().0;
    let pieces = divided(&program, 4);
    let types: Vec<_> = pieces.programs.iter().flat_map(|program| program.output_types()).collect();
    assert!(types.iter().all(|ty| ty.dtype != DType::C64), "{types:?}");
    assert!(pieces.pieces.len() > 3);
}
