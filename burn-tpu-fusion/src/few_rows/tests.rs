//! Random batches of products have the values that they had, and others are left alone.

use super::*;
use crate::pass::testing::{self, values};
use burn_tpu_graph::{Mesh, Placement, Sharding, TensorType};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

/// How the second operand of a product comes.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Second {
    AsItIs,
    Transposed,
    /// With the contracted dim at its end, and no transpose.
    ContractedLast,
}

#[derive(Clone, Debug)]
struct Case {
    dtype: DType,
    batch: Vec<usize>,
    /// Rows, columns, and the contracted size.
    sizes: [usize; 3],
    second: Second,
}

impl Case {
    fn product(&self) -> (Graph, NodeId) {
        let mut graph = Graph::new();
        let (batch, [rows, columns, inner]) = (&self.batch[..], self.sizes);
        let mut parameter = |index, matrix: &[usize]| {
            let ty = TensorType::new(self.dtype, [batch, matrix].concat());
            graph.add(Op::Parameter { index, ty }, &[]).unwrap()
        };
        let x = parameter(0, &[rows, inner]);
        let is_as_it_is = self.second == Second::AsItIs;
        let matrix = if is_as_it_is { [inner, columns] } else { [columns, inner] };
        let mut y = parameter(1, &matrix);
        let leading: Vec<usize> = (0..batch.len()).collect();
        if self.second == Second::Transposed {
            y = graph.transpose(y, &[&leading[..], &[batch.len() + 1, batch.len()]].concat()).unwrap();
        }
        let contract = batch.len() + usize::from(self.second == Second::ContractedLast);
        let attrs = DotAttrs::new([&leading, &leading], [&[batch.len() + 1], &[contract]], self.dtype.accumulator());
        let product = graph.dot_general(x, y, attrs).unwrap();
        (graph, product)
    }
}

fn cases() -> impl Strategy<Value = Case> {
    let second = [Second::AsItIs, Second::Transposed, Second::ContractedLast];
    let sizes = (1..=MOST_ROWS, 60..80usize, 60..80usize);
    (prop::collection::vec(1..5usize, 1..3), sizes, prop::sample::select(second.to_vec())).prop_map(
        |(batch, (rows, columns, inner), second)| Case {
            dtype: DType::F32,
            batch,
            sizes: [rows, columns, inner],
            second,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig {
        rng_seed: RngSeed::Fixed(0),
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn each_product_of_a_batch_is_what_it_was(case in cases()) {
        let (graph, product) = case.product();
        let (before, after) = testing::run(&FewRows, &graph, &[product]);
        let products: usize = case.batch.iter().product();
        let is_large = case.sizes[1] * case.sizes[2] >= LEAST_ELEMENTS;
        let is_found = (2..=MOST_PRODUCTS).contains(&products) && is_large;
        prop_assert_eq!(after.count, usize::from(is_found), "{:?}", case);
        prop_assert_eq!(values(&before), values(&after.program), "{:?}", case);
    }
}

#[test]
fn keys_are_multiplied_where_they_are() {
    let case = Case { dtype: DType::F32, batch: vec![1, 3], sizes: [3, 64, 64], second: Second::Transposed };
    let (graph, product) = case.product();
    let after = testing::run(&FewRows, &graph, &[product]).1.program;
    assert!(!after.graph().nodes().iter().any(|node| matches!(node.op, Op::Transpose { .. })), "{after}");
}

#[test]
fn other_products_are_left_alone() {
    let case = Case { dtype: DType::F32, batch: vec![2, 3], sizes: [3, 64, 64], second: Second::AsItIs };
    let others = [
        Case { sizes: [MOST_ROWS + 1, 64, 64], ..case.clone() },
        Case { sizes: [3, 63, 64], ..case.clone() },
        Case { batch: vec![1, 1], ..case.clone() },
        Case { batch: vec![MOST_PRODUCTS + 1], ..case.clone() },
        Case { batch: vec![], ..case.clone() },
        Case { dtype: DType::BF16, ..case.clone() },
    ];
    for case in others {
        let (graph, product) = case.product();
        assert_eq!(testing::run(&FewRows, &graph, &[product]).1.count, 0, "{case:?}");
    }
    let (graph, product) = case.product();
    let whole = Sharding::replicated(case.batch.len() + 2);
    let mesh = Mesh::new(&[("data".to_owned(), 2)]).unwrap();
    let placement = Placement { mesh, batch: vec![], parameters: vec![whole.clone(); 2], results: vec![whole] };
    let program = Program::extract(&graph, &[product]).unwrap().placed(placement);
    assert_eq!(FewRows.run(&program).unwrap().count, 0);
}
