mod recording;

use super::*;
use crate::{Optimization, Pipeline};
use burn_tpu_graph::op::{BinaryOp, UnaryOp};
use burn_tpu_graph::{Arrival, Builder, DType, Literal, Mesh, Node, Op, Placement, verify};
use recording::{Recording, STEPS, WIDTH};
use std::sync::Arc;

/// Runs the pass, checks what it promises, and returns the loops of the result.
#[track_caller]
fn rolled(program: &Program) -> Vec<(usize, Arc<Program>)> {
    verify(program).unwrap();
    let once = Roll.run(program).unwrap();
    verify(&once.program).unwrap();
    let twice = Roll.run(&once.program).unwrap();
    assert_eq!((twice.count, &twice.program), (0, &once.program), "a second run finds something");
    assert_eq!(Roll.run(program).unwrap().program, once.program, "two runs differ");
    let inputs = |program: &Program| {
        let mut inputs: Vec<_> = program.parameters().map(|(index, ty)| (index, ty.clone())).collect();
        inputs.sort_by_key(|&(index, _)| index);
        inputs
    };
    assert_eq!(inputs(program), inputs(&once.program));
    assert!(program.output_types().eq(once.program.output_types()));
    let loops: Vec<_> = once.program.graph().nodes().iter().filter_map(body_of).collect();
    assert_eq!(loops.len(), once.count);
    if loops.is_empty() {
        assert_eq!(&once.program, program);
    }
    loops
}

fn body_of(node: &Node) -> Option<(usize, Arc<Program>)> {
    match &node.op {
        Op::For { trips, body } => Some((trips.most(), Arc::clone(body))),
        _ => None,
    }
}

fn count(program: &Program, name: &str) -> usize {
    program.graph().nodes().iter().filter(|node| node.op.short_name() == name).count()
}

#[test]
fn a_program_of_a_mesh_keeps_its_placement() {
    let mut r = Recording::default();
    let (x, weights) = (r.parameter(&[STEPS, WIDTH, WIDTH]), [r.square(), r.square()]);
    let states = r.states(x, weights, 0..STEPS);
    let program = r.program(&[states[STEPS - 1]]);
    let mesh = Mesh::new(&[("data".to_owned(), 2)]).unwrap();
    let (placement, _) = Placement::of(&program, &mesh, &[0], &vec![Arrival::Host; 3]);
    let program = program.placed(placement);
    assert_eq!(rolled(&program).len(), 1);
    assert_eq!(Roll.run(&program).unwrap().program.placement(), program.placement());
}

#[test]
fn a_state_is_carried_and_an_input_is_scanned() {
    for reverse in [false, true] {
        let mut r = Recording::default();
        let (x, weights) = (r.parameter(&[STEPS, WIDTH, WIDTH]), [r.square(), r.square()]);
        let order: Vec<usize> = if reverse { (0..STEPS).rev().collect() } else { (0..STEPS).collect() };
        let states = r.states(x, weights, order.into_iter());
        let loops = rolled(&r.program(&[states[STEPS - 1]]));
        assert_eq!(loops.len(), 1);
        let (trips, body) = &loops[0];
        assert_eq!((*trips, count(body, "dot_general"), count(body, "dynamic_slice")), (STEPS, 2, 1));
        // State, input, two weights.
        assert_eq!(body.outputs().len(), 4, "{body}");
    }
}

#[test]
fn a_chain_of_updates_is_one_buffer() {
    let mut r = Recording::default();
    let (x, weights) = (r.parameter(&[STEPS, WIDTH, WIDTH]), [r.square(), r.square()]);
    let mut state = r.square();
    let mut buffer = r.zeros(&[STEPS, WIDTH, WIDTH]);
    for at in 0..STEPS {
        let x = r.taken(x, at);
        state = r.cell(x, state, weights);
        buffer = r.assigned(buffer, state, at);
    }
    let loops = rolled(&r.program(&[buffer, state]));
    let (trips, body) = &loops[0];
    assert_eq!((loops.len(), *trips, count(body, "dynamic_update_slice")), (1, STEPS, 1), "{body}");
}

/// A loop and its reverse: sums over the values that the first one computes, in the other direction.
#[test]
fn values_are_stacked_for_a_later_loop() {
    let mut r = Recording::default();
    let (x, weights) = (r.parameter(&[STEPS, WIDTH, WIDTH]), [r.square(), r.square()]);
    let states = r.states(x, weights, 0..STEPS);
    let mut error = r.square();
    let mut sum = None;
    for &state in states.iter().rev() {
        let slope = r.unary(UnaryOp::Cos, state);
        let back = r.dot(error, weights[1]);
        error = r.binary(BinaryOp::Mul, back, slope);
        let clipped = r.unary(UnaryOp::Tanh, error);
        let term = r.dot(state, clipped);
        let term = r.unary(UnaryOp::Sin, term);
        let term = r.unary(UnaryOp::Floor, term);
        // The first term is not added to anything.
        sum = Some(sum.map_or(term, |sum| r.binary(BinaryOp::Add, term, sum)));
    }
    let loops = rolled(&r.program(&[sum.unwrap(), error]));
    let trips: Vec<usize> = loops.iter().map(|(trips, _)| *trips).collect();
    assert_eq!(trips, [STEPS, STEPS - 1]);
    assert_eq!(count(&loops[0].1, "dynamic_update_slice"), 1, "one stack: {}", loops[0].1);
    assert_eq!(count(&loops[1].1, "dynamic_slice"), 1, "{}", loops[1].1);
}

/// Layers with weights of their own repeat in kind only.
#[test]
fn copies_with_parameters_of_their_own_are_left_alone() {
    let mut r = Recording::default();
    let mut state = r.square();
    for _ in 0..STEPS {
        let (x, weights) = (r.square(), [r.square(), r.square()]);
        state = r.cell(x, state, weights);
    }
    assert!(rolled(&r.program(&[state])).is_empty());
}

#[test]
fn element_wise_chains_and_short_repetitions_are_left_alone() {
    let mut r = Recording::default();
    let mut state = r.square();
    for _ in 0..400 {
        state = r.unary(UnaryOp::Sin, state);
    }
    assert!(rolled(&r.program(&[state])).is_empty());
    let mut r = Recording::default();
    let (x, weights) = (r.parameter(&[STEPS, WIDTH, WIDTH]), [r.square(), r.square()]);
    let states = r.states(x, weights, 0..MIN_MEMBERS / 10);
    assert!(rolled(&r.program(&[states[MIN_MEMBERS / 10 - 1]])).is_empty());
}

/// The sums of two weights' gradients have the keys of a piece of half the length.
#[test]
fn a_piece_of_equal_parts_is_found() {
    let mut r = Recording::default();
    let (x, y) = (r.parameter(&[70, WIDTH, WIDTH]), r.parameter(&[70, WIDTH, WIDTH]));
    let mut sums = [r.square(), r.square()];
    for at in 0..70 {
        for (sum, source) in sums.iter_mut().zip([x, y]) {
            let term = r.taken(source, at);
            let term = r.dot(term, term);
            *sum = r.binary(BinaryOp::Add, term, *sum);
        }
    }
    let loops = rolled(&r.program(&sums));
    assert_eq!((loops.len(), loops[0].0, loops[0].1.outputs().len()), (1, 70, 4));
}

/// Values that single nodes read come out of the stack; the last one is the carry.
#[test]
fn values_of_single_trips_can_be_read() {
    let mut r = Recording::default();
    let (x, weights) = (r.parameter(&[STEPS, WIDTH, WIDTH]), [r.square(), r.square()]);
    let states = r.states(x, weights, 0..STEPS);
    let picked = [states[3], states[17], states[STEPS - 1]];
    let loops = rolled(&r.program(&picked));
    assert_eq!((loops.len(), count(&loops[0].1, "dynamic_update_slice")), (1, 1));
}

/// A concatenation of all values is the stack itself.
#[test]
fn joined_values_are_one_buffer() {
    for (reverse, dim) in [(false, 0), (true, 0), (false, 1), (true, 1)] {
        let mut r = Recording::default();
        let (x, weights) = (r.parameter(&[STEPS, WIDTH, WIDTH]), [r.square(), r.square()]);
        let mut states = r.states(x, weights, 0..STEPS);
        if reverse {
            states.reverse();
        }
        let all = r.graph.concatenate(&states, dim).unwrap();
        let program = r.program(&[all]);
        assert_eq!(rolled(&program).len(), 1);
        let found = Roll.run(&program).unwrap().program;
        assert_eq!((count(&found, "concatenate"), count(&found, "slice")), (0, 0), "{found}");
    }
}

/// Every value has a reader of its own: their slices would be as long as the recording.
#[test]
fn a_loop_whose_values_are_read_one_by_one_is_left_alone() {
    let mut r = Recording::default();
    let (x, weights) = (r.parameter(&[STEPS, WIDTH, WIDTH]), [r.square(), r.square()]);
    let mut state = r.square();
    let mut outputs = Vec::new();
    for at in 0..STEPS {
        let x = r.taken(x, at);
        let wide = r.dot(x, weights[0]);
        let own = r.unary(UnaryOp::Sin, wide);
        state = r.cell(own, state, weights);
        outputs.extend([wide, own, state]);
    }
    assert!(rolled(&r.program(&outputs)).is_empty());
}

#[test]
fn random_numbers_and_other_results_stay_in_their_trip() {
    let mut r = Recording::default();
    let mut key = r.graph.splat(DType::U64, &[2], 1i64).unwrap();
    let (mut state, weight) = (r.square(), r.square());
    for _ in 0..STEPS {
        let (next, bits) = r.graph.rng_bit_generator(key, DType::U32, &[WIDTH, WIDTH]).unwrap();
        key = next;
        let noise = r.graph.convert(bits, DType::F32).unwrap();
        let moved = r.dot(state, weight);
        let moved = r.unary(UnaryOp::Tanh, moved);
        let sum = r.binary(BinaryOp::Add, moved, noise);
        let sum = r.unary(UnaryOp::Sin, sum);
        state = r.unary(UnaryOp::Cos, sum);
    }
    let loops = rolled(&r.program(&[state]));
    assert_eq!((loops.len(), count(&loops[0].1, "rng_bit_generator")), (1, 1));
}

/// A loop carries no complex values.
#[test]
fn complex_values_are_not_rolled() {
    let mut r = Recording::default();
    let (mut state, weight) = (r.square(), r.square());
    for _ in 0..STEPS {
        let moved = r.dot(state, weight);
        let rotated = r.graph.complex(moved, state).unwrap();
        let [real, imag] = [r.graph.real(rotated), r.graph.imag(rotated)].map(Result::unwrap);
        let sum = r.binary(BinaryOp::Add, real, imag);
        state = r.unary(UnaryOp::Tanh, sum);
    }
    assert!(rolled(&r.program(&[state])).is_empty());
}

/// An integer that grows is computed from the trip.
#[test]
fn numbers_that_grow_are_counted() {
    let mut r = Recording::default();
    let (mut state, weight) = (r.square(), r.square());
    for step in 0..STEPS {
        let number = r.graph.constant(Literal::scalar(DType::I64, 100 - 2 * step as i64)).unwrap();
        let offset = r.graph.constant(Literal::scalar(DType::I64, 5i64)).unwrap();
        let number = r.binary(BinaryOp::Add, number, offset);
        let number = r.graph.convert(number, DType::F32).unwrap();
        let number = r.graph.broadcast_to(number, &[WIDTH, WIDTH]).unwrap();
        let moved = r.dot(state, weight);
        let sum = r.binary(BinaryOp::Mul, moved, number);
        let sum = r.unary(UnaryOp::Sin, sum);
        state = r.unary(UnaryOp::Cos, sum);
    }
    let loops = rolled(&r.program(&[state]));
    assert_eq!((loops.len(), loops[0].0), (1, STEPS));
}

#[test]
fn the_pipeline_rolls_at_the_full_level() {
    let mut r = Recording::default();
    let (x, weights) = (r.parameter(&[STEPS, WIDTH, WIDTH]), [r.square(), r.square()]);
    let states = r.states(x, weights, 0..STEPS);
    let program = r.program(&states[STEPS - 1..]);
    let optimized = Pipeline::new(Optimization::Balanced).verify(true).run(program).unwrap();
    assert!(optimized.applied.contains(&("roll", 1)), "{:?}", optimized.applied);
}
