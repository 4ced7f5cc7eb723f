//! The choice of shardings, on small programs.

use super::*;
use crate::op::{BinaryOp, Combine, DotAttrs, UnaryOp};
use crate::{Builder, DType, Graph, lower, verify};
use smallvec::smallvec;

fn mesh() -> Mesh {
    Mesh::new(&[("data".to_owned(), 2), ("model".to_owned(), 4)]).unwrap()
}

/// A program under construction, whose arguments arrive in different ways.
#[derive(Default)]
struct Recording {
    graph: Graph,
    arrivals: Vec<Arrival>,
}

impl Recording {
    fn argument(&mut self, dims: &[usize], arrival: Arrival) -> NodeId {
        let index = self.arrivals.len() as u32;
        self.arrivals.push(arrival);
        self.graph.add(Op::Parameter { index, ty: TensorType::new(DType::F32, dims) }, &[]).unwrap()
    }

    fn dot(&mut self, x: NodeId, w: NodeId, contract: (usize, usize)) -> NodeId {
        let attrs = DotAttrs::new([&[], &[]], [&[contract.0], &[contract.1]], DType::F32);
        self.graph.add(Op::DotGeneral(Box::new(attrs)), &[x, w]).unwrap()
    }

    /// Returns the parameters' and the results' shardings, and the types of batches that do not split.
    fn place(&self, outputs: &[NodeId]) -> (Vec<String>, Vec<String>, Vec<String>) {
        let program = Program::extract(&self.graph, outputs).unwrap();
        let (placement, uneven) = Placement::of(&program, &mesh(), &[0], &self.arrivals);
        let text = |shardings: &[Sharding]| shardings.iter().map(ToString::to_string).collect();
        let found = (text(&placement.parameters), text(&placement.results));
        verify(&program.placed(placement)).unwrap();
        (found.0, found.1, uneven.iter().map(ToString::to_string).collect())
    }
}

fn replicated(rank: usize) -> Arrival {
    Arrival::Mesh(Sharding::replicated(rank))
}

/// One step of gradient descent on `mean((x w + b)^2)`, from `x`, `w`, `b`: the new `w`, a momentum, `x w + b`.
fn step(arrivals: [Arrival; 3], batch: usize) -> (Vec<String>, Vec<String>, Vec<String>) {
    let mut r = Recording::default();
    let [x, w, b] = arrivals;
    let (x, w, b) = (r.argument(&[batch, 6], x), r.argument(&[6, 4], w), r.argument(&[4], b));
    let y = r.dot(x, w, (1, 0));
    let bias = r.graph.add(Op::BroadcastInDim { dims: smallvec![batch, 4], mapping: smallvec![1] }, &[b]).unwrap();
    let y = r.graph.binary(BinaryOp::Add, y, bias).unwrap();
    let gradient = r.dot(x, y, (0, 0));
    let momentum = r.graph.unary(UnaryOp::Tanh, gradient).unwrap();
    let new = r.graph.binary(BinaryOp::Sub, w, momentum).unwrap();
    let loss = r.graph.add(Op::Reduce { combine: Combine::Sum, dims: smallvec![0, 1] }, &[y]).unwrap();
    r.place(&[new, momentum, y, loss])
}

#[test]
fn batches_are_split_and_weights_are_replicated() {
    let (parameters, results, uneven) = step([Arrival::Host, Arrival::Host, Arrival::Host], 8);
    assert_eq!(parameters, ["[{0}, {}]", "[{}, {}]", "[{}]"]);
    // The prediction has the rows of the batch; the loss is everywhere.
    assert_eq!(results, ["[{}, {}]", "[{}, {}]", "[{0}, {}]", "[]"]);
    assert!(uneven.is_empty());
}

#[test]
fn a_batch_that_does_not_divide_is_replicated_and_named() {
    let (parameters, results, uneven) = step([Arrival::Host, replicated(2), replicated(1)], 7);
    assert_eq!(parameters, ["[{}, {}]", "[{}, {}]", "[{}]"]);
    assert_eq!(results, ["[{}, {}]", "[{}, {}]", "[{}, {}]", "[]"]);
    assert_eq!(uneven, ["f32[7,6]"]);
}

#[test]
fn a_batch_that_does_not_divide_would_be_split_in_a_larger_buffer() {
    let mut r = Recording::default();
    let (x, w) = (r.argument(&[7, 6], Arrival::Host), r.argument(&[6, 4], replicated(2)));
    let y = r.dot(x, w, (1, 0));
    let program = Program::extract(&r.graph, &[y]).unwrap();
    let wanted = Placement::wanted(&program, &mesh(), &[0], &r.arrivals);
    assert_eq!(wanted.iter().map(ToString::to_string).collect::<Vec<_>>(), ["[{0}, {}]", "[{}, {}]"]);
}

#[test]
fn new_state_follows_its_parameter() {
    let split = Arrival::Mesh(Sharding::new([smallvec![], smallvec![1]]));
    let (parameters, results, _) = step([Arrival::Host, split, replicated(1)], 8);
    assert_eq!(parameters, ["[{0}, {}]", "[{}, {1}]", "[{}]"]);
    assert_eq!(results, ["[{}, {1}]", "[{}, {1}]", "[{0}, {}]", "[]"]);
}

#[test]
fn state_from_the_host_follows_the_parameter_that_it_meets() {
    let mut r = Recording::default();
    let w = r.argument(&[8, 4], Arrival::Mesh(Sharding::new([smallvec![], smallvec![1]])));
    let moment = r.argument(&[8, 4], Arrival::Host);
    let new = r.graph.binary(BinaryOp::Add, w, moment).unwrap();
    assert_eq!(r.place(&[new]), (vec!["[{}, {1}]".into(); 2], vec!["[{}, {1}]".into()], vec![]));
}

#[test]
fn a_constraint_places_its_result_and_the_lowering_says_so() {
    let mut r = Recording::default();
    let w = r.argument(&[8, 4], replicated(2));
    let sharding = Sharding::new([smallvec![1], smallvec![]]);
    let split = r.graph.sharding_constraint(w, sharding).unwrap();
    assert_eq!(r.place(&[split]).1, ["[{1}, {}]"]);
    let program = Program::extract(&r.graph, &[split]).unwrap();
    let plain = lower(&program).unwrap().text;
    assert!(!plain.contains("sdy"), "{plain}");
    let (placement, _) = Placement::of(&program, &mesh(), &[0], &r.arrivals);
    let placed = program.clone().placed(placement);
    let lowered = lower(&placed).unwrap();
    for part in [
        "sdy.mesh @mesh = <[\"data\"=2, \"model\"=4]>",
        "%arg0: tensor<8x4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {}]>}",
        "-> (tensor<8x4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{\"model\"}, {}]>})",
        "\"sdy.sharding_constraint\"(%arg0) {sharding = #sdy.sharding<@mesh, [{\"model\"}, {}]>}",
    ] {
        assert!(lowered.text.contains(part), "{part} in {}", lowered.text);
    }
    // An argument whose result is placed differently cannot give it its memory.
    assert!(!lowered.text.contains("aliasing"), "{}", lowered.text);
    assert_ne!(placed, program);
    assert_ne!(placed.stable_hash(), program.stable_hash());
}

#[test]
fn values_that_only_elementwise_ops_read_count_as_batches() {
    let mut r = Recording::default();
    let (x, y) = (r.argument(&[4, 3], Arrival::Host), r.argument(&[5], Arrival::Host));
    let x = r.graph.unary(UnaryOp::Exp, x).unwrap();
    let y = r.graph.unary(UnaryOp::Exp, y).unwrap();
    let (parameters, results, uneven) = r.place(&[x, y]);
    assert_eq!(
        (parameters, results),
        (vec!["[{0}, {}]".into(), "[{}]".into()], vec!["[{0}, {}]".into(), "[{}]".into()])
    );
    assert_eq!(uneven, ["f32[5]"]);
}

#[test]
fn a_result_of_the_sizes_of_split_arguments_is_split_like_them() {
    // A gradient that is kept and meets its weight in a later program only.
    let mut r = Recording::default();
    let (x, y) = (r.argument(&[8, 12], Arrival::Host), r.argument(&[8, 4], Arrival::Host));
    let _ = r.argument(&[12, 4], Arrival::Mesh(Sharding::new([smallvec![1], smallvec![]])));
    let w = NodeId(2);
    let gradient = r.dot(x, y, (0, 0));
    let product = r.dot(x, w, (1, 0));
    assert_eq!(r.place(&[gradient, product]).1, ["[{1}, {}]", "[{0}, {}]"]);
}

#[test]
fn a_program_without_a_mesh_is_as_before() {
    let mut r = Recording::default();
    let x = r.argument(&[4], Arrival::Host);
    let y = r.graph.unary(UnaryOp::Exp, x).unwrap();
    let program = Program::extract(&r.graph, &[y]).unwrap();
    assert!(program.placement().is_none() && !program.to_string().contains("mesh"));
}
