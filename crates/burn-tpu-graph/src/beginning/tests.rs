use super::*;
use crate::op::{BinaryOp, DotAttrs, UnaryOp};
use crate::{Builder, DType, Graph, TensorType, verify};

fn parameter(graph: &mut Graph, index: u32, dims: &[usize]) -> NodeId {
    graph.add(Op::Parameter { index, ty: TensorType::new(DType::F32, dims) }, &[]).unwrap()
}

fn product(graph: &mut Graph, x: NodeId, y: NodeId) -> NodeId {
    graph.dot_general(x, y, DotAttrs::new([&[], &[]], [&[1], &[0]], DType::F32)).unwrap()
}

/// Numbers that depend on a slot alone, as a random draw does.
fn drawn(graph: &mut Graph, index: u32, dims: &[usize]) -> NodeId {
    let key = graph.add(Op::Slot { index, dtype: DType::U64 }, &[]).unwrap();
    let state = graph.reshape(key, &[1]).unwrap();
    let state = graph.concatenate(&[state, state], 0).unwrap();
    let (_, bits) = graph.rng_bit_generator(state, DType::U32, dims).unwrap();
    graph.convert(bits, DType::F32).unwrap()
}

/// The nodes of a step `w = w - m', m' = m * beta + gradient`, with a mask that is drawn at every step and a long
/// forward part.
fn step(graph: &mut Graph, x: NodeId, w: NodeId, m: NodeId, first_slot: u32) -> [NodeId; 2] {
    let mask = drawn(graph, first_slot, &[4, 4]);
    let mut y = product(graph, x, w);
    y = graph.binary(BinaryOp::Mul, y, mask).unwrap();
    y = product(graph, y, x);
    for _ in 0..LEAST_NODES {
        y = graph.unary(UnaryOp::Tanh, y).unwrap();
    }
    let beta = graph.add(Op::Slot { index: first_slot + 1, dtype: DType::F32 }, &[]).unwrap();
    let beta = graph.broadcast_to(beta, &[4, 4]).unwrap();
    let decayed = graph.binary(BinaryOp::Mul, m, beta).unwrap();
    let m = graph.binary(BinaryOp::Add, decayed, y).unwrap();
    [graph.binary(BinaryOp::Sub, w, m).unwrap(), m]
}

fn zeros(graph: &mut Graph) -> NodeId {
    graph.splat(DType::F32, &[4, 4], 0).unwrap()
}

/// The second step, in which weight and state are inputs.
fn second() -> Arc<Program> {
    let graph = &mut Graph::new();
    let [x, w, m] = [0, 1, 2].map(|index| parameter(graph, index, &[4, 4]));
    let outputs = step(graph, x, w, m, 0);
    Arc::new(Program::canonical(graph, &outputs).unwrap().0)
}

/// The first step, in which they are made; with the nodes of the weight and the state.
fn first() -> (Program, [NodeId; 2]) {
    let graph = &mut Graph::new();
    let x = parameter(graph, 0, &[4, 4]);
    let (w, m) = (drawn(graph, 0, &[4, 4]), zeros(graph));
    let outputs = step(graph, x, w, m, 1);
    (Program::extract(graph, &outputs).unwrap(), [w, m])
}

#[test]
fn the_rest_of_a_first_step_is_the_second_step() {
    let (program, [w, m]) = first();
    let of = |starts: Starts| Beginning::of(&program, |_| false, &starts).unwrap();
    let marked = Starts { initial: vec![w, m], ..Starts::default() };
    // A drawn mask has the weight's type too, but no output takes its memory.
    let draws = program.graph().ids().filter(|id| matches!(program.graph().node(*id).op, Op::Convert { .. }));
    let created: Vec<NodeId> = draws.chain([m]).collect();
    assert_eq!(created.len(), 3);
    for starts in [marked, Starts { created: created.clone(), is_first: true, ..Starts::default() }] {
        let beginning = of(starts).unwrap();
        assert_eq!(beginning.rest.0, second());
        assert_eq!(beginning.outputs, [Source::Device(0), Source::Device(1)]);
        assert_eq!(beginning.makers.len(), 2, "a draw, and what needs none");
        let values: Vec<_> = beginning.makers.iter().map(|maker| maker.values.clone()).collect();
        assert_eq!(values, [[1], [0]]);
        for program in beginning.makers.iter().map(|maker| &maker.program).chain([&beginning.rest.0]) {
            assert_eq!(verify(program), Ok(()));
        }
    }
    assert!(of(Starts { created: created.clone(), ..Starts::default() }).is_none(), "no first program");
    let drawn = of(Starts { created, is_first: true, only_drawn: true, ..Starts::default() }).unwrap();
    assert_eq!(drawn.makers.len(), 1, "zeros come back");
}

/// The input that a call scales is held, so the next call takes it.
#[test]
fn what_is_made_of_new_data_and_held_is_no_part_of_the_rest() {
    let graph = &mut Graph::new();
    let [x, w] = [0, 1].map(|index| parameter(graph, index, &[4, 4]));
    let scaled = graph.binary_const(BinaryOp::Mul, x, 2.0).unwrap();
    let mut y = product(graph, scaled, w);
    for _ in 0..LEAST_NODES {
        y = graph.unary(UnaryOp::Tanh, y).unwrap();
    }
    let of = |outputs: &[NodeId], given: &[u32]| {
        let program = Program::extract(graph, outputs).unwrap();
        Beginning::of(&program, |index| given.contains(&index), &Starts::default()).unwrap()
    };
    let beginning = of(&[scaled, y], &[0]).unwrap();
    assert_eq!(beginning.outputs, [Source::Host(0), Source::Device(0)]);
    assert_eq!((beginning.makers[0].inputs.parameters.as_slice(), beginning.first_value), (&[0][..], 2));
    assert_eq!(beginning.rest.1.parameters, [2, 1], "the value, and the weight");
    assert!(of(&[y], &[0]).is_none(), "nobody holds it");
    assert!(of(&[scaled, y], &[1]).is_none(), "it is not new");
}

#[test]
fn a_short_rest_is_not_divided() {
    let graph = &mut Graph::new();
    let x = parameter(graph, 0, &[4, 4]);
    let w = drawn(graph, 0, &[4, 4]);
    let y = product(graph, x, w);
    let program = Program::extract(graph, &[w, y]).unwrap();
    let starts = Starts { is_first: true, ..Starts::default() };
    assert!(Beginning::of(&program, |_| false, &starts).unwrap().is_none());
}

/// An optimizer that computes two updates and chooses makes zeros at every step, which are nearer to its output than its
/// state is.
#[test]
fn what_is_created_is_no_state_if_the_output_has_one() {
    let program_of = |is_first: bool| {
        let graph = &mut Graph::new();
        let x = parameter(graph, 0, &[4, 4]);
        let state = [1, 2].map(|i| if is_first { zeros(graph) } else { parameter(graph, i, &[4, 4]) });
        let [w, m] = step(graph, x, state[0], state[1], 0);
        let other = zeros(graph);
        let outputs = [w, graph.binary(BinaryOp::Max, other, m).unwrap()];
        (Program::extract(graph, &outputs).unwrap(), state.to_vec(), other)
    };
    let (program, initial, other) = program_of(true);
    let starts = Starts { initial, created: vec![other], is_first: true, only_drawn: false };
    let beginning = Beginning::of(&program, |_| false, &starts).unwrap().unwrap();
    let (second, ..) = program_of(false);
    assert_eq!(*beginning.rest.0, Program::canonical(second.graph(), second.outputs()).unwrap().0);
}
